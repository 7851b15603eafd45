"""Word vectors on clusters: `shoal word2vec train` as several tasks; examples/word2vec.c, a graph, its tables cut into
parts on the parameter servers: asynchronous, in step, by noise-contrastive estimation, as a bag of words; TensorFlow reads the checkpoint
as whole tables."""
# needs: tensorflow
# on the soft device: In one process | In step | Mistakes
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from cluster import PATIENCE, SHOAL, free_ports, report, until

EXAMPLE = os.path.join(os.path.dirname(SHOAL), "examples", "word2vec")
SUBJECTS = [[f"{name}{i}" for i in range(12)] for name in ("sky", "food", "trade", "war")]


def run(*command, code=0):
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
    assert p.returncode == code, (p.returncode, p.stdout[-3000:])
    return p.stdout


def make_text(folder):
    """Lines of words of one subject each, and the words of it."""
    rng = random.Random(4)
    text, vocab = os.path.join(folder, "text"), os.path.join(folder, "words")
    with open(text, "w") as f:
        for _ in range(4000):
            f.write(" ".join(rng.choices(rng.choice(SUBJECTS), k=10)) + "\n")
    run(SHOAL, "word2vec", "train", "-train", text, "-save-vocab", vocab, "-min-count", "1")
    return ["--text=" + text, "--vocab=" + vocab, "--size=16", "--batch_size=256", "--sample=0"]


def agreement(path):
    """How often the nearest word is of the same subject."""
    import numpy as np
    with open(path) as f:
        n, width = map(int, f.readline().split())
        rows = [line.split() for line in f]
    assert (n, width) == (49, 16) and rows[0][0] == "</s>"
    words = [r[0].rstrip("0123456789") for r in rows[1:]]
    m = np.array([r[1:] for r in rows[1:]], np.float32)
    m /= np.linalg.norm(m, axis=1, keepdims=True)
    near = (m @ m.T - 2 * np.eye(len(m))).argmax(1)
    return np.mean([words[i] == words[j] for i, j in enumerate(near)])


def train(folder, *more, launch=("--ps=2", "--workers=2"), steps=1500):
    out = os.path.join(folder, "vectors")
    command = [EXAMPLE, *make_text(folder), f"--train_steps={steps}", "--output=" + out, *more]
    text = run(*([SHOAL, "launch", *launch, "--"] if launch else []), *command)
    assert f"vectors in {out}" in text, text
    return agreement(out), text


def alone():
    """In one process. Losses fall, and vectors tell subjects apart; they are written through a link."""
    with tempfile.TemporaryDirectory() as folder:
        open(f"{folder}/far", "w").close()
        os.symlink("far", f"{folder}/vectors")
        right, text = train(folder, launch=())
        assert right > 0.9, (right, text)
        assert os.path.islink(f"{folder}/vectors") and os.path.getsize(f"{folder}/far")
        assert "queen" not in run(SHOAL, "word2vec", "neighbors", f"--vectors={folder}/vectors", "sky1")


def asynchronous():
    """Asynchronous. Two parameter servers, two workers; the checkpoint has whole tables, and a run goes on from it."""
    import numpy as np
    import tensorflow.compat.v1 as tf
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = os.path.join(folder, "run")
        right, text = train(folder, "--checkpoint_dir=" + checkpoints)
        assert right > 0.9, (right, text)
        r = tf.train.load_checkpoint(checkpoints)
        shapes = r.get_variable_to_shape_map()
        assert shapes["embeddings"] == shapes["nce_weights"] == [49, 16], shapes
        with open(os.path.join(folder, "vectors")) as f:
            second = f.read().split("\n")[2].split()
        # The other worker may be in its last step while the chief writes one and then the other.
        assert np.allclose(r.get_tensor("embeddings")[1], np.array(second[1:], np.float32), atol=1e-3)
        _, text = train(folder, "--checkpoint_dir=" + checkpoints, steps=1600, launch=("--ps=1", "--workers=1"))
        assert int(re.search(r"worker 0: (\d+) local steps", text)[1]) <= 110, text


def in_step():
    """In step. The mean of the workers' gradients, of rows as well."""
    with tempfile.TemporaryDirectory() as folder:
        right, text = train(folder, "--sync_replicas", steps=1000)
        assert right > 0.9, (right, text)


def contrastive():
    """NCE. With biases and the sampler's own chances."""
    with tempfile.TemporaryDirectory() as folder:
        right, text = train(folder, "--loss=nce", "--num_sampled=16", "--learning_rate=0.02", launch=(), steps=3000)
        assert right > 0.9, (right, text)


def bag_of_words():
    """CBOW. A word from the mean of those around it, on parameter servers."""
    with tempfile.TemporaryDirectory() as folder:
        right, text = train(folder, "--cbow")
        assert right > 0.9, (right, text)


def several_hosts():
    """Several hosts. `shoal word2vec train` as tasks that become one model now and then, with a text of which each has a part."""
    with tempfile.TemporaryDirectory() as folder:
        text, out = make_text(folder)[0][7:], os.path.join(folder, "vectors")
        command = [SHOAL, "word2vec", "train", "-train", text, "-output", out, "-size", "16", "-cbow", "0", "-iter", "8",
                   "-threads", "1", "-sample", "0", "-min-count", "1", "-alpha", "0.05"]
        for more in (["--meetings=4"], ["-hs", "1", "-negative", "0", "--meetings=3"]):
            said = run(SHOAL, "launch", "--ps=0", "--workers=3", "--", *command, *more)
            assert said.count(f"saved {out}") == 1, said
            assert agreement(out) > 0.9, (more, agreement(out), said)
        # Words are counted by all, each its part of the text, in tables that are sent in pieces.
        with open(text, "w", encoding="utf-8") as f:
            f.write("\n".join(f"word{i % 97}é {i} another{i // 2}" for i in range(200000)))
        for name, before in (("alone", []), ("together", [SHOAL, "launch", "--ps=0", "--workers=2", "--"])):
            run(*before, SHOAL, "word2vec", "train", "-train", text, "-output", out, "-size", "4", "-iter", "1",
                "-min-count", "1", "-save-vocab", os.path.join(folder, name))
        with open(f"{folder}/alone", "rb") as a, open(f"{folder}/together", "rb") as b:
            words = a.read()
            assert len(words) > 2 << 20 and words == b.read()
        cluster = ["--ps_hosts=localhost:1", "--worker_hosts=localhost:2,localhost:3", "--job_name=worker", "--task_index=0"]
        assert "no parameter servers" in run(*command, *cluster, code=2)


def one_cannot_begin():
    """What goes wrong in one task alone ends all: a text too small for each to have a part, files that one lacks; and flags
    and texts that are not the same in all."""
    with tempfile.TemporaryDirectory() as folder:
        texts = {name: os.path.join(folder, name) for name in ("small", "text", "other", "words", "fewer")}
        for name, lines in (("small", 1), ("text", 20000), ("other", 19999)):
            with open(texts[name], "w") as f:
                f.write("a b c d\n" * lines)
        run(SHOAL, "word2vec", "train", "-train", texts["text"], "-save-vocab", texts["words"])
        with open(texts["fewer"], "w") as f:
            f.write("</s> 9\na 8\n")

        def fails(*said, every=(), first=(), second=()):
            command = [SHOAL, "word2vec", "train", "-output", f"{folder}/out", "-min-count", "1", *every]
            program = ('case "$*" in *--task_index=0*) shift; exec "$@" %s;; *) shift; exec "$@" %s;; esac' %
                       (" ".join(first), " ".join(second)))
            p = subprocess.run([SHOAL, "launch", "--ps=0", "--workers=2", "--", "sh", "-c", program, "sh", "-", *command],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False)
            assert p.returncode != 0 and all(text in p.stdout for text in said), (said, p.returncode, p.stdout)
            assert not os.path.exists(f"{folder}/out")

        text = ["-train", texts["text"]]
        fails("too small for 2 workers: 1 will do", "worker 1 has failed", every=["-train", texts["small"]])
        fails("worker 1 has failed", every=text, second=["-classes", "90"])
        fails("worker 0 has failed", every=text, first=["-save-vocab", folder + "/nowhere/words"])
        fails("worker 1 has failed", every=text, first=["-read-vocab", texts["words"]], second=["-read-vocab", folder + "/none"])
        fails("worker 0 has no -read-vocab, worker 1 a -read-vocab", every=text, second=["-read-vocab", texts["words"]])
        fails("a -read-vocab of 2 words", every=text, first=["-read-vocab", texts["words"]], second=["-read-vocab", texts["fewer"]])
        fails("worker 0 has -iter 2, worker 1 -iter 5", every=text, first=["-iter", "2"])
        fails("worker 0 has -train of 160000 bytes, worker 1 -train of 159992", first=text, second=["-train", texts["other"]])


def stopped_while_waiting():
    """Stopped while it waits. One signal ends a task whose others have not come, or stand still when all are to meet."""
    with tempfile.TemporaryDirectory() as folder:
        text = make_text(folder)[0][7:]
        hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))

        def task(i):
            return subprocess.Popen([SHOAL, "word2vec", "train", "-train", text, "-output", f"{folder}/vectors", "-iter",
                                     "1000000", "--meetings=100", "--job_name=worker", f"--worker_hosts={hosts}",
                                     f"--task_index={i}", "-debug", "2"],
                                    stdout=subprocess.DEVNULL, stderr=open(f"{folder}/said{i}", "w"), text=True)

        def told(p, i):
            p.send_signal(signal.SIGINT)
            p.wait(PATIENCE / 4)
            with open(f"{folder}/said{i}") as f:
                said = f.read()
            assert p.returncode == 75 and "CANCELLED" in said, (p.returncode, said)

        first = task(0)
        time.sleep(1)
        told(first, 0)
        first, second = task(0), task(1)
        until(lambda: "words/s" in open(f"{folder}/said0").read() or first.poll() is not None)
        second.send_signal(signal.SIGSTOP)
        time.sleep(2)
        told(first, 0)
        second.kill()
        second.wait()


def mistakes():
    """Mistakes. Each is told by its name."""
    with tempfile.TemporaryDirectory() as folder:
        flags, strange = make_text(folder), os.path.join(folder, "strange")
        with open(strange, "wb") as f:
            f.write(b"words that\nnobody knows\n" * 50000)
        for wrong, words in ((["--loss=max"], "--loss is negative or nce"), (["--sync_replicas"], "for a cluster"),
                             (["--window=0"], "--window=0: expected"), (["--text=/there/is/none"], "No such file"),
                             (["--vocab=" + flags[0][7:]], "WORD COUNT"),
                             (["--text=" + strange], "hardly a line with two words")):
            p = subprocess.run([EXAMPLE, *flags, *wrong], capture_output=True, text=True, timeout=60, check=False)
            assert p.returncode in (1, 2) and words in p.stderr, (wrong, p.returncode, p.stderr)


if __name__ == "__main__":
    sys.exit(report([(f.__doc__.split(".")[0], f) for f in (
        alone, asynchronous, in_step, contrastive, bag_of_words, several_hosts, one_cannot_begin, stopped_while_waiting,
        mistakes)]))
