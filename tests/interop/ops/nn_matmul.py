"""Matrix products, bias, activations, softmax and cross entropies."""
from cases import *

MATMUL = FLOATS + COMPLEX + [tf.int32, tf.int64]
for m, k, n in ((3, 5, 4), (1, 7, 1), (1, 30, 40), (40, 30, 1), (2, 9, 33), (37, 29, 61), (130, 17, 100), (0, 3, 2), (2, 0, 3),
                (2, 3, 0)):
    for ta in (False, True):
        for tb in (False, True):
            op("MatMul", {"a": R(*((k, m) if ta else (m, k))), "b": R(*((n, k) if tb else (k, n)))},
               {"transpose_a": ta, "transpose_b": tb}, dtypes=MATMUL if m == 3 else [tf.float32, tf.bfloat16, tf.complex64],
               grad=m == 3)
op("MatMul", {"a": R(130, 900), "b": R(900, 400)}, dtypes=[tf.float32, tf.float64, tf.bfloat16] + COMPLEX)
op("MatMul", {"a": R(20, 9000), "b": R(9000, 30)}, dtypes=FLOATS, tol=1e-2)
op("MatMul", {"a": R(2, 3), "b": R(4, 5)}, error="INVALID_ARGUMENT", message=r"Matrix size-incompatible: In\[0\]: \[2,3\]")
op("MatMul", {"a": R(3), "b": R(3, 5)}, error="INVALID_ARGUMENT", message="has different ndims")

for a, b in (((2, 3, 4), (2, 4, 5)), ((1, 3, 4), (6, 4, 5)), ((3, 1, 3, 4), (2, 4, 5)), ((3, 4), (2, 4, 5)), ((0, 3, 4), (0, 4, 2)),
             ((2, 3, 0), (2, 0, 5))):
    for ax in (False, True):
        for ay in (False, True):
            sa, sb = list(a), list(b)
            if ax: sa[-1], sa[-2] = sa[-2], sa[-1]
            if ay: sb[-1], sb[-2] = sb[-2], sb[-1]
            op("BatchMatMulV2", {"x": R(*sa), "y": R(*sb)}, {"adj_x": ax, "adj_y": ay},
               dtypes=FLOATS + COMPLEX + [tf.int32, tf.int64], grad=True)
            op("BatchMatMulV3", {"x": R(*sa), "y": R(*sb)}, {"adj_x": ax, "adj_y": ay, "Tout": DT},
               dtypes=[tf.float32, tf.complex64], grad=True)
            if len(a) == len(b) and a[0] == b[0]:
                op("BatchMatMul", {"x": R(*sa), "y": R(*sb)}, {"adj_x": ax, "adj_y": ay}, dtypes=FLOATS + COMPLEX, grad=True)
op("BatchMatMulV2", {"x": R(2, 2, 3), "y": R(3, 3, 5)}, error="INVALID_ARGUMENT", message="compatible batch dimensions")
op("BatchMatMulV2", {"x": R(3), "y": R(3, 3, 5)}, error="INVALID_ARGUMENT", message="In.0. ndims must be >= 2: 1")
op("BatchMatMul", {"x": R(2, 2, 3), "y": R(3, 3, 5)}, error="INVALID_ARGUMENT", message=r"In.0..dim.0. and In.1..dim.0. must be")
for ta in (False, True):
    for tb in (False, True):
        op("SparseMatMul", {"a": R(*((5, 3) if ta else (3, 5))), "b": R(*((4, 5) if tb else (5, 4)))},
           {"transpose_a": ta, "transpose_b": tb, "a_is_sparse": ta}, dtypes=[tf.float32, tf.bfloat16], grad=True, tol=2e-2)

for act in ([], ["Relu"], ["Relu6"], ["Elu"], ["LeakyRelu"], ["Tanh"], ["Sigmoid"], ["GeluExact"], ["GeluApproximate"]):
    def fused(dtype, act=act):
        x, w, b = feed(R(5, 7)), feed(R(7, 9)), feed(R(9))
        y = tf.nn.bias_add(tf.matmul(x, w), b)
        kinds = {"Relu": tf.nn.relu, "Relu6": tf.nn.relu6, "Elu": tf.nn.elu, "LeakyRelu": tf.nn.leaky_relu,
                 "Tanh": tf.tanh, "Sigmoid": tf.sigmoid, "GeluExact": lambda v: 0.5 * v * (1 + tf.math.erf(v / np.sqrt(2).astype("f"))),
                 "GeluApproximate": lambda v: 0.5 * v * (1 + tf.tanh(0.7978845608 * (v + 0.044715 * v * v * v)))}
        return [kinds[a](y) for a in act] or [y]
    graph("dense_" + "_".join(act), fused, dtypes=[tf.float32, tf.bfloat16])

for shape in ((4, 3), (2, 5, 3), (2, 3, 4, 3), (0, 3), (500, 33), (2, 0, 3)):
    op("BiasAdd", {"value": R(*shape), "bias": R(shape[-1])}, dtypes=NUMBERS if shape[0] < 9 else FLOATS[:2], grad=True)
    op("BiasAddV1", {"value": R(*shape), "bias": R(shape[-1])}, dtypes=[tf.float32, tf.int32], grad=True)
    op("BiasAddGrad", {"out_backprop": R(*shape)}, dtypes=NUMBERS if shape[0] < 9 else FLOATS[:2], grad=True)
for shape in ((4, 3, 5), (2, 3, 4, 3), (2, 3, 4, 3, 2)):
    op("BiasAdd", {"value": R(*shape), "bias": R(shape[1])}, {"data_format": "NCHW"}, dtypes=[tf.float32, tf.int32], grad=True)
    op("BiasAddGrad", {"out_backprop": R(*shape)}, {"data_format": "NCHW"}, dtypes=FLOATS, grad=True)
op("BiasAdd", {"value": R(2), "bias": R(2)}, error="INVALID_ARGUMENT", message="Input tensor must be at least 2D: .2.")
op("BiasAdd", {"value": R(2, 3), "bias": R(2, 3)}, error="INVALID_ARGUMENT", message="Biases must be 1D")
op("BiasAdd", {"value": R(2, 3), "bias": R(2)}, error="INVALID_ARGUMENT", message="Must provide as many biases")

for shape in ((2, 3), (), (0, 4), (70001,)):
    for name in ("Relu", "Relu6"):
        op(name, {"features": R(*shape, lo=-9, hi=9)}, dtypes=REALS if shape != (70001,) else FLOATS, grad=True, fd=False)
        op(name + "Grad", {"gradients": R(*shape), "features": R(*shape, lo=-9, hi=9)},
           dtypes=REALS if shape != (70001,) else FLOATS, grad=True, fd=False)
    for name in ("Elu", "Selu", "Softplus", "Softsign", "LeakyRelu"):
        op(name, {"features": R(*shape, lo=-30, hi=30)}, dtypes=FLOATS if shape != (70001,) else FLOATS[:2], grad=True, fd=False)
    for name in ("Softplus", "Softsign", "LeakyRelu"):
        op(name + "Grad", {"gradients": R(*shape), "features": R(*shape, lo=-9, hi=9)}, dtypes=FLOATS, grad=name != "Softsign", fd=False)
    for name in ("Elu", "Selu"):
        op(name + "Grad", {"gradients": R(*shape), "outputs": R(*shape, lo=-1, hi=9)}, dtypes=FLOATS, grad=True, fd=False)
op("LeakyRelu", {"features": R(50)}, {"alpha": 1.5}, dtypes=FLOATS, grad=True, fd=False)
op("Softplus", {"features": V([-100., -20, -15, -13, 0, 13, 15, 20, 100])}, dtypes=[tf.float32, tf.float64])
op("Relu", {"features": V([float("nan"), float("inf"), -float("inf"), -0.0])}, dtypes=FLOATS)
for name in ("ReluGrad", "Relu6Grad"):
    op(name, {"gradients": V([float("nan"), float("inf"), float("nan"), 2, -float("inf"), float("nan")]),
              "features": V([-1., -1, 1, float("nan"), 7, 0])}, dtypes=FLOATS, name="no numbers")
op("ReluGrad", {"gradients": R(2, 3), "features": R(3)}, error="INVALID_ARGUMENT", message="must have the same size and shape")

for shape in ((3, 4), (5,), (2, 3, 4), (0, 4), (300, 10), (4, 1000), (3, 1)):
    op("Softmax", {"logits": R(*shape, lo=-20, hi=20)}, dtypes=FLOATS, grad=True)
    op("LogSoftmax", {"logits": R(*shape, lo=-20, hi=20)}, dtypes=FLOATS, grad=True)
op("Softmax", {"logits": V([[1000., 1000, -1000]])}, dtypes=[tf.float32, tf.float64])
# oneDNN's kernels, TensorFlow's choice on x86_64 for float32, say ABORTED.
op("Softmax", {"logits": R()}, dtypes=[tf.float64], error="INVALID_ARGUMENT", message="logits must have >= 1 dimension")
for shape, labels in (((3, 4), (3, 4)), ((3, 4), (1, 4)), ((3, 4), (4,)), ((1, 4), (3, 4)), ((3, 4), (3, 1)), ((0, 3), (0, 3)), ((200, 10), (200, 10))):
    op("SoftmaxCrossEntropyWithLogits", {"features": R(*shape), "labels": R(*labels, lo=0, hi=1)}, dtypes=FLOATS,
       grad=shape == labels, fd=False)  # the gradient supposes that labels add up to 1
op("SoftmaxCrossEntropyWithLogits", {"features": R(2, 3), "labels": R(2, 4)}, error="INVALID_ARGUMENT", message="must be broadcastable")
for t in (np.int32, np.int64):
    op("SparseSoftmaxCrossEntropyWithLogits", {"features": R(4, 3), "labels": np.array([0, 2, 1, 0], t)}, dtypes=FLOATS, grad=["features"])
op("SparseSoftmaxCrossEntropyWithLogits", {"features": R(0, 3), "labels": np.zeros(0, np.int32)}, dtypes=FLOATS)
for bad in ([0, 3], [-1, 2]):
    op("SparseSoftmaxCrossEntropyWithLogits", {"features": R(2, 3), "labels": np.array(bad)}, error="INVALID_ARGUMENT",
       message=r"Received a label value of (3|-1) which is outside the valid range of \[0, 3\).  Label values: -?\d \d")
op("SparseSoftmaxCrossEntropyWithLogits", {"features": R(2, 3), "labels": np.array([0])}, error="INVALID_ARGUMENT", message="same first dimension")
