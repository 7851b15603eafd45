"""What a step's options ask for beyond its values: partition graphs under either master, and the debugger's watches,
which are refused by name; and errors whose text quotes what is no text."""
# needs: tensorflow
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2

from cluster import Cluster, report

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
    with tf.Session(target, graph=product()) as s:
        call = s._make_callable_from_options(config_pb2.CallableOptions(feed=["x:0"], fetch=["there:0"],
                                                                        run_options=options))
        assert call(np.float32(2)) == [12.0]


def partition_graphs(c):
    metadata = ask(c.target("worker"), tf.RunOptions(output_partition_graphs=True))
    nodes = {n.name: n for g in metadata.partition_graphs for n in g.node}
    assert "/job:ps" in nodes["there"].device and "/job:worker" in nodes["here"].device, nodes
    on_ps = [g for g in metadata.partition_graphs if any(n.name == "there" for n in g.node)]
    assert len(on_ps) == 1 and all("/job:ps" in n.device for n in on_ps[0].node), on_ps
    assert any(n.op in ("_Recv", "_HostRecv") for n in on_ps[0].node), on_ps
    assert not ask(c.target("worker"), tf.RunOptions()).partition_graphs


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
        except tf.errors.UnimplementedError as e:
            assert "debug_options" in e.message, e.message
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
        if master == "shoal":
            odd_bytes(c)


TESTS = [("under Shoal's master", lambda: under("shoal")), ("under TensorFlow's master", lambda: under("tf"))]

if __name__ == "__main__":
    sys.exit(report(TESTS))
