"""Limits of a server: each is enforced, says its flag, takes no memory on the way, and leaves the server in order."""
# needs: tensorflow
# long on the soft device; in short: callables
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc
import numpy as np
import tensorflow.compat.v1 as tf
from google.protobuf.internal import encoder

import master_client
from cluster import ROOT, SHOAL, Cluster, report, until

tf.disable_v2_behavior()
MB = 1 << 20


def resident(task, which="VmHWM"):
    """In MB: at most so far, or now (VmRSS)."""
    with open(f"/proc/{task.process.pid}/status") as f:
        return [int(line.split()[1]) // 1024 for line in f if line.startswith(which)][0]


def one(*flags):
    return Cluster(flags, worker=["shoal"])


def fails(fn, kind, *texts):
    try:
        fn()
    except kind as e:
        for t in texts:
            assert t in e.message, e.message
        return
    raise AssertionError("no error")


def field(number, value):
    """A field of a message: bytes, or an integer."""
    if isinstance(value, int):
        return encoder.TagBytes(number, 0) + encoder._VarintBytes(value)
    return encoder.TagBytes(number, 2) + encoder._VarintBytes(len(value)) + value


MASTER, WORKER = "/tensorflow.MasterService/", "/tensorflow.WorkerService/"
ALONE = (("grpc.use_local_subchannel_pool", 1),)  # a connection of its own


def graph_of(n, device=""):
    with tf.Graph().as_default() as g, tf.device(device):
        for i in range(n):
            tf.constant(float(i), name=f"c{i}")
    return g.as_graph_def().SerializeToString()


class Client:
    """Raw calls over one connection, which ends with it."""

    def __init__(self, c):
        self.channel = grpc.insecure_channel(c.spec["worker"]["0"], options=ALONE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def call(self, method, request=b"", seconds=120):
        return self.channel.unary_unary(method)(request, timeout=seconds)

    def open(self, graph=b"", config=b"", target=b""):
        answer = self.call(MASTER + "CreateSession", field(1, graph) + field(2, config) + field(3, target))
        return answer[2:2 + answer[1]]

    def step(self, session, fetch):
        return self.call(MASTER + "RunStep", field(1, session) + field(3, fetch))

    def close(self, session):
        self.call(MASTER + "CloseSession", field(1, session))


def refused(fn, *texts, code=grpc.StatusCode.RESOURCE_EXHAUSTED):
    try:
        fn()
    except grpc.RpcError as e:
        assert e.code() == code and all(t in e.details() for t in texts), e
        return
    raise AssertionError("no error")


def eventually(fn):
    """What fn returns when there is room for it: what a call held may be given back a moment after its answer."""
    def attempt():
        try:
            return fn() or True
        except (grpc.RpcError, tf.errors.ResourceExhaustedError) as e:
            assert isinstance(e, tf.errors.OpError) or e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, e
            return None
    return until(attempt)


def works(c):
    with tf.Graph().as_default(), tf.Session(c.target("worker")) as s:
        assert s.run(tf.constant(1.0) + 1.0) == 2.0


def request_bytes():
    """256 MB where 4 are allowed: refused, and never held in memory."""
    with one(f"--max_request_bytes={4 * MB}") as c:
        before = resident(c.tasks["worker", 0])
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [None])
            y = tf.reduce_sum(x)
            with tf.Session(c.target("worker")) as s:
                assert s.run(y, {x: np.ones(MB // 8)}) == MB / 8
                for _ in range(4):
                    fails(lambda: s.run(y, {x: np.ones(64 * MB, np.float32)}), tf.errors.ResourceExhaustedError)
                assert s.run(y, {x: np.ones(8)}) == 8
        assert resident(c.tasks["worker", 0]) - before < 128, "the refused requests were taken in"


def names():
    """Names take two bytes in a request and hundreds here: there is an end to them, and room for them is needed."""
    with one() as c, Client(c) as client:
        before = resident(c.tasks["worker", 0])
        session, many = field(1, client.open(graph_of(1))), (1 << 20) + 1
        for method, request in ((MASTER + "RunStep", session + field(3, b"") * many),
                                (MASTER + "RunStep", session + field(2, b"") * many),
                                (MASTER + "PartialRunSetup", session + field(4, b"") * many),
                                (MASTER + "MakeCallable", session + field(2, field(2, b"") * many)),
                                (MASTER + "RunCallable", session + field(3, b"") * many),
                                (MASTER + "Reset", field(1, b"") * many),
                                (WORKER + "RunGraph", field(4, b"") * many),
                                (WORKER + "CleanupAll", field(1, b"") * many)):
            refused(lambda: client.call(method, request), "names and values")
        refused(lambda: client.open(config=field(4, b"") * many), "device_filters")
        assert resident(c.tasks["worker", 0]) - before < 100, "they were unpacked"
        works(c)
    with one(f"--max_held_bytes={16 * MB}") as c, Client(c) as client:
        refused(lambda: client.call(MASTER + "RunStep", field(3, b"") * 50000), "names and values", "--max_held_bytes")
        works(c)


def graph_nodes():
    with one("--max_graph_nodes=100") as c:
        with tf.Graph().as_default():
            out = tf.add_n([tf.constant(float(i)) for i in range(200)])
            s = tf.Session(c.target("worker"))
            fails(lambda: s.run(out), tf.errors.ResourceExhaustedError, "more than 100 nodes")
        with tf.Graph().as_default():
            with tf.Session(c.target("worker")) as s:
                assert s.run(tf.constant(1.0)) == 1.0
                more = tf.add_n([tf.constant(float(i)) for i in range(200)])
                fails(lambda: s.run(more), tf.errors.ResourceExhaustedError, "more than 100 nodes")
        works(c)


def partition_nodes():
    """A worker holds to its own limit, whatever the master's is."""
    c = Cluster(ps=["shoal"], worker=["shoal"])
    c.tasks["ps", 0].flags.append("--max_graph_nodes=50")
    with c, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            # Placeholders, so that nothing is folded away.
            x = tf.placeholder(tf.float32, [])
            out = tf.add_n([x + float(i) for i in range(100)])
        with tf.Session(c.target("worker")) as s:
            fails(lambda: s.run(out, {x: 1.0}), tf.errors.ResourceExhaustedError, "more than 50 nodes", "/job:ps")


def sessions():
    with one("--max_sessions=3") as c:
        with tf.Graph().as_default():
            x = tf.constant(1.0)
            opened = [tf.Session(c.target("worker")) for _ in range(3)]
            for s in opened:
                s.run(x)
            fourth = tf.Session(c.target("worker"))
            fails(lambda: fourth.run(x), tf.errors.ResourceExhaustedError, "--max_sessions")
            opened.pop().close()
            again = tf.Session(c.target("worker"))
            assert again.run(x) == 1.0
            for s in (*opened, again):
                s.close()


def steps():
    """Three steps wait: a fourth is refused, and so are values of more steps than that. Then all goes on."""
    with one("--max_steps=3") as c:
        with tf.Graph().as_default():
            q = tf.queue.FIFOQueue(10, [tf.float32], [[]])
            put, take, other = q.enqueue(1.0), q.dequeue(), tf.constant(1.0)
            with tf.Session(c.target("worker")) as s:
                s.run([put, put.inputs[0].op])  # compiles
                s.run(take)

                def wait():
                    while True:
                        try:
                            s.run(take)
                        except tf.errors.CancelledError:
                            return
                        except tf.errors.ResourceExhaustedError:  # the test's own step came before
                            time.sleep(0.01)
                waiting = [threading.Thread(target=wait) for _ in range(3)]
                for t in waiting:
                    t.start()
                refused, end = None, time.time() + 60
                while refused is None and time.time() < end:  # until all three are there
                    try:
                        s.run(other)
                        time.sleep(0.01)
                    except tf.errors.ResourceExhaustedError as e:
                        refused = e
                assert refused and "--max_steps" in refused.message, refused
                with tf.Session(c.target("worker")) as s2:  # any session; its step is refused likewise
                    fails(lambda: s2.run(other), tf.errors.ResourceExhaustedError, "3 steps", "--max_steps")
                s.close()
                for t in waiting:
                    t.join()
        eventually(lambda: works(c))
        with grpc.insecure_channel(c.spec["worker"]["0"]) as channel:
            device = channel.unary_unary("/tensorflow.WorkerService/GetStatus")(b"", timeout=60)
            incarnation = int.from_bytes(re.search(rb"CPU:0.*?1(.{8})", device, re.S).group(1), "little")
            name = "/job:worker/replica:0/task:0/device:CPU:0"
            receive = channel.unary_unary("/tensorflow.WorkerService/RecvTensor")
            asked = [receive.future(b"\x08" + bytes([i + 1]) + field(2, f"{name};{incarnation:016x};{name};e;0:0".encode()),
                                    timeout=600) for i in range(4)]
            refused = until(lambda: [a for a in asked if a.done()])
            for a in refused:
                assert a.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "--max_steps" in a.details(), a
            for a in asked:
                a.cancel()


def callables():
    with one("--max_callables=2") as c, tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [])
        ys = [x + float(i) for i in range(5)]
        with tf.Session(c.target("worker")) as s:
            made = [s.make_callable(y, [x]) for y in ys]
            assert [f(1.0) for f in made] == [1.0, 2.0, 3.0, 4.0, 5.0]  # by RunStep: not counted
        with grpc.insecure_channel(c.spec["worker"]["0"]) as channel:
            service = "/tensorflow.MasterService/"
            graph = field(1, tf.get_default_graph().as_graph_def().SerializeToString())
            handle = channel.unary_unary(service + "CreateSession")(graph, timeout=60)
            handle = handle[2:2 + handle[1]]
            make = channel.unary_unary(service + "MakeCallable")
            options = [field(1, handle) + field(2, field(1, b"Placeholder:0") + field(2, y.name.encode())) for y in ys]
            for o in options[:2]:
                make(o, timeout=60)
            for o in options[1:3]:
                try:
                    make(o, timeout=60)
                except grpc.RpcError as e:
                    assert e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "--max_callables" in e.details(), e
                else:
                    raise AssertionError("no error")
            channel.unary_unary(service + "ReleaseCallable")(field(1, handle) + b"\x10\x01", timeout=60)
            make(options[3], timeout=60)
            channel.unary_unary(service + "CloseSession")(field(1, handle), timeout=60)
            handle = channel.unary_unary(service + "CreateSession")(graph, timeout=60)
            handle = handle[2:2 + handle[1]]
            for o in options[:2]:  # a closed session's go back with the last of its calls, a moment after the answer
                until(lambda: makes(make, field(1, handle) + o[2 + o[1]:]))


def makes(make, request):
    try:
        make(request, timeout=60)
    except grpc.RpcError as e:
        if e.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
        return False
    return True


def closed_sessions():
    """What sessions held goes back to the system after them, also where nothing was ever run."""
    with one() as c, tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [], name="x")
        for i in range(100):
            tf.identity(x, name=f"y{i}")
        session = master_client.Client(c.target("worker")).create(tf.get_default_graph().as_graph_def())
        before = resident(c.tasks["worker", 0], "VmRSS")
        for i in range(5000):
            session.make(feed=["x:0"], fetch=[f"y{i // 100}:0", f"y{50 + i % 50}:0", f"y{i % 100}:0"])
        full = resident(c.tasks["worker", 0], "VmRSS")
        assert full > before + 10, (before, full)
        session.close()
        until(lambda: resident(c.tasks["worker", 0], "VmRSS") < (before + full) / 2)


def partial_runs():
    with one("--max_partial_runs=2") as c, tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [])
        y = x + 1.0
        z = y * 2.0
        with tf.Session(c.target("worker")) as s:
            first = s.partial_run_setup([y, z], [x])
            s.partial_run_setup([y, z], [x])
            fails(lambda: s.partial_run_setup([y, z], [x]), tf.errors.ResourceExhaustedError, "--max_partial_runs")
            assert s.partial_run(first, y, {x: 1.0}) == 2.0
            assert s.partial_run(first, z) == 4.0
            third = eventually(lambda: s.partial_run_setup([y, z], [x]))
            assert s.partial_run(third, [y, z], {x: 2.0}) == [3.0, 6.0]


def connection_sessions():
    with one("--max_connection_sessions=2") as c, Client(c) as a, Client(c) as b:
        sessions = [a.open(), a.open()]
        refused(a.open, "2 sessions of one connection", "--max_connection_sessions")
        b.open()
        a.close(sessions[0])
        a.open()


def gone_clients():
    """Sessions that nobody closed give way when there is no room for others."""
    with one("--max_sessions=3") as c:
        with Client(c) as a:
            for _ in range(3):
                a.open(graph_of(3))
            refused(a.open, "--max_sessions")
        with Client(c) as b:
            eventually(b.open)


def creations():
    """Sessions that wait for a task that is not there."""
    c = Cluster(["--max_creations=2"], ps=["shoal"], worker=["shoal"])
    try:
        c.tasks["worker", 0].start().wait()
        with Client(c) as a, Client(c) as b:
            waiting = [a.channel.unary_unary(MASTER + "CreateSession").future(b"", timeout=600) for _ in range(2)]
            until(lambda: b.call("/shoal.Server/Status").count(b"GetStatus to /job:ps") == 2)
            refused(b.open, "--max_creations")
            c.tasks["ps", 0].start().wait()
            for w in waiting:
                assert w.result(240)
            b.open()
    finally:
        c.__exit__()


def graphs():
    """Compiled steps that are in use, here by callables, are too many; others make room."""
    with one("--max_graphs=3") as c, Client(c) as a:
        s = a.open(graph_of(5))
        make = lambda name: a.call(MASTER + "MakeCallable", field(1, s) + field(2, field(2, name)))
        for i in range(5):
            a.step(s, f"c{i}:0".encode())
        for i in range(3):
            make(f"c{i}:0".encode())
        refused(lambda: a.step(s, b"c3:0"), "--max_graphs")
        a.step(s, b"c1:0")
        a.call(MASTER + "ReleaseCallable", field(1, s) + field(2, 1))
        eventually(lambda: a.step(s, b"c3:0"))
        a.close(s)
        s = a.open(graph_of(5))
        eventually(lambda: a.step(s, b"c3:0"))


def compiled_steps():
    """Whoever fetches something else every time does not grow the server: what was not used for long is forgotten, by
    the other task too, and made again when it is asked for."""
    with Cluster(ps=["shoal"], worker=["shoal"]) as c, Client(c) as a:
        with tf.Graph().as_default() as g, tf.device("/job:ps/task:0"):
            for i in range(12):
                tf.constant(float(i), name=f"c{i}")
        s = a.open(g.as_graph_def().SerializeToString())
        values = lambda n: b"".join(field(3, f"c{i}:0".encode()) for i in range(12) if n >> i & 1)
        first = a.call(MASTER + "RunStep", field(1, s) + values(5))
        waiting = []
        for n in range(1, 2300):
            waiting.append(a.channel.unary_unary(MASTER + "RunStep").future(field(1, s) + values(n), timeout=240))
            if len(waiting) > 50:
                waiting.pop(0).result()
        for w in waiting:
            w.result()
        status = a.call("/shoal.Server/Status").decode(errors="replace")
        kept = [int(n) for n in re.findall(r"(\d+) compiled steps", status)]
        assert kept and max(kept) <= 2000, status
        with grpc.insecure_channel(c.spec["ps"]["0"]) as ps:
            used = lambda: ps.unary_unary("/shoal.Server/Status")(b"", timeout=60).decode(errors="replace")
            until(lambda: any(0 < int(n) <= 2000 for n in re.findall(r"(\d+) registered graphs", used())), what=used)
        assert a.call(MASTER + "RunStep", field(1, s) + values(5)) == first


def failed_steps():
    """What one task has registered of a step that another cannot run is forgotten."""
    with Cluster(ps=["shoal"], worker=["shoal"]) as c, Client(c) as a:
        with tf.Graph().as_default() as g:
            with tf.device("/job:worker/task:0"):
                tf.constant(1.0, name="here")
            with tf.device("/job:ps/task:0"):
                tf.raw_ops.ApproxTopK(input=tf.random.uniform([4]), k=1, is_max_k=False, name="there")
        s = a.open(g.as_graph_def().SerializeToString())
        a.step(s, b"here:0")
        for _ in range(3):
            try:
                a.call(MASTER + "RunStep", field(1, s) + field(3, b"here:0") + field(3, b"there:0"))
                raise AssertionError("a step that cannot be run was")
            except grpc.RpcError as e:
                assert "ApproxTopK" in e.details(), e
        status = lambda: a.call("/shoal.Server/Status").decode(errors="replace")
        until(lambda: re.findall(r"(\d+) registered graphs", status()) == ["1"], what=status)


def failed_values():
    """Values that came with a part of a step that then did not begin are not kept."""
    with one() as c, Client(c) as a:
        here = b"/job:worker/replica:0/task:0/device:CPU:0"
        g = tf.GraphDef()
        g.node.add(name="n", op="NoOp", device=here.decode())
        answer = a.call(WORKER + "RegisterGraph", field(2, g.SerializeToString()))
        handle = answer[2:2 + answer[1]]  # RegisterGraphResponse.graph_handle, short
        value = tf.make_tensor_proto(np.zeros(MB // 4, np.float32)).SerializeToString()
        for step in range(1, 17):
            key = here + b";0000000000000001;" + here + b";edge;0:0"
            try:
                a.call(WORKER + "RunGraph", field(1, handle) + b"\x10" + encoder._VarintBytes(step) +
                       field(3, field(1, key) + field(2, value)) + field(3, b"") + b"\x58" + encoder._VarintBytes(step))
                raise AssertionError("a value without a name was taken")
            except grpc.RpcError as e:
                assert "without a name" in e.details(), e
        status = a.call("/shoal.Server/Status").decode(errors="replace")
        assert float(re.search(r"([\d.]+) MB in tensors", status)[1]) < 4, status


def graph_bytes():
    """GraphDefs of sessions, as they came; repeated values as they are written out; and registered graphs."""
    def const(n, value=None, device=""):
        t = tf.AttrValue()
        t.tensor.CopyFrom(tf.make_tensor_proto(np.zeros(1, np.float32) if value is None else value))
        if value is None:
            t.tensor.tensor_shape.dim[0].size = n
        g = tf.GraphDef()
        g.node.add(name="c", op="Const", device=device).attr["value"].CopyFrom(t)
        g.node[0].attr["dtype"].type = tf.float32.as_datatype_enum
        g.node.add(name="d", op="NoOp")
        return g.SerializeToString()

    with one("--max_graph_bytes=100000") as c, Client(c) as a:
        before = resident(c.tasks["worker", 0])
        s = a.open(const(0, np.arange(15000, dtype=np.float32)))
        refused(lambda: a.open(const(0, np.arange(15000, dtype=np.float32))), "--max_graph_bytes")
        refused(lambda: a.call(MASTER + "ExtendSession", field(1, s) + field(2, const(1 << 28))), "more than is allowed")
        a.call(MASTER + "ExtendSession", field(1, s) + field(2, graph_of(1)))  # what was refused has left nothing
        a.close(s)
        eventually(lambda: a.open(const(0, np.arange(15000, dtype=np.float32))))
        assert resident(c.tasks["worker", 0]) - before < 500, "a gigabyte was written out first"

    c = Cluster(ps=["shoal"], worker=["shoal"])
    c.tasks["ps", 0].flags.append("--max_graph_bytes=100000")
    with c, Client(c) as a:
        graph = const(0, np.arange(15000, dtype=np.float32), "/job:ps/task:0")
        s = a.open(graph)
        a.step(s, b"c:0")
        t = a.open(graph)
        refused(lambda: a.step(t, b"c:0"), "--max_graph_bytes", "/job:ps")
        a.close(s)
        eventually(lambda: a.step(t, b"c:0"))
        a.close(t)


def graph_parts():
    """Lists in attributes and what functions are made of: two bytes of a message each, hundreds here. What they would take
    is known before they are unpacked."""
    many = 1 << 20
    noop = field(1, b"n") + field(2, b"NoOp")

    def with_list(elements):
        return field(1, noop + field(5, field(1, b"_a") + field(2, field(1, elements))))

    def with_function(parts):
        return field(2, field(1, field(1, field(1, b"f")) + parts))

    with one(f"--max_graph_bytes={16 * MB}") as c, Client(c) as a:
        before = resident(c.tasks["worker", 0])
        for graph in (with_list(field(7, b"") * many), with_list(field(9, b"") * many), with_list(field(3, bytes(many))),
                      with_function(field(3, b"") * many), field(2, field(2, b"") * many),
                      field(1, noop + field(6, field(1, b"") * many))):
            refused(lambda: a.open(graph), "--max_graph_bytes")
        assert resident(c.tasks["worker", 0]) - before < 60, "they were unpacked"
        a.open(with_list(field(7, b"") * 1000))
        works(c)


def registered_graphs():
    """The same on a worker, whose master is another."""
    c = Cluster(ps=["shoal"], worker=["shoal"])
    c.tasks["ps", 0].flags.append("--max_graphs=2")
    with c, Client(c) as a:
        s = a.open(graph_of(5, "/job:ps/task:0"))
        for i in range(2):
            a.step(s, f"c{i}:0".encode())
        refused(lambda: a.step(s, b"c3:0"), "--max_graphs", "/job:ps")
        a.close(s)
        s = a.open(graph_of(5, "/job:ps/task:0"))
        eventually(lambda: a.step(s, b"c3:0"))


def nodes():
    with one("--max_nodes=100") as c, Client(c) as a:
        s = a.open(graph_of(60))
        refused(lambda: a.open(graph_of(60)), "--max_nodes")
        a.close(s)
        eventually(lambda: a.open(graph_of(60)))


def step_entries():
    """Values of steps that nobody ever runs are asked for: no step stays behind when whoever asked has gone, and of those
    that are waited for at a time there are no more than there may be, in all and of one connection."""
    for flag in ("--max_steps", "--max_connection_steps"):
        strange_steps(flag)


def strange_steps(flag):
    with one(flag + "=5") as c, Client(c) as a:
        status = a.call(WORKER + "GetStatus")
        incarnation = int.from_bytes(status[status.index(b"\x31") + 1:][:8], "little")
        device = "/job:worker/replica:0/task:0/device:CPU:0"

        def ask(step, seconds):
            key = f"{device};{incarnation:016x};{device};nobody;0:0".encode()
            request = encoder.TagBytes(1, 0) + encoder._VarintBytes(step) + field(2, key)
            return a.channel.unary_unary(WORKER + "RecvTensor").future(request, timeout=seconds)
        for step in range(1, 21):
            until(lambda step=step: ask(step, 0.1).exception().code() == grpc.StatusCode.DEADLINE_EXCEEDED)
        waiting = [ask(step, 1000) for step in range(100, 130)]
        over = until(lambda: len(done := [w for w in waiting if w.done()]) >= 25 and done)
        for call in over:
            assert call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and flag in call.details(), call
        for call in waiting:
            call.cancel()
        works(c)


def long_keys():
    """Values are asked for by keys as long as a request may be: they are held once more, and counted."""
    with one(f"--max_held_bytes={64 * MB}", "--room_timeout=1") as c, Client(c) as a:
        status = a.call(WORKER + "GetStatus")
        incarnation = int.from_bytes(status[status.index(b"\x31") + 1:][:8], "little")
        device = b"/job:worker/replica:0/task:0/device:CPU:0"
        name = b"n" * (4 * MB)
        tensor = field(2, device + b";%016x;" % incarnation + device + b";" + name + b";0:0")
        buffer = field(2, name) + field(8, device) + field(9, device) + field(11, incarnation)
        for method, request in (("RecvTensor", tensor), ("RecvBuf", buffer)):
            ask = a.channel.unary_unary(WORKER + method)
            waiting = [ask.future(field(1, 100 + i) + request, timeout=1000) for i in range(9)]  # 36 of 48 MB
            over = until(lambda: len(done := [w for w in waiting if w.done()]) >= 3 and done)
            for call in over:
                assert call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "--max_held_bytes" in call.details(), call
            for call in waiting:
                call.cancel()
        works(c)


def missed_members():
    """Thousands of instances of collectives wait for who never comes: people are told of some of them."""
    with one() as c, Client(c) as a:
        def device(i):
            return b"/job:worker/replica:0/task:%d/device:CPU:0" % i

        def join(i):
            request = field(1, 5) + field(2, 20) + field(3, b"CPU") + field(6, field(1, device(i)))
            return a.channel.unary_unary(WORKER + "CompleteGroup").future(request, timeout=120)
        assert not any(call.exception() for call in [join(i) for i in range(20)])
        complete = a.channel.unary_unary(WORKER + "CompleteInstance")
        waiting = [complete.future(field(2, 0) + field(3, 1) + field(5, 5) + field(6, 20) + field(7, i) +
                                   field(10, device(0)), timeout=1000) for i in range(3000)]
        text = c.tasks["worker", 0].text
        until(lambda: "more groups and instances of collectives" in text())
        assert text().count("has 1 of 20 members, and none of /job:worker/replica:0/task:1/device:CPU:0, ") >= 20
        assert len(text().splitlines()) < 200, len(text().splitlines())
        for call in waiting:
            call.cancel()
        works(c)


def client_clusters():
    """Clients name the server's own cluster, and no other unless they may; what they named goes when their sessions
    do."""
    def config_of(c, *more):
        spec = tf.train.ClusterSpec({"worker": [c.spec["worker"]["0"], *more]})
        return tf.ConfigProto(cluster_def=spec.as_cluster_def()).SerializeToString()
    with one() as c, Client(c) as a:
        target = b"grpc://" + c.spec["worker"]["0"].encode()
        s = a.open(graph_of(1), config_of(c), target)
        assert a.step(s, b"c0:0")
        refused(lambda: a.open(b"", config_of(c, "127.0.0.1:9"), target), "--allow_client_clusters", "127.0.0.1:9",
                code=grpc.StatusCode.PERMISSION_DENIED)
        spec = tf.train.ClusterSpec({"worker": [c.spec["worker"]["0"], "127.0.0.1:9"]}).as_cluster_def()
        server_def = field(1, spec.SerializeToString()) + field(2, b"worker")
        refused(lambda: a.call(WORKER + "CreateWorkerSession", field(1, b"x") + field(2, server_def)),
                "--allow_client_clusters", code=grpc.StatusCode.PERMISSION_DENIED)
    with one("--allow_client_clusters", "--max_peers=50") as c, Client(c) as a, socket.socket() as other:
        target = b"grpc://" + c.spec["worker"]["0"].encode()
        refused(lambda: a.open(b"", config_of(c, *(f"127.0.0.1:{i}" for i in range(1, 51))), target), "--max_peers")
        other.bind(("127.0.0.1", 0))
        other.listen()
        waiting = a.channel.unary_unary(MASTER + "CreateSession").future(
            field(2, config_of(c, "127.0.0.1:%d" % other.getsockname()[1])) + field(3, target), timeout=600)
        connection, _ = other.accept()
        with connection:
            waiting.cancel()
            connection.settimeout(120)
            while connection.recv(1 << 16):  # until the server hangs up
                pass
        works(c)
    with one("--max_peers=3") as c, Client(c) as a:  # of all sessions together
        target = b"grpc://" + c.spec["worker"]["0"].encode()
        sessions = [a.open(b"", config_of(c), target) for _ in range(3)]
        refused(lambda: a.open(b"", config_of(c), target), "--max_peers")
        a.close(sessions.pop())
        sessions.append(eventually(lambda: a.open(b"", config_of(c), target)))


def wrong_types():
    """A function that gives numbers where its caller says strings: an error, and nobody reads them as strings."""
    with tf.Graph().as_default() as g:
        tf.raw_ops.StringLength(input=tf.as_string(tf.function(lambda x: x + 1.0)(tf.placeholder(tf.float32, [4], "x"))),
                                name="out")
        graph = g.as_graph_def()
    nodes = {n.name: n for n in graph.node}
    call = next(n for n in graph.node if "PartitionedCall" in n.op)
    call.attr["Tout"].list.type[:] = [tf.string.as_datatype_enum]
    graph.node.remove(nodes[nodes["out"].input[0]])
    nodes["out"].input[0] = call.name
    feed = field(2, field(1, b"x:0") + field(2, tf.make_tensor_proto(np.full(4, 1e30, np.float32)).SerializeToString()))
    with one() as c, Client(c) as a:
        s = a.open(graph.SerializeToString())
        try:
            a.call(MASTER + "RunStep", field(1, s) + feed + field(3, b"out:0"))
        except grpc.RpcError as e:
            assert e.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL), e
        else:
            raise AssertionError("no error")
        works(c)


def documented():
    """docs/security.md has the flags of the limits, all of them, with the defaults that the help says."""
    text = subprocess.run([SHOAL, "server", "--help"], capture_output=True, text=True, timeout=120).stdout
    flags = dict(re.findall(r"--(max_\w+)=N +(.*)", text))
    with open(os.path.join(ROOT, "docs", "security.md")) as f:
        rows = {}
        for line in f:
            if line.startswith("|"):
                for flag in re.findall(r"`--(max_\w+)`", line):
                    rows[flag] = line.replace(",", "")
    assert len(flags) > 15 and set(flags) <= set(rows) | {"max_request_bytes"}, set(flags) ^ set(rows)
    assert not set(rows) - set(flags), set(rows) - set(flags)
    for flag, help_text in flags.items():
        default = re.search(r"default (\d+)\)", help_text)
        assert not default or re.search(rf"\b{default[1]}\b", rows[flag]), (flag, help_text, rows[flag])


def flags_obeyed():
    """Every flag of the two tables is in force, each by its own name: what /metrics says of those that are counted."""
    text = subprocess.run([SHOAL, "server", "--help"], capture_output=True, text=True, timeout=120).stdout
    wanted = {flag: 100003 + i for i, flag in enumerate(re.findall(r"--(\w+)=(?:N|SECONDS) .*(?:default|memory)", text))
              if flag.startswith("max_") or flag.endswith("_timeout") or flag == "watchdog"}
    with one("--http_port=0", *(f"--{flag}={value}" for flag, value in wanted.items() if flag != "peer_timeout")) as c:
        told = c.tasks["worker", 0].text
        url = until(lambda: re.search(r"pages at (http://127.0.0.1:\d+)/", told()))[1]
        with urllib.request.urlopen(url + "/metrics", timeout=60) as r:
            limits = dict(re.findall(r'^shoal_limit_max\{flag="(\w+)"\} (\d+)$', r.read().decode(), re.M))
        assert len(limits) > 15, limits
        for flag, value in limits.items():
            assert int(value) == wanted[flag], (flag, value, wanted[flag])
        works(c)


def compressed():
    """A client that compresses its requests is understood, or told that it is not."""
    with one() as c, grpc.insecure_channel(c.spec["worker"]["0"], compression=grpc.Compression.Gzip) as channel:
        graph = tf.Graph()
        with graph.as_default():
            tf.constant(np.zeros(10000, np.float32))
        try:
            channel.unary_unary("/tensorflow.MasterService/CreateSession")(
                field(1, graph.as_graph_def().SerializeToString()), timeout=60)
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.UNIMPLEMENTED and "gzip" in e.details(), e
        works(c)


def packed_zeros(head=b""):
    """A gigabyte of zeros, in a megabyte."""
    pack = zlib.compressobj(9)
    return b"".join([pack.compress(head)] + [pack.compress(bytes(16 * MB)) for _ in range(64)] + [pack.flush()])


def masked_crc(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    crc ^= 0xffffffff
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def unpacked():
    """What unfolds from a packed string or file, a gigabyte of a megabyte, is counted while it does."""
    length = struct.pack("<Q", 1 << 40)
    zeros, record = packed_zeros(), packed_zeros(length + struct.pack("<I", masked_crc(length)))
    with one(f"--max_tensor_bytes={16 * MB}") as c, tempfile.TemporaryDirectory() as d:
        for name, data in (("lines", zeros), ("records", record)):
            with open(os.path.join(d, name), "wb") as f:
                f.write(data)
        works(c)
        before = resident(c.tasks["worker", 0])
        with tf.Graph().as_default(), tf.Session(c.target("worker")) as s:
            string = tf.placeholder(tf.string, [])
            lines = tf.data.TextLineDataset(os.path.join(d, "lines"), "ZLIB")
            fixed = tf.data.FixedLengthRecordDataset(os.path.join(d, "lines"), 1 << 30, compression_type="ZLIB")
            records = tf.data.TFRecordDataset(os.path.join(d, "records"), "ZLIB")
            for y in [tf.io.decode_compressed(string, "ZLIB")] + [
                    tf.data.make_one_shot_iterator(x).get_next() for x in (lines, fixed, records)]:
                fails(lambda: s.run(tf.strings.length(y), {string: zeros}), tf.errors.ResourceExhaustedError, "OOM")
        grown = resident(c.tasks["worker", 0]) - before
        assert grown < 256, grown
        works(c)


def tensor_bytes():
    with one(f"--max_tensor_bytes={16 * MB}") as c:
        before = resident(c.tasks["worker", 0])
        # What an op needs beside its tensors, as large as a value says, is counted too.
        with tf.Graph().as_default(), tf.Session(c.target("worker")) as s:
            size = tf.placeholder(tf.int32, [2])
            padded = tf.raw_ops.FusedResizeAndPadConv2D(
                input=tf.ones([1, 1, 1, 1]), size=size, paddings=tf.zeros([4, 2], tf.int32), filter=tf.ones([1, 1, 1, 1]),
                mode="REFLECT", strides=[1, 1 << 20, 1, 1], padding="VALID")
            image, large = tf.ones([1, 1, 1, 1], tf.uint8), [3 << 20, 1]
            scaled = tf.raw_ops.ScaleAndTranslate(images=image, size=size, scale=tf.ones([2]), translation=tf.zeros([2]))
            resized = tf.raw_ops.ResizeBilinear(images=image, size=size)
            mirrored = tf.raw_ops.MirrorPad(input=tf.zeros([3 << 20], tf.uint8), paddings=[[0, 1]], mode="REFLECT")
            classes = tf.zeros([1, 1], tf.int64)
            drawn = tf.raw_ops.UniformCandidateSampler(true_classes=classes, num_true=1, num_sampled=1 << 20, unique=True,
                                                       range_max=1 << 40)[0]
            learned = tf.raw_ops.LearnedUnigramCandidateSampler(true_classes=classes, num_true=1, num_sampled=1,
                                                                unique=True, range_max=1 << 22)[0]
            fixed = tf.raw_ops.FixedUnigramCandidateSampler(true_classes=classes, num_true=1, num_sampled=1, unique=True,
                                                            range_max=1 << 30, num_reserved_ids=(1 << 30) - 1,
                                                            unigrams=[1.0])[0]
            ragged = [tf.raw_ops.RaggedTensorToTensor(
                shape=[2] * rank, values=tf.zeros([1]), default_value=0.0, row_partition_tensors=[tf.constant(p, tf.int64)
                                                                                                  for p in parts],
                row_partition_types=types)
                for rank, parts, types in ((2, [1 << 36, [0]], ["FIRST_DIM_SIZE", "VALUE_ROWIDS"]),
                                           (3, [[0, 1 << 36], [0]], ["ROW_SPLITS", "VALUE_ROWIDS"]))]
            cells = tf.zeros([100, 10])
            lstm = tf.raw_ops.BlockLSTM(seq_len_max=tf.constant(800, tf.int64), x=tf.zeros([800, 100, 1]), cs_prev=cells,
                                        h_prev=cells, w=tf.zeros([11, 40]), wci=tf.zeros([10]), wcf=tf.zeros([10]),
                                        wco=tf.zeros([10]), b=tf.zeros([40]))[6]
            for y in (lstm, padded, scaled, resized, mirrored, drawn, learned, fixed, *ragged):
                fails(lambda: s.run(y, {size: large}), tf.errors.ResourceExhaustedError, "OOM")
        with tf.Graph().as_default():
            n = tf.placeholder(tf.int32, [1])
            filled = tf.reduce_sum(tf.fill(n, 1.0))
            # A few bytes on the wire that ask for a gigabyte: one value, a shape of many.
            splat = tf.constant(1.0, shape=[256 * MB])
            last = splat[-1]
            with tf.Session(c.target("worker")) as s:
                fails(lambda: s.run(last), tf.errors.ResourceExhaustedError, "OOM")
        with tf.Graph().as_default():
            n = tf.placeholder(tf.int32, [1])
            filled = tf.reduce_sum(tf.fill(n, 1.0))
            with tf.Session(c.target("worker")) as s:
                assert s.run(filled, {n: [MB]}) == MB
                fails(lambda: s.run(filled, {n: [1 << 30]}), tf.errors.ResourceExhaustedError, "OOM when allocating")
                assert s.run(filled, {n: [7]}) == 7
        assert resident(c.tasks["worker", 0]) - before < 200


def machine_memory():
    """Without a flag too, a tensor that no machine can hold is refused at once."""
    with one() as c, tf.Graph().as_default():
        n = tf.placeholder(tf.int32, [2])
        filled = tf.reduce_sum(tf.fill(n, 1.0))
        with tf.Session(c.target("worker")) as s:
            fails(lambda: s.run(filled, {n: [1 << 30, 1 << 20]}), tf.errors.ResourceExhaustedError, "OOM when allocating")
            assert s.run(filled, {n: [2, 3]}) == 6


def metadata():
    with one() as c, grpc.insecure_channel(c.spec["worker"]["0"]) as channel:
        call = channel.unary_unary("/tensorflow.WorkerService/GetStatus")
        try:
            call(b"", metadata=[("x", "y" * 100000)], timeout=60)
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, e
        else:
            raise AssertionError("no error")
        works(c)


def nesting():
    """Attributes and messages nested without end end in an error, not in the end of the stack."""
    attr = field(2, b"x")
    for _ in range(20000):  # AttrValue.func { attr { value } }
        attr = field(10, field(1, b"f") + field(2, field(1, b"a") + field(2, attr)))
        if len(attr) > MB:
            break
    node = field(1, b"n") + field(2, b"NoOp") + field(5, field(1, b"f") + field(2, attr))
    with one() as c, grpc.insecure_channel(c.spec["worker"]["0"]) as channel:
        try:
            channel.unary_unary("/tensorflow.MasterService/CreateSession")(field(1, field(1, node)), timeout=60)
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.INVALID_ARGUMENT and "nested" in e.details(), e
        else:
            raise AssertionError("no error")
        works(c)


def once_however_often_it_comes():
    """A request that comes again with its id (tried again after a broken connection) is not run again."""
    with tf.Graph().as_default() as g:
        v = tf.Variable(0, name="v", use_resource=False)
        add, init = v.assign_add(1).op.name, v.initializer.name
        graph = g.as_graph_def().SerializeToString()
    with one() as c, grpc.insecure_channel(c.spec["worker"]["0"]) as channel:
        def call(method, *fields, seconds=60):
            return channel.unary_unary("/tensorflow." + method)(b"".join(field(n, v) for n, v in fields), timeout=seconds)

        def received_twice(*request, seconds=60):
            try:
                call(*request, seconds=seconds)
            except grpc.RpcError as e:
                return e.code() == grpc.StatusCode.ABORTED and "request was received twice" in e.details()
            return False

        answer = call("MasterService/CreateSession", (1, graph))  # its first field: the handle
        session = answer[2:2 + answer[1]]

        def step(request_id, name, kind=4):  # kind 3: a fetch; 4: a target
            return ("MasterService/RunStep", (1, session), (kind, name.encode()), (8, request_id))

        call(*step(7, init))
        call(*step(8, add))
        assert received_twice(*step(8, add))
        call(*step(0, add))  # 0 is no id
        call(*step(0, add))
        assert b"v:0" in call(*step(9, "v:0", 3))
        with tf.Session(c.target("worker"), graph=g) as s:
            assert s.run(v) == 3
        device = "/job:worker/replica:0/task:0/device:CPU:0"
        key = f"{device};{'0' * 15}1;{device};nobody;0:0".encode()
        receive = ("WorkerService/RecvTensor", (1, 1), (2, key), (7, 11))
        assert not received_twice(*receive, seconds=1)  # waits for what nobody sends
        until(lambda: received_twice(*receive, seconds=1))
        # TensorFlow's masters give one id to several steps, once in a while: those are not the same request.
        part = tf.GraphDef()
        part.node.add(name="n", op="NoOp", device=device)
        answer = call("WorkerService/RegisterGraph", (2, part.SerializeToString()))
        for number in (21, 22):
            run = ("WorkerService/RunGraph", (1, answer[2:2 + answer[1]]), (2, number), (11, 12))
            call(*run)
            assert received_twice(*run)
        works(c)


def time_is_the_servers():
    """RunOptions' time-out, or else the session's, holds also for a caller who would wait for ever."""
    with tf.Graph().as_default() as g:
        get = tf.FIFOQueue(1, [tf.float32], shapes=[[]]).dequeue(name="get")
        graph = g.as_graph_def().SerializeToString()
    options = tf.RunOptions(timeout_in_ms=300).SerializeToString()
    config = tf.ConfigProto(operation_timeout_in_ms=400).SerializeToString()
    with one() as c, grpc.insecure_channel(c.spec["worker"]["0"]) as channel:
        for session_has, step_has in ((b"", options), (config, b"")):
            answer = channel.unary_unary("/tensorflow.MasterService/CreateSession")(field(1, graph) +
                                                                                    field(2, session_has))
            step = field(1, answer[2:2 + answer[1]]) + field(3, get.name.encode()) + field(5, step_has)
            try:
                channel.unary_unary("/tensorflow.MasterService/RunStep")(step, timeout=60)
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.DEADLINE_EXCEEDED and "the step's own" in e.details(), e
            else:
                raise AssertionError("no error")
        works(c)


def wrong_values():
    for flag in ("--max_sessions=-1", "--max_tensor_bytes=-5", "--max_graph_nodes=x", "--max_request_bytes=-1",
                 "--max_steps=-1"):
        p = subprocess.run([SHOAL, "server", '--cluster_spec={"a": ["127.0.0.1:0"]}', "--job_name=a", flag],
                           capture_output=True, text=True, timeout=120)
        assert p.returncode in (1, 2) and flag.split("=")[0] in p.stderr, p


TESTS = [(fn.__name__.replace("_", " "), fn) for fn in (
    request_bytes, names, graph_nodes, partition_nodes, sessions, steps, callables, closed_sessions,
    partial_runs, connection_sessions,
    gone_clients, creations, graphs, compiled_steps, failed_steps, failed_values, registered_graphs, nodes, graph_bytes,
    graph_parts, step_entries, long_keys, missed_members, client_clusters, wrong_types, documented, flags_obeyed, compressed, unpacked, tensor_bytes,
    machine_memory, metadata, nesting, once_however_often_it_comes, time_is_the_servers, wrong_values)]

if __name__ == "__main__":
    sys.exit(report(TESTS))
