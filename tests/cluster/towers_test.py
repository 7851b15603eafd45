"""Towers: the classic in-graph program for several GPUs. Each GPU has a copy of the model and its gradients; the variables
are on the CPU, where the mean of the gradients is taken and applied. By a TensorFlow client on a server of Shoal's whose
one card is two virtual GPUs, and by a program in C. The GPUs are soft ones (src/device/soft).
"""
# needs: tensorflow
# under sanitizers: all
# not on the soft device: it has several anyway
import os
import re
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf

from cluster import SHOAL, Cluster, report

tf.disable_v2_behavior()
EXAMPLES = os.path.join(os.path.dirname(SHOAL), "examples")
STEPS, BATCH, SIDE = 5, 12, 8


def model(x, y, variables):
    """A small network with a convolution and batch normalisation, over variables that all towers share."""
    h = tf.nn.conv2d(x, variables[0], 1, "SAME")
    h = tf.nn.relu(tf.nn.fused_batch_norm(h, variables[1], variables[2])[0])
    logits = tf.reduce_mean(h, [1, 2]) @ variables[3]
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


def towers(devices):
    """The losses of a few steps are fetched from this, and what trains."""
    rng = np.random.RandomState(3)
    x = tf.placeholder(tf.float32, [BATCH, SIDE, SIDE, 3], "x")
    y = tf.placeholder(tf.int32, [BATCH], "y")
    with tf.device("/cpu:0"):
        variables = [tf.Variable(rng.randn(*shape).astype("f") * 0.3 + more, use_resource=True)
                     for shape, more in (((3, 3, 3, 8), 0), ((8,), 1), ((8,), 0), ((8, 5), 0))]
        optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
        xs, ys = tf.split(x, len(devices)), tf.split(y, len(devices))
    losses, grads = [], []
    for device, part, labels in zip(devices, xs, ys):
        with tf.device(device):
            losses.append(model(part, labels, variables))
            grads.append(tf.gradients(losses[-1], variables))
    with tf.device("/cpu:0"):
        mean = [tf.add_n(list(g)) / len(devices) for g in zip(*grads)]
        return x, y, tf.add_n(losses) / len(devices), optimizer.apply_gradients(zip(mean, variables))


def train(target, devices, ran=None):
    """The losses; ran: gets the names of the devices that anything ran on, with how much."""
    rng = np.random.RandomState(4)
    fed = [rng.rand(BATCH, SIDE, SIDE, 3).astype("f"), rng.randint(0, 5, BATCH)]
    with tf.Graph().as_default():
        x, y, loss, step = towers(devices)
        with tf.Session(target, config=tf.ConfigProto(allow_soft_placement=True)) as s:
            s.run(tf.global_variables_initializer())
            losses = [s.run([loss, step], {x: fed[0], y: fed[1]})[0] for _ in range(STEPS)]
            if ran is not None:
                meta = tf.RunMetadata()
                s.run(step, {x: fed[0], y: fed[1]}, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), meta)
                for d in meta.step_stats.dev_stats:
                    ran[d.device.split("/")[-1]] = " ".join(n.node_name for n in d.node_stats)
    return losses


def tensorflow_client():
    want = train("", ["/cpu:0", "/cpu:0"])
    os.environ["SHOAL_SOFT_GPUS"] = "1"
    try:
        with Cluster(flags=["--virtual_devices=64+64"], worker=["shoal"]) as c:
            ran = {}
            have = train(c.target("worker"), ["/gpu:0", "/gpu:1"], ran)
    finally:
        del os.environ["SHOAL_SOFT_GPUS"]
    assert np.allclose(want, have, rtol=1e-4), (want, have)
    assert want[-1] < want[0], want
    for gpu in ("device:GPU:0", "device:GPU:1"):
        assert "Conv2DBackpropFilter" in ran[gpu] and "ResourceApplyMomentum" not in ran[gpu], ran
    assert "ResourceApplyMomentum" in ran["device:CPU:0"] and "BackpropFilter" not in ran["device:CPU:0"], ran


def c_program():
    def run(*flags, soft="0"):
        p = subprocess.run([SHOAL, "launch", "--ps=1", "--workers=1", "--", f"{EXAMPLES}/in_graph", "--train_steps=20",
                            *flags], env=dict(os.environ, SHOAL_SOFT_GPUS=soft), stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
        return p.returncode, p.stdout
    code, text = run("--copies=2")
    want = re.findall(r"test accuracy .*", text)
    assert code == 0 and want, text
    code, text = run("--copies=2", "--device=GPU", soft="2")
    assert code == 0 and re.findall(r"test accuracy .*", text) == want, (want, text)
    code, text = run("--copies=3", "--device=GPU", soft="2")
    assert code and "there is no such device" in text, text


if __name__ == "__main__":
    sys.exit(report([("a TensorFlow client, on two virtual GPUs", tensorflow_client), ("a program in C", c_program)]))
