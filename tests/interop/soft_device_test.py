"""The op harness on the soft device (src/device/soft): cases whose ops it has run there, behind memory that the host
cannot read; variables, updates, convolutions, what is written in place, and their gradients. Real TensorFlow, on its CPU, is
the judge: by the answers that it gave the harness on the CPU, where those were kept (tests/run.py runs that first).

With a library that has AddressSanitizer in it, that one's runtime is loaded before Python's. ThreadSanitizer is in a
server, which the cases are sent to. `make test` runs a part there, as tests/run.py says, and `make test-soft` all.
"""
# needs: tensorflow
import os
import platform
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("SHOAL_BUILD", os.path.join(os.path.dirname(os.path.dirname(HERE)), "build"))

os.environ["SHOAL_SOFT_GPUS"] = "1"
# A build without such a device would pass too, and show nothing.
there = subprocess.run([os.path.join(BUILD, "shoal"), "devices"], capture_output=True, text=True, check=True).stdout
assert "/device:GPU:0 type=GPU" in there, there

sys.path.insert(0, os.path.join(os.path.dirname(HERE), "cluster"))
import cluster

with open(os.path.join(BUILD, "CMakeCache.txt")) as f:
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", f.read(), re.M))


def sanitizer():
    """What a process has to be told that loads a library with a sanitizer in it; nothing for other libraries."""
    if "address" not in cache.get("SHOAL_SANITIZE", ""):
        return {}
    names = f"libclang_rt.asan-{platform.machine()}.so", "libasan.so"  # clang knows gcc's, too
    asan, *_, cxx = filter(os.path.isabs, (subprocess.run([cache["CMAKE_C_COMPILER"], f"-print-file-name={n}"], text=True,
                                                           capture_output=True, check=True).stdout.strip()
                                           for n in (*names, "libstdc++.so.6")))
    # Exceptions are thrown past the runtime, which looks for who throws them as it starts. What Python and TensorFlow leave
    # behind is theirs.
    return {"LD_PRELOAD": f"{asan} {cxx}", "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + " detect_leaks=0"}


def harness():
    """Arguments are files of cases and the harness' own; without any all files."""
    command = [sys.executable, os.path.join(HERE, "harness.py"), "--replay", *sys.argv[1:]]
    return subprocess.run(command, check=False, env={**os.environ, **sanitizer()}).returncode


if "thread" in cache.get("SHOAL_SANITIZE", ""):
    with cluster.Cluster(worker=["shoal"]) as c:
        os.environ["SHOAL_TARGET"] = c.target("worker")
        sys.exit(harness())
sys.exit(harness())
