"""Whole models: 50 training steps from the same seeds follow TensorFlow's loss.

# needs: tensorflow
The graph, gradients and optimizer included, is built once and runs in both. Rounding differs in the last bits and grows
from step to step, so the tolerance does too; a wrong gradient or a wrong random stream is out by orders of magnitude.
"""
import os
import sys
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf

import models
import shoal

STEPS = 50


def functional(build):
    """With While, If and tensor lists in place of frames and TensorArrays."""
    tf.enable_control_flow_v2()
    try:
        return build()
    finally:
        tf.disable_control_flow_v2()


MODELS = {
    "mlp adam": lambda: models.mlp(),
    "mlp momentum": lambda: models.mlp(optimizer=tf.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True)),
    "mlp adagrad": lambda: models.mlp(optimizer=tf.train.AdagradOptimizer(0.05)),
    "mlp rmsprop": lambda: models.mlp(optimizer=tf.train.RMSPropOptimizer(0.001)),
    # Ftrl starts from zero weights whatever the initialiser says, where hidden layers learn nothing.
    "linear ftrl": lambda: models.mlp((), optimizer=tf.train.FtrlOptimizer(0.05)),
    "mlp adadelta": lambda: models.mlp(optimizer=tf.train.AdadeltaOptimizer(1.0)),
    "cnn": lambda: models.cnn(batch=16, filters=(8, 16), units=64),
    "lstm while_loop": models.lstm,
    "lstm functional while": lambda: functional(models.lstm),
    "transformer block": models.transformer,
    "word2vec nce": models.word2vec,
}


def losses_tf(g, model, init):
    with tf.Session(graph=g) as s:
        s.run(init)
        return [s.run([model.loss, model.train], model.feeds(i))[0] for i in range(STEPS)]


def losses_shoal(g, model, init):
    out = []
    with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) as s:
        s.run(targets=[init.name])
        for i in range(STEPS):
            feeds = {t.name: v for t, v in model.feeds(i).items()}
            out += s.run([model.loss.name], feeds, [model.train.name])
    return out


def check(build, resource):
    g = tf.Graph()
    with g.as_default():
        tf.set_random_seed(42)
        tf.get_variable_scope().set_use_resource(resource)
        model = build()
        init = tf.global_variables_initializer()
    theirs, ours = losses_tf(g, model, init), losses_shoal(g, model, init)
    assert theirs[-1] < theirs[0], f"TensorFlow itself learns nothing: {theirs[0]} to {theirs[-1]}"
    for i, (a, b) in enumerate(zip(ours, theirs)):
        tolerance = 1e-5 * (i + 1) ** 1.5
        assert np.isfinite(a) and abs(a - b) <= tolerance * max(abs(b), 0.1), f"step {i}: loss {a}, TensorFlow has {b}"


def main():
    tf.disable_eager_execution()
    tf.disable_control_flow_v2()
    tf.logging.set_verbosity(tf.logging.ERROR)
    failed = 0
    for name, build in MODELS.items():
        for resource in (False, True):
            title = f"{name}, {'resource' if resource else 'reference'} variables"
            if len(sys.argv) > 1 and sys.argv[1] not in title:
                continue
            try:
                check(build, resource)
                print(f"ok - {title}", flush=True)
            except Exception as e:
                failed += 1
                text = str(e) if isinstance(e, (AssertionError, shoal.Error)) else traceback.format_exc()
                print(f"not ok - {title}\n# " + text.replace("\n", "\n# "), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
