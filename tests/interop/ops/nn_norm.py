"""Batch norm, LRN, depthwise convolutions, morphology, the largest elements."""
from cases import *

for name, types in (("FusedBatchNorm", [tf.float32]), ("FusedBatchNormV2", [tf.float32, tf.float16, tf.bfloat16]),
                    ("FusedBatchNormV3", [tf.float32, tf.float16, tf.bfloat16])):
    extra = {"U": tf.float32} if name != "FusedBatchNorm" else {}
    for dt in types:
        for shape in ((2, 3, 4, 5), (1, 1, 1, 3), (6, 9, 8, 33)):
            def norm(dtype, name=name, extra=extra, shape=shape):
                x, scale, offset = feed(R(*shape)), feed(R(shape[-1], dtype=tf.float32)), feed(R(shape[-1], dtype=tf.float32))
                mean, var = feed(R(shape[-1], dtype=tf.float32)), feed(R(shape[-1], lo=0.1, dtype=tf.float32))
                empty = tf.zeros([0])
                f = getattr(tf.raw_ops, name)
                a = f(x=x, scale=scale, offset=offset, mean=empty, variance=empty, epsilon=0.01)
                b = f(x=x, scale=scale, offset=offset, mean=mean, variance=var, is_training=False)
                c = f(x=x, scale=scale, offset=offset, mean=mean, variance=var, exponential_avg_factor=0.25)
                return list(a[:5]) + list(b[:3]) + list(c[:3])
            graph("%s_%s" % (name, "x".join(map(str, shape))), norm, dtypes=[dt], tol=2e-2 if dt != tf.float32 else 1e-4)
for training in (True, False):
    def both(dtype, training=training):
        x, scale, offset = feed(R(2, 3, 4, 5)), feed(R(5)), feed(R(5))
        mean, var = feed(R(5)), feed(R(5, lo=0.5))
        y = tf.raw_ops.FusedBatchNormV3(x=x, scale=scale, offset=offset, mean=mean, variance=var, is_training=training)[0]
        z = tf.reduce_sum(y * y * tf.constant(np.arange(120.).reshape(2, 3, 4, 5), dtype) / 50)
        first = tf.gradients(z, [x, scale, offset])
        second = tf.gradients(sum(tf.reduce_sum(g * g) for g in first), [x, scale])
        return first + second
    graph("batch_norm_gradients_%s" % training, both, dtypes=[tf.float32], tol=1e-3)
    op("FusedBatchNormV3", {"x": R(2, 3, 4, 5), "scale": R(5), "offset": R(5), "mean": const(np.zeros(0 if training else 5, np.float32)),
                            "variance": const(np.ones(0 if training else 5, np.float32))}, {"is_training": training},
       grad=["x", "scale", "offset"], only=[0, 1, 2, 3, 4] if training else [0, 1, 2], tol=1e-4)
op("FusedBatchNormV3", {"x": R(2, 5, 3, 4), "scale": R(5), "offset": R(5), "mean": const(np.zeros(0, np.float32)), "variance": const(np.zeros(0, np.float32))},
   {"data_format": "NCHW"}, only=[0, 1, 2, 3, 4], tol=1e-4)
op("LRN", {"input": R(2, 2, 3, 12)}, {"depth_radius": 2, "bias": 1.5, "alpha": 0.3, "beta": 0.75}, dtypes=[tf.float32, tf.float16], grad=True)
op("LRN", {"input": R(1, 2, 3, 4)}, grad=True)

for padding in ("SAME", "VALID"):
    for x, f, s, d in (((2, 5, 6, 3), (3, 2, 3, 1), 1, 1), ((2, 7, 6, 4), (3, 3, 4, 2), 2, 1), ((1, 5, 5, 33), (3, 3, 33, 1), 1, 1)):
        op("DepthwiseConv2dNative", {"input": R(*x), "filter": R(*f)}, {"strides": [1, s, s, 1], "padding": padding},
           dtypes=[tf.float32, tf.float64, tf.float16], grad=True)
    op("Dilation2D", {"input": R(2, 5, 6, 3), "filter": R(2, 3, 3)}, {"strides": [1, 2, 1, 1], "rates": [1, 1, 2, 1], "padding": padding},
       dtypes=[tf.float32, tf.float64, tf.int32], grad=True, fd=False)
for attr, what in (("strides", "Stride"), ("rates", "Rate")):
    for odd in ([2, 1, 1, 1], [1, 1, 1, 2]):
        op("Dilation2D", {"input": R(2, 5, 6, 3), "filter": R(2, 3, 3)},
           {"strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1], attr: odd, "padding": "SAME"}, error="UNIMPLEMENTED",
           message=f"{what} is only supported across spatial dimensions", name=f"{attr} {odd}")

for shape, k in (((10,), 3), ((4, 10), 10), ((2, 3, 50), 1), ((3, 5), 0), ((2, 1000), 20)):
    op("TopKV2", {"input": R(*shape, lo=-60, hi=60), "k": np.int32(k)}, dtypes=REALS, grad=["input"], fd=False)
op("TopKV2", {"input": V([[1., 3, 3, 2, 3, 1]]), "k": np.int32(5)}, dtypes=REALS)
op("TopKV2", {"input": R(2, 3), "k": np.int32(4)}, error="INVALID_ARGUMENT", message="input must have at least k columns. Had 3, needed 4")
op("InTopKV2", {"predictions": R(5, 7), "targets": np.array([0, 6, 3, 9, -1], np.int32), "k": np.int32(3)})
op("InTopK", {"predictions": V([[1, float("nan"), 2], [1, 2, float("inf")], [3, 2, 1]]), "targets": np.array([0, 2, 0], np.int32)}, {"k": 2})
for reverse in (False, True):
    for n in (0, 4, 9):
        op("NthElement", {"input": R(3, 10, lo=-60, hi=60), "n": np.int32(n)}, {"reverse": reverse}, dtypes=REALS, grad=["input"], fd=False)
