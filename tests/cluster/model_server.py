"""A `shoal serve` for tests, with clients of its services, and models to be served."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import cluster
import tap


class Server:
    """with Server("--model_base_path=DIR") as s: s.predict(...)"""

    def __init__(self, *flags, env=None, want=0):
        self.errors = tempfile.TemporaryFile("w+")
        soft = os.environ.get("SHOAL_SOFT_GPUS")  # models are on the CPU unless devices are asked for
        if soft and not any(f.startswith("--devices") for f in flags):
            flags = (*flags, f"--devices=GPU={soft}")
        self.process = subprocess.Popen([cluster.SHOAL, "serve", "--port=0", *flags], stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, env={**os.environ, **(env or {})})
        self.lines, self.port, self.rest = [], None, None
        rest = any(f.startswith("--rest_api_port") for f in flags)
        while self.port is None or (rest and self.rest is None):
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"the server ended with {self.process.wait()}: {self.said()}")
            self.lines.append(line)
            m = re.match(r"(?:listening on grpc|REST at https?)://.*:(\d+)", line)
            if m and line.startswith("REST"):
                self.rest = int(m.group(1))
            elif m:
                self.port = int(m.group(1))

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, sig=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        code = self.process.wait(cluster.PATIENCE)
        self.process.stdout.close()
        return code

    def busy(self):
        """Does it compute?"""
        def ticks():
            with open(f"/proc/{self.process.pid}/stat") as f:
                return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
        before = ticks()
        time.sleep(1)
        return ticks() - before > 2

    def alive(self):
        return self.process.poll() is None


def api():
    """TensorFlow Serving's own client."""
    try:
        from tensorflow_serving.apis import prediction_service_pb2_grpc as prediction
    except ImportError:
        raise tap.Skip("there is no tensorflow-serving-api: make deps") from None
    from tensorflow_serving.apis import model_service_pb2_grpc as model
    return prediction, model


class Client:
    def __init__(self, port, credentials=None, target=None):
        import grpc
        prediction, model = api()
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        target = target or f"localhost:{port}"
        self.channel = (grpc.secure_channel(target, credentials, options) if credentials
                        else grpc.insecure_channel(target, options))
        self.prediction = prediction.PredictionServiceStub(self.channel)
        self.model = model.ModelServiceStub(self.channel)

    def spec(self, to, name="default", version=None, label=None, signature=None):
        to.model_spec.name = name
        if version is not None:
            to.model_spec.version.value = version
        if label is not None:
            to.model_spec.version_label = label
        if signature is not None:
            to.model_spec.signature_name = signature
        return to

    def predict(self, inputs, outputs=(), timeout=cluster.PATIENCE, **spec):
        """(version, {key: array})"""
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2
        r = self.spec(predict_pb2.PredictRequest(), **spec)
        for key, value in inputs.items():
            r.inputs[key].CopyFrom(value if hasattr(value, "SerializeToString")
                                   else tf.make_tensor_proto(value))
        r.output_filter.extend(outputs)
        got = self.prediction.Predict(r, timeout=timeout)
        return got.model_spec.version.value, {k: tf.make_ndarray(v) for k, v in got.outputs.items()}

    def states(self, **spec):
        """{version: state}"""
        from tensorflow_serving.apis import get_model_status_pb2
        got = self.model.GetModelStatus(self.spec(get_model_status_pb2.GetModelStatusRequest(), **spec))
        return {v.version: get_model_status_pb2.ModelVersionStatus.State.Name(v.state)
                for v in got.model_version_status}


def half_plus(path, version, add=2.0):
    """y = x / 2 + add as base/VERSION, which appears whole."""
    import tensorflow as tf

    class Half(tf.Module):
        def __init__(self):
            super().__init__()
            self.half, self.add = tf.Variable(0.5), tf.Variable(add)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
        def __call__(self, x):
            return {"y": x * self.half + self.add}

    m = Half()
    beside = os.path.join(path, f"being-written-{version}")
    tf.saved_model.save(m, beside, signatures={"serving_default": m.__call__})
    os.rename(beside, os.path.join(path, str(version)))


def endless(path, version=1):
    """y = x after far too many turns."""
    import tensorflow as tf

    class Endless(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
        def __call__(self, x):
            turn = tf.while_loop(lambda i: i < 2 ** 60, lambda i: [i + 1], [tf.constant(0, tf.int64)])[0]
            return {"y": x + tf.cast(turn, tf.float32)}

    m = Endless()
    tf.saved_model.save(m, os.path.join(path, str(version)), signatures={"serving_default": m.__call__})


def zeros(path, version=1):
    """y: as many zeros as x says."""
    import tensorflow as tf

    class Zeros(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, "x")])
        def __call__(self, x):
            return {"y": tf.zeros([tf.shape(x)[0], tf.reduce_max(x)])}

    m = Zeros()
    tf.saved_model.save(m, os.path.join(path, str(version)), signatures={"serving_default": m.__call__})


def examples_model(path, version=1):
    """Of Examples with a feature "x": classify, regress, both from one graph of version 1."""
    import tensorflow.compat.v1 as tf
    with tf.Graph().as_default(), tf.Session() as session:
        serialized = tf.placeholder(tf.string, [None], "examples")
        parsed = tf.parse_example(serialized, {"x": tf.FixedLenFeature([1], tf.float32),
                                               "bias": tf.FixedLenFeature([1], tf.float32, [0.0])})
        w = tf.Variable([[1.0, -1.0]])
        x = parsed["x"] + parsed["bias"]
        scores = tf.nn.softmax(tf.matmul(x, w))
        classes = tf.tile(tf.constant([["pos", "neg"]]), [tf.shape(x)[0], 1])
        value = x * 2.0
        session.run(tf.global_variables_initializer())
        info = tf.saved_model.build_tensor_info
        define = tf.saved_model.signature_def_utils.build_signature_def
        b = tf.saved_model.Builder(os.path.join(path, str(version)))
        b.add_meta_graph_and_variables(session, ["serve"], {
            "serving_default": define({"inputs": info(serialized)},
                                      {"classes": info(classes), "scores": info(scores)}, "tensorflow/serving/classify"),
            "value": define({"inputs": info(serialized)}, {"outputs": info(value)}, "tensorflow/serving/regress"),
            "predict": define({"examples": info(serialized)}, {"value": info(value)}, "tensorflow/serving/predict")})
        b.save()


def example(**features):
    import tensorflow as tf
    return tf.train.Example(features=tf.train.Features(feature={
        k: tf.train.Feature(float_list=tf.train.FloatList(value=[v])) for k, v in features.items()}))


def remove(path, version):
    shutil.rmtree(os.path.join(path, str(version)))
