"""What `make demo-serve` does after training: a model of a short run is exported, served, and asked by REST."""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "interop")]

import cluster
import tap

BUILD = os.path.dirname(cluster.SHOAL)
DATA = os.environ.get("DATA_DIR", "/usr/share/datasets/fashion-mnist")


def test_train_export_serve():
    if not os.path.exists(os.path.join(DATA, "t10k-images-idx3-ubyte.gz")):
        raise tap.Skip(f"there is no Fashion-MNIST in {DATA}: make deps")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([cluster.SHOAL, "launch", "--ps=1", "--workers=1", "--", os.path.join(BUILD, "examples/mnist_replica"),
                        f"--data_dir={DATA}", f"--checkpoint_dir={folder}", "--train_steps=1000", "--hidden_units=64"],
                       check=True, capture_output=True, timeout=200)
        p = subprocess.run([os.path.join(cluster.ROOT, "tools/demo_serve.sh"), BUILD, folder], capture_output=True,
                           text=True, timeout=100, env={**os.environ, "HIDDEN_UNITS": "64"})
        assert p.returncode == 0, (p.stdout[-1000:], p.stderr)
        right = re.search(r"(\d+) of 10 are right", p.stdout)
        assert right and int(right.group(1)) >= 6, p.stdout[-3000:]
        assert "ankle boot, " in p.stdout and "%%" in p.stdout


if __name__ == "__main__":
    tap.main(globals())
