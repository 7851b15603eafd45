"""Control flow and functions: values and gradients of both generations, against TensorFlow.

# needs: tensorflow
Each case builds a forward graph. TensorFlow runs it with its own gradients; Shoal imports the forward part alone, adds
gradients itself, and must give the same numbers.
"""
import os
import sys
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf

import shoal

CASES = {}


def case(f):
    CASES[f.__name__] = f
    return f


def feed(value, name="x"):
    value = np.asarray(value, np.float32)
    return tf.placeholder(tf.float32, value.shape, name), value


@case
def plain():
    x = feed([1., 2., 3.])
    return [x], tf.reduce_sum(tf.sin(x[0]) * x[0])


@case
def used_twice():
    x = feed([[1., 2.], [3., 4.]])
    y = tf.matmul(x[0], x[0]) + x[0] * tf.reduce_sum(x[0])
    return [x], tf.reduce_sum(y * y)


@case
def cond_taken():
    x = feed([1., 2.])
    return [x], tf.reduce_sum(tf.cond(tf.reduce_sum(x[0]) > 0, lambda: x[0] * x[0], lambda: x[0] * 5.))


@case
def cond_not_taken():
    x = feed([-1., -2.])
    return [x], tf.reduce_sum(tf.cond(tf.reduce_sum(x[0]) > 0, lambda: x[0] * x[0], lambda: tf.exp(x[0])))


@case
def cond_one_side_only():
    x, z = feed([1., 2.]), feed([3., 4.], "z")
    y = tf.cond(x[0][0] > 0, lambda: x[0] * 2., lambda: z[0] * 3.)
    return [x, z], tf.reduce_sum(y * y)


@case
def cond_nested():
    x = feed(2.)
    inner = lambda: tf.cond(x[0] > 3, lambda: x[0] * 7., lambda: x[0] * x[0] * x[0])
    return [x], tf.cond(x[0] > 1, inner, lambda: x[0])


@case
def cond_two_outputs():
    x = feed([1., 2.])
    a, b = tf.cond(x[0][0] > 0, lambda: (x[0] * 2., tf.sin(x[0])), lambda: (x[0], x[0]))
    return [x], tf.reduce_sum(a * b)


@case
def switch_case():
    x = feed([1., 2.])
    branches = [lambda: x[0] * 2., lambda: x[0] * x[0], lambda: tf.sin(x[0])]
    return [x], tf.reduce_sum(tf.switch_case(tf.cast(x[0][0], tf.int32), branches))


@case
def while_power():
    x = feed(1.5)
    _, y = tf.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * x[0]), (0, tf.constant(1.)))
    return [x], y


@case
def while_zero_rounds():
    x = feed([1.5, 2.])
    _, y = tf.while_loop(lambda i, a: i < 0, lambda i, a: (i + 1, a * x[0]), (0, x[0] * 3.))
    return [x], tf.reduce_sum(y)


@case
def while_matmul():
    x, w = feed(np.random.RandomState(0).randn(2, 3)), feed(np.random.RandomState(1).randn(3, 3), "w")
    _, y = tf.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, tf.tanh(tf.matmul(a, w[0]) + x[0])), (0, x[0]))
    return [x, w], tf.reduce_sum(y * y)


@case
def while_two_variables():
    x = feed([1., 2.])
    body = lambda i, a, b: (i + 1, a * b, b + tf.sin(a))
    _, a, b = tf.while_loop(lambda i, a, b: i < 3, body, (0, x[0], x[0] * 0.5))
    return [x], tf.reduce_sum(a)


@case
def while_forgets():
    x = feed([1., 2.])
    body = lambda i, a: (i + 1, tf.cast(i, tf.float32) * tf.ones([2]) + x[0] * 0.)
    _, a = tf.while_loop(lambda i, a: i < 3, body, (0, x[0]))
    return [x], tf.reduce_sum(a)


@case
def while_nested():
    x = feed([0.5, 1.1])
    inner = lambda a: tf.while_loop(lambda j, b: j < 3, lambda j, b: (j + 1, b * x[0] + tf.sin(b)), (0, a))[1]
    _, y = tf.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, inner(a) * a), (0, x[0]))
    return [x], tf.reduce_sum(y)


@case
def while_nested_counts():
    x = feed([0.5, 1.1])
    inner = lambda n, a: tf.while_loop(lambda j, b: j < n, lambda j, b: (j + 1, b * b + x[0]), (0, a))[1]
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, inner(i, a) * 0.5), (0, x[0]))
    return [x], tf.reduce_sum(y)


@case
def cond_in_while():
    x = feed([0.5, 1.1])
    step = lambda i, a: tf.cond(tf.equal(i % 2, 0), lambda: a * x[0], lambda: tf.sin(a) + x[0])
    _, y = tf.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, step(i, a)), (0, x[0]))
    return [x], tf.reduce_sum(y)


@case
def cond_in_cond_in_while():
    x = feed([0.5, 1.1])
    deep = lambda i, a: tf.cond(tf.equal(i, 2), lambda: a * a, lambda: a * 3. * x[0])
    step = lambda i, a: tf.cond(tf.equal(i % 2, 0), lambda: deep(i, a), lambda: tf.sin(a) + x[0])
    _, y = tf.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, step(i, a)), (0, x[0]))
    return [x], tf.reduce_sum(y)


@case
def while_in_cond():
    x = feed([0.5, 1.1])
    loop = lambda: tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x[0]), (0, x[0]))[1]
    return [x], tf.reduce_sum(tf.cond(x[0][0] > 0, loop, lambda: x[0] * 2.))


@case
def while_in_cond_not_taken():
    x = feed([-0.5, 1.1])
    loop = lambda: tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x[0]), (0, x[0]))[1]
    return [x], tf.reduce_sum(tf.cond(x[0][0] > 0, loop, lambda: x[0] * 2.))


@case
def while_in_cond_in_while():
    x = feed([0.5, 1.1])
    inner = lambda a: tf.while_loop(lambda j, b: j < 2, lambda j, b: (j + 1, b * x[0]), (0, a))[1]
    step = lambda i, a: tf.cond(i < 2, lambda: inner(a), lambda: tf.sin(a))
    _, y = tf.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, step(i, a)), (0, x[0]))
    return [x], tf.reduce_sum(y)


@case
def while_gather():
    x = feed(np.random.RandomState(0).randn(5, 3))
    row = lambda i: tf.gather(x[0], [i, i + 1])
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a + tf.reduce_sum(row(i) ** 2)), (0, tf.constant(0.)))
    return [x], y


@case
def gather_sparse():
    x = feed(np.random.RandomState(0).randn(5, 3))
    y = tf.gather(x[0], [0, 2, 2]) * 2.
    return [x], tf.reduce_sum(y * y) + tf.reduce_sum(tf.gather(x[0], [1]))


@case
def function_call():
    @tf.function(autograph=False)
    def f(a, b):
        return a * tf.sin(b), a + b
    x = feed([0.5, 1.1])
    p, q = f(x[0], x[0] * 2.)
    return [x], tf.reduce_sum(p * q)


@case
def function_in_function():
    @tf.function(autograph=False)
    def g(a):
        return tf.exp(a) * 2.

    @tf.function(autograph=False)
    def f(a):
        return g(a) + g(a * 0.5)
    x = feed([0.5, 1.1])
    return [x], tf.reduce_sum(f(x[0]))


@case
def function_in_while():
    @tf.function(autograph=False)
    def f(a):
        return a * tf.sin(a) + 1.
    x = feed([0.5, 1.1])
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, f(a) * x[0]), (0, x[0]))
    return [x], tf.reduce_sum(y)


@case
def defun():
    from tensorflow.python.framework import function

    @function.Defun(tf.float32, tf.float32)
    def f(a, b):
        return a * b + tf.sin(a)
    x = feed([0.5, 1.1])
    return [x], tf.reduce_sum(f(x[0], x[0] * 2.))


@case
def tensor_array():
    x = feed([0.5, 1.1, 2.])
    ta = tf.TensorArray(tf.float32, 3).unstack(x[0])
    out = tf.TensorArray(tf.float32, 3)
    _, out = tf.while_loop(lambda i, o: i < 3, lambda i, o: (i + 1, o.write(i, ta.read(i) ** 2)), (0, out))
    return [x], tf.reduce_sum(out.stack() * x[0])


def variable(value):
    """As an x: the handle, whose gradient is the variable's."""
    v = tf.get_variable("v", initializer=tf.constant(np.asarray(value, np.float32)), use_resource=True)
    return v, (v.handle, None)


@case
def unknown_shapes():
    x = tf.placeholder(tf.float32, None, "x"), np.array([[1., 2.], [3., 4.]], np.float32)
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x[0] + tf.reduce_sum(a)), (0, x[0][:1]),
                         shape_invariants=(tf.TensorShape([]), tf.TensorShape(None)))
    return [x], tf.reduce_sum(y)


@case
def variable_plain():
    v, handle = variable([1., 2.])
    return [handle], tf.reduce_sum(v * v)


@case
def variable_in_while():
    v, handle = variable([0.5, 1.5])
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * v + tf.sin(v)), (0, tf.constant([1., 2.])))
    return [handle], tf.reduce_sum(y)


@case
def variable_in_cond():
    v, handle = variable([0.5, 1.5])
    x = feed(1.)
    return [handle, x], tf.reduce_sum(tf.cond(x[0] > 0, lambda: v * v * x[0], lambda: v * 3.))


@case
def variable_in_other_branch():
    v, handle = variable([0.5, 1.5])
    x = feed(-1.)
    return [handle, x], tf.reduce_sum(tf.cond(x[0] > 0, lambda: v * v * x[0], lambda: tf.ones([2]) * x[0]))


@case
def rows_of_variable_in_while():
    v, handle = variable(np.random.RandomState(0).randn(6, 3))
    row = lambda i: tf.nn.embedding_lookup(v, [i, i * 2])
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a + tf.reduce_sum(row(i) ** 2)), (0, tf.constant(0.)))
    return [handle], y


@case
def variable_in_nested_while():
    v, handle = variable([0.5, 1.5])
    inner = lambda a: tf.while_loop(lambda j, b: j < 2, lambda j, b: (j + 1, b * v), (0, a))[1]
    _, y = tf.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, tf.sin(inner(a)) + v), (0, tf.constant([1., 2.])))
    return [handle], tf.reduce_sum(y)


@case
def stopped_in_while():
    x = feed([0.5, 1.1])
    body = lambda i, a: (i + 1, a * tf.stop_gradient(a) + x[0])
    _, y = tf.while_loop(lambda i, a: i < 3, body, (0, x[0]))
    return [x], tf.reduce_sum(y)


@case
def two_results_of_while():
    x = feed([0.5, 1.1])
    body = lambda i, a, b: (i + 1, a * x[0], b + a)
    _, a, b = tf.while_loop(lambda i, a, b: i < 3, body, (0, x[0], tf.zeros([2])))
    return [x], tf.reduce_sum(a * b)


@case
def swapped_in_while():
    x, z = feed([0.5, 1.1]), feed([2., 3.], "z")
    _, a, b = tf.while_loop(lambda i, a, b: i < 3, lambda i, a, b: (i + 1, b, a * 2.), (0, x[0], z[0]))
    return [x, z], tf.reduce_sum(a * 3. + b)


@case
def case_in_while():
    x = feed([0.5, 1.1])
    pick = lambda i, a: tf.switch_case(i, [lambda: a * x[0], lambda: tf.sin(a), lambda: a + x[0] * x[0]])
    _, y = tf.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, pick(i, a)), (0, x[0]))
    return [x], tf.reduce_sum(y)


@case
def scan():
    x = feed([[0.5, 1.1], [1., 2.], [3., 4.]])
    return [x], tf.reduce_sum(tf.scan(lambda a, b: a * b + tf.sin(a), x[0]) ** 2)


def values(build, v2):
    (tf.enable_control_flow_v2 if v2 else tf.disable_control_flow_v2)()
    g = tf.Graph()
    with g.as_default():
        xs, y = build()
        names = [t.name for t, _ in xs]
        feeds = {t.name: v for t, v in xs if v is not None}
        init = tf.global_variables_initializer()
        forward = g.as_graph_def().SerializeToString()
        grads = [tf.convert_to_tensor(d) for d in tf.gradients(y, [t for t, _ in xs])]
        with tf.Session(graph=g) as s:
            s.run(init)
            theirs = s.run([y] + grads, feeds)
    ours_graph = shoal.Graph(forward)
    found = ours_graph.gradients([y.name], names)
    fetches, dense = [y.name], []
    for f in found:
        dense.append(isinstance(f, tuple))
        fetches += list(f) if isinstance(f, tuple) else [f]
    with shoal.Session(ours_graph) as s:
        s.run(targets=[init.name])
        raw = s.run(fetches, feeds, timeout_ms=10000)
    ours, at = [raw[0]], 1
    for sparse in dense:
        if sparse:
            total = np.zeros(raw[at + 2], np.float32)
            np.add.at(total, raw[at + 1], raw[at])
            ours.append(total)
            at += 3
        else:
            ours.append(raw[at])
            at += 1
    return ours, theirs


def main():
    tf.disable_eager_execution()
    wanted = sys.argv[1:] or list(CASES)
    failed = 0
    for name in wanted:
        for v2 in (False, True):
            label = f"{name} {'functional' if v2 else 'frames'}"
            try:
                ours, theirs = values(CASES[name], v2)
                for a, b in zip(ours, theirs):
                    np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
                print(f"ok - {label}")
            except Exception as e:
                failed += 1
                print(f"not ok - {label}: {type(e).__name__}: {str(e).strip()[:600]}")
                if os.environ.get("TRACE"):
                    traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
