"""The op harness on the soft device (src/device/soft): cases whose ops it has run there, behind memory that the host
cannot read; variables, updates, convolutions, what is written in place. Real TensorFlow, on its CPU, is the judge.

All files of cases, but for those that are about what stays on the CPU whatever the devices: strings, files, queues,
tables, messages. With a library that has AddressSanitizer in it, that one's runtime is loaded before Python's; in the
build of the fuzz targets, which is `make test`'s, only the files whose ops use memory in the most ways: the rest is `make
asan`'s. ThreadSanitizer is in a server, which the cases are sent to.
"""
# needs: tensorflow
import glob
import os
import platform
import re
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

sys.path.insert(0, os.path.join(os.path.dirname(HERE), "cluster"))
import cluster

MOST = {"gather_scatter", "lists", "lstm_block", "nn_norm", "rows_in_place", "tensor_arrays", "training", "variables"}


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
    return {"LD_PRELOAD": f"{asan} {cxx}", "ASAN_OPTIONS": "detect_leaks=0"}


def harness(mode, paths):
    command = [sys.executable, os.path.join(HERE, "harness.py"), f"--mode={mode}", *paths]
    return subprocess.run(command, check=False, env={**os.environ, **sanitizer()}).returncode


def named(names):
    return [os.path.join(HERE, "ops", n + ".py") for n in sorted(names)]


names = {os.path.basename(f)[:-3] for f in glob.glob(os.path.join(HERE, "ops", "*.py"))}
assert ON_THE_CPU < names and MOST < names, (ON_THE_CPU | MOST) - names
if "thread" in cache.get("SHOAL_SANITIZE", ""):
    with cluster.Cluster(worker=["shoal"]) as c:
        os.environ["SHOAL_TARGET"] = c.target("worker")
        sys.exit(harness("compare", named(MOST)))
if os.path.basename(BUILD) == "build-fuzz":
    sys.exit(harness("compare", named(MOST)))
# Gradients are made of ops that were compared; those that live between nodes have their own.
sys.exit(max(harness("compare", named(names - ON_THE_CPU)), harness("grad", named({"lists", "tensor_arrays", "variables"}))))
