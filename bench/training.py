"""Training on parameter servers: C programs on Shoal's servers beside TensorFlow programs on TensorFlow's.

  python bench/training.py [--build build] [--before BUILD] [--only REGEX] [--rounds 7] [--starts 1] [--steps-for 0.5]
                           [--soak N] [--markdown]

A job is one parameter server and one or two workers, each a process that is server and client at once: train_worker.c
on our side, train_worker.py, the same model by tf.train, on the other. Both jobs stand; they take turns round by round,
so that a busy moment of the machine falls on both. In a round every worker runs the same number of steps on a batch
that is fed each time. Printed: the median of the rounds, their spread (half the distance between the quartiles, in
percent), how many times faster Shoal is, and what is aimed at. --soak N runs N steps and shows the memory.

--before BUILD has another build of Shoal, of an earlier commit say, in TensorFlow's place (`make bench-before`); what
is aimed at there is of the last commit before steps of clusters were compiled as local ones are, the default. Jobs
that are started once find places on the cores that they keep: --starts N starts them anew so often.
"""
import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "cluster"))

from cluster import free_ports
from run import print_row, spread


class Job:
    """A parameter server and workers."""

    def __init__(self, side, workers=2, **flags):
        ports = free_ports(1 + workers)
        command = [sys.executable, os.path.join(HERE, "train_worker.py")] if side == "tensorflow" else [
            os.path.join(BUILDS[side], "bench", "train_worker")]
        self.command = [*command, f"--ps_hosts=127.0.0.1:{ports[0]}",
                        "--worker_hosts=" + ",".join(f"127.0.0.1:{p}" for p in ports[1:]),
                        *(f"--{k}={v}" for k, v in flags.items())]
        self.side, self.step = side, 0
        self.in_step = flags.get("mode", "async") != "async"
        self.ps = self.workers = None
        self.start_ps()
        self.workers = [subprocess.Popen([*self.command, "--job_name=worker", f"--task_index={i}"], text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=ERRORS)
                        for i in range(workers)]
        self.answers()

    def start_ps(self):
        self.ps = subprocess.Popen([*self.command, "--job_name=ps"], stdout=subprocess.DEVNULL, stderr=ERRORS)

    def answers(self):
        lines = [w.stdout.readline() for w in self.workers]
        if not all(lines):
            raise RuntimeError(f"a worker of {self.side} ended: {self.command}")
        return [json.loads(line) for line in lines]

    def ask(self, command):
        for w in self.workers:
            w.stdin.write(command + "\n")
            w.stdin.flush()
        return self.answers()

    def run(self, steps):
        """The seconds that it took all workers. In step with each other, they run until the step counter is there: of a
        fixed number of steps the last might wait for ever for a worker that is done."""
        start = time.perf_counter()
        answers = self.ask(f"until {self.step + steps}" if self.in_step else f"run {steps}")
        took = time.perf_counter() - start
        self.step = max(a["step"] for a in answers)
        return took

    def resident(self):
        """MB of the parameter server and of worker 0."""
        def of(p):
            with open(f"/proc/{p.pid}/status") as f:
                return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024
        return of(self.ps), of(self.workers[0])

    def end(self):
        for w in self.workers:
            w.stdin.close()
        for p in [*self.workers, self.ps]:
            if p is self.ps or self.side == "tensorflow":
                p.kill() if self.side == "tensorflow" else p.terminate()
            try:
                p.wait(30)
            except subprocess.TimeoutExpired:
                p.kill()


def turns(jobs, rounds, seconds):
    """For each job, the seconds a step of all workers took, by rounds."""
    times, counts = {}, {}
    for name, job in jobs.items():
        job.run(5)
        counts[name] = max(3, min(5000, int(seconds / max(job.run(10) / 10, 1e-6))))
        times[name] = []
    for _ in range(rounds):
        for name, job in jobs.items():
            times[name].append(job.run(counts[name]) / counts[name])
    return times


def with_jobs(specs):
    """Starts jobs; ends them after use."""
    class Jobs:
        def __enter__(self):
            self.jobs = {}
            try:
                for name, (side, flags) in specs.items():
                    self.jobs[name] = Job(side, **flags)
            except BaseException:
                self.__exit__()
                raise
            return self.jobs

        def __exit__(self, *_):
            for job in self.jobs.values():
                job.end()
    return Jobs()


def row(*cells):
    print_row(list(cells), (58, 22, 22, 10, 16))


def rate(values, examples):
    return f"{examples / statistics.median(values):,.0f} ±{spread(values):.0f}%"


def beside(title, aim, unit="ex/s", since="", **flags):
    """Two workers, both sides. since: what is aimed at beside the commit before."""
    def case(args):
        ours, peers = [], []
        for _ in range(args.starts):
            with with_jobs({"shoal": ("shoal", flags), "peer": (args.peer, flags)}) as jobs:
                times = turns(jobs, args.rounds, args.steps_for)
            ours += times["shoal"]
            peers += times["peer"]
        examples = 2 * (flags["batch_size"] if unit == "ex/s" else 1)
        row(f"{title}, {unit}", rate(ours, examples), rate(peers, examples),
            f"{statistics.median(peers) / statistics.median(ours):.2f}x", aim if args.peer == "tensorflow" else since)
    return title, case


def strict(args):
    """Both ours."""
    flags = dict(model="mlp", batch_size=100)
    with with_jobs({mode: ("shoal", dict(flags, mode=mode)) for mode in ("strict", "sync")}) as jobs:
        times = turns(jobs, args.rounds, args.steps_for)
    ratio = statistics.median(times["sync"]) / statistics.median(times["strict"])
    row("strict beside sync: strict, sync, ex/s", rate(times["strict"], 200), rate(times["sync"], 200), f"{ratio:.2f}x",
        ">= 0.85x")


def scaling(args):
    """Both ours: two workers beside one, a thread each."""
    flags = dict(model="cnn", batch_size=128, threads=1)
    with with_jobs({n: ("shoal", dict(flags, workers=n)) for n in (1, 2)}) as jobs:
        times = turns(jobs, args.rounds, args.steps_for)
    row("CNN, a thread each: 2 workers, 1 worker, ex/s", rate(times[2], 256), rate(times[1], 128),
        f"{2 * statistics.median(times[1]) / statistics.median(times[2]):.2f}x", ">= 1.8x")


def loopback():
    with open("/proc/net/dev") as f:
        return int(re.search(r"lo:\s*(\d+)", f.read()).group(1))


def bytes_on_wire(args):
    """TensorFlow's and ours without the fast path, by the loopback's counter: nothing else may use it meanwhile."""
    cells = []
    for rows in (1000, 100):
        with with_jobs({"shoal": ("shoal", dict(model="embedding", batch_size=rows, fast_path="false"))}) as jobs:
            jobs["shoal"].run(10)
            before = loopback()
            jobs["shoal"].run(50)
            cells.append((loopback() - before) / 100)
    row("embedding: bytes on the wire a step, 1,000 and 100 rows", f"{cells[0]:,.0f}", f"{cells[1]:,.0f}",
        f"{cells[0] / cells[1]:.1f}x", "by rows")


def disk_speed(folder):
    """MB/s of writing 1 GB in one go, synced."""
    data = os.urandom(1 << 20)
    path = os.path.join(folder, "speed")
    start = time.perf_counter()
    with open(path, "wb") as f:
        for _ in range(1024):
            f.write(data)
        f.flush()
        os.fsync(f.fileno())
    took = time.perf_counter() - start
    os.unlink(path)
    return 1024 * 1.048576 / took


def saving(args):
    """1 GiB of variables, written behind the training."""
    folder = tempfile.mkdtemp(dir=args.disk)
    try:
        with with_jobs({"shoal": ("shoal", dict(workers=1, model="gigabyte"))}) as jobs:
            job = jobs["shoal"]
            job.run(50)
            usual = statistics.median(job.ask("run 20")[0]["slowest"] for _ in range(5))
            blocked, rates = [], []
            for i in range(3):
                disk = disk_speed(folder)
                start = time.perf_counter()
                first = job.ask(f"save {folder}/model-{i}")[0]["seconds"]
                slowest = job.ask("run 200")[0]["slowest"]
                job.ask("wait")
                took = time.perf_counter() - start
                blocked.append(max(first, slowest - usual))
                rates.append(1073.7 / took / disk)
                for name in os.listdir(folder):
                    os.unlink(os.path.join(folder, name))
        row("saving 1 GiB: longest pause; speed of the disk's", f"{statistics.median(blocked):.3f} s",
            f"{100 * statistics.median(rates):.0f} %", "", "<= 0.2 s, >= 70 %")
    finally:
        shutil.rmtree(folder)


def restart(args):
    """A parameter server is killed and started again: until the next step is applied."""
    folder = tempfile.mkdtemp()
    try:
        with with_jobs({"shoal": ("shoal", dict(model="mlp", checkpoint_dir=folder, save_steps=100))}) as jobs:
            job = jobs["shoal"]
            times = []
            for _ in range(3):
                job.run(300)
                job.ps.send_signal(signal.SIGKILL)
                job.ps.wait()
                start = time.perf_counter()
                job.start_ps()
                job.run(1)
                times.append(time.perf_counter() - start)
        row("a killed ps, started again: to the next step", f"{statistics.median(times):.2f} s", "", "", "<= 5 s")
    finally:
        shutil.rmtree(folder)


def soak(args):
    """Memory over many steps."""
    with with_jobs({"shoal": ("shoal", dict(model="mlp", batch_size=100))}) as jobs:
        job = jobs["shoal"]
        job.run(max(100, args.soak // 20))
        first = job.resident()
        job.run(args.soak // 2)
        last = job.resident()
    row(f"memory after {args.soak // 20 * 2:,} and {args.soak:,} steps: ps, worker",
        f"{first[0]:.1f}, {first[1]:.1f} MB", f"{last[0]:.1f}, {last[1]:.1f} MB", "", "flat")


CASES = [
    beside("MLP 784-100-10, asynchronous", ">= 4x", since=">= 1.25x", model="mlp", batch_size=100),
    beside("MLP 784-100-10, synchronous", ">= 4x", since=">= 1.25x", model="mlp", batch_size=100, mode="sync"),
    beside("MLP 784-2048-2048-10, asynchronous", ">= 1.3x", model="mlp_big", batch_size=128),
    beside("CNN, asynchronous", ">= 1.3x", model="cnn", batch_size=128),
    ("strict", strict),
    ("scaling", scaling),
    beside("embedding 1M x 64, 1,000 rows", ">= 3x", unit="steps/s", model="embedding", batch_size=1000),
    beside("200 variables of 4 KB", ">= 5x", unit="steps/s", since=">= 1.5x", model="variables", batch_size=1),
    ("embedding bytes", bytes_on_wire),
    ("saving", saving),
    ("restart", restart),
    ("memory", soak),
]


def main():
    global BUILDS, ERRORS
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--before", help="another build of Shoal, in TensorFlow's place; other cases are left out")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--starts", type=int, default=1, help="how often jobs are started anew")
    parser.add_argument("--steps-for", type=float, default=0.5, help="seconds that a round takes on one side")
    parser.add_argument("--soak", type=int, default=20000)
    parser.add_argument("--disk", default=".", help="a folder on the disk that saving is measured on")
    parser.add_argument("--verbose", action="store_true", help="show what the workers say")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    BUILDS = {"shoal": os.path.abspath(args.build), "before": os.path.abspath(args.before or args.build)}
    args.peer = "before" if args.before else "tensorflow"
    ERRORS = None if args.verbose else subprocess.DEVNULL
    print_row.markdown = args.markdown
    row("case", "shoal", args.peer, "vs", "aim")
    if args.markdown:
        row(*["---"] * 5)
    for name, case in CASES:
        if not re.search(args.only, name, re.I) or (args.before and case.__qualname__ != "beside.<locals>.case"):
            continue
        try:
            case(args)
        except (RuntimeError, OSError) as e:
            row(name, f"failed: {e}", "", "", "")


if __name__ == "__main__":
    main()
