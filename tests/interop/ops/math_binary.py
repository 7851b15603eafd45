"""Elementwise ops of two inputs and what chooses between tensors."""
from cases import *

FC = FLOATS + COMPLEX
SIGNED = [tf.int8, tf.int16, tf.int32, tf.int64]
PAIRS = [((2, 3), (2, 3)), ((2, 3), (3,)), ((4, 1, 3), (2, 1)), ((), (5,)), ((5,), ()), ((0, 3), (1, 3)), ((), ()),
         ((2, 3, 4), (2, 1, 4)), ((3, 1), (1, 4)), ((2, 1, 3, 1), (4, 1, 5))]
NAN, INF = np.nan, np.inf


def pairs(name, dtypes, grad=True, fd=True, lo=-2, hi=2, tol=None, names=("x", "y")):
    for a, b in PAIRS:
        op(name, {names[0]: R(*a, lo=lo, hi=hi), names[1]: R(*b, lo=lo, hi=hi)}, dtypes=dtypes, grad=grad, fd=fd, tol=tol)


pairs("Add", FC + SIGNED + [tf.uint8, tf.string])
for name in ("AddV2", "Sub", "Mul"):
    pairs(name, NUMBERS)
pairs("MulNoNan", FC)
op("MulNoNan", {"x": V([NAN, 1, np.inf, 0]), "y": V([0, NAN, 0, 0])}, dtypes=FLOATS)
pairs("Div", NUMBERS, lo=1, hi=90)
for name in ("RealDiv", "DivNoNan", "Xdivy"):
    pairs(name, FC, lo=0.5, hi=2)
for name in ("DivNoNan", "Xdivy", "MulNoNan"):
    op(name, {"x": V([0, 1, 0, 2]), "y": V([0, 0, NAN, 4])}, dtypes=FC)
pairs("FloorDiv", REALS, lo=1, hi=90, grad=False)
pairs("TruncateDiv", REALS, lo=1, hi=90, grad=False)
pairs("FloorMod", REALS, lo=1, hi=90, fd=False)
pairs("TruncateMod", [tf.int32, tf.int64, tf.float32, tf.float64], lo=1, hi=90, grad=False)
pairs("Mod", [tf.int32, tf.int64, tf.float32, tf.float64], lo=1, hi=90, grad=False)
BY_ZERO = {"error": "INVALID_ARGUMENT", "message": "Integer division by zero"}
UNEXPECTED = {"error": "INTERNAL", "message": "Unexpected error in binary operator"}  # so TensorFlow calls it there
for name in ("Div", "FloorDiv", "TruncateDiv", "FloorMod"):
    op(name, {"x": V([7, -7, 7, -7, 0, -128, 5]), "y": V([2, 2, -2, -2, -3, -1, 7])}, dtypes=SIGNED, name="signs")
    op(name, {"x": V([7, 1]), "y": V([2, 0])}, dtypes=INTS, **(UNEXPECTED if name == "TruncateDiv" else BY_ZERO))
for name in ("Mod", "TruncateMod"):
    op(name, {"x": V([7, -7, 7, -7, 0]), "y": V([2, 2, -2, -2, -3])}, dtypes=[tf.int32, tf.int64, tf.float32, tf.float64])
    op(name, {"x": V([7, 1]), "y": V([2, 0])}, dtypes=[tf.int32], **(UNEXPECTED if name == "TruncateMod" else BY_ZERO))
for name in ("FloorDiv", "FloorMod", "TruncateDiv"):
    op(name, {"x": V([7, -7, 7, -7, 0, 5.5, 1, -1]), "y": V([2, 2, -2, -2, -3, -2, 0.3, 0.3])}, dtypes=[tf.float32, tf.float64])
pairs("Pow", FLOATS, lo=0.3, hi=2)
pairs("Pow", COMPLEX, lo=0.3, hi=2)
pairs("Pow", SIGNED, lo=0, hi=5)
op("Pow", {"x": V([2, 3]), "y": V([1, -1])}, dtypes=SIGNED, error="INVALID_ARGUMENT",
   message="Integers to negative integer powers are not allowed")
op("Pow", {"x": V([-2, 0, -0.5, 3, 0]), "y": V([2, 0, 3, -1, 2])}, dtypes=[tf.float32, tf.float64], grad=True, fd=False)
op("Pow", {"x": R(4, 5), "y": V(2)}, dtypes=FLOATS, grad=["x"])
for name in ("Maximum", "Minimum"):
    pairs(name, REALS, fd=False)
    op(name, {"x": V([NAN, 1, NAN, 2, 3, 1, 1, NAN]), "y": V([1, NAN, NAN, 2, 1, NAN, 2, 2])}, dtypes=FLOATS, grad=True, fd=False)
pairs("SquaredDifference", FC + [tf.int32, tf.int64])
pairs("Atan2", FLOATS, names=("y", "x"), lo=0.3, hi=2)
op("Atan2", {"y": V([1, -1, 0, 0, -0.0, 1]), "x": V([-1, -1, 0, -1, -1, 0])}, dtypes=[tf.float32, tf.float64])
for name in ("Xlogy", "Xlog1py"):
    pairs(name, FC, lo=0.3, hi=2)
    op(name, {"x": V([0, 0, 1]), "y": V([0, -2, 2])}, dtypes=[tf.float32, tf.float64])
for name in ("Igamma", "Igammac"):
    pairs(name, [tf.float32, tf.float64], names=("a", "x"), lo=0.2, hi=6, tol=1e-5, fd=False)
    op(name, {"a": V([1, 1, 0.5, 30, 3, 100]), "x": V([0, 2, 7, 20, 50, 110])}, dtypes=[tf.float32, tf.float64], tol=2e-5)
    op(name, {"a": V([0, -1, 1, NAN, 1]), "x": V([1, 1, -1, 1, NAN])}, dtypes=[tf.float32, tf.float64])
for name in ("Igamma", "IgammaGradA"):
    op(name, {"a": V([NAN, -1, 0, -INF]), "x": V([0, 0, 0, 0])}, dtypes=[tf.float32, tf.float64], name="outside")
op("Zeta", {"x": V([INF, INF, 2, 3.5]), "q": V([2, -1 if X86 else 3, INF, INF])}, dtypes=[tf.float32, tf.float64], name="outside")
op("IgammaGradA", {"a": R(30, lo=0.2, hi=20), "x": R(30, lo=0.2, hi=20)}, dtypes=[tf.float32, tf.float64], tol=1e-4)
op("RandomGammaGrad", {"alpha": R(30, lo=0.2, hi=8), "sample": R(30, lo=0.1, hi=8)}, dtypes=[tf.float32, tf.float64], tol=1e-4)
pairs("Zeta", [tf.float32, tf.float64], names=("x", "q"), lo=1.2, hi=6, tol=1e-5, grad=["q"])
op("Polygamma", {"a": V([[0.0], [1], [2], [5]]), "x": R(7, lo=0.5, hi=8)}, dtypes=[tf.float32, tf.float64], tol=1e-5, grad=["x"])
for a, b, x in (((3, 4), (3, 4), (3, 4)), ((), (), (6,)), ((6,), (6,), ()), ((), (), ())):
    op("Betainc", {"a": R(*a, lo=0.3, hi=5), "b": R(*b, lo=0.3, hi=5), "x": R(*x, lo=0.05, hi=0.95)},
       dtypes=[tf.float32, tf.float64], tol=1e-5, grad=["x"])
op("Betainc", {"a": R(2), "b": R(3), "x": R(2)}, error="INVALID_ARGUMENT")
pairs("NextAfter", [tf.float32, tf.float64], names=("x1", "x2"), tol=0, fd=False)
for name in ("AddV2", "Sub", "Mul", "Maximum", "Less"):
    op(name, {"x": R(2, 3), "y": R(2, 4)}, error="INVALID_ARGUMENT", message="Incompatible shapes: .2,3. vs. .2,4.")

# ---- comparison, logic, bits ----
for name in ("Equal", "NotEqual"):
    for a, b in PAIRS:
        op(name, {"x": R(*a, lo=0, hi=3), "y": R(*b, lo=0, hi=3)}, dtypes=ALL)
    op(name, {"x": V([NAN, 1, 0]), "y": V([NAN, 1, -0.0])}, dtypes=FLOATS)
    op(name, {"x": R(3), "y": R(4)}, {"incompatible_shape_error": False}, dtypes=[tf.float32, tf.string], known=False)
    op(name, {"x": R(3), "y": R(1)}, {"incompatible_shape_error": False}, dtypes=[tf.float32, tf.string])
    op(name, {"x": R(3), "y": R(4)}, error="INVALID_ARGUMENT", message="Incompatible shapes")
for name in ("Less", "LessEqual", "Greater", "GreaterEqual"):
    pairs(name, REALS, grad=False)
    op(name, {"x": V([NAN, 1, 0]), "y": V([NAN, 1, -0.0])}, dtypes=FLOATS)
op("ApproximateEqual", {"x": V([1, 2, 3]), "y": V([1, 2.000001, 3.1])}, {"tolerance": 0.01}, dtypes=[tf.float32, tf.float64])
op("ApproximateEqual", {"x": R(2), "y": R(3)}, error="INVALID_ARGUMENT")
for name in ("LogicalAnd", "LogicalOr"):
    for a, b in PAIRS:
        op(name, {"x": R(*a, dtype=tf.bool), "y": R(*b, dtype=tf.bool)}, dtypes=[tf.bool])
for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    pairs(name, INTS, grad=False)
for name in ("LeftShift", "RightShift"):
    for a, b in PAIRS:
        op(name, {"x": R(*a, lo=0, hi=100), "y": R(*b, lo=0, hi=7)}, dtypes=INTS)
    op(name, {"x": V([-8, 8, -8, 1]), "y": V([-1, 100, 1, 3])}, dtypes=SIGNED)

# ---- sums of many ----
for n in (1, 2, 3, 7):
    op("AddN", {"inputs": [R(3, 4) for _ in range(n)]}, dtypes=NUMBERS, grad=True)
op("AddN", {"inputs": [R(300, 200) for _ in range(5)]}, dtypes=[tf.float32])
op("AddN", {"inputs": [R(0, 2), R(0, 2)]})
op("AddN", {"inputs": [R(2), R(3)]}, error="INVALID_ARGUMENT", message="must have the same size and shape")

# ---- choice ----
for c, t, e in (((3, 4), (3, 4), (3, 4)), ((), (3, 4), (3, 4)), ((3, 4), (), (3, 4)), ((3, 4), (3, 4), ()), ((3, 1), (1, 4), (4,)),
                ((4,), (3, 1), ()), ((), (), ()), ((0, 3), (1, 3), ()), ((), (3, 1), (4,)), ((2, 3, 1), (1, 4), (3, 4))):
    op("SelectV2", {"condition": R(*c, dtype=tf.bool), "t": R(*t), "e": R(*e)}, dtypes=ALL, grad=True)
op("SelectV2", {"condition": R(2, dtype=tf.bool), "t": R(3), "e": R(1)}, error="INVALID_ARGUMENT", message="must be broadcastable")
for c, t in (((3, 4), (3, 4)), ((), (3, 4)), ((3,), (3, 4)), ((3,), (3,)), ((3,), (3, 2, 2)), ((), ())):
    op("Select", {"condition": R(*c, dtype=tf.bool), "x": R(*t), "y": R(*t)}, dtypes=ALL, grad=True)
op("Select", {"condition": R(2, dtype=tf.bool), "x": R(3, 2), "y": R(3, 2)}, error="INVALID_ARGUMENT")
op("Select", {"condition": R(2, dtype=tf.bool), "x": R(2, 2), "y": R(2, 3)}, error="INVALID_ARGUMENT")
for lo, hi in (((), ()), ((3, 4), ()), ((), (3, 4)), ((3, 4), (3, 4))):
    op("ClipByValue", {"t": R(3, 4), "clip_value_min": R(*lo, lo=-1, hi=0), "clip_value_max": R(*hi, lo=0, hi=1)},
       dtypes=FLOATS, grad=True, fd=False)
for lo, hi in (((), ()), ((60, 100), ()), ((), (60, 100)), ((60, 100), (60, 100))):
    op("ClipByValue", {"t": R(60, 100), "clip_value_min": R(*lo, lo=-1, hi=0), "clip_value_max": R(*hi, lo=0, hi=1)},
       dtypes=COMPLEX, tol=0)
op("ClipByValue", {"t": R(3, 4), "clip_value_min": V(-5), "clip_value_max": V(7)}, dtypes=SIGNED)
op("ClipByValue", {"t": V([1, NAN, 3]), "clip_value_min": V(2), "clip_value_max": V(1)})
op("ClipByValue", {"t": R(3), "clip_value_min": R(2), "clip_value_max": V(1)}, error="INVALID_ARGUMENT", message="same shape as input")


def big(name):
    return lambda: [getattr(tf.raw_ops, name)(x=feed(R(400, 300)), y=feed(R(300))),
                    getattr(tf.raw_ops, name)(x=feed(R(400, 300)), y=feed(R(400, 1))),
                    getattr(tf.raw_ops, name)(x=feed(R()), y=feed(R(400, 300))),
                    getattr(tf.raw_ops, name)(x=feed(R(400, 300)), y=feed(R(400, 300)))]


for name in ("AddV2", "Mul", "Maximum", "Less"):
    graph("big_" + name, big(name))

for shape, other in (((100, 10), (10,)), ((10,), (100, 10)), ((4, 3), (3,)), ((33, 7, 3), (3,)), ((300, 32), (32,)), ((50, 33), (33,))):
    op("Sub", {"x": R(*shape), "y": R(*other)}, dtypes=NUMBERS, name="small rows")
    op("Less", {"x": R(*shape), "y": R(*other)}, dtypes=[tf.float32, tf.float16], name="small rows")
