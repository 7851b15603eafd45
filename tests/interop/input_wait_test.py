"""The trainer of a convolutional network does not wait for input that is made ahead, as the traces of its steps show."""
# needs: tensorflow
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(os.path.dirname(HERE)), "bench")]
import tap
import input_wait
import shoal

BUILD = os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build"))


def test_no_wait():
    with tempfile.TemporaryDirectory() as folder:
        input_wait.write_records(f"{folder}/train-0.tfrecord", 2000)
        found = input_wait.run(BUILD, f"{folder}/train-*.tfrecord", 60, "--prefetch=2")
        assert len(found) > 8 and all(step > wait > 0 for step, wait in found), found  # each step asked for a batch
        step, wait = (statistics.median(f[i] for f in found) for i in (0, 1))
        assert wait < step / 20, (step, wait)


def test_mistakes():
    program = os.path.join(BUILD, "examples", "mnist_records")
    def refused(*flags):
        p = subprocess.run([program, *flags], capture_output=True, text=True, timeout=280, check=False)
        assert p.returncode, p.stdout
        return p.stderr + p.stdout
    assert "--records says which files" in refused()
    assert "no-such" in refused("--records=/no-such-*.tfrecord", "--steps=2")


if __name__ == "__main__":
    tap.main(globals())
