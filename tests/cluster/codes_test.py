"""Requests that are wrong, one by one, to a server of TensorFlow and to one of Shoal: both answer with the same code, and
with what matters of the message. Each case is a function of a client that ends in an error (or, where TensorFlow takes
it, in none); a list of words says what both messages must contain."""
# needs: tensorflow
# under sanitizers: all
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.framework.tensor_pb2 import TensorProto

from cluster import Cluster, report
from master_client import Client, Session, Wrong, const, graph_def, node, raw

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
FLOAT, INT32, STRING = types_pb2.DT_FLOAT, types_pb2.DT_INT32, types_pb2.DT_STRING


# ---- what is fed and fetched ----

def small():
    x = tf.placeholder(tf.float32, [2, 3], name="x")
    free = tf.placeholder(tf.float32, None, name="free")
    tf.multiply(x, 2.0, name="y")
    tf.identity(free, name="z")
    tf.constant(1.0, name="c")
    n = tf.placeholder(tf.int32, None, name="n")
    tf.floordiv(7, n, name="div")
    tf.floormod(7, n, name="mod")
    tf.gather(tf.constant([1.0, 2.0]), n, name="gather")
    tf.reshape(free, [2, 2], name="reshape")
    tf.matmul(tf.reshape(free, [1, -1]), tf.ones([3, 1]), name="matmul")
    tf.strings.to_number(tf.placeholder(tf.string, None, name="s"), name="number")
    tf.no_op(name="nothing")
    s, _ = tf.raw_ops.Switch(data=1.0, pred=True, name="switch")
    tf.identity(s, name="dead")
    tf.identity(tf.identity(s), name="dead2")
    tf.one_hot(n, 3, name="one_hot")
    tf.raw_ops.Concat(concat_dim=0, values=[tf.ones([2, 2]), free], name="concat")
    tf.expand_dims(free, n, name="expand")
    tf.slice(tf.constant([1, 2, 3]), [0], tf.reshape(n, [1]), name="slice")
    tf.range(0, 10, n, name="range")
    tf.fill(tf.reshape(n, [1]), 0.0, name="fill")
    tf.transpose(tf.ones([2, 3]), tf.stack([0, n]), name="transpose")
    tf.split(tf.ones([4]), tf.stack([1, n]), name="split")
    tf.scatter_nd(tf.reshape(n, [1, 1]), [1.0], [3], name="scatter")
    tf.math.unsorted_segment_sum([1.0], tf.reshape(n, [1]), 3, name="segment")
    tf.math.segment_sum([1.0, 2.0], tf.stack([n, 0]), name="sorted_segment")
    tf.nn.top_k(tf.ones([3]), n, name="topk")
    tf.debugging.check_numerics(free, "seen", name="numerics")
    tf.debugging.Assert(tf.equal(n, 1), ["it is", n], name="assert")
    tf.io.decode_png(tf.placeholder(tf.string, [], name="bytes"), name="png")
    tf.io.decode_raw(tf.placeholder(tf.string, None, name="bytes2"), tf.int32, name="raw")
    tf.io.parse_tensor(tf.placeholder(tf.string, [], name="bytes3"), tf.int32, name="parse")
    tf.io.parse_single_example(tf.placeholder(tf.string, [], name="bytes4"), {"k": tf.io.FixedLenFeature([], tf.int64)},
                               name="example")
    tf.io.read_file("/nonexistent/file", name="missing")
    tf.raw_ops.RestoreV2(prefix="/nonexistent/prefix", tensor_names=["v"], shape_and_slices=[""], dtypes=[tf.float32],
                         name="restore")
    tf.sparse.to_dense(tf.SparseTensor(tf.cast(tf.reshape(n, [1, 1]), tf.int64), [1.0], [3]), name="dense")
    tf.linalg.inv(tf.zeros([2, 2]) + tf.reshape(free, [1, 1]), name="inverse")
    tf.linalg.cholesky(-tf.eye(2) * free, name="cholesky")
    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(n, [1]), logits=tf.ones([1, 3]), name="xent")
    tf.nn.conv2d(tf.reshape(free, [1, 2, 2, -1]), tf.ones([1, 1, 3, 1]), 1, "SAME", name="conv")
    tf.strided_slice(tf.ones([3]), [0], [3], tf.reshape(n, [1]), name="strided")
    tf.raw_ops.SparseReshape(input_indices=[[0]], input_shape=[4], new_shape=tf.cast(tf.stack([3, n]), tf.int64),
                             name="sparse_reshape")
    tf.raw_ops.InvertPermutation(x=tf.reshape(n, [1]), name="invert")
    tf.tile(tf.ones([2]), tf.reshape(n, [1]), name="tile")
    tf.random.uniform(tf.reshape(n, [1]), name="uniform")
    tf.strings.substr("abc", n, 1, name="substr")
    tf.raw_ops.DecodeBase64(input=tf.placeholder(tf.string, None, name="bytes5"), name="base64")
    tf.strings.regex_replace("abc", tf.placeholder(tf.string, [], name="pattern"), "x", name="regex")
    tf.broadcast_to(tf.ones([2]), tf.reshape(n, [1]), name="broadcast")
    tf.cumsum(tf.ones([3]), n, name="cumsum")
    tf.reduce_sum(tf.ones([3]), n, name="sum")
    tf.dynamic_partition(tf.ones([1]), tf.reshape(n, [1]), 2, name="partition")
    tf.raw_ops.Add(x=tf.ones([2]), y=free, name="plus")


SHORT = tf.make_tensor_proto(np.ones([2, 3], np.float32))
SHORT.tensor_content = SHORT.tensor_content[:5]
MISSHAPEN = tf.make_tensor_proto(np.ones([2, 3], np.float32))
MISSHAPEN.tensor_shape.dim[0].size = -7


def run(fetch=(), feed=(), target=(), **options):
    return lambda c: c.create(SMALL).run(fetch, feed, target, **options)


SMALL = graph_def(small)
X = np.ones([2, 3], np.float32)
ONE = np.float32(1)
STEPS = [
    ("fetch: no such node", run("nope:0"), ["nope"]),
    ("fetch: no such output", run("c:5"), ["FetchOutputs c:5: output index too large, must be < 1"]),
    ("fetch: an op without outputs", run("nothing:0"), ["nothing"]),
    ("fetch: a control input", run("^c"), []),
    ("fetch: letters for an index", run("c:x"), []),
    ("fetch: no name", run(""), []),
    ("fetch: only an index", run(":0"), []),
    ("fetch: a large index", run("c:99999999999"), []),
    ("fetch: a negative index", run("c:-1"), []),
    ("fetch: the same twice", run(["c:0", "c:0"]), []),
    ("fetch: without an index", run("c"), []),
    ("fetch: what is fed", run("x:0", {"x:0": X}), []),
    ("fetch: one of several is missing", run(["c:0", "nope:0"]), ["nope"]),
    ("feed: no such node", run("c:0", {"nope:0": ONE}), ["nope"]),
    ("feed: no such output", run("c:0", {"x:3": X}), ["x"]),
    ("feed: no name", run("c:0", {"": X}), []),
    ("feed: a control input", run("c:0", {"^x": X}), []),
    ("feed: twice", run("y:0", [("x:0", X), ("x:0", X)]), ["x"]),
    ("feed: another dtype", run("y:0", {"x:0": X.astype(np.int32)}),
     ["Output 0 of type int32 does not match declared output type float"]),
    ("feed: strings for floats", run("y:0", {"x:0": b"text"}), []),
    ("feed: another shape", run("y:0", {"x:0": np.ones([5], np.float32)}), []),
    ("feed: too few bytes", run("y:0", {"x:0": SHORT}), []),
    ("feed: an impossible shape", run("y:0", {"x:0": MISSHAPEN}), []),
    ("feed: no tensor", run("y:0", {"x:0": TensorProto()}), []),
    ("feed: what nobody needs", run("c:0", {"x:0": X}), []),
    ("feed: a constant", run("c:0", {"c:0": ONE}), []),
    ("feed: a constant with another dtype", run("y:0", {"x:0": X, "y/y:0": np.int32(1)}), []),
    ("target: no such node", run(target="nope"), ["nope"]),
    ("target: with an index", run(target="c:0"), []),
    ("target: a placeholder", run(target="x"), ["x"]),
    ("target: twice", run(target=["c", "c"]), []),
    ("nothing is asked for", run(), []),
    ("a placeholder is not fed", run("y:0"), ["You must feed a value for placeholder tensor 'x' with dtype float"]),
    ("a dead tensor", run("dead:0"), ["Failed to fetch outputs", "was not valid"]),
    ("a dead output of a switch", run("switch:0"), []),
    ("a dead tensor, by way of another", run("dead2:0"), []),
    ("a dead tensor beside a live one", run(["dead:0", "c:0"]), []),
    ("a target that is dead", run("c:0", target="dead"), []),
    ("options: no such thread pool", run("c:0", inter_op_thread_pool=77), []),
    ("options: another negative thread pool", run("c:0", inter_op_thread_pool=-9), []),
]


def fails(fetch, feed, words=(), target=()):
    return (f"step: {fetch or target} of {next(iter(feed.values()))!r}" if feed else f"step: {fetch}",
            run(fetch, feed, target), list(words))


N = np.int32
KERNELS = [
    fails("div:0", {"n:0": N(0)}, ["zero"]),
    fails("mod:0", {"n:0": N(0)}, ["zero"]),
    fails("gather:0", {"n:0": N(5)}, ["5", "[0, 2)"]), fails("gather:0", {"n:0": N(-1)}, ["-1"]),
    fails("reshape:0", {"free:0": np.ones([3], np.float32)}, ["reshape", "3 values", "4"]),
    fails("matmul:0", {"free:0": np.ones([2], np.float32)}, ["[1,2]", "[3,1]"]),
    fails("number:0", {"s:0": b"abc"}, ["abc"]),
    fails("concat:0", {"free:0": np.ones([1, 3], np.float32)}, ["Dimension"]),
    fails("expand:0", {"free:0": ONE, "n:0": N(5)}, []),
    fails("slice:0", {"n:0": N(7)}, []), fails("slice:0", {"n:0": N(-5)}, []),
    fails("range:0", {"n:0": N(0)}, []), fails("fill:0", {"n:0": N(-3)}, []),
    fails("transpose:0", {"n:0": N(7)}, []), fails("transpose:0", {"n:0": N(0)}, []),
    fails("split:0", {"n:0": N(7)}, []), fails("scatter:0", {"n:0": N(7)}, []),
    fails("segment:0", {"n:0": N(7)}, []), fails("sorted_segment:0", {"n:0": N(7)}, []),
    fails("topk:0", {"n:0": N(7)}, []), fails("topk:0", {"n:0": N(-7)}, []),
    fails("numerics:0", {"free:0": np.float32(np.nan)}, ["seen", "NaN"]),
    ("step: an assertion", run(target="assert/Assert/AssertGuard/Merge", feed={"n:0": N(3)}), []),
    fails("png:0", {"bytes:0": b"nothing"}, []), fails("raw:0", {"bytes2:0": b"abc"}, []),
    fails("parse:0", {"bytes3:0": b"nonsense"}, []),
    fails("example/ParseSingleExample:0", {"bytes4:0": b"nonsense"}, []),
    fails("missing:0", {}, ["/nonexistent/file"]), fails("restore:0", {}, ["/nonexistent/prefix"]),
    fails("dense:0", {"n:0": N(7)}, []), fails("inverse:0", {"free:0": np.float32(0)}, []),
    fails("cholesky:0", {"free:0": ONE}, []),
    fails("conv:0", {"free:0": np.ones([8], np.float32)}, []),
    fails("strided:0", {"n:0": N(0)}, []), fails("sparse_reshape:1", {"n:0": N(5)}, []),
    fails("invert:0", {"n:0": N(5)}, []), fails("tile:0", {"n:0": N(-5)}, []),
    fails("uniform:0", {"n:0": N(-5)}, []), fails("substr:0", {"n:0": N(7)}, []),
    fails("base64:0", {"bytes5:0": b"%%%%"}, []), fails("regex:0", {"pattern:0": b"(("}, []),
    fails("broadcast:0", {"n:0": N(3)}, []), fails("cumsum:0", {"n:0": N(3)}, []), fails("sum:0", {"n:0": N(3)}, []),
    fails("partition:0", {"n:0": N(3)}, []), fails("plus:0", {"free:0": np.ones([3], np.float32)}, ["[2]", "[3]"]),
]


# ---- state ----

def stateful(make, *steps, feed=()):
    """The graph of make; all steps but the last succeed."""
    def fn(c):
        s = c.create(graph_def(make))
        for step in steps[:-1]:
            s.run(target=step, feed=feed)
        s.run(target=steps[-1], feed=feed)
    return fn


def resource_variable():
    v = tf.get_variable("v", initializer=tf.zeros([2]), use_resource=True)
    tf.raw_ops.ReadVariableOp(resource=v.handle, dtype=tf.float32, name="read")


def ref_variable():
    v = tf.get_variable("v", initializer=tf.zeros([2]), use_resource=False)
    tf.identity(v, name="read")
    tf.assign(v, tf.placeholder(tf.float32, None, name="fed"), name="assign")
    tf.assign_add(v, [1.0, 1.0], name="add")


def queue():
    q = tf.FIFOQueue(2, [tf.float32], [[2]], name="q")
    q.enqueue([tf.ones([2])], name="put")
    q.dequeue(name="take")
    q.close(name="close")
    q.dequeue_many(5, name="take_many")
    tf.raw_ops.QueueEnqueueV2(handle=q.queue_ref, components=[tf.placeholder(tf.float32, None, name="fed")], name="odd")
    tf.raw_ops.QueueEnqueueV2(handle=q.queue_ref, components=[1, 2], name="wrong")


def table():
    t = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "a"], [1, 2]), -1)
    tf.identity(t.lookup(tf.constant(["a"])), name="find")
    tf.group(t.initializer, name="fill")


def iterator():
    d = tf.data.Dataset.range(2)
    it = tf.data.make_initializable_iterator(d)
    tf.group(it.initializer, name="start")
    tf.identity(it.get_next(), name="next")


def tensor_array():
    a = tf.TensorArray(tf.float32, 2, clear_after_read=True, infer_shape=False)
    tf.identity(a.read(1), name="unwritten")
    b = a.write(0, 1.0)
    tf.identity(b.write(0, 2.0).flow, name="twice")
    tf.identity(a.write(7, 1.0).flow, name="outside")


def lists():
    l = tf.raw_ops.TensorListReserve(element_shape=tf.constant([], tf.int32), num_elements=2, element_dtype=tf.float32)
    tf.raw_ops.TensorListGetItem(input_handle=l, index=7, element_shape=tf.constant([], tf.int32),
                                 element_dtype=tf.float32, name="outside")
    e = tf.raw_ops.EmptyTensorList(element_shape=tf.constant([], tf.int32), max_num_elements=-1,
                                   element_dtype=tf.float32)
    tf.raw_ops.TensorListPopBack(input_handle=e, element_shape=tf.constant([], tf.int32), element_dtype=tf.float32,
                                 name="pop")


STATE = [
    ("state: a variable without a value", stateful(resource_variable, "read"), ["v"]),
    ("state: a TensorFlow 1 variable without a value", stateful(ref_variable, "read"),
     ["Attempting to use uninitialized value v"]),
    ("state: adding to a variable without a value", stateful(ref_variable, "add"), ["uninitialized", "v"]),
    ("state: a variable of another shape", stateful(ref_variable, "v/Assign", "assign", feed={"fed:0": np.ones([3], np.float32)}),
     ["Assign requires shapes of both tensors to match"]),
    ("state: a queue that is closed and empty", stateful(queue, "close", "take"), ["closed"]),
    ("state: a queue that is closed", stateful(queue, "close", "put"), ["closed"]),
    ("state: too few elements in a closed queue", stateful(queue, "put", "close", "take_many"), ["closed"]),
    ("state: an element of another shape", stateful(queue, "odd", feed={"fed:0": np.ones([3], np.float32)}), []),
    ("state: a queue closed twice", stateful(queue, "close", "close"), []),
    ("state: a table that is not filled", stateful(table, "find"), []),
    ("state: a table with two values for a key", stateful(table, "fill"), []),
    ("state: an iterator that was not started", stateful(iterator, "next"), []),
    ("state: an iterator at its end", stateful(iterator, "start", "next", "next", "next"), []),
    ("state: an array's element that was not written", stateful(tensor_array, "unwritten"), []),
    ("state: an array's element written twice", stateful(tensor_array, "twice"), []),
    ("state: outside of an array", stateful(tensor_array, "outside"), []),
    ("state: outside of a list", stateful(lists, "outside"), []),
    ("state: an empty list", stateful(lists, "pop"), []),
]


# ---- graphs ----

def made(*nodes, run=None, **fields):
    def fn(c):
        g = raw(*nodes)
        for k, v in fields.items():
            setattr(g.versions, k, v)
        s = c.create(g)
        s.run(run or f"{nodes[-1].name}:0")
    return fn


ADD = node("add", "AddV2", ["a", "b"], T=FLOAT)
A, B = const("a", 1.0), const("b", 2.0)


def calling(op, *inputs, **functions):
    """A node that calls functions which are not there."""
    n = node("call", op, inputs)
    for attr in functions:
        n.attr[attr].func.name = functions[attr]
    if op in ("If", "StatelessIf"):
        n.attr["Tcond"].type = FLOAT
    for attr in ["T"] if op in ("While", "StatelessWhile") else ["Tin", "Tout"]:
        n.attr[attr].list.type.append(FLOAT)
    return n


def colocated(name):
    n = const("far", 1.0)
    n.attr["_class"].list.s.append(b"loc:@" + name.encode())
    return n


def placed(device):
    n = const("far", 1.0)
    n.device = device
    return n


GRAPHS = [
    ("graph: no such op", made(node("n", "NoSuchOp")), ["NoSuchOp"]),
    ("graph: an attribute without a default is missing", made(node("n", "Placeholder")), ["dtype", "n"]),
    ("graph: several attributes are missing", made(node("n", "Const")), ["dtype"]),
    ("graph: a value is missing", made(node("n", "Const", dtype=FLOAT)), ["value"]),
    ("graph: a text is missing", made(A, node("n", "CheckNumerics", ["a"], T=FLOAT)), ["message"]),
    ("graph: a missing list of types", made(node("n", "FIFOQueueV2")), ["component_types"]),
    ("graph: a missing number", made(A, node("n", "AddN", ["a"], T=FLOAT)), ["N"]),
    ("graph: a missing type of inputs", made(A, B, node("n", "AddV2", ["a", "b"])), ["T"]),
    ("graph: an attribute of another kind", made(node("n", "Placeholder", dtype="float")), []),
    ("graph: a type that is not allowed", made(node("n", "Neg", ["a"], T=STRING), const("a", "x")), ["T"]),
    ("graph: an attribute nobody knows", made(const("a", 1.0), node("n", "Identity", ["a"], T=FLOAT, what=FLOAT)), ["what"]),
    ("graph: an attribute with an underscore", made(const("a", 1.0), node("n", "Identity", ["a"], T=FLOAT, _what=FLOAT)), []),
    ("graph: no such input", made(A, ADD), ["b"]),
    ("graph: no such output of an input", made(A, B, node("add", "AddV2", ["a:1", "b"], T=FLOAT)), ["a"]),
    ("graph: too few inputs", made(A, node("add", "AddV2", ["a"], T=FLOAT)), []),
    ("graph: too many inputs", made(A, B, node("add", "AddV2", ["a", "b", "a"], T=FLOAT)), []),
    ("graph: inputs of another dtype", made(A, const("b", 1), ADD), []),
    ("graph: inputs of another dtype than the attribute", made(A, B, node("add", "AddV2", ["a", "b"], T=INT32)), []),
    ("graph: two nodes of one name", made(A, A), ["a"]),
    ("graph: a circle", made(node("p", "Identity", ["q"], T=FLOAT), node("q", "Identity", ["p"], T=FLOAT)), []),
    ("graph: a node that takes itself", made(node("p", "Identity", ["p"], T=FLOAT)), []),
    ("graph: a name with a blank", made(const("a b", 1.0)), []),
    ("graph: a name that begins with an underscore", made(const("_a", 1.0)), []),
    ("graph: a node without a name", made(const("", 1.0), run="x:0"), []),
    ("graph: control inputs before others", made(A, B, node("add", "AddV2", ["^a", "a", "b"], T=FLOAT)), []),
    ("graph: a control input that is not there", made(A, node("n", "Identity", ["a", "^nope"], T=FLOAT)), ["nope"]),
    ("graph: an empty input", made(A, node("n", "Identity", [""], T=FLOAT)), []),
    ("graph: a function that is not there", made(A, calling("PartitionedCall", "a", f="nope")), ["nope"]),
    ("graph: a stateful function that is not there", made(A, calling("StatefulPartitionedCall", "a", f="nope")), ["nope"]),
    ("graph: branches that are not there", made(A, calling("If", "a", "a", then_branch="nope", else_branch="nope")), ["nope"]),
    ("graph: stateless branches that are not there",
     made(A, calling("StatelessIf", "a", "a", then_branch="nope", else_branch="nope")), ["nope"]),
    ("graph: a loop's body that is not there", made(A, calling("While", "a", cond="nope", body="nope")), ["nope"]),
    ("graph: beside a node that is not there", made(A, colocated("nope")), ["nope"]),
    ("graph: a device without sense", made(placed("/nonsense")), ["Malformed device specification '/nonsense'"]),
    ("graph: a part of a device that is none", made(placed("/tsk:0")), ["Malformed device specification '/tsk:0'"]),
    ("graph: a job that is not there", made(placed("/job:nope")), ["/job:nope"]),
    ("graph: a task that is not there", made(placed("/job:worker/task:9")), ["task:9"]),
    ("graph: a device of another kind", made(placed("/device:TPU:0")), ["TPU"]),
    ("graph: a device with a number that is not there", made(placed("/device:CPU:9")), ["CPU:9"]),
    ("graph: too new for its consumer", made(A, min_consumer=99999), []),
    ("graph: of an old producer", made(A, producer=1), []),
    ("graph: a constant of another type", made(node("n", "Const", dtype=INT32, value=tf.AttrValue(tensor=tf.make_tensor_proto(1.0)))), []),
    ("graph: a constant with too few bytes", made(node("n", "Const", dtype=FLOAT, value=tf.AttrValue(tensor=SHORT))), []),
    ("graph: shapes that do not go together", made(const("p", np.ones([2, 3], np.float32)), const("q", np.ones([2, 3], np.float32)),
                                                   node("n", "MatMul", ["p", "q"], T=FLOAT)), []),
]


def extended(first, more, version=None):
    return lambda c: c.create(raw(*first)).extend(raw(*more), version)


EXTENDED = [
    ("extend: a name that is there", extended([A], [A]), ["a"]),
    ("extend: another node of a name that is there", extended([A], [const("a", 2.0)]), ["a"]),
    ("extend: another version", extended([A], [B], 77), []),
    ("extend: no such op", extended([A], [node("n", "NoSuchOp")]), ["NoSuchOp"]),
    ("extend: no such input", extended([A], [ADD]), ["b"]),
    ("extend: what was there before is an input", extended([A, B], [ADD]), []),
    ("extend: a missing attribute", extended([A], [node("n", "Placeholder")]), ["dtype"]),
]


# ---- handles ----

def unknown(c):
    return Session(c, "0123456789abcdef")


def gone(c):
    s = c.create(raw(A))
    s.close()
    return s


def twice(c):
    gone(c).close()


def list_devices(handle):
    return lambda c: c.call("ListDevices", (1, handle))


SESSIONS = [
    ("session: run without one", lambda c: unknown(c).run("a:0"), ["not found"]),
    ("session: run without a handle", lambda c: Session(c, "").run("a:0"), []),
    ("session: extend without one", lambda c: unknown(c).extend(raw(A)), ["not found"]),
    ("session: close without one", lambda c: unknown(c).close(), ["not found"]),
    ("session: partial run without one", lambda c: unknown(c).setup(fetch="a:0"), ["not found"]),
    ("session: a callable without one", lambda c: unknown(c).make(fetch="a:0"), ["not found"]),
    ("session: calling without one", lambda c: unknown(c).called(0), ["not found"]),
    ("session: releasing without one", lambda c: unknown(c).release(0), ["not found"]),
    ("session: devices without one", list_devices("0123456789abcdef"), ["not found"]),
    ("session: run after closing", lambda c: gone(c).run("a:0"), ["not found"]),
    ("session: closed twice", twice, ["not found"]),
    ("session: a name of a target that is another", lambda c: c.create(raw(A), device_filters=["/job:nope"]).run("a:0"), []),
]


def partial(setup, *runs):
    def fn(c):
        s = c.create(SMALL)
        h = s.setup(**setup)
        for r in runs:
            s.run(partial=h, **r)
    return fn


XZ = {"feed": ["x:0", "free:0"], "fetch": ["y:0", "z:0"]}
PARTIAL = [
    ("partial: set up with no such fetch", partial({"fetch": ["nope:0"]}), ["nope"]),
    ("partial: set up with no such target", partial({"target": ["nope"]}), ["nope"]),
    ("partial: a feed that was not set up", partial(XZ, {"feed": {"n:0": N(1)}}), ["n:0"]),
    ("partial: a fetch that was not set up", partial(XZ, {"fetch": "c:0"}), ["c:0"]),
    ("partial: fed twice", partial(XZ, {"feed": {"x:0": X}}, {"feed": {"x:0": X}}), ["x:0"]),
    ("partial: fetched twice", partial(XZ, {"feed": {"x:0": X}, "fetch": "y:0"}, {"fetch": "y:0"}), ["y:0"]),
    ("partial: fetched before it is fed", partial(XZ, {"feed": {"x:0": X}, "fetch": "z:0"}), ["can't be computed"]),
    ("partial: a dead tensor", partial({"fetch": ["dead:0"]}, {"fetch": "dead:0"}), []),
    ("partial: fed with another dtype", partial(XZ, {"feed": {"x:0": X.astype(np.int32)}, "fetch": "y:0"}), []),
    ("partial: after its end", partial(XZ, {"feed": {"x:0": X, "free:0": ONE}, "fetch": ["y:0", "z:0"]}, {"fetch": "y:0"}), []),
    ("partial: with a target", partial(XZ, {"target": "c"}), []),
]


def called(make, *feeds):
    def fn(c):
        s = c.create(SMALL)
        s.called(s.make(**make), *feeds)
    return fn


def released_twice(c):
    s = c.create(SMALL)
    h = s.make(fetch="c:0")
    s.release(h)
    s.release(h)


def called_released(c):
    s = c.create(SMALL)
    h = s.make(fetch="c:0")
    s.release(h)
    s.called(h)


CALLABLES = [
    ("callable: one that is not there", lambda c: c.create(SMALL).called(77), []),
    ("callable: released twice", released_twice, []),
    ("callable: called after its release", called_released, []),
    ("callable: no such fetch", called({"fetch": "nope:0"}), ["nope"]),
    ("callable: no such feed", called({"feed": "nope:0", "fetch": "c:0"}, ONE), ["nope"]),
    ("callable: no such target", called({"target": "nope"}), ["nope"]),
    ("callable: another dtype", called({"feed": "x:0", "fetch": "y:0"}, X.astype(np.int32)), []),
    ("callable: a dead tensor", called({"fetch": "dead:0"}), []),
    ("callable: a step that fails", called({"feed": "n:0", "fetch": "div:0"}, N(0)), ["zero"]),
    ("callable: nothing asked for", called({}), []),
]


# ---- workers ----

def worker(method, *fields, code_field=0):
    return lambda c: c.worker(method, *fields, code_field=code_field)


KEY = "/job:worker/replica:0/task:0/device:CPU:0;{};/job:worker/replica:0/task:0/device:CPU:0;edge;0:0"
WORKERS = [
    ("worker: a graph for no session", worker("RegisterGraph", (1, "77"), (2, raw(A)), (6, 1)), ["not found", "77"]),
    ("worker: a step of no graph", worker("RunGraph", (1, "77"), (2, 5), (9, 1), code_field=5), ["77"]),
    ("worker: a step for no session", worker("RunGraph", (8, "77"), (1, "77"), (2, 5), (10, 1)), ["77"]),
    ("worker: forgetting no graph", worker("DeregisterGraph", (1, "77")), ["77"]),
    ("worker: deleting no session", worker("DeleteWorkerSession", (1, "77")), []),
    ("worker: cleaning up no step", worker("CleanupGraph", (1, 77)), []),
    ("worker: a key without sense", worker("RecvTensor", (1, 77), (2, "nonsense")), ["key"]),
    ("worker: another incarnation", worker("RecvTensor", (1, 77), (2, KEY.format("0000000000000077"))), ["incarnation"]),
    ("worker: a key of another device",
     worker("RecvTensor", (1, 77), (2, KEY.format("0000000000000077").replace("task:0", "task:9"))), []),
]


# ---- the comparison ----

def outcome(client, fn):
    try:
        fn(client)
        return "OK", ""
    except Wrong as e:
        return e.code, e.text


def compare(clients, cases):
    bad = []
    for name, fn, words in cases:
        (want, says), (got, said) = (outcome(c, fn) for c in clients)
        missing = [w for w in words if w not in said and got != "OK"]
        strange = [w for w in words if w not in says and want != "OK"]
        if os.environ.get("SHOW"):
            print(f"# {'  ' if want == got else '!!'} {name}: {want} {says[:300]!r} | {got} {said[:300]!r}")
        if want != got or missing or strange:
            bad.append(f"{name}: TensorFlow says {want} {says[:300]!r}, Shoal {got} {said[:300]!r}; missing: "
                       f"{missing or strange}")
    assert not bad, "\n".join(bad)


def python_functions(client):
    """There is no Python in a server: it says so, by name, whatever the function's kind."""
    for op in ("PyFunc", "PyFuncStateless", "EagerPyFunc"):
        n = node("call", op, ["a"], token="pyfunc_0")
        for attr in ("Tin", "Tout"):
            n.attr[attr].list.type.append(FLOAT)
        code, said = outcome(client, made(A, n))
        assert code == "UNIMPLEMENTED" and op in said and "no Python" in said, f"{op}: {code} {said}"


def main():
    with Cluster(worker=["tf"]) as theirs, Cluster(worker=["shoal"]) as ours:
        clients = [Client(c.target("worker")) for c in (theirs, ours)]
        groups = [("steps", STEPS), ("kernels", KERNELS), ("state", STATE), ("graphs", GRAPHS), ("extending", EXTENDED),
                  ("sessions", SESSIONS), ("partial runs", PARTIAL), ("callables", CALLABLES), ("workers", WORKERS)]
        return report([(f"codes: {what}", lambda cases=cases: compare(clients, cases)) for what, cases in groups] +
                      [("codes: functions of Python", lambda: python_functions(clients[1]))])


if __name__ == "__main__":
    sys.exit(main())
