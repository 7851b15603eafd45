"""Clients of `shoal serve` that mean harm, or go at the wrong moment.

# needs: tensorflow
# not on the soft device: what is tried is before and after the model's step
"""
import os
import random
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "interop")]

import grpc
import numpy as np
import tensorflow as tf

import cluster
import model_server
import tap
from model_server import Client, Server, half_plus

X = np.array([1.0, 2.0, 5.0], np.float32)


def in_folder(test):
    def body():
        model_server.api()
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
    return body


def refused(call, words):
    try:
        call()
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.INVALID_ARGUMENT and words in e.details(), (e.code(), e.details())
        return
    raise AssertionError("it should have failed")


class Cubes(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, None, None], tf.float32, "x")])
    def run(self, x):
        return {"x": x * 2}


@in_folder
def test_clients_that_go_as_batches_end(folder):
    """At any moment, from the wait for company to when the others of the batch have their answers: who stays gets its own.
    What is read of tasks whose threads have left is seen by the sanitizers alone."""
    from tensorflow_serving.apis import predict_pb2
    m = Cubes()
    tf.saved_model.save(m, os.path.join(folder, "1"), signatures=m.run)
    parameters = os.path.join(folder, "batching")
    with open(parameters, "w") as f:
        f.write("max_batch_size { value: 16 } batch_timeout_micros { value: 1000 } num_batch_threads { value: 2 }"
                "max_enqueued_batches { value: 1000 }")
    with Server(f"--model_base_path={folder}", "--enable_batching", f"--batching_parameters_file={parameters}") as s:
        clients, requests, draw, answers = [Client(s.port) for _ in range(4)], [], random.Random(1), 0
        for i in range(12):  # of two widths, which go in batches of their own
            requests.append(clients[0].spec(predict_pb2.PredictRequest()))
            requests[-1].inputs["x"].CopyFrom(tf.make_tensor_proto(np.full((1 + i % 3, 1, 2 + i % 2), i, np.float32)))
        for _ in range(60):
            drawn = [draw.randrange(12) for _ in range(48)]
            asked = [clients[k % 4].prediction.Predict.future(requests[i], timeout=60) for k, i in enumerate(drawn)]
            time.sleep(draw.uniform(0, .006))
            for k in draw.sample(range(48), 40):
                asked[k].cancel()
            for f, i in zip(asked, drawn):
                if f.cancelled():
                    continue
                got, answers = tf.make_ndarray(f.result().outputs["x"]), answers + 1
                assert np.array_equal(got, np.full((1 + i % 3, 1, 2 + i % 2), 2 * i, np.float32)), (i, got)
        assert answers >= 60 * 8 and s.process.poll() is None, answers


@in_folder
def test_configurations_that_wait(folder):
    """They wait for each other: one that nobody waits for any more is not taken, and what one may list is bounded."""
    from tensorflow_serving.apis import model_management_pb2
    half_plus(f"{folder}/a", 1)
    with Server(f"--model_base_path={folder}/a") as s:
        c = Client(s.port)

        def reload(models):
            r = model_management_pb2.ReloadConfigRequest()
            for name, path in models:
                r.config.model_config_list.config.add(name=name, base_path=path, model_platform="tensorflow")
            return r

        first = c.model.HandleReloadConfigRequest.future(reload([(f"m{i}", f"{folder}/a") for i in range(400)]))

        def is_taken():
            try:
                return c.states(name="m0")
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.NOT_FOUND, e

        cluster.until(is_taken)
        given_up = c.model.HandleReloadConfigRequest.future(reload([("given_up", "/nowhere")]))
        last = c.model.HandleReloadConfigRequest.future(reload([("default", f"{folder}/a")]))
        time.sleep(0.1)
        given_up.cancel()
        assert not first.done()
        while not first.done():  # others are answered meanwhile
            try:
                c.predict({"x": X}, name="m0", timeout=cluster.SLACK)
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.NOT_FOUND, e  # not loaded yet
        assert first.result(cluster.PATIENCE).status.error_code == 0
        assert last.result(cluster.PATIENCE).status.error_code == 0
        assert "given_up" not in s.said(), s.said()
        assert c.predict({"x": X})[1]["y"][0] == 2.5
        many = reload([(f"m{i}", f"{folder}/a") for i in range(20)])
        for m in many.config.model_config_list.config:
            m.model_version_policy.specific.versions.extend(range(6000))
        refused(lambda: c.model.HandleReloadConfigRequest(many), "more than 100000 versions and labels in all")
        refused(lambda: c.model.HandleReloadConfigRequest(reload([("a", folder), ("b", folder), ("a", folder)])),
                "there are two models of that name")


if __name__ == "__main__":
    tap.main(globals())
