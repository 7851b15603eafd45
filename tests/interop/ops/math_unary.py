"""Elementwise ops of one input."""
from cases import *

FC = FLOATS + COMPLEX
SHAPES = [(), (5,), (3, 4), (0, 3), (1000,)]
NICE = dict(lo=-2, hi=2)
POSITIVE = dict(lo=0.1, hi=4)
UNIT = dict(lo=-0.9, hi=0.9)
LARGE = dict(lo=1.2, hi=4)

SPECIAL = V([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, 88.0, -88.0, 100.0, -120.0, 0.5, 1.5, 2.5, -0.5])


def both(name, dtypes, values, grad=True, fd=True, tol=None):
    for s in SHAPES:
        op(name, {"x": R(*s, **values)}, dtypes=dtypes, grad=grad, fd=fd, tol=tol)


for name in ("Neg", "Square"):
    both(name, FC + [tf.int8, tf.int16, tf.int32, tf.int64], NICE)
both("Abs", FLOATS + [tf.int8, tf.int16, tf.int32, tf.int64], NICE)
both("Sign", FC + [tf.int8, tf.int16, tf.int32, tf.int64], NICE, fd=False)
op("Square", {"x": R(7)}, dtypes=[tf.uint8, tf.uint16, tf.uint32, tf.uint64])
for name in ("Floor", "Ceil"):
    both(name, FLOATS, NICE, grad=False)
both("Round", FLOATS + [tf.int32, tf.int64], NICE, grad=False)
both("Rint", [tf.float32, tf.float64], NICE, grad=False)
for name in ("Exp", "Expm1", "Sin", "Cos", "Sinh", "Cosh", "Tanh", "Atan", "Asinh", "Sigmoid"):
    both(name, FC, NICE)
both("Tan", FC, UNIT)
for name in ("Log", "Log1p", "Sqrt", "Rsqrt", "Reciprocal", "Inv"):
    both(name, FC, POSITIVE)
for name in ("Asin", "Acos", "Atanh"):
    both(name, FC, UNIT)
both("Acosh", FC, LARGE)
for name in ("Erf", "Erfc"):
    both(name, FLOATS, NICE)
for name in ("Erfinv",):
    both(name, [tf.float32, tf.float64], UNIT, tol=1e-5)
both("Ndtri", [tf.float32, tf.float64], dict(lo=0.01, hi=0.99), tol=1e-5)
for name in ("Lgamma", "Digamma"):
    both(name, [tf.float32, tf.float64, tf.float16], POSITIVE, grad=name == "Lgamma")
op("Digamma", {"x": V([-1e-30, -1e-12, -0.25, -7.999])}, dtypes=[tf.float32, tf.float64], tol=1e-3, name="below 0")
op("Digamma", {"x": R(20, lo=-5, hi=6)}, dtypes=[tf.float32, tf.float64], grad=True, tol=1e-4)
for name in ("BesselI0", "BesselI0e", "BesselI1", "BesselI1e"):
    both(name, [tf.float32, tf.float64], dict(lo=-30, hi=30), tol=1e-5)
for name in ("BesselK0", "BesselK0e", "BesselK1", "BesselK1e", "BesselY0", "BesselY1"):
    both(name, [tf.float32, tf.float64], dict(lo=0.05, hi=12), tol=1e-5)
    op(name, {"x": V([-3.5, -1, -1e-30] + ([60, 1000, 3e4, 1e10] if "K" in name else []))}, dtypes=[tf.float32, tf.float64],
       tol=1e-6 if "e" in name[-1] else None, name="outside")
for name in ("BesselJ0", "BesselJ1", "Dawsn", "FresnelCos", "FresnelSin"):
    both(name, [tf.float32, tf.float64], dict(lo=-8, hi=8), tol=2e-5)
both("Expint", [tf.float32, tf.float64], dict(lo=0.05, hi=50), tol=1e-5)
both("Spence", [tf.float32, tf.float64], dict(lo=0.05, hi=8), tol=1e-5)

for name in ("Exp", "Expm1", "Log", "Log1p", "Sqrt", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Abs", "Neg", "Floor", "Ceil",
             "Square", "Reciprocal", "Sinh", "Atan"):
    op(name, {"x": SPECIAL}, dtypes=[tf.float32, tf.float64], name="special")
op("Rint", {"x": SPECIAL}, dtypes=[tf.float32, tf.float64], name="special")
op("Round", {"x": SPECIAL}, dtypes=[tf.float32, tf.float64], name="special")
for name in ("IsNan", "IsInf", "IsFinite"):
    op(name, {"x": SPECIAL}, dtypes=FLOATS, name="special")
    op(name, {"x": R(3, 4)}, dtypes=FLOATS)
op("Sign", {"x": SPECIAL}, dtypes=FLOATS, name="special")
op("LogicalNot", {"x": R(3, 4, dtype=tf.bool)}, dtypes=[tf.bool])
op("Invert", {"x": R(3, 4)}, dtypes=INTS)
op("PopulationCount", {"x": R(3, 4)}, dtypes=INTS)

op("Conj", {"input": R(3, 4)}, dtypes=COMPLEX, grad=True)
for name in ("Real", "Imag", "Angle"):
    op(name, {"input": R(3, 4)}, {"Tout": tf.float32}, dtypes=[tf.complex64], grad=True)
    op(name, {"input": R(3, 4)}, {"Tout": tf.float64}, dtypes=[tf.complex128], grad=True)
op("ComplexAbs", {"x": R(3, 4)}, {"Tout": tf.float32}, dtypes=[tf.complex64], grad=True)
op("ComplexAbs", {"x": R(3, 4)}, {"Tout": tf.float64}, dtypes=[tf.complex128], grad=True)
op("Complex", {"real": R(3, 4), "imag": R(4)}, {"Tout": tf.complex64}, dtypes=[tf.float32], grad=True)
op("Complex", {"real": R(3, 1), "imag": R(4)}, {"Tout": tf.complex128}, dtypes=[tf.float64], grad=True, fd=False)

for name in ("TanhGrad", "SigmoidGrad", "RsqrtGrad", "SqrtGrad", "ReciprocalGrad", "InvGrad"):
    op(name, {"y": R(3, 1), "dy": R(4)}, dtypes=[tf.float32, tf.complex64], error="INVALID_ARGUMENT",
       message="must have same number of elements, got 3 and 4")
for name in ("TanhGrad", "SigmoidGrad", "RsqrtGrad", "SqrtGrad", "ReciprocalGrad", "InvGrad"):
    for s in SHAPES:
        op(name, {"y": R(*s, lo=0.2, hi=2), "dy": R(*s)}, dtypes=FC, grad=True, fd=False)


def twice(name):
    def build(dtype):
        x = feed(R(5, lo=0.3, hi=0.8))
        y = getattr(tf.raw_ops, name)(x=x)
        return [tf.gradients(y, x)[0]]
    return build


for name in ("Tanh", "Sigmoid", "Rsqrt", "Sqrt", "Reciprocal", "Exp", "Log"):
    graph("twice_" + name, twice(name), dtypes=[tf.float32, tf.float64], grad=True)


def big(name):
    return lambda: [getattr(tf.raw_ops, name)(x=feed(R(300, 500)))]


for name in ("Exp", "Tanh", "Sigmoid", "Neg"):
    graph("big_" + name, big(name))


def in_place(dtype):
    x = feed(R(100))
    for f in (tf.exp, tf.tanh, tf.square, tf.negative, tf.sigmoid):
        x = f(x)
    return [x]


graph("chain", in_place, dtypes=FLOATS)
