"""Rows by index: gathers, scatters, partitions, segments."""
from cases import *

SMALL = [tf.float32, tf.float16, tf.float64, tf.int8, tf.int64, tf.complex128, tf.bool, tf.string]
INDEX = [np.int32, np.int64]

# ---- gather ----
for t in INDEX:
    for shape, index in (((4, 3), [0, 3, 3]), ((4,), [[1, 2], [0, 0]]), ((4, 2, 2), 2), ((4, 3), []), ((4, 0), [1]),
                         ((5, 40), [4, 0, 2, 2])):
        op("GatherV2", {"params": R(*shape), "indices": np.array(index, t), "axis": const(np.int32(0))}, dtypes=ALL,
           grad=True)
        op("Gather", {"params": R(*shape), "indices": np.array(index, t)}, dtypes=SMALL, grad=True)
for axis in (1, 2, -1, -2):
    for index in ([0, 2, 2], [[1, 0]], 1):
        op("GatherV2", {"params": R(2, 3, 4), "indices": np.array(index, np.int32), "axis": const(np.int64(axis))},
           dtypes=SMALL, grad=True)
for batch, axis, pshape, ishape in ((1, 1, (2, 3), (2, 4)), (1, 2, (2, 3, 4), (2, 5)), (2, 2, (2, 3, 4), (2, 3)),
                                    (1, 1, (2, 3, 4), (2, 2, 3)), (-1, 1, (2, 3), (2, 4)), (2, 3, (2, 3, 2, 4), (2, 3, 2)),
                                    (1, -1, (2, 3, 4), (2,))):
    op("GatherV2", {"params": R(*pshape), "indices": R(*ishape, lo=0, hi=3, dtype=tf.int32), "axis": const(np.int32(axis))},
       {"batch_dims": batch}, dtypes=SMALL, grad=True)
for params, index, axis, batch in (((3, 2), [0, 3], 0, 0), ((3, 2), [[0, -1]], 0, 0), ((3, 2), [0], 0, 1), ((), [0], 0, 0),
                                   ((3, 2), [0, 1], 1, 1), ((0, 2), [0], 0, 0)):
    op("GatherV2", {"params": R(*params), "indices": np.array(index, np.int32), "axis": axis}, {"batch_dims": batch},
       error="INVALID_ARGUMENT")
for index in ([[0, 1], [1, 2]], [[1], [0]], [[[0, 0, 1]], [[1, 2, 3]]], [1, 2], [0, 0, 0], np.zeros((2, 0), np.int32),
              np.zeros((0, 2), np.int32)):
    for t in INDEX:
        op("GatherNd", {"params": R(2, 3, 4), "indices": np.array(index, t)}, dtypes=SMALL,
           grad=np.ndim(index) > 1 and np.shape(index)[-1] > 0)
for index in ([[0, 3]], [[2]], [[0, 1, 1, 1]], 0):
    op("GatherNd", {"params": R(2, 3, 4), "indices": np.array(index, np.int32)}, error="INVALID_ARGUMENT")
op("GatherNd", {"params": R(2, 3), "indices": np.array([[0, 3]], np.int32)}, error="INVALID_ARGUMENT",
   message="indices\\[0\\] = \\[0, 3\\] does not index into param shape \\[2,3\\]")

# ---- scatter ----
for t in INDEX:
    for index, tail, shape in (([[1], [3]], (), (5,)), ([[1], [3], [1]], (2,), (4, 2)), ([[0, 1], [2, 1]], (), (3, 2)),
                               ([[[0], [1]]], (3,), (2, 3))):
        up = np.shape(index)[:-1] + tail
        op("ScatterNd", {"indices": np.array(index, t), "updates": R(*up), "shape": const(np.array(shape, t))},
           dtypes=NUMBERS, grad=["updates"])
        if len(up):
            op("TensorScatterUpdate", {"tensor": R(*shape), "indices": np.array(index, t), "updates": R(*up)},
               dtypes=SMALL, grad=len(set(map(str, index))) == len(index))
            for name in ("TensorScatterAdd", "TensorScatterSub", "ScatterNdNonAliasingAdd"):
                key = "input" if name.startswith("Scatter") else "tensor"
                op(name, {key: R(*shape), "indices": np.array(index, t), "updates": R(*up)}, dtypes=NUMBERS, grad=True)
            for name in ("TensorScatterMin", "TensorScatterMax"):
                op(name, {"tensor": R(*shape), "indices": np.array(index, t), "updates": R(*up)},
                   dtypes=[tf.float32, tf.float64, tf.int32, tf.int64], grad=True)
for index, up, shape in (([[3]], (1, 2), (3, 2)), ([[0]], (1, 3), (3, 2)), ([[0, 0, 0]], (1,), (3, 2)), ([[-1]], (1, 2), (3, 2)),
                         ([[0]], (1, 2), (0, 2)), (0, (2,), (3, 2))):
    op("ScatterNd", {"indices": np.array(index, np.int32), "updates": R(*up), "shape": np.array(shape, np.int32)},
       error="INVALID_ARGUMENT")
    op("TensorScatterUpdate", {"tensor": R(*shape), "indices": np.array(index, np.int32), "updates": R(*up)},
       error="INVALID_ARGUMENT")

# ---- partition and stitch ----
for parts in ([0, 1, 0, 2, 1], [2, 2, 2, 2, 2]):
    for shape in ((5,), (5, 3), (5, 0)):
        op("DynamicPartition", {"data": R(*shape), "partitions": np.array(parts, np.int32)}, {"num_partitions": 3},
           dtypes=SMALL, grad=True)
op("DynamicPartition", {"data": R(2, 2), "partitions": np.array([[0, 1], [1, 0]], np.int32)}, {"num_partitions": 2}, grad=True)
op("DynamicPartition", {"data": R(3), "partitions": np.array([0, 1, 2], np.int32)}, {"num_partitions": 2},
   error="INVALID_ARGUMENT", message="partitions\\[2\\] = 2 is not in \\[0, 2\\)")
for name in ("DynamicStitch", "ParallelDynamicStitch"):
    op(name, {"indices": [np.array([0, 2], np.int32), np.array([[1, 3]], np.int32)], "data": [R(2, 3), R(1, 2, 3)]},
       dtypes=SMALL, grad=True)
    op(name, {"indices": [np.array([0, 1], np.int32), np.array([1], np.int32), np.array(2, np.int32)],
              "data": [R(2), R(1), R()]})
op("DynamicStitch", {"indices": [np.array([], np.int32)], "data": [R(0, 2)]})
op("DynamicStitch", {"indices": [np.array([0, -1], np.int32)], "data": [R(2)]}, error="INVALID_ARGUMENT")

# ---- segments ----
for ids in ([0, 0, 1, 3, 3], [2, 2, 2, 2, 2], [0, 1, 2, 3, 4]):
    for shape in ((5,), (5, 3), (5, 2, 2)):
        for t in INDEX:
            op("SegmentSum", {"data": R(*shape), "segment_ids": np.array(ids, t)}, dtypes=NUMBERS, grad=True)
            op("SegmentMean", {"data": R(*shape), "segment_ids": np.array(ids, t)},
               dtypes=FLOATS + [tf.int32, tf.int64], grad=True)
            op("SegmentProd", {"data": R(*shape, lo=-1, hi=3), "segment_ids": np.array(ids, t)},
               dtypes=[tf.float32, tf.float64, tf.int32, tf.complex64], grad=True)
            for name in ("SegmentMin", "SegmentMax"):
                op(name, {"data": R(*shape), "segment_ids": np.array(ids, t)}, dtypes=REALS, grad=True)
op("SegmentProd", {"data": V([2.0, 0, 3, 0, 0, 5, 0]), "segment_ids": np.array([0, 0, 0, 1, 1, 1, 2], np.int32)}, grad=True, name="zeros")
op("SegmentSum", {"data": R(0, 3), "segment_ids": np.array([], np.int32)})
for ids in ([1, 0, 2], [0, 1], [-1, 0, 1], [[0, 1, 2]]):
    op("SegmentSum", {"data": R(3), "segment_ids": np.array(ids, np.int32)}, error="INVALID_ARGUMENT")
for ids in ([0, 3, 1, -1, 3], [1, 1, 1, 1, 1], [[0, 1], [-1, 1], [2, 2], [3, 0], [1, 1]]):
    for shape in ((5, 2), (5, 2, 3), (5, 2, 40)):
        for t in INDEX:
            op("UnsortedSegmentSum", {"data": R(*shape), "segment_ids": np.array(ids, t), "num_segments": const(t(5))},
               dtypes=NUMBERS, grad=True)
            op("UnsortedSegmentProd", {"data": R(*shape, lo=-1, hi=3), "segment_ids": np.array(ids, t), "num_segments": 5},
               dtypes=[tf.float32, tf.float64, tf.int32], grad=True)
            for name in ("UnsortedSegmentMin", "UnsortedSegmentMax"):
                op(name, {"data": R(*shape), "segment_ids": np.array(ids, t), "num_segments": 5}, dtypes=REALS, grad=True,
                   fd=False)
for ids, num in (([0, 1, 4], 4), ([0, 1], 4), ([0, 1, 2], -4)):
    op("UnsortedSegmentSum", {"data": R(3), "segment_ids": np.array(ids, np.int32), "num_segments": num},
       error="INVALID_ARGUMENT")
for name in ("Sum", "Mean", "SqrtN"):
    for t in INDEX:
        for ids, index in (([0, 0, 1, 3], [1, 0, 4, 4]), ([1, 1, 1, 1], [0, 1, 2, 3]), ([], [])):
            op("SparseSegment" + name, {"data": R(5, 3), "indices": np.array(index, t), "segment_ids": np.array(ids, np.int32)},
               dtypes=FLOATS, grad=bool(ids))
            op("SparseSegment" + name + "WithNumSegments", {"data": R(5, 3), "indices": np.array(index, t),
                                                            "segment_ids": np.array(ids, np.int64),
                                                            "num_segments": const(np.int32(6))},
               dtypes=FLOATS, grad=bool(ids))
    op("SparseSegment" + name + "Grad", {"grad": R(2, 3), "indices": np.array([0, 1, 0], np.int32),
                                         "segment_ids": np.array([0, 0, 1], np.int32), "output_dim0": 4}, dtypes=FLOATS)
    op("SparseSegment" + name + "GradV2", {"grad": R(2, 3), "indices": np.array([3, 1, 3], np.int32),
                                           "segment_ids": np.array([0, 0, 1], np.int32), "dense_output_dim0": 4},
       dtypes=FLOATS)
op("SparseSegmentSum", {"data": R(5, 3), "indices": np.array([0, 1], np.int32), "segment_ids": np.array([0, 1], np.int32)},
   dtypes=INTS)
for ids, index in (([0, 0], [0, 5]), ([1, 0], [0, 1]), ([0], [0, 1]), ([-1, 0], [0, 1])):
    op("SparseSegmentSum", {"data": R(5, 3), "indices": np.array(index, np.int32), "segment_ids": np.array(ids, np.int32)},
       error="INVALID_ARGUMENT")
op("SparseSegmentSumWithNumSegments", {"data": R(5, 3), "indices": np.array([0, 1], np.int32),
                                       "segment_ids": np.array([0, 3], np.int32), "num_segments": 2},
   error="INVALID_ARGUMENT", message="segment ids must be < num_segments")
