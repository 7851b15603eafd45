"""Canned estimators beside tf.compat.v1.estimator: checkpoints in both directions, the same numbers after the same
steps, the same metrics and predictions."""
# needs: tensorflow
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
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


def test_linear_regressor():
    wide, _ = tf_columns()
    c = Columns()
    both_ways(lambda d: est.LinearRegressor(wide + [fc.numeric_column("age")], model_dir=d, config=quiet(d)),
              lambda d: Canned(LINEAR, d, our_columns(c)[0] + [c.numeric("age")]), REAL)


def test_dnn_classifier():
    _, deep = tf_columns()
    c = Columns()
    both_ways(lambda d: est.DNNClassifier([6, 4], deep, model_dir=d, n_classes=3, weight_column="w", config=quiet(d)),
              lambda d: Canned(DNN, d, dnn=our_columns(c)[1], hidden=[6, 4], classes=3, weight_feature="w"), THREE)


def test_baseline():
    both_ways(lambda d: est.BaselineClassifier(model_dir=d, config=quiet(d)), lambda d: Canned(BASELINE, d, classes=2), TWO)


SECOND = """
import json, sys
import tensorflow as tf
sys.path.insert(0, sys.argv[1])
from estimator_table import FEATURES, JOBS, TWO
fc = tf.feature_column
age, job = fc.numeric_column("age"), fc.categorical_column_with_vocabulary_list("job", JOBS)
b = fc.bucketized_column(age, [30, 40, 50])
t = tf.estimator.DNNLinearCombinedClassifier(
    model_dir=sys.argv[2], linear_feature_columns=[job, b, fc.crossed_column([b, "job"], 20)],
    dnn_feature_columns=[age, fc.embedding_column(job, 3), fc.indicator_column(job)], dnn_hidden_units=[5, 4])
data = lambda n: lambda: tf.data.Dataset.from_tensor_slices((FEATURES, TWO)).batch(4).repeat(n)
t.train(data(10), max_steps=3)
print(json.dumps({k: float(v) for k, v in t.evaluate(data(1)).items()}))
"""


def test_second_generation():
    """Checkpoints of TensorFlow 2's DNNLinearCombinedClassifier, in a process of its own: evaluated, and a warm start."""
    c = Columns()
    with tempfile.TemporaryDirectory() as d:
        said = subprocess.run([sys.executable, "-c", SECOND, os.path.dirname(os.path.abspath(__file__)), f"{d}/a"],
                              stdout=subprocess.PIPE, text=True, check=True).stdout
        theirs = json.loads(said.strip().split("\n")[-1])
        o = Canned(DNN_LINEAR, f"{d}/a", *our_columns(c), hidden=[5, 4], classes=2, mean_loss=True)
        mine = o.evaluate(table(FEATURES, TWO))
        for name in ("auc", "auc_precision_recall"):  # Keras' thresholds and sum are others
            del mine[name], theirs[name]
        same_metrics(mine, theirs)
        o.close()
        o = Canned(DNN_LINEAR, f"{d}/b", *our_columns(c), hidden=[5, 4], classes=2, mean_loss=True,
                   config={"warm_start": f"{d}/a"})
        o.train(table(FEATURES, TWO, repeat=10), max_steps=2)
        o.close()
        a, b = tf.train.load_variable(f"{d}/a", "dnn/logits/kernel"), tf.train.load_variable(f"{d}/b", "dnn/logits/kernel")
        assert 0 < np.abs(a - b).max() < 0.01, (a, b)


if __name__ == "__main__":
    tap.main(globals())
