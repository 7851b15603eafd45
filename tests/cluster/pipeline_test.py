"""Pipelined stages on the tasks of a real cluster: the same result as without a pipeline, and 1F1B's order of work."""
# under sanitizers: all
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import ROOT, Cluster, report

BUILD = os.environ.get("SHOAL_BUILD", os.path.join(ROOT, "build"))
TRAINER = os.path.join(BUILD, "tests", "programs", "pipeline_trainer")
TASKS = [f"/job:worker/task:{i}" for i in range(3)]


def train(target, micro, devices):
    out = subprocess.run([TRAINER, target, str(micro), *devices], capture_output=True, text=True, timeout=600)
    assert out.returncode == 0, out.stdout + out.stderr
    values = {}
    for line in out.stdout.splitlines():
        words = line.split()
        if words[0] == "loss":
            values.setdefault("loss", []).append(float(words[1]))
        elif words[0] != "order":
            values[words[0]] = [float(w) for w in words[1:]]
    return values, re.findall(r"^order (\S+) after (\S+)$", out.stdout, re.M)


def near(a, b):
    assert a.keys() == b.keys(), (a.keys(), b.keys())
    assert len(a) == 7  # three stages with kernel and bias, and the losses
    for name in a:
        assert len(a[name]) == len(b[name])
        for x, y in zip(a[name], b[name]):
            assert abs(x - y) <= 2e-5 * max(1, abs(y)), (name, x, y)


PLAIN = []


def plain():
    if not PLAIN:
        PLAIN.append(train("", 0, ["/cpu:0"] * 3)[0])
        assert PLAIN[0]["loss"][-1] < PLAIN[0]["loss"][0]
    return PLAIN[0]


def in_one_process():
    for micro in (1, 2, 6):
        near(train("", micro, ["/cpu:0", "/cpu:1", "/cpu:2"])[0], plain())


def on_three_tasks():
    with Cluster(worker=["shoal"] * 3) as c:
        first, _ = train(c.target("worker"), 6, TASKS)
        near(first, plain())
        again, _ = train(c.target("worker"), 6, TASKS)
        assert again == first, "two runs differ"


def order_of_work():
    """Each stage: as many forward passes ahead as there are stages after it, then by turns."""
    micro = 6
    _, edges = train("", micro, ["/cpu:0", "/cpu:1", "/cpu:2"])
    for stage in range(3):
        want, ahead = [], 2 - stage
        for i in range(micro + ahead):
            want += [("forward", i)] if i < micro else []
            want += [("backward", i - ahead)] if i >= ahead else []
        mine = [re.match(rf"stage_{stage}(?:_back)?/(forward|backward)_(\d+)$", begin) for begin, _ in edges]
        follows = {(m.group(1), int(m.group(2))) for m in mine if m}
        assert follows == set(want[1:]), (stage, follows)  # all but the first wait for another
        for i in range(1, len(want)):
            begin = f"stage_{stage}{'_back' if want[i][0] == 'backward' else ''}/{want[i][0]}_{want[i][1]}"
            before = [b for a, b in edges if a == begin]
            assert len(before) == 1, (begin, before)
            if want[i - 1][0] == "backward":
                number = want[i - 1][1]
                assert before[0] == f"stage_{stage}_back/backward_done" + (f"_{number}" if number else ""), before


TESTS = [("in one process", in_one_process), ("on three tasks", on_three_tasks), ("order of work", order_of_work)]

if __name__ == "__main__":
    sys.exit(report(TESTS))
