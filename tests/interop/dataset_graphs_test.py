"""Datasets as graphs: what one side writes the other makes a dataset of, with the same elements.

# needs: tensorflow
"""
import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.python.data.ops import dataset_ops

import shoal
from data_check import begin, report

tf.disable_eager_execution()
D, raw = tf.data.Dataset, tf.raw_ops
FOLDER = tempfile.mkdtemp()
for i in range(3):
    with open(os.path.join(FOLDER, f"{i}.txt"), "w") as w:
        w.write("".join(f"line {k} of {i}\n" for k in range(3)))
FILES = sorted(os.path.join(FOLDER, f) for f in os.listdir(FOLDER))


def session(g):
    """Without folding: TensorFlow cannot keep a dataset as a constant."""
    c = tf.ConfigProto()
    c.graph_options.rewrite_options.disable_meta_optimizer = True
    c.graph_options.optimizer_options.opt_level = -1
    return tf.Session(graph=g, config=c)


def graph_of(build):
    g = tf.Graph()
    with g.as_default():
        tf.set_random_seed(7)
        made = build()
    return g, made


def run(who, g, fetch):
    """The value of one tensor, or the code of the error."""
    try:
        if who == "tensorflow":
            with session(g) as s:
                value = s.run(fetch)
        else:
            with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) as s:
                value = s.run([fetch])[0]
        return value.item() if isinstance(value, np.ndarray) else value
    except tf.errors.OpError as e:
        return e.error_code
    except shoal.Error as e:
        return e.code


BOTH = ("tensorflow", "shoal")


def written(build, op=raw.DatasetToGraphV2, **attrs):
    """What each side writes of the same dataset: a GraphDef, or the code of the error."""
    g, t = graph_of(lambda: op(input_dataset=build()._variant_tensor, **attrs))
    values = [run(who, g, t.name) for who in BOTH]
    return [v if isinstance(v, int) else graph_pb2.GraphDef.FromString(v) for v in values]


def walk(who, build):
    def make():
        it = tf.data.make_initializable_iterator(build())
        return [t.name for t in tf.nest.flatten(it.get_next())], it.initializer.name
    g, (names, init) = graph_of(make)
    if who == "tensorflow":
        with session(g) as s:
            return begin(lambda: s.run(init), lambda: s.run(names), lambda e: e.error_code)
    with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) as s:
        return begin(lambda: s.run(targets=[init]), lambda: s.run(names), lambda e: e.code)


def read(who, graph, spec):
    return walk(who, lambda: dataset_ops._VariantDataset(raw.DatasetFromGraph(graph_def=graph.SerializeToString()), spec))


def same(a, b):
    assert len(a) == len(b), (a, b)
    for x, y in zip(a, b):
        assert x == y if isinstance(x, int) or isinstance(y, int) else all(np.array_equal(p, q) for p, q in zip(x, y)), (a, b)


def nodes(graph):
    return [(n.name, n.op, list(n.input)) for n in graph.node]


@tf.function
def shifted(x, by):
    return x + by


PIPELINES = {
    "a range": lambda: D.range(10),
    "a part of a range": lambda: D.range(3, 50, 4).take(5).skip(1).repeat(2),
    "slices of several types": lambda: D.from_tensor_slices((np.arange(4), np.array([b"a", b"", b"ccc", b"d"], object), np.eye(4, dtype=np.float32))),
    "a map": lambda: D.range(6).map(lambda x: x * x),
    "a map that captures": lambda: D.range(4).map(lambda x, c=tf.constant([1, 2], tf.int64): x + c),
    "functions that call functions": lambda: D.range(4).map(lambda x: shifted(shifted(x, 1), 2)),
    "a branch in a function": lambda: D.range(4).map(lambda x: tf.cond(x > 1, lambda: x * 2, lambda: -x)),
    "a filter": lambda: D.range(9).filter(lambda x: x % 3 == 1),
    "datasets made by a function": lambda: D.range(4).flat_map(lambda x: D.range(x).map(lambda y: y + 10 * x)),
    "interleaved": lambda: D.range(4).interleave(lambda x: D.range(x, x + 3), cycle_length=2),
    "parallel": lambda: D.range(8).map(lambda x: x + 1, num_parallel_calls=2).batch(3).prefetch(2),
    "shuffled": lambda: D.range(20).shuffle(5, seed=3),
    "cached": lambda: D.range(5).cache().repeat(2),
    "zipped and joined": lambda: D.zip((D.range(3), D.range(3, 6).concatenate(D.range(1)))),
    "one dataset twice": lambda: (lambda d: d.concatenate(d))(D.range(3).map(lambda x: x + 1)),
    "padded": lambda: D.range(1, 6).map(lambda n: tf.fill([n], n)).padded_batch(2, [None], tf.constant(7, tf.int64)),
    "windows": lambda: D.range(7).window(3, 2).flat_map(lambda w: w.batch(3)),
    "groups": lambda: D.range(10).apply(tf.data.experimental.group_by_window(lambda x: x % 3, lambda k, d: d.batch(2), 4)),
    "a scan": lambda: D.range(5).apply(tf.data.experimental.scan(tf.constant(0, tf.int64), lambda s, x: (s + x, s * x))),
    "a generator": lambda: D.from_tensors(tf.constant(3, tf.int64)).flat_map(lambda n: D.range(n).take_while(lambda x: x < 2)),
    "lines of files": lambda: tf.data.TextLineDataset(FILES),
    "chosen": lambda: D.choose_from_datasets([D.range(3), D.range(10, 13)], D.from_tensor_slices(np.array([0, 1, 1, 0, 1], np.int64))),
    "with options": lambda: D.range(4).with_options(tf.data.Options()),
    "unbatched": lambda: D.range(6).batch(2).unbatch(),
}
# TensorFlow marks the names of files by an Identity behind them, and writes a dataset as often as it is used.
LAID_OUT_OTHERWISE = {"lines of files", "one dataset twice"}


def both_ways(label, build):
    spec = graph_of(build)[1].element_spec
    theirs, ours = written(build)
    expected = walk("tensorflow", build)
    assert not isinstance(ours, int), ours
    if label not in LAID_OUT_OTHERWISE:
        assert nodes(ours) == nodes(theirs), (nodes(ours), nodes(theirs))
    assert {f.signature.name for f in ours.library.function} == {f.signature.name for f in theirs.library.function}
    same(read("shoal", theirs, spec), expected)
    same(read("tensorflow", ours, spec), expected)
    same(read("shoal", ours, spec), expected)


def noisy():
    return D.range(3).map(lambda x: tf.random.uniform([], maxval=9, dtype=tf.int64, seed=1))


def policies():
    for policy in range(3):
        codes = written(noisy, external_state_policy=policy)
        assert all((c == 9) == (policy == 2) for c in codes), (policy, codes)
        quiet = written(PIPELINES["a map"], external_state_policy=policy)
        assert not any(isinstance(c, int) for c in quiet), quiet
    assert written(noisy, external_state_policy=3)[1] == 3
    for allow in (False, True):
        for build in (noisy, PIPELINES["a branch in a function"]):
            codes = written(build, raw.DatasetToGraph, allow_stateful=allow)
            assert (codes[0] == 9) == (codes[1] == 9), (allow, codes)


def placed():
    def f(x):
        with tf.device("/job:localhost/replica:0/task:0/device:CPU:0"):
            return x + 1
    for strip in (False, True):
        graphs = written(lambda: D.range(3).map(f), strip_device_assignment=strip)
        devices = [{n.device for function in g.library.function for n in function.node_def} for g in graphs]
        assert devices[0] == devices[1] and (("/device:CPU:0" in devices[1]) == strip), devices
        for g in graphs:
            same(read("shoal", g, tf.TensorSpec([], tf.int64)), [[np.int64(i)] for i in (1, 2, 3)] + [11])


def retval(graph, source):
    n = graph.node.add(name="dataset", op="_Retval", input=[source])
    n.attr["T"].type = tf.variant.as_datatype_enum
    n.attr["index"].i = 0
    return graph


def refused(make, code, both=True):
    graph = make()
    bytes_ = graph if isinstance(graph, bytes) else graph.SerializeToString()
    g, t = graph_of(lambda: raw.DatasetCardinality(input_dataset=raw.DatasetFromGraph(graph_def=bytes_)))
    for who in BOTH if both else ("shoal",):
        got = run(who, g, t.name)
        assert got == code, (who, got)


def good():
    return written(PIPELINES["a map"])[0]


def changed(change):
    g = good()
    change(g)
    return g


def nested(times):
    """A graph that makes a dataset of a graph that makes a dataset of a graph..."""
    g = good()
    for _ in range(times):
        inner, g = g.SerializeToString(), graph_pb2.GraphDef()
        c = g.node.add(name="inner", op="Const")
        c.attr["dtype"].type = tf.string.as_datatype_enum
        c.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(inner, tf.string))
        g.node.add(name="made", op="DatasetFromGraph", input=["inner"])
        retval(g, "made")
    return g


def self_made():
    """A dataset whose function makes datasets of a graph."""
    inner = good().SerializeToString()
    return D.range(2).flat_map(lambda x: dataset_ops._VariantDataset(raw.DatasetFromGraph(graph_def=inner), tf.TensorSpec([], tf.int64)).map(lambda y: x + y))


def number(g):
    n = g.node.add(name="number", op="Const")
    n.attr["dtype"].type = tf.int32.as_datatype_enum
    n.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(1, tf.int32))
    g.node[-2].input[0] = "number"


def other_variant(g):
    n = g.node.add(name="none", op="OptionalNone")
    g.node[-2].input[0] = "none"


def window_itself():
    return D.range(4).window(2).map(lambda w: raw.DatasetToGraphV2(input_dataset=w._variant_tensor))


def crowded(n):
    """n nodes more, each with a byte string of its own that a parser appends to the graph's."""
    return good().SerializeToString() + b"".join(graph_pb2.GraphDef(
        node=[node_def_pb2.NodeDef(name=f"n{i}", op="NoOp")]).SerializeToString() for i in range(n))


def no_retval(g):
    del g.node[-1]


tests = [(label, lambda l=label, b=build: both_ways(l, b)) for label, build in PIPELINES.items()]
tests += [("what to do about state", policies), ("devices left out", placed),
          ("a graph inside a function", lambda: same(walk("shoal", self_made), walk("tensorflow", self_made))),
          ("a graph in a graph in a graph", lambda: same(read("shoal", nested(3), tf.TensorSpec([], tf.int64)), walk("tensorflow", PIPELINES["a map"]))),
          ("no GraphDef", lambda: refused(lambda: b"zz", 3)),
          ("nothing", lambda: refused(lambda: b"", 5)),
          ("no result", lambda: refused(lambda: changed(no_retval), 5)),
          ("an unknown op", lambda: refused(lambda: changed(lambda g: setattr(g.node[-2], "op", "NoSuchDataset")), 5)),
          ("a function that is not there", lambda: refused(lambda: changed(lambda g: g.library.Clear()), 5, both=False)),
          ("an edge from nowhere", lambda: refused(lambda: changed(lambda g: g.node[-2].input.__setitem__(0, "nowhere")), 3)),
          ("a circle", lambda: refused(lambda: changed(lambda g: g.node[-2].input.__setitem__(0, g.node[-2].name)), 3)),
          ("a number for a result", lambda: refused(lambda: changed(number), 3)),
          ("no dataset for a result", lambda: refused(lambda: changed(other_variant), 3)),
          ("graphs in graphs without end", lambda: refused(lambda: nested(150), 8, both=False)),
          ("many nodes", lambda: refused(lambda: crowded(20000), -2, both=False)),
          ("too many nodes", lambda: refused(lambda: crowded(200000), 8, both=False)),
          ("a dataset of no node", lambda: same(walk("shoal", window_itself)[:1], [12]))]
if __name__ == "__main__":
    report(tests)
