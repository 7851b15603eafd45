"""Clusters and examples on the soft device (src/device/soft): tests of this tree once more, as they are, in tasks that each
have a device whose memory the host cannot read. Whatever can, runs there: variables, updates, sends and receives, loops,
checkpoints. Servers and programs are processes, so this is also what a sanitizer sees of devices in a cluster. Without a
sanitizer tests/run.py itself runs the tests of clusters and faults there (kind `soft`).
"""
# needs: tensorflow
# not on the soft device: it is about it
import os
import subprocess
import sys

from cluster import ROOT, SHOAL, sanitized

# A program, and what the names of its tests have in them.
PROGRAMS = [("interop/examples_test.py", "")]
# Where each step takes ten times as long: what has most threads in it.
SANITIZED = [
    ("cluster/state_test.py", ""),
    ("cluster/threads_test.py", ""),
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
