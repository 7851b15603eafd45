"""Whatever waits for another task holds no thread that the network needs: a server goes on answering, and ends when it
is told to, while hundreds of calls wait for a task that never answers."""
# needs: tensorflow
# long on the soft device; in short: time-outs
import os
import re
import signal
import socket
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc
import tensorflow.compat.v1 as tf
from google.protobuf.internal import encoder
from tensorflow.python.framework import function

from cluster import Cluster, gave_up, report, until

tf.disable_v2_behavior()
MANY = 300  # more than there are threads for the network
NEVER = "--peer_timeout=3600"  # the watch over silent tasks comes to nobody's help
MASTER, WORKER = "/tensorflow.MasterService/", "/tensorflow.WorkerService/"


def field(number, value):
    return encoder.TagBytes(number, 2) + encoder._VarintBytes(len(value)) + value


def string(message):
    """The first field of an answer, of less than 128 bytes."""
    return message[2:2 + message[1]]


class Client:
    def __init__(self, address):
        # A connection of its own: channels of one process would share one.
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def call(self, method, request=b"", seconds=120):
        return self.channel.unary_unary(method)(request, timeout=seconds)

    def start(self, method, request):
        return self.channel.unary_unary(method).future(request, timeout=3600)


def lives(c, other=None):
    """A new client is answered, whatever the others wait for."""
    with Client(c.spec["worker"]["0"]) as client:
        client.call(WORKER + "GetStatus")
        client.call(MASTER + "ListDevices")
        client.call("/shoal.Server/Status")
        # And can work: a session that needs this task alone.
        config = tf.ConfigProto(device_filters=["/job:worker/task:0"]).SerializeToString()
        with tf.Graph().as_default() as g:
            tf.constant(3.0, name="three")
        handle = string(client.call(MASTER + "CreateSession",
                                    field(1, g.as_graph_def().SerializeToString()) + field(2, config)))
        assert client.call(MASTER + "RunStep", field(1, handle) + field(3, b"three:0"))
        client.call(MASTER + "CloseSession", field(1, handle))


def ends(c):
    task = c.tasks["worker", 0]
    task.kill(signal.SIGTERM)
    assert task.process.wait(120) == 0, task.text()


def many_steps(names):
    """Steps that need the stopped ps, of one signature and of many: all wait, and nobody else does."""
    c = Cluster([NEVER], ps=["shoal"], worker=["shoal"])
    with c, tf.Graph().as_default() as g:
        with tf.device("/job:ps/task:0"):
            for i in range(names):
                tf.placeholder_with_default(1.0, [], name=f"p{i}")
        with Client(c.spec["worker"]["0"]) as client:
            handle = string(client.call(MASTER + "CreateSession", field(1, g.as_graph_def().SerializeToString())))
            assert client.call(MASTER + "RunStep", field(1, handle) + field(3, b"p0:0"))
            c.tasks["ps", 0].kill(signal.SIGSTOP)
            steps = [client.start(MASTER + "RunStep", field(1, handle) + field(3, f"p{i % names}:0".encode()))
                     for i in range(MANY)]
            lives(c)
            extended = client.start(MASTER + "ExtendSession", field(1, handle))
            closing = client.start(MASTER + "CloseSession", field(1, handle))
            until(lambda: all(s.done() for s in steps))  # closing cancels them
            lives(c)
            ends(c)
            until(lambda: closing.done() and extended.done())


def stopped_while_creating():
    """Sessions that wait for a stopped task, more than there are threads."""
    c = Cluster([NEVER], ps=["shoal"], worker=["shoal"])
    with c, Client(c.spec["worker"]["0"]) as client:
        c.tasks["ps", 0].kill(signal.SIGSTOP)
        waiting = [client.start(MASTER + "CreateSession", b"") for _ in range(MANY)]
        waiting += [client.start(MASTER + "Reset", b"") for _ in range(10)]
        lives(c)
        for w in waiting[::2]:
            w.cancel()
        lives(c)
        ends(c)
        until(lambda: all(w.done() for w in waiting))


def fake_worker():
    """A client names a task of its own that takes connections and never says a word."""
    with socket.socket() as fake:
        fake.bind(("127.0.0.1", 0))
        fake.listen(1000)
        with Cluster([NEVER, "--allow_client_clusters"], worker=["shoal"]) as c:
            address = c.spec["worker"]["0"]
            cluster = tf.train.ClusterSpec({"worker": {0: address, 1: f"127.0.0.1:{fake.getsockname()[1]}"}})
            config = tf.ConfigProto(cluster_def=cluster.as_cluster_def()).SerializeToString()
            request = field(2, config) + field(3, f"grpc://{address}".encode())
            with Client(address) as client:
                waiting = [client.start(MASTER + "CreateSession", request) for _ in range(MANY)]
                lives(c)
                for w in waiting[:10]:
                    w.cancel()
                lives(c)
                ends(c)
                until(lambda: all(w.done() for w in waiting))


def nobody_knows():
    """A callable and a partial run whose clients have gone before they could be told the handle are not kept: the only
    ones that there may be are free for others."""
    with Cluster([NEVER, "--max_callables=1", "--max_partial_runs=1"], ps=["shoal"], worker=["shoal"]) as c:
        with tf.Graph().as_default() as g, Client(c.spec["worker"]["0"]) as client:
            with tf.device("/job:ps/task:0"):
                for name in "abc":
                    tf.placeholder_with_default(1.0, [], name=name)
            handle = field(1, string(client.call(MASTER + "CreateSession",
                                                 field(1, g.as_graph_def().SerializeToString()))))
            def callable(name):
                return MASTER + "MakeCallable", handle + field(2, field(2, name + b":0"))
            def partial(name):
                return MASTER + "PartialRunSetup", handle + field(3, name + b":0")
            for make in (callable, partial):
                c.tasks["ps", 0].kill(signal.SIGSTOP)  # it takes no part of a graph
                waits = client.start(*make(b"a"))
                until(lambda: b"RegisterGraph" in client.call("/shoal.Server/Status"))
                waits.cancel()
                lives(c)
                client.call(WORKER + "GetStatus")  # by the same connection: the server has read that
                c.tasks["ps", 0].kill(signal.SIGCONT)
                def again():
                    try:
                        return client.call(*make(b"b")) is not None
                    except grpc.RpcError as e:
                        assert e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, e
                until(again, what=lambda: f"{make.__name__}: the place is not given back")


def endless():
    """Ops that compute for ever (drawing what no value of the type is, or the last of all classes) end with their steps;
    where they were to be folded into constants, which more sessions ask for than there are threads to, others go on."""
    ops = {
        "poisson": lambda x: tf.raw_ops.RandomPoissonV2(shape=[3], rate=x, dtype=tf.int64),
        "boxes": lambda x: tf.raw_ops.NonMaxSuppression(
            boxes=tf.stack([tf.range(400000.0) + d for d in (0, 0, 0.5, 0.5)], 1), scores=tf.fill([400000], x),
            max_output_size=400000),
        "classes": lambda x: tf.raw_ops.LogUniformCandidateSampler(
            true_classes=tf.cast([[x]], tf.int64) * 0, num_true=1, num_sampled=1 << 22, unique=True,
            range_max=1 << 22)[0],
        "rows": lambda x: tf.raw_ops.SparseCross(
            indices=[tf.constant([[0, 0]], tf.int64)], values=[tf.constant(["a"])],
            shapes=[tf.constant([1 << 50, 1], tf.int64) + tf.cast(0 * x, tf.int64)], dense_inputs=[],
            hashed_output=False, num_buckets=0, hash_key=1, out_type=tf.string, internal_type=tf.string)[0],
    }
    with Cluster(worker=["shoal"]) as c, Client(c.spec["worker"]["0"]) as client:
        def running():
            return b"running graph" in client.call("/shoal.Server/Status")
        for name, make in ops.items():
            with tf.Graph().as_default(), tf.Session(c.target("worker")) as s:
                x = tf.placeholder(tf.float32, [])
                try:
                    s.run(make(x).op, {x: 1e30 if name == "poisson" else 0}, tf.RunOptions(timeout_in_ms=700))
                except tf.errors.OpError as e:
                    assert gave_up(e), e
                else:
                    raise AssertionError(f"{name} came to an end")
                until(lambda: not running(), what=lambda: f"{name} goes on after its step")
        sessions = []
        for _ in range(6):
            with tf.Graph().as_default():
                x = tf.raw_ops.StatelessRandomPoisson(shape=[3], seed=[1, 2], lam=[1e30, 1e30, 1e30], dtype=tf.int64)
                sessions.append(tf.Session(c.target("worker")))
                try:
                    sessions[-1].run(x, options=tf.RunOptions(timeout_in_ms=100))
                except tf.errors.OpError as e:
                    assert gave_up(e), e
        lives(c)
        for s in sessions:
            s.close()
        ends(c)


def nested(levels, width):
    """A graph whose functions call functions: width ** levels additions when they are inlined."""
    def calls(inner):
        def body(x):
            for _ in range(width):
                x = inner(x)
            return x
        return body
    with tf.Graph().as_default() as g:
        fn = lambda x: x + 1.0
        for i in range(levels):
            fn = function.Defun(tf.float32, func_name=f"level{i}")(calls(fn))
        tf.identity(fn(tf.constant(0.0)), name="slow")
        tf.constant(3.0, name="three")
        return g.as_graph_def().SerializeToString()


def deserted():
    """A step whose client goes while it is compiled is not compiled to the end: what came of it is not kept. (One that
    is done before the news comes is; so it is tried until the news is in time.)"""
    graph = nested(5, 10)
    with Cluster(worker=["shoal"]) as c, Client(c.spec["worker"]["0"]) as client:
        def given_up():
            session = string(client.call(MASTER + "CreateSession", field(1, graph)))
            step = client.start(MASTER + "RunStep", field(1, session) + field(3, b"slow:0"))
            client.call(MASTER + "ListDevices")  # on the same connection: it has been read
            step.cancel()
            client.call(MASTER + "RunStep", field(1, session) + field(3, b"three:0"))  # after it, in the same line
            kept = re.search(rb"(\d+) compiled steps", client.call("/shoal.Server/Status"))
            client.call(MASTER + "CloseSession", field(1, session))
            return int(kept[1]) == 1
        until(given_up)


def loop(start):
    """Computes for ever, beginning with start; ends with its step."""
    return tf.while_loop(lambda i: i > -1.0, lambda i: tf.abs(i * 0.5), [start])


def running(client):
    """Steps under way at a server, as its master counts them."""
    return client.call("/shoal.Server/Status").count(b": running since")


def computing():
    """Steps that compute for ever, of as many signatures, over two connections that take all the handlers there are: others
    are answered, and the steps end when their clients go."""
    n = 80  # more than threads for what is no request
    with Cluster(["--max_handlers=8", "--max_connection_handlers=4"], worker=["shoal"]) as c, tf.Graph().as_default() as g:
        x = loop(tf.random.uniform([]))
        for i in range(n):
            tf.identity(x, name=f"x{i}")
        address = c.spec["worker"]["0"]
        with Client(address) as one, Client(address) as other:
            session = string(one.call(MASTER + "CreateSession", field(1, g.as_graph_def().SerializeToString())))
            steps = [client.start(MASTER + "RunStep", field(1, session) + field(3, f"x{i}:0".encode()))
                     for i, client in enumerate([one, other] * (n // 2))]
            with Client(address) as third:
                until(lambda: running(third) >= 8)
            lives(c)
            assert not any(s.done() for s in steps)
        with Client(address) as third:
            until(lambda: running(third) == 0, what=lambda: "steps go on when their clients have gone")


def time_outs():
    """A step's time-out makes room in a queue for another, which computes for ever: that takes nothing from who looks after
    the time-outs of others."""
    def timed(ms):
        return field(5, tf.RunOptions(timeout_in_ms=ms).SerializeToString())
    with Cluster(worker=["shoal"]) as c, tf.Graph().as_default() as g, Client(c.spec["worker"]["0"]) as client:
        q = tf.FIFOQueue(10, [tf.float32], shapes=[[]])
        q.enqueue(1.0, name="put")
        q.dequeue_many(2, name="two")
        tf.identity(loop(q.dequeue()), name="endless")
        tf.FIFOQueue(10, [tf.float32], shapes=[[]]).dequeue(name="never")
        session = field(1, string(client.call(MASTER + "CreateSession", field(1, g.as_graph_def().SerializeToString()))))
        client.call(MASTER + "RunStep", session + field(4, b"put"))
        two = client.start(MASTER + "RunStep", session + field(3, b"two:0") + timed(2000))
        until(lambda: running(client) or two.done())
        endless = client.start(MASTER + "RunStep", session + field(3, b"endless:0"))
        until(two.done)
        never = client.start(MASTER + "RunStep", session + field(3, b"never:0") + timed(500))
        until(never.done, what=lambda: "a time-out does not come")
        assert never.code() == grpc.StatusCode.DEADLINE_EXCEEDED, never
        assert not endless.done()
        endless.cancel()
        until(lambda: running(client) == 0)


def parts_given_up():
    """A call of a partial run that its client gives up ends the run, as with TensorFlow's master."""
    with Cluster(worker=["shoal"]) as c, tf.Graph().as_default() as g, Client(c.spec["worker"]["0"]) as client:
        q = tf.FIFOQueue(10, [tf.float32], shapes=[[]])
        for i in range(2):
            tf.identity(q.dequeue(), name=f"x{i}")
        session = field(1, string(client.call(MASTER + "CreateSession", field(1, g.as_graph_def().SerializeToString()))))
        run = string(client.call(MASTER + "PartialRunSetup", session + field(3, b"x0:0") + field(3, b"x1:0")))
        assert running(client) == 1
        part = client.start(MASTER + "RunStep", session + field(3, b"x0:0") + field(6, run))
        client.call(MASTER + "ListDevices")  # on the same connection: it has been read
        part.cancel()
        until(lambda: running(client) == 0, what=lambda: "the run stays")
        try:
            client.call(MASTER + "RunStep", session + field(3, b"x1:0") + field(6, run))
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.INVALID_ARGUMENT, e
        else:
            raise AssertionError("no error")


TESTS = [("three hundred steps of one signature", lambda: many_steps(1)),
         ("three hundred steps of as many signatures", lambda: many_steps(MANY)),
         ("three hundred sessions", stopped_while_creating),
         ("a client's own worker", fake_worker),
         ("a step that nobody waits for", deserted), ("what nobody knows of", nobody_knows),
         ("ops without an end", endless), ("steps without an end", computing), ("time-outs", time_outs),
         ("partial runs given up", parts_given_up)]

if __name__ == "__main__":
    sys.exit(report(TESTS))
