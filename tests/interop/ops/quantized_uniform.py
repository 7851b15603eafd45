"""Arithmetic on numbers with a scale and a zero point."""
from cases import *
from quantized_cases import *

F, I = np.float32, np.int32
WHOLE = (-2**31, 2**31 - 1)


def side(name, axis=-1, least=-128, most=127):
    return {f"{name}_quantization_axis": axis, f"{name}_quantization_min_val": least, f"{name}_quantization_max_val": most}


def requantize(tin, scales, axes, shape=(3, 4, 5), **options):
    lo, hi = (-128, 127) if tin == tf.qint8 else (-100000, 100000)
    case(f"UniformRequantize {tin.name} {scales} {axes}", lambda: fetch(apply("UniformRequantize", {
        "input": numbers(shape, tin, lo, hi), "input_scales": F(scales[0]), "input_zero_points": I(np.round(np.array(scales[0]) * 9)),
        "output_scales": F(scales[1]), "output_zero_points": I(np.round(np.array(scales[1]) * 7))},
        {"Tout": tf.qint8, **side("input", axes[0], *((-128, 127) if tin == tf.qint8 else WHOLE)), **side("output", axes[1])})), tol=0, **options)


FOUR, OTHER = np.array([0.1, 2.0, 0.33, 1.5]), np.array([0.7, 0.01, 3.0, 1.5])
for tin in (tf.qint8, tf.qint32):
    requantize(tin, (0.5, 0.25), (-1, -1))
    requantize(tin, (1e-6, 3.0), (-1, -1))
    requantize(tin, (3.0, 1e-3), (-1, -1))
    requantize(tin, (FOUR, 0.25), (1, -1))
    requantize(tin, (0.25, FOUR), (-1, 1))
    requantize(tin, (FOUR, OTHER), (1, 1))
requantize(tf.qint8, (FOUR, OTHER[:3]), (1, 0), known=False, **BAD)
requantize(tf.qint8, (FOUR[:3], 0.5), (1, -1), known=False, **BAD)
requantize(tf.qint8, (0.5, FOUR), (-1, -1), known=False, **BAD)
requantize(tf.qint8, (0.5, -0.5), (-1, -1), **BAD)
requantize(tf.qint8, (0.5, 0.5), (5, -1), known=False, **BAD)


def add(a, b, axes=(-1, -1, -1), scales=(0.5, 0.25, 1.5), bounds=WHOLE, **options):
    case(f"UniformQuantizedAdd {a} {b} {axes} {scales} {bounds}", lambda: fetch(apply("UniformQuantizedAdd", {
        "lhs": numbers(a, tf.qint32, -1000, 1000), "rhs": numbers(b, tf.qint32, -1000, 1000, 2), "lhs_scales": F(scales[0]),
        "lhs_zero_points": I(np.round(np.array(scales[0]) * 9)), "rhs_scales": F(scales[1]), "rhs_zero_points": I(np.round(np.array(scales[1]) * 8)),
        "output_scales": F(scales[2]), "output_zero_points": I(np.round(np.array(scales[2]) * 7))},
        {**side("lhs", axes[0], *WHOLE), **side("rhs", axes[1], *WHOLE), **side("output", axes[2], *bounds)})), tol=0, **options)


add((3, 4), (3, 4))
add((3, 4), (4,))
add((4,), (2, 3, 4))
add((3, 1), (1, 4), bounds=(-300, 200))
add((2, 3, 4), (4,), (2, 0, 2), (FOUR, OTHER, OTHER))
add((2, 3, 4), (4,), (-1, 0, -1), (0.5, OTHER, 0.25))
add((0, 4), (4,))
add((3,), (4,), known=False, **BAD)
add((2, 4), (4,), (1, 0, -1), (FOUR, OTHER[:2], 0.5), known=False, **BAD)
add((4, 4), (4,), (0, 0, 1), (FOUR, OTHER, OTHER), known=False, **BAD)


def dot(a, b, axes=(-1, -1), scales=(0.5, 0.25, 1.5), bounds=WHOLE, **options):
    case(f"UniformQuantizedDot {a} {b} {axes} {scales} {bounds}", lambda: fetch(apply("UniformQuantizedDot", {
        "lhs": numbers(a, tf.qint8, -128, 127), "rhs": numbers(b, tf.qint8, -128, 127, 2), "lhs_scales": F(scales[0]), "lhs_zero_points": I(3),
        "rhs_scales": F(scales[1]), "rhs_zero_points": I(np.round(np.array(scales[1]) * 8)), "output_scales": F(scales[2]),
        "output_zero_points": I(np.round(np.array(scales[2]) * 7))},
        {"Tout": tf.qint32, **side("lhs"), **side("rhs", axes[0]), **side("output", axes[1], *bounds)})), tol=0, **options)


dot((3, 5), (5, 4))
dot((3, 5), (5, 4), bounds=(-50, 60))
dot((3, 5), (5, 4), (1, -1), (0.5, FOUR, 2.0))
dot((3, 5), (5, 4), (1, 1), (0.5, FOUR, OTHER))
dot((3, 0), (0, 4))
dot((3, 5), (4, 4), known=False, **BAD)
dot((3, 5), (5, 4), (0, -1), (0.5, FOUR, 2.0), known=False, **BAD)
dot((3, 5), (5, 4), (1, -1), (0.5, FOUR[:2], 2.0), known=False, **BAD)


def hybrid(a, b, axis=-1, scales=0.25, **options):
    case(f"UniformQuantizedDotHybrid {a} {b} {axis} {scales}", lambda: fetch(apply("UniformQuantizedDotHybrid", {
        "lhs": R(*a, lo=-3, hi=9), "rhs": numbers(b, tf.qint8, -128, 127, 2), "rhs_scales": F(scales),
        "rhs_zero_points": I(np.round(np.array(scales) * 8))}, {"Tout": tf.float32, **side("rhs", axis)})), **options)


hybrid((3, 50), (50, 4))
hybrid((3, 5), (5, 4), 1, FOUR)
hybrid((3, 5), (4, 4), known=False, **BAD)
hybrid((3, 5), (5, 4), 1, FOUR[:2], known=False, **BAD)
