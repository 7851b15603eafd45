"""Synchronous replicas without parameter servers: how a CNN gets faster by a second one, beside PyTorch's DDP.

  python bench/replicas.py [--build build] [--rounds 7] [--steps-for 2] [--batch 128] [--markdown]

Shoal: processes of one thread each under shoal_strategy_new_multi_worker (replica_worker.c), one and two of them, and
one process with one and two logical CPUs, which is given as many cores; and two processes that train each by itself
and never meet, which is what the machine gives at most: two busy cores share its clock, caches and memory. PyTorch,
where it is installed ($SHOAL_TORCH_ENV): DistributedDataParallel with gloo, processes of one thread each. The same
model, optimizer and batch for every replica. All of them stand and take turns, round by round; those whose turn it is
not wait for a line of
input. Printed: examples a second, the median of the rounds and their spread, how many times one replica's two are, and
how many times PyTorch's Shoal is."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "cluster"))

from cluster import free_ports
from run import print_row, spread

APART = "processes that never meet"
WIDTHS = (30, 18, 18, 12, 14, 16)
DDP = """
import json, sys, time, torch, torch.distributed as dist
from torch import nn
rank, ranks, meeting, batch = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
torch.set_num_threads(1)
torch.set_num_interop_threads(1)
torch.manual_seed(1)
model = nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                      nn.Linear(7 * 7 * 64, 1024), nn.ReLU(), nn.Linear(1024, 10))
if ranks > 1:
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=ranks)
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
x, y = torch.rand(batch, 1, 28, 28), torch.randint(10, (batch,))
print("{}", flush=True)
for line in sys.stdin:
    began = time.perf_counter()
    for _ in range(int(line.split()[1])):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)
"""


class Job:
    """Processes that take their steps together."""

    def __init__(self, commands):
        self.tasks = [subprocess.Popen(c, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=ERRORS, text=True)
                      for c in commands]
        self.answers()

    def answers(self):
        lines = [p.stdout.readline() for p in self.tasks]
        if not all(lines):
            raise RuntimeError(f"a task ended: {self.tasks[0].args[:3]}")
        return [json.loads(line) for line in lines]

    def run(self, steps):
        began = time.perf_counter()
        for p in self.tasks:
            p.stdin.write(f"run {steps}\n")
            p.stdin.flush()
        self.answers()
        return time.perf_counter() - began

    def end(self):
        for p in self.tasks:
            p.stdin.close()
        for p in self.tasks:
            try:
                p.wait(30)
            except subprocess.TimeoutExpired:
                p.kill()


def on_cores(n):
    """A command in front of another that gives it so many of the cores there are."""
    cores = sorted(os.sched_getaffinity(0))[:n]
    return ["taskset", "-c", ",".join(map(str, cores))]


def commands(side, n, args, folder):
    program = os.path.join(args.build, "bench", "replica_worker")
    if side == "logical CPUs of one process":
        return [[*on_cores(n), program, f"--devices={n}", f"--batch_size={args.batch}"]]
    if side == APART:
        return [c for _ in range(n) for c in commands("processes", 1, args, folder)]
    if side == "processes":
        hosts = ",".join(f"127.0.0.1:{p}" for p in free_ports(n))
        return [[program, f"--worker_hosts={hosts}", "--job_name=worker", f"--task_index={i}", "--threads=1",
                 f"--batch_size={args.batch}"] for i in range(n)]
    meeting = os.path.join(folder, f"ddp{n}")
    return [[TORCH, "-c", DDP, str(i), str(n), meeting, str(args.batch)] for i in range(n)]


def turns(jobs, args):
    """For each job, the seconds of a step, by rounds."""
    times, counts = {}, {}
    for key, job in jobs.items():
        job.run(2)
        counts[key] = max(2, int(args.steps_for / (job.run(3) / 3)))
        times[key] = []
    for _ in range(args.rounds):
        for key, job in jobs.items():
            times[key].append(job.run(counts[key]) / counts[key])
    return times


def measure(sides, args, folder):
    jobs = {}
    try:
        for side in sides:
            for n in (1, 2):
                jobs[side, n] = Job(commands(side, n, args, folder))
        return turns(jobs, args)
    finally:
        for job in jobs.values():
            job.end()


def show(times, sides, args):
    rate = lambda key: f"{key[1] * args.batch / statistics.median(times[key]):,.0f} ±{spread(times[key]):.0f}%"
    beside = lambda a, b: f"{statistics.median(times[b]) / statistics.median(times[a]):.2f}x"
    for side in sides:
        ratio = 2 * statistics.median(times[side, 1]) / statistics.median(times[side, 2])
        torch = beside((side, 2), ("PyTorch DDP, gloo", 2)) if TORCH and not side.startswith("PyTorch") else "-"
        aim = "-" if side.startswith("PyTorch") or side == APART else ">= 1.9x, ahead"
        print_row([side, rate((side, 1)), rate((side, 2)), f"{ratio:.2f}x", torch, aim], WIDTHS)


def main():
    global TORCH, ERRORS
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps-for", type=float, default=2, help="seconds that a round takes on one side")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--verbose", action="store_true", help="show what the tasks say")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    ERRORS = None if args.verbose else subprocess.DEVNULL
    TORCH = os.path.join(os.environ.get("SHOAL_TORCH_ENV", ""), "bin", "python")
    TORCH = TORCH if os.path.exists(TORCH) else None
    print_row.markdown = args.markdown
    sides = ["processes", "logical CPUs of one process", APART] + (["PyTorch DDP, gloo"] if TORCH else [])
    print_row(["CNN, a thread each, ex/s", "one", "two", "two to one", "vs PyTorch", "aim"], WIDTHS)
    if args.markdown:
        print_row(["---"] * 6)
    with tempfile.TemporaryDirectory() as folder:
        show(measure(sides, args, folder), sides, args)


if __name__ == "__main__":
    main()
