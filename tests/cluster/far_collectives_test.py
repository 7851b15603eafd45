"""All-reduces of servers that share neither memory nor a host (network namespaces behind one switch): what goes over TCP in
large messages, and is merged as it comes, has the reference's bits in every type, size and algorithm; one that is killed, or
stops, amid a message ends the step of the others with its name, and they go on with it when it is there again."""
# needs: tensorflow
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf

from cluster import SHOAL, Skip, report, until
from collective_test import member, sum_of, values

HOSTS = 3
ADDRESSES = [f"10.97.1.{i + 1}:2222" for i in range(HOSTS)]
# What breaks in the middle: large enough not to be over before it breaks.
LONG = 64 << 20
INSIDE = "SHOAL_TEST_HOSTS"  # the names of the hosts, to the part of this that runs on the first


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def hosts():
    if os.geteuid() or not shutil.which("ip"):
        raise Skip("network namespaces need root, and iproute2")
    names = [f"c{os.getpid()}-{i}" for i in range(HOSTS + 1)]
    switch = names[HOSTS]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for i, name in enumerate(names[:HOSTS]):
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"p{i}", "netns", switch)
            ip("-n", switch, "link", "set", f"p{i}", "master", "br0", "up")
            ip("-n", name, "addr", "add", ADDRESSES[i].split(":")[0] + "/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    except (OSError, subprocess.CalledProcessError) as e:
        raise Skip(f"no network of our own can be had here: {e}") from e
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class Server:
    def __init__(self, host, i):
        self.command = ["ip", "netns", "exec", host, SHOAL, "server", f"--worker_hosts={','.join(ADDRESSES)}",
                        "--job_name=worker", f"--task_index={i}", "--insecure_bind_all", "--peer_timeout=4"]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end(self):
        self.process.kill()
        self.process.wait()


def session():
    return tf.Session("grpc://" + ADDRESSES[0])


def all_bits(servers):
    types = (np.float32, np.float64, np.float16, tf.bfloat16.as_numpy_dtype, np.int32, np.int64)
    for group, hint in enumerate(("auto", "shoal:direct", "shoal:tree", "shoal:halving", "shoal:central", "shoal:ring")):
        with tf.Graph().as_default(), session() as s:
            made, wanted = [], []
            for i, (n, dtype) in enumerate((n, t) for n in (49999, 400003) for t in types):
                x = [(values(r, n) * 100).astype(dtype) for r in range(HOSTS)]
                made += [member("reduce", x[r], r, size=HOSTS, group=100 + group, instance=1 + i, communication_hint=hint)
                         for r in range(HOSTS)]
                wanted.append(sum_of(x))
            for _ in range(2):
                got = s.run(made)
                for i, want in enumerate(wanted):
                    ranks = got[HOSTS * i:HOSTS * i + HOSTS]
                    assert all(g.dtype == want.dtype and g.tobytes() == ranks[0].tobytes() for g in ranks), (hint, want.dtype)
                    assert hint == "shoal:ring" or ranks[0].tobytes() == want.tobytes(), (hint, want.dtype, len(want))


def means(servers):
    """Each part of a sum is divided as it is merged: once."""
    n = 100003
    with tf.Graph().as_default(), session() as s:
        made = [member("reduce", values(r, n), r, size=HOSTS, group=200, final_op="Div", communication_hint="shoal:direct")
                for r in range(HOSTS)]
        want = sum_of([values(r, n) for r in range(HOSTS)]) / np.float32(HOSTS)
        for got in s.run(made):
            assert got.tobytes() == want.tobytes()


def broken(servers, breaks, mends, group, late):
    """A step with messages of many megabytes, broken amid them; afterwards the same again."""
    with tf.Graph().as_default(), session() as s:
        made = []
        for r in range(HOSTS):
            with tf.device(f"/job:worker/task:{r}/cpu:0"):
                made.append(tf.fill([LONG // 4], np.float32(r + 1)))
        ends = []
        for r, x in enumerate(made):
            with tf.device(f"/job:worker/task:{r}/cpu:0"):
                for i in range(3):
                    x = tf.raw_ops.CollectiveReduce(input=x, group_size=HOSTS, group_key=group, instance_key=i + 1,
                                                    merge_op="Add", final_op="Div", subdiv_offsets=[0],
                                                    communication_hint="shoal:direct")
                ends.append(tf.reduce_max(x) + tf.reduce_min(x))
        assert s.run(ends) == [4.0] * HOSTS
        timer = threading.Timer(late, breaks)
        timer.start()
        for _ in range(100):
            try:
                s.run(ends)
            except (tf.errors.UnavailableError, tf.errors.AbortedError) as e:
                assert "task:2" in e.message, e.message
                break
        else:
            raise AssertionError("it goes on without a member")
        timer.join()
        mends()

        def goes_on():
            try:
                with session() as again:  # who is new has nothing of the first
                    return again.run(ends) == [4.0] * HOSTS
            except (tf.errors.UnavailableError, tf.errors.AbortedError):
                return False
        until(goes_on, what=lambda: "they do not go on")


def one_is_killed(servers):
    for k in range(3):
        broken(servers, servers[2].end, servers[2].start, 300 + k, 0.03 * k)


def one_stops(servers):
    for k in range(2):
        broken(servers, lambda: servers[2].process.send_signal(signal.SIGSTOP),
               lambda: servers[2].process.send_signal(signal.SIGCONT), 400 + k, 0.05 * k)


def inside(names):
    servers = [Server(name, i) for i, name in enumerate(names)]
    try:
        return report([(f.__name__.replace("_", " "), lambda f=f: f(servers))
                       for f in (all_bits, means, one_is_killed, one_stops)])
    finally:
        for s in servers:
            s.end()


def apart():
    with hosts() as names:
        began = subprocess.run(["ip", "netns", "exec", names[0], sys.executable, os.path.abspath(__file__)], check=False,
                               env={**os.environ, INSIDE: " ".join(names[:HOSTS])})
        assert began.returncode == 0, "see above"


if __name__ == "__main__":
    sys.exit(inside(os.environ[INSIDE].split()) if INSIDE in os.environ else report([("hosts of their own", apart)]))
