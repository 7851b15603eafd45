"""Word vectors on a parameter server and two workers, asynchronous: examples/word2vec.c on Shoal's servers beside the
same graph as a TensorFlow program on TensorFlow's, in turns; and that program on Shoal's servers.

  bench/word2vec_ps.py [--build DIR] [--words N] [--batch N] [--steps N] [--rounds N]

The TensorFlow program is fed pairs that were made before; the C program takes its own from a text as it goes. Printed:
pairs a second of both workers, medians and spread; pairs for each second of a processor, in all tasks and
clients; and how many times the first line each is."""
import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tests", folder) for folder in ("cluster", "interop")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

WIDTH, SAMPLED = 100, 64


def write_text(folder, o):
    rng = np.random.default_rng(1)
    share = 1 / np.arange(1, o.words)
    ids = rng.choice(o.words - 1, 500000, p=share / share.sum())
    text, vocab = os.path.join(folder, "text"), os.path.join(folder, "words")
    with open(text, "w") as f:
        f.writelines(" ".join(f"w{x}" for x in ids[i:i + 20]) + "\n" for i in range(0, len(ids), 20))
    with open(vocab, "w") as f:
        counts = np.maximum(500000 * share / share.sum(), 1).astype(int)
        f.write("</s> 25000\n" + "".join(f"w{i} {n}\n" for i, n in enumerate(counts)))
    return text, vocab


def c_program(o, files):
    command = [os.path.join(o.build, "shoal"), "launch", "--ps=1", "--workers=2", "--",
               os.path.join(o.build, "examples", "word2vec"), "--text=" + files[0], "--vocab=" + files[1],
               f"--batch_size={o.batch}", f"--train_steps={2 * o.steps}", f"--size={WIDTH}", f"--num_sampled={SAMPLED}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return sum(float(x) for x in re.findall(r"([\d.]+) pairs/s", said)), 2 * o.steps * o.batch / used


def build(tf, o, counts, task):
    with tf.Graph().as_default() as g, tf.device(tf.train.replica_device_setter(
            ps_tasks=1, worker_device=f"/job:worker/task:{task}")):
        step = tf.train.get_or_create_global_step()
        small = tf.random_uniform_initializer(-0.005, 0.005)
        table = tf.get_variable("embeddings", [o.words, WIDTH], initializer=small)
        weights = tf.get_variable("weights", [o.words, WIDTH], initializer=tf.zeros_initializer())
        x, y = tf.placeholder(tf.int64, [o.batch]), tf.placeholder(tf.int64, [o.batch, 1])
        draw = tf.nn.fixed_unigram_candidate_sampler
        drawn = draw(y, 1, SAMPLED, False, o.words, distortion=0.75, unigrams=counts)[0]
        at, there = tf.nn.embedding_lookup(table, x), tf.nn.embedding_lookup(weights, tf.reshape(y, [-1]))
        far = tf.matmul(at, tf.nn.embedding_lookup(weights, drawn), transpose_b=True)
        near = tf.reduce_sum(at * there, 1)
        loss = tf.reduce_sum(tf.nn.softplus(-near)) + tf.reduce_sum(tf.nn.softplus(far)) * (5 / SAMPLED)
        rate = tf.train.polynomial_decay(0.05, step, 1000000, 5e-6)
        train = tf.train.GradientDescentOptimizer(rate).minimize(loss, step)
        return g, tf.global_variables_initializer(), x, y, loss, train


class Program:
    """The TensorFlow program, a session for each worker."""

    def __init__(self, o, kind, counts):
        import tensorflow.compat.v1 as tf
        from cluster import Cluster
        tf.disable_v2_behavior()
        self.o, self.cluster = o, Cluster((), ps=[kind], worker=[kind, kind])
        self.cluster.__enter__()
        self.workers = []
        rng = np.random.default_rng(2)
        share = np.array(counts) / np.sum(counts)
        self.pairs = [rng.choice(o.words, (o.batch, 2), p=share) for _ in range(32)]
        for task in (0, 1):
            g, init, *model = build(tf, o, counts, task)
            s = tf.Session(self.cluster.target("worker", task), graph=g)
            if task == 0:
                s.run(init)
            self.workers.append((s, model))
            self.steps(task, 5)

    def steps(self, task, n):
        s, (x, y, loss, train) = self.workers[task]
        for i in range(n):
            p = self.pairs[i % len(self.pairs)]
            s.run([loss, train], {x: p[:, 0], y: p[:, 1:]})

    def used(self):
        """Seconds of processors, of all tasks and of this process."""
        total = time.process_time()
        for task in self.cluster.tasks.values():
            with open(f"/proc/{task.process.pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def run(self):
        threads = [threading.Thread(target=self.steps, args=(task, self.o.steps)) for task in (0, 1)]
        begun, before = time.time(), self.used()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        pairs = 2 * self.o.steps * self.o.batch
        return pairs / (time.time() - begun), pairs / (self.used() - before)

    def end(self):
        for s, _ in self.workers:
            s.close()
        self.cluster.__exit__()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    p.add_argument("--words", type=int, default=20000)
    p.add_argument("--batch", type=int, default=128)  # as in TensorFlow's tutorial
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--rounds", type=int, default=3)
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = write_text(folder, o)
        with open(files[1]) as f:
            counts = [float(line.split()[1]) for line in f]
        tensorflow, mixed = Program(o, "tf", counts), Program(o, "shoal", counts)
        sides = {"TensorFlow's program and servers": tensorflow.run, "TensorFlow's program, Shoal's servers": mixed.run,
                 "examples/word2vec.c": lambda: c_program(o, files)}
        found = {name: [] for name in sides}
        for _ in range(o.rounds):
            for name, run in sides.items():
                found[name].append(run())
        tensorflow.end()
        mixed.end()
    middle = {name: [statistics.median(r[i] for r in rates) for i in (0, 1)] for name, rates in found.items()}
    first = next(iter(middle.values()))
    for name, (rate, work) in middle.items():
        spread = [r[0] for r in found[name]]
        print(f"{name:38}{rate:10,.0f} pairs/s ({min(spread):,.0f} to {max(spread):,.0f}) {rate / first[0]:5.2f}x"
              f"{work:12,.0f} a second of a processor {work / first[1]:5.2f}x")


if __name__ == "__main__":
    main()
