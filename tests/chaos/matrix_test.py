"""Every fault, on every role, at every moment: {killed, stopped, cut off, restarted} x {ps, worker, master} x {startup, step,
idle, shutdown}. Each cell says which error comes, that it names the task and its address, that it comes within the bound that
is promised, and that what has nothing to do with the fault goes on.

A cut is a TCP reset by a proxy that stands before the task. The master's client is the one in C, which promises the same
bounds as servers do; TensorFlow's client promises nothing when its master is gone.
"""
# needs: tensorflow
# long on the soft device; in short: a ps is killed in a step
import concurrent.futures
import contextlib
import copy
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("cluster", "interop"):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), folder))
import numpy as np
import shoal
import tensorflow.compat.v1 as tf

from cluster import PATIENCE, SHOAL, SLACK, Cluster, free_ports, report, until, until_step

tf.disable_v2_behavior()
T = 5  # --peer_timeout, seconds: whoever is well must answer in that time, with several cells on one core
CLIENT_T = 10.0  # the C client's own
UNAVAILABLE, ABORTED, DEADLINE = 14, 10, 4


class Proxy:
    """Passes bytes to a port; on cut() every connection is reset. While `shut` new ones are reset at once too."""

    def __init__(self, port):
        self.to, self.shut, self.pairs, self.lock = port, False, {}, threading.Lock()
        self.port, = free_ports(1)  # listened on again later: not one that the system gives to others meanwhile
        until(self.open)
        self.over = self.deaf = False
        self.turns = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while not self.over:
            self.turns += 1
            with self.lock:
                waiting = [*([] if self.deaf else [self.listener]), *self.pairs]
            try:
                ready = select.select(waiting, [], [], 0.05)[0]
            except (OSError, ValueError):
                continue
            for s in ready:
                try:
                    self.accept() if s is self.listener else self.move(s)
                except OSError:
                    self.drop(s)
        self.listener.close()

    def accept(self):
        a, _ = self.listener.accept()
        if self.shut:
            self.reset(a)
            return
        try:
            b = socket.create_connection(("127.0.0.1", self.to), PATIENCE)
        except OSError:
            a.close()
            return
        with self.lock:
            self.pairs[a], self.pairs[b] = b, a

    def move(self, s):
        data = s.recv(1 << 16)
        other = self.pairs.get(s)
        if not data or other is None:
            raise OSError
        other.sendall(data)

    def drop(self, s):
        with self.lock:
            other = self.pairs.pop(s, None)
            self.pairs.pop(other, None)
        for e in (s, other):
            if e is not None:
                e.close()

    @staticmethod
    def reset(s):
        try:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
        except OSError:  # the thread was quicker
            pass

    def open(self):
        """A process that another cell starts has a copy of the old listener until it runs its program."""
        try:
            self.listener = socket.create_server(("127.0.0.1", self.port))
        except OSError:
            return False
        return True

    def listen(self, on):
        """Off: connections are refused, as they are where no process listens."""
        if on:
            until(self.open)
            self.deaf = False
        else:
            self.deaf = True
            self.listener.close()
            self.cut()
            seen = self.turns
            until(lambda: self.turns > seen + 1)  # the thread that waited for it has let go of the port

    def cut(self):
        with self.lock:
            all_of, self.pairs = list(self.pairs), {}
        for s in all_of:
            self.reset(s)


class Cell:
    """A ps and two workers; the master is worker 0, the other worker is worker 1. The task that is hit is behind a proxy."""

    def __init__(self, role, flags=()):
        self.c = Cluster([f"--peer_timeout={T}", "--fast_path=false", "--startup_timeout=600", *flags], ps=["shoal"],
                         worker=["shoal", "shoal"])
        self.role = role
        self.key = {"ps": ("ps", 0), "worker": ("worker", 1), "master": ("worker", 0)}[role]
        self.hit = self.c.tasks[self.key]
        self.proxy = Proxy(int(self.hit.address.split(":")[1]))
        self.address = f"127.0.0.1:{self.proxy.port}"
        for key, task in self.c.tasks.items():
            task.spec = copy.deepcopy(self.c.spec)
            if key != self.key:
                task.spec[self.key[0]][str(self.key[1])] = self.address
        self.name = f"/job:{self.key[0]}/replica:0/task:{self.key[1]}"
        self.device = f"/job:{self.key[0]}/task:{self.key[1]}" if role != "master" else "/job:ps/task:0"
        self.target = "grpc://" + (self.address if role == "master" else self.c.spec["worker"]["0"])

    def __enter__(self):
        self.c.__enter__()
        return self

    def __exit__(self, *_):
        self.c.__exit__()
        self.proxy.over = True

    def end(self):
        self.hit.kill()
        self.hit.process.wait()
        self.proxy.listen(False)

    def begin(self):
        self.hit.log.truncate(0)
        self.hit.start().wait()
        self.proxy.listen(True)

    def fault(self, kind):
        if kind == "killed":
            self.end()
        elif kind == "stopped":
            self.hit.kill(signal.SIGSTOP)
        elif kind == "cut off":
            self.proxy.cut()
        else:
            self.end()
            self.begin()

    def graph(self):
        """wait: never ends, on the task that is hit (for the master: on the ps). work: passes through it. other: does not."""
        with tf.Graph().as_default() as g:
            with tf.device(self.device):
                tf.identity(tf.FIFOQueue(1, [tf.float32], shapes=[[]], shared_name="empty").dequeue(), name="wait")
                x = tf.placeholder(tf.float32, [], name="x")
                work = x + 1.0
            with tf.device("/job:worker/task:0"):
                tf.multiply(work, 2.0, name="work")
                tf.multiply(x, 3.0, name="other")
        return shoal.Graph(g.as_graph_def().SerializeToString())

    def session(self, timeout_ms=0, target=None):
        return shoal.Session(self.graph(), target=target or self.target, operation_timeout_ms=timeout_ms)

    def bystander(self):
        """A session of another master that uses nothing of the task that was hit still works."""
        job, index = ("worker", 1) if self.role != "worker" else ("ps", 0)
        config = tf.ConfigProto(device_filters=[f"/job:{job}/task:{index}"]).SerializeToString()
        with tf.Graph().as_default() as g:
            tf.add(tf.constant(1.0), 1.0, name="two")
        with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString()), target=self.c.target(job, index),
                           config=config, operation_timeout_ms=PATIENCE * 1000) as s:
            assert s.run(["two:0"])[0] == 2.0

    def bound(self):
        return (CLIENT_T if self.role == "master" else T) + SLACK


@contextlib.contextmanager
def closing(s):
    """Closes a session whose master may be gone by then."""
    yield s
    try:
        s.close()
    except shoal.Error as e:
        assert e.code in (UNAVAILABLE, ABORTED), e


def run(s, fetch, timeout_ms=PATIENCE * 1000):
    return float(s.run([fetch + ":0"], {"x:0": np.float32(1)} if fetch != "wait" else None, timeout_ms=timeout_ms)[0])


def fails(fn, codes, texts, bound, since=None):
    """Within the bound, from now on or from the moment that `since` has by then."""
    start = time.time()
    try:
        fn()
    except shoal.Error as e:
        took = time.time() - (since[0] if since else start)
        assert took < bound, f"after {took:.1f} s: {e}"
        assert e.code in codes, e
        for t in texts:
            assert t in str(e), (t, str(e))
        return e
    raise AssertionError("no error")


def until_works(s, bound=SLACK):
    """A connection comes back by itself; meanwhile calls may say UNAVAILABLE."""
    end = time.time() + bound
    while True:
        try:
            assert run(s, "work") == 4.0
            return
        except shoal.Error as e:
            assert e.code == UNAVAILABLE and time.time() < end, e
            time.sleep(0.1)


def startup(role, kind):
    with Cell(role) as c:
        if kind in ("killed", "stopped"):
            c.fault(kind)
            # Nobody knows whether it will come up: the client's deadline ends the wait, and the error says for whom.
            cause = {"killed": "", "stopped": "no answer"}[kind] if role != "master" else ""
            fails(lambda: c.session(8000), [DEADLINE], [c.address, *([c.name, cause] if role != "master" else [])],
                  8 + SLACK)
            c.bystander()
            return
        opened = []
        if kind == "cut off":
            c.proxy.shut = True
        else:
            c.end()
        t = threading.Thread(target=lambda: opened.append(c.session(PATIENCE * 1000)), daemon=True)
        t.start()
        time.sleep(0.4)
        assert not opened
        c.proxy.shut = False
        if kind == "restarted":
            c.begin()
        t.join(PATIENCE)
        assert opened, "the session was not opened"
        assert run(opened[0], "work") == 4.0
        opened[0].close()


def step(role, kind):
    with Cell(role) as c, closing(c.session()) as s:
        assert run(s, "work") == 4.0
        when = []

        def harm():
            waits = c.c.tasks["ps", 0] if role == "master" else c.hit
            until_step("grpc://" + waits.address)
            time.sleep(0.2)  # the other partitions of the step
            when.append(time.time())
            c.fault(kind)
        hit = threading.Thread(target=harm, daemon=True)
        hit.start()
        e = fails(lambda: run(s, "wait"), [UNAVAILABLE, ABORTED] if kind == "restarted" else [UNAVAILABLE],
                  [c.address, *([c.name] if role != "master" else [])], c.bound(), when)
        hit.join()  # a restarted task is up again, and ends with the cell
        if role != "master":
            assert "step" in str(e), e
            if kind != "restarted":
                assert run(s, "other") == 3.0
        c.bystander()
        if kind == "cut off":
            until_works(s)


def idle(role, kind):
    with Cell(role) as c, closing(c.session()) as s:
        assert run(s, "work") == 4.0
        c.fault(kind)
        c.bystander()
        if kind == "cut off":
            until_works(s)
            return
        texts = [c.address] if role == "master" else [c.name]
        if kind != "restarted":
            fails(lambda: run(s, "work"), [UNAVAILABLE], texts, c.bound())
            return
        # The first answers may still come from the broken connection; then the task is there, and does not know us.
        end = time.time() + SLACK
        e = fails(lambda: run(s, "work"), [UNAVAILABLE, ABORTED], [], c.bound())
        while e.code != ABORTED and time.time() < end:
            time.sleep(0.2)
            e = fails(lambda: run(s, "work"), [UNAVAILABLE, ABORTED], [], c.bound())
        assert e.code == ABORTED, e
        with c.session(PATIENCE * 1000) as again:
            assert run(again, "work") == 4.0


def shutdown(role, kind):
    """Closing a session, and stopping the other tasks, while a task is gone: neither waits for it for long."""
    with Cell(role) as c:
        s = c.session()
        assert run(s, "work") == 4.0
        c.fault(kind)
        start = time.time()
        try:
            s.close()
        except shoal.Error as e:  # the master is gone, or does not know the session any more
            assert role == "master" and e.code in (UNAVAILABLE, ABORTED), e
        assert time.time() - start < c.bound(), f"closing took {time.time() - start:.1f} s"
        start = time.time()
        alive = [t for t in c.c.tasks.values() if t is not c.hit or kind in ("cut off", "restarted")]
        subprocess.run([SHOAL, "stop", *("grpc://" + t.address for t in alive)], check=True, capture_output=True,
                       timeout=PATIENCE)
        for t in alive:
            assert t.process.wait(T + SLACK) == 0, t.text()
        assert time.time() - start < T + SLACK
        for t in alive:  # the ports are free at once
            with socket.socket() as p:
                p.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                p.bind(("127.0.0.1", int(t.address.split(":")[1])))


CELLS = [(f"a {role} is {kind} {when}", fn, role, kind) for fn, when in
         ((startup, "while a session starts"), (step, "in a step"), (idle, "between steps"), (shutdown, "before the end"))
         for role in ("ps", "worker", "master") for kind in ("killed", "stopped", "cut off", "restarted")]

if __name__ == "__main__":
    # The cells mostly wait: several at a time. Their results are told in order.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        only = sys.argv[1] if len(sys.argv) > 1 else ""
        futures = {name: pool.submit(fn, role, kind) for name, fn, role, kind in CELLS if only in name}
        sys.exit(report([(name, f.result) for name, f in futures.items()]))
