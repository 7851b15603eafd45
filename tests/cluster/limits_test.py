"""Limits of a server: each is enforced, says its flag, takes no memory on the way, and leaves the server in order."""
# needs: tensorflow
import os
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc
import numpy as np
import tensorflow.compat.v1 as tf

from cluster import SHOAL, Cluster, report

tf.disable_v2_behavior()
MB = 1 << 20


def resident(task):
    with open(f"/proc/{task.process.pid}/status") as f:
        return [int(line.split()[1]) // 1024 for line in f if line.startswith("VmHWM")][0]


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


def tensor_bytes():
    with one(f"--max_tensor_bytes={16 * MB}") as c:
        before = resident(c.tasks["worker", 0])
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
            call(b"", metadata=[("x", "y" * 100000)], timeout=10)
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, e
        else:
            raise AssertionError("no error")
        works(c)


def nesting():
    """Attributes and messages nested without end end in an error, not in the end of the stack."""
    from google.protobuf.internal import encoder
    def field(number, data):
        return encoder.TagBytes(number, 2) + encoder._VarintBytes(len(data)) + data
    attr = field(2, b"x")
    for _ in range(20000):  # AttrValue.func { attr { value } }
        attr = field(10, field(1, b"f") + field(2, field(1, b"a") + field(2, attr)))
        if len(attr) > MB:
            break
    node = field(1, b"n") + field(2, b"NoOp") + field(5, field(1, b"f") + field(2, attr))
    with one() as c, grpc.insecure_channel(c.spec["worker"]["0"]) as channel:
        try:
            channel.unary_unary("/tensorflow.MasterService/CreateSession")(field(1, field(1, node)), timeout=20)
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.INVALID_ARGUMENT and "nested" in e.details(), e
        else:
            raise AssertionError("no error")
        works(c)


def wrong_values():
    for flag in ("--max_sessions=-1", "--max_tensor_bytes=-5", "--max_graph_nodes=x", "--max_request_bytes=-1"):
        p = subprocess.run([SHOAL, "server", '--cluster_spec={"a": ["127.0.0.1:0"]}', "--job_name=a", flag],
                           capture_output=True, text=True, timeout=30)
        assert p.returncode in (1, 2) and flag.split("=")[0] in p.stderr, p


TESTS = [(fn.__name__.replace("_", " "), fn) for fn in (
    request_bytes, graph_nodes, partition_nodes, sessions, tensor_bytes, machine_memory, metadata, nesting, wrong_values)]

if __name__ == "__main__":
    sys.exit(report(TESTS))
