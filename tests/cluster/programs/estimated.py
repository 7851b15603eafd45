"""tf.estimator.train_and_evaluate from TF_CONFIG: a canned classifier, or a model function of one's own."""
import json
import os
import sys

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
LOG_DIR, KIND = sys.argv[1:]
ROLE = json.loads(os.environ["TF_CONFIG"])["task"]["type"]


def data(n, seed):
    x = np.random.RandomState(seed).rand(n, 4).astype(np.float32)
    return {"x": x, "word": np.array(["low", "high"])[(x[:, 0] > 0.5).astype(int)]}, (x.sum(1) > 2).astype(np.int32)


def train_input():
    return tf.data.Dataset.from_tensor_slices(data(512, 0)).shuffle(512, seed=1).repeat().batch(32)


def eval_input():
    return tf.data.Dataset.from_tensor_slices(data(256, 1)).batch(64)


def model(features, labels, mode, params):
    columns = [tf.feature_column.numeric_column("x", shape=[4])]
    hidden = tf.layers.dense(tf.feature_column.input_layer(features, columns), params["units"], tf.nn.relu)
    logits = tf.layers.dense(hidden, 2)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        found = {"accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, 1))}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=found)
    op = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=op)


def main():
    config = tf.estimator.RunConfig(LOG_DIR, save_checkpoints_steps=50, keep_checkpoint_max=20, tf_random_seed=1,
                                    log_step_count_steps=50)
    columns = [tf.feature_column.numeric_column("x", shape=[4]),
               tf.feature_column.embedding_column(
                   tf.feature_column.categorical_column_with_vocabulary_list("word", ["low", "high"]), 2)]
    estimator = (tf.estimator.DNNClassifier([8], columns, optimizer="Adam", config=config) if KIND == "canned" else
                 tf.estimator.Estimator(model, config=config, params={"units": 8}))
    tf.estimator.train_and_evaluate(estimator, tf.estimator.TrainSpec(train_input, max_steps=200),
                                    tf.estimator.EvalSpec(eval_input, steps=None, start_delay_secs=0, throttle_secs=0))
    if ROLE == "evaluator":
        assert estimator.evaluate(eval_input)["accuracy"] > 0.6
    print("done")


if __name__ == "__main__":
    main()
