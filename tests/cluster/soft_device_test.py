"""Tests of this tree once more, as they are, in tasks that each have a soft device (src/device/soft), whose memory the host
cannot read: examples, and with a build that has a sanitizer in it those tests of clusters that say so (`# under sanitizers:`).
For `make asan` and `make tsan`; `make test` has programs of their own for each of them (kind `soft` of tests/run.py).
"""
# needs: tensorflow
# not on the soft device: it is about it
import os
import subprocess
import sys

from cluster import ROOT, SHOAL, sanitized

sys.path.insert(0, os.path.join(ROOT, "tests"))
import run

if __name__ == "__main__":
    os.environ["SHOAL_SOFT_GPUS"] = "1"
    # A build without such a device would pass too, and show nothing.
    there = subprocess.run([SHOAL, "devices"], capture_output=True, text=True, check=True).stdout
    assert "/device:GPU:0 type=GPU" in there, there
    programs = run.under_sanitizers() if sanitized() else [(os.path.join(ROOT, "tests/interop/examples_test.py"), [])]
    sys.exit(max(subprocess.run([sys.executable, path, *names], check=False).returncode for path, names in programs))
