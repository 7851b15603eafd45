"""Constants, identities, and the ops that move elements about."""
from cases import *

SMALL = [tf.float32, tf.float16, tf.float64, tf.int8, tf.int64, tf.complex128, tf.bool, tf.string]
INDEX = [np.int32, np.int64]


def ints(*v, t=np.int32):
    return const(np.array(v, t))


# ---- constants and identities ----
for shape in ((), (3,), (0, 2)):
    op("Identity", {"input": R(*shape)}, dtypes=ALL, grad=True)
    op("ZerosLike", {"x": R(*shape)}, dtypes=ALL)
    op("OnesLike", {"x": R(*shape)}, dtypes=NUMBERS + [tf.bool])
    for t in INDEX:
        op("Shape", {"input": R(*shape)}, {"out_type": t})
        op("Size", {"input": R(*shape)}, {"out_type": t})
    op("Rank", {"input": R(*shape)})
    op("Snapshot", {"input": R(*shape)}, dtypes=NUMBERS)
op("IdentityN", {"input": [R(2), R(3, dtype=tf.int32)]}, grad=True)
op("ShapeN", {"input": [R(2, 3), R(4), R()]}, dtypes=SMALL)
op("PlaceholderWithDefault", {"input": R(2)}, {"shape": [None]}, grad=True)
op("StopGradient", {"input": R(2)})
op("PreventGradient", {"input": R(2)})
op("DeepCopy", {"x": R(2, 3)}, dtypes=NUMBERS)
for t in INDEX:
    op("Fill", {"dims": np.array([2, 3], t), "value": R()}, dtypes=ALL)
op("Fill", {"dims": ints(2, 3), "value": R()}, dtypes=[tf.float32, tf.float64], grad=True)
op("Fill", {"dims": ints(), "value": R()})
op("Fill", {"dims": ints(0, 3), "value": R()})
op("Fill", {"dims": np.array([-1], np.int32), "value": R()}, error="INVALID_ARGUMENT", message="must be >= 0")
op("Fill", {"dims": np.array([[1]], np.int32), "value": R()}, error="INVALID_ARGUMENT", message="must represent a vector")
op("Fill", {"dims": np.array([1], np.int32), "value": R(2)}, error="INVALID_ARGUMENT", message="must represent a scalar")
op("Empty", {"shape": ints(2, 3)}, {"dtype": tf.float32, "init": True})
op("EnsureShape", {"input": R(2, 3)}, {"shape": [None, 3]}, dtypes=SMALL, grad=True)
op("EnsureShape", {"input": R(2, 3)}, {"shape": [None, 4]}, error="INVALID_ARGUMENT", message="is not compatible with")
for bad, text in (([np.nan, 1], "had NaN values"), ([np.inf], "had Inf values"), ([-np.inf, np.nan], "Inf and NaN")):
    for name in ("CheckNumerics", "CheckNumericsV2"):
        op(name, {"tensor": V(bad)}, {"message": "oh"}, dtypes=FLOATS, error="INVALID_ARGUMENT", message="oh : Tensor had")
op("CheckNumerics", {"tensor": R(3)}, {"message": "oh"}, dtypes=FLOATS, grad=True)
op("CheckNumericsV2", {"tensor": V([-np.inf, np.inf, np.nan])}, {"message": "oh"}, error="INVALID_ARGUMENT",
   message="-Inf, \\+Inf, and NaN")
op("Assert", {"condition": np.array(False), "data": [R(2, 2), np.array(["a\n"], object)]}, {"summarize": 3},
   error="INVALID_ARGUMENT", message="assertion failed: \\[\\[")
graph("placeholder", lambda: [tf.placeholder(tf.float32, [3, None], "x") + 1], error="INVALID_ARGUMENT",
      message="placeholder tensor 'x' with dtype float and shape \\[3,\\?\\]")


# ---- control flow ----
def cond(dtype):
    x, p = feed(R(3)), feed(np.array(True))
    return [tf.cond(p, lambda: x + x, lambda: x * x), tf.cond(tf.logical_not(p), lambda: x + x, lambda: x * x)]


def fake(shape):
    """Its value is anything."""
    return lambda: [tf.shape(tf.raw_ops.FakeParam(dtype=tf.float32, shape=shape))]


for promised in ([2, 3], [], None):
    graph(f"FakeParam {promised}", fake(promised))
graph("cond", cond, dtypes=[tf.float32, tf.int32])


def loop():
    i, s = tf.while_loop(lambda i, s: i < 10, lambda i, s: (i + 1, s * 2 + tf.cast(i, tf.float32)), [0, feed(R(3))])
    return [i, s]


graph("while", loop)

# ---- shapes ----
for t in INDEX:
    for shape, to in (((2, 6), (3, 4)), ((2, 6), (-1,)), ((2, 6), (2, -1, 3)), ((0, 3), (-1, 3)), ((0, 3), (3, -1)),
                      ((), (1, 1)), ((1,), ()), ((0, 5, 3), (0, -1)), ((0, 4), (3, -1, 0))):
        op("Reshape", {"tensor": R(*shape), "shape": np.array(to, t)}, grad=True)
        op("Reshape", {"tensor": R(*shape), "shape": const(np.array(to, t))}, name="const")
op("Reshape", {"tensor": R(4), "shape": ints(2, 2)}, dtypes=ALL)
for to in ((4, -1), (4, 2), (-1, -1), (-2, 3), ((2, 3),), (-1, 0)):
    op("Reshape", {"tensor": R(2, 3), "shape": np.array(to, np.int32)}, error="INVALID_ARGUMENT")
for shape in ((), (2,), (2, 3)):
    for axis in range(-len(shape) - 1, len(shape) + 1):
        op("ExpandDims", {"input": R(*shape), "axis": ints(axis)}, grad=True)
        op("ExpandDims", {"input": R(*shape), "axis": np.int64(axis)})
op("ExpandDims", {"input": R(2), "axis": 3}, error="INVALID_ARGUMENT", message="Tried to expand dim index 3")
for axis in ([], [0], [2], [-1], [0, -1]):
    op("Squeeze", {"input": R(1, 3, 1)}, {"axis": axis}, dtypes=SMALL, grad=True)
op("Squeeze", {"input": R(1, 2)}, {"axis": [1]}, error="INVALID_ARGUMENT", message="expected a dimension of 1, got 2")
op("Squeeze", {"input": R(1, 2)}, {"axis": [2]}, error="INVALID_ARGUMENT")
for shape, perms in (((2, 3), [(0, 1), (1, 0)]), ((2, 3, 4), [(2, 1, 0), (0, 2, 1), (1, 2, 0), (2, 0, 1), (1, 0, 2)]),
                     ((2, 1, 3, 5), [(3, 2, 1, 0), (0, 3, 1, 2), (0, 2, 3, 1), (2, 3, 0, 1)]), ((0, 3), [(1, 0)]),
                     ((), [()]), ((67, 45), [(1, 0)]), ((3, 33, 70), [(0, 2, 1), (2, 1, 0)]),
                     ((2, 3, 2, 3, 2), [(4, 1, 3, 0, 2)])):
    for perm in perms:
        op("Transpose", {"x": R(*shape), "perm": ints(*perm)}, dtypes=SMALL, grad=True)
        op("Transpose", {"x": R(*shape), "perm": np.array(perm, np.int64)}, dtypes=[tf.bfloat16, tf.uint8])
        if perm:
            op("ConjugateTranspose", {"x": R(*shape), "perm": ints(*perm)}, dtypes=[tf.float32, tf.complex64], grad=True)
for perm in ((0,), (0, 0), (0, 2)):
    op("Transpose", {"x": R(2, 3), "perm": np.array(perm, np.int32)}, error="INVALID_ARGUMENT")
for t in INDEX:
    op("InvertPermutation", {"x": np.array([2, 0, 1], t)})
op("InvertPermutation", {"x": np.array([2, 0], np.int32)}, error="INVALID_ARGUMENT", message="not between 0 and 2")

# ---- joining and splitting ----
for shapes, axis in (([(2, 3), (2, 4)], 1), ([(2, 3), (4, 3)], 0), ([(2, 3), (2, 4), (2, 0)], -1), ([(0, 3), (2, 3)], 0),
                     ([(2, 1, 3), (2, 5, 3)], 1), ([(3,), (1,)], 0), ([(0,), (0,)], 0)):
    op("ConcatV2", {"values": [R(*s) for s in shapes], "axis": const(np.int32(axis))}, dtypes=ALL, grad=True)
    op("ConcatV2", {"values": [R(*s) for s in shapes], "axis": np.int64(axis)})
    if axis >= 0:
        op("Concat", {"concat_dim": const(np.int32(axis)), "values": [R(*s) for s in shapes]}, grad=True)
op("ConcatV2", {"values": [R(300, 257), R(300, 129)], "axis": 1})
op("ConcatV2", {"values": [R(3, 25700), R(3, 41290)], "axis": 1})
for a, b, axis in (((2, 3), (2, 4), 0), ((2, 3), (2,), 0), ((2, 3), (2, 3), 2), ((), (), 0)):
    op("ConcatV2", {"values": [R(*a), R(*b)], "axis": np.int32(axis)}, error="INVALID_ARGUMENT", message="ConcatOp : ")
op("ConcatOffset", {"concat_dim": 1, "shape": [np.array([2, 3], np.int32), np.array([2, 4], np.int32)]})
for axis, n in ((0, 2), (1, 3), (-1, 3), (1, 1)):
    op("Split", {"axis": const(np.int32(axis)), "value": R(4, 6)}, {"num_split": n}, dtypes=SMALL, grad=True)
op("Split", {"axis": 0, "value": R(3, 2)}, {"num_split": 2}, error="INVALID_ARGUMENT", message="evenly divide")
for sizes, axis in (([1, 3], 0), ([2, -1, 1], 1), ([0, 4], 0), ([5], 1)):
    for t in INDEX:
        op("SplitV", {"value": R(4, 5), "size_splits": np.array(sizes, t), "axis": ints(axis).value[0]},
           {"num_split": len(sizes)}, dtypes=SMALL, grad=True)
for sizes in ([1, 1], [-1, -1], [5, -1], [-2, 6]):
    op("SplitV", {"value": R(4, 5), "size_splits": np.array(sizes, np.int32), "axis": 0}, {"num_split": 2},
       error="INVALID_ARGUMENT")
for axis in (0, 1, 2, -1, -3):
    op("Pack", {"values": [R(2, 3), R(2, 3), R(2, 3)]}, {"axis": axis}, dtypes=SMALL, grad=True)
op("Pack", {"values": [R(), R()]}, grad=True)
op("Pack", {"values": [R(0, 2), R(0, 2)]})
op("Pack", {"values": [R(2), R(3)]}, error="INVALID_ARGUMENT", message="Shapes of all inputs must match")
for axis in (0, 1, 2, -1):
    op("Unpack", {"value": R(3, 3, 3)}, {"axis": axis, "num": 3}, dtypes=SMALL, grad=True)
op("Unpack", {"value": R(2, 3)}, {"num": 3}, error="INVALID_ARGUMENT")
op("ParallelConcat", {"values": [R(1, 2), R(1, 2)]}, {"shape": [2, 2]})

# ---- slices ----
for begin, size in (((0, 0, 0), (2, 3, 4)), ((1, 1, 1), (1, 2, -1)), ((0, 2, 0), (2, 1, 4)), ((1, 0, 2), (1, 3, 2)),
                    ((2, 0, 0), (0, -1, -1)), ((0, 0, 1), (-1, -1, 1))):
    for t in INDEX:
        op("Slice", {"input": R(2, 3, 4), "begin": np.array(begin, t), "size": np.array(size, t)}, dtypes=SMALL,
           grad=True)
    op("Slice", {"input": R(2, 3, 4), "begin": ints(*begin), "size": ints(*size)}, name="const", grad=True)
for begin, size in (((0, 0), (4, 1)), ((0, 3), (1, -1)), ((-1, 0), (1, 1)), ((0, 0), (1, -2)), ((0,), (1,))):
    op("Slice", {"input": R(3, 2), "begin": np.array(begin, np.int32), "size": np.array(size, np.int32)},
       error="INVALID_ARGUMENT", message="Expected (begin|size)")


def strided(spec, **options):
    """x[spec] of a [3, 4, 5], fed and constant, and the gradient."""

    def build(dtype):
        return [feed(R(3, 4, 5))[spec]]

    graph(f"StridedSlice {spec}", build, grad=True, **options)


n = None
for spec in (slice(1, 3), 1, -1, (slice(n), 2), (Ellipsis, 1), (Ellipsis, slice(n, n, 2)), slice(n, n, -1),
             (slice(2, n, -2), slice(n, n, -1), slice(-2, 0, -1)), (0, Ellipsis, tf.newaxis), (tf.newaxis, 1, tf.newaxis),
             (slice(1, 1),), (slice(5, 9),), (slice(-9, 9), slice(1, -1), slice(0, 5, 3)), (1, 2, 3), (Ellipsis, 1, 2),
             (slice(n), tf.newaxis, Ellipsis, slice(1, 2)), (slice(n), 1, slice(2, n)), slice(n)):
    strided(spec, dtypes=SMALL)
M = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0}
for t in (np.int16, np.int32, np.int64):
    op("StridedSlice", {"input": R(3, 4), "begin": np.array([0, 1], t), "end": np.array([2, 4], t),
                        "strides": np.array([1, 2], t)}, {**M, "begin_mask": 2})
for b, e, s, m in (([0], [1], [0], {}), ([0, 0, 0], [1, 1, 1], [1, 1, 1], {}), ([5], [6], [1], {"shrink_axis_mask": 1}),
                   ([0], [1], [-1], {"shrink_axis_mask": 1}), ([0, 0], [1], [1], {})):
    op("StridedSlice", {"input": R(3, 2), "begin": np.array(b, np.int32), "end": np.array(e, np.int32),
                        "strides": np.array(s, np.int32)}, {**M, **m}, error="INVALID_ARGUMENT")
op("TensorStridedSliceUpdate", {"input": R(3, 4), "begin": ints(1, 0), "end": ints(3, 4), "strides": ints(1, 2),
                                "value": R(2, 2)}, dtypes=SMALL, grad=True)


def assign(resource):
    def build(dtype):
        v = tf.get_variable("v", [3, 4], dtype, tf.zeros_initializer(), use_resource=resource)
        x = feed(R(3, 2))
        return [[v.initializer], [v[:, 1:3].assign(x)], [v.read_value() if resource else v]]

    return build


graph("ResourceStridedSliceAssign", assign(True), dtypes=[tf.float32, tf.int64])
graph("StridedSliceAssign", assign(False), dtypes=[tf.float32, tf.int64])

# ---- pads, tiles, reversals ----
for t in INDEX:
    for p in ([[1, 2], [0, 3]], [[0, 0], [1, 0]], [[0, 0], [0, 0]]):
        op("Pad", {"input": R(2, 3), "paddings": const(np.array(p, t))}, dtypes=NUMBERS + [tf.bool], grad=True)
        op("PadV2", {"input": R(2, 3), "paddings": const(np.array(p, t)), "constant_values": R()}, dtypes=NUMBERS,
           grad=["input"])
for p in ([[1, 1]], [[1, 1], [-1, 0]], [1, 1]):
    op("Pad", {"input": R(2, 3), "paddings": np.array(p, np.int32)}, error="INVALID_ARGUMENT", message="(?i)paddings")
for mode, p in (("REFLECT", [[1, 1], [2, 0]]), ("SYMMETRIC", [[2, 1], [3, 3]]), ("SYMMETRIC", [[0, 0], [0, 2]]),
                ("REFLECT", [[0, 0], [0, 0]])):
    op("MirrorPad", {"input": R(2, 3), "paddings": const(np.array(p, np.int32))}, {"mode": mode},
       dtypes=NUMBERS + [tf.bool, tf.string], grad=True)
op("MirrorPad", {"input": R(2, 3), "paddings": np.array([[2, 1], [0, 0]], np.int32)}, {"mode": "REFLECT"},
   error="INVALID_ARGUMENT", message="less than the dimension size")
op("MirrorPadGrad", {"input": R(5, 6), "paddings": np.array([[1, 1], [2, 0]], np.int32)}, {"mode": "REFLECT"},
   dtypes=[tf.float32, tf.float64, tf.int32])
for shape, m in (((2, 3), (2, 3)), ((2, 3), (1, 4)), ((2, 3), (3, 1)), ((2, 3), (1, 1)), ((2, 3), (0, 1)), ((), ()),
                 ((4, 1), (1, 7)), ((1, 3), (5, 1)), ((2, 1, 3), (2, 3, 2))):
    op("Tile", {"input": R(*shape), "multiples": ints(*m)}, dtypes=SMALL, grad=True)
    op("Tile", {"input": R(*shape), "multiples": np.array(m, np.int64)})
for m in ((1,), (1, -1)):
    op("Tile", {"input": R(2, 3), "multiples": np.array(m, np.int32)}, error="INVALID_ARGUMENT", message="Expected multiples")
for axes in ([], [0], [1], [0, 2], [-1, 0, 1]):
    for t in INDEX:
        op("ReverseV2", {"tensor": R(2, 3, 4), "axis": np.array(axes, t)}, dtypes=SMALL, grad=True)
op("Reverse", {"tensor": R(2, 3), "dims": np.array([False, True])}, dtypes=SMALL, grad=True)
op("ReverseV2", {"tensor": R(2, 3), "axis": np.array([2], np.int32)}, error="INVALID_ARGUMENT", message="out of valid range")
op("ReverseV2", {"tensor": R(2, 3), "axis": np.array([1, -1], np.int32)}, error="INVALID_ARGUMENT", message="more than once")
for batch, seq, lens in ((0, 1, [3, 0, 2]), (1, 0, [1, 3, 2, 0]), (2, 0, [3, 2]), (0, 2, [2, 1, 0])):
    op("ReverseSequence", {"input": R(3, 4, 2), "seq_lengths": np.array(lens, np.int64)},
       {"seq_dim": seq, "batch_dim": batch}, dtypes=SMALL, grad=True)
op("ReverseSequence", {"input": R(2, 3), "seq_lengths": np.array([1, 4], np.int32)}, {"seq_dim": 1},
   error="INVALID_ARGUMENT", message="seq_lens\\(1\\) > input.dims\\(1\\)")
for shift, axis in ((1, 0), (-2, 1), ([1, 2], [0, 2]), ([3, -7], [1, 1]), (0, 0), ([5, 5, 5], [0, 1, 2])):
    op("Roll", {"input": R(2, 3, 4), "shift": np.array(shift, np.int32), "axis": np.array(axis, np.int32)}, dtypes=SMALL,
       grad=True)
op("Roll", {"input": R(2, 3), "shift": 1, "axis": 3}, error="INVALID_ARGUMENT", message="is out of range")

# ---- one-hot, where, unique ----
for axis in (-1, 0, 1):
    for t in (np.uint8, np.int32, np.int64):
        op("OneHot", {"indices": np.array([[0, 2, 1], [3, 1, 5]], t), "depth": 4, "on_value": R(), "off_value": R()},
           {"axis": axis}, dtypes=ALL if t == np.int32 else None)
op("OneHot", {"indices": np.array([-1, 1], np.int32), "depth": const(np.int32(3)), "on_value": R(), "off_value": R()})
op("OneHot", {"indices": 1, "depth": 3, "on_value": R(), "off_value": R()})
op("OneHot", {"indices": np.array([1], np.int32), "depth": -1, "on_value": R(), "off_value": R()}, error="INVALID_ARGUMENT",
   message="depth must be non-negative")
for shape in ((5,), (3, 4), (0, 3), (2, 3, 2)):
    op("Where", {"condition": R(*shape, lo=0, hi=2)}, dtypes=[tf.bool, tf.int32, tf.uint8, tf.float32, tf.complex64])
op("Where", {"condition": V([0.0, -0.0, 1.0, np.nan])}, dtypes=[tf.float32, tf.float64, tf.bfloat16])
for t in (tf.int32, tf.int64):
    op("Unique", {"x": V([3, 1, 3, 2, 1, 1, 0])}, {"out_idx": t}, dtypes=REALS + [tf.string])
    op("UniqueWithCounts", {"x": V([3, 1, 3, 2, 1, 1, 0])}, {"out_idx": t}, dtypes=REALS + [tf.string])
op("Unique", {"x": V([0.0, -0.0, np.nan, np.nan])}, dtypes=[tf.float32, tf.float64])
op("Unique", {"x": R(0)})
op("Unique", {"x": R(2, 2)}, error="INVALID_ARGUMENT", message="unique expects a 1D vector")
for axis in ([0], [1], [-1]):
    op("UniqueV2", {"x": V([[3, 1, 3], [2, 1, 2], [3, 1, 3]]), "axis": np.array(axis, np.int32)},
       dtypes=[tf.float32, tf.int64, tf.string])
    op("UniqueWithCountsV2", {"x": V([[3, 1, 3], [2, 1, 2], [3, 1, 3]]), "axis": np.array(axis, np.int64)})
op("UniqueV2", {"x": V([1, 2, 1]), "axis": np.array([], np.int32)})
op("ListDiff", {"x": V([1, 2, 3, 4, 2]), "y": V([2, 5])}, dtypes=[tf.float32, tf.int32, tf.int64, tf.string])
op("ListDiff", {"x": R(0), "y": R(3)})
op("ListDiff", {"x": V([1, 2]), "y": R(0)}, {"out_idx": tf.int64})

# ---- diagonals ----
for shape in ((3,), (2, 3)):
    op("Diag", {"diagonal": R(*shape)}, dtypes=[tf.float32, tf.float64, tf.int32, tf.int64, tf.complex64], grad=True)
    op("DiagPart", {"input": R(*shape, *shape)}, dtypes=[tf.float32, tf.float64, tf.int32, tf.complex64], grad=True)
op("DiagPart", {"input": R(2, 3)}, error="INVALID_ARGUMENT")
for shape in ((3,), (2, 3), (0,)):
    op("MatrixDiag", {"diagonal": R(*shape)}, dtypes=NUMBERS + [tf.bool], grad=True)
for shape in ((2, 3), (3, 3), (2, 4, 3)):
    op("MatrixDiagPart", {"input": R(*shape)}, dtypes=NUMBERS + [tf.bool], grad=True)
    op("MatrixSetDiag", {"input": R(*shape), "diagonal": R(*shape[:-2], min(shape[-2:]))}, dtypes=NUMBERS, grad=True)
    for lo, up in ((0, 0), (1, -1), (-1, 1), (0, 2), (2, 0), (-1, -1)):
        for t in INDEX:
            op("MatrixBandPart", {"input": R(*shape), "num_lower": t(lo), "num_upper": t(up)},
               dtypes=[tf.float32, tf.float64, tf.int32, tf.complex64, tf.bool], grad=True)
# (TensorFlow aligns V2's gradients as V3's, which is wrong: V2's are not compared.)
for version, attrs in (("V2", [{}]), ("V3", [{"align": a} for a in ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT")])):
    for a in attrs:
        for k, shape, rows, cols in ((0, (2, 3), -1, -1), (1, (2, 3), -1, -1), ((-1, 1), (2, 3, 3), -1, -1),
                                     ((-1, 0), (2, 3), 3, 4), ((1, 2), (2, 2, 3), 3, -1), (-1, (3,), 4, 3)):
            op("MatrixDiag" + version, {"diagonal": R(*shape), "k": ints(*np.ravel(k)), "num_rows": const(np.int32(rows)),
                                        "num_cols": const(np.int32(cols)), "padding_value": R()}, a,
               grad=["diagonal"] if version == "V3" else False)
        for k, length in ((0, 3), ((-1, 1), 3), (2, 2), ((-2, -1), 2), ((1, 3), 3)):
            n = (max(np.ravel(k)) - min(np.ravel(k)) + 1,) if np.ndim(k) else ()
            op("MatrixDiagPart" + version, {"input": R(2, 3, 4), "k": ints(*np.ravel(k)), "padding_value": R()}, a,
               grad=["input"] if version == "V3" else False)
            op("MatrixSetDiag" + version, {"input": R(2, 3, 4), "diagonal": R(2, *n, length), "k": ints(*np.ravel(k))}, a,
               dtypes=[tf.float32, tf.float64, tf.int64], grad=version == "V3")

# ---- space to batch and depth ----
for t in INDEX:
    for shape, block, pads in (((1, 4, 4, 1), [2, 2], [[0, 0], [0, 0]]), ((2, 3, 5, 2), [2, 3], [[1, 0], [2, 2]]),
                               ((1, 6), [3], [[1, 2]]), ((2, 4, 3), [1, 3], [[0, 1], [3, 0]]), ((0, 4), [2], [[0, 0]])):
        op("SpaceToBatchND", {"input": R(*shape), "block_shape": const(np.array(block, t)), "paddings": const(np.array(pads, t))},
           dtypes=[tf.float32, tf.float64, tf.int32, tf.uint8], grad=True)
    for shape, block, crops in (((4, 2, 2, 1), [2, 2], [[0, 0], [0, 0]]), ((12, 3, 2, 2), [2, 3], [[1, 0], [2, 2]]),
                                ((6, 3), [3], [[1, 2]]), ((6, 4, 3), [1, 3], [[0, 1], [3, 0]])):
        op("BatchToSpaceND", {"input": R(*shape), "block_shape": const(np.array(block, t)), "crops": const(np.array(crops, t))},
           dtypes=[tf.float32, tf.float64, tf.int32, tf.uint8], grad=True)
op("SpaceToBatch", {"input": R(1, 3, 4, 2), "paddings": const(np.array([[1, 0], [0, 2]], np.int32))}, {"block_size": 2}, grad=True)
op("BatchToSpace", {"input": R(4, 2, 3, 2), "crops": const(np.array([[1, 0], [0, 2]], np.int32))}, {"block_size": 2}, grad=True)
op("SpaceToBatchND", {"input": R(1, 3, 4, 1), "block_shape": const([2, 2]), "paddings": np.zeros((2, 2), np.int32)},
   error="INVALID_ARGUMENT", message="is not divisible by block_shape")
op("BatchToSpaceND", {"input": R(3, 3, 4, 1), "block_shape": const([2, 2]), "crops": np.zeros((2, 2), np.int32)},
   error="INVALID_ARGUMENT", message="is not divisible by product of block sizes")
op("SpaceToDepth", {"input": R(2, 4, 6, 3)}, {"block_size": 2}, dtypes=SMALL, grad=True)
op("DepthToSpace", {"input": R(2, 2, 3, 12)}, {"block_size": 2}, dtypes=SMALL, grad=True)
op("DepthToSpace", {"input": R(2, 2, 3, 3)}, {"block_size": 2}, error="INVALID_ARGUMENT", message="should be divisible by")

# ---- search ----
for name in ("LowerBound", "UpperBound"):
    for t in (tf.int32, tf.int64):
        op(name, {"sorted_inputs": V([[1, 2, 2, 5], [0, 0, 3, 9]]), "values": V([[2, 0, 6], [0, 9, 4]])}, {"out_type": t},
           dtypes=REALS)
for normalize in (False, True):
    op("EditDistance", {"hypothesis_indices": np.array([[0, 0], [0, 1], [1, 0], [3, 0]], np.int64), "hypothesis_values": V([1, 2, 3, 4]),
                        "hypothesis_shape": np.array([4, 2], np.int64),
                        "truth_indices": np.array([[0, 0], [0, 1], [0, 2], [1, 0], [2, 0]], np.int64),
                        "truth_values": V([2, 1, 2, 3, 5]), "truth_shape": np.array([3, 3], np.int64)},
       {"normalize": normalize}, dtypes=[tf.int32, tf.int64, tf.float32, tf.string])


def named_input():
    x = tf.identity(feed(R(2, 1)), name="there")
    return [tf.raw_ops.EnsureShape(input=x, shape=[None, 3])]


graph("EnsureShape names its input", named_input, error="INVALID_ARGUMENT", message=r"Shape of tensor there \[2,1\] is not compatible")
op("GuaranteeConst", {"input": R(3)}, dtypes=[tf.float32, tf.string])
