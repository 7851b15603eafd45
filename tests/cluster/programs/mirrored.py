"""MultiWorkerMirroredStrategy in graph mode, from TF_CONFIG: a loop of one's own in a MonitoredTrainingSession, or an
Estimator. Every worker must find the weights that one process finds with the joined batches."""
import json
import os
import sys

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
LOG_DIR, KIND = sys.argv[1:]
CONFIG = json.loads(os.environ["TF_CONFIG"])
TASK, WORKERS = CONFIG["task"], len(CONFIG["cluster"]["worker"])
STEPS, BATCH, RATE = 30, 8, 0.05
X = np.random.RandomState(1).rand(64, 8).astype(np.float32)
Y = X.dot(np.arange(8, dtype=np.float32)[:, None])


def batches(worker):
    return tf.data.Dataset.from_tensor_slices((X, Y)).shard(WORKERS, worker).repeat().batch(BATCH)


def expected(steps):
    """Gradients of the workers, each of the mean over its batch, are summed."""
    w = np.zeros([8, 1], np.float32)
    for step in range(steps):
        total = np.zeros_like(w)
        for worker in range(WORKERS):
            x, y = X[worker::WORKERS], Y[worker::WORKERS]
            rows = np.arange(step * BATCH, (step + 1) * BATCH) % len(x)
            total += 2 * x[rows].T.dot(x[rows].dot(w) - y[rows]) / BATCH
        w -= RATE * total
    return w


def check(step, w, steps):
    assert step == steps, step
    np.testing.assert_allclose(w, expected(steps), rtol=2e-4)


def loop(strategy):
    config = strategy.update_config_proto(tf.ConfigProto())
    config.experimental.collective_group_leader = "/job:worker/replica:0/task:1"
    server = tf.train.Server(tf.train.ClusterSpec(CONFIG["cluster"]), job_name="worker", task_index=TASK["index"],
                             config=config)
    with tf.Graph().as_default(), strategy.scope():
        iterator = strategy.make_input_fn_iterator(lambda context: batches(context.input_pipeline_id))
        start = iterator.initialize()
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", [8, 1], initializer=tf.zeros_initializer())
        optimizer = tf.train.GradientDescentOptimizer(RATE)

        def train(inputs):
            loss = tf.reduce_mean(tf.square(tf.matmul(inputs[0], w) - inputs[1]))
            with tf.control_dependencies([optimizer.minimize(loss, step)]):
                return tf.identity(loss)
        losses = strategy.run(train, args=(iterator.get_next(),))
        loss = strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

        class Begin(tf.train.SessionRunHook):
            def after_create_session(self, session, coord):
                session.run(start)
        # Each worker has its own copy of every variable, so each is a chief; only one of them may write files.
        with tf.train.MonitoredTrainingSession(server.target, is_chief=True, config=config, hooks=[Begin()]) as session:
            found = [session.run(loss) for _ in range(STEPS)]
            assert found[-1] < found[0] / 10, found
            check(*session.run([step, w]), STEPS)


class Last(tf.train.SessionRunHook):
    def end(self, session):
        step, w = session.run([tf.train.get_global_step(), tf.global_variables("w")[0]])
        assert step == STEPS and np.isfinite(w).all() and w.ravel()[7] > 1, (step, w)


def model(features, labels, mode):
    w = tf.get_variable("w", [8, 1], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(features, w) - labels))
    op = tf.train.GradientDescentOptimizer(RATE).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=op)


def estimate(strategy):
    config = tf.estimator.RunConfig(LOG_DIR + str(TASK["index"]), train_distribute=strategy, save_summary_steps=None)
    data = lambda: batches(0)
    tf.estimator.train_and_evaluate(tf.estimator.Estimator(model, config=config),
                                    tf.estimator.TrainSpec(data, max_steps=STEPS, hooks=[Last()]),
                                    tf.estimator.EvalSpec(data, steps=1))


(loop if KIND == "loop" else estimate)(tf.distribute.experimental.MultiWorkerMirroredStrategy())
print("done")
