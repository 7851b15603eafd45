"""Eight client threads on one cluster: shared and own sessions, training, loops across tasks, queues, partial runs,
callables, errors, time-outs, sessions opened and closed all the while.

Nothing here is about numbers alone: under ThreadSanitizer (`make tsan`) a server that raced ends with another code.
"""
# needs: tensorflow
# under sanitizers: all
import os
import random
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf

from cluster import Cluster, gave_up, report

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
THREADS = 8
SECONDS = float(os.environ.get("SHOAL_THREADS_SECONDS", "3"))
ALONE = tf.ConfigProto(isolate_session_state=True)


def in_threads(work):
    """work(i) in eight threads for SECONDS; the first error is raised here."""
    errors, end, rounds = [], time.time() + SECONDS, [0] * THREADS

    def loop(i):
        try:
            while (time.time() < end or not rounds[i]) and not errors:  # however late it starts
                work(i)
                rounds[i] += 1
        except Exception as e:  # pylint: disable=broad-except
            errors.append(e)
    threads = [threading.Thread(target=loop, args=(i,)) for i in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(SECONDS + 240)
        assert not t.is_alive(), "a thread does not end"
    if errors:
        raise errors[0]


def training(cluster):
    """One session for all threads: asynchronous updates of the same variables, on ps, from two workers."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 4])
        with tf.device("/job:ps/task:0"):
            step = tf.train.get_or_create_global_step()
            w = tf.get_variable("w", [4, 3], initializer=tf.ones_initializer(), use_resource=False)
            b = tf.get_variable("b", [3], initializer=tf.zeros_initializer(), use_resource=True)
        ops = []
        for k in range(2):
            with tf.device("/job:worker/task:%d" % k):
                loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b))
                ops.append([loss, tf.train.MomentumOptimizer(1e-3, 0.5, name="m%d" % k).minimize(loss, step)])
        done = [0] * THREADS
        with tf.Session(cluster.target("worker", 0), config=ALONE) as s:
            s.run(tf.global_variables_initializer())

            def work(i):
                value, _ = s.run(ops[i % 2], {x: np.full([2 + i, 4], 0.5, np.float32)})
                assert np.isfinite(value)
                done[i] += 1
            in_threads(work)
            assert s.run(step) <= sum(done)  # the step itself is counted without a lock
            assert np.all(np.isfinite(s.run(w)))


def loops(cluster):
    """A loop whose body is on three tasks, and a functional one, in one session."""
    with tf.Graph().as_default():
        n = tf.placeholder(tf.int32, [])

        def body(i, a):
            with tf.device("/job:worker/task:1"):
                a = a * 2.0
            with tf.device("/job:ps/task:0"):
                return i + 1, a + 1.0
        with tf.device("/job:worker/task:0"):
            tf.disable_control_flow_v2()
            out = tf.while_loop(lambda i, a: i < n, body, [0, 1.0])[1]
            grad = tf.gradients(out, n.graph.get_tensor_by_name(out.name))[0]
            tf.enable_control_flow_v2()
            other = tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a + tf.cond(a > 3, lambda: a, lambda: 1.0)),
                                  [0, 1.0])[1]
            tf.disable_control_flow_v2()
        with tf.Session(cluster.target("worker", 0)) as s:
            def work(i):
                k = random.randrange(6)
                got, one, _ = s.run([out, grad, other], {n: k})
                assert got == 2.0 ** (k + 1) - 1 and one == 1.0, (k, got)
            in_threads(work)


def sessions(cluster):
    """Each round a session of its own, at any task, closed or left to its end; variables apart."""
    with tf.Graph().as_default() as g:
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", initializer=np.float32([1, 2]), use_resource=False)
        with tf.device("/job:worker/task:1"):
            up = tf.assign_add(v, v * 1.0)
        init = tf.global_variables_initializer()
        bad = tf.check_numerics(tf.log(v - 5.0), "as meant")
        g.finalize()

        def work(i):
            with tf.Session(cluster.target(*[("worker", 0), ("worker", 1), ("ps", 0)][i % 3]), g, ALONE) as s:
                s.run(init)
                assert list(s.run(up)) == [2, 4]
                try:
                    s.run(bad)
                    raise AssertionError("no error")
                except tf.errors.InvalidArgumentError as e:
                    assert "as meant" in e.message
                assert list(s.run(up)) == [4, 8]
        in_threads(work)


def late(error):
    if not gave_up(error):
        raise error


def queues(cluster):
    """Half fill, half empty a queue on ps; every so often a step gives up waiting."""
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            q = tf.FIFOQueue(3, [tf.int32], shapes=[[]], shared_name="threads")
            silent = tf.FIFOQueue(3, [tf.int32], shapes=[[]], shared_name="silent").dequeue()
        x = tf.placeholder(tf.int32, [])
        with tf.device("/job:worker/task:1"):
            put, get = q.enqueue(x + 1), q.dequeue() - 1
        sums = [0] * THREADS
        soon = tf.RunOptions(timeout_in_ms=100)
        with tf.Session(cluster.target("worker", 0)) as s:
            def work(i):
                try:
                    if i % 2:
                        s.run(put, {x: 7}, options=tf.RunOptions(timeout_in_ms=2000))
                        sums[i] += 7
                    else:
                        sums[i] -= s.run(get, options=tf.RunOptions(timeout_in_ms=2000))
                except tf.errors.OpError as e:
                    late(e)
                if random.random() < 0.1:
                    try:
                        s.run(silent, options=soon)
                        raise AssertionError("a value from nowhere")
                    except tf.errors.OpError as e:
                        late(e)
            in_threads(work)
            left = s.run(q.size())
            assert sum(sums) == 7 * left or left <= 3, (sums, left)


def callables(cluster):
    """Callables and partial runs of one session, while its graph grows."""
    with tf.Graph().as_default() as g:
        a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
        with tf.device("/job:worker/task:1"):
            first = a + 1.0
        with tf.device("/job:ps/task:0"):
            second = first * b
        with tf.Session(cluster.target("worker", 0)) as s:
            call = s.make_callable([second, first], [a, b])
            lock = threading.Lock()

            def work(i):
                if i == 0:
                    with lock, g.as_default():
                        new = tf.constant(float(len(g.get_operations()))) + 1.0
                    s.run(new)
                    time.sleep(0.05)
                elif i < 5:
                    assert call(1.0, float(i)) == [2.0 * i, 2.0]
                else:
                    with lock:
                        handle = s.partial_run_setup([first, second], [a, b])
                    assert s.partial_run(handle, first, {a: 2.0}) == 3.0
                    assert s.partial_run(handle, second, {b: float(i)}) == 3.0 * i
            in_threads(work)


def main():
    cluster = Cluster(ps=["shoal"], worker=["shoal", "shoal"]).__enter__()
    codes = []

    def stop():
        codes.extend(t.end() for t in cluster.tasks.values())
        said = "".join(t.text() for t in cluster.tasks.values())
        assert codes == [0, 0, 0], f"{codes}\n{said[:20000]}"
    tests = [(f.__name__, lambda f=f: f(cluster)) for f in (training, loops, sessions, queues, callables)]
    return report(tests + [("the servers end well", stop)])


if __name__ == "__main__":
    sys.exit(main())
