"""Steps under TensorFlow's master whose model is on the device of a Shoal worker: what is fed comes by the rendezvous, and
such a step is captured all the same (runtime/gathered.h). The devices are soft ones (src/device/soft)."""
# needs: tensorflow
# not on the soft device: it has one anyway
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["SHOAL_SOFT_GPUS"] = "1"
os.environ["SHOAL_SOFT_QUEUES"] = "1"
os.environ["SHOAL_LOG"] = "debug"
import numpy as np
import tensorflow.compat.v1 as tf

from cluster import Cluster, report

tf.disable_v2_behavior()


def turn(target, device, steps=20):
    """What is fed, kept in a variable of the worker and read from it."""
    with tf.Graph().as_default():
        x, y = tf.placeholder(tf.float32, [3, 4]), tf.placeholder(tf.float32, [])
        with tf.device(device):
            held = tf.Variable(np.zeros([4, 3], "f"), use_resource=True)
            with tf.control_dependencies([held.assign(tf.reshape(x, [4, 3])), tf.identity(y)]):
                out = tf.squeeze(tf.expand_dims(held.read_value(), 0), 0)
        with tf.Session(target) as s:
            s.run(tf.global_variables_initializer())
            for k in range(steps):
                fed = np.arange(k, k + 12, dtype="f").reshape(3, 4)
                np.testing.assert_array_equal(s.run(out, {x: fed, y: k}), fed.reshape(4, 3))


def log_of(c, *task):
    with open(c.tasks[task].log.name, encoding="utf-8", errors="replace") as f:
        return [line for line in f if "captured" in line]


def under_tensorflows_master():
    """Of ops that a TensorFlow without cards places on one: others its master does not."""
    with Cluster(worker=["tf", "shoal"]) as c:
        turn(c.target("worker"), "/job:worker/task:1/device:GPU:0")
        log = log_of(c, "worker", 1)
    assert any("was captured" in line for line in log), c.tasks["worker", 1].text()


if __name__ == "__main__":
    sys.exit(report([("a step on a worker's device", under_tensorflows_master)]))
