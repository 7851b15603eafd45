"""Canned estimators beside tf.compat.v1.estimator and tf.estimator: checkpoints in both directions, the same numbers after
the same steps, the same metrics and predictions."""
# needs: tensorflow
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import tap
import train_api as api
from cases import np, tf
from columns_api import Columns
from estimator_api import BASELINE, DNN, DNN_LINEAR, LINEAR, Canned, table
from estimator_table import FEATURES, JOBS, REAL, THREE, TWO, our_columns

fc, est = tf.feature_column, tf.compat.v1.estimator


def tf_input(labels, repeat=1, batch=4):
    return lambda: tf.compat.v1.data.Dataset.from_tensor_slices((FEATURES, labels)).batch(batch).repeat(repeat)


def tf_columns():
    age = fc.numeric_column("age")
    job = fc.categorical_column_with_vocabulary_list("job", JOBS)
    b = fc.bucketized_column(age, [30, 40, 50])
    wide = [job, b, fc.crossed_column([b, "job"], 20)]
    return wide, [age, fc.embedding_column(job, 3), fc.indicator_column(job)]


def variables(d):
    return {n: tf.train.load_variable(d, n) for n, _ in tf.train.list_variables(d)}


def same_variables(a, b):
    a, b = variables(a), variables(b)
    assert sorted(a) == sorted(b), (sorted(set(a) ^ set(b)))
    for n in a:
        np.testing.assert_allclose(a[n], b[n], rtol=2e-4, atol=2e-6, err_msg=n)


def same_metrics(ours, theirs):
    assert sorted(ours) == sorted(theirs), (sorted(ours), sorted(theirs))
    for n in theirs:
        np.testing.assert_allclose(ours[n], theirs[n], rtol=1e-4, atol=1e-5, err_msg=n)


def quiet(d):
    return tf.estimator.RunConfig(model_dir=d, tf_random_seed=7, save_summary_steps=1000)


def both_ways(make_tf, make_ours, labels):
    """TensorFlow begins; both go on from there; then each goes on from the other's."""
    with tempfile.TemporaryDirectory() as d:
        a, b = f"{d}/tf", f"{d}/ours"
        t = make_tf(a)
        t.train(tf_input(labels, 10), max_steps=1)
        shutil.copytree(a, b)
        for f in glob.glob(f"{b}/events*"):
            os.remove(f)
        t.train(tf_input(labels, 10), max_steps=6)
        o = make_ours(b)
        o.train(table(FEATURES, labels, repeat=10), max_steps=6)
        same_variables(a, b)
        ours = o.evaluate(table(FEATURES, labels))
        same_metrics(ours, t.evaluate(tf_input(labels)))
        u = make_tf(b)  # TensorFlow on our checkpoint
        same_metrics(ours, u.evaluate(tf_input(labels)))
        got, wanted = o.predict(table(FEATURES, labels)), list(u.predict(tf_input(labels)))
        for name in wanted[0]:
            mine = np.concatenate([batch[name] for batch in got])
            theirs = np.array([w[name] for w in wanted])
            if mine.dtype == object or mine.dtype.kind in "iu":
                assert (mine == theirs).all(), name
            else:
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6, err_msg=name)
        u.train(tf_input(labels, 10), max_steps=8)
        t.train(tf_input(labels, 10), max_steps=8)
        same_variables(a, b)
        o.close()


def test_wide_and_deep():
    wide, deep = tf_columns()
    c = Columns()
    ours = our_columns(c)
    both_ways(lambda d: est.DNNLinearCombinedClassifier(model_dir=d, linear_feature_columns=wide,
                                                        dnn_feature_columns=deep, dnn_hidden_units=[5, 4], config=quiet(d)),
              lambda d: Canned(DNN_LINEAR, d, *ours, hidden=[5, 4], classes=2), TWO)


def test_wide_or_deep():
    """One half of the two: the other has no variables, no slots, and no optimizer that counts."""
    wide, deep = tf_columns()
    c = Columns()
    ours = our_columns(c)
    both_ways(lambda d: est.DNNLinearCombinedClassifier(model_dir=d, linear_feature_columns=wide, config=quiet(d)),
              lambda d: Canned(DNN_LINEAR, d, ours[0], classes=2), TWO)
    both_ways(lambda d: est.DNNLinearCombinedRegressor(model_dir=d, dnn_feature_columns=deep, dnn_hidden_units=[5, 4],
                                                       config=quiet(d)),
              lambda d: Canned(DNN_LINEAR, d, dnn=ours[1], hidden=[5, 4]), REAL)


def test_linear_regressor():
    wide, _ = tf_columns()
    c = Columns()
    both_ways(lambda d: est.LinearRegressor(wide + [fc.numeric_column("age")], model_dir=d, config=quiet(d)),
              lambda d: Canned(LINEAR, d, our_columns(c)[0] + [c.numeric("age")]), REAL)


def test_linear_of_two_numbers():
    """Labels of two numbers, and several words a row, whose weights are averaged."""
    c = Columns()
    both_ways(lambda d: est.LinearRegressor([fc.categorical_column_with_vocabulary_list("pair", JOBS)], model_dir=d,
                                            label_dimension=2, sparse_combiner="mean", config=quiet(d)),
              lambda d: Canned(LINEAR, d, [c.vocabulary("pair", words=JOBS)], label_dimension=2, linear_combiner="mean"),
              np.concatenate([REAL, 2 - REAL], 1))


def test_dnn_classifier():
    _, deep = tf_columns()
    c = Columns()
    both_ways(lambda d: est.DNNClassifier([6, 4], deep, model_dir=d, n_classes=3, weight_column="w", config=quiet(d)),
              lambda d: Canned(DNN, d, dnn=our_columns(c)[1], hidden=[6, 4], classes=3, weight_feature="w"), THREE)


def test_baseline():
    both_ways(lambda d: est.BaselineClassifier(model_dir=d, config=quiet(d)), lambda d: Canned(BASELINE, d, classes=2), TWO)


class Second:
    """TensorFlow 2's Estimators, in a process of their own that lives as long as the tests."""
    process = None

    @classmethod
    def ask(cls, **what):
        if not cls.process:
            cls.process = subprocess.Popen([sys.executable, os.path.join(HERE, "estimator_second.py")], text=True,
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        print(json.dumps(what), file=cls.process.stdin, flush=True)
        said = cls.process.stdout.readline()
        assert said, f"TensorFlow 2's Estimator gave up on {what}"
        return json.loads(said)


def second(model_dir, kind, labels, optimizer, steps, evaluate=False):
    return Second.ask(dir=model_dir, kind=kind, labels=labels, optimizer=optimizer, steps=steps, evaluate=evaluate)


def same_second(ours, theirs):
    """But for areas under curves, which Keras' metrics have other sums for."""
    same_metrics(*({n: v for n, v in m.items() if not n.startswith("auc")} for m in (ours, theirs)))


def second_both_ways(make_ours, kind, labels, optimizer=None):
    """As both_ways, with tf.estimator and Keras' optimizers: slots, numbers and steps of each taken up by the other."""
    with tempfile.TemporaryDirectory() as d:
        a, b = f"{d}/tf", f"{d}/ours"
        second(a, kind, labels, optimizer, 1)
        shutil.copytree(a, b)
        for f in glob.glob(f"{b}/events*"):
            os.remove(f)
        theirs = second(a, kind, labels, optimizer, 6, True)
        o, rows = make_ours(b), {"TWO": TWO, "THREE": THREE, "REAL": REAL}[labels]
        o.train(table(FEATURES, rows, repeat=10), max_steps=6)
        same_variables(a, b)
        same_second(o.evaluate(table(FEATURES, rows)), theirs)
        second(a, kind, labels, optimizer, 8)
        second(b, kind, labels, optimizer, 8)  # TensorFlow on our checkpoint
        same_variables(a, b)
        o.close()


def test_second_wide_and_deep():
    c = Columns()
    second_both_ways(lambda d: Canned(DNN_LINEAR, d, *our_columns(c), hidden=[5, 4], classes=2, keras=True), "both", "TWO")


def test_second_wide_or_deep():
    c = Columns()
    ours = our_columns(c)
    second_both_ways(lambda d: Canned(DNN_LINEAR, d, ours[0], classes=2, keras=True), "both_wide", "TWO")
    second_both_ways(lambda d: Canned(DNN_LINEAR, d, dnn=ours[1], hidden=[5, 4], classes=2, keras=True), "both_deep",
                     "TWO")


def test_second_linear_regressor():
    c = Columns()
    second_both_ways(lambda d: Canned(LINEAR, d, our_columns(c)[0] + [c.numeric("age")], keras=True), "linear", "REAL")


def test_second_linear_adam():
    """Rows of tables under Adam, at another rate than is said here: the checkpoint's counts."""
    c, adam = Columns(), api.lib().shoal_keras_adam(0.5)
    second_both_ways(lambda d: Canned(LINEAR, d, our_columns(c)[0], optimizers=(adam, None), classes=2, keras=True),
                     "linear_two", "TWO", ("Adam", {"learning_rate": 0.01}))


def test_second_dnn_classifier():
    c = Columns()
    second_both_ways(lambda d: Canned(DNN, d, dnn=our_columns(c)[1], hidden=[6, 4], classes=3, weight_feature="w",
                                      keras=True), "dnn", "THREE")


def test_second_dnn_adam():
    c, adam = Columns(), api.lib().shoal_keras_adam(0.001)
    second_both_ways(lambda d: Canned(DNN, d, dnn=our_columns(c)[1], hidden=[6], optimizers=(None, adam), keras=True),
                     "dnn_real", "REAL", ("Adam", {}))


def test_second_momentum():
    c, sgd = Columns(), api.lib().shoal_keras_sgd(0.001, 0.5)
    second_both_ways(lambda d: Canned(DNN, d, dnn=our_columns(c)[1], hidden=[6], optimizers=(None, sgd), keras=True),
                     "dnn_real", "REAL", ("SGD", {"learning_rate": 0.001, "momentum": 0.5}))


def test_second_baseline():
    for kind, labels, classes in ("baseline", "TWO", 2), ("baseline_three", "THREE", 3), ("baseline_real", "REAL", 0):
        second_both_ways(lambda d: Canned(BASELINE, d, classes=classes, keras=True), kind, labels)


def test_second_baseline_adam():
    adam = api.lib().shoal_keras_adam(0.1)
    second_both_ways(lambda d: Canned(BASELINE, d, classes=2, optimizers=(adam, None), keras=True), "baseline", "TWO",
                     ("Adam", {"learning_rate": 0.1}))


def test_second_weights():
    """Weights alone of such a checkpoint: evaluated without Keras' names, and a warm start."""
    c = Columns()
    with tempfile.TemporaryDirectory() as d:
        theirs = second(f"{d}/a", "both", "TWO", None, 3, True)
        o = Canned(DNN_LINEAR, f"{d}/a", *our_columns(c), hidden=[5, 4], classes=2, mean_loss=True)
        same_second(o.evaluate(table(FEATURES, TWO)), theirs)
        o.close()
        o = Canned(DNN_LINEAR, f"{d}/b", *our_columns(c), hidden=[5, 4], classes=2, mean_loss=True,
                   config={"warm_start": f"{d}/a"})
        o.train(table(FEATURES, TWO, repeat=10), max_steps=2)
        o.close()
        a, b = tf.train.load_variable(f"{d}/a", "dnn/logits/kernel"), tf.train.load_variable(f"{d}/b", "dnn/logits/kernel")
        assert 0 < np.abs(a - b).max() < 0.01, (a, b)


if __name__ == "__main__":
    tap.main(globals())
