"""What examples/wide_deep.c trains, as a TensorFlow Estimator: the other side of bench/estimator.py. Its cluster and
role are TF_CONFIG's; the table is of the same size and kind, in memory."""
import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

fc = tf.feature_column
parser = argparse.ArgumentParser()
parser.add_argument("--model_dir")
parser.add_argument("--train_steps", type=int)
parser.add_argument("--batch_size", type=int, default=100)
args, _ = parser.parse_known_args()
ROWS = 20000
rng = np.random.default_rng(1)
EDUCATION, RELATION = ["school", "college", "bachelor", "master", "doctor"], ["alone", "married", "child", "other"]
table = {"age": rng.uniform(17, 77, (ROWS, 1)).astype(np.float32),
         "hours": rng.uniform(10, 60, (ROWS, 1)).astype(np.float32),
         "education": np.array(EDUCATION)[rng.integers(0, 5, (ROWS, 1))],
         "relation": np.array(RELATION)[rng.integers(0, 4, (ROWS, 1))],
         "occupation": np.array([f"job{i}" for i in range(500)])[rng.integers(0, 500, (ROWS, 1))]}
labels = (table["age"] + 20 * rng.normal(size=(ROWS, 1)) > 45).astype(np.int64)


def data():
    d = tf.compat.v1.data.Dataset.from_tensor_slices((table, labels))
    return d.batch(args.batch_size).cache().repeat().prefetch(4)


age = fc.numeric_column("age")
bucket = fc.bucketized_column(age, [18, 25, 30, 35, 40, 45, 50, 55, 60, 65])
education = fc.categorical_column_with_vocabulary_list("education", EDUCATION)
relation = fc.categorical_column_with_vocabulary_list("relation", RELATION)
occupation = fc.categorical_column_with_hash_bucket("occupation", 1000)
e = tf.compat.v1.estimator.DNNLinearCombinedClassifier(
    linear_feature_columns=[bucket, education, relation, occupation, fc.crossed_column([bucket, relation], 1000)],
    dnn_feature_columns=[age, fc.numeric_column("hours"), fc.indicator_column(education), fc.indicator_column(relation),
                         fc.embedding_column(occupation, 8)],
    dnn_hidden_units=[64, 32], config=tf.estimator.RunConfig(model_dir=args.model_dir, save_checkpoints_secs=600))
tf.compat.v1.estimator.train_and_evaluate(
    e, tf.estimator.TrainSpec(data, max_steps=args.train_steps), tf.estimator.EvalSpec(data, steps=1))
