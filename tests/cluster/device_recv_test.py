"""Values from a device of one task to a device of another, whose memory is their own: on one host they stay in such memory
(windows), else they go by way of the host's; the numbers are the same. The devices are soft ones (src/device/soft)."""
# needs: tensorflow
# not on the soft device: it has several anyway
import os
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["SHOAL_SOFT_GPUS"] = "1"
import numpy as np
import tensorflow.compat.v1 as tf

from cluster import SHOAL, Cluster, report

tf.disable_v2_behavior()
PS, WORKER = "/job:ps/device:GPU:0", "/job:worker/device:GPU:0"
SIZES = [1, 1000, 20000, 1 << 18, 3 << 20]


def status(c):
    return subprocess.run([SHOAL, "status", c.target("worker")], stdout=subprocess.PIPE, check=True, text=True,
                          timeout=120).stdout


def exchange(c, steps=2):
    """Values of several sizes and types from the ps to the worker, and back changed."""
    rng = np.random.RandomState(1)
    given = [rng.uniform(-1, 1, n).astype("f") for n in SIZES]
    given += [rng.randint(0, 9, 50000).astype("i8"), rng.rand(300, 400).astype("f2"), np.zeros([0, 5], "f")]
    with tf.Graph().as_default():
        with tf.device(PS):
            held = [tf.Variable(x, use_resource=True) for x in given]
            marks = tf.greater(held[3], 0.0)
        with tf.device(WORKER):
            doubled = [v.read_value() + v.read_value() for v in held]
            marked = tf.logical_not(marks)
            shape = tf.shape(held[4])  # read in the host's memory
        with tf.device(PS):
            back = [tf.negative(d) for d in doubled]
            added = tf.group(*[tf.assign_add(v, d) for v, d in zip(held, doubled)])
        with tf.Session(c.target("worker")) as s:
            s.run(tf.global_variables_initializer())
            for k in range(steps):
                have, have_marked, have_shape = s.run([back, marked, shape])
                for x, y in zip(given, have):
                    np.testing.assert_array_equal(-2 * x, y)
                np.testing.assert_array_equal(have_marked, given[3] <= 0)
                assert have_shape == [SIZES[4]]
                s.run(added)
                given = [3 * x for x in given]


def by_windows():
    with Cluster(ps=["shoal"], worker=["shoal"]) as c:
        exchange(c)
        text = status(c)
        assert "windows of cards" in text, text


def by_grpc():
    with Cluster(["--fast_path=false"], ps=["shoal"], worker=["shoal"]) as c:
        exchange(c)
        assert "windows" not in status(c)


def no_room():
    """A device of 140 MB has an eighth for windows: what does not fit goes by the host."""
    os.environ["SHOAL_VIRTUAL_DEVICES"] = "140"
    try:
        with Cluster(ps=["shoal"], worker=["shoal"]) as c:
            exchange(c)
    finally:
        del os.environ["SHOAL_VIRTUAL_DEVICES"]


def branches():
    """A branch that is not taken sends nothing; one in a loop sends at each turn."""
    with Cluster(ps=["shoal"], worker=["shoal"]) as c, tf.Graph().as_default():
        with tf.device(PS):
            x = tf.Variable(np.arange(40000, dtype="f"), use_resource=True).read_value()
        yes = tf.placeholder(tf.bool, [])

        def taken():
            with tf.device(WORKER):
                return x * 2.0

        def other():
            with tf.device(WORKER):
                return x - 1.0

        chosen = tf.cond(yes, taken, other)
        with tf.Session(c.target("worker")) as s:
            s.run(tf.global_variables_initializer())
            for k in range(6):
                want = np.arange(40000, dtype="f") * 2 if k % 2 else np.arange(40000, dtype="f") - 1
                np.testing.assert_array_equal(s.run(chosen, {yes: bool(k % 2)}), want)


if __name__ == "__main__":
    sys.exit(report([("in windows", by_windows), ("by gRPC", by_grpc), ("where there is little room", no_room),
                     ("branches", branches)]))
