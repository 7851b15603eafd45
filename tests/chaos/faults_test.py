"""Faults: a task is killed, stopped, restarted while others wait for it. Every wait ends, in time, with an error that names
the task; what has nothing to do with it goes on.
"""
# needs: tensorflow
# long on the soft device; in short: sender dies
import os
import signal
import subprocess
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster"))
import tensorflow.compat.v1 as tf

from cluster import PATIENCE, SHOAL, SLACK, Cluster, gave_up, report, until, until_step

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


def fails(fn, kinds, text=None, limit=LIMIT, since=None):
    """Within the limit, from now on or from the moment that `since` has by then."""
    start = time.time()
    try:
        fn()
    except kinds as e:
        took = time.time() - (since[0] if since else start)
        assert took < limit + SLACK, f"it took {took:.1f} s: {e.message}"
        for t in [text] if isinstance(text, str) else text or []:
            assert t in e.message, e.message
        return e
    raise AssertionError("no error")


def once_waiting(target, harm):
    """Does harm when a step is under way at a server; the list gets the time of it."""
    when = []

    def wait():
        until_step(target)
        time.sleep(0.2)  # the other partitions of the step
        when.append(time.time())
        harm()
    threading.Thread(target=wait, daemon=True).start()
    return when


def while_waiting(cluster, job, index, sig, kinds, text):
    """A step waits for a task when the signal comes."""
    with tf.Graph().as_default():
        waits, other = blocking_graph(f"/job:{job}/task:{index}")
        with tf.Session(cluster.target("worker", 0)) as s:
            when = once_waiting(cluster.target(job, index), lambda: cluster.tasks[job, index].kill(sig))
            fails(lambda: s.run(waits), kinds, text, since=when)
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
    with trio(["--peer_timeout=30"]) as c, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            v = tf.constant(1.0) + tf.placeholder(tf.float32, [], name="x")
        with tf.Session(c.target("worker", 0)) as s:
            assert s.run(v, {"x:0": 1.0}) == 2.0
            start = time.time()
            c.tasks["ps", 0].kill(signal.SIGSTOP)
            threading.Timer(3.0, lambda: c.tasks["ps", 0].kill(signal.SIGCONT)).start()
            assert s.run(v, {"x:0": 2.0}) == 3.0
            assert time.time() - start > 2.0, "it was not stopped"


def sender_dies():
    """A worker waits for a tensor of a task that dies: the error comes by way of the tensor's receiver."""
    with trio() as c, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            q = tf.FIFOQueue(1, [tf.float32], shapes=[[]], shared_name="empty")
            value = q.dequeue()
        with tf.device("/job:worker/task:1"):
            out = value * 2.0
        with tf.Session(c.target("worker", 0)) as s:
            when = once_waiting(c.target("ps"), c.tasks["ps", 0].kill)
            fails(lambda: s.run(out), tf.errors.UnavailableError, "/job:ps/replica:0/task:0", 4, when)


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

            def told():  # UNAVAILABLE until the channel has connected again
                e = fails(lambda: s.run(v), (tf.errors.AbortedError, tf.errors.UnavailableError), "/job:ps", 4)
                return e if isinstance(e, tf.errors.AbortedError) else None
            for _ in range(2):
                e = until(told)
            assert "not found" in e.message or "incarnation" in e.message, e.message
        with tf.Session(c.target("worker", 0)) as s:
            fails(lambda: s.run(v), tf.errors.FailedPreconditionError, "uninitialized")
            s.run(tf.global_variables_initializer())
            assert s.run(v) == 1.0


def master_dies():
    with trio() as c, tf.Graph().as_default():
        waits, _ = blocking_graph("/job:ps/task:0")
        s = tf.Session(c.target("worker", 0), config=tf.ConfigProto(operation_timeout_in_ms=8000))
        once_waiting(c.target("ps"), c.tasks["worker", 0].kill)
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
        until(lambda: "/job:ps/replica:0/task:0" in c.tasks["worker", 0].text(), what=c.tasks["worker", 0].text)
        assert not result
        for job, i in (("worker", 1), ("ps", 0)):
            c.tasks[job, i].start().wait()
        t.join(PATIENCE)
        assert result == [2.0], result
    finally:
        c.__exit__()


def startup_times_out():
    c = trio(["--startup_timeout=8"])
    try:
        c.tasks["worker", 0].start().wait()
        with tf.Graph().as_default():
            s = tf.Session(c.target("worker", 0), config=tf.ConfigProto(operation_timeout_in_ms=120000))
            fails(lambda: s.run(tf.constant(1.0)), tf.errors.DeadlineExceededError,
                  ["/job:ps/replica:0/task:0", c.spec["ps"]["0"], "/job:worker/replica:0/task:1"], 8)
    finally:
        c.__exit__()


def client_deadline():
    """A step cut short by the client's deadline leaves the session usable."""
    with trio() as c, tf.Graph().as_default():
        waits, other = blocking_graph("/job:ps/task:0")
        with tf.Session(c.target("worker", 0)) as s:
            assert s.run(other) == 6.0
            for _ in range(3):
                e = fails(lambda: s.run(waits, options=tf.RunOptions(timeout_in_ms=500)), tf.errors.OpError, None, 3)
                assert gave_up(e), e
            assert s.run(other) == 6.0

        def text():
            return subprocess.run([SHOAL, "status", c.target("ps")], capture_output=True, text=True, check=True,
                                  timeout=PATIENCE).stdout
        until(lambda: "step" not in text().replace("compiled steps", ""), what=text)


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
        until_step(c.target("worker", 1), "RecvTensor to /job:ps/replica:0/task:0")
        until_step(c.target("worker", 0), "RunGraph to /job:worker/replica:0/task:1")
        c.tasks["worker", 1].kill(signal.SIGUSR1)
        until(lambda: "RecvTensor to /job:ps" in c.tasks["worker", 1].text(), what=c.tasks["worker", 1].text)
        s.close()
        t.join(PATIENCE)
        assert not t.is_alive()


def close_ends_steps():
    with trio() as c, tf.Graph().as_default():
        waits, _ = blocking_graph("/job:ps/task:0")
        s = tf.Session(c.target("worker", 0))
        errors = []
        t = threading.Thread(daemon=True, target=lambda: errors.append(fails(lambda: s.run(waits), tf.errors.CancelledError, None, 60)))
        t.start()
        until_step(c.target("ps"))
        s.close()
        t.join(PATIENCE)
        assert errors and "Session::Close()" in errors[0].message, errors


def clean_exit():
    """SIGTERM and `shoal stop` end every task with 0, ports free at once, even with steps running."""
    c = trio()
    with c, tf.Graph().as_default():
        waits, _ = blocking_graph("/job:ps/task:0")
        s = tf.Session(c.target("worker", 0), config=tf.ConfigProto(operation_timeout_in_ms=10000))
        t = threading.Thread(daemon=True, target=lambda: fails(lambda: s.run(waits), tf.errors.OpError, None, 60))
        t.start()
        until_step(c.target("ps"))
        c.tasks["ps", 0].kill(signal.SIGTERM)
        assert c.tasks["ps", 0].process.wait(PATIENCE) == 0, c.tasks["ps", 0].text()
        t.join(PATIENCE)
        subprocess.run([SHOAL, "stop", c.target("worker", 0), c.target("worker", 1)], check=True)
        for i in (0, 1):
            assert c.tasks["worker", i].process.wait(PATIENCE) == 0
        for task in c.tasks.values():
            task.log.truncate(0)
            task.start().wait()


TESTS = [(fn.__name__.replace("_", " "), fn) for fn in (
    kill_ps_in_step, stop_ps_in_step, stop_and_continue, sender_dies, restarted_ps, master_dies, starts_in_any_order,
    startup_times_out, client_deadline, status_tells, close_ends_steps, clean_exit)]

if __name__ == "__main__":
    sys.exit(report(TESTS))
