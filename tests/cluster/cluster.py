"""Clusters of real processes for the tests: each task Shoal's server or TensorFlow's own.

  with Cluster(ps=["shoal"], worker=["tf", "shoal"]) as c:
      tf.Session(c.target("worker", 0))
"""
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "tests"))
import forked

SHOAL = os.path.join(os.environ.get("SHOAL_BUILD", os.path.join(ROOT, "build")), "shoal")
TF_SERVER = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow.compat.v1 as tf
spec = {job: {int(i): a for i, a in tasks.items()} for job, tasks in json.loads(sys.argv[1]).items()}
config = tf.ConfigProto()
config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
if len(sys.argv) > 4: config.device_count["CPU"] = int(sys.argv[4])
server = tf.train.Server(tf.train.ClusterSpec(spec), job_name=sys.argv[2], task_index=int(sys.argv[3]), config=config)
print("listening on", server.target, flush=True)
server.join()
"""


# Seconds for what comes at once where a machine has nothing else to do: a test that has waited so long says that it does
# not come. SLACK: what a promised bound on time may be passed by, for the same reason; still far below the time-outs of
# TCP, or for ever, that end such waits where the promise is broken.
PATIENCE = 120
SLACK = 60

CLAIMS = []  # sockets whose names are the ports of this process, held as long as it lives


def free_ports(n):
    """Ports that no other test and no `shoal launch` is given meanwhile, and that the system does not give to whoever
    connects: below its own range, claimed by name as src/cli/launch_cluster.c does."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        last = int(f.read().split()[0])
    ports = []
    for port in random.sample(range(20000, last if last > 22000 else 32768), 1000):
        claim, probe = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), socket.socket()
        try:
            claim.bind(f"\0shoal-launch-port-{port}")
            # A process that another thread starts has a copy of this socket until it runs its program: not in the way of
            # those who bind the port next, since they set this too.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("0.0.0.0", port))
        except OSError:
            claim.close()
            continue
        finally:
            probe.close()
        CLAIMS.append(claim)
        ports.append(port)
        if len(ports) == n:
            return ports
    raise RuntimeError("no free ports")


def sanitized():
    """Is the server built with a sanitizer, whose own memory is beside what it holds?"""
    with open(os.path.join(os.path.dirname(SHOAL), "CMakeCache.txt")) as f:
        return any(line.startswith("SHOAL_SANITIZE:") and line.strip().split("=", 1)[1] for line in f)


def until(condition, seconds=PATIENCE, what=lambda: "it does not come"):
    """Waits for a condition; its value."""
    end = time.time() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.time() < end, what()
        time.sleep(0.05)


def until_step(target, text="running graph"):
    """Waits until a step is under way at a server, as far as a line of its status says."""
    def status():
        p = subprocess.run([SHOAL, "status", target], capture_output=True, text=True, timeout=PATIENCE)
        return text in p.stdout
    until(status, what=lambda: f"no step at {target}")


def gave_up(error):
    """Did a step of TensorFlow's client end because its time was up? When the answer that says so comes just as the client
    itself gives up, gRPC throws the message away and keeps the trailers: no message, and no error either."""
    import tensorflow.compat.v1 as tf
    return isinstance(error, tf.errors.DeadlineExceededError) or (
        isinstance(error, tf.errors.UnimplementedError) and "No message returned" in error.message)


class Task:
    def __init__(self, kind, spec, job, index, flags=()):
        self.kind, self.job, self.index, self.spec, self.flags = kind, job, index, spec, list(flags)
        self.address = spec[job][str(index)]
        self.prefix = []  # a command that runs the server: on another host, say
        self.program = SHOAL
        self.process = None
        self.log = tempfile.NamedTemporaryFile("w+", prefix=f"{job}{index}-", suffix=".log", delete=False)

    def start(self):
        spec = json.dumps(self.spec)
        command = ([self.program, "server", f"--cluster_spec={spec}", f"--job_name={self.job}", f"--task_index={self.index}",
                    *self.flags] if self.kind == "shoal" else
                   [sys.executable, "-c", TF_SERVER, spec, self.job, str(self.index), *self.cpus()])
        self.process = forked.start(self.prefix + command, self.log)
        return self

    def cpus(self):
        """How many devices TensorFlow's server is to have: what Shoal's are told."""
        return [flag.partition("=")[2] for flag in self.flags if flag.startswith("--cpu_devices=")]

    def text(self):
        with open(self.log.name, errors="replace") as f:
            return f.read()

    def wait(self, seconds=240):
        end = time.time() + seconds
        while "listening on" not in self.text():
            if self.process.poll() is not None or time.time() > end:
                raise RuntimeError(f"{self.kind} {self.job}:{self.index} did not start: {self.text()}")
            time.sleep(0.01)
        return self

    def kill(self, sig=signal.SIGKILL):
        if self.process and self.process.poll() is None:
            self.process.send_signal(sig)
            while sig == signal.SIGSTOP and not self.stopped():  # its threads run on until one has taken the signal
                time.sleep(0.001)

    def stopped(self):
        """Does none of its threads run?"""
        folder = f"/proc/{self.process.pid}/task"
        try:
            states = [open(f"{folder}/{t}/stat").read().rpartition(")")[2].split()[0] for t in os.listdir(folder)]
        except FileNotFoundError:  # one has just ended
            return False
        return all(state in "TtXZ" for state in states)

    def end(self):
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM if self.kind == "shoal" else signal.SIGKILL)
        try:
            return self.process.wait(120)  # the search for leaks as a process ends takes long on a busy machine
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Cluster:
    def __init__(self, flags=(), **jobs):
        """jobs: a list of kinds ("shoal", "tf") for each job."""
        ports = iter(free_ports(sum(len(kinds) for kinds in jobs.values())))
        self.spec = {job: {str(i): f"127.0.0.1:{next(ports)}" for i in range(len(kinds))} for job, kinds in jobs.items()}
        self.tasks = {(job, i): Task(kind, self.spec, job, i, flags)
                      for job, kinds in jobs.items() for i, kind in enumerate(kinds)}

    def __enter__(self):
        for t in self.tasks.values():
            t.start()
        for t in self.tasks.values():
            t.wait()
        return self

    def __exit__(self, *_):
        for t in self.tasks.values():
            t.end()

    def target(self, job, index=0):
        return "grpc://" + self.spec[job][str(index)]

    def lists(self):
        return {job: [tasks[str(i)] for i in range(len(tasks))] for job, tasks in self.spec.items()}


class Skip(Exception):
    """Raised by a test that cannot run here; the text says why."""


def report(tests):
    """Runs functions as TAP, those whose names have one of the program's arguments in them; 0, or it ends here."""
    import traceback
    failed = 0
    tests = [(name, fn) for name, fn in tests if any(only in name for only in sys.argv[1:] or [""])]
    print(f"1..{len(tests)}", flush=True)
    for name, fn in tests:
        start = time.time()
        try:
            fn()
            print(f"ok - {name} ({time.time() - start:.1f} s)", flush=True)
        except Skip as e:
            print(f"ok - {name} # SKIP {e}", flush=True)
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print(f"not ok - {name}", flush=True)
            print(re.sub("^", "# ", traceback.format_exc(), flags=re.M), flush=True)
    if failed:
        os._exit(1)  # not by way of sessions that a test left open: they wait for their servers, which are gone
    return 0
