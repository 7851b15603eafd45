"""The examples run, and what they write TensorFlow reads.

# needs: tensorflow
# under sanitizers: linear_regression
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf

import shoal
import tap

BUILD = os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build"))
DATA = "/usr/share/datasets/fashion-mnist"


def example(name, *args):
    p = subprocess.run([os.path.join(BUILD, "examples", name), *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, check=False)
    assert p.returncode == 0, p.stdout
    return p.stdout


def test_hello():
    assert example("hello") == "40 + 2 = 42\n"


def test_linear_regression():
    slope, offset = map(float, re.search(r"y = (\S+) x \+ (\S+)", example("linear_regression")).groups())
    assert abs(slope - 3) < 0.1 and abs(offset - 2) < 0.1, (slope, offset)


def test_mnist_local():
    if not os.path.isdir(DATA):
        raise tap.Skip(f"there is no {DATA}")
    with tempfile.TemporaryDirectory() as folder:
        text = example("mnist_local", f"--data_dir={DATA}", f"--out_dir={folder}")
        assert float(re.search(r"test accuracy (\S+) after", text).group(1)) >= 0.84, text  # 0.88 here; from epoch to epoch it moves by 0.01
        # The checkpoint, by TensorFlow's reader: every variable with its slots, under TensorFlow's names.
        prefix = re.search(r"checkpoint: +(\S+)", text).group(1)
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        for name, shape in {"hidden/kernel": [784, 128], "hidden/bias": [128], "logits/kernel": [128, 10],
                            "hidden/kernel/Adam": [784, 128], "hidden/kernel/Adam_1": [784, 128], "beta1_power": [],
                            "global_step": []}.items():
            assert shapes.get(name) == shape, (name, shapes)
        assert reader.get_tensor("global_step") == 6000
        assert np.isclose(reader.get_tensor("beta1_power"), 0.9 ** 6001, rtol=0.01, atol=1e-30)
        # The event file, by TensorFlow's reader: the graph, the losses, the accuracy.
        events = list(tf.train.summary_iterator(glob.glob(folder + "/events.out.*")[0]))
        assert events[0].file_version.startswith("brain.Event:")
        assert any(e.graph_def for e in events)
        values = {v.tag: v.simple_value for e in events for v in e.summary.value}
        assert values["test_accuracy"] >= 0.84 and 0 < values["loss"] < 1, values


def test_mnist_with_bad_data():
    with tempfile.TemporaryDirectory() as folder:
        p = subprocess.run([os.path.join(BUILD, "examples", "mnist_local"), f"--data_dir={folder}", f"--out_dir={folder}"],
                           stderr=subprocess.PIPE, text=True, check=False)
        assert p.returncode == 1 and "train-images-idx3-ubyte.gz" in p.stderr, p.stderr


if __name__ == "__main__":
    tap.main(globals())
