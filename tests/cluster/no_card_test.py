"""What is said where there is no card to be had: no driver, an old one, one that finds no card. The drivers are made here:
libraries of that name with the functions that the case has.
"""
# not on the soft device: it is about machines without any
import os
import re
import shutil
import subprocess
import sys
import tempfile

from cluster import ROOT, SHOAL, Skip, report


def functions():
    """The driver's functions that we open, by name."""
    with open(os.path.join(ROOT, "src/device/cuda/cuda_api.h")) as f:
        return re.findall(r'^  X\(\w+, "(cu\w+)"', f.read(), re.M)


def devices(source):
    """What `shoal devices` says with a driver of this source; None: with none."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise Skip("there is no compiler")
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, LD_LIBRARY_PATH=folder)
        env.pop("SHOAL_SOFT_GPUS", None)
        if source is not None:
            with open(f"{folder}/driver.c", "w") as f:
                f.write(source)
            subprocess.run([compiler, "-shared", "-fPIC", "-o", f"{folder}/libcuda.so.1", f"{folder}/driver.c"], check=True)
        p = subprocess.run([SHOAL, "devices"], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert p.returncode == 0 and "device:CPU:0" in p.stdout and "GPU" not in p.stdout, p
    return p.stderr


def none():
    try:
        import ctypes
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        assert "there is no GPU: there is no NVIDIA driver (libcuda.so.1)" in devices(None)
        return
    raise Skip("this machine has a driver")


def old():
    text = devices("int cuInit(unsigned flags) { return 0; }")
    assert "there is no GPU: the NVIDIA driver is too old" in text and "it has no cuGetErrorName" in text, text


def without_a_card():
    names = functions()
    assert "cuInit" in names and len(names) > 30, names
    source = "".join(f"int {n}() {{ return {100 if n == 'cuInit' else 0}; }}\n" for n in names)
    text = devices(source)
    assert "the NVIDIA driver finds no card" in text and "CUDA_VISIBLE_DEVICES" in text, text
    text = devices(source.replace("return 100", "return 803"))
    assert "of different versions" in text, text
    text = devices(source.replace("return 100", "return 999"))
    assert "nvidia-uvm" in text and "lost" not in text, text


if __name__ == "__main__":
    sys.exit(report([("no driver", none), ("an old driver", old), ("a driver that finds no card", without_a_card)]))
