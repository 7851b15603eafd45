"""Counting with sparse, ragged and dense inputs."""
from cases import *

WEIGHTS = [tf.int32, tf.int64, tf.float32, tf.float64]


def L(x, t=np.int64):
    return np.array(x, t)


# ---- counts as sparse tensors ----
LENGTHS = [(-1, -1), (0, 0), (3, -1), (9, -1), (-1, 4), (9, 4)]
for t in (np.int32, np.int64):
    for least, most in LENGTHS:
        attrs = {"minlength": least, "maxlength": most, "binary_output": False}
        for shape in ((6,), (2, 5), (0,), (2, 0)):
            op("DenseCountSparseOutput", {"values": R(*shape, lo=0, hi=6, dtype=t), "weights": V([])}, attrs, dtypes=[tf.int32])
            op("DenseCountSparseOutput", {"values": R(*shape, lo=0, hi=6, dtype=t), "weights": R(*shape)}, attrs, dtypes=WEIGHTS)
        op("SparseCountSparseOutput", {"indices": L([[0, 1], [2, 0], [2, 3], [0, 2], [2, 2]]), "values": L([5, 1, 1, 5, 3], t),
                                       "dense_shape": L([4, 4]), "weights": R(5)}, attrs, dtypes=WEIGHTS)
        op("SparseCountSparseOutput", {"indices": L([[0], [2], [3]]), "values": L([5, 1, 5], t), "dense_shape": L([4]),
                                       "weights": V([])}, attrs, dtypes=WEIGHTS)
        op("RaggedCountSparseOutput", {"splits": L([0, 2, 2, 5]), "values": L([3, 3, 0, 7, 0], t), "weights": R(5)}, attrs,
           dtypes=WEIGHTS)
for binary in (False, True):
    attrs = {"binary_output": binary}
    op("DenseCountSparseOutput", {"values": R(3, 20, lo=0, hi=6, dtype=tf.int32), "weights": R(3, 20)}, attrs, dtypes=WEIGHTS)
    op("SparseCountSparseOutput", {"indices": L([[0, 1, 1], [2, 0, 0], [2, 3, 1]]), "values": L([1, 1, 1]),
                                   "dense_shape": L([4, 4, 2]), "weights": V([])}, attrs, dtypes=WEIGHTS)
    op("RaggedCountSparseOutput", {"splits": L([0, 0, 4]), "values": L([3, 3, 0, 3]), "weights": V([])}, attrs, dtypes=WEIGHTS)
attrs = {"binary_output": False}
op("DenseCountSparseOutput", {"values": L([1, -1]), "weights": R(2)}, attrs, error="INVALID_ARGUMENT", message="non-negative")
op("RaggedCountSparseOutput", {"splits": L([0, 2]), "values": L([1, -1]), "weights": R(2)}, attrs, error="INVALID_ARGUMENT")
for values, weights in ((R(dtype=tf.int32), R()), (R(2, 2, 2, dtype=tf.int32), R(2, 2, 2)), (R(0, 3, dtype=tf.int32), R(0, 3)),
                        (R(3, dtype=tf.int32), R(2)), (R(3, dtype=tf.int32), R(1, 3))):
    op("DenseCountSparseOutput", {"values": values, "weights": weights}, attrs, error="INVALID_ARGUMENT")
for indices, values, shape, weights in (
        ([[0, 4]], [1], [4, 4], [1.]), ([[-1, 0]], [1], [4, 4], [1.]), ([[0, 0]], [1, 2], [4, 4], [1., 1.]),
        ([[0, 0]], [1], [4], [1.]), ([[0, 0]], [1], [4, 4], [1., 2.]), ([0], [1], [4], [1.]), ([[0]], [[1]], [4], [1.]),
        ([[0]], [1], 4, [1.]), (np.zeros([1, 0]), [1], [], [1.]), (np.zeros([0, 2]), [], [0, 4], []),
        (np.zeros([0, 2]), [], [-1, 4], []), (np.zeros([0, 2]), [], [2**33, 4], [])):
    op("SparseCountSparseOutput", {"indices": L(indices), "values": L(values), "dense_shape": L(shape),
                                   "weights": L(weights, np.float32)}, attrs, error="INVALID_ARGUMENT")
for splits, values in (([0], []), ([], []), ([1, 2], [1, 2]), ([0, 1], [1, 2]), ([0, 3], [1, 2])):
    op("RaggedCountSparseOutput", {"splits": L(splits), "values": L(values), "weights": L([], np.float32)}, attrs,
       error="INVALID_ARGUMENT")

# ---- counts as dense tensors ----
for t in (np.int32, np.int64):
    for binary in (False, True):
        attrs = {"binary_output": binary}
        for size in (8, 9):
            op("SparseBincount", {"indices": L([[0, 1], [2, 0], [2, 3], [0, 2]]), "values": L([5, 1, 1, 7], t),
                                  "dense_shape": L([4, 4]), "size": t(size), "weights": R(4)}, attrs, dtypes=WEIGHTS)
            op("SparseBincount", {"indices": L([[0, 1], [2, 0], [2, 3], [0, 2]]), "values": L([5, 1, 1, 7], t),
                                  "dense_shape": const(L([4, 4])), "size": const(t(size)), "weights": V([])}, attrs, dtypes=WEIGHTS)
        op("SparseBincount", {"indices": L([[0], [2], [3]]), "values": L([5, 1, 5], t), "dense_shape": L([4]), "size": t(4),
                              "weights": R(3)}, attrs, dtypes=WEIGHTS)
        for size in (0, 3, 9):
            op("RaggedBincount", {"splits": L([0, 2, 2, 5]), "values": L([3, 3, 0, 7, 0], t), "size": t(size), "weights": R(5)},
               attrs, dtypes=WEIGHTS)
            op("RaggedBincount", {"splits": L([0, 2, 2, 5]), "values": L([3, 3, 0, 7, 0], t), "size": const(t(size)),
                                  "weights": V([])}, attrs, dtypes=WEIGHTS)
for indices, values, shape, size in (([[5, 0]], [1], [4, 4], 4), ([[0]], [-1], [4], 4), ([[0, 0]], [1], [4, 4], -1)):
    op("SparseBincount", {"indices": L(indices), "values": L(values), "dense_shape": L(shape), "size": np.int64(size),
                          "weights": L([], np.float32)}, error="INVALID_ARGUMENT")
for splits, values, size in (([1, 2], [1, 2], 4), ([0, 1], [1, 2], 4), ([0, 2], [1, -1], 4), ([0, 2], [1, 1], -1)):
    op("RaggedBincount", {"splits": L(splits), "values": L(values), "size": np.int64(size), "weights": L([], np.float32)},
       error="INVALID_ARGUMENT")
