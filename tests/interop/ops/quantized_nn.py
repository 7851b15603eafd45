"""Layers on quantized numbers."""
from cases import *
from quantized_cases import *

F = np.float32


def pair(name, a, b, ends=(-1.0, 3.0, -7.0, 0.5), **options):
    case(f"{name} {a} {b} {ends}", lambda: fetch(apply(name, {
        "x": numbers(a, tf.quint8, 0, 255), "y": numbers(b, tf.quint8, 0, 255, 2), "min_x": F(ends[0]), "max_x": F(ends[1]),
        "min_y": F(ends[2]), "max_y": F(ends[3])}, {"Toutput": tf.qint32})), **options)


for name in ("QuantizedAdd", "QuantizedMul"):
    for a, b in (((3, 4), (3, 4)), ((7,), ()), ((), (2, 3)), ((2, 3, 4), (4,)), ((5,), (2, 5)), ((2, 3, 4), (3, 4)), ((1, 4), (3, 4)), ((0, 4), (0, 4))):
        pair(name, a, b)
    pair(name, (40,), (40,), (0.0, 255.0, -128.0, 127.0))
    if X86 or name == "QuantizedAdd":
        pair(name, (40,), (40,), (1e-3, 2e-3, 100.0, 1e6))
    pair(name, (40,), (40,), (-4000.0, 70000.0, -3777.7, 12345.6))
    pair(name, (3,), (4,), known=False, **BAD)
    pair(name, (0, 4), (4,), **BAD)
    pair(name, (3,), (3,), (1.0, 1.0, 0.0, 1.0), **BAD)
    pair(name, (3,), (3,), (0.0, 1.0, 2.0, 1.0), **BAD)
    pair(name, (2, 1, 4), (2, 3, 4), known=False, error="UNIMPLEMENTED")


def bias(shape, n, dtype=tf.quint8, ends=(-1.0, 3.0, -7.0, 0.5), **options):
    lo, hi = (0, 255) if dtype == tf.quint8 else (-128, 127)
    case(f"QuantizedBiasAdd {shape} {n} {dtype.name} {ends}", lambda: fetch(apply("QuantizedBiasAdd", {
        "input": numbers(shape, dtype, lo, hi), "bias": numbers(n, dtype, lo, hi, 2), "min_input": F(ends[0]), "max_input": F(ends[1]),
        "min_bias": F(ends[2]), "max_bias": F(ends[3])}, {"out_type": tf.qint32})), **options)


bias((3, 4), (4,))
bias((2, 3, 4, 5), (5,))
bias((3, 4), (4,), ends=(0.0, 255.0, -128.0, 127.0))
for shape, n in (((4,), (4,)), ((3, 4), (3,)), ((3, 4), (1, 4)), ((3, 0), (0,))):
    bias(shape, n, known=False, **BAD)


def conv(x, f, stride=1, padding="SAME", **options):
    attrs = {k: options.pop(k) for k in ("dilations", "strides") if k in options}
    case(f"QuantizedConv2D {x} {f} {stride} {padding} {attrs}", lambda: fetch(apply("QuantizedConv2D", {
        "input": numbers(x, tf.quint8, 0, 255), "filter": numbers(f, tf.quint8, 0, 255, 2), "min_input": F(-1), "max_input": F(3),
        "min_filter": F(-7), "max_filter": F(0.5)}, {"strides": [1, stride, stride, 1], "padding": padding, "out_type": tf.qint32, **attrs})), **options)


for padding in ("SAME", "VALID"):
    for stride in (1, 2):
        conv((2, 6, 7, 3), (3, 2, 3, 4), stride, padding)
    conv((1, 4, 4, 2), (1, 1, 2, 3), 1, padding)
conv((2, 6, 7, 3), (3, 2, 2, 4), known=False, **BAD)
conv((6, 7, 3), (3, 2, 3, 4), known=False, **BAD)
conv((2, 6, 7, 3), (3, 2, 3, 4), strides=[1, 1, 2, 1], known=False, **BAD)


def pool(name, shape, size, stride, padding, **options):
    """Means may be off by one: TensorFlow rounds them where it was built with oneDNN, and cuts them elsewhere."""
    def build():
        y, least, most = fetch(apply(name, {"input": numbers(shape, tf.quint8, 0, 255), "min_input": F(-1), "max_input": F(3)},
                                     {"ksize": [1, size, size, 1], "strides": [1, stride, stride, 1], "padding": padding}))
        return [tf.cast(y, tf.float32) + 255 if name == "QuantizedAvgPool" else y, least, most]
    case(f"{name} {shape} {size} {stride} {padding}", build, tol=0.0021, **options)


for name in ("QuantizedAvgPool", "QuantizedMaxPool"):
    for size, stride in ((2, 2), (3, 1), (3, 2), (1, 1)):
        for padding in ("SAME", "VALID"):
            pool(name, (2, 7, 6, 3), size, stride, padding)
    pool(name, (7, 6, 3), 2, 2, "SAME", known=False, **BAD)


def norm(shape, lo=-1.0, hi=3.0, **attrs):
    """The numbers may be off by one: means of floats depend on the order of their sums."""
    options = {k: attrs.pop(k) for k in ("error", "known") if k in attrs}

    def build():
        y, least, most = fetch(apply("QuantizedInstanceNorm", {"x": numbers(shape, tf.quint8, 0, 255), "x_min": F(lo), "x_max": F(hi)}, attrs))
        return [tf.cast(y, tf.float32) + 255, least, most]
    case(f"QuantizedInstanceNorm {shape} {lo} {attrs}", build, tol=0.0021, **options)


norm((2, 5, 6, 3))
norm((1, 4, 4, 1), output_range_given=True, given_y_min=-2.0, given_y_max=1.5)
norm((2, 5, 6, 3), variance_epsilon=0.5, min_separation=10.0)
norm((2, 3, 3, 2), 3.0, **BAD)
norm((2, 3, 3, 2), output_range_given=True, given_y_min=2.0, given_y_max=2.0, **BAD)


def reshape(shape, sizes, dtype=tf.quint8, **options):
    case(f"QuantizedReshape {shape} {sizes} {dtype.name}", lambda: fetch(apply("QuantizedReshape", {
        "tensor": numbers(shape, dtype, 0, 255), "shape": np.array(sizes, np.int64), "input_min": F(-1), "input_max": F(3)})), **options)


reshape((2, 6), [3, 4])
reshape((2, 6), [-1, 2], tf.qint32)
reshape((0, 6), [3, 0])
for sizes in ([5, 2], [-1, -1], [-1, 5], [-2, 6]):
    reshape((2, 6), sizes, known=False, **BAD)


def concat(shapes, axis, ends, dtype=tf.quint8, **options):
    lo, hi = (0, 255) if dtype == tf.quint8 else (-2**31, 2**31 - 1)
    case(f"QuantizedConcat {shapes} {axis} {ends} {dtype.name}", lambda: fetch(tf.raw_ops.QuantizedConcat(
        concat_dim=feed(np.int32(axis)), values=[numbers(s, dtype, lo, hi, i) for i, s in enumerate(shapes)],
        input_mins=[feed(F(e[0])) for e in ends], input_maxes=[feed(F(e[1])) for e in ends])), **options)


concat([(2, 3), (2, 3)], 0, [(-1.0, 3.0), (-1.0, 3.0)])
concat([(2, 3), (2, 5), (2, 1)], 1, [(-1.0, 3.0), (-7.0, 0.5), (0.0, 255.0)])
concat([(2, 3, 2), (2, 0, 2)], 1, [(-1.0, 3.0), (-7.0, 0.5)])
concat([(2, 3), (2, 3)], 0, [(-1.0, 1.0), (-1.0, 1.0)], tf.qint32)
concat([(2, 3), (3, 3)], 1, [(0.0, 1.0)] * 2, known=False, **BAD)
concat([(2, 3), (2, 3)], 2, [(0.0, 1.0)] * 2, known=False, **BAD)
concat([(2, 3), (2, 3)], -1, [(0.0, 1.0)] * 2, known=False, **BAD)


def batch_norm(shape, n, ends=(-1.0, 3.0), epsilon=0.01, scaled=True, **options):
    def build():
        args = {}
        for i, name in enumerate(("t", "m", "v", "beta", "gamma")):
            args[name] = numbers(shape if i == 0 else n, tf.quint8, 0, 255, i)
            args[name + "_min"], args[name + "_max"] = F(0.0 if name == "v" else ends[0] + i), F(ends[1] + 2 * i)
        y, least, most = fetch(apply("QuantizedBatchNormWithGlobalNormalization", args,
                                     {"out_type": tf.qint32, "variance_epsilon": epsilon, "scale_after_normalization": scaled}))
        return [tf.cast(y, tf.float64), least, most]
    # Where the processor multiplies and adds in one, TensorFlow's offsets are rounded once.
    case(f"QuantizedBatchNormWithGlobalNormalization {shape} {n} {ends} {epsilon} {scaled}", build, tol=1e-6, **options)


batch_norm((2, 3, 4, 5), (5,))
batch_norm((2, 3, 4, 5), (5,), scaled=False)
batch_norm((2, 3, 4, 5), (5,), ends=(-4000.0, 70000.0))
batch_norm((1, 1, 1, 2), (2,), epsilon=1e-12)
batch_norm((1, 1, 1, 1), (1,), **BAD)
batch_norm((0, 3, 4, 5), (5,))
batch_norm((3, 4, 5), (5,), known=False, **BAD)
batch_norm((2, 3, 4, 5), (1, 5), known=False, **BAD)


def resize(shape, size, dtype=tf.quint8, **attrs):
    """Where TensorFlow has vectors of its own (one or three channels on ARM) the numbers may be off by one."""
    options = {k: attrs.pop(k) for k in ("error", "known") if k in attrs}

    def build():
        lo, hi = (0, 255) if dtype == tf.quint8 else (-2**31, 2**31 - 1)
        x = feed(R(*shape)) if dtype == tf.float32 else numbers(shape, dtype, lo, hi)
        y, least, most = fetch(apply("QuantizedResizeBilinear", {"images": x, "size": np.array(size, np.int32), "min": F(-1), "max": F(3)}, attrs))
        return [tf.cast(y, tf.float32) + 255 if dtype == tf.quint8 and shape[-1] != 2 else y, least, most]
    case(f"QuantizedResizeBilinear {shape} {size} {dtype.name} {attrs}", build, tol=0.0021 if dtype == tf.quint8 else None, **options)


for dtype in (tf.quint8, tf.qint32, tf.float32):
    for attrs in ({}, {"align_corners": True}, {"half_pixel_centers": True}, {"align_corners": True, "half_pixel_centers": True}):
        if X86 or dtype != tf.qint32 or "half_pixel_centers" not in attrs:
            resize((2, 5, 7, 2), (8, 13), dtype, **attrs)
        resize((2, 9, 17, 2), (4, 3), dtype, **attrs)
    resize((1, 6, 7, 2), (6, 7), dtype)
for depth in (1, 3):
    resize((2, 5, 7, depth), (8, 20))
    resize((2, 5, 7, depth), (8, 20), half_pixel_centers=True)
resize((5, 7, 2), (8, 9), known=False, **BAD)
resize((2, 5, 7, 2), (8, 9, 1), known=False, **BAD)
resize((2, 5, 7, 2), (0, 9), known=False, **BAD)
resize((2, 0, 7, 2), (3, 9), known=False, **BAD)
