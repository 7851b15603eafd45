"""README, docs/tensorflow.md, docs/serving.md and the tutorial, as a new user reads them: their commands and programs, in
order, as they are written; only ports, and folders under /tmp, are those of this run."""
# needs: tensorflow
# not on the soft device: pages are run as they are written
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

from cluster import ROOT, SHOAL, Skip, free_ports, report, until

DATA = "/usr/share/datasets/fashion-mnist"

PORTS = dict(zip(("2222", "2223"), map(str, free_ports(2))))


def blocks(name="docs/tensorflow.md"):
    """(language, text) of each, with the ports and the command of this run."""
    with open(os.path.join(ROOT, name)) as f:
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


class Tree:
    """The tree as the documents see it, after `make`, in a folder of its own: what they write does not touch ours."""
    def __init__(self, folder):
        self.folder = folder
        for name in os.listdir(ROOT):
            if not name.startswith("build"):
                os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
        os.symlink(os.path.dirname(SHOAL), os.path.join(folder, "build"))

    def sh(self, text, code=0):
        text = text.replace(SHOAL, "build/shoal").replace("/tmp/", self.folder + "/tmp-")  # the tree itself may lie in /tmp
        env = {**os.environ, "PATH": os.path.dirname(sys.executable) + ":" + os.environ["PATH"]}
        script = os.path.join(self.folder, "commands.sh")  # not -c: pkill -f would find its own shell
        with open(script, "w") as f:
            f.write(text)
        p = subprocess.run(["sh", "-e", script], cwd=self.folder, env=env, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=1200, check=False)
        assert p.returncode == code, f"{text}\n{p.returncode}: {p.stdout}"
        return p.stdout


def need_data():
    if not os.path.isdir(DATA):
        raise Skip(f"there is no {DATA}")


def shell(name):
    return [text for language, text in blocks(name) if language == "sh"]


def readme():
    need_data()
    jobs = next(t for t in shell("README.md") if "launch" in t)
    servers = next(t for t in shell("README.md") if "server --ps_hosts" in t)
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(folder)
        # One worker of TensorFlow's: a second one looks for the chief's model twice a minute.
        said = tree.sh(jobs.replace("--workers=2 --ps_server", "--workers=1 --ps_server"))
        assert "test accuracy" in said and "of 10 right" in said and "worker 0: loss" in said, said
        said = tree.sh(servers)
        assert "worker 0: loss" in said, said


def tutorial():
    need_data()
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(folder)
        program, = [t for language, t in blocks("docs/training.md") if language == "c" and "int main" in t]
        with open(os.path.join(folder, "train.c"), "w") as f:
            f.write(program)
        for compiler in ("g++", "clang++"):
            if shutil.which(compiler):
                tree.sh(f"{compiler} -x c++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only -Iinclude "
                        "-Ibuild/gen/include train.c")
        for text in shell("docs/training.md"):
            if "tensorboard" in text:
                continue  # a program to look at
            if "pkill" in text:  # shorter, and by events: a checkpoint is there
                text = text.replace("20000", "2000").replace("=1000", "=100")
                text = text.replace("sleep 5;", "while [ ! -e /tmp/second/checkpoint ]; do sleep 0.2; done;")
                text = text.replace("--job_name=ps';", "--job_name=ps' || true;")
            said = tree.sh(text)
            assert "python.sh" not in text or "hid_w" in said, said
        assert glob.glob(os.path.join(folder, "out", "model.ckpt-50*.index")), os.listdir(folder)


def datasets():
    with tempfile.TemporaryDirectory() as folder:
        said = Tree(folder).sh("".join(shell("docs/datasets.md")))
        assert "worker 0: 1134 batches" in said and "model.ckpt-7560" in said, said


def serving():
    need_data()
    three, asked = shell("docs/serving.md")[:2]
    port = PORTS["2222"]
    with tempfile.TemporaryDirectory() as folder:
        text = (three.rstrip() + " >log\nserver=$!\nwhile ! grep -q REST log; do sleep 0.1; done\n" +
                "\n".join(line for line in asked.splitlines() if "curl" not in line) + "\nkill $server; wait $server\n")
        text = text.replace(" & >log", " >log &").replace("8501", port).replace("serve --", "serve --port=0 --")
        said = Tree(folder).sh(text.replace("=5000", "=1000"))
        assert "of 10 are right" in said, said


if __name__ == "__main__":
    sys.exit(report([("docs/tensorflow.md", page), ("README.md", readme), ("docs/training.md", tutorial),
                     ("docs/datasets.md", datasets), ("docs/serving.md", serving)]))
