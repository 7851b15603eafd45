"""Convolutions and pooling, in two and three dimensions, with their gradients."""
from cases import *

def conv2d(x, f, strides=(1, 1), padding="SAME", dilations=(1, 1), dtypes=(tf.float32,), grad=True, tol=None, **more):
    attrs = {"strides": [1, *strides, 1], "padding": padding, "dilations": [1, *dilations, 1], **more}
    op("Conv2D", {"input": R(*x), "filter": R(*f)}, attrs, dtypes=list(dtypes), grad=grad, tol=tol)

CONV = [tf.float32, tf.float64, tf.float16]
for padding in ("SAME", "VALID"):
    conv2d((2, 5, 5, 3), (3, 3, 3, 4), padding=padding, dtypes=CONV)
    conv2d((1, 7, 6, 2), (2, 3, 2, 5), (2, 2), padding, dtypes=CONV)
    conv2d((2, 9, 8, 3), (3, 2, 3, 4), padding=padding, dilations=(2, 3), grad=X86)
    conv2d((1, 5, 5, 1), (5, 5, 1, 1), (3, 2), padding)
    conv2d((3, 4, 4, 8), (1, 1, 8, 16), padding=padding)
    conv2d((3, 5, 4, 8), (1, 1, 8, 6), (2, 2), padding)
    conv2d((1, 13, 13, 33), (3, 3, 33, 17), padding=padding)
# Where a processor has no AVX-512 TensorFlow sums the first one's gradients in bfloat16.
conv2d((2, 5, 5, 3), (3, 3, 3, 4), dtypes=[tf.bfloat16], tol=2e-2)
conv2d((2, 5, 5, 8), (3, 3, 8, 12), dtypes=[tf.bfloat16], tol=1e-2)
conv2d((2, 28, 28, 1), (5, 5, 1, 32))
conv2d((2, 14, 14, 32), (5, 5, 32, 64))
conv2d((2, 5, 5, 4), (3, 3, 2, 6), grad=False)
conv2d((2, 5, 5, 3), (3, 3, 3, 4), padding="EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0])
conv2d((2, 5, 6, 3), (2, 3, 3, 4), (2, 1), padding="EXPLICIT", explicit_paddings=[0, 0, 0, 1, 2, 2, 0, 0])
op("Conv2D", {"input": R(1, 5, 5, 3), "filter": R(3, 3, 2, 2)}, {"strides": [1, 1, 1, 1], "padding": "SAME"},
   error="INVALID_ARGUMENT", message="input depth must be evenly divisible by filter depth: 3 vs 2")
op("Conv2DBackpropInput", {"input_sizes": np.array([5, 5], np.int32), "filter": R(3, 3, 2, 4), "out_backprop": R(2, 5, 5, 4)},
   {"strides": [1, 1, 1, 1], "padding": "SAME"})
op("Conv2DBackpropInput", {"input_sizes": const(np.array([2, 6, 5, 2], np.int32)), "filter": R(3, 3, 2, 4), "out_backprop": R(2, 3, 3, 4)},
   {"strides": [1, 2, 2, 1], "padding": "SAME"}, dtypes=CONV, grad=["filter", "out_backprop"])
op("Conv2DBackpropFilter", {"input": R(2, 6, 5, 2), "filter_sizes": const(np.array([3, 3, 2, 4], np.int32)), "out_backprop": R(2, 3, 3, 4)},
   {"strides": [1, 2, 2, 1], "padding": "SAME"}, dtypes=CONV, grad=["input", "out_backprop"])
for padding in ("SAME", "VALID"):
    for strides in ((1, 1, 1), (2, 1, 2)):
        op("Conv3D", {"input": R(2, 4, 5, 3, 2), "filter": R(2, 3, 2, 2, 3)}, {"strides": [1, *strides, 1], "padding": padding},
           dtypes=[tf.float32, tf.float64], grad=True)

# An empty batch: TensorFlow's own kernels give the input's shape, or end the process; the answer is plain.
op("Conv2DBackpropFilter", {"input": R(0, 6, 5, 2), "filter_sizes": const(np.array([3, 3, 2, 4], np.int32)), "out_backprop": R(0, 3, 3, 4)},
   {"strides": [1, 2, 2, 1], "padding": "SAME"})

def fused(dtype):
    x, f, b = feed(R(2, 6, 6, 3)), feed(R(3, 3, 3, 5)), feed(R(5))
    y = tf.nn.bias_add(tf.nn.conv2d(x, f, [1, 1, 1, 1], "SAME"), b)
    return [tf.nn.relu(y), tf.nn.elu(y)]
graph("conv_bias_relu", fused, dtypes=[tf.float32])

def pool(name, x, ksize, strides, padding, dtypes=(tf.float32,), arg="input", **more):
    op(name, {arg: R(*x, lo=-50, hi=50)}, {"ksize": [1, *ksize, 1], "strides": [1, *strides, 1], "padding": padding, **more},
       dtypes=list(dtypes), grad=True, fd=False)

for padding in ("SAME", "VALID"):
    for x, k, s in (((2, 6, 6, 3), (2, 2), (2, 2)), ((2, 7, 5, 3), (3, 2), (2, 1)), ((1, 5, 5, 70), (2, 2), (2, 2)), ((1, 5, 5, 2), (1, 1), (2, 2)),
                    ((1, 6, 7, 1), (3, 3), (1, 1))):
        first = x == (2, 6, 6, 3)
        pool("MaxPool", x, k, s, padding, FLOATS + [tf.int32, tf.int64, tf.uint8, tf.int16, tf.int8, tf.uint16] if first else FLOATS[:1])
        pool("AvgPool", x, k, s, padding, FLOATS if first else FLOATS[:1], arg="value")
        for batch in (False, True):
            pool("MaxPoolWithArgmax", x, k, s, padding, FLOATS[:3] if first else FLOATS[:1], include_batch_in_index=batch)
        op("MaxPoolV2", {"input": R(*x, lo=-50, hi=50), "ksize": const(np.array([1, *k, 1], np.int32)),
                         "strides": const(np.array([1, *s, 1], np.int32))}, {"padding": padding}, grad=["input"], fd=False)
op("MaxPool", {"input": R(2, 3, 3, 8)}, {"ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2], "padding": "VALID"})
op("MaxPool", {"input": V(np.zeros((1, 4, 4, 2)))}, {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}, grad=True, fd=False)
op("MaxPool", {"input": V(np.zeros((1, 4, 4, 2)))}, {"ksize": [1, 3, 3, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}, grad=True, fd=False)
op("MaxPoolGradGrad", {"orig_input": V(np.arange(32.).reshape(1, 4, 4, 2)), "orig_output": V(np.array([10., 11, 14, 15, 26, 27, 30, 31]).reshape(1, 2, 2, 2)), "grad": R(1, 4, 4, 2)},
   {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"})
for padding in ("SAME", "VALID"):
    for name, arg in (("MaxPool3D", "input"), ("AvgPool3D", "input")):
        op(name, {arg: R(2, 4, 5, 3, 2, lo=-50, hi=50)}, {"ksize": [1, 2, 3, 2, 1], "strides": [1, 2, 1, 2, 1], "padding": padding},
           grad=True, fd=False)

for name in ("FractionalMaxPool", "FractionalAvgPool"):
    for pseudo in (False, True):
        for overlapping in (False, True):
            op(name, {"value": R(2, 11, 13, 3, lo=-50, hi=50)},
               {"pooling_ratio": [1.0, 1.6, 2.3, 1.0], "pseudo_random": pseudo, "overlapping": overlapping, "deterministic": True, "seed": 5, "seed2": 7},
               dtypes=[tf.float32, tf.float64, tf.int32, tf.int64] if overlapping else [tf.float32], grad=True, fd=False)
