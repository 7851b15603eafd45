"""docs/tensorflow.md, as a new user reads it: its commands and its program, one after another, on free ports."""
# needs: tensorflow
import os
import re
import subprocess
import sys
import tempfile

from cluster import ROOT, SHOAL, free_ports, report, until

PORTS = dict(zip(("2222", "2223"), map(str, free_ports(2))))


def blocks():
    """(language, text) of each, with the ports and the command of this run."""
    with open(os.path.join(ROOT, "docs", "tensorflow.md")) as f:
        for language, text in re.findall(r"```(\w+)\n(.*?)```", f.read(), re.S):
            yield language, re.sub(r"localhost:(222\d)", lambda m: "localhost:" + PORTS[m.group(1)],
                                   text.replace("build/shoal", SHOAL))


def started(text, ports, folder):
    """Runs commands that go to the background; waits until their servers listen."""
    log = os.path.join(folder, "log")
    with open(log, "w") as f:
        subprocess.run(["sh", "-c", text], stdout=f, stderr=subprocess.STDOUT, check=True)

    def all_listen():
        with open(log) as f:
            said = f.read()
        return all(f"listening on grpc://localhost:{p}" in said for p in ports)
    until(all_listen, what=lambda: open(log).read())


def page():
    servers, program, end, config = blocks()
    assert [b[0] for b in (servers, program, end, config)] == ["sh", "python", "sh", "sh"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            started(servers[1], PORTS.values(), folder)
            p = subprocess.run([sys.executable, "-c", program[1]], capture_output=True, text=True, timeout=300)
            assert re.search(r"\[(1\.|0\.99)\d* +(2\.|1\.99)\d*\s*\]", p.stdout), p.stdout + p.stderr
        finally:
            p = subprocess.run(["sh", "-ec", end[1]], capture_output=True, text=True, timeout=120)
        assert p.returncode == 0 and "2 tasks, 2 up" in p.stdout, p.stdout + p.stderr
        try:
            started(config[1], [PORTS["2222"]], folder)
        finally:
            subprocess.run([SHOAL, "stop", "grpc://localhost:" + PORTS["2222"]], check=True, timeout=120)


if __name__ == "__main__":
    sys.exit(report([("docs/tensorflow.md", page)]))
