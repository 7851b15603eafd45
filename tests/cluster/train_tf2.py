"""A worker of TensorFlow 2's MultiWorkerMirroredStrategy that trains the model of tests/programs/strategy_trainer.c beside
programs of Shoal's, by a loop of its own, for coordination_test.py; TF_CONFIG says which worker it is.

  train_tf2.py STEPS packs|eager [KIB [FOLDER]]   gradients in a tf.function, in packs (of so many KiB); or one by one,
                                                  eagerly. FOLDER: where the first worker, a program of Shoal's, has its
                                                  checkpoints; what it has trained so far is not done again

It prints what that program does: a line for each step, with the loss of all, and a hash of the weights."""
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
import numpy as np
import tensorflow as tf

ROWS, IN, HIDDEN = 24, 5, 7
CONFIG = json.loads(os.environ["TF_CONFIG"])
TASK, TASKS = CONFIG["task"]["index"], len(CONFIG["cluster"]["worker"])
STEPS, HOW = int(sys.argv[1]), sys.argv[2]


def numbers(n, salt):
    i = np.arange(n)
    return ((i * 37 + salt * 11) % 20).astype(np.float32) / np.float32(20) - np.float32(0.5)


pack = int(sys.argv[3]) << 10 if len(sys.argv) > 3 else 0
options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=pack)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
with strategy.scope():
    shapes = [(IN, HIDDEN), (HIDDEN,), (HIDDEN, 1), (1,)]
    # The values are the first worker's; what another brings does not count.
    weights = [tf.Variable(numbers(int(np.prod(s)), salt + 1 + TASK).reshape(s)) for salt, s in enumerate(shapes)]


def change(_, grads):
    for v, g in zip(weights, grads):
        strategy.extended.update(v, lambda v, g: v.assign_sub(np.float32(0.2) * g), args=(g,))


def of_one(x, y):
    context = tf.distribute.get_replica_context()
    w1, b1, w2, b2 = weights
    with tf.GradientTape() as tape:
        out = tf.tanh(x @ w1 + b1) @ w2 + b2
        loss = tf.reduce_mean(tf.square(out - y))
        share = loss / TASKS
    mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, loss)
    grads = context.all_reduce(tf.distribute.ReduceOp.SUM, tape.gradient(share, weights))
    context.merge_call(change, args=(grads,))
    return mean


def step(x, y):
    return strategy.run(of_one, args=(x, y))


def trained():
    """How many steps the first worker goes on from; the weights are what it sends."""
    latest = tf.train.latest_checkpoint(sys.argv[4]) if len(sys.argv) > 4 else None
    return int(latest.rpartition("-")[2]) if latest else 0


if HOW == "packs":
    step = tf.function(step)
for k in range(trained(), STEPS):
    mine = slice(TASK * (ROWS // TASKS), (TASK + 1) * (ROWS // TASKS))
    x, y = numbers(ROWS * IN, 5 + k).reshape(ROWS, IN), numbers(ROWS, 100 + k).reshape(ROWS, 1)
    print(k, float(step(tf.constant(x[mine]), tf.constant(y[mine])).numpy()).hex(), flush=True)
h = 14695981039346656037
for v in weights:
    for byte in v.numpy().tobytes():
        h = (h ^ byte) * 1099511628211 % 2 ** 64
print(f"weights {h:016x}", flush=True)
