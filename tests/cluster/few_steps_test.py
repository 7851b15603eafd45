"""Every example, for a few steps on little data, on the device that kernels are best on: for the soft device under sanitizers
(tests/run.py), where each step takes ten times as long. What they compute is judged elsewhere (examples_test.py, the tests of
tests/interop for each of the large ones); here they must come to their ends. No TensorFlow, so that little else runs.
"""
# under sanitizers: all
import atexit
import functools
import gzip
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

from cluster import SHOAL, report

BUILD = os.path.dirname(SHOAL)
FOLDER = tempfile.mkdtemp()
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
RANDOM = random.Random(7)


# ---- little data ----

@functools.cache
def pictures():
    """The four files of an MNIST, of 200 pictures."""
    folder = f"{FOLDER}/pictures"
    os.mkdir(folder)
    for part, n in (("train", 200), ("t10k", 100)):
        with gzip.open(f"{folder}/{part}-images-idx3-ubyte.gz", "wb") as f:
            f.write(struct.pack(">4i", 2051, n, 28, 28) + RANDOM.randbytes(n * 784))
        with gzip.open(f"{folder}/{part}-labels-idx1-ubyte.gz", "wb") as f:
            f.write(struct.pack(">2i", 2049, n) + bytes(i % 10 for i in range(n)))
    return folder


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def field(number, data):
    size, length = b"", len(data)
    while length >= 128:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + data


@functools.cache
def records():
    """Examples with an "image" and a "label", the features that mnist_records has."""
    path = f"{FOLDER}/some.tfrecord"
    with open(path, "wb") as f:
        for i in range(24):
            features = {b"image": field(1, field(1, RANDOM.randbytes(784))), b"label": field(3, field(1, bytes([i % 10])))}
            made = field(1, b"".join(field(1, field(1, name) + field(2, value)) for name, value in features.items()))
            size = struct.pack("<Q", len(made))
            f.write(size + crc32c(size) + made + crc32c(made))
    return path


@functools.cache
def table():
    folder = f"{FOLDER}/table"
    os.mkdir(folder)
    for n in range(3):
        with open(f"{folder}/{n}.csv", "w") as f:
            f.writelines(",".join(f"{RANDOM.random():.3f}" for _ in range(3)) + "\n" for _ in range(40))
    return folder


@functools.cache
def text():
    path = f"{FOLDER}/text"
    with open(path, "w") as f:
        f.write(" ".join(RANDOM.choice(["one", "two", "three", "four", "five"]) for _ in range(2000)))
    return path


@functools.cache
def words():
    path = f"{FOLDER}/words"
    with open(path, "w") as f:
        f.writelines(f"{w} 400\n" for w in ("one", "two", "three", "four", "five"))
    return path


# ---- programs ----

def run(name, *flags, tasks=(), env=()):
    """Alone, or as a job of these tasks; what it printed."""
    command = [f"{BUILD}/examples/{name}", *flags]
    p = subprocess.run([SHOAL, "launch", *tasks, "--", *command] if tasks else command, stdout=subprocess.PIPE, check=False,
                       stderr=subprocess.STDOUT, errors="replace", timeout=900, env={**os.environ, **dict(env)})
    assert p.returncode == 0, (name, p.returncode, p.stdout)
    return p.stdout


def mnist(name, *flags, **how):
    return run(name, f"--data_dir={pictures()}", "--train_steps=6", "--batch_size=20", *flags, **how)


def replica():
    """Trained, saved, gone on with, asked; then with parameter servers, in each way."""
    folder = f"--checkpoint_dir={FOLDER}/replica"
    mnist("mnist_replica", folder, "--trace_steps=3")
    assert "restored" in mnist("mnist_replica", folder, "--train_steps=9")
    assert "right" in run("predict", f"--data_dir={pictures()}", folder)
    for way in ([], ["--sync_replicas"], ["--staleness=2"]):
        assert "test accuracy" in mnist("mnist_replica", *way, tasks=["--ps=1", "--workers=2"])


def mirrored():
    mnist("mnist_mirrored", "--devices=2", env={"SHOAL_SOFT_GPUS": "1", "SHOAL_VIRTUAL_DEVICES": "100+100"})
    mnist("mnist_multiworker", tasks=["--ps=0", "--workers=2"])


GPT = ["--layers=2", "--heads=2", "--width=16", "--context=16", "--batch=2"]
RESNET = ["--blocks=1,1,1,1", "--width=8", "--image_size=32", "--classes=5", "--batch=4", "--steps=2"]
DATES = ["--layers=1", "--heads=2", "--width=8", "--batch=8", "--steps=3", "--test=8", "--log_steps=1"]
TWO = ["--ps=1", "--workers=2"]
TESTS = [
    ("hello", lambda: run("hello")),
    ("linear_regression", lambda: run("linear_regression")),
    ("functions", lambda: run("functions")),
    ("own_op", lambda: run("use_own_op", f"--op_library={BUILD}/ops/own_op.so")),
    ("mnist_local", lambda: run("mnist_local", f"--data_dir={pictures()}", f"--out_dir={FOLDER}/local", "--epochs=1")),
    ("mnist_replica and predict", replica),
    ("mnist_mirrored and mnist_multiworker", mirrored),
    ("mnist_cnn", lambda: mnist("mnist_cnn", tasks=["--ps=1", "--workers=1"])),
    ("mnist_records", lambda: run("mnist_records", f"--records={records()}", "--steps=3", "--batch=4")),
    ("supervisor", lambda: mnist("supervisor", f"--logdir={FOLDER}/supervisor")),
    ("in_graph", lambda: mnist("in_graph", "--copies=2", tasks=TWO, env={"SHOAL_VIRTUAL_DEVICES": "100+100"})),
    ("model_parallel", lambda: mnist("model_parallel", tasks=["--ps=0", "--workers=2"])),
    ("meet", lambda: run("meet", tasks=["--ps=0", "--workers=2"])),
    ("feed", lambda: run("feed", f"--data_dir={table()}", tasks=TWO)),
    ("word2vec", lambda: run("word2vec", f"--text={text()}", f"--vocab={words()}", "--size=8", "--batch_size=32",
                             "--train_steps=20", "--num_sampled=4", f"--output={FOLDER}/vectors", tasks=TWO)),
    ("wide_deep", lambda: run("wide_deep", "--rows=400", "--test_rows=100", "--train_steps=6", "--batch_size=20",
                              "--save_steps=3", f"--model_dir={FOLDER}/wide_deep")),
    ("six_steps", lambda: run("six_steps", "--rows=400", "--test_rows=100", "--round_steps=3", "--target=0.1", tasks=TWO)),
    ("gpt", lambda: run("gpt", f"--data={text()}", *GPT, "--steps=3", "--sample=8")),
    ("gpt in stages", lambda: run("gpt", f"--data={text()}", *GPT, "--steps=3", "--stages=2", tasks=["--ps=0", "--workers=2"])),
    ("gpt2", lambda: run("gpt2", *GPT, "--vocab=40", "--pad_vocab=8", "--steps=3", "--dropout=0.1", "--sample=4")),
    ("dates", lambda: run("dates", *DATES)),
    ("resnet50", lambda: run("resnet50", *RESNET)),
]

if __name__ == "__main__":
    sys.exit(report(TESTS))
