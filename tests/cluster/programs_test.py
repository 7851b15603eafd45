"""Whole programs in the style of TensorFlow 1's guides (tests/cluster/programs), unchanged, on Shoal's servers.

Each is run twice: with every tf.train.Server a process of `shoal server` (tools/in_place.py), and with a Shoal ps under
TensorFlow's own workers. The programs check their results themselves and end with "done". With --tf they run on
TensorFlow's servers alone: that is how they were written.
"""
# needs: tensorflow
# on the soft device: supervised.py on all shoal | synchronous.py on all shoal | in_graph.py on all shoal
# long on the soft device; in short: supervised.py on all shoal
import json
import os
import subprocess
import sys
import tempfile
import time

from cluster import ROOT, SHOAL, forked, free_ports, report

HERE = os.path.dirname(os.path.abspath(__file__))
IN_PLACE = os.path.join(ROOT, "tools", "in_place.py")
LIMIT = 300


class Run:
    """The processes of one program; kinds: the servers of ps and of workers, "shoal" or "tf"."""

    def __init__(self, program, kinds, folder):
        self.program, self.kinds, self.folder, self.tasks = os.path.join(HERE, "programs", program), kinds, folder, {}

    def start(self, name, command, env=None):
        log = open(os.path.join(self.folder, name + ".log"), "w+")
        self.tasks[name] = (forked.start(command, log, cwd=self.folder,
                                         env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "SHOAL": SHOAL,
                                              "PYTHONUNBUFFERED": "1", **(env or {})}), log)

    def python(self, kind, *args):
        return [sys.executable, *([IN_PLACE] if kind == "shoal" else []), self.program, *args]

    def text(self, name):
        with open(os.path.join(self.folder, name + ".log"), errors="replace") as f:
            return f.read()

    def finish(self, names):
        """Waits for these; all must end with 0 and "done". Then the rest is told to end."""
        end = time.time() + LIMIT
        try:
            for name in names:
                try:
                    code = self.tasks[name][0].wait(max(1, end - time.time()))
                except subprocess.TimeoutExpired:
                    code = "no end"
                assert code == 0 and "done" in self.text(name), f"{name}: {code}\n{self.text(name)[-3000:]}"
        finally:
            for process, log in self.tasks.values():
                process.terminate()
                try:
                    process.wait(120)
                except subprocess.TimeoutExpired:
                    process.kill()
                log.close()


def flagged(program, kinds, ps=1, ps_runs=False, waits=("worker0", "worker1"), more=()):
    """Programs with the usual flags, two workers."""
    with tempfile.TemporaryDirectory() as folder:
        addresses = ["localhost:%d" % p for p in free_ports(ps + 2)]
        hosts = ["--ps_hosts=" + ",".join(addresses[:ps]), "--worker_hosts=" + ",".join(addresses[ps:])]
        run = Run(program, kinds, folder)
        for job, n in (("ps", ps), ("worker", 2)):
            for i in range(n):
                task = [*hosts, "--job_name=" + job, "--task_index=%d" % i]
                if job == "ps" and not ps_runs and kinds[0] == "shoal":
                    run.start(f"{job}{i}", [SHOAL, "server", *task])
                else:
                    run.start(f"{job}{i}", run.python(kinds[job == "worker"], *task, *more, "--log_dir=" + folder))
        run.finish([*waits, *([f"ps{i}" for i in range(ps)] if ps_runs else [])])


def configured(program, kinds, *more):
    """Programs that read TF_CONFIG: chief, worker, ps, evaluator."""
    with tempfile.TemporaryDirectory() as folder:
        chief, worker, ps = ["localhost:%d" % p for p in free_ports(3)]
        cluster = {"chief": [chief], "worker": [worker], "ps": [ps]}
        run = Run(program, kinds, folder)
        for job in ("ps", "chief", "worker", "evaluator"):
            env = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}})}
            kind = kinds[job != "ps"]
            if job == "ps" and kind == "shoal":
                run.start(job, [SHOAL, "server"], env)
            else:
                run.start(job, run.python(kind, os.path.join(folder, "model"), *more), env)
        run.finish(["chief", "worker", "evaluator"])


def mirrored(program, kinds):
    """Two workers and nobody else; the kinds are theirs. An estimator makes its servers itself."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = {"worker": ["localhost:%d" % p for p in free_ports(2)]}
        run = Run(program, kinds, folder)
        for i, kind in enumerate(kinds):
            env = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}})}
            run.start(f"worker{i}", run.python(kind, os.path.join(folder, "model"),
                                               "estimator" if kinds[1] == "shoal" else "loop"), env)
        run.finish(["worker0", "worker1"])


PROGRAMS = [
    ("supervised.py", lambda p, k: flagged(p, k)),
    ("synchronous.py", lambda p, k: flagged(p, k, ps=2, more=[] if k[1] == "shoal" else ["--aggregate=1"])),
    ("embedded.py", lambda p, k: flagged(p, k, ps=2)),
    ("reading.py", lambda p, k: flagged(p, k, ps=2)),
    ("queued.py", lambda p, k: flagged(p, k, ps_runs=True)),
    ("in_graph.py", lambda p, k: flagged(p, k, waits=("worker0",))),
    ("estimated.py", lambda p, k: configured(p, k, "canned" if k[1] == "shoal" else "own")),
    ("mirrored.py", mirrored),
]


WAITING = """
import sys
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
server = tf.train.Server({"worker": ["localhost:%d"]}, job_name="worker", task_index=0)
with tf.Session(server.target) as session:
    session.run(tf.print("\\n".join(["printed there"] * 10000), output_stream=sys.stdout))
    print("waits", flush=True)
    session.run(tf.FIFOQueue(1, tf.float32).dequeue())
"""


def server_ends(end, code, words):
    """A program whose server is gone ends; what the server's ops print is the program's output."""
    port, = free_ports(1)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
        f.write(WAITING % port)
        f.flush()
        p = subprocess.Popen([sys.executable, IN_PLACE, f.name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "SHOAL": SHOAL})
        try:
            said = ""
            while "waits" not in said:
                line = p.stdout.readline()
                assert line, said[-3000:]
                said += line
            end(p.pid, port)
            said += p.stdout.read()
            assert p.wait() == code and words in said, (p.returncode, said[-3000:])
            assert said.count("printed there\n") == 10000, said[-3000:]
        finally:
            p.kill()
            p.wait()


ABORTED = """
import subprocess
import tensorflow.compat.v1 as tf
server = tf.train.Server({"worker": ["localhost:%d"]}, job_name="worker", task_index=0)
if "stop" in "%s": subprocess.run(["%s", "stop", server.target], check=True)
raise tf.errors.%s(None, None, "a step has ended")
"""


def server_ends_late():
    """A step ends, and with it the program, long before the server: still the exit code is about the server. What no
    server can have ended is the program's own error."""
    with tempfile.TemporaryDirectory() as folder:
        slow, program = os.path.join(folder, "shoal"), os.path.join(folder, "program.py")
        with open(slow, "w") as f:
            f.write(f'#!/bin/sh\n{SHOAL} "$@"\ncode=$?\nsleep 3\nexit $code\n')
        os.chmod(slow, 0o755)
        for what, error, code, shoal in (("stop", "AbortedError", 75, slow), ("stay", "InvalidArgumentError", 1, SHOAL)):
            port, = free_ports(1)
            with open(program, "w") as f:
                f.write(ABORTED % (port, what, SHOAL, error))
            p = subprocess.run(forked.python(IN_PLACE, program), capture_output=True, text=True, check=False,
                               env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "SHOAL": shoal})
            assert p.returncode == code and error in p.stderr, p
            assert ("so ends the program" in p.stderr) == (what == "stop"), p


FAILING = """
import tensorflow.compat.v1 as tf
try:
    tf.train.Server({"worker": ["0.0.0.0:%d"]}, job_name="worker", task_index=0)
except tf.errors.UnknownError as e:
    print("went on:", e)
"""


def server_fails():
    """A server that cannot be started is an error, which a program may survive; what it lacks can be given."""
    port, = free_ports(1)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
        f.write(FAILING % port)
        f.flush()
        for flags, words in (("", "went on: Could not start the server: exit code 2"), ("--insecure_bind_all", "")):
            p = subprocess.run(forked.python(IN_PLACE, f.name), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, "SHOAL": SHOAL, "SHOAL_SERVER_FLAGS": flags}, check=False)
            assert p.returncode == 0 and words in p.stdout and "Exception" not in p.stdout, p
            assert ("went on" in p.stdout) == bool(words), p


CONFIGURED = """
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
config = tf.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True,
                        gpu_options=tf.GPUOptions(visible_device_list="1", per_process_gpu_memory_fraction=0.5))
server = tf.train.Server({"worker": ["localhost:%d"]}, job_name="worker", task_index=0, config=config)
with tf.device("/gpu:9"):
    x = tf.constant(4)
with tf.Session(server.target) as s:
    print([(d.name.split("device:")[1], d.memory_limit_bytes) for d in s.list_devices() if d.device_type == "GPU"])
    print(len(s.list_devices()), s.run(x), "done")
"""


def server_configured():
    """A server's ConfigProto goes with it: its devices, and what sessions do not say."""
    port, = free_ports(1)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
        f.write(CONFIGURED % port)
        f.flush()
        p = subprocess.run(forked.python(IN_PLACE, f.name), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           env={**os.environ, "SHOAL": SHOAL, "SHOAL_SOFT_GPUS": "2"}, check=False)
        assert p.returncode == 0 and f"[('GPU:0', {1 << 29})]\n3 4 done" in p.stdout, p.stdout


def kill_child(parent, _port):
    with open(f"/proc/{parent}/task/{parent}/children") as f:
        child, = f.read().split()
    os.kill(int(child), 9)


def stop(_parent, port):
    subprocess.run([SHOAL, "stop", f"localhost:{port}"], check=True)


def main():
    ways = [("all shoal", ("shoal", "shoal")), ("shoal ps, tf workers", ("shoal", "tf"))]
    if "--tf" in sys.argv:
        sys.argv.remove("--tf")
        ways = [("all tf", ("tf", "tf"))]
    return report([(f"{program} on {way}", lambda f=fn, p=program, k=kinds: f(p, k))
                   for program, fn in PROGRAMS for way, kinds in ways] +
                  [("a program whose server is killed", lambda: server_ends(kill_child, 1, "died of signal 9")),
                   ("a program whose server is stopped", lambda: server_ends(stop, 75, "so ends the program")),
                   ("a program whose server takes its time to stop", server_ends_late),
                   ("a program whose server cannot start", server_fails),
                   ("a program that configures its server", server_configured)])


if __name__ == "__main__":
    sys.exit(main())
