"""Shoal beside PyTorch on a machine with an NVIDIA card.

  python bench/gpu.py [--build build] [--only REGEX] [--rounds 7] [--seconds 0.5]

A process for each side, which take turns round by round. Printed: the median of the rounds in steps a second, their
spread (half the distance between the quartiles, in percent), and how many times faster Shoal is than the best other
side. PyTorch is there twice: as its users write it (eager), and with its step captured as a CUDA graph. It is taken
from this Python, or from the one that $SHOAL_TORCH names; without it there is Shoal's side alone.

All sides begin with the same values and have the same data. Below each case: the loss after the first 200 steps, with
that of Shoal's CPU, and the memory of the card that each side took as it began, its CUDA context included.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

from run import spread

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = {"fed": "MLP 784-100-10, batch 100, fed and fetched",
         "resident": "MLP 784-100-10, data on the card",
         "ahead": "MLP 784-100-10, data on the card, fetched after 100 steps",
         "cnn": "CNN of two convolutions, batch 128, fed and fetched",
         "cnn_resident": "CNN of two convolutions, batch 128, data on the card"}
SIDES = ["shoal", "torch graph", "torch eager"]
FIRST = 200  # steps after which losses are compared


class Side:
    """A process that runs so many steps for each line with a number, and answers the seconds and the loss."""

    def __init__(self, command):
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, steps):
        self.p.stdin.write(f"{steps}\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline().split()
        if not line:
            raise RuntimeError("no answer")
        self.loss = float(line[1])
        return float(line[0])

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def need_card(build):
    """Without one the CPU, or a device of software, would be measured under a card's name."""
    if os.environ.get("SHOAL_SOFT_GPUS", "0") not in ("", "0"):
        sys.exit("SHOAL_SOFT_GPUS is set: a device of software is no card to be measured")
    found = subprocess.run([os.path.join(build, "shoal"), "devices"], capture_output=True, text=True)
    if "type=GPU" not in found.stdout:
        sys.exit("there is no card here to be measured: " + (found.stderr.strip() or "`shoal devices` shows none"))


def torch_python():
    python = os.environ.get("SHOAL_TORCH", sys.executable)
    found = subprocess.run([python, "-c", "import torch; torch.zeros(1, device='cuda')"], capture_output=True)
    if found.returncode == 0:
        return python
    print("PyTorch is not there: Shoal's side alone", file=sys.stderr)
    return None


def memory_in_use():
    """Of the first card, in MB; None where nobody can say."""
    query = ["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return None
    return int(said) if said.isdigit() else None


class Case:
    """The sides of a case, each begun after the other, and what is seen of them."""

    def __init__(self, case, args, torch, folder):
        values, step = os.path.join(folder, case), os.path.join(args.build, "bench", "gpu_step")
        self.sides, self.each, self.losses, self.memory = {}, {}, {}, {}
        self.seconds = args.seconds
        self.begin("shoal", [step, case, f"--values={values}"])
        for how in ("graph", "eager") if torch else ():
            self.begin(f"torch {how}", [torch, os.path.join(HERE, "gpu_torch.py"), case, how, values])
        self.begin("CPU", [step, case, "--device=/device:CPU:0"])
        if "CPU" in self.sides:
            self.sides.pop("CPU").close()

    def begin(self, name, command):
        before = memory_in_use()
        try:
            side = Side(command)
            side.run(FIRST)
            self.losses[name] = side.loss
            self.each[name] = max(10, int(self.seconds / max(side.run(FIRST) / FIRST, 1e-7)))
            self.sides[name] = side
        except (RuntimeError, BrokenPipeError) as e:
            print(f"  {name}: {e}", file=sys.stderr)
            return
        now = memory_in_use()
        if now is not None:
            self.memory[name] = now - before

    def rates(self, rounds):
        rates = {name: [] for name in self.sides}
        for _ in range(rounds):
            for name, side in self.sides.items():
                rates[name].append(self.each[name] / side.run(self.each[name]))
        for side in self.sides.values():
            side.close()
        return rates


def head(sides):
    print("| case | " + " | ".join(sides) + " | Shoal to the best |\n" + "|---" * (len(sides) + 2) + "|")


def show(title, unit, sides, rates):
    """A row of the table: the median of each side's rates, and how many times the best of the others Shoal's is."""
    cells = [title]
    for name in sides:
        r = rates.get(name)
        cells.append(f"{statistics.median(r):,.0f} {unit}/s ±{spread(r):.0f}%" if r else "-")
    others = [statistics.median(r) for name, r in rates.items() if name != "shoal" and r]
    cells.append(f"{statistics.median(rates['shoal']) / max(others):.2f}x" if others and rates.get("shoal") else "-")
    print("| " + " | ".join(cells) + " |", flush=True)


def show_more(title, sides, found, say, last="-"):
    print("| " + " | ".join([title, *(say(found[s]) if s in found else "-" for s in sides), last]) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5)
    args = parser.parse_args()
    need_card(args.build)
    torch = torch_python()
    head(SIDES)
    with tempfile.TemporaryDirectory(prefix="shoal_gpu_") as folder:
        for case in CASES:
            if not re.search(args.only, case):
                continue
            c = Case(case, args, torch, folder)
            show(CASES[case], "steps", SIDES, c.rates(args.rounds))
            show_more(f"{case}: loss after {FIRST} steps", SIDES, c.losses, "{:.6f}".format,
                      f"CPU {c.losses.get('CPU', float('nan')):.6f}")
            show_more(f"{case}: memory", SIDES, c.memory, "{:,} MB".format)


if __name__ == "__main__":
    main()
