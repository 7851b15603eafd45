"""GPT-2 and ResNet-50 on a machine with an NVIDIA card: the examples beside PyTorch.

  python bench/gpu_models.py [--build build] [--only REGEX] [--rounds 3] [--steps 12]

Sides take turns, a process for each round, which trains a few steps in bfloat16 (variables in float32) on data that is
made up: forward, backward, clipping and update. Of each round the last steps count. Printed: their median in tokens or
pictures a second, the spread (half the distance between the quartiles, in percent), and how many times faster Shoal is
than the best other side; and below, the most memory of the card that was in use while a side ran, as nvidia-smi has it.
PyTorch (gpu_models_torch.py) is taken from this Python, or from the one that $SHOAL_TORCH names; without it there is
Shoal's side alone.
"""
import argparse
import os
import re
import subprocess
import sys
import threading

from gpu import head, need_card, show, show_more, torch_python

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = {"gpt2": ("GPT-2 124M, 1,024 tokens, batch {}", "tokens"), "resnet50": ("ResNet-50, batch {}", "pictures")}
BATCH = {"gpt2": 64, "resnet50": 256}
SIDES = ["shoal", "torch compile", "torch eager"]
WARM = 4  # steps of a round that do not count


class Watch:
    """The most memory of the card that is in use while something runs, in MB; 0 where nobody can say."""

    def __init__(self):
        self.most, self.over = 0, threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--loop-ms=100"]
        try:
            p = subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            return
        for line in p.stdout:
            self.most = max(self.most, int(line) if line.strip().isdigit() else 0)
            if self.over.is_set():
                break
        p.kill()
        p.wait()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def rates(command, unit):
    """Units a second of the steps that count, and what it said if there are none."""
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    found = [float(r) for r in re.findall(rf"^step .* (\d+) {unit}/s", p.stdout, re.M)]
    if p.returncode or len(found) <= WARM:
        print(f"  {' '.join(command)}: {p.stdout[-300:]}", file=sys.stderr)
    return found[WARM:]


def commands(case, args, torch):
    size = [f"--batch={args.batch or BATCH[case]}", f"--steps={args.steps}"]
    yield "shoal", [os.path.join(args.build, "examples", case), *size, "--dtype=bfloat16", "--device=GPU"]
    for how in args.torch.split(",") if torch else ():
        yield f"torch {how}", [torch, os.path.join(HERE, "gpu_models_torch.py"), case, how, *size]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=0, help="0: 64 texts, 256 pictures")
    parser.add_argument("--torch", default="compile,eager", help="how PyTorch runs")
    args = parser.parse_args()
    need_card(args.build)
    torch = torch_python()
    head(SIDES)
    for case in CASES:
        if not re.search(args.only, case):
            continue
        found, memory = {}, {}
        for _ in range(args.rounds):
            for side, command in commands(case, args, torch):
                with Watch() as watch:
                    found.setdefault(side, []).extend(rates(command, CASES[case][1]))
                memory[side] = max(memory.get(side, 0), watch.most)
        title, unit = CASES[case]
        title = title.format(args.batch or BATCH[case])
        show(title, unit, SIDES, found)
        show_more(f"{title}, memory", SIDES, memory, "{:,} MB".format)


if __name__ == "__main__":
    main()
