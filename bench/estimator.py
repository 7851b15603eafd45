#!/usr/bin/env python3
"""Wide and deep on a parameter server, a chief and a worker: Shoal's estimator (examples/wide_deep.c) and TensorFlow's
(estimator_tf.py) on its own servers, by turns. Prints examples/s of both sides, from the global_step/sec that each
writes into its event files, median and spread, and the ratio.

    tools/python.sh bench/estimator.py [--runs=3] [--train_steps=4000]
"""
import argparse
import glob
import os
import statistics
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
parser = argparse.ArgumentParser()
parser.add_argument("--build", default=os.path.join(ROOT, "build"))
parser.add_argument("--runs", type=int, default=3)
parser.add_argument("--train_steps", type=int, default=4000)
parser.add_argument("--tf_steps", type=int, default=1000)
parser.add_argument("--batch_size", type=int, default=100)
args = parser.parse_args()


def rate(command, steps):
    """The median of global_step/sec of one run, without the first report."""
    import tensorflow as tf
    with tempfile.TemporaryDirectory() as d:
        p = subprocess.run([f"{args.build}/shoal", "launch", "--ps=1", "--chief", "--workers=1", "--flags=false", "--",
                            *command, f"--model_dir={d}", f"--train_steps={steps}", f"--batch_size={args.batch_size}"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900, check=False)
        found = [v.simple_value for f in glob.glob(f"{d}/events*") for e in tf.compat.v1.train.summary_iterator(f)
                 for v in e.summary.value if v.tag == "global_step/sec"]
    if len(found) < 3:
        sys.exit(f"no rates of {command[0]}:\n{p.stdout[-3000:]}")
    return statistics.median(found[1:]) * args.batch_size


SIDES = {"Shoal": ([f"{args.build}/examples/wide_deep", "--save_steps=100000000"], args.train_steps),
         "TensorFlow": ([sys.executable, os.path.join(ROOT, "bench", "estimator_tf.py")], args.tf_steps)}
rates = {name: [] for name in SIDES}
for _ in range(args.runs):
    for name, (command, steps) in SIDES.items():
        rates[name].append(rate(command, steps))
for name, r in rates.items():
    print(f"wide and deep, 1 ps, chief and worker: {name:10} {statistics.median(r):9.0f} examples/s  "
          f"({min(r):.0f} to {max(r):.0f})", flush=True)
print(f"ratio {statistics.median(rates['Shoal']) / statistics.median(rates['TensorFlow']):.1f}")
