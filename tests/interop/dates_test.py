"""examples/dates, an encoder with a decoder: how many held-out dates it reads right; the same training in one process, by
replicas, on parameter servers and in stages; its graph, run by TensorFlow."""
# needs: tensorflow
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from cases import np, tf
import gpt2_test
import shoal

BUILD = os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build"))
PROGRAM = [os.path.join(BUILD, "examples", "dates")]
SMALL = ["--layers=1", "--heads=2", "--width=8", "--log_steps=1", "--warmup_steps=2", "--learning_rate=0.01", "--steps=4",
         "--test=8"]
SOURCE, TARGET = 44, 10


def launch(*flags):
    return [os.path.join(BUILD, "shoal"), "launch", *flags, "--", *PROGRAM]


def dates(*flags, command=None, code=0):
    p = subprocess.run([*(command or PROGRAM), *flags], capture_output=True, text=True, timeout=280, check=False)
    text = p.stdout + p.stderr
    assert p.returncode == code, (p.returncode, text)
    return text


def losses(text, label=""):
    found = re.findall(rf"{label}step (\d+)/\d+  loss (\S+)", text)
    return [float(l) for _, l in sorted(found, key=lambda f: int(f[0]))]


def accuracy(text):
    return float(re.search(r"accuracy (\S+): \d+ of \d+ dates, of days in no training batch", text).group(1))


def test_learns():
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--layers=1", "--width=32", "--batch=32", "--spellings=1", "--learning_rate=0.008", "--warmup_steps=50",
                 "--test=200", f"--checkpoint_dir={folder}"]
        found = accuracy(dates(*flags, "--steps=300"))
        assert found > 0.6, found
        again = dates(*flags, "--steps=0", "--ask=20261118")
        assert accuracy(again) == found and re.search(r"20261118 -> \d{4}-\d\d-\d\d\n", again), again


def test_asks_no_untrained_model():
    with tempfile.TemporaryDirectory() as folder:
        p = subprocess.run([*PROGRAM, "--steps=0", f"--checkpoint_dir={folder}/mistyped", "--ask=20261118"],
                           capture_output=True, text=True, timeout=120)
        assert p.returncode == 1 and "there is no checkpoint in" in p.stderr and not p.stdout, p
        assert not os.path.exists(f"{folder}/mistyped")


def test_wherever_it_runs():
    with tempfile.TemporaryDirectory() as folder:
        def run(name, *more, command=None):
            return losses(dates(*SMALL, f"--checkpoint_dir={folder}/{name}", *more, command=command),
                          "worker 0: " if command else "")
        alone = run("alone", "--batch=8", "--clip=0")
        np.testing.assert_allclose(run("mirrored", "--batch=4", "--clip=0", "--devices=2"), alone, rtol=1e-5)
        np.testing.assert_allclose(
            run("workers", "--batch=4", "--clip=0", command=launch("--ps=0", "--workers=2")), alone, rtol=1e-5)
        # In stages, from the values that one process began with: gradients are clipped together there, too.
        clipped = run("clipped", "--batch=8", "--clip=0.5")
        for stages, command in ((2, None), (2, launch("--ps=0", "--workers=2"))):
            name = f"stages{stages}{bool(command)}"
            os.mkdir(f"{folder}/{name}")
            for f in os.listdir(f"{folder}/clipped"):
                if f.startswith("model.ckpt-0."):
                    shutil.copy(f"{folder}/clipped/{f}", f"{folder}/{name}")
            with open(f"{folder}/{name}/checkpoint", "w") as f:
                f.write('model_checkpoint_path: "model.ckpt-0"\n')
            np.testing.assert_allclose(run(name, "--batch=8", "--clip=0.5", f"--stages={stages}", command=command),
                                       clipped, rtol=1e-5)
        text = dates(*SMALL, "--batch=4", "--steps=20", command=launch("--ps=1", "--workers=2"))
        assert 0 <= accuracy(text) <= 1 and losses(text)[-1] < losses(text)[0], text


def test_graph_in_tensorflow():
    with tempfile.TemporaryDirectory() as folder:
        dates(*SMALL, "--batch=3", f"--checkpoint_dir={folder}")
        x = np.random.default_rng(1).integers(0, 128, [3, SOURCE + TARGET]).astype(np.int32)
        from tensorflow.core.protobuf import meta_graph_pb2
        meta, prefix = meta_graph_pb2.MetaGraphDef(), f"{folder}/model.ckpt-4"
        with open(prefix + ".meta", "rb") as f:
            meta.ParseFromString(f.read())
        ours, theirs = (run(meta, {"letters_in:0": x}, meta.saver_def.filename_tensor_name,
                            meta.saver_def.restore_op_name, prefix)
                        for run in (gpt2_test.by_shoal, gpt2_test.by_tensorflow))
        assert ours.shape == (3, TARGET, 128)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_mistakes():
    assert "and there are fewer" in dates("--layers=1", "--stages=3", code=2)
    assert "at most 44 letters" in dates("--ask=" + "x" * 45, code=2)
    assert "from 1 to 12" in dates("--spellings=13", code=2)
    assert "--width must be a multiple of --heads" in dates("--width=9", code=2)


if __name__ == "__main__":
    tap.main(globals())
