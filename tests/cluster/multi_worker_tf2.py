"""A worker of TensorFlow 2's MultiWorkerMirroredStrategy, for coordination_test.py; TF_CONFIG says which.

  multi_worker_tf2.py PLAN    a letter for each collective, as in tests/programs/multi_worker_member.c: r, a sum of all
                              workers' values in a tf.function; b, a variable, whose first value is the first worker's;
                              w, it waits until it is killed
  multi_worker_tf2.py exchange  a value from a program in C and one to it; then an error is reported
  multi_worker_tf2.py values  values by key: each worker tells, and waits for what the others tell
"""
import json
import os
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

N = 1003
TASK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def say(*words):
    print(*words, flush=True)


def numbers(turn):
    return np.array([(TASK + 1) * (1 + i % 7) + turn for i in range(N)], np.float32)


strategy = tf.distribute.MultiWorkerMirroredStrategy()
say("ready", strategy.num_replicas_in_sync)


@tf.function
def total(x):
    def of_one(x):
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(x))
    return strategy.run(of_one, args=(x,))


def follow(plan):
    for turn, letter in enumerate(plan):
        if letter == "w":
            signal.pause()
        if letter == "r":
            out = total(tf.constant(numbers(turn))).numpy()
        else:
            with strategy.scope():
                out = tf.Variable(numbers(turn)).numpy()
        say(turn, letter, f"{out[0]:g} {out[-1]:g}")


def values():
    workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
    context.context().set_config_key_value(f"/told//by/{TASK}", f"value {TASK}")
    for other in range(1, workers):
        say(other, context.context().get_config_key_value(f"told/by/{other}"))
    try:
        context.context().set_config_key_value(f"told/by/{TASK}", "another")
    except tf.errors.AlreadyExistsError as e:
        say("exists", "told/by" in e.message)
    try:
        context.context().get_config_key_value("nobody/tells", 100)
    except tf.errors.DeadlineExceededError:
        say("late")
    context.context().delete_config_key_value(f"told/by/{TASK}")


def exchange():
    context.context().set_config_key_value("from/tf", "of TensorFlow")
    say("heard", context.context().get_config_key_value("from/c", 60000))
    context.context().report_error_to_cluster(13, "trouble")
    signal.pause()


if sys.argv[1] in ("values", "exchange"):
    {"values": values, "exchange": exchange}[sys.argv[1]]()
else:
    follow(sys.argv[1])
