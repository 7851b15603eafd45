"""Writes the benchmark graphs: FOLDER/NAME.pb and NAME.npz (feeds) for each case, and cases.json. Needs TensorFlow.

A case counts work in units of `per` a step: examples for models, ops for dispatch.
"""
import json
import os
import re
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "interop"))

import numpy as np
import tensorflow.compat.v1 as tf

import models

OPS = 10000


def chain():
    x = tf.placeholder(tf.float32, [], "x")
    one = tf.placeholder(tf.float32, [], "one")
    y = x
    for _ in range(OPS):
        y = tf.add(y, one)
    return models.Model(y, y.op, lambda _: {x: np.float32(1), one: np.float32(1)})


def wide():
    """Every sum of one of 100 numbers and one of 100 others: no two ops are the same, or they would be merged; and one
    op reads them all, or they would not be computed."""
    n = int(OPS ** 0.5)
    a, b = ([tf.placeholder(tf.float32, [], f"{side}{i}") for i in range(n)] for side in "ab")
    total = tf.add_n([tf.add(x, y) for x in a for y in b])
    return models.Model(total, total.op, lambda _: {x: np.float32(1) for x in a + b})


CASES = {
    "chain": ("chain of 10,000 scalar adds", "op", OPS, chain),
    "wide": ("10,000 scalar adds side by side", "op", OPS, wide),
    "mlp": ("MLP 784-100-10, batch 100, Adam", "examples/s", 100, lambda: models.mlp()),
    "mlp_large": ("MLP 784-2048-2048-10, batch 128", "examples/s", 128, lambda: models.mlp((2048, 2048), 128)),
    "mlp_large_bf16": ("the same, products in bfloat16", "examples/s", 128,
                       lambda: models.mlp((2048, 2048), 128, bf16=True)),
    "cnn": ("CNN 5x5x32, 5x5x64, 1024, batch 128", "examples/s", 128, lambda: models.cnn(128)),
    "cnn_bf16": ("the same, products in bfloat16", "examples/s", 128, lambda: models.cnn(128, bf16=True)),
}


def main(folder, only):
    tf.disable_eager_execution()
    made = []
    for name, (title, unit, per, build) in CASES.items():
        if only and not re.search(only, name):
            continue
        g = tf.Graph()
        with g.as_default():
            tf.set_random_seed(1)
            tf.get_variable_scope().set_use_resource(True)
            model = build()
            init = tf.global_variables_initializer()
        with open(os.path.join(folder, name + ".pb"), "wb") as f:
            f.write(g.as_graph_def().SerializeToString())
        feeds = model.feeds(0)
        np.savez(os.path.join(folder, name + ".npz"), **{t.name: v for t, v in feeds.items()})
        made.append(dict(name=name, title=title, unit=unit, per=per, init=init.name, train=model.train.name,
                         loss=model.loss.name, feeds=[t.name for t in feeds]))
    with open(os.path.join(folder, "cases.json"), "w") as f:
        json.dump(made, f)


main(*sys.argv[1:])
