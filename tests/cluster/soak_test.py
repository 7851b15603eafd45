"""Many steps and many sessions on one cluster: the servers' memory, threads and open files stay flat.

A short round in `make test`; `make soak` runs 10,000 steps and 1,000 sessions. The first fifth of each soak is not counted:
caches fill then, and plans are made.
"""
# needs: tensorflow
# long on the soft device; in short: 20 sessions with faults
import os
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf

from cluster import PATIENCE, Cluster, gave_up, report

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
LONG = os.environ.get("SHOAL_SOAK") == "long"
STEPS, SESSIONS, FAULTS = (10000, 1000, 200) if LONG else (600, 80, 20)
# Seen: 2 MB, 2 threads; what every session or fault left behind would be several times as much as this.
GROWTH_MB, GROWTH_COUNT = 12, 10


def measure(task):
    """(resident MB, threads, open files) of a server."""
    pid = task.process.pid
    with open(f"/proc/{pid}/status") as f:
        status = dict(line.split(":", 1) for line in f)
    return (int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), len(os.listdir(f"/proc/{pid}/fd")))


def flat(before, after):
    return after[0] - before[0] < GROWTH_MB and max(after[1] - before[1], after[2] - before[2]) <= GROWTH_COUNT


def soak(cluster, n, one):
    """Calls one(i) for i < n; every server is measured after a fifth of them and at the end."""
    start, warm = time.time(), None
    for i in range(n):
        one(i)
        if i == n // 5:
            warm = {k: measure(t) for k, t in cluster.tasks.items()}
    for k, t in cluster.tasks.items():
        before, after = warm[k], measure(t)
        end = time.time() + PATIENCE  # what is done after an answer takes a moment, or more where others want the cores
        while not flat(before, after) and time.time() < end:
            time.sleep(0.2)
            after = measure(t)
        print(f"# {k[0]}:{k[1]}: {before[0]:.1f} -> {after[0]:.1f} MB, {before[1]} -> {after[1]} threads, "
              f"{before[2]} -> {after[2]} files", flush=True)
        assert flat(before, after), f"{k} grew"
    print(f"# {n} in {time.time() - start:.1f} s", flush=True)


def model(cluster):
    """Training as it is between graphs: variables on ps, gradients on a worker; a queue, strings and a loop besides."""
    setter = tf.train.replica_device_setter(worker_device="/job:worker/task:1", cluster=tf.train.ClusterSpec(cluster.lists()))
    with tf.device(setter):
        x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.float32, [None, 1])
        h = tf.layers.dense(x, 16, tf.nn.relu)
        loss = tf.reduce_mean(tf.square(tf.layers.dense(h, 1) - y))
        train = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=tf.train.get_or_create_global_step())
    with tf.device("/job:ps/task:0"):
        q = tf.FIFOQueue(4, [tf.string], shapes=[[]], shared_name="words")
        put = q.enqueue(tf.strings.as_string(loss))
        with tf.control_dependencies([put]):
            got = q.dequeue()
    with tf.device("/job:worker/task:0"):
        looped = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 0.5), [0, loss])[1]
        text = tf.strings.join([got, "!"])
    return x, y, loss, train, looped, text


def feeds(x, y, i):
    n = 4 + i % 7  # shapes that differ from step to step
    return {x: np.full((n, 8), i % 5, np.float32), y: np.ones((n, 1), np.float32)}


def steps():
    with Cluster(ps=["shoal"], worker=["shoal", "shoal"]) as c, tf.Graph().as_default():
        x, y, loss, train, looped, text = model(c)
        init = tf.global_variables_initializer()
        with tf.Session(c.target("worker", 0)) as s:
            s.run(init)

            def one(i):
                options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE) if i % 50 == 0 else None
                _, a, b, t = s.run([train, loss, looped, text], feeds(x, y, i), options=options,
                                   run_metadata=tf.RunMetadata() if options else None)
                assert abs(b - a / 8) < 1e-3 * (1 + abs(a)) and t.endswith(b"!"), (a, b, t)
            soak(c, STEPS, one)


def sessions():
    """Opened, used, extended, closed; every other master in turn, states isolated and shared."""
    with Cluster(ps=["shoal"], worker=["shoal", "shoal"]) as c:
        graphs = []
        for _ in range(2):
            with tf.Graph().as_default() as g:
                graphs.append((g, model(c), tf.global_variables_initializer()))

        def one(i):
            g, (x, y, loss, train, _, _), init = graphs[i % 2]
            config = tf.ConfigProto(isolate_session_state=i % 3 == 0)
            with tf.Session(c.target("worker", i % 2), graph=g, config=config) as s:
                s.run(init)
                for k in range(2):
                    s.run([train, loss], feeds(x, y, k))
        soak(c, SESSIONS, one)


def faults():
    """Steps that fail, that are cut short, that are abandoned with their session."""
    with Cluster(ps=["shoal"], worker=["shoal", "shoal"]) as c, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            never = tf.FIFOQueue(1, [tf.float32], shapes=[[]], shared_name="empty").dequeue()
            n = tf.placeholder(tf.int32, [])
            wrong = tf.reshape(tf.zeros([n]), [3])
        with tf.device("/job:worker/task:1"):
            late, bad = never + 1.0, wrong + 1.0

        def one(i):
            s = tf.Session(c.target("worker", 0))
            for fetch, kind in ((late, tf.errors.DeadlineExceededError), (bad, tf.errors.InvalidArgumentError)):
                try:
                    s.run(fetch, {n: 4}, options=tf.RunOptions(timeout_in_ms=40))
                except kind:
                    continue
                except tf.errors.OpError as e:
                    assert gave_up(e), e  # a slow machine
                    continue
                raise AssertionError("no error")
            if i % 2:
                t = threading.Thread(target=lambda: s.run(late), daemon=True)
                t.run = lambda run=t.run: swallow(run)
                t.start()
                time.sleep(0.02)
            s.close()
        soak(c, FAULTS, one)


def swallow(fn):
    try:
        fn()
    except (tf.errors.OpError, RuntimeError):
        pass


TESTS = [(f"{n} {name}", fn) for n, name, fn in ((STEPS, "steps", steps), (SESSIONS, "sessions", sessions),
                                                 (FAULTS, "sessions with faults", faults))]

if __name__ == "__main__":
    sys.exit(report(TESTS))
