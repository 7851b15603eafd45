"""`shoal serve` asked by TensorFlow Serving's own client: answers, versions that come and go, several models, labels,
errors, the end.

# needs: tensorflow
# long on the soft device; in short: predict
"""
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "interop")]

import grpc
import numpy as np
import tensorflow as tf

import certificates
import cluster
import model_server
import tap
from model_server import Client, Server, half_plus

X = np.array([1.0, 2.0, 5.0], np.float32)


def fails(call, code, words=""):
    try:
        call()
    except grpc.RpcError as e:
        assert e.code() == code and words in e.details(), (e.code(), e.details())
        return
    raise AssertionError("it should have failed")


def in_folder(test):
    def body():
        model_server.api()
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
    return body


@in_folder
def test_predict(folder):
    half_plus(folder, 1)
    with Server(f"--model_base_path={folder}", "--model_name=half") as s:
        c = Client(s.port)
        version, got = c.predict({"x": X}, name="half")
        assert version == 1 and np.array_equal(got["y"], X / 2 + 2), got
        version, got = c.predict({"x": X}, name="half", version=1, signature="serving_default", outputs=["y"])
        assert np.array_equal(got["y"], X / 2 + 2)
        large = np.arange(1000000, dtype=np.float32)
        assert np.array_equal(c.predict({"x": large}, name="half")[1]["y"], large / 2 + 2)
        assert s.stop() == 0, s.said()


class Types(tf.Module):
    """Gives back what it is given, in every type."""

    TYPES = [tf.float32, tf.float64, tf.int32, tf.int64, tf.uint8, tf.int8, tf.int16, tf.uint16, tf.uint32, tf.uint64,
             tf.bool, tf.string, tf.float16, tf.complex64]

    @tf.function
    def give_back(self, **kwargs):
        return {k + "_out": tf.identity(v) for k, v in kwargs.items()}

    def save(self, folder):
        specs = {t.name: tf.TensorSpec(None, t, t.name) for t in self.TYPES}
        tf.saved_model.save(self, folder, signatures=self.give_back.get_concrete_function(**specs))


@in_folder
def test_types(folder):
    Types().save(os.path.join(folder, "7"))
    values = {t.name: np.array([[0, 1], [1, 100]]).astype(t.as_numpy_dtype) for t in Types.TYPES if t != tf.string}
    values["string"] = np.array([b"", b"a\xff", b"a longer text than sixteen bytes"], object)
    with Server(f"--model_base_path={folder}") as s:
        version, got = Client(s.port).predict(values)
        assert version == 7
        for k, v in values.items():
            assert np.array_equal(got[k + "_out"], v) and got[k + "_out"].dtype == v.dtype, (k, got[k + "_out"])


@in_folder
def test_typed_fields(folder):
    """Clients read float_val, not raw bytes."""
    from tensorflow_serving.apis import predict_pb2
    half_plus(folder, 1)
    with Server(f"--model_base_path={folder}") as s:
        c = Client(s.port)
        for n in 3, 5000:
            r = c.spec(predict_pb2.PredictRequest())
            r.inputs["x"].CopyFrom(tf.make_tensor_proto(np.zeros(n, np.float32)))
            got = c.prediction.Predict(r)
            assert len(got.outputs["y"].float_val) == n and not got.outputs["y"].tensor_content
            assert got.model_spec.name == "default" and got.model_spec.signature_name == "serving_default"


@in_folder
def test_metadata(folder):
    from tensorflow_serving.apis import get_model_metadata_pb2
    half_plus(folder, 3)
    with Server(f"--model_base_path={folder}") as s:
        c = Client(s.port)
        ask = c.spec(get_model_metadata_pb2.GetModelMetadataRequest(), version=3)
        fails(lambda: c.prediction.GetModelMetadata(ask), grpc.StatusCode.INVALID_ARGUMENT, "at least one")
        ask.metadata_field.append("signature_def")
        got = c.prediction.GetModelMetadata(ask)
        assert got.model_spec.name == "default" and got.model_spec.version.value == 3
        sigs = get_model_metadata_pb2.SignatureDefMap()
        assert got.metadata["signature_def"].Unpack(sigs)
        mine = sigs.signature_def["serving_default"]
        theirs = tf.saved_model.load(os.path.join(folder, "3")).signatures["serving_default"]
        assert mine.inputs["x"].dtype == tf.float32.as_datatype_enum and mine.inputs["x"].name
        assert [d.size for d in mine.inputs["x"].tensor_shape.dim] == [-1]
        assert set(mine.outputs) == set(theirs.structured_outputs)
        assert mine.method_name == "tensorflow/serving/predict"
        ask.metadata_field.append("weights")
        fails(lambda: c.prediction.GetModelMetadata(ask), grpc.StatusCode.INVALID_ARGUMENT, "weights")


def scaled():
    """An input that may be left out, and one of several tensors. The class is made here: a constant starts TensorFlow, which
    forks forbid."""
    class Scaled(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x"),
                                      tf.TensorSpec([], tf.float32, name="by")])
        def scale(self, x, by=tf.constant(3.0)):
            return {"y": x * by}

        @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.float32)])
        def sums(self, x):
            return {"twice": x * 2}
    return Scaled()


@in_folder
def test_inputs_with_defaults(folder):
    from tensorflow.core.protobuf import saved_model_pb2
    from tensorflow_serving.apis import get_model_metadata_pb2
    module, path = scaled(), os.path.join(folder, "1")
    tf.saved_model.save(module, path, signatures={"serving_default": module.scale, "sums": module.sums})
    for flags in [], ["--enable_batching"]:
        with Server(f"--model_base_path={folder}", *flags) as s:
            c = Client(s.port)
            assert np.array_equal(c.predict({"x": X})[1]["y"], 3 * X)
            assert np.array_equal(c.predict({"x": X, "by": np.float32(2)})[1]["y"], 2 * X)
            fails(lambda: c.predict({"by": np.float32(2)}), grpc.StatusCode.INVALID_ARGUMENT,
                  "Signature input alias: x(feed name: serving_default_x:0) not found in request and no default value "
                  "provided. Inputs expected to be in the request {by}, or default input alias set: by")
            ask = c.spec(get_model_metadata_pb2.GetModelMetadataRequest())
            ask.metadata_field.append("signature_def")
            told, saved = get_model_metadata_pb2.SignatureDefMap(), saved_model_pb2.SavedModel()
            assert c.prediction.GetModelMetadata(ask).metadata["signature_def"].Unpack(told)
            with open(os.path.join(path, "saved_model.pb"), "rb") as f:
                saved.ParseFromString(f.read())
            assert dict(told.signature_def) == dict(saved.meta_graphs[0].signature_def)


@in_folder
def test_versions_swap_under_load(folder):
    """While four clients ask without a pause, versions come, and go, and come back: no request fails."""
    half_plus(folder, 1, add=1.0)
    half_plus(folder, 20, add=20.0)
    os.rename(os.path.join(folder, "20"), os.path.join(folder, "later"))
    with Server(f"--model_base_path={folder}") as s:
        seen, wrong, over = set(), [], threading.Event()

        def ask():
            c = Client(s.port)
            while not over.is_set():
                try:
                    version, got = c.predict({"x": X})
                    if not np.array_equal(got["y"], X / 2 + version):
                        wrong.append((version, got))
                    seen.add(version)
                except grpc.RpcError as e:
                    wrong.append(e)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        c = Client(s.port)
        cluster.until(lambda: 1 in seen)
        os.rename(os.path.join(folder, "later"), os.path.join(folder, "20"))
        cluster.until(lambda: 20 in seen)
        cluster.until(lambda: c.states() == {1: "END", 20: "AVAILABLE"}, what=lambda: str(c.states()))
        fails(lambda: c.predict({"x": X}, version=1), grpc.StatusCode.NOT_FOUND, "Specific(default, 1)")
        os.rename(os.path.join(folder, "20"), os.path.join(folder, "later"))
        seen.clear()
        cluster.until(lambda: 1 in seen)
        over.set()
        for t in threads:
            t.join()
        assert not wrong, wrong[:3]
        assert s.stop() == 0


@in_folder
def test_a_version_that_cannot_be_loaded(folder):
    """It is told of, and the one before stays."""
    half_plus(folder, 1, add=1.0)
    with Server(f"--model_base_path={folder}", "--load_retry_interval_micros=1000") as s:
        c = Client(s.port)
        os.makedirs(os.path.join(folder, "2"))
        with open(os.path.join(folder, "2", "saved_model.pb"), "wb") as f:
            f.write(b"\xff" * 100)
        cluster.until(lambda: c.states().get(2) == "END")
        assert c.predict({"x": X})[0] == 1 and c.states()[1] == "AVAILABLE"
        from tensorflow_serving.apis import get_model_status_pb2
        got = c.model.GetModelStatus(c.spec(get_model_status_pb2.GetModelStatusRequest(), version=2))
        assert got.model_version_status[0].status.error_code and "saved_model.pb" in str(got), got
        half_plus(folder, 3, add=3.0)
        cluster.until(lambda: c.predict({"x": X})[0] == 3)
        for i, name in enumerate(("saved_model.pb", "variables/variables.index",
                                  "assets.extra/tf_serving_warmup_requests")):  # pipes are not waited for
            half_plus(folder, "next")
            at = os.path.join(folder, "next", name)
            os.makedirs(os.path.dirname(at), exist_ok=True)
            if os.path.exists(at):
                os.remove(at)
            os.mkfifo(at)
            os.rename(os.path.join(folder, "next"), os.path.join(folder, str(4 + i)))
            cluster.until(lambda: c.states().get(4 + i) == "END")
        with open(os.path.join(folder, "huge"), "wb") as f:
            f.truncate(1 << 43)
        os.makedirs(os.path.join(folder, "next"))
        os.rename(os.path.join(folder, "huge"), os.path.join(folder, "next", "saved_model.pb"))
        os.rename(os.path.join(folder, "next"), os.path.join(folder, "9"))
        cluster.until(lambda: c.states().get(9) == "END")
        assert c.predict({"x": X})[0] == 3 and s.stop() == 0


@in_folder
def test_a_version_that_is_being_copied(folder):
    """Its graph is there, its variables are not: the one before is served until they are."""
    half_plus(folder, 1, add=1.0)
    half_plus(folder, "aside", add=2.0)
    aside, at = os.path.join(folder, "aside"), os.path.join(folder, "2")
    with Server(f"--model_base_path={folder}", "--load_retry_interval_micros=100000", "--max_num_load_retries=1000") as s:
        c = Client(s.port)
        os.makedirs(at)
        shutil.copy(os.path.join(aside, "saved_model.pb"), at)
        cluster.until(lambda: "variables/variables.index" in s.said())
        assert c.predict({"x": X})[0] == 1
        shutil.copytree(os.path.join(aside, "variables"), os.path.join(folder, "variables"))
        os.rename(os.path.join(folder, "variables"), os.path.join(at, "variables"))
        cluster.until(lambda: c.predict({"x": X})[0] == 2)
        assert s.stop() == 0


@in_folder
def test_many_versions_that_cannot_be_loaded(folder):
    """Each is tried as often as was said, however many there are."""
    half_plus(folder, 1)
    for i in range(2, 50):
        os.makedirs(os.path.join(folder, str(i)))
    config = os.path.join(folder, "models.config")
    with open(config, "w") as f:
        f.write(f'model_config_list {{ config {{ name: "default" base_path: "{folder}" '
                "model_version_policy { all {} } } }")
    with Server(f"--model_config_file={config}", "--max_num_load_retries=0") as s:
        time.sleep(3)
        assert Client(s.port).predict({"x": X})[0] == 1
        assert s.said().count("version 2:") == 1 == s.said().count("version 49:"), s.said()


@in_folder
def test_all_fields_of_a_model(folder):
    """A file that TensorFlow Serving takes is taken: what is not done is told of once."""
    from google.protobuf import text_format
    from tensorflow_serving.apis import model_management_pb2
    half_plus(folder, 1)
    text = "model_config_list {" + "".join(f"""
  config {{ name: "{name}" base_path: "{folder}" {platform}
            logging_config {{ log_collector_config {{ type: "file" filename_prefix: "{folder}/log" }}
                              sampling_config {{ sampling_rate: 0.5 attributes: 1 }} }} }}"""
        for name, platform in (("a", "model_type: TENSORFLOW"), ("b", 'model_platform: "tensorflow"'))) + "}"
    config = os.path.join(folder, "models.config")
    with open(config, "w") as f:
        f.write(text)
    with Server(f"--model_config_file={config}") as s:
        c = Client(s.port)
        for name in "ab":
            assert c.states(name=name) == {1: "AVAILABLE"}

        def reload(text):
            r = model_management_pb2.ReloadConfigRequest()
            text_format.Parse(text, r.config)
            return c.model.HandleReloadConfigRequest(r, timeout=cluster.PATIENCE)

        assert reload(text).status.error_code == 0
        assert s.said().count("logging_config of models is left aside") == 1, s.said()
        for fields, words in (("model_type: OTHER", "model_type is not TENSORFLOW"),
                              ('model_type: TENSORFLOW model_platform: "tensorflow"', "are both set"),
                              ('model_platform: "other"', 'model_platform is not "tensorflow"')):
            fails(lambda: reload(f'model_config_list {{ config {{ name: "a" base_path: "{folder}" {fields} }} }}'),
                  grpc.StatusCode.INVALID_ARGUMENT, words)
        fails(lambda: reload("custom_model_config { }"), grpc.StatusCode.INVALID_ARGUMENT, "no model_config_list")


@in_folder
def test_several_models_and_labels(folder):
    from google.protobuf import text_format
    from tensorflow_serving.apis import model_management_pb2
    a, b = os.path.join(folder, "a"), os.path.join(folder, "b")
    for path, versions in (a, (1, 2, 3)), (b, (5,)):
        os.makedirs(path)
        for v in versions:
            half_plus(path, v, add=float(v))
    config = os.path.join(folder, "models.config")
    with open(config, "w") as f:
        f.write(f"""
model_config_list {{
  config {{ name: "a" base_path: "{a}" model_platform: "tensorflow"
            model_version_policy {{ specific {{ versions: 1 versions: 3 }} }}
            version_labels {{ key: "stable" value: 1 }} version_labels {{ key: "canary" value: 3 }} }}
  config {{ name: "b" base_path: "{b}" model_platform: "tensorflow" }}
}}""")
    with Server(f"--model_config_file={config}") as s:
        c = Client(s.port)
        assert c.states(name="a") == {1: "AVAILABLE", 3: "AVAILABLE"}
        assert c.predict({"x": X}, name="a")[0] == 3 and c.predict({"x": X}, name="b")[0] == 5
        assert c.predict({"x": X}, name="a", label="stable")[0] == 1
        assert c.predict({"x": X}, name="a", label="canary")[0] == 3
        fails(lambda: c.predict({"x": X}, name="a", label="beta"), grpc.StatusCode.INVALID_ARGUMENT,
              "Unrecognized servable version label: beta")
        fails(lambda: c.predict({"x": X}, name="a", version=2), grpc.StatusCode.NOT_FOUND)
        fails(lambda: c.predict({"x": X}, name="c"), grpc.StatusCode.NOT_FOUND, "Latest(c)")

        def reload(text):
            r = model_management_pb2.ReloadConfigRequest()
            text_format.Parse(text, r.config)
            return c.model.HandleReloadConfigRequest(r, timeout=cluster.PATIENCE)

        got = reload(f'model_config_list {{ config {{ name: "c" base_path: "{a}" model_platform: "tensorflow" '
                     'model_version_policy { all {} } version_labels { key: "old" value: 2 } } }')
        assert got.status.error_code == 0
        assert c.predict({"x": X}, name="c", label="old")[0] == 2
        fails(lambda: c.predict({"x": X}, name="b"), grpc.StatusCode.NOT_FOUND)
        fails(lambda: reload('model_config_list { config { name: "d" base_path: "/nowhere" } }'),
              grpc.StatusCode.UNKNOWN, "1 servable(s) did not become available: {{name: d}}")
        # A folder that cannot be read is told of where the model is served, too: from where it was before.
        served = f'model_config_list {{ config {{ name: "e" base_path: "{a}" }} }}'
        reload(served)
        fails(lambda: reload('model_config_list { config { name: "e" base_path: "/nowhere" } }'),
              grpc.StatusCode.UNKNOWN, "Could not find base path /nowhere for servable e with error")
        assert c.predict({"x": X}, name="e")[0] == 3
        reload(served)
        fails(lambda: reload('model_config_list { config { name: "d" } }'), grpc.StatusCode.INVALID_ARGUMENT,
              "it has no base_path")
        fails(lambda: reload('model_config_list { config { name: "d" base_path: "models" } }'),
              grpc.StatusCode.INVALID_ARGUMENT, "Expected model d to have an absolute path or URI; got base_path()=models")
        fails(lambda: reload(f'model_config_list {{ config {{ name: "a" base_path: "{a}" '
                             'version_labels { key: "x" value: 9 } } }'), grpc.StatusCode.FAILED_PRECONDITION,
              "label 'x' to version 9")
        assert s.alive()


@in_folder
def test_the_configuration_changes(folder):
    half_plus(folder, 1)
    config = os.path.join(folder, "models.config")

    def write(text):
        with open(config + ".new", "w") as f:
            f.write(text)
        os.rename(config + ".new", config)

    def named(name):
        return f'model_config_list {{ config {{ name: "{name}" base_path: "{folder}" }} }}'

    def there(name):
        try:
            return c.states(name=name) == {1: "AVAILABLE"}
        except grpc.RpcError:
            return False

    write(named("a"))
    with Server(f"--model_config_file={config}", "--model_config_file_poll_wait_seconds=1") as s:
        c = Client(s.port)
        assert there("a")
        write("nonsense")
        cluster.until(lambda: "--model_config_file: " in s.said())
        assert there("a")
        write(named("a").replace(folder, "/nowhere"))
        cluster.until(lambda: "Could not find base path /nowhere for servable a" in s.said())
        assert there("a")
        write(named("b"))
        cluster.until(lambda: there("b"))
        assert not there("a")


@in_folder
def test_wrong_requests(folder):
    from tensorflow_serving.apis import predict_pb2
    half_plus(folder, 1)
    with Server(f"--model_base_path={folder}", "--max_request_bytes=1000000") as s:
        c = Client(s.port)
        bad = grpc.StatusCode.INVALID_ARGUMENT
        fails(lambda: c.predict({}), bad, "Missing but required: {x}")
        fails(lambda: c.predict({"x": X, "z": X}), bad, "not found in signature: z")
        fails(lambda: c.predict({"x": X.astype(np.float64)}), bad, "input 'x'")
        fails(lambda: c.predict({"x": X.reshape(3, 1)}), bad, "input 'x'")
        fails(lambda: c.predict({"x": X}, outputs=["q"]), bad, "not found in signature: q")
        fails(lambda: c.predict({"x": X}, outputs=["y", "y"]), bad, "duplicate output tensor alias: y")
        fails(lambda: c.predict({"x": X}, signature="other"), grpc.StatusCode.FAILED_PRECONDITION,
              'Serving signature key "other" not found.')
        fails(lambda: c.predict({"x": X}, name=""), bad, "ModelSpec has no name specified.")
        fails(lambda: c.prediction.Predict(predict_pb2.PredictRequest()), bad, "Missing ModelSpec")
        fails(lambda: c.predict({"x": np.zeros(1000000, np.float32)}), grpc.StatusCode.RESOURCE_EXHAUSTED)
        broken = tf.make_tensor_proto(X)
        broken.tensor_content, broken.tensor_shape.dim[0].size = b"", 1 << 60
        fails(lambda: c.predict({"x": broken}), grpc.StatusCode.RESOURCE_EXHAUSTED, "input 'x'")
        raw = c.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        for bytes_ in b"\xff", b"\x0a\xff", b"\x0a\x05\xff\xff\xff\xff\xff", os.urandom(1000):
            fails(lambda: raw(bytes_), bad)
        fails(lambda: c.channel.unary_unary("/tensorflow.serving.PredictionService/Nothing")(b""),
              grpc.StatusCode.UNIMPLEMENTED)
        assert c.predict({"x": X})[0] == 1 and s.alive()


@in_folder
def test_examples(folder):
    """Classify, Regress, MultiInference."""
    from tensorflow_serving.apis import classification_pb2, inference_pb2, regression_pb2
    model_server.examples_model(folder)
    with Server(f"--model_base_path={folder}", "--max_held_bytes=1000000000") as s:
        c = Client(s.port)
        values = [0.0, 1.0, -2.0]

        def fill(r, bias=None):
            if bias is None:
                r.input.example_list.examples.extend(model_server.example(x=v) for v in values)
            else:
                r.input.example_list_with_context.examples.extend(model_server.example(x=v) for v in values)
                r.input.example_list_with_context.context.CopyFrom(model_server.example(bias=bias))
            return r

        for bias in None, 1.0:
            x = np.array(values) + (bias or 0)
            want = 1 / (1 + np.exp(-2 * x))
            got = c.prediction.Classify(fill(c.spec(classification_pb2.ClassificationRequest()), bias))
            assert got.model_spec.version.value == 1
            assert [[k.label for k in r.classes] for r in got.result.classifications] == [["pos", "neg"]] * 3
            assert np.allclose([r.classes[0].score for r in got.result.classifications], want)
            got = c.prediction.Regress(fill(c.spec(regression_pb2.RegressionRequest(), signature="value"), bias))
            assert np.allclose([r.value for r in got.result.regressions], 2 * x)
        r = fill(inference_pb2.MultiInferenceRequest())
        for signature, method in ("", "classify"), ("value", "regress"):
            t = c.spec(r.tasks.add(), signature=signature)
            t.method_name = "tensorflow/serving/" + method
        got = c.prediction.MultiInference(r)
        assert len(got.results[0].classification_result.classifications) == 3
        assert [v.value for v in got.results[1].regression_result.regressions] == [0.0, 2.0, -4.0]
        bad = grpc.StatusCode.INVALID_ARGUMENT
        fails(lambda: c.prediction.Classify(c.spec(classification_pb2.ClassificationRequest())), bad, "Input is empty.")
        fails(lambda: c.prediction.Classify(fill(c.spec(classification_pb2.ClassificationRequest(), signature="value"))),
              bad, "Expected classification signature method_name to be tensorflow/serving/classify. Was: "
              "tensorflow/serving/regress")
        fails(lambda: c.prediction.Regress(fill(c.spec(regression_pb2.RegressionRequest(), signature="no"))), bad,
              "No signature was found with the name: no")
        r.tasks[1].model_spec.name = "other"
        fails(lambda: c.prediction.MultiInference(r), bad, "same model name")
        r.tasks[1].CopyFrom(r.tasks[0])
        fails(lambda: c.prediction.MultiInference(r), bad, "Duplicate evaluation")
        del r.tasks[:]
        fails(lambda: c.prediction.MultiInference(r), bad, "at least one")
        large = c.spec(classification_pb2.ClassificationRequest())  # a context is put before each example
        large.input.example_list_with_context.examples.extend([model_server.example(x=1.0)] * 40000)
        large.input.example_list_with_context.context.features.feature["a"].bytes_list.value.append(b"a" * 1000000)
        fails(lambda: c.prediction.Classify(large), grpc.StatusCode.RESOURCE_EXHAUSTED, "--max_held_bytes")
        wrong = c.spec(classification_pb2.ClassificationRequest())
        wrong.input.example_list.examples.add()
        fails(lambda: c.prediction.Classify(wrong), bad, "x")
        for method in "Classify", "Regress", "MultiInference":
            raw = c.channel.unary_unary(f"/tensorflow.serving.PredictionService/{method}")
            fails(lambda: raw(b"\x0a\x03\x0a\x01a\x12\xff\xff"), bad)
        assert s.alive()


@in_folder
def test_an_estimator_of_tensorflow(folder):
    """What tf.estimator exports, asked by each method that it has signatures for."""
    from tensorflow_serving.apis import classification_pb2, regression_pb2
    fc, rows = tf.feature_column, np.linspace(-2, 2, 12, dtype=np.float32)
    columns = [fc.numeric_column("x"), fc.bucketized_column(fc.numeric_column("x"), [-1.0, 0.0, 1.0])]
    t = tf.estimator.LinearClassifier(columns, model_dir=os.path.join(folder, "m"))
    t.train(lambda: tf.data.Dataset.from_tensor_slices(({"x": rows}, (rows > 0).astype(np.int64))).batch(4).repeat(5))
    want = [p["probabilities"] for p in t.predict(lambda: tf.data.Dataset.from_tensors({"x": rows}))]
    spec = fc.make_parse_example_spec(columns)
    t.export_saved_model(os.path.join(folder, "export"), tf.estimator.export.build_parsing_serving_input_receiver_fn(spec))
    with Server(f"--model_base_path={folder}/export") as s:
        c, examples = Client(s.port), [model_server.example(x=float(v)) for v in rows]
        got = c.predict({"examples": [e.SerializeToString() for e in examples]}, signature="predict")[1]
        assert np.allclose(got["probabilities"], want, rtol=1e-5)
        r = c.spec(classification_pb2.ClassificationRequest())
        r.input.example_list.examples.extend(examples)
        got = c.prediction.Classify(r).result.classifications
        assert np.allclose([[k.score for k in one.classes] for one in got], want, rtol=1e-5)
        assert [k.label for k in got[0].classes] == ["0", "1"]
        r = c.spec(regression_pb2.RegressionRequest(), signature="regression")
        r.input.example_list.examples.extend(examples)
        got = c.prediction.Regress(r).result.regressions
        assert np.allclose([v.value for v in got], np.array(want)[:, 1], rtol=1e-5)


@in_folder
def test_warm_up(folder):
    """Requests that a version brings along are answered before it is served; one that fails keeps it out."""
    from tensorflow_serving.apis import prediction_log_pb2
    beside = os.path.join(folder, "beside")
    os.makedirs(beside)

    def add(version, *keys):
        half_plus(beside, version)
        extra = os.path.join(beside, str(version), "assets.extra")
        os.makedirs(extra)
        with tf.io.TFRecordWriter(os.path.join(extra, "tf_serving_warmup_requests")) as f:
            for key in keys:
                log = prediction_log_pb2.PredictionLog()
                log.predict_log.request.model_spec.name = "default"
                log.predict_log.request.inputs[key].CopyFrom(tf.make_tensor_proto(X))
                f.write(log.SerializeToString())
        os.rename(os.path.join(beside, str(version)), os.path.join(folder, str(version)))

    add(1, "x", "x")
    with Server(f"--model_base_path={folder}") as s:
        c = Client(s.port)
        assert c.predict({"x": X})[0] == 1
        add(2, "x", "z")
        cluster.until(lambda: c.states().get(2) == "END")
        assert c.predict({"x": X})[0] == 1 and "warm-up request 2" in s.said(), s.said()


class Rows(tf.Module):
    """Gives its input back, and how many rows there were in all."""

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, "x"), tf.TensorSpec([None], tf.string, "s")])
    def run(self, x, s):
        rows = tf.fill([tf.shape(x)[0]], tf.shape(x)[0])
        i = tf.while_loop(lambda i: i < 20000, lambda i: [i + 1], [0])[0]  # so that others come meanwhile
        return {"x": x * 2, "s": tf.strings.join([s, "!"]), "rows": rows + 0 * i, "width": tf.fill(tf.shape(s), tf.shape(x)[1])}


def ask_together(port, requests):
    """What each of them gets, or its error."""
    got, clients = [None] * len(requests), [Client(port) for _ in requests]

    def run(i):
        try:
            got[i] = clients[i].predict(requests[i])[1]
        except grpc.RpcError as e:
            got[i] = e

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(requests))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return got


def rows_request(i, rows, width=3):
    return {"x": np.full((rows, width), i, np.float32), "s": np.array([f"request {i} of several" for _ in range(rows)])}


def check_rows(i, rows, width, got):
    assert np.array_equal(got["x"][:, :width], np.full((rows, width), 2 * i, np.float32)), (i, got)
    assert list(got["s"]) == [f"request {i} of several!".encode()] * rows


@in_folder
def test_batching(folder):
    m = Rows()
    tf.saved_model.save(m, os.path.join(folder, "1"), signatures=m.run)
    parameters = os.path.join(folder, "batching")
    with open(parameters, "w") as f:
        f.write("max_batch_size { value: 64 } enable_large_batch_splitting { value: true } "
                "max_execution_batch_size { value: 16 } batch_timeout_micros { value: 300000 } num_batch_threads { value: 2 }"
                "max_enqueued_batches { value: 100 } allowed_batch_sizes: 4 allowed_batch_sizes: 8 "
                "allowed_batch_sizes: 16")
    with Server(f"--model_base_path={folder}", "--enable_batching", f"--batching_parameters_file={parameters}") as s:
        got = ask_together(s.port, [rows_request(i, 1 + i % 3) for i in range(8)])
        for i, g in enumerate(got):
            check_rows(i, 1 + i % 3, 3, g)
            assert g["rows"][0] in (4, 8, 16), g["rows"]
        assert max(g["rows"][0] for g in got) > 4, [g["rows"] for g in got]
        got = ask_together(s.port, [rows_request(i, 2, 2 + i % 2) for i in range(6)])  # two shapes: batches of each
        for i, g in enumerate(got):
            check_rows(i, 2, 2 + i % 2, g)
            assert g["x"].shape == (2, 2 + i % 2)
        got = ask_together(s.port, [rows_request(0, 20), rows_request(1, 1), {"x": np.zeros((2, 1), np.float32),
                                                                              "s": np.array(["a"])}])
        check_rows(0, 20, 3, got[0])  # too large for a batch: alone
        assert got[0]["rows"][0] == 20
        check_rows(1, 1, 3, got[1])
    with open(parameters, "w") as f:
        f.write("max_batch_size { value: 16 } batch_timeout_micros { value: 300000 } pad_variable_length_inputs: true")
    with Server(f"--model_base_path={folder}", "--enable_batching", f"--batching_parameters_file={parameters}") as s:
        got = ask_together(s.port, [rows_request(i, 1, 1 + i) for i in range(5)])
        for i, g in enumerate(got):
            check_rows(i, 1, 1 + i, g)
            assert not g["x"][:, 1 + i:].any()
        assert max(g["width"][0] for g in got) == 5 and got[0]["width"][0] > 1, [g["width"] for g in got]
    for text, words in (("max_batch_size { value: 0 }", "max_batch_size"), ("max_batch: 1", "max_batch"),
                        ("max_batch_size { value: 8 } allowed_batch_sizes: 4", "Last entry"),
                        ("max_batch_size { value: 8 } enable_large_batch_splitting { value: true } "
                         "max_execution_batch_size { value: 9 }", "max_execution_batch_size is 9, above"),
                        ("allowed_batch_sizes: 4 allowed_batch_sizes: 4", "increasing")):
        with open(parameters, "w") as f:
            f.write(text)
        try:
            Server(f"--model_base_path={folder}", "--enable_batching", f"--batching_parameters_file={parameters}")
        except AssertionError as e:
            assert words in str(e), e
        else:
            raise AssertionError(text)


class Cubes(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, None, None], tf.float32, "x")])
    def run(self, x):
        return {"x": x * 2}


@in_folder
def test_padding_is_bounded(folder):
    """Many columns of no rows beside rows of few columns: a batch of both would be nothing but zeros, and huge."""
    m = Cubes()
    tf.saved_model.save(m, os.path.join(folder, "1"), signatures=m.run)
    parameters = os.path.join(folder, "batching")
    with open(parameters, "w") as f:
        f.write("max_batch_size { value: 16 } batch_timeout_micros { value: 300000 } pad_variable_length_inputs: true")
    with Server(f"--model_base_path={folder}", "--enable_batching", f"--batching_parameters_file={parameters}") as s:
        shapes = [(1, 2, 1), (1, 0, 1 << 24), (1, 2, 1), (1, 1 << 30, 0)]
        got = ask_together(s.port, [{"x": np.ones(shape, np.float32)} for shape in shapes])
        assert [g["x"].shape for g in got] == shapes, got


@in_folder
def test_batches_end_with_their_requests(folder):
    """Whose deadlines have passed wait for no company, and keep no handlers."""
    m = Cubes()
    tf.saved_model.save(m, os.path.join(folder, "1"), signatures=m.run)
    parameters = os.path.join(folder, "batching")
    with open(parameters, "w") as f:
        f.write("max_batch_size { value: 16 } batch_timeout_micros { value: 100000000 } "
                "max_enqueued_batches { value: 1000 }")
    with Server(f"--model_base_path={folder}", "--enable_batching", f"--batching_parameters_file={parameters}") as s:
        from tensorflow_serving.apis import predict_pb2
        c, begin, asked = Client(s.port), time.time(), []
        for i in range(200):  # each of a shape of its own
            r = c.spec(predict_pb2.PredictRequest())
            r.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones((1, 1, 1 + i), np.float32)))
            asked.append(c.prediction.Predict.future(r, timeout=0.5))
        for f in asked:
            assert f.code() == grpc.StatusCode.DEADLINE_EXCEEDED, f
        assert c.states() == {1: "AVAILABLE"} and time.time() - begin < cluster.SLACK


class Slow(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, "n")])
    def count(self, n):
        return {"n": tf.while_loop(lambda i: i < n, lambda i: [i + 1], [0])[0]}


@in_folder
def test_deadline_and_graceful_end(folder):
    m = Slow()
    tf.saved_model.save(m, os.path.join(folder, "1"), signatures=m.count)
    with Server(f"--model_base_path={folder}") as s:
        c = Client(s.port)
        fails(lambda: c.predict({"n": np.int32(2000000000)}, timeout=0.5), grpc.StatusCode.DEADLINE_EXCEEDED)
        begin = time.time()
        c.predict({"n": np.int32(100000)})
        much = np.int32(min(2e9, 3e5 / max(time.time() - begin, 1e-3)))
        got = []
        t = threading.Thread(target=lambda: got.append(c.predict({"n": much})))
        t.start()
        time.sleep(0.5)
        assert s.stop() == 0
        t.join()
        assert got and got[0][1]["n"] == much, "a request that was under way was not answered"


@in_folder
def test_who_goes_away_is_not_computed_for(folder):
    """A step ends with the client that waits for it, in a batch with the last of them; by its deadline, too."""
    from tensorflow_serving.apis import predict_pb2
    model_server.endless(folder)
    for flags in [], ["--enable_batching"]:
        with Server(f"--model_base_path={folder}", *flags) as s:
            c = Client(s.port)
            r = c.spec(predict_pb2.PredictRequest())
            r.inputs["x"].CopyFrom(tf.make_tensor_proto(X))
            calls = [c.prediction.Predict.future(r) for _ in range(3)]
            cluster.until(s.busy)
            calls[0].cancel()
            cluster.until(s.busy)
            for call in calls:
                call.cancel()
            cluster.until(lambda: not s.busy())
            fails(lambda: c.prediction.Predict(r, timeout=0.5), grpc.StatusCode.DEADLINE_EXCEEDED)
            cluster.until(lambda: not s.busy())
            gone = Client(s.port)
            call = gone.prediction.Predict.future(r)  # which ends when nobody has it
            cluster.until(s.busy)
            gone.channel.close()
            cluster.until(lambda: not s.busy())
            assert call.done()
            assert s.alive() and s.stop() == 0, s.said()


@in_folder
def test_answers_are_counted(folder):
    """What a few bytes make a model answer has its room beside what requests hold, while it is made."""
    model_server.zeros(folder)
    with Server(f"--model_base_path={folder}", "--max_held_bytes=40000000") as s:
        c = Client(s.port)
        assert c.predict({"x": np.array([1000000], np.int32)})[1]["y"].shape == (1, 1000000)
        for _ in range(5):
            fails(lambda: c.predict({"x": np.array([10000000], np.int32)}), grpc.StatusCode.RESOURCE_EXHAUSTED,
                  "the answer: there is no room")
        assert c.predict({"x": np.array([1000000], np.int32)})[1]["y"].shape == (1, 1000000)


@in_folder
def test_tls(folder):
    """With a certificate by TLS alone; with an authority for those whom it signed."""
    authority = certificates.Authority(folder)
    mine, client = authority.sign("server", "DNS:localhost"), authority.sign("client", "DNS:client")
    path = os.path.join(folder, "m")
    os.makedirs(path)
    half_plus(path, 1)

    def read(path):
        with open(path, "rb") as f:
            return f.read()

    flags = [f"--model_base_path={path}", f"--tls_cert={mine[0]}", f"--tls_key={mine[1]}"]
    anybody = grpc.ssl_channel_credentials(read(authority.ca))
    named = grpc.ssl_channel_credentials(read(authority.ca), read(client[1]), read(client[0]))
    with Server(*flags) as s:
        assert Client(s.port, anybody).predict({"x": X})[0] == 1
        fails(lambda: Client(s.port).predict({"x": X}, timeout=5), grpc.StatusCode.UNAVAILABLE)
    with Server(*flags, f"--tls_ca={authority.ca}") as s:
        assert Client(s.port, named).predict({"x": X})[0] == 1
        fails(lambda: Client(s.port, anybody).predict({"x": X}, timeout=5), grpc.StatusCode.UNAVAILABLE)


@in_folder
def test_devices(folder):
    half_plus(folder, 1)
    env = {"SHOAL_SOFT_GPUS": "2", "SHOAL_LOG": "debug"}
    for flag, there in (("--devices=GPU=0", False), ("--devices=CPU=1", False), ("--devices=GPU=1", True)):
        with Server(f"--model_base_path={folder}", flag, env=env) as s:
            assert np.array_equal(Client(s.port).predict({"x": X})[1]["y"], X / 2 + 2)
            assert s.stop() == 0
            assert ("GPU makes " in s.said()) == there, s.said()


@in_folder
def test_starts_that_fail(folder):
    def start(*flags):
        p = subprocess.run([cluster.SHOAL, "serve", "--port=0", *flags], capture_output=True, text=True,
                           timeout=cluster.PATIENCE)
        return p.returncode, p.stderr

    assert start()[0] == 2
    os.makedirs(os.path.join(folder, "empty"))
    code, words = start(f"--model_base_path={folder}/empty", f"--tls_ca={certificates.Authority(folder).ca}")
    assert code == 2 and "--tls_ca" in words, (code, words)
    code, words = start(f"--model_base_path={folder}/none")
    assert code == 1 and "is no folder" in words
    code, words = start(f"--model_base_path={folder}/empty", "--devices=GPU=1000")
    assert code == 2 and "--devices=GPU=1000: " in words and "GPU" in words, (code, words)
    os.makedirs(os.path.join(folder, "1"))
    code, words = start(f"--model_base_path={folder}")
    assert code == 1 and "there is no SavedModel" in words, (code, words)
    with open(os.path.join(folder, "config"), "w") as f:
        f.write("model_config_list { config { nam: 1 } }")
    code, words = start(f"--model_config_file={folder}/config")
    assert code == 2 and "nam" in words, (code, words)
    open(os.path.join(folder, "empty", "saved_model.pb"), "w").close()
    with subprocess.Popen([cluster.SHOAL, "serve", "--port=0", f"--model_base_path={folder}/empty"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        p.stdout.readline()
        p.terminate()
        assert "empty is a version itself" in p.communicate(timeout=cluster.PATIENCE)[1]


if __name__ == "__main__":
    tap.main(globals())
