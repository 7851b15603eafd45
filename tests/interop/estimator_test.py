"""Estimators by themselves: exports, training and evaluation by turns, early stopping, strategies, mistakes. (Beside
TensorFlow's: estimator_tf_test.py.)"""
# needs: tensorflow
import ctypes as C
import glob
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from cases import np, tf
import shoal
import train_api as api
from columns_api import STRING, Columns, dims, pointers
from estimator_api import DNN, DNN_LINEAR, INPUT, LINEAR, Canned, Exporter, table
from estimator_table import FEATURES, JOBS, ROWS, TWO, our_columns


def variables(d):
    return {n: tf.train.load_variable(d, n) for n, _ in tf.train.list_variables(d)}


def linear(d, **kw):
    c = Columns()
    o = Canned(LINEAR, d, our_columns(c)[0], classes=2, **kw)
    o.columns = c
    return o


OBJECTS = """
import json, sys
import tensorflow as tf
m = tf.saved_model.load(sys.argv[1])
examples = [bytes.fromhex(x) for x in json.load(sys.stdin)]
print(json.dumps(m.predict(tf.constant(examples))["probabilities"].numpy().tolist()))
"""


def as_objects(path, examples):
    """What TensorFlow 2's loader makes of an export, asked by its function."""
    p = subprocess.run([sys.executable, "-c", OBJECTS, path], input=json.dumps([e.hex() for e in examples]), text=True,
                       stdout=subprocess.PIPE, check=True)
    return json.loads(p.stdout)


def test_export():
    c = Columns()
    with tempfile.TemporaryDirectory() as d:
        words = f"{d}/words"
        with open(words, "w") as f:
            f.write("\n".join(JOBS))
        columns = [c.numeric("age"), c.vocabulary("job", path=words)]
        o = Canned(LINEAR, f"{d}/m", columns, classes=2)
        o.train(table(FEATURES, TWO, repeat=4), max_steps=20)

        class ColumnList(C.Structure):
            _fields_ = [("at", C.c_void_p), ("n", C.c_int)]
        kept = pointers(columns)
        path = o.export(f"{d}/exported", C.cast(api.lib().shoal_example_receiver, INPUT),
                        C.cast(C.pointer(ColumnList(C.cast(kept, C.c_void_p), 2)), C.c_void_p))
        os.remove(words)  # the model has its own

        def example(i):
            f = {"age": tf.train.Feature(float_list=tf.train.FloatList(value=FEATURES["age"][i])),
                 "job": tf.train.Feature(bytes_list=tf.train.BytesList(value=FEATURES["job"][i]))}
            return tf.train.Example(features=tf.train.Features(feature=f)).SerializeToString()
        with tf.Graph().as_default(), tf.Session() as s:
            m = tf.saved_model.load(s, ["serve"], path)
            assert sorted(m.signature_def) == ["classification", "predict", "regression", "serving_default"]
            sig = m.signature_def["predict"]
            got = s.run({k: v.name for k, v in sig.outputs.items()},
                        {sig.inputs["examples"].name: [example(i) for i in range(ROWS)]})
        again = as_objects(path, [example(i) for i in range(ROWS)])
        np.testing.assert_allclose(again, got["probabilities"], rtol=1e-5)
        with open(words, "w") as f:
            f.write("\n".join(JOBS))
        ours = o.predict(table(FEATURES, TWO, batch=ROWS))[0]
        np.testing.assert_allclose(got["probabilities"], ours["probabilities"], rtol=1e-5)
        assert (got["classes"] == ours["classes"]).all()
        o.close()


def receiver(g, mode, inputs, arg):
    lib = api.lib()
    for name, t in (("age", 1), ("job", STRING)):
        lib.shoal_inputs_feature(inputs, name.encode(), lib.shoal_placeholder(g, t, dims([None, 1]), name.encode()))


def events(d, tag):
    return [(e.step, v.simple_value) for f in sorted(glob.glob(f"{d}/events*"))
            for e in tf.compat.v1.train.summary_iterator(f) for v in e.summary.value if v.tag == tag]


def test_train_and_evaluate_alone():
    with tempfile.TemporaryDirectory() as d:
        o, fn = linear(d, config={"save_steps": 5}), INPUT(receiver)
        o.train_and_evaluate(table(FEATURES, TWO, repeat=-1), table(FEATURES, TWO), max_steps=20,
                             exporters=[Exporter(0, b"final", fn), Exporter(1, b"latest", fn, None, 2),
                                        Exporter(2, b"best", fn, None, 0, b"accuracy", True)])
        found = events(f"{d}/eval", "accuracy")
        assert [s for s, _ in found][-1] == 20 and {10, 15} <= {s for s, _ in found}, found
        n = {k: len(os.listdir(f"{d}/export/{k}")) for k in ("final", "latest", "best")}
        assert n["final"] == 1 and n["latest"] == 2 and 1 <= n["best"] <= len(found), n
        assert tf.compat.v1.saved_model.contains_saved_model(glob.glob(f"{d}/export/final/*")[0])
        assert events(d, "loss") and events(d, "global_step/sec") is not None
        o.train_and_evaluate(table(FEATURES, TWO, repeat=-1), table(FEATURES, TWO), max_steps=20)  # nothing is left
        o.close()


def test_early_stopping():
    for early, last in (({"rule": 0, "patience": 10, "min_steps": 0, "every_secs": -1.0}, 400),
                        ({"rule": 3, "metric": "accuracy", "target": -0.5, "every_secs": -1.0}, 40),
                        ({"rule": 2, "metric": "loss", "target": 1e9, "min_steps": 30, "every_secs": -1.0}, 60)):
        with tempfile.TemporaryDirectory() as d:
            o = linear(d, config={"save_steps": 10})
            o.train_and_evaluate(table(FEATURES, TWO, repeat=-1), table(FEATURES, 1 - TWO), early=early, max_steps=400)
            step = tf.train.load_variable(d, "global_step")
            assert step < last, (early, step)
            assert step >= early.get("min_steps", 0)
            assert tf.train.load_variable(d, "signal_early_stopping/STOP")
            o.close()


def test_early_stopping_mirrored():
    """Two replicas in one process, which stop after one and the same step."""
    with tempfile.TemporaryDirectory() as d:
        c = Columns()
        o = Canned(DNN, d, dnn=our_columns(c)[1][:1], hidden=[4], classes=2, mean_loss=True,
                   config={"strategy": 1, "devices": 2, "save_steps": 10})
        o.train_and_evaluate(table(FEATURES, TWO, repeat=-1), table(FEATURES, TWO), max_steps=400,
                             early={"rule": 2, "metric": "loss", "target": 1e9, "min_steps": 30, "every_secs": -1.0})
        step = tf.train.load_variable(d, "global_step")
        assert 30 <= step < 60 and tf.train.load_variable(d, "signal_early_stopping/STOP"), step
        o.close()


def test_strategy():
    """Two replicas with half a batch each, and one with the whole: sums of losses, so gradients are halved."""
    with tempfile.TemporaryDirectory() as d:
        c = Columns()
        for name, config in (("one", {}), ("two", {"strategy": 1, "devices": 2})):
            o = Canned(DNN, f"{d}/{name}", dnn=our_columns(c)[1][:1], hidden=[4], classes=2, mean_loss=True,
                       config={"seed": 5, **config})
            o.train(table(FEATURES, TWO, repeat=10), max_steps=8)
            o.close()
        a, b = variables(f"{d}/one"), variables(f"{d}/two")
        assert sorted(a) == sorted(b), sorted(set(a) ^ set(b))
        for n in a:
            np.testing.assert_allclose(a[n], b[n], rtol=1e-3, atol=1e-5, err_msg=n)


def test_dropout():
    """In training alone."""
    with tempfile.TemporaryDirectory() as d:
        c = Columns()
        for name, dropout in (("without", 0.0), ("with", 0.5)):
            o = Canned(DNN, f"{d}/{name}", dnn=our_columns(c)[1][:1], hidden=[8], classes=2, dropout=dropout,
                       config={"seed": 5})
            o.train(table(FEATURES, TWO, repeat=10), max_steps=8)
            o.close()
        a, b = (tf.train.load_variable(f"{d}/{n}", "dnn/logits/kernel") for n in ("without", "with"))
        assert np.abs(a - b).max() > 1e-4, (a, b)
        found = []
        for dropout in (0.0, 0.5, 0.5):
            o = Canned(DNN, f"{d}/with", dnn=our_columns(c)[1][:1], hidden=[8], classes=2, dropout=dropout)
            found.append(o.evaluate(table(FEATURES, TWO)))
            o.close()
        assert found[0] == found[1] == found[2], found


def refused(text, fn, code=3):
    try:
        fn()
    except shoal.Error as e:
        assert text in e.message and (code is None or e.code == code), (text, e.code, e.message)
    else:
        raise AssertionError(f"no error: {text}")


def test_mistakes():
    c = Columns()
    wide, deep = our_columns(c)
    with tempfile.TemporaryDirectory() as d:
        refused("there are no linear_columns", lambda: Canned(LINEAR, d))
        refused("there are no dnn_columns", lambda: Canned(DNN, d, wide))
        refused("neither linear_columns nor dnn_columns", lambda: Canned(DNN_LINEAR, d, hidden=[4]))
        refused("1 classes", lambda: Canned(LINEAR, d, wide, classes=1))
        refused("linear_combiner is \"average\"", lambda: Canned(LINEAR, d, wide, linear_combiner="average"))
        refused("model_dir", lambda: Canned(LINEAR, None, wide))
        refused("hidden_units[0] is 0", lambda: Canned(DNN, d, dnn=deep, hidden=[0]))
        o = linear(d)
        refused("no checkpoint in", lambda: o.evaluate(table(FEATURES, TWO)), 5)
        refused("feature 'job' is not among those given: age", lambda: o.train(table({"age": FEATURES["age"]}, TWO)))
        refused("gave no labels", lambda: o.train(table(FEATURES)))
        refused("labels are of type string", lambda: o.train(table(FEATURES, FEATURES["job"])))
        refused("less than 2", lambda: o.train(table(FEATURES, TWO + 5)))
        refused("the training is empty", lambda: o.train(table({k: v[:0] for k, v in FEATURES.items()}, TWO[:0])))
        refused("one of them", lambda: o.train(table(FEATURES, TWO), steps=1, max_steps=1))
        o.train(table(FEATURES, TWO), max_steps=2)
        refused("is empty", lambda: o.evaluate(table({k: v[:0] for k, v in FEATURES.items()}, TWO[:0])))
        refused("steps of the evaluation must be > 0", lambda: o.evaluate(table(FEATURES, TWO), steps=-1))
        refused("steps of the evaluation must be > 0",
                lambda: o.train_and_evaluate(table(FEATURES, TWO), table(FEATURES, TWO), max_steps=4, steps=-1))
        refused("wants strings", lambda: o.evaluate(table({**FEATURES, "job": FEATURES["age"]}, TWO)))
        refused("/nothing", lambda: linear(f"{d}/x", config={"warm_start": f"{d}/nothing"}).train(table(FEATURES, TWO)), None)
        refused("but TF_CONFIG says", lambda: linear(d, config={"tf_config": '{"model_dir": "/other"}'}))
        o.close()


def test_model_dir_of_the_environment():
    with tempfile.TemporaryDirectory() as d:
        c = Columns()
        o = Canned(LINEAR, None, our_columns(c)[0], classes=2, config={"tf_config": '{"model_dir": "%s/m"}' % d})
        o.train(table(FEATURES, TWO), max_steps=2)
        assert tf.train.latest_checkpoint(f"{d}/m").endswith("model.ckpt-2")
        o.close()


if __name__ == "__main__":
    tap.main(globals())
