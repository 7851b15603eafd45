"""The fast path between Shoal's tasks: over TCP between hosts (a network namespace stands for the other host), what happens
when the other host dies or is cut off in the middle of a tensor, who is let in, tensors over 2 GB.
"""
# needs: tensorflow
# under sanitizers: on one host
# on the soft device: on one host | over TCP | off means | other host | strangers
# long on the soft device
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf

from cluster import PATIENCE, SHOAL, SLACK, Cluster, report

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
NUMBER = os.getpid() % 200
HERE, THERE = f"10.{NUMBER}.77.1", f"10.{NUMBER}.77.2"

def sh(command):
    return subprocess.run(command, shell=True, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Host:
    """Another host: a network namespace and a cable to it."""
    made = 0

    def __init__(self):
        Host.made += 1
        self.name = f"sh{os.getpid()}x{Host.made}"
        self.run = f"ip netns exec {self.name}"

    def __enter__(self):
        sh(f"ip netns add {self.name}")
        sh(f"ip link add {self.name}a type veth peer name {self.name}b netns {self.name}")
        sh(f"ip addr add {HERE}/24 dev {self.name}a && ip link set {self.name}a up")
        sh(f"{self.run} ip addr add {THERE}/24 dev {self.name}b && {self.run} ip link set {self.name}b up && "
           f"{self.run} ip link set lo up")
        return self

    def __exit__(self, *_):
        subprocess.run(f"ip link del {self.name}a; ip netns del {self.name}", shell=True, check=False)

    def cut(self):
        sh(f"ip link set {self.name}a down")


class TwoHosts(Cluster):
    """A ps on the other host, a worker here."""

    def __init__(self, host, flags=()):
        super().__init__(["--insecure_bind_all", *flags], ps=["shoal"], worker=["shoal"])
        for (job, _), task in self.tasks.items():
            task.address = task.address.replace("127.0.0.1", THERE if job == "ps" else HERE)
        self.spec = {job: {str(i): self.tasks[job, int(i)].address for i in tasks} for job, tasks in self.spec.items()}
        for task in self.tasks.values():
            task.spec = self.spec
        self.tasks["ps", 0].prefix = host.run.split()


def can_make_hosts():
    try:
        with Host():
            return True
    except (subprocess.CalledProcessError, FileNotFoundError):
        return False


def pull_graph(n):
    with tf.device("/job:ps/task:0"):
        v = tf.get_variable("v", [n], initializer=tf.zeros_initializer(), use_resource=True)
        add = v.assign_add(tf.ones([n]))
    with tf.device("/job:worker/task:0"):
        return tf.reduce_max(tf.identity(v)), add


def status(cluster):
    return subprocess.run([SHOAL, "status", cluster.target("worker")], stdout=subprocess.PIPE, check=True, text=True,
                          timeout=PATIENCE).stdout


def all_sizes(c):
    """Values of all sizes, both ways."""
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            x = tf.placeholder(tf.float32, [None])
            words = tf.strings.join(["a", tf.as_string(tf.shape(x)[0])])
            half = x * 0.5
        with tf.device("/job:worker/task:0"):
            back, said = half + 1.0, tf.strings.join([words, "b"])
        with tf.device("/job:ps/task:0"):
            again = back * 2.0
        with tf.Session(c.target("worker")) as s:
            for n in (0, 1, 1000, 3000, 4096, 70000, 524288, 524289, 5000000):
                value = np.arange(n, dtype=np.float32)
                out, text = s.run([again, said], {x: value})
                np.testing.assert_allclose(out, value + 2.0)
                assert text == b"a%db" % n, text


def over_tcp():
    with Host() as host, TwoHosts(host) as c:
        all_sizes(c)
        text = status(c)
        assert re.search(r"/job:ps/replica:0/task:0 .*: fast path over TCP", text), text


def on_one_host():
    """The same through shared memory; then more values than it has room for are kept, and outlive the ps."""
    with Cluster(ps=["shoal"], worker=["shoal"]) as c, tf.Graph().as_default():
        all_sizes(c)
        assert "fast path over shared memory" in status(c)
        n, count = 1 << 18, 20
        with tf.device("/job:ps/task:0"):
            x = tf.placeholder(tf.float32, [])
            made = tf.fill([n], x)
        with tf.device("/job:worker/task:0"):
            kept = tf.queue.FIFOQueue(count, [tf.float32], [[n]])
            keep, take = kept.enqueue(made), kept.dequeue()
        with tf.Session(c.target("worker")) as s:
            for i in range(count):
                s.run(keep, {x: i})
            for i in range(count - 2):
                np.testing.assert_array_equal(s.run(take), np.full(n, i, np.float32))
            for i in range(30):  # blocks are used again
                s.run(keep, {x: 100 + i})
                s.run(take)
            c.tasks["ps", 0].kill()
            np.testing.assert_array_equal(s.run(take), np.full(n, 128, np.float32))


def off_means_off():
    with Host() as host, TwoHosts(host, ["--fast_path=false"]) as c, tf.Graph().as_default():
        top, add = pull_graph(100000)
        with tf.Session(c.target("worker")) as s:
            s.run(tf.global_variables_initializer())
            s.run(add)
            assert s.run(top) == 1.0
        assert "fast path" not in status(c)


def interrupted(harm, seconds):
    """Large tensors stream from the other host when it is harmed: an error that names the task, in time."""
    with Host() as host, TwoHosts(host) as c, tf.Graph().as_default():
        top, add = pull_graph(32 << 20)
        with tf.Session(c.target("worker")) as s:
            s.run(tf.global_variables_initializer())
            s.run(add)
            for _ in range(3):
                assert s.run(top) == 1.0
            harmed = []
            threading.Timer(0.7, lambda: (harmed.append(time.time()), harm(host, c))).start()
            try:
                while True:
                    s.run(top)
            except tf.errors.UnavailableError as e:
                assert time.time() - harmed[0] < seconds + SLACK, f"{time.time() - harmed[0]:.1f} s"
                assert "/job:ps/replica:0/task:0" in e.message, e.message
        c.tasks["ps", 0].kill()


def strangers():
    """Without the secret nobody is served, and many who say nothing do not keep others out."""
    with Host() as host, TwoHosts(host) as c, tf.Graph().as_default():
        ps = c.tasks["ps", 0].process.pid
        listening = sh(f"{host.run} ss -tlnp").stdout
        own = c.tasks["ps", 0].address.rsplit(":", 1)[1]
        ports = {int(p) for line in listening.splitlines() if f"pid={ps}" in line or "shoal" in line
                 for p in re.findall(r":(\d+)\s", line)[:1]} - {int(own)}
        assert len(ports) == 1, listening
        port = ports.pop()
        bad = socket.create_connection((THERE, port), PATIENCE)
        bad.sendall(b"x" * 16 + struct.pack("<BBBBIQQ", 1, 0, 0, 0, 3, 1, 1) + b"key")  # would be a request
        bad.settimeout(PATIENCE)
        try:
            assert bad.recv(1) == b""
        except ConnectionResetError:
            pass
        silent = [socket.create_connection((THERE, port), PATIENCE) for _ in range(100)]
        top, add = pull_graph(100000)
        with tf.Session(c.target("worker")) as s:
            s.run(tf.global_variables_initializer())
            s.run(add)
            for _ in range(3):
                assert s.run(top) == 1.0
        assert "fast path over TCP" in status(c)
        for x in silent:
            x.close()


LARGE = 2200 * 1000 * 1000


def large_graph():
    with tf.device("/job:ps/task:0"):
        large = tf.fill([LARGE], tf.constant(7, tf.uint8))
    with tf.device("/job:worker/task:0"):
        return tf.slice(large, [LARGE - 2], [2])


def large(kinds, flags, works):
    with Cluster(flags, ps=[kinds[0]], worker=[kinds[1]]) as c, tf.Graph().as_default():
        last = large_graph()
        with tf.Session(c.target("ps" if kinds[1] == "tf" else "worker")) as s:
            if works:
                np.testing.assert_array_equal(s.run(last), [7, 7])
                return
            try:
                s.run(last)
            except tf.errors.OpError as e:
                assert "2 GiB" in e.message, e.message
                return
            raise AssertionError("no error")


def memory_gb():
    """What is free in the machine, and in the part of it that a container has."""
    with open("/proc/meminfo") as f:
        free = int(re.search(r"MemAvailable:\s+(\d+)", f.read()).group(1)) / 1e6
    try:
        with open("/sys/fs/cgroup/memory.max") as most, open("/sys/fs/cgroup/memory.current") as used:
            return min(free, (int(most.read()) - int(used.read())) / 1e9)
    except (OSError, ValueError):  # there is no such part, or no limit
        return free


TESTS = [
    ("over TCP", over_tcp),
    ("off means off", off_means_off),
    ("the other host dies in a tensor", lambda: interrupted(lambda h, c: c.tasks["ps", 0].kill(), 4)),
    ("the other host is cut off in a tensor", lambda: interrupted(lambda h, c: h.cut(), 11)),
    ("strangers", strangers),
]
MEMORY = [
    ("over 2 GB, within a host", lambda: large(["shoal", "shoal"], [], True)),
    ("over 2 GB by gRPC: an early error", lambda: large(["shoal", "shoal"], ["--fast_path=false"], False)),
    ("over 2 GB to TensorFlow: an early error", lambda: large(["shoal", "tf"], [], False)),
]

if not can_make_hosts():
    for name, _ in TESTS:
        print(f"ok - {name} # SKIP network namespaces need root and ip")
    TESTS = []
TESTS.insert(0, ("on one host", on_one_host))
if memory_gb() < 9:
    for name, _ in MEMORY:
        print(f"ok - {name} # SKIP needs 9 GB of free memory")
    MEMORY = []
sys.exit(report(TESTS + MEMORY))
