"""One client drives all tasks: towers in the graph, a recurrent net in pieces on several tasks, datasets on workers."""
import argparse

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
flags = argparse.ArgumentParser()
for name in ("ps_hosts", "worker_hosts", "job_name", "log_dir"):
    flags.add_argument("--" + name, default="")
flags.add_argument("--task_index", type=int, default=0)
FLAGS = flags.parse_args()
WORKERS = FLAGS.worker_hosts.split(",")


def towers(target):
    """Each worker reads its own part of the data; the mean of the gradients is applied on ps."""
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            step = tf.train.get_or_create_global_step()
            w = tf.get_variable("w", [4, 1], initializer=tf.ones_initializer())
        grads, iterators, losses = [], [], []
        for i in range(len(WORKERS)):
            with tf.device("/job:worker/task:%d" % i):
                numbers = tf.data.Dataset.range(400).shard(len(WORKERS), i).shuffle(50, seed=i)
                numbers = numbers.map(lambda n: tf.cast([n % 7, n % 5, n % 3, 1], tf.float32) / 7.0, 2)
                iterator = numbers.repeat(2).batch(20).prefetch(2).make_initializable_iterator()
                x = iterator.get_next()
                x = tf.Print(x, [tf.shape(x)], "a batch", first_n=1)
                losses.append(tf.reduce_mean(tf.square(tf.matmul(x, w) - tf.reduce_sum(x, 1, keepdims=True) * 2.0)))
                grads.append(tf.gradients(losses[-1], w)[0])
                iterators.append(iterator.initializer)
        with tf.device("/job:ps/task:0"):
            op = tf.train.MomentumOptimizer(0.3, 0.5).apply_gradients([(tf.add_n(grads) / len(grads), w)], step)
        with tf.Session(target) as session:
            session.run(tf.global_variables_initializer())
            for _ in range(2):
                session.run(iterators)
                steps, before = 0, session.run(step)
                try:
                    while True:
                        last = session.run([losses, op])[0]
                        steps += 1
                except tf.errors.OutOfRangeError:
                    pass
                assert steps == 20 and session.run(step) == before + 20, steps
            assert max(last) < 0.1, last


def recurrent(target):
    """Embedding on ps, one layer of cells on each worker inside one loop, the loss on ps again."""
    with tf.Graph().as_default():
        tf.set_random_seed(3)
        words = tf.placeholder(tf.int32, [None, 6])
        with tf.device("/job:ps/task:0"):
            table = tf.get_variable("table", [20, 8])
            x = tf.nn.embedding_lookup(table, words)
        cells = [tf.nn.rnn_cell.DeviceWrapper(tf.nn.rnn_cell.LSTMCell(8), "/job:worker/task:%d" % i)
                 for i in range(len(WORKERS))]
        with tf.device("/job:worker/task:0"):
            outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.MultiRNNCell(cells), x, dtype=tf.float32,
                                           sequence_length=tf.fill([tf.shape(words)[0]], 5))
        with tf.device("/job:ps/task:0"):
            logits = tf.layers.dense(outputs[:, 4], 20)
            loss = tf.losses.sparse_softmax_cross_entropy(words[:, 0], logits)
        optimizer = tf.train.AdamOptimizer(0.05)
        grads = [(tf.clip_by_norm(g, 1.0), v) for g, v in optimizer.compute_gradients(loss)]
        op = optimizer.apply_gradients(grads)
        with tf.Session(target) as session:
            session.run(tf.global_variables_initializer())
            data = np.random.RandomState(0).randint(0, 20, [16, 6])
            values = [session.run([loss, op], {words: data})[0] for _ in range(40)]
            assert values[-1] < 0.5 * values[0], values


def mistakes(target):
    """What fails on another task is told with its kind, and the session goes on."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None])
        with tf.device("/job:worker/task:%d" % (len(WORKERS) - 1)):
            wrong = tf.py_func(lambda v: v * 2, [x], tf.float32)
            checked = tf.matmul(tf.reshape(x, [-1, 2]), tf.ones([2, 1]))
        with tf.Session(target) as session:
            for fetch, value, kinds in ((wrong, [1.0], (tf.errors.OpError,)),
                                        (checked, [1.0, 2.0, 3.0], (tf.errors.InvalidArgumentError,))):
                try:
                    session.run(fetch, {x: value})
                    raise AssertionError("no error")
                except kinds:
                    pass
            assert session.run(checked, {x: [1.0, 2.0]}) == [[3.0]]


def main():
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": WORKERS})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps" or FLAGS.task_index > 0:
        server.join()
        return
    towers(server.target)
    recurrent(server.target)
    mistakes(server.target)
    print("done")


if __name__ == "__main__":
    main()
