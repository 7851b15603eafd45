"""Training survives: workers, the chief, parameter servers are killed, told to stop and started again; the run goes on
from where it was, or from its last checkpoint, and its three counters (two variables and the step) agree throughout.

The trainers are tests/programs/trainer.c; parameter servers are `shoal server`; TensorFlow reads their checkpoints.
"""
# needs: tensorflow
# long on the soft device; in short: worker killed
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster"))
from cluster import SHOAL, free_ports, report

TRAINER = os.path.join(os.path.dirname(SHOAL), "tests", "programs", "trainer")
RETRY = 75


class Process:
    def __init__(self, command, folder, name):
        self.log = os.path.join(folder, f"{name}.{time.time_ns()}.log")
        self.p = subprocess.Popen(command, stdout=open(self.log, "w"), stderr=subprocess.STDOUT)

    def text(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def until(self, pattern, seconds=240):
        """Waits for a line; its match."""
        end = time.time() + seconds
        while True:
            m = re.search(pattern, self.text())
            if m:
                return m
            if time.time() > end or (self.p.poll() is not None and not re.search(pattern, self.text())):
                raise AssertionError(f"no {pattern!r} in:\n{self.text()}")
            time.sleep(0.02)

    def ends(self, seconds=240):
        try:
            return self.p.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running:\n{self.text()}") from None

    def last_step(self):
        return int((re.findall(r"at step (\d+)", self.text()) or ["-1"])[-1])

    def past(self, step, seconds=240):
        end = time.time() + seconds
        while self.last_step() < step:
            if time.time() > end or self.p.poll() is not None:
                raise AssertionError(f"did not come to step {step}:\n{self.text()}")
            time.sleep(0.02)
        return self

    def kill(self, sig=signal.SIGKILL):
        self.p.send_signal(sig)
        return self


class Run:
    """One training run: 2 parameter servers, workers."""

    def __init__(self, workers=2, ps=2, steps=100000, server_flags=(), flags=()):
        ports = [f"127.0.0.1:{p}" for p in free_ports(workers + ps)]
        self.spec = {"ps": ports[:ps], "worker": ports[ps:]}
        self.folder = tempfile.mkdtemp(prefix="shoal-training-")
        self.dir = os.path.join(self.folder, "out")
        self.steps, self.server_flags, self.flags = steps, list(server_flags), list(flags)
        self.processes = []
        self.ps = [self.start_ps(i) for i in range(ps)]
        self.workers = [self.start_worker(i) for i in range(workers)]

    def add(self, command, name):
        p = Process(command, self.folder, name)
        self.processes.append(p)
        return p

    def start_ps(self, i):
        return self.add([SHOAL, "server", f"--cluster_spec={json.dumps(self.spec)}", "--job_name=ps",
                         f"--task_index={i}", *self.server_flags], f"ps{i}")

    def start_worker(self, i, steps=None):
        return self.add([TRAINER, f"--cluster={json.dumps(self.spec)}", f"--task={i}", f"--ps={len(self.spec['ps'])}",
                         f"--steps={steps or self.steps}", f"--checkpoint_dir={self.dir}", "--save_steps=50",
                         *self.flags], f"worker{i}")

    def stop(self):
        """Whoever is told ends all."""
        self.workers[0].kill(signal.SIGTERM)
        for w in self.workers:
            assert w.ends() == RETRY, w.text()

    def latest(self):
        """The step of the newest checkpoint."""
        with open(os.path.join(self.dir, "checkpoint")) as f:
            return int(re.search(r'model_checkpoint_path: "model.ckpt-(\d+)"', f.read()).group(1))

    def checkpoints(self):
        return sorted(int(re.search(r"-(\d+)\.index", n).group(1)) for n in os.listdir(self.dir) if n.endswith(".index"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.processes:
            if p.p.poll() is None:
                p.p.kill()
                p.p.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def agrees(worker, began=(0, 0, 0), torn=0):
    """The step at the end of a run, when its three counters grew alike since they were at began. A step that was under way
    when its master was killed, or when a checkpoint was written beside it, may have been done by halves: torn such steps."""
    m = re.search(r"stopping at step (\d+) own \d+ a (\d+) b (\d+)", worker.text())
    assert m, worker.text()
    grown = [int(m.group(i + 1)) - began[i] for i in range(3)]
    assert max(grown) - min(grown) <= torn, (began, worker.text())
    return int(m.group(1))


def counters(folder):
    """What the newest checkpoint has of the three."""
    saved = tf.train.load_checkpoint(folder)
    return [int(np.ravel(saved.get_tensor(name))[0]) for name in ("global_step", "a", "b")]


def worker_killed():
    with Run() as r:
        r.workers[1].past(100).kill().ends()
        here = r.workers[0].last_step()
        r.workers[0].past(here + 100)  # the others go on
        again = r.start_worker(1)
        again.until(r"made waited at step (\d+)")
        again.past(here + 150)
        assert "a task was lost" not in r.workers[0].text(), r.workers[0].text()


def chief_killed():
    with Run() as r:
        r.workers[0].past(120).kill().ends()
        r.workers[1].past(r.workers[1].last_step() + 60)
        again = r.start_worker(0, steps=1000)
        step = int(again.until(r"made rejoined at step (\d+)").group(1))
        assert step > r.latest() - 1, "nothing that was there may be thrown away"
        again.ends()
        agrees(again, torn=1)


def ps_killed():
    with Run() as r:
        r.workers[0].past(200)
        saved = r.latest()
        r.ps[0].kill().ends()
        r.start_ps(0)
        at = int(r.workers[0].until(r"made restored at step (\d+)").group(1))
        assert at >= saved, (at, saved)
        r.workers[1].until(r"(?s)lost.*made waited at step")
        r.workers[0].past(at + 500)
        r.stop()
        assert agrees(r.workers[0], torn=1) >= at + 500
        steps = [int(s) for s in re.findall(r"at step (\d+)", r.workers[0].text().split("made restored")[1])]
        assert steps == sorted(steps) and steps[0] >= at, steps


def every_ps_killed_twice():
    with Run(workers=1) as r:
        for _ in range(2):
            r.workers[0].past(r.workers[0].last_step() + 150)
            for i, p in enumerate(list(r.ps)):
                p.kill().ends()
                r.ps[i] = r.start_ps(i)
        r.workers[0].until(r"(?s)made restored.*made restored.*at step")
        r.stop()
        agrees(r.workers[0])


def all_killed():
    with Run() as r:
        r.workers[0].past(150)
        saved = r.latest()
        for p in r.processes:
            p.kill()
        for p in r.processes:
            p.ends()
        began = counters(r.dir)
        r.ps = [r.start_ps(i) for i in range(2)]
        r.workers = [r.start_worker(i, steps=saved + 200) for i in range(2)]
        assert int(r.workers[0].until(r"made restored at step (\d+)").group(1)) >= began[0] >= saved
        for w in r.workers:
            assert w.ends() == 0, w.text()
        agrees(r.workers[0], began)


def told_to_stop(which):
    """SIGTERM to one task: all stop, one last checkpoint, "run me again"; and so it goes on from there."""
    with Run() as r:
        r.workers[1].past(100)
        r.workers[0].past(100)
        victim = {"chief": r.workers[0], "worker": r.workers[1], "ps": r.ps[1]}[which]
        victim.kill(signal.SIGTERM)
        codes = [w.ends() for w in r.workers]
        assert codes == [RETRY, RETRY], (codes, r.workers[0].text(), r.workers[1].text())
        # What a worker reads when it stops may have half of another's last step; the checkpoint may not.
        at_end = r.latest()
        assert counters(r.dir) == [at_end] * 3, (counters(r.dir), at_end)
        assert at_end >= max(w.last_step() for w in r.workers), (at_end, r.workers[0].text(), r.workers[1].text())
        if which == "ps":
            assert victim.ends() == RETRY, victim.text()
        for p in r.ps:
            p.kill()
            p.ends()
        r.ps = [r.start_ps(i) for i in range(2)]
        r.workers = [r.start_worker(i, steps=at_end + 100) for i in range(2)]
        restored = int(r.workers[0].until(r"made restored at step (\d+)").group(1))
        assert restored >= at_end, (restored, at_end)  # more: the other worker was the first to step
        for w in r.workers:
            assert w.ends() == 0, w.text()
        assert agrees(r.workers[0]) >= at_end + 100


def chief_told_to_stop():
    told_to_stop("chief")


def worker_told_to_stop():
    told_to_stop("worker")


def ps_told_to_stop():
    told_to_stop("ps")


def ps_stays_away():
    with Run(workers=1, flags=["--max_wait=15"]) as r:  # also for the parameter servers, at the beginning
        r.workers[0].past(60)
        r.ps[0].kill().ends()
        assert r.workers[0].ends() == 1, r.workers[0].text()
        assert "DEADLINE_EXCEEDED: Session was not ready after waiting 15 secs" in r.workers[0].text(), r.workers[0].text()


def chief_stays_away():
    """A worker says what is missing, and gives up in time."""
    with Run(workers=0) as r:
        r.spec["worker"] = [f"127.0.0.1:{p}" for p in free_ports(2)]
        r.steps = 10
        for p in r.ps:
            p.kill()
            p.ends()
        r.ps = [r.start_ps(i) for i in range(2)]
        r.flags = ["--max_wait=7"]
        w = r.start_worker(1)
        assert w.ends() == 1
        assert re.search(r"waiting for \d+ s: Variables not initialized: global_step, a, b", w.text()), w.text()
        assert "Session was not ready after waiting 7 secs" in w.text(), w.text()


def told_to_stop_while_waiting():
    """A worker that waits, for the chief to make the model or for a parameter server that is not there, stops soon after
    SIGTERM, and asks to be run again. Unless told otherwise it waits five minutes for servers, longer for the chief."""
    for missing, patience in (("chief", 7200), ("ps", 300)):
        with Run(workers=0) as r:
            r.spec["worker"] = [f"127.0.0.1:{p}" for p in free_ports(2)]
            for p in r.ps:
                p.kill()
                p.ends()
            if missing == "chief":
                r.ps = [r.start_ps(i) for i in range(2)]
            r.flags = ["--max_wait=0"]
            w = r.start_worker(1)
            w.until(rf"waiting for \d+ s: .*; gives up after {patience} s")
            w.kill(signal.SIGTERM)
            assert w.ends() == RETRY, (missing, w.text())
            assert "CANCELLED: told to stop while waiting" in w.text(), w.text()


def no_shared_disk():
    """Parameter servers that cannot see the directory: the chief gathers what they have, and gives it back."""
    elsewhere = tempfile.mkdtemp()
    with Run(server_flags=[f"--file_root={elsewhere}"]) as r:
        r.workers[0].past(200)
        assert not [n for n in os.listdir(r.dir) if "-of-00002" in n], os.listdir(r.dir)
        assert [n for n in os.listdir(r.dir) if "data-00000-of-00001" in n], os.listdir(r.dir)
        saved = r.latest()
        r.ps[1].kill().ends()
        r.start_ps(1)
        assert int(r.workers[0].until(r"made restored at step (\d+)").group(1)) >= saved
        r.workers[0].past(saved + 100)
    shutil.rmtree(elsewhere)


def old_ones_go():
    with Run(workers=1, steps=600) as r:
        assert r.workers[0].ends() == 0, r.workers[0].text()
        kept = r.checkpoints()
        assert len(kept) == 5 and kept[-1] == 600 and r.latest() == 600, kept
        left = [n for n in os.listdir(r.dir) if "temp" in n]
        assert not left, left


if __name__ == "__main__":
    sys.exit(report([(fn.__name__.replace("_", " "), fn) for fn in [
        worker_killed, chief_killed, ps_killed, every_ps_killed_twice, all_killed, chief_told_to_stop,
        worker_told_to_stop, ps_told_to_stop, ps_stays_away, chief_stays_away, told_to_stop_while_waiting,
        no_shared_disk, old_ones_go]]))
