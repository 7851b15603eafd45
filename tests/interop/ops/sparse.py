"""Sparse tensors: conversions, arithmetic, rearrangement, serialisation, sets."""
from cases import *


def L(x, *shape):
    a = np.array(x, np.int64)
    return a.reshape(shape) if shape else a


A = L([[0, 0], [0, 2], [1, 1], [3, 0]])
B = L([[0, 2], [1, 0], [1, 1], [2, 1], [3, 2]])
SHAPE = L([4, 3])
NONE = np.zeros((0, 2), np.int64)

# ---- dense ----
for t in (np.int32, np.int64):
    op("SparseToDense", {"sparse_indices": A.astype(t), "output_shape": SHAPE.astype(t), "sparse_values": R(4), "default_value": R()},
       dtypes=ALL, grad=["sparse_values", "default_value"])
    op("SparseToDense", {"sparse_indices": np.array([0, 2], t), "output_shape": np.array([4], t), "sparse_values": R(),
                         "default_value": R()})
    op("SparseToDense", {"sparse_indices": np.array(2, t), "output_shape": np.array([4], t), "sparse_values": R(),
                         "default_value": R()})
op("SparseToDense", {"sparse_indices": A[::-1].copy(), "output_shape": SHAPE, "sparse_values": R(4), "default_value": R()},
   {"validate_indices": False})
for ix in ([[0, 0], [0, 0]], [[1, 1], [0, 0]], [[0, 3]], [[0]], [[0, -1]]):
    op("SparseToDense", {"sparse_indices": L(ix), "output_shape": L([2, 2]), "sparse_values": R(len(ix)), "default_value": R()},
       error="INVALID_ARGUMENT")
for aa, ab in ((False, False), (True, False), (False, True), (True, True)):
    b = (4 if aa else 3, 5)
    op("SparseTensorDenseMatMul", {"a_indices": A, "a_values": R(4), "a_shape": SHAPE, "b": R(*(b[::-1] if ab else b))},
       {"adjoint_a": aa, "adjoint_b": ab}, dtypes=[tf.float32, tf.float64, tf.int32, tf.complex64, tf.complex128, tf.bfloat16, tf.float16],
       grad=["a_values", "b"])
op("SparseTensorDenseMatMul", {"a_indices": A, "a_values": V([2**31 - 1, 3, -2**31, 5]), "a_shape": SHAPE, "b": R(3, 2)}, dtypes=[tf.int32])
op("SparseTensorDenseMatMul", {"a_indices": NONE, "a_values": R(0), "a_shape": SHAPE, "b": R(3, 2)})
for ix, b in (([[5, 0]], (3, 4)), ([[0, 5]], (3, 4)), ([[0, 0]], (2, 4)), ([[0, 0]], (4,))):
    op("SparseTensorDenseMatMul", {"a_indices": L(ix), "a_values": R(1), "a_shape": SHAPE, "b": R(*b)}, error="INVALID_ARGUMENT")
op("SparseTensorDenseAdd", {"a_indices": A, "a_values": R(4), "a_shape": SHAPE, "b": R(4, 3)},
   dtypes=[tf.float32, tf.float64, tf.int32, tf.int64, tf.complex64], grad=["a_values", "b"])
for name in ("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv"):
    for d in ((4, 3), (3,), (1, 3), (4, 1)):
        op(name, {"sp_indices": A, "sp_values": R(4), "sp_shape": SHAPE, "dense": R(*d, lo=1, hi=3)},
           dtypes=[tf.float32, tf.float64, tf.int32, tf.int64],
           grad=["sp_values", "dense"] if name != "SparseDenseCwiseAdd" and len(d) == 2 else False)
op("SparseDenseCwiseMul", {"sp_indices": A, "sp_values": R(4), "sp_shape": SHAPE, "dense": R(4)}, error="INVALID_ARGUMENT")

# ---- arithmetic ----
PAIR = {"a_indices": A, "a_values": R(4), "a_shape": SHAPE, "b_indices": B, "b_values": R(5), "b_shape": SHAPE}
for th in (0.0, 1.0):
    op("SparseAdd", {**PAIR, "thresh": np.float32(th)}, dtypes=[tf.float32, tf.complex64], grad=["a_values", "b_values"], fd=False)
op("SparseAdd", {**PAIR, "thresh": np.int32(0)}, dtypes=[tf.int32])
op("SparseAdd", {**PAIR, "thresh": np.float64(0)}, dtypes=[tf.float64], grad=["a_values", "b_values"])
op("SparseAdd", {**PAIR, "b_shape": L([4, 4]), "thresh": np.float32(0)}, error="INVALID_ARGUMENT", message="shapes do not match")
for name in ("SparseSparseMaximum", "SparseSparseMinimum"):
    op(name, PAIR, dtypes=[tf.float32, tf.float64, tf.int32, tf.int64])
for axes in ([], [0], [1], [-1], [0, 1]):
    for keep in (False, True):
        x = {"input_indices": B, "input_values": R(5), "input_shape": SHAPE, "reduction_axes": np.array(axes, np.int32)}
        op("SparseReduceSum", x, {"keep_dims": keep}, dtypes=[tf.float32, tf.float64, tf.int32, tf.complex64],
           grad=["input_values"] if axes else False)
        op("SparseReduceMax", x, {"keep_dims": keep}, dtypes=[tf.float32, tf.float64, tf.int32])
        op("SparseReduceSumSparse", x, {"keep_dims": keep}, dtypes=[tf.float32, tf.int64])
        op("SparseReduceMaxSparse", x, {"keep_dims": keep}, dtypes=[tf.float32, tf.int64])
op("SparseSoftmax", {"sp_indices": B, "sp_values": R(5), "sp_shape": SHAPE}, dtypes=[tf.float32, tf.float64, tf.float16],
   grad=["sp_values"])

# ---- rearrangement ----
for new in ([3, 4], [12], [2, -1], [-1, 1, 3], [4, 3]):
    op("SparseReshape", {"input_indices": A, "input_shape": SHAPE, "new_shape": L(new)})
for new in ([5, 3], [-1, -1], [5, -1], [-2, 3]):
    op("SparseReshape", {"input_indices": A, "input_shape": SHAPE, "new_shape": L(new)}, error="INVALID_ARGUMENT")
op("SparseReorder", {"input_indices": L([[1, 0], [0, 1], [3, 2], [0, 0]]), "input_values": R(4), "input_shape": SHAPE},
   dtypes=[tf.float32, tf.float64, tf.string, tf.int8], grad=["input_values"])
for axis in (0, 1, -1):
    shapes = [SHAPE, L([4, 5])] if axis else [SHAPE, L([2, 3])]
    op("SparseConcat", {"indices": [A, L([[0, 1], [1, 0]])], "values": [R(4), R(2)], "shapes": shapes}, {"concat_dim": axis},
       dtypes=[tf.float32, tf.string, tf.int64])
for axis, n in ((0, 2), (0, 3), (1, 3), (-1, 2)):
    op("SparseSplit", {"split_dim": np.int64(axis), "indices": A, "values": R(4), "shape": SHAPE}, {"num_split": n},
       dtypes=[tf.float32, tf.string])
for start, size in (([0, 0], [4, 3]), ([1, 1], [2, 2]), ([0, 1], [9, 9]), ([3, 0], [1, 1]), ([5, 5], [1, 1])):
    op("SparseSlice", {"indices": A, "values": R(4), "shape": SHAPE, "start": L(start), "size": L(size)},
       dtypes=[tf.float32, tf.float64, tf.string], grad=["values"])
for ix, n in ((A, 4), (NONE, 0), (L([[3, 0], [0, 1], [3, 1]]), 3)):
    op("SparseFillEmptyRows", {"indices": ix, "values": R(n), "dense_shape": L([6, 3]), "default_value": R()},
       dtypes=[tf.float32, tf.float64, tf.string, tf.int64], grad=["values", "default_value"])
op("SparseFillEmptyRows", {"indices": A, "values": R(4), "dense_shape": L([3, 3]), "default_value": R()}, error="INVALID_ARGUMENT",
   message="indices\\(3, 0\\) is invalid: 3 >= 3")

# ---- sets ----
SETS = [tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.string]
for o in ("a-b", "b-a", "intersection", "union"):
    op("DenseToDenseSetOperation", {"set1": V([[1, 9, 2], [3, 3, 1]]), "set2": V([[2, 9], [1, 5]])}, {"set_operation": o}, dtypes=SETS)
    op("DenseToSparseSetOperation", {"set1": V([[1, 9, 2], [3, 3, 1]]), "set2_indices": L([[1, 0], [1, 1]]), "set2_values": V([2, 3]),
                                     "set2_shape": L([2, 2])}, {"set_operation": o}, dtypes=SETS)
    op("SparseToSparseSetOperation", {"set1_indices": L([[0, 0], [2, 0], [2, 1]]), "set1_values": V([3, 4, 1]), "set1_shape": L([3, 2]),
                                      "set2_indices": L([[0, 0], [1, 0], [2, 1]]), "set2_values": V([2, 5, 4]), "set2_shape": L([3, 2])},
       {"set_operation": o}, dtypes=SETS)
op("DenseToDenseSetOperation", {"set1": V([[1], [2]]), "set2": V([[2]])}, {"set_operation": "union"}, dtypes=[tf.int32],
   error="INVALID_ARGUMENT", message="Mismatched shapes \\[2\\] vs \\[1\\]")
op("SetSize", {"set_indices": L([[0, 0], [0, 1], [2, 0]]), "set_values": V([3, 3, 4]), "set_shape": L([3, 2])}, dtypes=SETS)
op("SetSize", {"set_indices": L([[2, 0], [0, 1]]), "set_values": V([3, 3]), "set_shape": L([3, 2])}, dtypes=[tf.int32],
   error="INVALID_ARGUMENT", message="out of order")

# ---- crosses ----
WORDS = {"indices": [L([[0, 0], [1, 0], [1, 1]]), L([[0, 0], [1, 0]])], "values": [np.array(["a", "bb", "c"], object), np.array(["d", "e"], object)],
         "shapes": [L([2, 2]), L([2, 1])], "dense_inputs": []}
MIXED = {"indices": [L([[0, 0], [1, 0]])], "values": [L([7, -8])], "shapes": [L([2, 2])],
         "dense_inputs": [L([[1, 2], [3, 4]]), np.array([["x"], ["a longer word"]], object)]}


def cross(name, kw, **attrs):
    def build():
        args = {k: [feed(x) for x in v] if isinstance(v, list) else feed(v) for k, v in kw.items()}
        return list(getattr(tf.raw_ops, name)(**args, **attrs))

    graph(f"{name} {'words' if 'bb' in kw['values'][0] else 'mixed'} {attrs or list(kw.values())[4:]}", build)


for kw in (WORDS, MIXED):
    for buckets in (0, 100):
        cross("SparseCross", kw, hashed_output=True, num_buckets=buckets, hash_key=956888297470, out_type=tf.int64,
              internal_type=tf.int64)
        cross("SparseCrossHashed", {**kw, "num_buckets": np.int64(buckets), "strong_hash": np.array(False), "salt": L([1, 2])})
    cross("SparseCrossV2", {**kw, "sep": "-"})
cross("SparseCrossHashed", {**WORDS, "num_buckets": np.int64(0), "strong_hash": np.array(True), "salt": L([1, 2])})
cross("SparseCross", WORDS, hashed_output=False, num_buckets=0, hash_key=1, out_type=tf.string, internal_type=tf.string)

# ---- serialisation ----
for t in (tf.string, tf.variant):
    def round_trip(dtype, t=t):
        one = tf.raw_ops.SerializeSparse(sparse_indices=feed(A), sparse_values=feed(R(4)), sparse_shape=feed(SHAPE), out_type=t)
        many = tf.raw_ops.SerializeManySparse(sparse_indices=feed(A), sparse_values=feed(R(4)), sparse_shape=feed(SHAPE), out_type=t)
        outs = list(tf.raw_ops.DeserializeSparse(serialized_sparse=one, dtype=dtype))
        outs += list(tf.raw_ops.DeserializeSparse(serialized_sparse=many, dtype=dtype))
        outs += list(tf.raw_ops.DeserializeSparse(serialized_sparse=tf.stack([many, many]), dtype=dtype))
        if t == tf.string:
            outs += list(tf.raw_ops.DeserializeManySparse(serialized_sparse=many, dtype=dtype)) + [one, many]
        return outs

    graph(f"serialized sparse {t.name}", round_trip, dtypes=[tf.float32, tf.string, tf.int64])


def tensors_map():
    one = tf.raw_ops.AddSparseToTensorsMap(sparse_indices=feed(L([[0]])), sparse_values=feed(R(1)), sparse_shape=feed(L([2])),
                                           shared_name="m")
    many = tf.raw_ops.AddManySparseToTensorsMap(sparse_indices=feed(A), sparse_values=feed(R(4)), sparse_shape=feed(SHAPE),
                                                shared_name="m")
    handles = tf.placeholder(tf.int64, [None])
    take = tf.raw_ops.TakeManySparseFromTensorsMap(sparse_handles=handles, dtype=tf.float32, shared_name="m")
    return [[one], [many], ([take[0], take[1], take[2]], {handles: L([3, 0, 1])})]


graph("tensors map", tensors_map)
