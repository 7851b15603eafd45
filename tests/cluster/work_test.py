"""Work that workers share (shoal/work.h): items are handed out once; a worker that is killed and comes again goes on in its
item, one that stays away loses it to the chief, a run that was stopped goes on from its checkpoint. Every number is used
exactly once throughout.

The workers are tests/programs/work_trainer.c; the parameter server is `shoal server`. Workers are killed between two
steps: a step under way may be done by halves, as everywhere.
"""
# needs: tensorflow
# under sanitizers: alone | shared | killed and back
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cluster import SHOAL, TF_SERVER, forked, free_ports, report

TRAINER = os.path.join(os.path.dirname(SHOAL), "tests", "programs", "work_trainer")
RETRY = 75


class Process:
    def __init__(self, command, log):
        self.log = log
        with open(log, "w", encoding="utf-8") as f:
            self.p = forked.start(command, f)

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def steps(self):
        return self.text().count("used ")

    def past(self, steps):
        end = time.time() + 120
        while self.steps() < steps:
            assert time.time() < end and self.p.poll() is None, self.text()
            time.sleep(0.01)
        return self

    def kill(self, sig=signal.SIGKILL):
        self.p.send_signal(sig)
        return self.p.wait(120)


class Run:
    def __init__(self, workers=2, items=8, rows=9, flags=(), tensorflow=False, begin=2):
        ports = [f"127.0.0.1:{p}" for p in free_ports(workers + 1)]
        self.spec = json.dumps({"ps": ports[:1], "worker": ports[1:]})
        self.folder = tempfile.mkdtemp(prefix="shoal-work-")
        self.flags = [f"--items={items}", f"--rows={rows}", f"--checkpoint_dir={self.folder}/out", *flags]
        self.numbers = items * rows
        self.all = []
        self.ps = self.start_ps() if not tensorflow else self.start([sys.executable, "-c", TF_SERVER, json.dumps(
            {"ps": {0: ports[0]}, "worker": dict(enumerate(ports[1:]))}), "ps", "0"])
        self.workers = [self.worker(i) for i in range(begin)]

    def start(self, command):
        p = Process(command, os.path.join(self.folder, f"{len(self.all)}.log"))
        self.all.append(p)
        return p

    def start_ps(self):
        return self.start([SHOAL, "server", f"--cluster_spec={self.spec}", "--job_name=ps", "--task_index=0"])

    def worker(self, i):
        return self.start([TRAINER, f"--cluster={self.spec}", f"--task={i}", *self.flags])

    def ends_well(self, chief):
        assert chief.p.wait(120) == 0, chief.text()
        assert f"counted 1 to 1 of {self.numbers}\n" in chief.text(), chief.text()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.all:
            if p.p.poll() is None:
                p.p.kill()
                p.p.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def alone():
    """Without a cluster, and once more: nothing is left to do."""
    with tempfile.TemporaryDirectory() as folder:
        command = [TRAINER, "--items=5", "--rows=7", f"--checkpoint_dir={folder}/out"]
        for steps in (15, 0):
            p = subprocess.run(command, capture_output=True, text=True, check=False)
            assert p.returncode == 0 and "counted 1 to 1 of 35\n" in p.stdout, (p.stdout, p.stderr)
            assert p.stdout.count("used ") == steps, p.stdout


def more_items():
    """A run that goes on with more items has the new ones done; with fewer it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        command = [TRAINER, "--rows=7", "--numbers=35", f"--checkpoint_dir={folder}/out"]
        for items, steps in ((2, 6), (5, 9), (5, 0)):
            p = subprocess.run([*command, f"--items={items}"], capture_output=True, text=True, check=False)
            assert p.returncode == 0 and p.stdout.count("used ") == steps, (p.stdout, p.stderr)
        assert "counted 1 to 1 of 35\n" in p.stdout, p.stdout
        p = subprocess.run([*command, "--items=4"], capture_output=True, text=True, check=False)
        assert p.returncode == 1 and "has 5 items already, more than the 4 of this program" in p.stderr, (p.stdout, p.stderr)


def more_items_shared():
    """The same on a cluster, the worker before the chief."""
    with Run(items=2, flags=["--numbers=72"]) as r:
        assert r.workers[0].p.wait(120) == 0 and r.workers[1].p.wait(60) == 0, r.workers[0].text()
        r.ps.kill(signal.SIGTERM)
        r.ps = r.start_ps()
        r.flags[0], r.numbers = "--items=8", 72
        again = [r.worker(i) for i in (1, 0)]
        r.ends_well(again[1])


def shared():
    """Both workers do some of it, and no item is both's."""
    with Run(flags=["--step_ms=30"]) as r:
        r.ends_well(r.workers[0])
        assert r.workers[1].p.wait(60) == 0, r.workers[1].text()
        items = [{int(v) // 9 for v in re.findall(r"used (\d+)", w.text())} for w in r.workers]
        assert all(items) and not items[0] & items[1], items


def killed_and_back():
    """A worker killed in the middle of an item goes on in it."""
    with Run(flags=["--step_ms=200"], items=6) as r:
        r.workers[1].past(2).kill()
        last = int(re.findall(r"used (\d+)", r.workers[1].text())[-1])
        again = r.worker(1).past(1)
        assert int(re.search(r"used (\d+)", again.text()).group(1)) == last + 3, (last, again.text())
        r.ends_well(r.workers[0])


def killed_for_good():
    """The chief finishes what it left."""
    with Run(flags=["--step_ms=100", "--lease=2"], items=4) as r:
        r.workers[1].past(1).kill()
        last = int(re.findall(r"used (\d+)", r.workers[1].text())[-1])
        r.ends_well(r.workers[0])
        assert "by worker 1, after" in r.workers[0].text(), r.workers[0].text()
        assert f"used {last}\n" not in r.workers[0].text() and f"used {last + 3}\n" in r.workers[0].text(), (
            last, r.workers[0].text())


def chief_killed():
    with Run(flags=["--step_ms=100"], items=6) as r:
        r.workers[0].past(2).kill()
        r.ends_well(r.worker(0))


def stopped():
    """All of it told to stop, and begun again from the checkpoint by other processes."""
    with Run(flags=["--step_ms=100"], items=6) as r:
        r.workers[1].past(2)
        assert r.workers[0].past(2).kill(signal.SIGTERM) == RETRY, r.workers[0].text()
        assert r.workers[1].p.wait(60) == RETRY, r.workers[1].text()
        r.ps.kill(signal.SIGTERM)
        r.ps = r.start_ps()
        again = [r.worker(i) for i in range(2)]
        r.ends_well(again[0])


def stopped_while_the_chief_waits():
    """A worker is told to stop, and the chief, which waits for its item, hears of it."""
    with Run(flags=["--step_ms=150", "--lease=100"], items=2, rows=30, begin=1) as r:
        late = (r.workers[0].past(6), r.worker(1))[1]
        r.workers[0].past(10)
        late.past(1)
        assert late.kill(signal.SIGTERM) == RETRY, late.text()
        assert r.workers[0].p.wait(60) == RETRY, r.workers[0].text()
        again = [r.worker(i) for i in range(2)]
        r.ends_well(again[0])


def on_tensorflow():
    """The parameter server is TensorFlow's."""
    with Run(flags=["--step_ms=200"], items=6, tensorflow=True) as r:
        r.workers[1].past(2).kill()
        r.worker(1)
        r.ends_well(r.workers[0])


if __name__ == "__main__":
    sys.exit(report([(fn.__name__.replace("_", " "), fn) for fn in [
        alone, more_items, more_items_shared, shared, killed_and_back, killed_for_good, chief_killed, stopped,
        stopped_while_the_chief_waits, on_tensorflow]]))
