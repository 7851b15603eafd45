"""Does the trainer of a convolutional network wait for its input? examples/mnist_records reads images from files of
records, with batches made ahead and without; the time of IteratorGetNext in the traces of its steps says it.

  tools/python.sh bench/input_wait.py [--build build] [--steps 100]

Printed: the median step of those traced, how long it waited for its batch, and how much of the step that is.
"""
import argparse
import glob
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MNIST = "/usr/share/datasets/fashion-mnist"


def write_records(path, n):
    """The first images of Fashion-MNIST as Examples."""
    import tensorflow as tf
    with gzip.open(f"{MNIST}/train-images-idx3-ubyte.gz") as f:
        images = f.read(16 + 784 * n)[16:]
    with gzip.open(f"{MNIST}/train-labels-idx1-ubyte.gz") as f:
        labels = f.read(8 + n)[8:]
    with tf.io.TFRecordWriter(path) as w:
        for i in range(n):
            w.write(tf.train.Example(features=tf.train.Features(feature={
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[images[784 * i:784 * (i + 1)]])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[labels[i]]))})).SerializeToString())


def waits(folder, skip=1):
    """Of each traced step but the first: (its length, how long its iterator took), in milliseconds."""
    found = []
    for path in sorted(glob.glob(f"{folder}/timeline-*.json"), key=lambda p: int(p.rsplit("-", 1)[1][:-5])):
        with open(path) as f:
            events = [e for e in json.load(f)["traceEvents"] if e["ph"] == "X"]
        begin, end = min(e["ts"] for e in events), max(e["ts"] + e["dur"] for e in events)
        found.append(((end - begin) / 1e3, sum(e["dur"] for e in events if e["name"] == "IteratorGetNext") / 1e3))
    return found[skip:]


def run(build, records, steps, *flags):
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(build, "examples", "mnist_records")
        p = subprocess.run([program, f"--records={records}", f"--steps={steps}", f"--trace_dir={folder}", *flags],
                           capture_output=True, text=True, timeout=280, check=False)
        assert p.returncode == 0, p.stdout + p.stderr
        return waits(folder)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    p.add_argument("--steps", type=int, default=100)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_records(f"{folder}/train-0.tfrecord", 10000)
        for name, flags in (("2 batches ahead", ["--prefetch=2"]), ("none ahead", ["--prefetch=0"])):
            found = run(args.build, f"{folder}/train-*.tfrecord", args.steps, *flags)
            step, wait = (statistics.median(f[i] for f in found) for i in (0, 1))
            print(f"CNN from records, batch 64, {name:16} step {step:7.2f} ms  waits {wait:6.3f} ms  {wait / step:.1%}"
                  f"  longest {max(f[1] for f in found):.3f} ms  ({len(found)} steps traced)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
