"""Faults: a task is killed, stopped, restarted while others wait for it. Every wait ends, in time, with an error that names
the task; what has nothing to do with it goes on.
"""
# needs: tensorflow
import os
import signal
import subprocess
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster"))
import tensorflow.compat.v1 as tf

from cluster import SHOAL, Cluster, report

tf.disable_v2_behavior()
LIMIT = 10.0  # the default time-out of peers


def trio(flags=()):
    return Cluster(flags, ps=["shoal"], worker=["shoal", "shoal"])


def blocking_graph(device):
    """A dequeue that never ends, on a device; and something that does not need it."""
    with tf.device(device):
        q = tf.FIFOQueue(1, [tf.float32], shapes=[[]], shared_name="empty")
        waits = q.dequeue() + 1.0
    with tf.device("/job:worker/task:0"):
        other = tf.constant(2.0) * 3.0
    return waits, other


def fails(fn, kinds, text=None, limit=LIMIT):
    start = time.time()
    try:
        fn()
    except kinds as e:
        took = time.time() - start
        assert took < limit, f"it took {took:.1f} s: {e.message}"
        for t in [text] if isinstance(text, str) else text or []:
            assert t in e.message, e.message
        return e
    raise AssertionError("no error")


def while_waiting(cluster, job, index, sig, kinds, text):
    """A step waits for a task when the signal comes."""
    with tf.Graph().as_default():
        waits, other = blocking_graph(f"/job:{job}/task:{index}")
        with tf.Session(cluster.target("worker", 0)) as s:
            threading.Timer(1.0, lambda: cluster.tasks[job, index].kill(sig)).start()
            fails(lambda: s.run(waits), kinds, text, LIMIT + 1)
            # The task that was hit is gone; another step of the same session that does not need it works.
            assert s.run(other) == 6.0


def kill_ps_in_step():
    with trio() as c:
        while_waiting(c, "ps", 0, signal.SIGKILL, tf.errors.UnavailableError, ["/job:ps/replica:0/task:0", "step"])


def stop_ps_in_step():
    with trio() as c:
        while_waiting(c, "ps", 0, signal.SIGSTOP, tf.errors.UnavailableError,
                      ["Task /job:ps/replica:0/task:0 at 127.0.0.1:", "does not answer"])


def stop_and_continue():
    """A task stopped for less than the time-out does no harm."""
    with trio() as c, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            v = tf.constant(1.0) + tf.placeholder(tf.float32, [], name="x")
        with tf.Session(c.target("worker", 0)) as s:
            assert s.run(v, {"x:0": 1.0}) == 2.0
            c.tasks["ps", 0].kill(signal.SIGSTOP)
            threading.Timer(3.0, lambda: c.tasks["ps", 0].kill(signal.SIGCONT)).start()
            start = time.time()
            assert s.run(v, {"x:0": 2.0}) == 3.0
            took = time.time() - start
            assert 2.0 < took < 6.0, took


def sender_dies():
    """A worker waits for a tensor of a task that dies: the error comes by way of the tensor's receiver."""
    with trio() as c, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            q = tf.FIFOQueue(1, [tf.float32], shapes=[[]], shared_name="empty")
            value = q.dequeue()
        with tf.device("/job:worker/task:1"):
            out = value * 2.0
        with tf.Session(c.target("worker", 0)) as s:
            threading.Timer(1.0, c.tasks["ps", 0].kill).start()
            fails(lambda: s.run(out), tf.errors.UnavailableError, "/job:ps/replica:0/task:0", 4)


def restarted_ps():
    """After a restart an old session says so; a new one works."""
    with trio() as c, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", [], initializer=tf.ones_initializer(), use_resource=False)
        with tf.Session(c.target("worker", 0)) as s:
            s.run(tf.global_variables_initializer())
            assert s.run(v) == 1.0
            ps = c.tasks["ps", 0]
            ps.kill()
            ps.process.wait()
            ps.log.truncate(0)
            ps.start().wait()
            time.sleep(1.2)  # the channel's longest pause before it connects again
            for _ in range(3):
                fails(lambda: s.run(v), (tf.errors.AbortedError, tf.errors.UnavailableError), None, 4)
            e = fails(lambda: s.run(v), tf.errors.AbortedError, "/job:ps", 4)
            assert "not found" in e.message or "incarnation" in e.message, e.message
        with tf.Session(c.target("worker", 0)) as s:
            fails(lambda: s.run(v), tf.errors.FailedPreconditionError, "uninitialized")
            s.run(tf.global_variables_initializer())
            assert s.run(v) == 1.0


def master_dies():
    with trio() as c, tf.Graph().as_default():
        waits, _ = blocking_graph("/job:ps/task:0")
        s = tf.Session(c.target("worker", 0), config=tf.ConfigProto(operation_timeout_in_ms=5000))
        threading.Timer(1.0, c.tasks["worker", 0].kill).start()
        # TensorFlow's client waits for a master to come back as long as its own time-out.
        fails(lambda: s.run(waits), (tf.errors.UnavailableError, tf.errors.DeadlineExceededError), None, 7)
        # The ps is rid of the step: its queue works for a client of another master.
        filters = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:1"])
        with tf.Graph().as_default(), tf.Session(c.target("worker", 1), config=filters) as s2, tf.device("/job:ps/task:0"):
            assert s2.run(tf.constant(3.0) + 1.0) == 4.0


def starts_in_any_order():
    """A session waits for tasks that are not up, says for whom, and works when they come."""
    c = trio()
    try:
        c.tasks["worker", 0].start().wait()
        result = []

        def client():
            with tf.Graph().as_default():
                with tf.device("/job:ps/task:0"):
                    out = tf.constant(1.0) + 1.0
                with tf.Session(c.target("worker", 0)) as s:
                    result.append(s.run(out))
        t = threading.Thread(daemon=True, target=client)
        t.start()
        time.sleep(7)
        assert not result and "/job:ps/replica:0/task:0" in c.tasks["worker", 0].text(), c.tasks["worker", 0].text()
        for job, i in (("worker", 1), ("ps", 0)):
            c.tasks[job, i].start().wait()
        t.join(10)
        assert result == [2.0], result
    finally:
        c.__exit__()


def startup_times_out():
    c = trio(["--startup_timeout=2"])
    try:
        c.tasks["worker", 0].start().wait()
        with tf.Graph().as_default():
            s = tf.Session(c.target("worker", 0))
            fails(lambda: s.run(tf.constant(1.0)), tf.errors.DeadlineExceededError,
                  ["/job:ps/replica:0/task:0", c.spec["ps"]["0"], "/job:worker/replica:0/task:1"], 5)
    finally:
        c.__exit__()


def client_deadline():
    """A step cut short by the client's deadline leaves the session usable."""
    with trio() as c, tf.Graph().as_default():
        waits, other = blocking_graph("/job:ps/task:0")
        with tf.Session(c.target("worker", 0)) as s:
            assert s.run(other) == 6.0
            for _ in range(3):
                fails(lambda: s.run(waits, options=tf.RunOptions(timeout_in_ms=500)), tf.errors.DeadlineExceededError,
                      None, 3)
            assert s.run(other) == 6.0
        time.sleep(0.5)
        text = subprocess.run([SHOAL, "status", c.target("ps", 0)], capture_output=True, text=True, check=True).stdout
        assert "step" not in text.replace("compiled steps", ""), text


def status_tells():
    """`shoal status` and SIGUSR1 tell what a pending step waits for."""
    with trio() as c, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            value = tf.FIFOQueue(1, [tf.float32], shapes=[[]], shared_name="empty").dequeue()
        with tf.device("/job:worker/task:1"):
            out = value * 2.0
        s = tf.Session(c.target("worker", 0))
        t = threading.Thread(daemon=True, target=lambda: fails(lambda: s.run(out), tf.errors.OpError, None, 60))
        t.start()
        time.sleep(1.5)
        told = subprocess.run([SHOAL, "status", c.target("worker", 0), c.target("worker", 1)], capture_output=True,
                              text=True, check=True).stdout
        assert "RecvTensor to /job:ps/replica:0/task:0" in told and "RunGraph to /job:worker/replica:0/task:1" in told, told
        c.tasks["worker", 1].kill(signal.SIGUSR1)
        end = time.time() + 10
        while "RecvTensor to /job:ps" not in c.tasks["worker", 1].text():
            assert time.time() < end, c.tasks["worker", 1].text()
            time.sleep(0.05)
        s.close()
        t.join(20)
        assert not t.is_alive()


def close_ends_steps():
    with trio() as c, tf.Graph().as_default():
        waits, _ = blocking_graph("/job:ps/task:0")
        s = tf.Session(c.target("worker", 0))
        errors = []
        t = threading.Thread(daemon=True, target=lambda: errors.append(fails(lambda: s.run(waits), tf.errors.CancelledError, None, 8)))
        t.start()
        time.sleep(1)
        s.close()
        t.join(10)
        assert errors and "Session::Close()" in errors[0].message, errors


def clean_exit():
    """SIGTERM and `shoal stop` end every task with 0, ports free at once, even with steps running."""
    c = trio()
    with c, tf.Graph().as_default():
        waits, _ = blocking_graph("/job:ps/task:0")
        s = tf.Session(c.target("worker", 0), config=tf.ConfigProto(operation_timeout_in_ms=8000))
        t = threading.Thread(daemon=True, target=lambda: fails(lambda: s.run(waits), tf.errors.OpError, None, 30))
        t.start()
        time.sleep(1)
        start = time.time()
        c.tasks["ps", 0].kill(signal.SIGTERM)
        assert c.tasks["ps", 0].process.wait(10) == 0, c.tasks["ps", 0].text()
        t.join(10)
        subprocess.run([SHOAL, "stop", c.target("worker", 0), c.target("worker", 1)], check=True)
        for i in (0, 1):
            assert c.tasks["worker", i].process.wait(10) == 0
        assert time.time() - start < 10
        for task in c.tasks.values():
            task.log.truncate(0)
            task.start().wait(5)


TESTS = [(fn.__name__.replace("_", " "), fn) for fn in (
    kill_ps_in_step, stop_ps_in_step, stop_and_continue, sender_dies, restarted_ps, master_dies, starts_in_any_order,
    startup_times_out, client_deadline, status_tells, close_ends_steps, clean_exit)]

if __name__ == "__main__":
    sys.exit(report(TESTS))
