"""What a step's options ask for beyond its values: partition graphs under either master, and the debugger's watches,
which are refused by name; the same of a callable; and errors whose text quotes what is no text."""
# needs: tensorflow
# under sanitizers: all
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.protobuf import config_pb2

from cluster import Cluster, report
from master_client import Client, Wrong

tf.disable_v2_behavior()


def product():
    """A product on the ps, whose factor comes from the worker."""
    with tf.Graph().as_default() as g:
        with tf.device("/job:worker/task:0"):
            here = tf.square(tf.placeholder(tf.float32, [], name="x"), name="here")
        with tf.device("/job:ps/task:0"):
            tf.multiply(here, 3.0, name="there")
    return g


def ask(target, options):
    """The metadata of a step."""
    metadata = tf.RunMetadata()
    with tf.Session(target, graph=product()) as s:
        assert s.run("there:0", {"x:0": 2.0}, options=options, run_metadata=metadata) == 12.0
    return metadata


def ask_callable(target, options):
    """The metadata of a run of a callable, which was told the options when it was made; TensorFlow's client drops it."""
    s = Client(target).create(product().as_graph_def())
    made = s.client.call("MakeCallable", (1, s.handle), (2, config_pb2.CallableOptions(
        feed=["x:0"], fetch=["there:0"], run_options=options)))
    answer = s.called(made.get(1, 0), np.float32(2))
    assert tf.make_ndarray(TensorProto.FromString(answer[1])) == 12.0
    s.close()
    return tf.RunMetadata.FromString(answer.get(2, b""))


def partition_graphs(c, way=ask):
    metadata = way(c.target("worker"), tf.RunOptions(output_partition_graphs=True))
    nodes = {n.name: n for g in metadata.partition_graphs for n in g.node}
    assert "/job:ps" in nodes["there"].device and "/job:worker" in nodes["here"].device, nodes
    on_ps = [g for g in metadata.partition_graphs if any(n.name == "there" for n in g.node)]
    assert len(on_ps) == 1 and all("/job:ps" in n.device for n in on_ps[0].node), on_ps
    assert any(n.op in ("_Recv", "_HostRecv") for n in on_ps[0].node), on_ps
    assert not way(c.target("worker"), tf.RunOptions()).partition_graphs


def traces(c):
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    for way in (ask, ask_callable):
        devices = " ".join(d.device for d in way(c.target("worker"), options).step_stats.dev_stats)
        assert "/job:ps" in devices and "/job:worker" in devices, devices
        assert not way(c.target("worker"), tf.RunOptions()).step_stats.dev_stats


def callables_in_time(c):
    """A callable has the time-out that it was made with, whoever made one of the same step without."""
    with tf.Graph().as_default() as g, tf.device("/job:ps/task:0"):
        tf.FIFOQueue(1, tf.float32, shapes=[[]]).dequeue(name="never")
    with tf.Session(c.target("worker"), graph=g) as s:
        made = config_pb2.CallableOptions(fetch=["never:0"])
        s._make_callable_from_options(made)  # has none
        made.run_options.timeout_in_ms = 300
        try:
            s._make_callable_from_options(made)()
        except tf.errors.DeadlineExceededError:
            pass
        else:
            raise AssertionError("no error")
        for field in ("feed_devices", "fetch_devices"):
            made = config_pb2.CallableOptions(fetch=["never:0"])
            getattr(made, field)["never:0"] = "nonsense device"
            try:
                s._make_callable_from_options(made)()
            except tf.errors.UnimplementedError as e:
                assert "feed_devices" in e.message, e.message
            else:
                raise AssertionError("no error")
        made = config_pb2.CallableOptions(fetch=["never:0"])
        made.tensor_connection.add(from_tensor="a:0", to_tensor="b:0")
        try:
            s._make_callable_from_options(made)()
        except tf.errors.UnimplementedError as e:
            assert "tensor_connection" in e.message, e.message
        else:
            raise AssertionError("no error")


def debug_options(c):
    options = tf.RunOptions()
    options.debug_options.global_step = 1  # says nothing of any tensor
    ask(c.target("worker"), options)
    ask_callable(c.target("worker"), options)
    options.debug_options.debug_tensor_watch_opts.add(node_name="there", output_slot=0, debug_ops=["DebugIdentity"],
                                                      debug_urls=["file:///tmp/nowhere"])
    for way in (ask, ask_callable):
        try:
            way(c.target("worker"), options)
        except (tf.errors.UnimplementedError, Wrong) as e:
            assert "debug_options" in str(e) and getattr(e, "code", "UNIMPLEMENTED") == "UNIMPLEMENTED", e
        else:
            raise AssertionError("no error")


def odd_bytes(c):
    """An error that quotes bytes which are no UTF-8 arrives as what it is."""
    with tf.Graph().as_default():
        for task in ("worker", "ps"):
            with tf.device(f"/job:{task}/task:0"):
                number = tf.strings.to_number(tf.placeholder(tf.string, [], name="s"))
            with tf.Session(c.target("worker")) as s:
                try:
                    s.run(number, {number.op.inputs[0]: b"\xff\xfe of old"})
                    raise AssertionError("no error")
                except tf.errors.InvalidArgumentError as e:
                    assert "\\xff\\xfe of old" in e.message, e


def under(master):
    with Cluster(ps=["shoal"], worker=[master]) as c:  # one start of TensorFlow's is long enough
        partition_graphs(c)
        debug_options(c)
        traces(c)
        if master == "shoal":
            partition_graphs(c, ask_callable)
            callables_in_time(c)
            odd_bytes(c)


def fused_for_host_alone(c):
    for device, op in (("GPU", "MatMul"), ("CPU", "_FusedMatMul")):
        with tf.Graph().as_default(), tf.device(f"/device:{device}:0"):
            x, w, b = tf.placeholder(tf.float32, [2, 3]), tf.ones([3, 4]), tf.ones([4])
            y, metadata = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w), b)), tf.RunMetadata()
            with tf.Session(c.target("worker")) as s:
                s.run(y, {x: np.ones([2, 3])}, tf.RunOptions(output_partition_graphs=True), metadata)
        ops = [n.op for g in metadata.partition_graphs for n in g.node]
        assert op in ops and ("_FusedMatMul" in ops) == (device == "CPU"), (device, ops)


def beside_a_card():
    """A master fuses for the host's kernels, which every task has; for a card's, only the card's own task can."""
    os.environ["SHOAL_SOFT_GPUS"] = "1"
    try:
        with Cluster(worker=["shoal"]) as c:
            fused_for_host_alone(c)
    finally:
        del os.environ["SHOAL_SOFT_GPUS"]


TESTS = [("what is fused beside a card", beside_a_card),
         ("under Shoal's master", lambda: under("shoal")),
         ("under TensorFlow's master", lambda: under("tf"))]

if __name__ == "__main__":
    sys.exit(report(TESTS))
