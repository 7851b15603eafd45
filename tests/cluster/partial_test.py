"""Partial runs over clusters: a step whose feeds and fetches come in several calls, driven by TensorFlow's master on Shoal's
tasks, by Shoal's on TensorFlow's, and by each on its own. Also what WorkerService's Logging and Tracing answer."""
# needs: tensorflow
# under sanitizers: shoal's master | Logging | another session
# on the soft device: shoal's master | Logging | another session
import os
import re
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import grpc
import tensorflow.compat.v1 as tf

from cluster import PATIENCE, Cluster, report
from master_client import Client, Wrong

tf.disable_v2_behavior()


def graph():
    """a + b on the ps, then * c on the other task."""
    with tf.device("/job:ps/task:0"):
        a, b = (tf.placeholder(tf.float32, [], name=n) for n in "ab")
        r1 = a + b
    with tf.device("/job:worker/task:0"):
        c = tf.placeholder(tf.float32, [], name="c")
        r2 = r1 * c
    with tf.device("/job:ps/task:0"):
        r3 = r2 - 1.0
    return a, b, c, r1, r2, r3


def in_parts(cluster):
    with tf.Graph().as_default():
        a, b, c, r1, r2, r3 = graph()
        with tf.Session(cluster.target("worker", 0)) as s:
            for k in range(3):  # one after another
                h = s.partial_run_setup([r1, r2, r3], [a, b, c])
                assert s.partial_run(h, r1, {a: 1.0 + k, b: 2.0}) == 3.0 + k
                assert s.partial_run(h, r2, {c: 10.0}) == 10 * (3.0 + k)
                assert s.partial_run(h, r3) == 10 * (3.0 + k) - 1
            # two at a time
            h1, h2 = (s.partial_run_setup([r1, r2], [a, b, c]) for _ in range(2))
            assert s.partial_run(h1, r1, {a: 1.0, b: 1.0}) == 2.0
            assert s.partial_run(h2, r1, {a: 5.0, b: 5.0}) == 10.0
            assert s.partial_run(h2, r2, {c: 2.0}) == 20.0
            assert s.partial_run(h1, r2, {c: 2.0}) == 4.0
            # and an ordinary step of the same session
            assert s.run(r3, {a: 1.0, b: 1.0, c: 1.0}) == 1.0


def wrong_order(cluster):
    with tf.Graph().as_default():
        a, b, c, r1, r2, _ = graph()
        with tf.Session(cluster.target("worker", 0)) as s:
            h = s.partial_run_setup([r1, r2], [a, b, c])
            try:
                s.partial_run(h, r2, {a: 1.0, b: 2.0})
            except tf.errors.InvalidArgumentError as e:
                assert "can't be computed from the feeds" in e.message, e.message
            else:
                raise AssertionError("no error")


def given_up(cluster):
    """A partial run that is never finished goes with its session; the server goes on."""
    with tf.Graph().as_default():
        a, b, c, r1, r2, _ = graph()
        s = tf.Session(cluster.target("worker", 0))
        h = s.partial_run_setup([r1, r2], [a, b, c])
        assert s.partial_run(h, r1, {a: 1.0, b: 2.0}) == 3.0
        t = threading.Thread(target=s.close, daemon=True)
        t.start()
        t.join(PATIENCE)
        assert not t.is_alive(), "closing does not end"
        with tf.Session(cluster.target("worker", 0)) as s2:
            assert s2.run(r1, {a: 1.0, b: 2.0}) == 3.0


def failing(cluster):
    """An error in one part ends the run, and the next run works."""
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            a = tf.placeholder(tf.float32, [None], name="a")
            checked = tf.reshape(a, [2])
            b = tf.placeholder(tf.float32, [], name="b")
            out = checked * b
        with tf.Session(cluster.target("worker", 0)) as s:
            h = s.partial_run_setup([checked, out], [a, b])
            try:
                s.partial_run(h, checked, {a: [1.0, 2.0, 3.0]})
            except tf.errors.InvalidArgumentError as e:
                assert "Input to reshape is a tensor with 3 values" in e.message, e.message
            else:
                raise AssertionError("no error")
            h = s.partial_run_setup([checked, out], [a, b])
            assert list(s.partial_run(h, checked, {a: [1.0, 2.0]})) == [1.0, 2.0]
            assert list(s.partial_run(h, out, {b: 2.0})) == [2.0, 4.0]


def logging_and_tracing():
    """As TensorFlow's worker: Logging answers, Tracing is UNIMPLEMENTED by name."""
    with Cluster(ps=["shoal"]) as c, grpc.insecure_channel(c.spec["ps"]["0"]) as channel:
        call = lambda m, data=b"": channel.unary_unary("/tensorflow.WorkerService/" + m)(data, timeout=60)
        assert call("Logging", b"\x08\x01") == b"" and call("Logging", b"\x18\x07\x20\x01") == b""
        try:
            call("Tracing")
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.UNIMPLEMENTED and e.details() == "Tracing", e
        else:
            raise AssertionError("no error")


def traced(cluster):
    """A traced step over two tasks tells of both, and of what each received, whoever is the master."""
    with tf.Graph().as_default():
        a, b, c, _, _, r3 = graph()
        with tf.Session(cluster.target("worker", 0)) as s:
            meta = tf.RunMetadata()
            feeds = {a: 1.0, b: 2.0, c: 3.0}
            assert s.run(r3, feeds, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=meta) == 8.0
            devices = [d.device for d in meta.step_stats.dev_stats]
            for task in ("/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"):
                assert any(d.startswith(task) for d in devices), devices
            received = {d.device.split("/device:")[0]: n.timeline_label for d in meta.step_stats.dev_stats for n in d.node_stats
                        if n.node_name == "RecvTensor"}
            for to, source in (("ps", "worker"), ("worker", "ps")):
                label = received[f"/job:{to}/replica:0/task:0"]
                assert re.search(f"from /job:{source}/replica:0/task:0/device:.PU:0 to /job:{to}/", label), label


def of_another_session():
    """Whoever knows the number of another session's partial run cannot join it, nor end it."""
    with Cluster(worker=["shoal"]) as c:
        client, device = Client(c.target("worker")), "/job:worker/replica:0/task:0/device:CPU:0"
        g = tf.GraphDef()
        g.node.add(name="n", op="NoOp", device=device)
        handles = {}
        for session in ("a", "b"):
            client.worker("CreateWorkerSession", (1, session))
            handles[session] = client.worker("RegisterGraph", (1, session), (2, g), (6, 1))[1]

        def run(session, request, *more):  # step_id, is_partial, session_handle, create_worker_session_called, request_id
            return client.worker("RunGraph", (1, handles[session]), (2, 4711), (6, 1), *more, (8, session), (10, 1),
                                 (11, request))
        run("a", 1)
        for more in ((), ((7, 1),)):  # is_last_partial_run
            try:
                run("b", 2 + len(more), *more)
                raise AssertionError("it was taken")
            except Wrong as e:
                assert e.code == "INVALID_ARGUMENT" and "another session" in e.text, e
        run("a", 9, (7, 1))


KINDS = [("shoal", "shoal"), ("shoal", "tf"), ("tf", "shoal")]
PROGRAMS = (in_parts, wrong_order, failing, given_up, traced)

if __name__ == "__main__":
    clusters = {}

    def on(kinds, program):
        if kinds not in clusters:
            clusters[kinds] = Cluster(ps=[kinds[0]], worker=[kinds[1]]).__enter__()
        program(clusters[kinds])

    tests = [(f"{p.__name__.replace('_', ' ')}: {k[1]}'s master, {k[0]}'s ps", lambda k=k, p=p: on(k, p))
             for k in KINDS for p in PROGRAMS]
    code = report([*tests, ("Logging and Tracing", logging_and_tracing), ("of another session", of_another_session)])
    for c in clusters.values():
        c.__exit__()
    sys.exit(code)
