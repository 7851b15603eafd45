"""Reductions, scans, histograms, sequences, broadcasting ops."""
from cases import *

SHAPES = [((2, 3, 4), ([], [0], [1], [-1], [0, 2], [1, 2], [2, 0, 1])), ((), ([],)), ((0, 3), ([0], [1], [0, 1])),
          ((5, 1, 3), ([1], [0, 1])), ((3, 2, 4, 5), ([0, 2], [1, 3], [1, 2])), ((1, 1), ([0], [0, 1]))]


def axes(a, t=np.int32):
    return const(np.array(a, t))


def reductions(name, dtypes, grad=True, fd=True, lo=-2, hi=2, tol=None):
    for shape, lists in SHAPES:
        for a in lists:
            for keep in (False, True):
                op(name, {"input": R(*shape, lo=lo, hi=hi), "axis": axes(a)}, {"keep_dims": keep}, dtypes=dtypes, grad=grad,
                   fd=fd, tol=tol, name=f"axes {a} keep {keep}")


reductions("Sum", NUMBERS)
reductions("Mean", NUMBERS)
reductions("Prod", NUMBERS, lo=0.5, hi=2)
reductions("Max", REALS, fd=False)
reductions("Min", REALS, fd=False)
reductions("EuclideanNorm", [t for t in NUMBERS if t.size > 1], lo=0.5, hi=6)
for name in ("All", "Any"):
    for shape, lists in SHAPES:
        for a in lists:
            op(name, {"input": R(*shape, dtype=tf.bool), "axis": axes(a)}, dtypes=[tf.bool], name=f"axes {a}")
for name in ("Sum", "Mean", "Max", "Min", "Prod", "EuclideanNorm"):
    op(name, {"input": R(2, 3), "axis": axes(1, np.int64)}, dtypes=[tf.float32], grad=name not in ("Max", "Min", "Prod"))
    op(name, {"input": R(2, 3), "axis": np.array([1], np.int32)}, dtypes=[tf.float32, tf.float64], grad=True, fd=False, known=False)
    op(name, {"input": R(2), "axis": np.array([1], np.int32)}, error="INVALID_ARGUMENT", message="Invalid reduction dimension")
    op(name, {"input": R(2), "axis": np.array([0, 0], np.int32)}, error="INVALID_ARGUMENT", message="duplicate")
op("Prod", {"input": V([[1, 0, 3], [0, 0, 2]]), "axis": axes([1])}, dtypes=[tf.float32, tf.float64], grad=True)
op("Max", {"input": V([[1, np.nan, 3], [2, 2, 2]]), "axis": axes([1])}, dtypes=FLOATS)
op("Max", {"input": V([[1, 3, 3], [2, 2, 2]]), "axis": axes([1])}, dtypes=[tf.float32, tf.float64], grad=True, fd=False)
op("Min", {"input": V([[1, np.nan, 3], [-np.inf, 2, 2]]), "axis": axes([0])}, dtypes=FLOATS)
for shape, a in (((100000,), [0]), ((1000, 300), [0]), ((1000, 300), [1]), ((20000, 10), [0]), ((10, 20000), [1]),
                 ((30, 40, 50), [0, 2]), ((3, 5000, 7), [1]), ((400, 300), [0, 1])):
    for name in ("Sum", "Mean", "Max"):
        op(name, {"input": R(*shape), "axis": axes(a)}, dtypes=[tf.float32, tf.float64, tf.int32], name=f"large {a}")
for s in ((), (5,), (3, 4), (0,), (300, 300)):
    op("L2Loss", {"t": R(*s)}, dtypes=FLOATS, grad=s != (300, 300))

# ---- where the extreme is ----
for name in ("ArgMax", "ArgMin"):
    for shape in ((5,), (3, 4), (2, 3, 4), (2, 300, 3)):
        for d in range(-1, len(shape)):
            for out in (tf.int32, tf.int64):
                op(name, {"input": R(*shape), "dimension": const(d)}, {"output_type": out}, dtypes=REALS + [tf.bool],
                   name=f"along {d} {out.name}")
    op(name, {"input": V([[np.nan, 1, 2], [3, np.nan, 3]]), "dimension": const(1)}, dtypes=[tf.float32, tf.float64])
    op(name, {"input": V([1, 2, 2, 1]), "dimension": const(0)}, dtypes=REALS)
    op(name, {"input": R(0, 3), "dimension": const(1)})
    op(name, {"input": R(3, 0), "dimension": 1}, error="INVALID_ARGUMENT", message="Reduction axis 1 is empty in shape .3,0.")
    op(name, {"input": R(3), "dimension": 1}, error="INVALID_ARGUMENT", message="Expected dimension in the range")
# An int16 dimension is read as an int32 by TensorFlow, past its end: only the output types are compared.
for out in (tf.int16, tf.uint16):
    op("ArgMax", {"input": R(3, 5), "dimension": const(1)}, {"output_type": out}, name=out.name)

# ---- scans ----
for name in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
    types = FLOATS if name == "CumulativeLogsumexp" else NUMBERS
    for shape in ((5,), (3, 4), (2, 3, 70), (0, 2), (2, 0)):
        for d in range(-1, len(shape)):
            for exclusive in (False, True):
                for reverse in (False, True):
                    op(name, {"x": R(*shape, lo=0.5, hi=2), "axis": const(d)}, {"exclusive": exclusive, "reverse": reverse},
                       dtypes=types if shape == (3, 4) else [tf.float32, tf.float64],
                       grad=0 not in shape and not (exclusive and name == "CumulativeLogsumexp"), tol=2e-2 if shape == (3, 4) else 1e-4,
                       name=f"along {d} {exclusive} {reverse}")
    op(name, {"x": R(3), "axis": 1}, error="INVALID_ARGUMENT", message="Expected scan axis in the range")

# ---- counts ----
IDS = R(20, lo=0, hi=8, dtype=tf.int32)
for t in (tf.int32, tf.int64, tf.float32, tf.float64):
    op("Bincount", {"arr": IDS, "size": const(6), "weights": R(20)}, dtypes=[t])
    op("Bincount", {"arr": IDS, "size": const(6), "weights": R(0)}, dtypes=[t])
    for i in (tf.int32, tf.int64):
        ids = lambda *s: R(*s, lo=0, hi=8, dtype=i)
        size = const(np.array(6, i.as_numpy_dtype))
        op("DenseBincount", {"input": ids(20), "size": size, "weights": R(20)}, dtypes=[t], name=i.name)
        op("DenseBincount", {"input": ids(3, 20), "size": size, "weights": R(3, 20)}, dtypes=[t], name=i.name)
        op("DenseBincount", {"input": ids(3, 20), "size": size, "weights": R(0)}, {"binary_output": True}, dtypes=[t], name=i.name)
    for out in (tf.int32, tf.int64):
        op("HistogramFixedWidth", {"values": R(50, lo=-10, hi=20), "value_range": V([0, 10]), "nbins": const(7)}, {"dtype": out}, dtypes=[t])
op("Bincount", {"arr": IDS, "size": np.array([6], np.int32), "weights": R(0)}, error="INVALID_ARGUMENT", message="must be rank 0")
op("Bincount", {"arr": np.array([1, -1], np.int32), "size": 3, "weights": R(0)}, error="INVALID_ARGUMENT", message="non-negative")
op("Bincount", {"arr": np.array([1, 1], np.int32), "size": -3, "weights": R(0)}, error="INVALID_ARGUMENT", message="must be non-negative")
op("HistogramFixedWidth", {"values": R(5), "value_range": V([1, 1]), "nbins": 3}, error="INVALID_ARGUMENT", message="value_range should satisfy")
op("HistogramFixedWidth", {"values": R(5), "value_range": V([1, 2]), "nbins": 0}, error="INVALID_ARGUMENT", message="nbins should be a positive")
op("HistogramFixedWidth", {"values": V([np.nan]), "value_range": V([1, 2]), "nbins": 2}, error="INVALID_ARGUMENT", message="NaN")

# ---- sequences ----
for a, b, d in ((0, 10, 1), (3, 20, 4), (10, 0, -3), (5, 5, 1), (0, 7, 7), (-8, 8, 5)):
    op("Range", {"start": V(a), "limit": V(b), "delta": V(d)}, dtypes=[tf.int32, tf.int64, tf.float32, tf.float64], name=f"{a} {b} {d}")
    op("Range", {"start": const(V(a)), "limit": const(V(b)), "delta": const(V(d))}, dtypes=[tf.int32, tf.int64], name=f"const {a} {b} {d}")
op("Range", {"start": V(0), "limit": V(1), "delta": V(0.1)}, dtypes=[tf.float32, tf.float64])
op("Range", {"start": V(0), "limit": V(100), "delta": V(0.3)}, dtypes=[tf.float32, tf.float64])
op("Range", {"start": V(0), "limit": V(5), "delta": V(0)}, dtypes=[tf.int32, tf.float32], error="INVALID_ARGUMENT", message="Requires delta != 0: 0")
op("Range", {"start": V(5), "limit": V(0), "delta": V(1)}, dtypes=[tf.int32, tf.float32], error="INVALID_ARGUMENT", message="Requires start <= limit when delta > 0: 5/0")
op("Range", {"start": V(0), "limit": V(5), "delta": V(-1)}, dtypes=[tf.int32, tf.float32], error="INVALID_ARGUMENT", message="Requires start >= limit when delta < 0: 0/5")
for n in (1, 2, 7, 100):
    op("LinSpace", {"start": V(0.1), "stop": V(7.3), "num": const(n)}, dtypes=[tf.float32, tf.float64], name=str(n))
op("LinSpace", {"start": V(0), "stop": V(1), "num": 0}, error="INVALID_ARGUMENT", message="Requires num > 0: 0")

# ---- broadcasting ----
for s, t in (((3,), (2, 3)), ((2, 1), (2, 3)), ((), (4, 2)), ((2, 3), (2, 3)), ((1,), (0,)), ((1, 3, 1), (5, 2, 3, 4)), ((), ())):
    for i in (np.int32, np.int64):
        op("BroadcastTo", {"input": R(*s), "shape": const(np.array(t, i))}, dtypes=ALL, grad=True)
op("BroadcastTo", {"input": R(2), "shape": np.array([3, 3], np.int32)}, error="INVALID_ARGUMENT", message="Incompatible shapes")
op("BroadcastTo", {"input": R(2, 2), "shape": np.array([2], np.int32)}, error="INVALID_ARGUMENT", message="must be no greater than rank")
for a, b in (([2, 3], [3]), ([], [2]), ([2, 1], [1, 5]), ([0, 1], [1])):
    for i in (np.int32, np.int64):
        op("BroadcastArgs", {"s0": np.array(a, i), "s1": np.array(b, i)}, name=f"{a} {b} {i.__name__}")
for a, b in (([2, 3], [3]), ([], [1, 1]), ([2, 3, 1], [1, 1]), ([0, 3], [3]), ([2, 1, 1], [2, 1, 1]), ([5, 1, 2], [1, 1, 2]), ([3, 1], [1, 4])):
    for i in (np.int32, np.int64):
        op("BroadcastGradientArgs", {"s0": np.array(a, i), "s1": np.array(b, i)}, name=f"{a} {b} {i.__name__}")
op("BroadcastGradientArgs", {"s0": np.array([2, 3], np.int32), "s1": np.array([3, 3], np.int32)}, error="INVALID_ARGUMENT", message="Incompatible shapes")
op("Cross", {"a": R(3), "b": R(3)}, dtypes=REALS, grad=True)
op("Cross", {"a": R(4, 5, 3), "b": R(4, 5, 3)}, dtypes=[tf.float32, tf.float64], grad=True)
op("Cross", {"a": R(4), "b": R(4)}, error="FAILED_PRECONDITION")
