"""A graph built in C (tests/programs/client.c) runs on TensorFlow's servers as on Shoal's: same numbers, same errors.

Then tasks die under its steps: the client ends with an error that says so, in seconds.
"""
# needs: tensorflow
# under sanitizers: on Shoal's servers
# on the soft device: on Shoal's servers | Shoal's tasks | under a Shoal master
import os
import socket
import subprocess
import sys
import time

from cluster import SHOAL, Cluster, free_ports, report

CLIENT = os.path.join(os.path.dirname(SHOAL), "tests", "programs", "client")
# What does not depend on anything; the losses are compared among the arrangements.
EXPECTED = """\
step 25
callable 3 12
callable 5 20
callable 7 28
callable 44, traced
parts 11 44
log of -1: INVALID_ARGUMENT, as told
nothing fed: INVALID_ARGUMENT, as told
unknown fetch: NOT_FOUND, as told
extended 121
traced well
devices ps worker0 worker1
loop 256 256
loop 224 32
loop 392 8
an empty queue: DEADLINE_EXCEEDED, as told
rounds 40 60 8
rounds 40 60 8
rounds 40 60 8
reconnected
"""
LOSSES = []


def program(ps, workers, master):
    with Cluster(ps=[ps], worker=workers) as c:
        p = subprocess.run([CLIENT, c.target(*master)], capture_output=True, text=True, timeout=600)
        lines = p.stdout.splitlines(keepends=True)
        losses = [float(line.split()[1]) for line in lines if line.startswith("loss ")]
        rest = "".join(line for line in lines if not line.startswith("loss "))
        assert p.returncode == 0 and rest == EXPECTED, f"{p.returncode}\n{p.stdout}\n{p.stderr}"
        assert len(losses) == 5 and losses[-1] < losses[0] / 2, losses
        LOSSES.append(losses)
        assert all(abs(a - b) < 1e-3 for a, b in zip(losses, LOSSES[0])), LOSSES


def dies(kinds, victim, code):
    """A task of that cluster is killed under the steps of the client."""
    with Cluster(ps=[kinds[0]], worker=kinds[1:]) as c:
        with subprocess.Popen([CLIENT, c.target("worker", 0), "endless"], stdout=subprocess.PIPE, text=True) as p:
            try:
                assert p.stdout.readline() == "running\n"
                time.sleep(0.3)
                c.tasks[victim].kill()
                text, _ = p.communicate(timeout=120)
            finally:
                p.kill()
    assert text.startswith(code), text


def wrong_port():
    """Nobody is there, or somebody who does not answer: the client says so while it waits."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port, why in ((free_ports(1)[0], "Connection refused"), (silent.getsockname()[1], "does not answer")):
            target = f"grpc://127.0.0.1:{port}"
            p = subprocess.Popen([CLIENT, target], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                line = next((line for line in p.stderr if "waiting since" in line), "nothing was said")
                assert target in line and why in line, line
            finally:
                p.kill()
                p.wait()
                p.stderr.close()


TESTS = [
    ("at a wrong port", wrong_port),
    ("on TensorFlow's servers", lambda: program("tf", ["tf", "tf"], ("worker", 0))),
    ("on Shoal's servers", lambda: program("shoal", ["shoal", "shoal"], ("worker", 0))),
    ("on a Shoal master with TensorFlow's tasks", lambda: program("tf", ["shoal", "tf"], ("worker", 0))),
    ("on TensorFlow's master with Shoal's tasks", lambda: program("shoal", ["tf", "shoal"], ("worker", 0))),
    ("TensorFlow's master dies", lambda: dies(["tf", "tf", "tf"], ("worker", 0), "UNAVAILABLE")),
    # Where TensorFlow's master waits for ever the client's own time-out ends it.
    ("TensorFlow's ps dies under its master",
     lambda: dies(["tf", "tf", "tf"], ("ps", 0), ("UNAVAILABLE", "ABORTED", "DEADLINE_EXCEEDED"))),
    ("TensorFlow's worker dies under a Shoal master",
     lambda: dies(["shoal", "shoal", "tf"], ("worker", 1), ("UNAVAILABLE", "ABORTED"))),
]

if __name__ == "__main__":
    sys.exit(report(TESTS))
