"""Shoal beside TensorFlow and PyTorch on this machine: time, memory, size.

  python bench/run.py [--build build] [--only REGEX] [--rounds 7] [--threads 1 2] [--markdown]

Every case runs on all sides in one go: a process for each side, which take turns round by round, so that a busy moment
of the machine falls on all of them. Printed: the median of the rounds, their spread (half the distance between the
quartiles, in percent), and how many times faster Shoal is. TensorFlow and Shoal run the same GraphDef, made by
export.py from tests/interop/models.py; PyTorch runs the same model in eager mode, as its users do.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SIDES = ["shoal", "tensorflow", "pytorch"]


class Worker:
    """One side, in a process of its own; answers a line of JSON to each line."""

    def __init__(self, side, folder, case, threads, env):
        python = sys.executable
        if side == "pytorch":
            python = os.path.join(os.environ.get("SHOAL_TORCH_ENV", ""), "bin", "python")
        command = [python, os.path.join(HERE, "worker.py"), side, folder, case, str(threads)]
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, env=env)
        self.ready = self.answer()

    def answer(self):
        line = self.p.stdout.readline()
        if not line:
            raise RuntimeError(self.p.stderr.read().strip().splitlines()[-1:] or ["no answer"])
        return json.loads(line)

    def ask(self, **what):
        self.p.stdin.write(json.dumps(what) + "\n")
        self.p.stdin.flush()
        return self.answer()

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def spread(values):
    """Half the distance between the quartiles (of few values: between the ends), in percent of the median."""
    low, _, high = statistics.quantiles(values, n=4) if len(values) >= 4 else (min(values), 0, max(values))
    median = statistics.median(values)
    return 100 * (high - low) / 2 / median if median else 0


def bench(case, threads, folder, rounds, env):
    """For each side: (median seconds a step, spread, peak MB), or the reason why not."""
    workers, results = {}, {}
    for side in SIDES:
        try:
            workers[side] = Worker(side, folder, case["name"], threads, env)
        except (RuntimeError, FileNotFoundError) as e:
            results[side] = str(e)
    times = {side: [] for side in workers}
    for side, w in workers.items():
        w.ask(steps=3)
        # About a fifth of a second a round, and no less than 3 steps.
        each = w.ask(steps=3)["seconds"] / 3
        times[side] = [max(3, min(2000, int(0.2 / max(each, 1e-6))))]
    for _ in range(rounds):
        for side, w in workers.items():
            n = times[side][0]
            times[side].append(w.ask(steps=n)["seconds"] / n)
    for side, w in workers.items():
        peak = w.ask(steps=0)["peak_mb"]
        w.close()
        results[side] = (statistics.median(times[side][1:]), spread(times[side][1:]), peak)
    return results


def show(case, threads, results):
    cells = [f"{case['title']}, {threads} thread" + ("s" if threads > 1 else "")]
    ours = results["shoal"]
    for side in SIDES:
        r = results[side]
        if isinstance(r, str):
            cells.append("-")
            continue
        per = r[0] / case["per"]
        if case["unit"] == "examples/s":
            cells.append(f"{1 / per:,.0f} ex/s ±{r[1]:.0f}%")
        else:
            cells.append(f"{per * 1e9:,.0f} ns ±{r[1]:.0f}%")
    for side in SIDES[1:]:
        r = results[side]
        cells.append("-" if isinstance(r, str) or isinstance(ours, str) else f"{r[0] / ours[0]:.2f}x")
    cells.append(" / ".join("-" if isinstance(results[s], str) else f"{results[s][2]:.0f}" for s in SIDES))
    for side in SIDES:
        if isinstance(results[side], str):
            print(f"  {side}: {results[side]}", file=sys.stderr)
    return cells


def print_row(cells, widths=(44, 20, 20, 20, 8, 8, 18)):
    if print_row.markdown:
        print("| " + " | ".join(cells) + " |", flush=True)
    else:
        print("  ".join(c.ljust(w) for c, w in zip(cells, widths)), flush=True)


def sizes(build):
    """What needs no turns: the library's size, the command's start."""
    library = os.path.join(build, "libshoal.so")
    with tempfile.NamedTemporaryFile() as f:
        subprocess.run(["strip", "-o", f.name, os.path.realpath(library)], check=True)
        print(f"libshoal.so, stripped: {os.path.getsize(f.name) / 1e6:.1f} MB")
    command = os.path.join(build, "shoal")
    if os.path.exists(command):
        took = []
        for _ in range(21):
            start = time.perf_counter()
            subprocess.run([command, "--version"], stdout=subprocess.DEVNULL, check=False)
            took.append(1e3 * (time.perf_counter() - start))
        print(f"shoal --version: {statistics.median(took):.1f} ms (spread {spread(took):.0f} %)")


def allocations(build):
    """By the test that asserts it."""
    p = subprocess.run([os.path.join(build, "tests", "steady_test")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, check=False)
    print("allocations in 100 steady training steps: " + ("0" if p.returncode == 0 else p.stdout))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    print_row.markdown = args.markdown
    build = os.path.abspath(args.build)
    env = {**os.environ, "SHOAL_LIBRARY": os.path.join(build, "libshoal.so"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, os.path.join(HERE, "export.py"), folder, args.only], check=True, env=env)
        with open(os.path.join(folder, "cases.json")) as f:
            cases = json.load(f)
        print_row(["case", *SIDES, "vs TF", "vs torch", "peak MB s/t/p"])
        if args.markdown:
            print_row(["---"] * 7)
        for case in cases:
            for threads in args.threads:
                env_here = {**env, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
                print_row(show(case, threads, bench(case, threads, folder, args.rounds, env_here)))
    sizes(build)
    allocations(build)


if __name__ == "__main__":
    main()
