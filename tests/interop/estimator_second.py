"""TensorFlow 2's canned Estimators, in a process of their own, since tests beside it have v2's behaviour off. A line of
JSON asks: {"dir", "kind", "labels", "optimizer", "steps", "evaluate"}; a line of JSON answers with what was found."""
import json
import sys

import tensorflow as tf

import estimator_table
from estimator_table import FEATURES, JOBS

fc, est = tf.feature_column, tf.estimator


def columns():
    age, job = fc.numeric_column("age"), fc.categorical_column_with_vocabulary_list("job", JOBS)
    b = fc.bucketized_column(age, [30, 40, 50])
    return age, [job, b, fc.crossed_column([b, "job"], 20)], [age, fc.embedding_column(job, 3), fc.indicator_column(job)]


def make(kind, **given):
    age, wide, deep = columns()
    if kind == "both":
        return est.DNNLinearCombinedClassifier(linear_feature_columns=wide, dnn_feature_columns=deep, dnn_hidden_units=[5, 4],
                                               **given)
    if kind == "both_wide":
        return est.DNNLinearCombinedClassifier(linear_feature_columns=wide, **given)
    if kind == "both_deep":
        return est.DNNLinearCombinedClassifier(dnn_feature_columns=deep, dnn_hidden_units=[5, 4], **given)
    if kind == "linear":
        return est.LinearRegressor(wide + [age], **given)
    if kind == "linear_two":
        return est.LinearClassifier(wide, **given)
    if kind == "dnn":
        return est.DNNClassifier([6, 4], deep, n_classes=3, weight_column="w", **given)
    if kind.startswith("baseline"):
        return (est.BaselineRegressor(**given) if kind == "baseline_real" else
                est.BaselineClassifier(n_classes=3 if kind == "baseline_three" else 2, **given))
    return est.DNNRegressor([6], deep, **given)


def answer(ask):
    labels = getattr(estimator_table, ask["labels"])
    given = {"model_dir": ask["dir"], "config": est.RunConfig(save_summary_steps=1000, tf_random_seed=7)}
    if ask["optimizer"]:
        name, numbers = ask["optimizer"]
        given["optimizer"] = getattr(tf.keras.optimizers.legacy, name)(**numbers)
    t = make(ask["kind"], **given)
    # Of two features and more a baseline makes checks, which its variable's initial value, and so the start, waits for:
    # an iterator that is not initialised ends it.
    features = {"age": FEATURES["age"]} if ask["kind"].startswith("baseline") else FEATURES
    data = lambda n: lambda: tf.data.Dataset.from_tensor_slices((features, labels)).batch(4).repeat(n)
    t.train(data(10), max_steps=ask["steps"])
    return {k: float(v) for k, v in t.evaluate(data(1)).items()} if ask["evaluate"] else {}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
