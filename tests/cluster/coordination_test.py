"""Workers of TensorFlow 2's MultiWorkerMirroredStrategy in one group with a program of Shoal's, either of them the leader:
sums and broadcasts come out the same everywhere; TensorFlow's workers coordinate by a server of Shoal's alone, values by
key included; where a worker is killed the others are told, and when it has come again the group works, under a leader that
has stayed."""
# needs: tensorflow
import json
import os
import signal
import subprocess
import sys
import tempfile

from cluster import PATIENCE, ROOT, SHOAL, free_ports, report, until

MEMBER = os.path.join(os.path.dirname(SHOAL), "tests", "programs", "multi_worker_member")
TF2 = os.path.join(ROOT, "tests", "cluster", "multi_worker_tf2.py")


class Worker:
    def __init__(self, command, addresses, index):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        self.index = index
        self.out = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(command, stdout=self.out, stderr=subprocess.STDOUT,
                                        env={**os.environ, "TF_CONFIG": json.dumps(config)})

    def lines(self):
        """What it said of its plan or of values."""
        return [line for line in self.text().splitlines() if line[:1].isdigit() and line[:3] != "202"]

    def text(self):
        self.out.seek(0)
        return self.out.read()

    def ends(self, code=0):
        try:
            got = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            got = "not yet"
        assert got == code, f"worker {self.index}: exit {got}\n{self.text()[-3000:]}"
        return self

    def kill(self, signum=signal.SIGKILL):
        self.process.send_signal(signum)
        self.process.wait()


def addresses(n):
    return [f"127.0.0.1:{port}" for port in free_ports(n)]


def tf2(what, at, index):
    return Worker([sys.executable, TF2, what], at, index)


def member(plan, at, index):
    return Worker([MEMBER, str(len(at)), plan], at, index)


def wanted(plan, workers):
    lines = []
    for turn, letter in enumerate(plan):
        ranks = range(workers) if letter == "r" else [0]
        first, last = (sum((r + 1) * (1 + i % 7) + turn for r in ranks) for i in (0, 1002))
        lines.append(f"{turn} {letter} {first} {last}")
    return lines


def together(plan, kinds):
    at = addresses(len(kinds))
    workers = [(tf2 if kind == "tf" else member)(plan, at, i) for i, kind in enumerate(kinds)]
    try:
        for w in workers:
            assert w.ends().lines() == wanted(plan, len(kinds)), f"worker {w.index}: {w.text()[-3000:]}"
    finally:
        for w in workers:
            w.kill()


def shoal_leads():
    together("rbrrbrr", ["shoal", "tf"])


def tensorflow_leads():
    together("rbrrbrr", ["tf", "shoal"])


def three_of_both():
    together("brrb", ["shoal", "tf", "shoal"])


def values_by_key():
    at = addresses(3)
    leader = Worker([SHOAL, "server", "--coordination_service"], at, 0)
    workers = [tf2("values", at, i) for i in (1, 2)]
    try:
        for w in workers:
            text = w.ends().text()
            assert w.lines() == ["1 value 1", "2 value 2"], text
            assert "exists True" in text and "late" in text, text
    finally:
        for w in workers + [leader]:
            w.kill()


def a_worker_comes_again():
    """Of two workers one is killed; the leader's step fails, and when another has come in its place the group works."""
    at = addresses(2)
    plan = "rrrr"
    leader = member("!" + plan, at, 0)  # !: goes on where a step fails, from the first
    first = tf2("rrw", at, 1)
    second = None
    try:
        until(lambda: len(first.lines()) == 2, what=first.text)
        first.kill()
        until(lambda: "step:" in leader.text(), what=leader.text)
        second = tf2(plan, at, 1)
        try:
            assert second.ends().lines() == wanted(plan, 2), second.text()
        except AssertionError as e:
            raise AssertionError(f"{e}\nthe leader:\n{leader.text()[-3000:]}") from None
        assert leader.ends().lines()[-4:] == wanted(plan, 2), leader.text()
        assert "task:1" in leader.text().split("step:")[1], leader.text()
    finally:
        for w in [leader, first] + ([second] if second else []):
            w.kill()


if __name__ == "__main__":
    sys.exit(report([("a program of Shoal's leads TensorFlow's worker", shoal_leads),
                     ("TensorFlow's worker leads a program of Shoal's", tensorflow_leads),
                     ("three workers, of both", three_of_both),
                     ("TensorFlow's workers share values under a server of Shoal's", values_by_key),
                     ("a worker that was killed comes again", a_worker_comes_again)]))
