"""Ops on quantized tensors: activations, 32 bits brought down to 8, products, scales with zero points."""
from cases import *
from quantized_cases import *


for lo, hi in ((-6.0, 10.0), (0.0, 6.0), (-3.0, 0.0), (2.0, 2.0), (1.0, 9.0)):
    for name in ("QuantizedRelu", "QuantizedRelu6"):
        case(f"{name} {lo} {hi}", lambda name=name, lo=lo, hi=hi: fetch(apply(
            name, {"features": numbers((4, 9), tf.quint8, 0, 255), "min_features": np.float32(lo), "max_features": np.float32(hi)},
            {"out_type": tf.quint8})), tol=0)
case("QuantizedRelu of a vector of ranges", lambda: fetch(apply(
    "QuantizedRelu", {"features": numbers((4,), tf.quint8, 0, 255), "min_features": np.zeros(2, np.float32), "max_features": np.float32(1)},
    {"out_type": tf.quint8})), **BAD)

for lo, hi in ((-2**31, 2**31 - 1), (-70000, 90000), (5, 900), (-900, -5), (0, 0)):
    for a, b in ((-1.0, 1.0), (-300.0, 1000.0)):
        def ranged(lo=lo, hi=hi, a=a, b=b):
            return {"input": numbers((3, 50), tf.qint32, lo, hi), "input_min": np.float32(a), "input_max": np.float32(b)}
        case(f"QuantizeDownAndShrinkRange {lo} {hi} {a}", lambda f=ranged: fetch(apply("QuantizeDownAndShrinkRange", f(), {"out_type": tf.quint8})))
        case(f"RequantizationRange {lo} {hi} {a}", lambda f=ranged: fetch(apply("RequantizationRange", f())))
        case(f"Requantize {lo} {hi} {a}", lambda f=ranged: fetch(apply(
            "Requantize", {**f(), "requested_output_min": np.float32(-0.5), "requested_output_max": np.float32(0.75)}, {"out_type": tf.quint8})), tol=0)
for lo, hi in ((0.5, 1.0), (-1.0, -2.0)):
    case(f"Requantize to {lo} {hi}", lambda lo=lo, hi=hi: fetch(apply(
        "Requantize", {"input": numbers((5,), tf.qint32, -9, 9), "input_min": np.float32(-1), "input_max": np.float32(1),
                       "requested_output_min": np.float32(lo), "requested_output_max": np.float32(hi)}, {"out_type": tf.quint8})), **BAD)


def product(a, b, lo=-1.0, hi=3.0, **attrs):
    return lambda: fetch(apply("QuantizedMatMul", {
        "a": numbers(a, tf.quint8, 0, 255), "b": numbers(b, tf.quint8, 0, 255, 2), "min_a": np.float32(lo), "max_a": np.float32(hi),
        "min_b": np.float32(-7), "max_b": np.float32(0.5)}, {"Toutput": tf.qint32, "Tactivation": tf.quint8, **attrs}))


case("QuantizedMatMul", product((3, 4), (4, 5)), tol=1e-6)
case("QuantizedMatMul a", product((4, 3), (4, 5), transpose_a=True), tol=1e-6)
case("QuantizedMatMul b", product((3, 4), (5, 4), transpose_b=True), tol=1e-6)
case("QuantizedMatMul both", product((4, 3), (5, 4), transpose_a=True, transpose_b=True), tol=1e-6)
case("QuantizedMatMul of other sizes", product((3, 4), (3, 5)), known=False, **BAD)
case("QuantizedMatMul over no range", product((3, 4), (4, 5), lo=3.0), **BAD)

X = np.random.default_rng(5).uniform(-20, 20, (3, 4, 5)).astype(np.float32)
S3, Z3 = np.array([0.1, 2.0, 0.33, 1.5], np.float32), np.array([0, -7, 3, 100], np.int32)
for dtype, least, most in ((tf.qint8, -128, 127), (tf.qint8, -127, 127), (tf.qint32, -2**31, 2**31 - 1)):
    for axis, s, z in ((-1, np.float32(0.25), np.int32(-3)), (1, S3, Z3)):
        attrs = {"quantization_axis": axis, "quantization_min_val": least, "quantization_max_val": most}
        case(f"UniformQuantize {dtype.name} {least} {axis}", lambda a=attrs, d=dtype, s=s, z=z: fetch(apply(
            "UniformQuantize", {"input": X, "scales": s, "zero_points": z}, {**a, "Tout": d})), tol=0)
        case(f"UniformDequantize {dtype.name} {least} {axis}", lambda a=attrs, d=dtype, s=s, z=z: fetch(apply(
            "UniformDequantize", {"input": numbers((3, 4, 5), d, -100, 100), "scales": s, "zero_points": z}, {**a, "Tout": tf.float32})))
WHOLE = {"quantization_min_val": -2**31, "quantization_max_val": 2**31 - 1}
case("UniformQuantizedClipByValue", lambda: fetch(apply("UniformQuantizedClipByValue", {
    "operand": numbers((3, 4, 5), tf.qint32, -1000, 1000), "min": tf.bitcast(feed(np.int32(-50)), tf.qint32), "max": tf.bitcast(feed(np.int32(60)), tf.qint32),
    "scales": np.float32(1), "zero_points": np.int32(0)}, {"quantization_axis": -1, **WHOLE})), tol=0)
for what, s, z in (("scales of another size", S3[:2], Z3), ("a scale for all", np.float32(1), np.int32(0))):
    case(f"UniformQuantize, {what}", lambda s=s, z=z: fetch(apply(
        "UniformQuantize", {"input": X, "scales": s, "zero_points": z}, {"quantization_axis": 1, "Tout": tf.qint8, "quantization_min_val": -128,
                                                                          "quantization_max_val": 127})), known=False, **BAD)
