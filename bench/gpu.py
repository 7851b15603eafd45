"""Shoal beside PyTorch on a machine with an NVIDIA card.

  python bench/gpu.py [--build build] [--only REGEX] [--rounds 7] [--seconds 0.5]

A process for each side, which take turns round by round. Printed: the median of the rounds in steps a second, their
spread (half the distance between the quartiles, in percent), and how many times faster Shoal is than the best other
side. PyTorch is there twice: as its users write it (eager), and with its step captured as a CUDA graph. It is taken
from this Python, or from the one that $SHOAL_TORCH names; without it there is Shoal's side alone.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys

from run import spread

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = {"fed": "MLP 784-100-10, batch 100, fed and fetched",
         "resident": "MLP 784-100-10, data on the card",
         "ahead": "MLP 784-100-10, data on the card, fetched after 100 steps",
         "cnn": "CNN of two convolutions, batch 128, fed and fetched",
         "cnn_resident": "CNN of two convolutions, batch 128, data on the card"}
SIDES = ["shoal", "torch graph", "torch eager"]


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
    """Without one the CPU would be measured under a card's name."""
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


def bench(case, args, torch):
    commands = {"shoal": [os.path.join(args.build, "bench", "gpu_step"), case]}
    for how in ("graph", "eager") if torch else ():
        commands[f"torch {how}"] = [torch, os.path.join(HERE, "gpu_torch.py"), case, how]
    sides, each, rates = {}, {}, {name: [] for name in commands}
    for name, command in commands.items():
        try:
            side = Side(command)
            side.run(200)
            each[name] = max(10, int(args.seconds / max(side.run(200) / 200, 1e-7)))
            sides[name] = side
        except (RuntimeError, BrokenPipeError) as e:
            print(f"  {name}: {e}", file=sys.stderr)
    for _ in range(args.rounds):
        for name, side in sides.items():
            rates[name].append(each[name] / side.run(each[name]))
    for side in sides.values():
        side.close()
    return {name: rates[name] for name in sides}


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
    for case in CASES:
        if re.search(args.only, case):
            show(CASES[case], "steps", SIDES, bench(case, args, torch))


if __name__ == "__main__":
    main()
