"""A card that is lost in the middle of training. The step says so; a server that had it ends, and says why; what was started
again goes on from the last checkpoint. The card is a soft one (src/device/soft), which is lost to the first process that
finds the file named by SHOAL_SOFT_LOST.
"""
# needs: tensorflow
# not on the soft device: it has one anyway
import glob
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow.compat.v1 as tf

from cluster import SHOAL, Cluster, report, until

tf.disable_v2_behavior()
LEFT = []
EXAMPLES = os.path.join(os.path.dirname(SHOAL), "examples")


def server():
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        file = os.path.join(folder, "lost")
        os.environ.update(SHOAL_SOFT_GPUS="1", SHOAL_SOFT_LOST=file)
        try:
            with Cluster(worker=["shoal"]) as c, tf.device("/gpu:0"):
                v = tf.Variable(1.0, use_resource=True)
                add = tf.assign_add(v, 1.0)
                s = tf.Session(c.target("worker"))
                LEFT.append(s)  # TensorFlow's client never ends closing it when the server is gone
                s.run(v.initializer)
                assert s.run(add) == 2.0
                open(file, "w").close()
                try:
                    s.run(add)
                    raise AssertionError("a step on a card that is lost went well")
                except tf.errors.InternalError as e:
                    assert "device:GPU:0" in str(e) and "is lost to this process" in str(e), e
                task = c.tasks[("worker", 0)]
                until(lambda: task.process.poll() is not None, what=task.text)
                assert task.process.poll() == 1 and "is lost to this process" in task.text(), task.text()
        finally:
            del os.environ["SHOAL_SOFT_GPUS"], os.environ["SHOAL_SOFT_LOST"]


def training():
    """Whichever of the tasks finds the file: its process ends, is started again, and training ends at its step."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "lost")
        env = dict(os.environ, SHOAL_SOFT_GPUS="1", SHOAL_SOFT_LOST=file)
        p = subprocess.Popen([SHOAL, "launch", "--ps=1", "--workers=1", "--restarts=3", "--", f"{EXAMPLES}/mnist_replica",
                              "--train_steps=3000", "--device=GPU", f"--checkpoint_dir={folder}/run", "--save_checkpoint_steps=100"],
                             env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        until(lambda: p.poll() is not None or len(glob.glob(f"{folder}/run/*.index")) > 1)
        open(file, "w").close()
        text = p.communicate(timeout=600)[0]
        assert p.returncode == 0 and "test accuracy" in text, text
        assert "is lost to this process" in text and not os.path.exists(file), text
        assert re.search(r"restor|from step|goes on", text), text


if __name__ == "__main__":
    failed = report([("a server ends, and says why", server), ("training goes on from the checkpoint", training)])
    sys.stdout.flush()
    os._exit(failed)
