"""The op harness on the soft device (src/device/soft): cases whose ops it has run there, behind memory that the host
cannot read; variables, updates, convolutions, what is written in place. Real TensorFlow, on its CPU, is the judge.

All files of cases, but for those that are about what stays on the CPU whatever the devices: strings, files, queues,
tables, messages.
"""
# needs: tensorflow
import glob
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("SHOAL_BUILD", os.path.join(os.path.dirname(os.path.dirname(HERE)), "build"))
ON_THE_CPU = {"audio", "batching", "examples", "messages", "parsing", "queues", "readers", "sdca", "strings",
              "strings_convert", "summaries", "tables"}

os.environ["SHOAL_SOFT_GPUS"] = "1"
# A build without such a device would pass too, and show nothing.
there = subprocess.run([os.path.join(BUILD, "shoal"), "devices"], capture_output=True, text=True, check=True).stdout
assert "/device:GPU:0 type=GPU" in there, there

files = sorted(glob.glob(os.path.join(HERE, "ops", "*.py")))
assert ON_THE_CPU < {os.path.basename(f)[:-3] for f in files}
files = [f for f in files if os.path.basename(f)[:-3] not in ON_THE_CPU]
def harness(mode, paths):
    command = [sys.executable, os.path.join(HERE, "harness.py"), f"--mode={mode}", *paths]
    return subprocess.run(command, check=False).returncode


# Gradients are made of ops that were compared; those that live between nodes have their own.
between = [f for f in files if os.path.basename(f)[:-3] in ("lists", "tensor_arrays", "variables")]
sys.exit(max(harness("compare", files), harness("grad", between)))
