"""Clusters and examples on the soft device (src/device/soft): tests of this tree once more, as they are, in tasks that each
have a device whose memory the host cannot read. Whatever can, runs there: variables, updates, sends and receives, loops,
checkpoints. Servers and programs are processes, so this is also what a sanitizer sees of devices in a cluster.
"""
# needs: tensorflow
import os
import subprocess
import sys

from cluster import ROOT, SHOAL, sanitized

# A program, and what the names of its tests have in them.
PROGRAMS = [
    ("cluster/state_test.py", ""),
    ("cluster/matrix_test.py", "all shoal"),
    ("cluster/matrix_test.py", "shoal worker under a tf master"),
    ("cluster/c_client_test.py", "on Shoal's servers"),
    ("cluster/c_client_test.py", "on TensorFlow's master with Shoal's tasks"),
    ("cluster/partial_test.py", "in parts"),
    ("interop/examples_test.py", ""),
    ("cluster/examples_test.py", "Synchronous"),
    ("cluster/examples_test.py", "A convolutional network"),
    ("chaos/training_test.py", "ps told to stop"),
]
# Where each step takes ten times as long: what has most threads in it.
SANITIZED = [
    ("cluster/state_test.py", ""),
    ("cluster/c_client_test.py", "on Shoal's servers"),
    ("cluster/matrix_test.py", "all shoal"),
    ("interop/examples_test.py", "linear_regression"),
    ("cluster/examples_test.py", "Strict"),
]

if __name__ == "__main__":
    os.environ["SHOAL_SOFT_GPUS"] = "1"
    # A build without such a device would pass too, and show nothing.
    there = subprocess.run([SHOAL, "devices"], capture_output=True, text=True, check=True).stdout
    assert "/device:GPU:0 type=GPU" in there, there
    sys.exit(max(subprocess.run([sys.executable, os.path.join(ROOT, "tests", path), *([only] if only else [])],
                                check=False).returncode for path, only in (SANITIZED if sanitized() else PROGRAMS)))
