"""SavedModels in both directions: TensorFlow's, of both generations, run by `shoal saved_model` and from C; those of a C
program loaded by tf.saved_model.load, by the loader of version 1 and by saved_model_cli, whose output is ours.

# needs: tensorflow
"""
import contextlib
import ctypes
import io
import os
import re
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.python.tools import saved_model_cli

import shoal
import tap

BUILD = os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build"))
SHOAL, EXPORTER = os.path.join(BUILD, "shoal"), os.path.join(BUILD, "tests", "programs", "exporter")
WORDS = ["none", "one", "two", "three"]
ROWS = np.array([[0, 1], [10, 11], [20, 21], [30, 31]], np.float32)


def run(*command, code=0):
    p = subprocess.run(command, capture_output=True, text=True, check=False)
    assert p.returncode == code, (command, p.returncode, p.stdout[-500:], p.stderr[-800:])
    return p.stdout if not code else p.stderr


def saved_model(*args, code=0):
    return run(SHOAL, "saved_model", *args, code=code)


def theirs(*args):
    """What saved_model_cli prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        saved_model_cli.flags.FLAGS.unparse_flags()
        saved_model_cli.flags.FLAGS(["saved_model_cli", *args])
        getattr(saved_model_cli, args[0])()
    return out.getvalue()


def in_folder(test):
    def body():
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
    return body


def vocabulary(folder):
    path = os.path.join(folder, "words.txt")
    with open(path, "w") as f:
        f.write("\n".join(WORDS) + "\n")
    return path


class Second(tf.Module):
    """A model of TensorFlow 2: a variable, a table from a file, two functions that are signatures."""

    def __init__(self, path):
        super().__init__()
        self.rows = tf.Variable(ROWS)
        self.table = tf.lookup.StaticVocabularyTable(
            tf.lookup.TextFileInitializer(path, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
                                          tf.lookup.TextFileIndex.LINE_NUMBER), 1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "words")])
    def look(self, words):
        numbers = tf.minimum(self.table.lookup(words), 3)
        return {"numbers": numbers, "rows": tf.gather(self.rows, numbers)}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x"), tf.TensorSpec([], tf.int32, "times")])
    def loop(self, x, times):
        for _ in tf.range(times):
            x = tf.matmul(x, [[0., 1.], [1., 1.]]) if tf.reduce_sum(x) < 100. else x - 1.
        return {"y": x}


def save_second(folder):
    model, path = Second(vocabulary(folder)), os.path.join(folder, "second")
    tf.saved_model.save(model, path, signatures={"serving_default": model.look, "loop": model.loop})
    return model, path


def save_first(folder):
    """One of version 1, with two graphs by tags."""
    path = os.path.join(folder, "first")
    v1 = tf.compat.v1
    builder = v1.saved_model.Builder(path)
    for tags in (["serve"], ["serve", "twice"]):
        with v1.Graph().as_default(), v1.Session() as s:
            x = v1.placeholder(tf.float32, [None, 2], "x")
            w = v1.get_variable("w", initializer=ROWS[:2])
            y = tf.matmul(x, w) * len(tags)
            s.run(v1.global_variables_initializer())
            signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
            if len(tags) == 1:
                builder.add_meta_graph_and_variables(s, tags, {"serving_default": signature})
            else:
                builder.add_meta_graph(tags, {"serving_default": signature})
    builder.save()
    return path


def arrays(folder, **values):
    os.makedirs(folder, exist_ok=True)
    for k, v in values.items():
        np.save(os.path.join(folder, k + ".npy"), v)
    return "--inputs=" + ";".join(f"{k}={folder}/{k}.npy" for k in values)


def outputs(folder, *keys):
    return [np.load(os.path.join(folder, "out", k + ".npy"), allow_pickle=True) for k in keys]


@in_folder
def test_second_generation(folder):
    model, path = save_second(folder)
    words = np.array(["three", "one", "gr\u00fcn"])
    saved_model("run", f"--dir={path}", arrays(folder, words=words), f"--outdir={folder}/out")
    want = model.look(words)
    for got, key in zip(outputs(folder, "numbers", "rows"), ("numbers", "rows")):
        assert np.array_equal(got, want[key]) and got.dtype == want[key].numpy().dtype, (key, got)
    x = np.array([[1, 2], [3, 4]], np.float32)
    for times in (0, 3, 20):
        saved_model("run", f"--dir={path}", "--tag_set=serve", "--signature_def=loop", f"--outdir={folder}/out",
                    "--overwrite", arrays(folder, x=x, times=np.int32(times)))
        assert np.array_equal(outputs(folder, "y")[0], model.loop(x, times)["y"])


@in_folder
def test_first_generation(folder):
    path, x = save_first(folder), np.array([[1, 2], [3, 4]], np.float32)
    for tags in ("serve", "twice,serve"):
        saved_model("run", f"--dir={path}", f"--tag_set={tags}", arrays(folder, x=x), f"--outdir={folder}/out",
                    "--overwrite")
        assert np.array_equal(outputs(folder, "y")[0], x @ ROWS[:2] * len(tags.split(",")))


def scaled():
    """A model with an input that may be left out. Its class is made here: a constant starts TensorFlow, which forks forbid."""
    class Scaled(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x"),
                                      tf.TensorSpec([], tf.float32, name="by")])
        def scale(self, x, by=tf.constant(3.0)):
            return {"y": x * by, "pieces": tf.RaggedTensor.from_row_lengths(x, [tf.size(x, tf.int64)])}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x"),
                                      tf.TensorSpec([], tf.float32, name="by")])
        def only_scale(self, x, by=tf.constant(3.0)):
            return {"y": x * by}
    return Scaled()


@in_folder
def test_inputs_with_defaults(folder):
    module, path = scaled(), os.path.join(folder, "model")
    tf.saved_model.save(module, path, signatures={"serving_default": module.only_scale, "pieces": module.scale})
    ask = ["--dir", path, "--tag_set", "serve", "--signature_def", "serving_default", "--input_exprs"]
    for given in "x=[1.5, 2.0]", "x=[1.5, 2.0];by=-1.0":
        assert saved_model("run", *ask, given) == theirs("run", *ask, given), given
    assert "input 'x' of signature 'serving_default' is missing" in saved_model("run", *ask, "by=2.0", code=2)
    show = ["show", "--dir", path, "--tag_set", "serve", "--signature_def", "pieces"]
    assert saved_model(*show) == theirs(*show)  # with an output of several tensors
    for by in None, 5.0:  # a frozen graph has the default, too
        assert frozen(folder, path, [by, [1.0, 2.0]])[0][0].tolist() == [by or 3.0, 2 * (by or 3.0)]


@in_folder
def test_outputs_that_are_inputs(folder):
    """Answered with what is given, or left out: alone, beside what is computed, frozen."""
    v1, path = tf.compat.v1, os.path.join(folder, "model")
    with tf.Graph().as_default(), v1.Session() as session:
        x, by = v1.placeholder(tf.float32, [None], "x"), v1.placeholder_with_default([3.0], [1], "by")
        builder = v1.saved_model.Builder(path)
        signature = v1.saved_model.predict_signature_def
        builder.add_meta_graph_and_variables(session, ["serve"], {
            "alone": signature({"x": x}, {"x": x}),
            "beside": signature({"x": x, "by": by}, {"a": x, "y": x * by, "by": by, "again": x})})
        builder.save()
    for key, given in ("alone", "x=[1]"), ("beside", "x=[1, 2];by=[4]"):
        ask = ["run", "--dir", path, "--tag_set", "serve", "--signature_def", key, "--input_exprs", given]
        assert saved_model(*ask) == theirs(*ask), key
    assert "[3.]" in saved_model(*ask[:-1], "x=[1]")
    assert "is of shape" in saved_model(*ask[:-2], "--input_exprs=x=[[1.]]", code=2)
    values, _ = frozen(folder, path, [[2.0], [1.0]], "--signature_def=beside")
    assert [v.tolist() for v in values] == [[1.0], [1.0], [2.0], [2.0]]


@in_folder
def test_an_asset_twice(folder):
    """As a graph has it whose author adds a table's file to the collection, where the table has put it already."""
    v1, path = tf.compat.v1, os.path.join(folder, "model")
    with tf.Graph().as_default(), v1.Session() as session:
        words = tf.constant(vocabulary(folder))
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, words)
        table = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
            words, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER), -1)
        x = v1.placeholder(tf.string, [None])
        y = table.lookup(x)
        assert len(v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS)) == 2
        session.run(v1.tables_initializer())
        builder = v1.saved_model.Builder(path)
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, main_op=v1.tables_initializer(),
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS))
        builder.save()
    ask = ["run", "--dir", path, "--tag_set", "serve", "--signature_def", "serving_default", "--input_exprs",
           "x=['two', 'nothing', 'none']"]
    assert saved_model(*ask) == theirs(*ask)


@in_folder
def test_archives(folder):
    """Inputs out of .npz files, packed and not, by name or alone; damaged ones are refused."""
    path, x = save_first(folder), np.arange(2000, dtype=np.float32).reshape(1000, 2)
    file = os.path.join(folder, "a.npz")

    def ask(given, code=0):
        return saved_model("run", f"--dir={path}", f"--inputs=x={given}", f"--outdir={folder}/out", "--overwrite",
                           code=code)

    for save in np.savez, np.savez_compressed:
        save(file, other=np.zeros(3), x=x)
        ask(file + "[x]")
        assert np.array_equal(outputs(folder, "y")[0], x @ ROWS[:2])
        assert "there is no array 'z'; there are: other.npy, x.npy" in ask(file + "[z]", code=1)
        assert "which one" in ask(file, code=2)
        save(file, x=x)
        ask(file)
        with open(file, "rb") as f:
            data = bytearray(f.read())
        for at in (0, 100, len(data) // 2, len(data) - 30, len(data) - 10):
            broken = bytes(data[:at]) + bytes([data[at] ^ 255]) + bytes(data[at + 1:])
            with open(file, "wb") as f:
                f.write(broken)
            p = subprocess.run([SHOAL, "saved_model", "run", f"--dir={path}", f"--inputs=x={file}[x]"],
                               capture_output=True, check=False)
            assert p.returncode in (0, 1, 2), p
        with open(file, "wb") as f:
            f.write(data[:len(data) // 2])
        assert "damaged" in ask(file, code=1)
    entry = data.rindex(b"PK\1\2")  # of the packed one: it claims more than its bytes can stand for
    data[entry + 24:entry + 28] = (2 << 30).to_bytes(4, "little")
    with open(file, "wb") as f:
        f.write(data)
    limit = f"ulimit -v {1 << 20}; exec \"$@\""  # and not for want of memory
    p = subprocess.run(["sh", "-c", limit, "sh", SHOAL, "saved_model", "run", f"--dir={path}", f"--inputs=x={file}"],
                       capture_output=True, text=True, check=False)
    assert p.returncode == 1 and "damaged" in p.stderr, p


@in_folder
def test_expressions(folder):
    """Values on the command line: what saved_model_cli takes gives the same arrays; NumPy's makers too; others are refused."""
    path = os.path.join(folder, "ours")
    run(EXPORTER, "save", path, vocabulary(folder))

    def ask(flag, value, code=0, signature="times"):
        return saved_model("run", f"--dir={path}", "--tag_set=serve", f"--signature_def={signature}", f"--{flag}={value}",
                           f"--outdir={folder}/out", "--overwrite", code=code)

    for value in ("words=['two', \"w'ho\"];by=[1, 2.5]", "words=('one',);by=[-1e1,+.5]", "words=[b'two'] ;by=(1_0, 0x10)",
                  r"words=['\164wo', '\U0001F600'];by=[0,-0x1]"):
        ask("input_exprs", value)
        got = outputs(folder, "times")[0]
        theirs("run", f"--dir={path}", "--tag_set=serve", "--signature_def=times", f"--input_exprs={value}",
               f"--outdir={folder}/out", "--overwrite")
        assert np.array_equal(got, outputs(folder, "times")[0]), (value, got)
    ask("input_exprs", "words=np.array(['one','two']);by=np.full((2,), 3, dtype=np.float32)")
    assert np.array_equal(outputs(folder, "times")[0], ROWS[1:3] * 3)
    for value, want in (("np.zeros(2)", [0, 0]), ("np.ones((2,))", [10, 11]), ("np.arange(1, 5, 2)", [10, 33]),
                        ("np.arange(1, 1.1, 0.1)", np.float32(np.arange(1, 1.1, 0.1)) * np.float32([10, 11]))):
        ask("input_exprs", f"words=['one'];by={value}")
        assert np.array_equal(outputs(folder, "times")[0], [want])
    for value, said in (("words=open('x')", "a Python literal is expected"), ("words=['a' 'b'];by=1", "no comma"),
                        ("words=[['a'],['b','c']]", "words"), ("words=['x'];by=[1,'a']", "by"), ("words", "KEY=VALUE"),
                        ("words=['x'];by=np.zeros(2);more=1", "has no input 'more'"), ("words=['x", "has no end"),
                        ("words=" + "[" * 100, "nested"), ("words=['x'];by=np.zeros((100000,100000))", "too many"),
                        ("words=['x'];by=np.arange([2])", "no number")):
        assert said in ask("input_exprs", value, code=2), value
    ask("input_examples", "words=[{'age': [39.5, 1.0], 'job': ['cook', b'\\xff'], 'n': [1, -2]}]", signature="echo")
    example = tf.train.Example.FromString(outputs(folder, "words")[0][0])
    want = tf.train.Example()
    want.features.feature["age"].float_list.value.extend([39.5, 1])
    want.features.feature["job"].bytes_list.value.extend([b"cook", b"\xff"])
    want.features.feature["n"].int64_list.value.extend([1, -2])
    assert example == want, example


@in_folder
def test_keras(folder):
    model = tf.keras.Sequential([tf.keras.layers.Input((8, 8, 1)), tf.keras.layers.Conv2D(4, 3, activation="relu"),
                                 tf.keras.layers.BatchNormalization(), tf.keras.layers.Flatten(),
                                 tf.keras.layers.Dense(3, activation="softmax")])
    path = os.path.join(folder, "keras")
    tf.saved_model.save(model, path)
    x = np.random.default_rng(1).normal(size=(5, 8, 8, 1)).astype(np.float32)
    signature = tf.saved_model.load(path).signatures["serving_default"]
    (key, want), = signature(tf.constant(x)).items()
    name, = signature.structured_input_signature[1]
    saved_model("run", f"--dir={path}", arrays(folder, **{name: x}), f"--outdir={folder}/out")
    assert np.allclose(outputs(folder, key)[0], want, atol=1e-6)


@in_folder
def test_from_c(folder):
    """What a C program wrote, by everybody."""
    path = os.path.join(folder, "ours")
    file = vocabulary(folder)
    run(EXPORTER, "save", path, file)
    os.remove(file)  # the model has its own
    words = ["two", "who", "one"]
    assert run(EXPORTER, "ask", path, *words) == "two 2 20 21\nwho 0 0 1\none 1 10 11\n"
    got = tf.saved_model.load(path).signatures["serving_default"](words=tf.constant(words))
    assert np.array_equal(got["numbers"], [2, 0, 1]) and np.array_equal(got["rows"], ROWS[[2, 0, 1]]), got
    with tf.compat.v1.Graph().as_default(), tf.compat.v1.Session() as s:
        meta = tf.compat.v1.saved_model.load(s, ["serve"], path)
        signature = meta.signature_def["number"]
        assert signature.method_name == "own/method"
        got = s.run(signature.outputs["numbers"].name, {signature.inputs["words"].name: words})
        assert list(got) == [2, 0, 1]
        assert [v.name for v in tf.compat.v1.global_variables()] == ["rows:0"]
    theirs("run", f"--dir={path}", "--tag_set=serve", "--signature_def=number",
           arrays(folder, words=np.array(words, "S")), f"--outdir={folder}/out")
    assert list(outputs(folder, "numbers")[0]) == [2, 0, 1]


@in_folder
def test_objects(folder):
    """What a C program wrote, as objects of TensorFlow 2: variables, functions that are called, trained and saved anew."""
    path, file = os.path.join(folder, "ours"), vocabulary(folder)
    run(EXPORTER, "save", path, file)
    os.remove(file)
    model = tf.saved_model.load(path)
    assert [v.name for v in model.variables] == ["rows:0"] and np.array_equal(model.variables[0], ROWS)
    assert [v.name for v in model.trainable_variables] == ["rows:0"]
    assert sorted(model.signatures) == ["echo", "number", "serving_default", "times"]
    words, by = tf.constant(["two", "who"]), tf.constant([10., 1.])
    for got in (model.times(words, by), model.times(by=by, words=words), model.signatures["times"](words=words, by=by)):
        assert np.array_equal(got["times"], ROWS[[2, 0]] * [10, 1]) and np.array_equal(got["Again!"], by), got
    assert model.signatures["times"].structured_input_signature[1]["by"] == tf.TensorSpec([2], tf.float32, "by")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model.serving_default(tf.constant(["two", "two"]))["rows"])
    grad, = tape.gradient(loss, model.trainable_variables)
    model.variables[0].assign_sub(grad)
    assert np.array_equal(model.serving_default(tf.constant(["two"]))["rows"], [[18, 19]])
    again = os.path.join(folder, "again")  # theirs, made of ours, read by us
    tf.saved_model.save(model, again, signatures=model.signatures)
    assert run(EXPORTER, "ask", again, "two", "one") == "two 2 18 19\none 1 10 11\n"
    other = tf.saved_model.load(path)  # two of one model share nothing
    assert np.array_equal(other.serving_default(tf.constant(["two"]))["rows"], [[20, 21]])
    assert sorted(tf.train.load_checkpoint(f"{path}/variables/variables").get_variable_to_shape_map()) == [
        "_CHECKPOINTABLE_OBJECT_GRAPH", "rows", "variables/0/.ATTRIBUTES/VARIABLE_VALUE"]


@in_folder
def test_without_objects(folder):
    """A variable of TensorFlow 1's kind has no form as an object: the model is one of version 1."""
    path = os.path.join(folder, "ours")
    run(EXPORTER, "save_ref", path, vocabulary(folder))
    model = tf.saved_model.load(path)
    assert not hasattr(model, "times")
    got = model.signatures["times"](words=tf.constant(["two"]), by=tf.constant([10., 1.]))
    assert np.array_equal(got["times"], [[200, 21]])
    assert run(EXPORTER, "ask", path, "two") == "two 2 20 21\n"


@in_folder
def test_keys_that_are_no_parameters(folder):
    """An input called as a word of Python's: TensorFlow could not load such an object, and there is none."""
    path = os.path.join(folder, "ours")
    run(EXPORTER, "save_as", path, vocabulary(folder), "in")
    assert run(EXPORTER, "ask", path, "two") == "two 2 20 21\n"
    with tf.compat.v1.Graph().as_default(), tf.compat.v1.Session() as s:
        meta = tf.compat.v1.saved_model.load(s, ["serve"], path)
        assert sorted(meta.signature_def["times"].inputs) == ["in", "words"] and not meta.HasField("object_graph_def")


def refusal(model, path):
    try:
        tf.saved_model.save(model, path, signatures=model.signatures)
    except ValueError as e:
        return re.sub(r"'__inference_\w+'", "", str(e))
    raise AssertionError("saved")


@in_folder
def test_keys_that_are_no_names(folder):
    """TensorFlow loads and calls signatures with such keys, but saves none again, of its own models either: what it can
    save is a signature with other keys, of the same objects."""
    v1 = tf.compat.v1
    for i, key in enumerate(("my input", "\u00e9", "_x", "a:0")):
        ours, theirs_, again = (os.path.join(folder, f"{name}{i}") for name in ("ours", "theirs", "again"))
        run(EXPORTER, "save_as", ours, vocabulary(folder), key)
        model, words, by = tf.saved_model.load(ours), tf.constant(["two"]), tf.constant([10., 1.])
        assert np.array_equal(model.signatures["times"](**{"words": words, key: by})["times"], [[200, 21]])
        with v1.Graph().as_default(), v1.Session() as s:
            x = v1.placeholder(tf.float32, [None])
            v1.saved_model.simple_save(s, theirs_, {key: x}, {"y": x * 2.})
        no = refusal(model, again).replace("'times'", "'serving_default'")
        assert "argument names" in no and no == refusal(tf.saved_model.load(theirs_), again), no
        model.variables[0].assign_add(tf.ones([4, 2]))
        times = tf.function(lambda words, by: model.times(words, by), autograph=False, input_signature=[
            tf.TensorSpec([None], tf.string, "words"), tf.TensorSpec([2], tf.float32, "by")])
        tf.saved_model.save(model, again, signatures=times)
        said = saved_model("run", f"--dir={again}", "--input_exprs=words=['two'];by=[1, 1]")
        assert "[[21. 22.]]" in said, said


@in_folder
def test_without_variables(folder):
    """Of either form: by everybody, and there are the files that TensorFlow writes for such models."""
    file, words = vocabulary(folder), ["two", "who", "one"]
    for key in "words", "in":  # with objects, without
        path = os.path.join(folder, key)
        run(EXPORTER, "save_constant", path, file, key)
        model = tf.saved_model.load(path)
        assert hasattr(model, "constant") == (key == "words") and not model.variables
        got = model.signatures["serving_default"](**{key: tf.constant(words)})
        assert list(got["numbers"]) == [2, 0, 1] and [w.decode() for w in got["same"].numpy()] == words
        assert list(model.signatures["constant"]()["pair"]) == [1, 2]
        with tf.compat.v1.Graph().as_default(), tf.compat.v1.Session() as s:
            signature = tf.compat.v1.saved_model.load(s, ["serve"], path).signature_def["serving_default"]
            assert list(s.run(signature.outputs["numbers"].name, {signature.inputs[key].name: words})) == [2, 0, 1]
        said = saved_model("run", f"--dir={path}", f"--input_exprs={key}={words}")
        assert "[2 0 1]" in said and "[b'two' b'who' b'one']" in said, said
        assert "[1. 2.]" in saved_model("run", f"--dir={path}", "--signature_def=constant")
        there = sorted(os.listdir(f"{path}/variables"))
        assert there == (["variables.data-00000-of-00001", "variables.index"] if key == "words" else []), there
    again = os.path.join(folder, "again")
    model = tf.saved_model.load(os.path.join(folder, "words"))
    tf.saved_model.save(model, again, signatures=model.signatures)
    assert "[2 0 1]" in saved_model("run", f"--dir={again}", f"--input_exprs=words={words}")


@in_folder
def test_graphs_from_elsewhere(folder):
    """Without variables they are exported; one whose variables nobody could find is refused, for their values would be lost."""
    with tf.Graph().as_default() as g:
        tf.add(tf.compat.v1.placeholder(tf.float32, [], "x"), 1., "y")
        plain = g.as_graph_def().SerializeToString()
        tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], name="w")
        variable = g.as_graph_def().SerializeToString()
    library = shoal.library()
    library.shoal_saved_model_save.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    library.shoal_saved_model_save.restype = ctypes.c_void_p
    library.shoal_saved_model_save.errcheck = shoal._check
    for name, graph_def in ("plain", plain), ("variable", variable):
        path, graph = os.path.join(folder, name), shoal.Graph(graph_def)
        with shoal.Session(graph) as s:
            try:
                library.shoal_saved_model_save(graph.handle, s.handle, path.encode(), None)
                assert name == "plain"
            except shoal.Error as e:
                assert name == "variable" and "{{node w}} is a variable" in str(e) and not os.path.exists(path), e
    with tf.compat.v1.Graph().as_default(), tf.compat.v1.Session() as s:
        tf.compat.v1.saved_model.load(s, ["serve"], f"{folder}/plain")
        assert s.run("y:0", {"x:0": 2.}) == 3.


def printed_arrays():
    """Arrays of every kind that NumPy prints in a way of its own."""
    rng = np.random.default_rng(1)
    floats = np.float32, np.float64, np.float16
    for t in floats:
        for scale in 1e-4, 1, 1e3, 1e6:
            with np.errstate(over="ignore"):
                yield (rng.normal(size=(3, 7)) * scale).astype(t)
        yield (rng.integers(-99, 99, (2, 2, 3)) / 8).astype(t)
        with np.errstate(over="ignore"):
            yield (10.0 ** rng.uniform(-40, 38, 9)).astype(t)
        yield np.array([np.nan, 1, -np.inf], t)
        for v in 0, -0.0, 0.1, 1e-4, 9e-5, 123456789, 1e15, 1e16, np.nan, -np.inf:
            with np.errstate(over="ignore"):
                yield np.array(v, t)
                yield np.array([v, 1], t)
    for t in np.int8, np.uint8, np.int32, np.int64, np.uint64:
        yield np.array([np.iinfo(t).min, np.iinfo(t).max, 0], t)
        yield np.array(np.iinfo(t).max, t)
        yield rng.integers(0, 100, (3, 40)).astype(t)
    yield from (np.array(True), np.array([True, False]), np.zeros((2, 50), bool))
    yield from (np.array(b"a'b\"\n\x00\xff\\"), np.array([b"it's", b"\xe4\xb8\xad", b"", b'"', b"x" * 100], object))
    yield np.array([b"w%d" % i for i in range(2000)], object)
    for t in np.complex64, np.complex128:
        yield from (np.array(1 + 2j, t), np.array(-2j, t), np.array([1, 2j, complex(np.nan, 1), 1e9], t))
        yield (rng.normal(size=(3, 4)) - 1j * rng.normal(size=(3, 4))).astype(t)
    yield from (np.zeros(0), np.zeros((3, 0), np.int32))
    for shape in (1000,), (1001,), (20, 60), (7, 8, 20), (2, 2, 2, 200), (6, 6, 6, 6):
        yield rng.normal(size=shape).astype(np.float32)
        yield rng.integers(-10 ** 6, 10 ** 6, shape)
    yield np.array([[1e-10, 1e10], [3, np.nan]], tf.bfloat16.as_numpy_dtype)


@in_folder
def test_printed(folder):
    """What `run` prints is to the letter what saved_model_cli prints, which is NumPy's."""
    path = os.path.join(folder, "m")
    with tf.Graph().as_default(), tf.compat.v1.Session() as s:
        x = tf.compat.v1.placeholder(tf.float32, [], "x")
        made = {f"y{i:03}": tf.constant(a) for i, a in enumerate(printed_arrays())}
        tf.compat.v1.saved_model.simple_save(s, path, {"x": x}, made)
    asked = "run", f"--dir={path}", "--tag_set=serve", "--signature_def=serving_default", "--input_exprs=x=1.0"
    a, b = (text.split("Result for output key ")[1:] for text in (saved_model(*asked), theirs(*asked)))
    assert len(a) == len(b) == len(made)
    for got, want in zip(a, b):
        assert got == want, (got, want)


class Taking(tf.Module):
    """Functions that take all kinds of things, in several forms."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def plain(self, x):
        return {"y": x * 2.}

    @tf.function(input_signature=[tf.SparseTensorSpec([None, 3], tf.float32),
                                  tf.RaggedTensorSpec([None, None], tf.int32), tf.TensorSpec(None, tf.string)])
    def parts(self, a, b, c):
        return tf.sparse.reduce_sum(a)

    @tf.function
    def scaled(self, x, flag=True, name="a", scale=2, other=None):
        return x * scale

    @tf.function
    def nested(self, d, pair):
        return d["a"] + pair[0]

    @tf.function
    def __call__(self, x, *, k=3):
        return x


def save_taking(path):
    m = Taking()
    m.scaled(tf.constant([1., 2.]))
    m.scaled(tf.constant(1), flag=False, name="it's")
    m.scaled(tf.constant([[1.]]), True, "b", 1e-5)
    m.nested({"a": tf.constant(1.), "b": [tf.constant(2), 3, "z"]}, (tf.constant(1.), tf.constant(2.)))
    m(tf.constant(1.), k=4)
    m.bare = m.plain.get_concrete_function()
    tf.saved_model.save(m, path, signatures=m.plain)


def without_order(text):
    """Ops are a set of Python's; and forms of a function are in the order of names that contain numbers as text."""
    text = re.sub(r"ops: {(.*)}", lambda m: f"ops: {sorted(m[1].split(', '))}", text)
    head, *functions = text.split("\n  Function Name: ")
    return head, [(f.split("\n", 1)[0], sorted(re.split(r"    Option #\d+\n", f)[1:])) for f in functions]


@in_folder
def test_show(folder):
    """Line by line what saved_model_cli prints."""
    save_taking(f"{folder}/taking")
    tf.saved_model.save(tf.Module(), f"{folder}/nothing")
    keras = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dropout(.5), tf.keras.layers.Dense(1)])
    tf.saved_model.save(keras, f"{folder}/keras")
    for name in "taking", "nothing", "keras":
        args = "show", f"--dir={folder}/{name}", "--all"
        assert without_order(saved_model(*args)) == without_order(theirs(*args)), name
    args = "show", f"--dir={folder}/taking", "--tag_set=serve", "--list_ops"
    assert without_order(saved_model(*args)) == without_order(theirs(*args))
    run(EXPORTER, "save", f"{folder}/ours", vocabulary(folder))
    for path in (save_second(folder)[1], save_first(folder), f"{folder}/ours"):
        assert saved_model("show", f"--dir={path}") == theirs("show", f"--dir={path}")
        for tags in ("serve", "serve,twice") if path.endswith("first") else ("serve",):
            keys = saved_model("show", f"--dir={path}", f"--tag_set={tags}")
            assert keys == theirs("show", f"--dir={path}", f"--tag_set={tags}")
            for key in (line.split('"')[1] for line in keys.splitlines()[1:]):
                args = ("show", f"--dir={path}", f"--tag_set={tags}", f"--signature_def={key}")
                assert saved_model(*args) == theirs(*args)
        args = "show", f"--dir={path}", "--all"
        assert without_order(saved_model(*args)) == without_order(theirs(*args)), path


@in_folder
def test_mistakes(folder):
    _, path = save_second(folder)
    words = arrays(folder, words=np.array(["one"]))
    for args, said in (
            (("show",), "--dir is missing"),
            (("show", f"--dir={folder}"), "there is no SavedModel in"),
            (("show", f"--dir={path}", "--tag_set=train"), "no graph with the tags 'train'; there is one: 'serve'"),
            (("show", f"--dir={path}", "--tag_set=serve", "--signature_def=x"), 'no signature "x"'),
            (("run", f"--dir={path}", "--signature_def=lop", words), 'no signature "lop"'),
            (("run", f"--dir={path}", "--inputs=words"), "KEY=FILE.npy or KEY=FILE.npz[NAME] is expected"),
            (("run", f"--dir={path}", f"--inputs=words={folder}/none.npy"), "none.npy"),
            (("run", f"--dir={path}"), "input 'words' of signature 'serving_default' is missing"),
            (("run", f"--dir={path}", words + f";other={folder}/words.npy"), "has no input 'other'; it has: 'words'"),
            (("run", f"--dir={path}", arrays(f"{folder}/a", words=np.zeros(1))), "is string, not float64"),
            (("run", f"--dir={path}", arrays(f"{folder}/b", words=np.array([["a"]]))), "is of shape [?], not [1,1]")):
        code = 2 if "missing" in said and args == ("show",) else None
        p = subprocess.run([SHOAL, "saved_model", *args], capture_output=True, text=True, check=False)
        assert p.returncode == (code or p.returncode) and p.returncode and said in p.stderr, (args, p.stderr)
    saved_model("run", f"--dir={path}", arrays(folder, words=np.array(["one"])), f"--outdir={folder}/out")
    assert "--overwrite" in saved_model("run", f"--dir={path}", words, f"--outdir={folder}/out", code=1)
    assert "not empty" in run(EXPORTER, "save", path, vocabulary(folder), code=1)
    assert not [name for name in os.listdir(folder) if "tempstate" in name]


@in_folder
def test_damaged(folder):
    """Cut short or changed anywhere: an error, or an answer, but no crash."""
    _, path = save_second(folder)
    file = os.path.join(path, "saved_model.pb")
    with open(file, "rb") as f:
        whole = f.read()
    random = np.random.default_rng(1)
    for i in range(60):
        data = bytearray(whole)
        if i % 2:
            data = data[:random.integers(len(data))]
        else:
            for at in random.integers(len(data), size=4):
                data[at] = random.integers(256)
        with open(file, "wb") as f:
            f.write(data)
        for args in (("show", "--all"), ("run", arrays(folder, words=np.array(["one"])))):
            p = subprocess.run([SHOAL, "saved_model", *args, f"--dir={path}"], capture_output=True, check=False)
            assert p.returncode in (0, 1, 2), (i, args, p.returncode, p.stderr[-500:])


@in_folder
def test_arrays(folder):
    """NumPy's types, orders and strings, there and back through a model that changes nothing."""
    v1 = tf.compat.v1
    for value in (np.arange(6, dtype=np.int8).reshape(2, 3), np.array([1, 2], np.uint64), np.float16([[1.5]]),
                  np.asfortranarray(np.arange(24.).reshape(2, 3, 4)), np.array([1, 2], ">i4"), np.array([True, False]),
                  np.array([1 + 2j], np.complex64), np.array([b"a", b"long one, longer than 16"]), np.zeros((0, 3), np.float32),
                  np.array(7, np.int64), np.array(["\u00fc", "x\U0001f41f"])):
        path = os.path.join(folder, "same")
        with v1.Graph().as_default(), v1.Session() as s:
            native = value.astype(value.dtype.newbyteorder("="))
            x = v1.placeholder(tf.string if native.dtype.kind in "SU" else tf.as_dtype(native.dtype), value.shape)
            v1.saved_model.simple_save(s, path, {"x": x}, {"y": tf.identity(x)})
        saved_model("run", f"--dir={path}", arrays(folder, x=value), f"--outdir={folder}/out", "--overwrite")
        got = outputs(folder, "y")[0]
        want = np.char.encode(value, "utf-8") if value.dtype.kind == "U" else native
        assert got.shape == want.shape and np.array_equal(got, want), (value, got)
        subprocess.run(["rm", "-r", path], check=True)


class Readers(tf.Module):
    """Reads of variables wherever they may stand: in calls, branches, loops, gathers."""

    def __init__(self):
        super().__init__()
        self.rows, self.scale = tf.Variable(ROWS), tf.Variable([[2., 0.], [0., .5]])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, "ids"), tf.TensorSpec([], tf.int32, "times")])
    def read(self, ids, times):
        x = tf.nn.embedding_lookup(self.rows, ids)
        for _ in tf.range(times):
            x = tf.matmul(x, self.scale) if tf.reduce_sum(x) < 100. else x + self.rows[0]
        return {"y": x, "shape": tf.shape(self.rows), "last": tf.gather_nd(self.rows, [[3]])}


def frozen(folder, path, feeds, *args):
    """What TensorFlow computes of the graph that was written, by the names that were printed."""
    file = os.path.join(folder, "frozen.pb")
    lines = saved_model("freeze", f"--dir={path}", f"--output_graph={file}", *args).splitlines()
    names = {line.split(":", 1)[0]: line.split(":", 1)[1].split() for line in lines[1:]}
    v1 = tf.compat.v1
    graph = v1.GraphDef()
    with open(file, "rb") as f:
        graph.ParseFromString(f.read())
    ops = [n.op for n in graph.node]
    assert not [op for op in ops if op.startswith(("Var", "ReadVar", "Restore"))]
    assert not graph.library.function or [op for op in ops if "Dataset" in op]
    with v1.Graph().as_default(), v1.Session() as s:
        tf.import_graph_def(graph, name="")
        return s.run(names["outputs"], {k: v for k, v in zip(names["inputs"], feeds) if v is not None}), graph


@in_folder
def test_freeze(folder):
    model, path = Readers(), os.path.join(folder, "readers")
    tf.saved_model.save(model, path, signatures=model.read)
    for times in (0, 1, 5):
        (last, shape, y), _ = frozen(folder, path, [[3, 1], times])  # in the order of their keys
        want = model.read(tf.constant([3, 1]), times)
        assert np.array_equal(y, want["y"]) and list(shape) == [4, 2] and np.array_equal(last, want["last"])
    first, x = save_first(folder), np.array([[1, 2], [3, 4]], np.float32)
    (y,), graph = frozen(folder, first, [x], "--tag_set=serve,twice")
    assert np.allclose(y, 2 * x @ ROWS[:2]) and len(graph.node) < 8, [n.name for n in graph.node]
    ours = os.path.join(folder, "ours")
    run(EXPORTER, "save", ours, vocabulary(folder))
    error = saved_model("freeze", f"--dir={ours}", f"--output_graph={folder}/no.pb", code=1)
    assert "table" in error and not os.path.exists(f"{folder}/no.pb"), error
    keras = tf.keras.Sequential([tf.keras.layers.Conv2D(4, 3, input_shape=(8, 8, 3)), tf.keras.layers.BatchNormalization(),
                                 tf.keras.layers.Flatten(), tf.keras.layers.Dense(5)])
    path, pictures = os.path.join(folder, "keras"), np.random.default_rng(1).random((2, 8, 8, 3), np.float32)
    tf.saved_model.save(keras, path)
    assert np.allclose(frozen(folder, path, [pictures])[0][0], keras(pictures), atol=1e-5)
    saved_model("freeze", f"--dir={path}", f"--output_graph={folder}/f.pbtxt")
    with open(f"{folder}/f.pbtxt") as f:
        assert text_format.Parse(f.read(), tf.compat.v1.GraphDef()).node


class Datasets(tf.Module):
    """Functions that datasets name: in one another's, in branches, with what they take from outside."""

    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(2, dtype=tf.int64)

    @tf.function(input_signature=[tf.TensorSpec([], tf.int64, "n")])
    def total(self, n):
        total, scale = tf.constant(0, tf.int64), self.scale.read_value()
        inner = lambda z: tf.data.Dataset.range(z).map(lambda y: y * scale if y > 1 else y)
        for e in tf.data.Dataset.range(n).flat_map(inner).filter(lambda y: y != 2).batch(2):
            total += tf.reduce_sum(e)
        return {"total": total}

    @tf.function(input_signature=[tf.TensorSpec([], tf.int64, "n")])
    def taking(self, n):
        return {"total": tf.data.Dataset.range(n).map(lambda z: z * self.scale).reduce(n, tf.add)}

    @tf.function(input_signature=[tf.TensorSpec([], tf.int64, "n")])
    def owning(self, n):
        def read(z):
            own = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name="own")
            return tf.raw_ops.ReadVariableOp(resource=own, dtype=tf.int64) + z
        inner = lambda z: tf.data.Dataset.range(z).map(read)
        return {"total": tf.data.Dataset.range(n).flat_map(inner).reduce(n, tf.add)}


@in_folder
def test_freeze_datasets(folder):
    """Functions come along, and no others; one that has a variable, or takes one, is an error that names who calls it."""
    model, path = Datasets(), os.path.join(folder, "datasets")
    tf.saved_model.save(model, path, signatures={k: getattr(model, k) for k in ("total", "taking", "owning")})
    for n in 0, 7:
        (total,), graph = frozen(folder, path, [n], "--signature_def=total")
        assert total == model.total(n)["total"], total
        names = [f.signature.name for f in graph.library.function]
        assert len(names) >= 3 and not [n for n in names if "total" in n or "signature" in n], names
    for key, said, code in ("taking", "(MapDataset) does more", 2), ("owning", "(VarHandleOp) is a variable", 1):
        error = saved_model("freeze", f"--dir={path}", f"--output_graph={folder}/no.pb", f"--signature_def={key}",
                            code=code)
        assert said in error and "{{node " in error and not os.path.exists(f"{folder}/no.pb"), error


@in_folder
def test_freeze_references(folder):
    """Variables of the first kind, read in a branch too."""
    v1, path = tf.compat.v1, os.path.join(folder, "references")
    with v1.Graph().as_default(), v1.Session() as s:
        v1.disable_control_flow_v2()
        x = v1.placeholder(tf.float32, [2, 2], "x")
        w = v1.get_variable("w", initializer=ROWS[:2], use_resource=False)
        y = tf.cond(tf.reduce_sum(x) > 5., lambda: tf.matmul(x, w), lambda: x - w)
        s.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(s, path, {"x": x}, {"y": y})
        for value in (np.ones((2, 2), np.float32), np.full((2, 2), 3, np.float32)):
            assert np.array_equal(frozen(folder, path, [value])[0][0], s.run(y, {x: value}))


if __name__ == "__main__":
    tap.main(globals())
