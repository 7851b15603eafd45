"""Ragged tensors."""
import itertools

from cases import *


def L(x, t=np.int64):
    return np.array(x, t)


for t in (tf.int32, tf.int64):
    op("RaggedRange", {"starts": V([0, 5, 3]), "limits": V([3, 1, 3]), "deltas": V([1, -2, 1])}, {"Tsplits": t},
       dtypes=[tf.int32, tf.int64, tf.float32, tf.float64])
    op("RaggedRange", {"starts": V(0), "limits": V([3, 1]), "deltas": V(1)}, {"Tsplits": t}, dtypes=[tf.int32])
op("RaggedRange", {"starts": V([0]), "limits": V([3]), "deltas": V([0])}, dtypes=[tf.int32], error="INVALID_ARGUMENT",
   message="Requires delta != 0")
for t in (np.int32, np.int64):
    one, two = [L([0, 2, 2, 5], t)], [L([0, 2, 3], t), L([0, 2, 2, 5], t)]
    for index, r in (([2, 0, 0], 1), ([[2, 0], [1, 1]], 2), (2, 0), ([], 1), ([[[1], [2]]], 3)):
        op("RaggedGather", {"params_nested_splits": one, "params_dense_values": R(5, 2), "indices": np.array(index, np.int32)},
           {"OUTPUT_RAGGED_RANK": r}, dtypes=[tf.float32, tf.string], grad=["params_dense_values"] if r else False)
    for index, r in (([1, 0, 1], 2), (1, 1), ([[1], [0]], 3)):
        op("RaggedGather", {"params_nested_splits": two, "params_dense_values": R(5), "indices": np.array(index, np.int64)},
           {"OUTPUT_RAGGED_RANK": r}, dtypes=[tf.float32, tf.string])
    op("RaggedTensorToSparse", {"rt_nested_splits": one, "rt_dense_values": R(5)}, dtypes=[tf.float32, tf.string],
       grad=["rt_dense_values"])
    op("RaggedTensorToSparse", {"rt_nested_splits": two, "rt_dense_values": R(5, 2)}, dtypes=[tf.float32, tf.string],
       grad=["rt_dense_values"])
    for shape in ([-1, -1], [2, 4], [4, 2], -1, [-1, 2]):
        op("RaggedTensorToTensor", {"shape": const(L(shape, t)), "values": R(5), "default_value": R(), "row_partition_tensors": one},
           {"row_partition_types": ["ROW_SPLITS"]}, dtypes=[tf.float32, tf.float64, tf.string], grad=["values", "default_value"])
        op("RaggedTensorToTensor", {"shape": const(L(shape, t)), "values": R(5), "default_value": R(),
                                    "row_partition_tensors": [L(3, t), L([0, 0, 2, 2, 2], t)]},
           {"row_partition_types": ["FIRST_DIM_SIZE", "VALUE_ROWIDS"]}, grad=["values", "default_value"])
    for shape in ([-1, -1, -1], [3, 1, 2]):
        op("RaggedTensorToTensor", {"shape": L(shape, t), "values": R(5), "default_value": R(), "row_partition_tensors": two},
           {"row_partition_types": ["ROW_SPLITS", "ROW_SPLITS"]}, grad=["values", "default_value"])
    for default in ((), (2,), (1,)):
        op("RaggedTensorToTensor", {"shape": L([-1, -1, 2], t), "values": R(5, 2), "default_value": R(*default),
                                    "row_partition_tensors": one}, {"row_partition_types": ["ROW_SPLITS"]},
           grad=["values", "default_value"])
for splits in ([-10, 2], [1, 5], [0, 2, 1], [-2**63, 5]):
    op("RaggedTensorToTensor", {"shape": const(L([2, 20])), "values": R(5), "default_value": R(), "row_partition_tensors": [L(splits)]},
       {"row_partition_types": ["ROW_SPLITS"]}, error="INVALID_ARGUMENT")
for splits, n in (([1, 2], 2), ([0, 2, 6], 2), ([0, 2, 1], 1)):
    op("RaggedTensorToSparse", {"rt_nested_splits": [L(splits)], "rt_dense_values": R(n)}, error="INVALID_ARGUMENT")
for index, splits in (([3], [0, 2, 2, 5]), ([2], [0, 2, 2, 6]), ([2], [0, 2, 1, 5])):
    op("RaggedGather", {"params_nested_splits": [L(splits)], "params_dense_values": R(5), "indices": np.array(index, np.int32)},
       {"OUTPUT_RAGGED_RANK": 1}, error="INVALID_ARGUMENT")


def variants(batched, ragged_in, ragged_out, splits):
    def build(dtype):
        v = tf.raw_ops.RaggedTensorToVariant(rt_nested_splits=[feed(s) for s in splits], rt_dense_values=feed(R(5, 2)),
                                             batched_input=batched)
        out = tf.raw_ops.RaggedTensorFromVariant(encoded_ragged=v, input_ragged_rank=ragged_in, output_ragged_rank=ragged_out,
                                                 Tvalues=dtype, Tsplits=tf.int64)
        return list(out.output_nested_splits) + [out.output_dense_values]

    graph(f"ragged variants {batched} {ragged_in} {ragged_out} {len(splits)}", build, dtypes=[tf.float32, tf.string])

    def values(dtype):  # scalars are used twice, so that gradients of variants are added
        v = tf.raw_ops.RaggedTensorToVariant(rt_nested_splits=splits, rt_dense_values=feed(R(5, 2), "values"),
                                             batched_input=batched)
        def unpack(v):
            return tf.raw_ops.RaggedTensorFromVariant(encoded_ragged=v, input_ragged_rank=ragged_in, Tvalues=dtype,
                                                      output_ragged_rank=ragged_out, Tsplits=tf.int64).output_dense_values
        return [unpack(v) ** 2.0 + (0.0 if batched else 3.0 * unpack(v))]

    graph(f"gradient of ragged variants {batched} {ragged_in} {ragged_out} {len(splits)}", values,
          dtypes=[tf.float32, tf.float64], grad=["values"])


def one_row(dtype):
    v = tf.raw_ops.RaggedTensorToVariant(rt_nested_splits=[L([0, 2, 2, 5])], rt_dense_values=feed(R(5, 2), "values"),
                                         batched_input=True)
    return [tf.raw_ops.RaggedTensorFromVariant(encoded_ragged=v[2], input_ragged_rank=0, output_ragged_rank=0, Tvalues=dtype,
                                               Tsplits=tf.int64).output_dense_values ** 2.0]


graph("gradient of one row's variant", one_row, dtypes=[tf.float32, tf.float64], grad=["values"])
variants(True, 0, 1, [L([0, 2, 2, 5])])
variants(True, -1, 1, [L([0, 2, 2, 5])])
variants(False, 1, 1, [L([0, 2, 2, 5])])
variants(True, 1, 2, [L([0, 2, 3]), L([0, 2, 2, 5])])

# ---- crosses ----
S = lambda *words: np.array([w.encode() for w in words], object)
RAGGED = {"ragged_values": [S("a", "bb", "c" * 30, "d"), L([7, -1, 3])], "ragged_row_splits": [L([0, 2, 3, 4]), L([0, 1, 3, 3])]}
SPARSE = {"sparse_indices": [L([[0, 0], [0, 2], [2, 1]])], "sparse_values": [S("x", "y", "z")], "sparse_shape": [L([3, 4])]}
DENSE = {"dense_inputs": [L([[1, 2], [3, 4], [5, 6]]), np.array([[b"p"], [b"q"], [b"r"]], object)]}
COUNT = itertools.count()
NONE = {"ragged_values": [], "ragged_row_splits": [], "sparse_indices": [], "sparse_values": [], "sparse_shape": [], "dense_inputs": []}


def cross(parts, order, hashed, buckets=0, key=956888297470, splits=tf.int64, **options):
    inputs = {**NONE, **{k: v for p in parts for k, v in p.items()}}
    attrs = {"input_order": order, "hashed_output": hashed, "num_buckets": buckets, "hash_key": key,
             "out_values_type": tf.int64 if hashed else tf.string, "out_row_splits_type": splits}

    def build():
        return list(tf.raw_ops.RaggedCross(**{k: [feed(x) for x in v] for k, v in inputs.items()}, **attrs))

    graph(f"RaggedCross {len(parts)} {order} {hashed} {buckets} {next(COUNT)}", build, **options)


for hashed in (False, True):
    cross([RAGGED], "RR", hashed)
    cross([RAGGED], "RR", hashed, buckets=10, key=3)
    cross([SPARSE], "S", hashed)
    cross([DENSE], "DD", hashed)
    cross([RAGGED, SPARSE, DENSE], "DRSRD", hashed)
    cross([{"ragged_values": [S("a", "b")], "ragged_row_splits": [L([0, 2], np.int32)]}], "R", hashed, splits=tf.int32)
    cross([], "", hashed)
cross([RAGGED], "RRR", False, error="INVALID_ARGUMENT")
cross([RAGGED], "RD", False, error="INVALID_ARGUMENT")
cross([RAGGED], "RX", False, error="INVALID_ARGUMENT")
for values, splits in ((L([1, 2]), L([0, 1])), (L([1, 2]), L([1, 2])), (L([1, 2]), L([0, 3, 2])), (L([[1, 2]]), L([0, 2]))):
    cross([{"ragged_values": [values], "ragged_row_splits": [splits]}], "R", True, error="INVALID_ARGUMENT")
cross([SPARSE, {"dense_inputs": [L([[1], [2]])]}], "SD", True, error="INVALID_ARGUMENT", message="same batch dimension size")
cross([{"dense_inputs": [L([1, 2])]}], "D", True, error="INVALID_ARGUMENT", message="rank=2")
cross([{**SPARSE, "sparse_shape": [L([3, 4, 5])]}], "S", True, error="INVALID_ARGUMENT")
cross([{**SPARSE, "sparse_values": [np.array([[b"x"]], object)]}], "S", True, error="INVALID_ARGUMENT")

# ---- filling ----
for ids, n in (([0, 0, 2], 4), ([1, 0, 1], 2), ([], 3), ([0, 1], 2), ([3], 4)):
    op("RaggedFillEmptyRows", {"value_rowids": L(ids), "values": R(len(ids)), "nrows": np.int64(n), "default_value": R()},
       dtypes=[tf.float32, tf.float64, tf.string, tf.int8, tf.bool], grad=["values", "default_value"])
for ids, n, values, default in (([0, 4], 4, R(2), R()), ([-1], 4, R(1), R()), ([0], 4, R(2), R()), ([0], 4, R(1), R(1)),
                                ([0], 0, R(1), R()), ([0], [4], R(1), R()), ([[0]], 4, R(1), R()), ([0], 4, R(1, 1), R())):
    op("RaggedFillEmptyRows", {"value_rowids": L(ids), "values": values, "nrows": L(n), "default_value": default},
       error="INVALID_ARGUMENT")
op("RaggedFillEmptyRowsGrad", {"reverse_index_map": L([0, 3, 1]), "grad_values": R(5)}, dtypes=NUMBERS)
for back in ([5], [-1], [[0]]):
    op("RaggedFillEmptyRowsGrad", {"reverse_index_map": L(back), "grad_values": R(5)}, error="INVALID_ARGUMENT")
