"""Streaming metrics beside tf.compat.v1.metrics: the same numbers after every batch."""
# needs: tensorflow
import ctypes as C
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from cases import np, tf
import shoal
import train_api as api
from shoal import I, Out, P, S
from train_api import B, G, L, Model

RNG = np.random.default_rng(11)
tfm = tf.compat.v1.metrics


class Metric(C.Structure):
    _fields_ = [("value", Out), ("update", P)]


class Auc(C.Structure):
    _fields_ = [("size", C.c_size_t), ("thresholds", L), ("precision_recall", B), ("sum", I)]


TWO = ("accuracy", "precision", "recall", "mean_squared_error", "root_mean_squared_error", "mean_absolute_error")
api.SIGNATURES.update({f"shoal_metric_{n}": (Metric, G, Out, Out, Out, S) for n in TWO})
api.SIGNATURES.update({"shoal_metric_mean": (Metric, G, Out, Out, S), "shoal_metric_auc": (Metric, G, Out, Out, Out, S, P),
                       "shoal_metric_recall_at_k": (Metric, G, Out, Out, L, Out, S),
                       "shoal_metric_precision_at_k": (Metric, G, Out, Out, L, Out, S)})


def run_shoal(build, batches):
    """build(m, inputs) -> Metric; batches: a list of lists of arrays, None: there is none."""
    m = Model()
    ins = [Out() if a is None else m.placeholder(f"in{i}", a.dtype, (None,) + a.shape[1:]) if a.ndim else
           m.placeholder(f"in{i}", a.dtype, ()) for i, a in enumerate(batches[0])]
    metric = build(m, ins)
    value, update = m.name(metric.value), m.op_name(metric.update)
    init, got = m.op_name(m.call("shoal_initialize_local")), []
    with shoal.Session(m) as s:
        s.run(targets=[init])
        for batch in batches:
            s.run(targets=[update], feeds={m.name(i): a for i, a in zip(ins, batch) if a is not None})
            got.append(s.run([value])[0])
    return got


def run_tf(build, batches):
    with tf.Graph().as_default(), tf.Session() as s:
        ins = [None if a is None else tf.placeholder(a.dtype, (None,) + a.shape[1:] if a.ndim else ()) for a in batches[0]]
        value, update = build(*ins)
        s.run(tf.local_variables_initializer())
        got = []
        for batch in batches:
            s.run(update, {i: a for i, a in zip(ins, batch) if a is not None})
            got.append(s.run(value))
        return got


def check(ours, theirs, batches, tol=1e-6):
    np.testing.assert_allclose(run_shoal(ours, batches), run_tf(theirs, batches), rtol=tol, atol=tol)


def batches_of(labels, predictions, weights=None):
    """Three batches of other sizes; each argument makes an array for a number of rows."""
    return [[labels(n), predictions(n), None if weights is None else weights(n)] for n in (5, 8, 1)]


def ints(hi, *more):
    return lambda n: RNG.integers(0, hi, (n,) + more).astype(np.int64)


def floats(*more):
    return lambda n: RNG.random((n,) + more).astype(np.float32)


def test_two_arguments():
    for name in TWO:
        real = "error" in name
        for shape in ((), (1,)):
            for weights in (None, floats(*shape), floats(1), lambda n: np.float32(0.5)):
                b = batches_of(floats(*shape) if real else ints(2, *shape), floats(*shape) if real else ints(2, *shape), weights)
                check(lambda m, i: m.call(f"shoal_metric_{name}", i[0], i[1], i[2], None), getattr(tfm, name), b)


def test_nothing_found():
    zero = lambda n: np.zeros(n, np.int64)
    for name in ("precision", "recall"):
        check(lambda m, i: m.call(f"shoal_metric_{name}", *i, None), getattr(tfm, name), batches_of(zero, zero))


def test_mean():
    for shape, weights in (((), None), ((3,), None), ((3,), floats(3)), ((3,), floats(1)), ((), floats())):
        b = [[floats(*shape)(n), None if weights is None else weights(n)] for n in (4, 2)]
        check(lambda m, i: m.call("shoal_metric_mean", i[0], i[1], None), tfm.mean, b)


def test_auc():
    sums = ("trapezoidal", "careful_interpolation", "minoring", "majoring")
    for pr in (False, True):
        for k, how in enumerate(sums):
            for weights in (None, floats()):
                for n in (0, 37):
                    o = Auc(C.sizeof(Auc), n, pr, k)
                    check(lambda m, i: m.call("shoal_metric_auc", i[0], i[1], i[2], None, C.byref(o)),
                          lambda l, p, w: tfm.auc(l, p, w, num_thresholds=n or 200, curve="PR" if pr else "ROC",
                                                  summation_method=how),
                          batches_of(ints(2), floats(), weights), 2e-6)


def test_auc_of_no_chances():
    try:
        run_shoal(lambda m, i: m.call("shoal_metric_auc", *i, None, None), batches_of(ints(2), lambda n: floats()(n) + 1))
    except shoal.Error as e:
        assert e.code == 3 and "predictions must be in [0, 1]" in e.message, e
    else:
        raise AssertionError("no error")


def test_at_k():
    for k in (1, 3):
        for labels in (ints(7, 1), ints(7)):
            for weights in (None, floats()):
                for name in ("recall_at_k", "precision_at_k"):
                    b = batches_of(labels, floats(7), weights)
                    check(lambda m, i: m.call(f"shoal_metric_{name}", i[0], i[1], k, i[2], None),
                          lambda l, p, w: getattr(tfm, name)(l if l.shape.ndims == 2 else l[:, None], p, k, weights=w), b)


if __name__ == "__main__":
    tap.main(globals())
