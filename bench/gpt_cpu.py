"""examples/gpt on the CPU beside PyTorch, eager and compiled: a language model of bytes, 6 layers, 6 heads, 384 wide,
256 bytes, batch 8, on two threads.

  tools/python.sh bench/gpt_cpu.py [--build build] [--rounds 3] [--steps 6] [--dtypes float32,bfloat16] [--sides REGEX]

Sides take turns, a process for each round, which trains a few steps: forward, backward, clipping and update. Of each
round the steps after the first count. Printed: the median step in milliseconds, by the clock and in processor time (of
all threads; what counts where other programs have the machine, too), the spread (half the distance between the
quartiles, in percent), the most memory, and how many times PyTorch's processor time is Shoal's. Both are bound to
--threads cores. PyTorch is that of `tools/deps.sh torch` (by tools/python.sh), or of the Python that $SHOAL_TORCH
names.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WARM = 2  # steps of a round that do not count
MODEL = {"layers": 6, "heads": 6, "width": 384, "context": 256, "batch": 8}


def torch_python():
    python = os.environ.get("SHOAL_TORCH") or os.path.join(os.environ.get("SHOAL_TORCH_ENV", ""), "bin", "python")
    try:
        subprocess.run([python, "-c", "import torch"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        print("PyTorch is not there (tools/deps.sh torch): Shoal's side alone", file=sys.stderr)
        return None
    return python


def processor_time(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1)) / 1024


def run(command, cores):
    """Steps of one process: (by the clock, in processor time) in seconds, and its peak memory in MB."""
    p = subprocess.Popen(["taskset", "-c", cores, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env={**os.environ, "OMP_NUM_THREADS": str(cores.count(",") + 1)})
    marks, memory = [], 0
    for line in p.stdout:
        if line.startswith("step ") and "loss" in line:
            marks.append((time.perf_counter(), processor_time(p.pid)))
            memory = max(memory, peak_memory(p.pid))
    if p.wait() or len(marks) <= WARM + 1:
        print(f"  {' '.join(command)}: {p.stderr.read()[-400:]}", file=sys.stderr)
    return [(b[0] - a[0], b[1] - a[1]) for a, b in zip(marks[WARM:], marks[WARM + 1:])], memory


def commands(args, dtype, torch):
    size = [f"--{k}={v}" for k, v in MODEL.items()] + [f"--steps={args.steps + WARM + 1}", f"--data={args.data}"]
    yield "shoal", [os.path.join(args.build, "examples", "gpt"), *size, f"--dtype={dtype}", "--log_steps=1"]
    for how in ("eager", "compile") if torch else ():
        yield f"torch {how}", [torch, os.path.join(HERE, "gpt_cpu_torch.py"), how, dtype, *size,
                               f"--threads={args.threads}"]


def spread(values):
    quarters = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return (quarters[2] - quarters[0]) / 2 / statistics.median(values) * 100


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default=os.path.join(os.path.dirname(HERE), "build"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--dtypes", default="float32,bfloat16")
    p.add_argument("--sides", default="")
    p.add_argument("--data", default=os.path.join(os.path.dirname(HERE), "README.md"))
    args = p.parse_args()
    torch, cores = torch_python(), ",".join(map(str, sorted(os.sched_getaffinity(0))[:args.threads]))
    for dtype in args.dtypes.split(","):
        sides = {s: c for s, c in commands(args, dtype, torch) if re.search(args.sides, s)}
        found, memory = {s: [] for s in sides}, dict.fromkeys(sides, 0)
        for _ in range(args.rounds):
            for side, command in sides.items():
                steps, most = run(command, cores)
                found[side] += steps
                memory[side] = max(memory[side], most)
        medians = {s: [statistics.median(v[i] for v in found[s]) for i in (0, 1)] for s in sides if found[s]}
        print(f"GPT, 6 layers of 384, 8 x 256 bytes, {dtype}, {args.threads} threads")
        for side, (clock, processor) in medians.items():
            ours = medians.get("shoal") if side != "shoal" else None
            ratio = f"  {processor / ours[1]:.2f}x Shoal's" if ours else ""
            print(f"  {side:14} {clock * 1e3:8.0f} ms  {processor * 1e3:8.0f} ms of processor "
                  f"±{spread([v[1] for v in found[side]]):.0f}%  {memory[side]:6.0f} MB{ratio}", flush=True)


if __name__ == "__main__":
    main()
