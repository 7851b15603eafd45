"""A worker, or a parameter server, of bench/training.py: the models of train_worker.c as a TensorFlow program on
TensorFlow's own servers. Takes the same flags and the same commands."""
import argparse
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)


def dense(x, units, name, relu=True):
    w = tf.get_variable(name + "/kernel", [int(x.shape[1]), units])
    b = tf.get_variable(name + "/bias", [units], initializer=tf.zeros_initializer())
    y = tf.nn.bias_add(tf.matmul(x, w), b)
    return tf.nn.relu(y) if relu else y


def conv(x, filters, name):
    w = tf.get_variable(name + "/kernel", [5, 5, int(x.shape[3]), filters])
    b = tf.get_variable(name + "/bias", [filters], initializer=tf.zeros_initializer())
    y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME"), b))
    return tf.nn.max_pool(y, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")


def build(name, batch):
    """The loss, and what is fed."""
    rng = np.random.RandomState(1)
    if name == "embedding":
        table = tf.get_variable("table", [1000000, 64], initializer=tf.random_uniform_initializer(-1, 1))
        ids = tf.placeholder(tf.int64, [batch])
        return tf.reduce_mean(tf.square(tf.nn.embedding_lookup(table, ids))), {ids: rng.randint(0, 1000000, batch)}
    if name == "variables":
        small = [tf.get_variable(f"small_{i}", [1024], initializer=tf.ones_initializer()) for i in range(200)]
        return tf.add_n([tf.reduce_mean(tf.square(v)) for v in small]), {}
    y = tf.placeholder(tf.int64, [batch])
    if name == "cnn":
        x = tf.placeholder(tf.float32, [batch, 28, 28, 1])
        h = dense(tf.reshape(conv(conv(x, 32, "conv1"), 64, "conv2"), [batch, 7 * 7 * 64]), 1024, "fc")
    else:
        x = tf.placeholder(tf.float32, [batch, 784])
        h = dense(x, 2048 if name == "mlp_big" else 100, "hidden")
        if name == "mlp_big":
            h = dense(h, 2048, "hidden2")
    logits = dense(h, 10, "logits", relu=False)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    return loss, {x: rng.rand(*[int(d) for d in x.shape]).astype(np.float32), y: rng.randint(0, 10, batch)}


def main():
    parser = argparse.ArgumentParser()
    for flag in ("ps_hosts", "worker_hosts", "job_name"):
        parser.add_argument("--" + flag)
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--mode", default="async")
    for flag, default in (("task_index", 0), ("batch_size", 100), ("threads", 0)):
        parser.add_argument("--" + flag, type=int, default=default)
    args = parser.parse_args()
    cluster = tf.train.ClusterSpec({"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")})
    config = tf.ConfigProto(inter_op_parallelism_threads=args.threads, intra_op_parallelism_threads=args.threads,
                            device_filters=["/job:ps", f"/job:worker/task:{args.task_index}"])
    server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index, config=config)
    if args.job_name == "ps":
        server.join()
    worker = f"/job:worker/task:{args.task_index}"
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        loss, feeds = build(args.model, args.batch_size)
        optimizer = tf.train.AdamOptimizer(0.001) if len(feeds) == 2 else tf.train.GradientDescentOptimizer(0.01)
        hooks = []
        if args.mode == "sync":
            n = len(args.worker_hosts.split(","))
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=n, total_num_replicas=n)
            hooks = [optimizer.make_session_run_hook(args.task_index == 0)]
        train = optimizer.minimize(loss, global_step=step)
    with tf.train.MonitoredTrainingSession(server.target, is_chief=args.task_index == 0, hooks=hooks, config=config,
                                           log_step_count_steps=None) as s:
        print("{}", flush=True)
        for line in sys.stdin:
            slowest, start = 0, time.perf_counter()
            word, n = line.split()
            i = at = 0
            while (at if word == "until" else i) < int(n):
                before = time.perf_counter()
                if word == "until":
                    _, at = s.run([train, step], feeds)
                else:
                    s.run(train, feeds)
                slowest = max(slowest, time.perf_counter() - before)
                i += 1
            took = time.perf_counter() - start
            print(json.dumps(dict(seconds=took, slowest=slowest, step=int(at))), flush=True)
        os._exit(0)  # a chief that leaves a synchronous job in order waits for the others


main()
