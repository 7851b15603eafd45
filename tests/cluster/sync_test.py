"""Training over parameter servers with real processes: asynchronous, with tokens (TensorFlow's workers among ours),
strict and with bounded staleness; workers that are killed, that run out of data, that come back."""
# needs: tensorflow
# on the soft device: asynchronous, two | tokens: | strict: | bounded staleness | every mode
# long on the soft device; in short: tokens: one worker
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np
from cluster import PATIENCE, ROOT, Task, forked, free_ports, report, until

BUILD = os.environ.get("SHOAL_BUILD", os.path.join(ROOT, "build"))
TRAINER = os.path.join(BUILD, "tests", "programs", "sync_trainer")
TF_WORKER = os.path.join(ROOT, "tests", "cluster", "sync_tf_worker.py")
BATCH, IN, OUT, ROWS = 8, 4, 3, 12
RETRY = 75


def number(task, batch, n):
    i = np.arange(n, dtype=np.int64)
    n = (task * 7919 + batch * 104729 + i * 15487 + 13) % 1000
    return (n / np.float32(500) - np.float32(1)).astype(np.float32)


def make_batch(task, batch):
    i = np.arange(BATCH)
    return (number(task, batch, BATCH * IN).reshape(BATCH, IN),
            number(task + 100, batch, BATCH * OUT).reshape(BATCH, OUT),
            (task * 5 + batch * 3 + i * i) % ROWS)


def initial():
    return number(50, 0, IN * OUT).reshape(IN, OUT), number(60, 0, ROWS * OUT).reshape(ROWS, OUT)


def reference(workers, steps, rate=0.2, same=False):
    """The same training in one process: each step on the batches of all workers, joined."""
    w, table = (v.astype(np.float64) for v in initial())
    for k in range(steps):
        x, y, ids = (np.concatenate(p) for p in zip(*[make_batch(t, 0 if same else k) for t in range(workers)]))
        d = 2 * (x @ w + table[ids] - y) / y.size
        w = w - rate * x.T @ d
        np.subtract.at(table, ids, rate * d)
    return w, table


class Job:
    """Parameter servers that run, and the workers of a test."""

    def __init__(self, workers, ps=("shoal",)):
        ports = free_ports(workers + len(ps))
        self.spec = {"ps": {str(i): f"127.0.0.1:{p}" for i, p in enumerate(ports[:len(ps)])},
                     "worker": {str(i): f"127.0.0.1:{p}" for i, p in enumerate(ports[len(ps):])}}
        self.ps = [Task(kind, self.spec, "ps", i) for i, kind in enumerate(ps)]
        self.n_workers, self.workers, self.logs = workers, {}, {}

    def __enter__(self):
        for t in self.ps:
            t.start()
        for t in self.ps:
            t.wait()
        return self

    def __exit__(self, *_):
        for p in self.workers.values():
            if p.poll() is None:
                p.send_signal(signal.SIGCONT)
                p.kill()
            p.wait()
        for t in self.ps:
            t.end()

    def start(self, task, mode, program=None, **options):
        log = tempfile.NamedTemporaryFile("w+", prefix=f"worker{task}-", suffix=".log")
        options = {"workers": self.n_workers, "ps": len(self.ps), "aggregate": self.n_workers, **options}
        cluster = json.dumps({j: [t[str(i)] for i in range(len(t))] for j, t in self.spec.items()})
        command = [*(program or [TRAINER]), cluster,
                   str(task), mode, *[f"{k}={v}" for k, v in options.items()]]
        self.workers[task] = forked.start(command, log)
        self.logs[task] = log
        return self

    def text(self, task):
        with open(self.logs[task].name, errors="replace") as f:
            return f.read()

    def steps(self, task):
        return self.text(task).count("\nstep ") + self.text(task).startswith("step ")

    def wait_steps(self, task, n, seconds=240):
        end = time.time() + seconds
        while self.steps(task) < n:
            assert time.time() < end and self.workers[task].poll() is None, f"worker {task}: {self.text(task)}"
            time.sleep(0.01)

    def finish(self, *tasks, seconds=240):
        """Waits for workers to end well; their results."""
        end = time.time() + seconds
        for t in tasks or list(self.workers):
            try:
                code = self.workers[t].wait(max(0.1, end - time.time()))
            except subprocess.TimeoutExpired:
                everything = "\n".join(f"--- {k}\n{self.text(k)[-1500:]}" for k in self.logs)
                raise AssertionError(f"worker {t} does not end\n{everything}")
            assert code == 0, f"worker {t}: exit {code}\n{self.text(t)}"
        return [result(self.text(t)) for t in tasks or list(self.workers)]


def result(text):
    r = {}
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["done"]:
            r["step"], r["stale"] = int(words[1]), int(words[2])
        elif words[:1] in (["w"], ["table"]):
            r["bits " + words[0]] = line
            values = [struct.unpack("<f", struct.pack("<I", int(h, 16)))[0] for h in words[1:]]
            r[words[0]] = np.array(values, np.float32).reshape(-1, OUT)
    return r


def near(r, want, tolerance=2e-5):
    np.testing.assert_allclose(r["w"], want[0], atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(r["table"], want[1], atol=tolerance, rtol=tolerance)


# ---- tests ----

def asynchronous():
    with Job(2) as job:
        a, b = job.start(0, "async", steps=60).start(1, "async", steps=60).finish()
        assert a["step"] >= 60 and b["step"] >= 60
        start, end = initial(), reference(2, 60)
        assert np.abs(b["w"] - end[0]).max() < np.abs(start[0] - end[0]).max()


def asynchronous_as_tensorflow():
    """Two workers of each kind on servers of their own, in whatever order their steps come: both end up in the same
    place, as far as a constant learning rate lets them stand still. All have the same data, since one of
    TensorFlow's may come when the other has done most of the work."""
    ends = []
    for kind, program in (("shoal", None), ("tf", [sys.executable, TF_WORKER])):
        with Job(2, ps=(kind,)) as job:
            for t in range(2):
                job.start(t, "async", program, steps=300, sleep=3, data=0)
            ends.append(job.finish()[0])
    for name, start in zip(("w", "table"), initial()):
        moved = np.linalg.norm(start - ends[1][name])
        assert np.linalg.norm(ends[0][name] - ends[1][name]) < 0.5 * moved, (name, moved)


def tokens_two_workers():
    """Both finish, and the variables stay finite."""
    with Job(2, ps=("shoal", "shoal")) as job:
        results = job.start(0, "tokens", steps=30).start(1, "tokens", steps=30).finish()
        assert all(r["step"] >= 30 for r in results), results
        assert np.isfinite(results[0]["w"]).all()


def tokens_one_worker_is_sgd():
    with Job(1) as job:
        r, = job.start(0, "tokens", steps=20, tokens=-1).finish()
        near(r, reference(1, r["step"]))


def state(job):
    """What the parameter server holds now."""
    import tensorflow.compat.v1 as tf
    tf.disable_eager_execution()
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        w, table = (tf.get_variable(n, v.shape, use_resource=True) for n, v in zip(("w", "table"), initial()))
        step = tf.train.get_or_create_global_step()
        config = tf.ConfigProto(device_filters=["/job:ps"])
        with tf.Session("grpc://" + job.spec["ps"]["0"], config=config) as s:
            r = s.run({"w": w, "table": table})
            return {**r, "step": int(s.run(step))}


def tokens_as_tensorflow():
    """Two workers, both needed for a step, the same batch again and again, so that it is all the same whose gradients
    make a step: SyncReplicasOptimizer on TensorFlow's servers and ours on ours come by the same points."""
    for kind, program in (("shoal", None), ("tf", [sys.executable, TF_WORKER])):
        with Job(2, ps=(kind,)) as job:
            for t in range(2):
                job.start(t, "tokens", program, steps=25, data=0, same=1)
            job.finish(0)
            job.workers[1].kill()  # one of TensorFlow's may wait for a token still
            job.workers[1].wait()
            r = state(job)
            assert r["step"] >= 25, r
            near(r, reference(1, r["step"], same=True))


def strict_is_the_joined_batch():
    with Job(3, ps=("shoal", "shoal")) as job:
        for t in range(3):
            job.start(t, "strict", steps=15)
        for r in job.finish():
            assert r["step"] == 15
            near(r, reference(3, 15))


def strict_is_bit_identical():
    bits = []
    for naps in ((0, 7, 0), (3, 0, 11)):
        with Job(3, ps=("shoal", "shoal")) as job:
            for t in range(3):
                job.start(t, "strict", steps=25, adam=1, sleep=naps[t])
            results = job.finish()
        bits.append([(r["bits w"], r["bits table"]) for r in results])
        assert len(set(bits[-1])) == 1, "workers see different variables after the last step"
    assert bits[0] == bits[1]


def strict_uneven_data():
    """A worker that runs out of data leaves; the others go on without it."""
    with Job(2) as job:
        a, b = job.start(0, "strict", steps=30).start(1, "strict", steps=30, batches=7).finish()
        assert a["step"] == 30 and b["step"] >= 7


def ends_on_time():
    """The step that training ends at is the one that is saved, and the one that the parameter server is left at; where
    workers apply their gradients by themselves, each may have one under way when it learns of the end."""
    for mode, workers, late in (("strict", 1, 0), ("strict", 3, 0), ("tokens", 2, 0), ("bounded", 2, 2), ("async", 2, 2)):
        with Job(workers) as job, tempfile.TemporaryDirectory() as d:
            for t in range(workers):
                job.start(t, mode, steps=20, dir=d, staleness=2, lease=60000)
            job.finish()
            left = state(job)
            with open(os.path.join(d, "checkpoint")) as f:
                saved = int(f.readline().rsplit("-", 1)[1].strip().strip('"'))
            assert 20 <= left["step"] <= 20 + late, f"{mode}: the ps is left at {left['step']}"
            assert 20 <= saved <= 20 + late, f"{mode}: saved at {saved}"
            if mode == "strict":
                near(left, reference(workers, 20))


def strict_killed_and_back():
    """They take their time until the one that was killed has done some steps more."""
    with Job(3) as job, tempfile.TemporaryDirectory() as d:
        pace = os.path.join(d, "pace")
        options = dict(program=["env", f"SYNC_PACE={pace}", TRAINER], steps=400, sleep=100, lease=1500)
        for t in range(3):
            job.start(t, "strict", **options)
        job.wait_steps(2, 5)
        job.workers[2].send_signal(signal.SIGKILL)
        job.workers[2].wait()
        before = job.steps(0)
        job.wait_steps(0, before + 5)
        job.start(2, "strict", **options)
        job.wait_steps(2, 5)
        open(pace, "w").close()
        for r in job.finish():
            assert r["step"] == 400


def tokens_killed():
    """A worker killed with a token in its hand does not stop the others, and comes back."""
    with Job(2) as job:
        for t in range(2):
            job.start(t, "tokens", steps=200, sleep=10, lease=1000)
        job.wait_steps(1, 10)
        job.workers[1].send_signal(signal.SIGKILL)
        job.workers[1].wait()
        before = job.steps(0)
        job.wait_steps(0, before + 20)
        job.start(1, "tokens", steps=200, sleep=10, lease=1000)
        job.finish()


def tokens_uneven_data():
    with Job(2) as job:
        a, b = job.start(0, "tokens", steps=40).start(1, "tokens", steps=40, batches=5).finish()
        assert a["step"] >= 40


def tokens_chief_ends_first():
    """The chief runs out of data: the other goes on while gradients come, and is told when they do not."""
    with Job(2) as job:
        a, b = job.start(0, "tokens", steps=40, batches=5).start(1, "tokens", steps=40).finish()
        assert b["step"] >= 40, b
        # A second run on the same servers finds the queue closed and makes a new one.
        job.start(0, "tokens", steps=90).start(1, "tokens", steps=90).finish()


def tokens_backup_worker():
    """Two of three gradients make a step; the slow one's are dropped, and counted."""
    with Job(3) as job, tempfile.TemporaryDirectory() as d:
        pace = os.path.join(d, "pace")
        for t in range(3):  # the first two take their time until the slow one is there
            job.start(t, "tokens", ["env", "SYNC_PACE=" + (pace if t < 2 else ""), TRAINER], steps=300, aggregate=2,
                      sleep=60 if t == 2 else 500)
        job.wait_steps(2, 2)
        open(pace, "w").close()
        results = job.finish()
        assert results[2]["stale"] > 0, results


def too_late(mode):
    """A worker that comes when the others are through has nothing left to do, and ends well."""
    with Job(2) as job:
        job.start(0, mode, steps=20, lease=1000).finish(0)
        r, = job.start(1, mode, steps=20, lease=1000).finish(1)
        assert r["step"] >= 20 and job.steps(1) == 0, job.text(1)


def chief_killed(mode):
    """The others wait for the chief; when it is back it finds the variables alive and goes on from them."""
    with Job(2) as job, tempfile.TemporaryDirectory() as d:
        for t in range(2):
            job.start(t, mode, steps=150, sleep=10, lease=1500, dir=d)
        job.wait_steps(1, 30)
        job.workers[0].send_signal(signal.SIGKILL)
        job.workers[0].wait()
        time.sleep(0.5)
        job.start(0, mode, steps=150, sleep=10, lease=1500, dir=d)
        for r in job.finish():
            assert r["step"] >= 150, r


def ends_with(job, task, code, said, seconds=PATIENCE):
    try:
        got = job.workers[task].wait(seconds)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"worker {task} does not end\n{job.text(task)[-1500:]}") from None
    assert got == code and said in job.text(task), f"worker {task}: exit {got}\n{job.text(task)}"


def chief_gone(mode, told):
    """A worker whose chief was killed and does not come back: it says so, and gives up after the time it was given; told
    to stop, it does that at once."""
    with Job(2) as job:
        for t in range(2):
            job.start(t, mode, steps=100000, sleep=10, lease=1500, wait=1000 if told else 15)
        job.wait_steps(1, 10)
        job.workers[0].send_signal(signal.SIGKILL)
        job.workers[0].wait()
        if told:
            time.sleep(1)
            job.workers[1].send_signal(signal.SIGTERM)
            ends_with(job, 1, RETRY, "CANCELLED: told to stop")
        else:
            ends_with(job, 1, 1, "DEADLINE_EXCEEDED: no token for the next step: the chief has given no sign of life")


def worker_gone(mode, **options):
    """A worker is killed and does not come back: the others come to their end, the chief too."""
    with Job(3) as job:
        for t in range(3):
            job.start(t, mode, steps=60, sleep=5, lease=1000, **options)
        job.wait_steps(2, 5)
        job.workers[2].send_signal(signal.SIGKILL)
        job.workers[2].wait()
        for r in job.finish(0, 1):
            assert r["step"] >= 60, r


def told_to_stop(mode, **options):
    """SIGTERM to one worker in the middle: both stop, with a checkpoint of what they have, and can be run again."""
    with Job(2) as job, tempfile.TemporaryDirectory() as d:
        for t in range(2):
            job.start(t, mode, steps=100000, sleep=5, lease=1500, dir=d, **options)
        job.wait_steps(1, 30)
        job.workers[1].send_signal(signal.SIGTERM)
        for t in range(2):
            ends_with(job, t, RETRY, "done")
        with open(os.path.join(d, "checkpoint")) as f:
            saved = int(f.read().split('model.ckpt-')[1].split('"')[0])
        assert saved >= 20, saved


def ps_killed(mode):
    """Training goes on from the last checkpoint by itself."""
    with Job(2) as job, tempfile.TemporaryDirectory() as d:
        for t in range(2):
            job.start(t, mode, steps=150, sleep=10, lease=1500, dir=d)
        job.wait_steps(1, 40)
        job.ps[0].kill()
        job.ps[0].process.wait()
        job.ps[0].start().wait()
        for r in job.finish():
            assert r["step"] >= 150, r


def bounded():
    with Job(2) as job:
        job.start(0, "bounded", steps=80, staleness=2).start(1, "bounded", steps=80, staleness=2, sleep=20)
        job.wait_steps(1, 15)
        for _ in range(20):
            first = job.steps(0)
            ahead = first - job.steps(1)
            # One for the step that worker 0 may be in, one that worker 1 has done and not told yet.
            assert ahead <= 2 + 1 + 1, f"worker 0 is {ahead} steps ahead"
            time.sleep(0.03)
        job.finish()


def bounded_killed():
    with Job(2) as job:
        job.start(0, "bounded", steps=200, staleness=2, lease=1000, sleep=5)
        job.start(1, "bounded", steps=200, staleness=2, lease=1000, sleep=5)
        job.wait_steps(1, 5)
        job.workers[1].send_signal(signal.SIGKILL)
        job.workers[1].wait()
        job.finish(0)


def bounded_too_late():
    """A worker that comes when all steps are taken says so: nobody waits a lease (here: an hour) for it."""
    with Job(3) as job:
        options = dict(steps=5, staleness=2, lease=3600000)
        job.start(0, "bounded", **options).wait_steps(0, 3)  # as far as it gets without the others
        job.start(1, "bounded", **options).finish(1)
        job.start(2, "bounded", **options).finish()


def tensorflow_worker_gone(how):
    """TensorFlow's worker under our chief, both needed for a step: it is killed with a token in its hand, or runs out of
    data and ends; ours goes on."""
    with Job(2) as job, tempfile.TemporaryDirectory() as d:
        go = os.path.join(d, "go")
        program = ["env", f"SYNC_GO={go}", sys.executable, TF_WORKER]
        more = dict(batches=5) if how == "leaves" else dict(sleep=20)
        job.start(1, "tokens", program, steps=100000, **more)
        until(lambda: "built" in job.text(1), 2 * PATIENCE, lambda: job.text(1))
        pace = os.path.join(d, "pace")  # the chief takes its time until the other has done its part
        job.start(0, "tokens", ["env", f"SYNC_PACE={pace}", TRAINER], steps=200, sleep=500, lease=1000)
        job.wait_steps(0, 1)
        open(go, "w").close()
        until(lambda: job.steps(1) >= 5, 2 * PATIENCE, lambda: job.text(1))
        if how == "killed":
            job.workers[1].send_signal(signal.SIGKILL)
        job.workers[1].wait(PATIENCE)
        open(pace, "w").close()
        r, = job.finish(0)
        assert r["step"] >= 200, r


def mixed(chief, ps, refs):
    """A worker of TensorFlow's takes seconds to start, and then half a minute if it finds the model not ready: so it is
    let go when the chief has begun, and the chief takes its time until the other has done a few steps."""
    tf_worker = [sys.executable, TF_WORKER]
    common = dict(steps=60, refs=refs)
    with Job(2, ps=ps) as job, tempfile.TemporaryDirectory() as d:
        go, pace = os.path.join(d, "go"), os.path.join(d, "pace")
        slow = ["env", f"SYNC_PACE={pace}"]
        if chief == "shoal":
            job.start(1, "tokens", ["env", f"SYNC_GO={go}", *tf_worker], sleep=20, **common)
            until(lambda: "built" in job.text(1), 240, lambda: job.text(1))
            job.start(0, "tokens", [*slow, TRAINER], sleep=500, **common)
            job.wait_steps(0, 1)
            open(go, "w").close()
        else:
            job.start(0, "tokens", [*slow, *tf_worker], sleep=500, **common)
            job.wait_steps(0, 1)
            job.start(1, "tokens", sleep=20, **common)
        until(lambda: job.steps(1) >= 3 or job.workers[1].poll() is not None, 240, lambda: job.text(1))
        open(pace, "w").close()
        for r in job.finish():
            assert r["step"] >= 60, r
        assert job.steps(0) >= 3 and job.steps(1) >= 3, "one of them did all the work"


TESTS = [("asynchronous, two workers", asynchronous),
         ("asynchronous, beside TensorFlow's workers on its own ps", asynchronous_as_tensorflow),
         ("tokens: two workers, two ps", tokens_two_workers),
         ("tokens: one worker is plain training", tokens_one_worker_is_sgd),
         ("tokens: numbers as SyncReplicasOptimizer's", tokens_as_tensorflow),
         ("tokens: a killed worker", tokens_killed), ("tokens: uneven data", tokens_uneven_data),
         ("tokens: the chief ends first", tokens_chief_ends_first), ("tokens: a backup worker", tokens_backup_worker),
         ("tokens: a worker that comes too late", lambda: too_late("tokens")),
         ("strict: a worker that comes too late", lambda: too_late("strict")),
         ("strict: equal to the joined batch", strict_is_the_joined_batch),
         ("strict: bit-identical", strict_is_bit_identical), ("strict: uneven data", strict_uneven_data),
         ("every mode ends on time", ends_on_time),
         ("strict: a killed worker comes back", strict_killed_and_back),
         ("tokens: the chief is killed and comes back", lambda: chief_killed("tokens")),
         ("strict: the chief is killed and comes back", lambda: chief_killed("strict")),
         ("tokens: the ps is killed and comes back", lambda: ps_killed("tokens")),
         ("strict: the ps is killed and comes back", lambda: ps_killed("strict")),
         ("tokens: the chief is killed for good", lambda: chief_gone("tokens", False)),
         ("strict: the chief is killed for good", lambda: chief_gone("strict", False)),
         ("tokens: told to stop while waiting for a chief", lambda: chief_gone("tokens", True)),
         ("strict: told to stop while waiting for a chief", lambda: chief_gone("strict", True)),
         ("tokens: a worker is killed for good", lambda: worker_gone("tokens")),
         ("strict: a worker is killed for good", lambda: worker_gone("strict")),
         ("bounded staleness: a worker is killed for good", lambda: worker_gone("bounded", staleness=2)),
         ("tokens: told to stop", lambda: told_to_stop("tokens")),
         ("strict: told to stop", lambda: told_to_stop("strict")),
         ("bounded staleness: told to stop", lambda: told_to_stop("bounded", staleness=2)),
         ("TensorFlow's worker killed with a token", lambda: tensorflow_worker_gone("killed")),
         ("TensorFlow's worker out of data", lambda: tensorflow_worker_gone("leaves")),
         ("bounded staleness: the chief is killed and comes back", lambda: chief_killed("bounded")),
         ("bounded staleness", bounded), ("bounded staleness: a killed worker", bounded_killed),
         ("bounded staleness: a worker comes too late", bounded_too_late),
         ("TensorFlow's worker under our chief, its ps", lambda: mixed("shoal", ("tf",), 0)),
         ("our worker under TensorFlow's chief, our ps, variables of TensorFlow 1", lambda: mixed("tf", ("shoal",), 1))]

if __name__ == "__main__":
    sys.exit(report(TESTS))
