"""What Estimators export, beside TensorFlow's: the same signatures, inputs and files under the same names, with Examples and
with plain features; TensorFlow's exports run here, ours there, to the same numbers."""
# needs: tensorflow
import ctypes as C
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
import shoal
import train_api as api
from cases import np, tf
from columns_api import STRING, Columns, dims, pointers
from estimator_api import DNN_LINEAR, INPUT, LINEAR, Canned, table
from estimator_table import FEATURES, JOBS, REAL, ROWS, TWO

fc, est = tf.feature_column, tf.compat.v1.estimator
SHOAL = os.path.join(os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build")), "shoal")
FEATURES = {**FEATURES, "town": FEATURES["job"]}


class ColumnList(C.Structure):
    _fields_ = [("at", C.c_void_p), ("n", C.c_int)]


def files(folder):
    """Two files of words that have one name."""
    paths = []
    for part, words in ("a", JOBS), ("b", JOBS[::-1]):
        os.makedirs(f"{folder}/{part}")
        paths.append(f"{folder}/{part}/words.txt")
        with open(paths[-1], "w") as f:
            f.write("\n".join(words))
    return paths


def our_columns(c, paths):
    age = c.numeric("age")
    wide = [c.vocabulary("job", path=paths[0]), c.vocabulary("town", path=paths[1])]
    return wide, [age, c.embedding(wide[0], dimension=3)]


def tf_columns(paths):
    wide = [fc.categorical_column_with_vocabulary_file(k, p) for k, p in zip(("job", "town"), paths)]
    return wide, [fc.numeric_column("age"), fc.embedding_column(wide[0], 3)]


def our_receiver(columns):
    kept = pointers(columns)
    arg = ColumnList(C.cast(kept, C.c_void_p), len(columns))
    return C.cast(api.lib().shoal_example_receiver, INPUT), C.cast(C.pointer(arg), C.c_void_p), (kept, arg)


def plain(g, mode, inputs, arg):
    lib = api.lib()
    for name, t in (("age", 1), ("job", STRING), ("town", STRING)):
        lib.shoal_inputs_feature(inputs, name.encode(), lib.shoal_placeholder(g, t, dims([None, 1]), name.encode()))


def tf_plain():
    p = {"age": tf.placeholder(tf.float32, [None, 1]), "job": tf.placeholder(tf.string, [None, 1]),
         "town": tf.placeholder(tf.string, [None, 1])}
    return tf.estimator.export.ServingInputReceiver(p, p)


def signatures(path):
    """{signature: (method, inputs, outputs)}, and the names of files."""
    with tf.Graph().as_default(), tf.Session() as s:
        m = tf.saved_model.load(s, ["serve"], path)
        found = {k: (v.method_name, sorted(v.inputs), sorted(v.outputs)) for k, v in m.signature_def.items()}
        return found, sorted(os.listdir(f"{path}/assets"))


def examples():
    def feature(v):
        if isinstance(v, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[v]))
        return tf.train.Feature(float_list=tf.train.FloatList(value=[v]))
    return [tf.train.Example(features=tf.train.Features(feature={
        k: feature(FEATURES[k][i][0]) for k in ("age", "job", "town")})).SerializeToString() for i in range(ROWS)]


def ask_tf(path, signature, feeds):
    with tf.Graph().as_default(), tf.Session() as s:
        sig = tf.saved_model.load(s, ["serve"], path).signature_def[signature]
        return s.run({k: v.name for k, v in sig.outputs.items()}, {sig.inputs[k].name: v for k, v in feeds.items()})


def ask_ours(path, signature, feeds, *keys):
    with tempfile.TemporaryDirectory() as d:
        for k, v in feeds.items():
            v = np.asarray(v)
            np.save(f"{d}/{k}.npy", v.astype(bytes) if v.dtype == object else v)
        p = subprocess.run([SHOAL, "saved_model", "run", f"--dir={path}", f"--signature_def={signature}", f"--outdir={d}/out",
                            "--inputs=" + ";".join(f"{k}={d}/{k}.npy" for k in feeds)], capture_output=True, text=True, check=False)
        assert p.returncode == 0, p.stderr
        return [np.load(f"{d}/out/{k}.npy", allow_pickle=True) for k in keys]


def both(classes, key):
    """A model of TensorFlow's, exported by it; the same checkpoint, exported by us."""
    rows, c = TWO if classes else REAL, Columns()
    kind = est.DNNLinearCombinedClassifier if classes else est.DNNLinearCombinedRegressor
    with tempfile.TemporaryDirectory() as d:
        paths = files(d)
        wide, deep = tf_columns(paths)
        t = kind(model_dir=f"{d}/m", linear_feature_columns=wide, dnn_feature_columns=deep, dnn_hidden_units=[4],
                 config=tf.estimator.RunConfig(tf_random_seed=7))
        t.train(lambda: tf.data.Dataset.from_tensor_slices((FEATURES, rows)).batch(4), max_steps=6)
        spec = fc.make_parse_example_spec(wide + deep)
        parsed = t.export_saved_model(f"{d}/tf", tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)).decode()
        raw = t.export_saved_model(f"{d}/tf_plain", tf_plain).decode()
        our_wide, our_deep = our_columns(c, paths)
        o = Canned(DNN_LINEAR, f"{d}/m", our_wide, our_deep, hidden=[4], classes=classes)
        fn, arg, kept = our_receiver(our_wide + our_deep)
        ours = o.export(f"{d}/ours", fn, arg)
        ours_plain = o.export(f"{d}/ours_plain", INPUT(plain))
        o.close()
        del kept
        shutil.rmtree(f"{d}/a")  # models have their own files
        shutil.rmtree(f"{d}/b")
        a, b = signatures(parsed), signatures(ours)
        assert a == b, (a, b)
        a, b = signatures(raw)[0], signatures(ours_plain)[0]
        assert b.pop("serving_default") == b["predict"] and a == b, (a, b)  # it has none; here it is what is asked by default
        feeds, columns = {"examples": examples()}, {k: FEATURES[k] for k in ("age", "job", "town")}
        want = ask_tf(parsed, "predict", feeds)[key]
        for path in parsed, ours:
            np.testing.assert_allclose(ask_tf(path, "predict", feeds)[key], want, rtol=1e-5)
            np.testing.assert_allclose(ask_ours(path, "predict", feeds, key)[0], want, rtol=1e-5)
        for path in raw, ours_plain:
            np.testing.assert_allclose(ask_tf(path, "predict", columns)[key], want, rtol=1e-5)
            np.testing.assert_allclose(ask_ours(path, "predict", columns, key)[0], want, rtol=1e-5)


def test_classifier():
    both(2, "probabilities")


def test_regressor():
    both(0, "predictions")


if __name__ == "__main__":
    tap.main(globals())
