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


def conv_attrs(strides=(), lhs_dilation=(), rhs_dilation=(), padding="VALID", pads=(), batch_groups=1, groups=1, order=b""):
    return {"window_strides": list(strides), "lhs_dilation": list(lhs_dilation), "rhs_dilation": list(rhs_dilation), "padding": padding,
            "explicit_padding": list(pads), "batch_group_count": batch_groups, "feature_group_count": groups, "dimension_numbers": order}


def order(*numbers):
    """dimension_numbers: the three of the input, the kernel and the output, spatial ones as lists (packed)."""
    def field(i, v):
        return bytes([i << 3 | 2, len(v), *v]) if isinstance(v, list) else bytes([i << 3, v])
    return b"".join(field(i + 1, v) for i, v in enumerate(numbers))


NHWC = order(0, 3, [1, 2], 2, 3, [0, 1], 0, 3, [1, 2])


def conv(x, f, axes=(-1, -1), scales=(0.5, 0.25, 1.5), zero=3, bounds=WHOLE, **options):
    attrs = conv_attrs(**{k: options.pop(k) for k in list(options) if k not in ("error", "known", "message")})
    case(f"UniformQuantizedConvolution {x} {f} {axes} {scales} {zero} {attrs}", lambda: fetch(apply("UniformQuantizedConvolution", {
        "lhs": numbers(x, tf.qint8, -128, 127), "rhs": numbers(f, tf.qint8, -128, 127, 2), "lhs_scales": F(scales[0]), "lhs_zero_points": I(zero),
        "rhs_scales": F(scales[1]), "rhs_zero_points": I(np.round(np.array(scales[1]) * 8)), "output_scales": F(scales[2]),
        "output_zero_points": I(np.round(np.array(scales[2]) * 7))},
        {"Tout": tf.qint32, **attrs, **side("lhs"), **side("rhs", axes[0]), **side("output", axes[1], *bounds)})), tol=0, **options)
    if axes[1] == -1:
        case(f"UniformQuantizedConvolutionHybrid {x} {f} {axes} {scales} {zero} {attrs}", lambda: fetch(apply("UniformQuantizedConvolutionHybrid", {
            "lhs": R(*x, lo=-3, hi=9), "rhs": numbers(f, tf.qint8, -128, 127, 2), "rhs_scales": F(scales[1]),
            "rhs_zero_points": I(np.round(np.array(scales[1]) * 8))}, {"Tout": tf.float32, **attrs, **side("rhs", axes[0])})), **options)


for padding in ("VALID", "SAME"):
    conv((2, 3, 7, 6), (4, 3, 3, 2), padding=padding)
    conv((2, 3, 7, 6), (4, 3, 3, 2), padding=padding, strides=(2, 3))
    conv((2, 3, 7, 6), (4, 3, 3, 2), padding=padding, lhs_dilation=(2, 3), rhs_dilation=(1, 2))
    conv((2, 7, 6, 3), (3, 2, 3, 4), padding=padding, order=NHWC)
conv((2, 3, 7, 6), (4, 3, 3, 2), padding="EXPLICIT", pads=(1, 0, 4, 2), strides=(1, 2))
conv((2, 3, 7, 6), (4, 3, 3, 2), zero=300, padding="SAME")
conv((2, 4, 7, 6), (6, 2, 3, 2), groups=2)
conv((4, 3, 7, 6), (4, 3, 3, 2), batch_groups=2)
conv((2, 3, 9), (4, 3, 3))
conv((2, 3, 4, 5, 6), (4, 3, 2, 3, 2), padding="SAME", strides=(1, 2, 1))
conv((2, 3, 2, 3), (4, 3, 3, 2), (0, -1), (0.5, FOUR, 2.0), padding="SAME")
conv((2, 7, 6, 3), (3, 2, 3, 4), (3, -1), (0.5, FOUR, 2.0), order=NHWC)
conv((2, 3, 7, 6), (4, 3, 3, 2), (0, 1), (0.5, FOUR, OTHER), bounds=(-50, 60))
conv((0, 3, 7, 6), (4, 3, 3, 2))
conv((2, 3, 2, 6), (4, 3, 3, 2))
for x, f, bad in (((2, 3, 7, 6), (4, 2, 3, 2), {}), ((2, 3, 7, 6), (4, 3, 3), {}), ((2, 3), (4, 3), {}), ((2, 3, 1, 6), (4, 3, 3, 2), {}),
                  ((2, 3, 7, 6), (4, 3, 3, 2), dict(strides=(1,))), ((2, 3, 7, 6), (4, 3, 3, 2), dict(strides=(0, 1))),
                  ((2, 3, 7, 6), (4, 3, 3, 2), dict(lhs_dilation=(1, -1))), ((2, 3, 7, 6), (4, 3, 3, 2), dict(rhs_dilation=(1, 1, 1))),
                  ((2, 3, 7, 6), (4, 3, 3, 2), dict(padding="SOME")), ((2, 3, 7, 6), (4, 3, 3, 2), dict(pads=(1, 1, 1, 1))),
                  ((2, 3, 7, 6), (4, 3, 3, 2), dict(padding="EXPLICIT", pads=(1, 1))), ((2, 3, 7, 6), (4, 3, 3, 2), dict(padding="EXPLICIT", pads=(1, -1, 0, 0))),
                  ((2, 3, 7, 6), (4, 3, 3, 2), dict(groups=2)), ((2, 3, 7, 6), (4, 3, 3, 2), dict(groups=0)), ((3, 3, 7, 6), (4, 3, 3, 2), dict(batch_groups=2)),
                  ((2, 3, 7, 6), (3, 3, 3, 2), dict(batch_groups=2)), ((2, 3, 7, 6), (4, 3, 3, 2), dict(batch_groups=-1)),
                  ((2, 3, 7, 6), (4, 3, 3, 2), dict(order=b"\xff")), ((2, 3, 7, 6), (4, 3, 3, 2), dict(order=order(0, 9, [1, 2], 2, 3, [0, 1], 0, 3, [1, 2]))),
                  ((2, 3, 7, 6), (4, 3, 3, 2), dict(order=order(0, 3, [1], 2, 3, [0, 1], 0, 3, [1, 2])))):
    conv(x, f, known=False, **bad, **BAD)
conv((2, 3, 7, 6), (4, 3, 3, 2), (1, -1), (0.5, FOUR[:3], 2.0), known=False, **BAD)
conv((2, 3, 7, 6), (4, 3, 3, 2), (0, -1), (0.5, FOUR[:3], 2.0), known=False, **BAD)
conv((2, 3, 7, 6), (4, 3, 3, 2), scales=(0.5, -0.25, 1.5), known=False, **BAD)
conv((2, 3, 7, 6), (4, 3, 3, 2), (-1, 1), (0.5, 0.25, FOUR), known=False, **BAD)
conv((2, 3, 7, 6), (4, 3, 3, 2), (0, 0), (0.5, FOUR, FOUR), known=False, **BAD)
