"""Sequences that never rise, the largest of rows by another name, and casts by chance."""
from cases import *

for source, dtypes in ((DT, FLOATS), (tf.float32, [tf.int8, tf.int16]), (tf.float64, [tf.int32, tf.int64])):
    for shape in ((3, 20), (7,), (2, 3, 4), (2, 0), (0, 3), (1, 1)):
        op("IsotonicRegression", {"input": R(*shape)}, {"output_dtype": source}, dtypes=dtypes, tol=1e-2 if source is DT else None)
op("IsotonicRegression", {"input": np.array([[5, 4, 3, 2], [1, 2, 3, 4], [2, 2, 2, 2], [1, 3, 2, 2]], np.float32)}, {"output_dtype": tf.float32}, tol=0)
op("IsotonicRegression", {"input": np.array([1, 2], np.int32)}, error="INVALID_ARGUMENT")

for dtype in (tf.float16, tf.bfloat16, tf.float32):
    for shape, k in (((3, 50), 4), ((9,), 9), ((2, 3, 4), 0), ((0, 4), 2)):
        op("ApproxTopK", {"input": R(*shape)}, {"k": k, "recall_target": 0.5}, dtypes=[dtype])
op("ApproxTopK", {"input": np.array([[1, 2, 2, 1, 2]], np.float32)}, {"k": 3, "aggregate_to_topk": False})
for shape, attrs in (((2, 5), {"is_max_k": False}), ((5, 2), {"reduction_dimension": 0})):
    op("ApproxTopK", {"input": R(*shape)}, {"k": 4, **attrs}, error="INVALID_ARGUMENT", known=True)

KEY = {"key": np.array([7], np.uint64), "counter": np.array([1, 2], np.uint64), "alg": np.int32(1)}
EDGES = [0, -0.0, 1, -1, 3, -128, 127, 128, 500, -500, 4e4, -4e4, 3e9, -3e9, np.inf, -np.inf, np.nan]
for to in (tf.int8, tf.int16, tf.int32):
    # A limit that the source has no number for is rounded up in TensorFlow, past what the integer can be.
    op("StochasticCastToInt", {"input": V(EDGES), **KEY}, {"Tout": to}, dtypes=[tf.float64] + [tf.float32] * (to != tf.int32))
    # Which way a number is rounded is each one's own choice; that it is one of two neighbours is not.
    graph(f"StochasticCastToInt {to.name} near", lambda d, to=to: (lambda x: (lambda y: [
        y >= tf.floor(tf.cast(x, tf.float64)), y <= tf.ceil(tf.cast(x, tf.float64)),
        tf.abs(tf.reduce_mean(y - tf.cast(x, tf.float64))) < 0.1])(
            tf.cast(apply("StochasticCastToInt", {"input": x, **KEY}, {"Tout": to}), tf.float64)))(feed(R(5000, lo=-90, hi=90))), dtypes=[tf.float32, tf.float64])
op("StochasticCastToInt", {"input": R(0), **KEY}, {"Tout": tf.int8})
for change in ({"key": np.array([1, 2], np.uint64)}, {"alg": np.int32(9)}, {"alg": np.array([1], np.int32)}):
    op("StochasticCastToInt", {"input": R(3), **KEY, **change}, {"Tout": tf.int8}, error="INVALID_ARGUMENT")
