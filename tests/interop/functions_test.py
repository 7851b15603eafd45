"""Functions that are defined through the C API, run by TensorFlow: the GraphDef with its library in a session of
TensorFlow's own, and on a TensorFlow server whose client is Shoal. The same values as in a session of Shoal's.

# needs: tensorflow
"""
import ctypes as C
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf

import shoal
import tap
from shoal import I, P, S, Out

BUILD = os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build"))
FLOAT, INT32, INT64, BOOL = 1, 3, 9, 10


class Dims(C.Structure):
    _fields_ = [("rank", C.c_int), ("at", C.POINTER(C.c_int64))]


OUTS = C.POINTER(Out)
shoal.SIGNATURES.update({
    "shoal_function_begin": (P, P, S), "shoal_function_input": (Out, P, I, Dims, S),
    "shoal_function_output": (None, P, Out, S), "shoal_function_end": (P, P), "shoal_function_name": (S, P),
    "shoal_function_set_gradient": (None, P, P, P), "shoal_call": (P, P, P, OUTS, I, OUTS, I),
    "shoal_call_if": (P, P, Out, P, P, OUTS, I, OUTS, I), "shoal_call_case": (P, P, Out, C.POINTER(P), I, OUTS, I, OUTS, I),
    "shoal_call_while": (P, P, P, P, OUTS, I, OUTS), "shoal_placeholder": (Out, P, I, Dims, S),
    "shoal_constant_float": (Out, P, C.c_float), "shoal_constant_int": (Out, P, C.c_int32),
    "shoal_build": (P, P, S, S), "shoal_build_input": (None, P, Out), "shoal_build_end_out": (Out, P),
    "shoal_build_type": (None, P, S, I), "shoal_build_func": (None, P, S, S),
    "shoal_build_types": (None, P, S, C.POINTER(C.c_int), I), "shoal_build_inputs": (None, P, OUTS, I)})
SCALAR, VECTOR = Dims(0, None), Dims(1, (C.c_int64 * 1)(-1))


def outs(*o):
    return (Out * max(len(o), 1))(*o)


class Builder:
    def __init__(self):
        self.graph = shoal.Graph()
        self.g, self.lib = self.graph.handle, shoal.library()

    def op(self, g, kind, *inputs, **types):
        b = self.lib.shoal_build(g, kind.encode(), None)
        for i in inputs:
            self.lib.shoal_build_input(b, i)
        for name, t in types.items():
            self.lib.shoal_build_type(b, name.encode(), t)
        return self.lib.shoal_build_end_out(b)

    def placeholder(self, name, dtype=FLOAT, dims=VECTOR):
        return self.lib.shoal_placeholder(self.g, dtype, dims, name.encode())

    def function(self, name, body, types=(FLOAT,), dims=VECTOR, around=None):
        """body(f, *inputs) gives the outputs."""
        f = self.lib.shoal_function_begin(around or self.g, name.encode())
        results = body(f, *[self.lib.shoal_function_input(f, t, dims, b"In.Put") for t in types])
        for r in results if isinstance(results, (tuple, list)) else [results]:
            self.lib.shoal_function_output(f, r, None)
        return self.lib.shoal_function_end(f)

    def call(self, f, *inputs, n_out=1, g=None):
        result = (Out * n_out)()
        self.lib.shoal_call(g or self.g, f, outs(*inputs), len(inputs), result, n_out)
        return result[0] if n_out == 1 else list(result)


def compare(b, fetches, feeds):
    """All of it, by Shoal, by TensorFlow, and on a TensorFlow server whose client is Shoal."""
    b.graph.check()
    names = [b.graph.name(o) for o in fetches]
    feeds = {f"{k}:0": np.asarray(v) for k, v in feeds.items()}
    with shoal.Session(b.graph) as s:
        ours = s.run(names, feeds)
    graph_def = tf.GraphDef.FromString(b.graph.export())
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        with tf.Session(graph=graph) as s:
            theirs = s.run(names, feeds)
    for name, x, y in zip(names, ours, theirs):
        np.testing.assert_allclose(x, y, rtol=1e-6, err_msg=name)
    server = tf.train.Server.create_local_server()
    with shoal.Session(b.graph, target=server.target) as s:
        for name, x, y in zip(names, s.run(names, feeds), theirs):
            np.testing.assert_allclose(x, y, rtol=1e-6, err_msg=name)
    return ours


def test_call_with_captures():
    b = Builder()
    x, w = b.placeholder("x"), b.placeholder("w")

    def outer(f, a):
        inner = b.function("inner", lambda h, c: b.op(h, "Mul", c, w), around=f)
        y = b.call(inner, a, g=f)
        return b.op(f, "AddV2", y, x), a
    y = b.call(b.function("outer", outer), x, n_out=2)
    grads = b.graph.gradients([b.graph.name(y[0])], ["x:0", "w:0"])
    again = b.call(b.function("twice", lambda f, a: b.op(f, "AddV2", a, a)), y[0])  # a call that is left in the graph
    values = compare(b, [y[0], y[1], again, *map(b.graph.out, grads)], {"x": np.float32([1, 2]), "w": np.float32([3, 4])})
    np.testing.assert_allclose(values[0], [4, 10])
    np.testing.assert_allclose(values[3], [4, 5])


def test_several_outputs_of_one_op():
    """Outputs that are parts of lists, and of ops with several: "split:output:1", "Unique:idx:0"."""
    b = Builder()
    x = b.placeholder("x")

    def parts(f, a):
        top = b.op(f, "Unique", a)
        both = b.op(f, "IdentityN", a, b.op(f, "Neg", a))
        return Out(top.node, 1), Out(both.node, 1), top
    y = b.call(b.function("parts", parts), x, n_out=3)
    values = compare(b, y, {"x": np.float32([5, 6, 5])})
    np.testing.assert_array_equal(values[0], [0, 1, 0])
    np.testing.assert_array_equal(values[1], [-5, -6, -5])


def test_if_and_case():
    for taken in (True, False):
        b = Builder()
        x, p, q = b.placeholder("x"), b.placeholder("p", BOOL, SCALAR), b.placeholder("q", INT32, SCALAR)
        v, w = b.placeholder("v"), b.placeholder("w")
        fs = [b.function("by_v", lambda f, a: b.op(f, "Mul", a, v)), b.function("by_w", lambda f, a: b.op(f, "Sub", a, w))]
        y = (Out * 2)()
        b.lib.shoal_call_if(b.g, p, *fs, outs(x), 1, y, 1)
        two = Out()
        b.lib.shoal_call_case(b.g, q, (P * 2)(*fs), 2, outs(x), 1, C.pointer(two), 1)
        feeds = {"x": np.float32([1, 2]), "p": taken, "q": np.int32(not taken), "v": np.float32([3, 4]), "w": np.float32([5, 5])}
        values = compare(b, [y[0], two], feeds)
        for v in values:
            np.testing.assert_allclose(v, [3, 8] if taken else [-4, -3])


def test_while():
    b = Builder()
    x, w = b.placeholder("x", dims=SCALAR), b.placeholder("w", dims=SCALAR)
    limit = b.lib.shoal_constant_float(b.g, 50)
    cond = b.function("below", lambda f, a: b.op(f, "Less", a, limit), dims=SCALAR)
    body = b.function("times", lambda f, a: b.op(f, "Mul", a, w), dims=SCALAR)
    y = Out()
    b.lib.shoal_call_while(b.g, cond, body, outs(x), 1, C.pointer(y))
    assert compare(b, [y], {"x": np.float32(3), "w": np.float32(2)}) == [96]


def test_own_gradient():
    """TensorFlow's SymbolicGradient finds it in the library; ours is a call of it."""
    b = Builder()
    x = b.placeholder("x")
    square = b.function("square", lambda f, a: b.op(f, "Mul", a, a))
    other = b.function("other", lambda f, a, dy: b.op(f, "Neg", dy), types=(FLOAT, FLOAT))
    b.lib.shoal_function_set_gradient(b.g, square, other)
    y = b.call(square, x)
    dx, = b.graph.gradients([b.graph.name(y)], ["x:0"])
    s = b.lib.shoal_build(b.g, b"SymbolicGradient", None)
    b.lib.shoal_build_inputs(s, outs(x, x), 2)
    for name, n in ((b"Tin", 2), (b"Tout", 1)):
        b.lib.shoal_build_types(s, name, (C.c_int * 2)(FLOAT, FLOAT), n)
    b.lib.shoal_build_func(s, b"f", b"square")
    symbolic = b.lib.shoal_build_end_out(s)
    values = compare(b, [y, b.graph.out(dx), symbolic], {"x": np.float32([3, 4])})
    np.testing.assert_allclose(values[1], [-1, -1])
    np.testing.assert_allclose(values[2], [-3, -4])


EXPECTED = """\
y = 3 * 5 = 15, its gradients are 1 (bounded) and 3
the square root of 2 is about 1.4142
even squares and 100: 100 104 116 136
"""


def test_example():
    """The example's graph in TensorFlow, its dataset too; the example on a TensorFlow server."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph.pb")
        program = os.path.join(BUILD, "examples", "functions")
        assert subprocess.run([program, f"--graph={path}"], capture_output=True, text=True, check=True).stdout == EXPECTED
        with open(path, "rb") as f:
            graph_def = tf.GraphDef.FromString(f.read())
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as s:
        tf.import_graph_def(graph_def, name="")
        names = [f"results/Identity{k}:0" for k in ("", "_1", "_2", "_3")]
        np.testing.assert_allclose(s.run(names), [15, 1, 3, 2 ** 0.5], rtol=1e-4)
        s.run("MakeIterator")
        assert [s.run("IteratorGetNext:0") for _ in range(4)] == [100, 104, 116, 136]
        try:
            s.run("IteratorGetNext:0")
            raise AssertionError("no end")
        except tf.errors.OutOfRangeError:
            pass
    server = tf.train.Server.create_local_server()
    p = subprocess.run([program, f"--master={server.target}"], capture_output=True, text=True, check=False)
    assert p.stdout == EXPECTED, p.stdout + p.stderr


if __name__ == "__main__":
    tap.main(globals())
