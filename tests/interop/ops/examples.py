"""A few cases of each form; cases.py explains them."""
from cases import *

BROADCASTS = [((2, 3), (2, 3)), ((2, 3), (3,)), ((4, 1, 3), (2, 1)), ((), (5,)), ((0, 3), (1, 3)), ((), ())]
for a, b in BROADCASTS:
    op("AddV2", {"x": R(*a), "y": R(*b)}, dtypes=NUMBERS, grad=True)
op("AddV2", {"x": R(2, 3), "y": R(4)}, error="INVALID_ARGUMENT", message="Incompatible shapes")

for transpose_a, a in ((False, (3, 5)), (True, (5, 3))):
    for transpose_b, b in ((False, (5, 4)), (True, (4, 5))):
        op("MatMul", {"a": R(*a), "b": R(*b)}, {"transpose_a": transpose_a, "transpose_b": transpose_b},
           dtypes=FLOATS + COMPLEX + [tf.int32, tf.int64], grad=True)
op("MatMul", {"a": R(0, 3), "b": R(3, 2)})
op("MatMul", {"a": R(2, 3), "b": R(2, 3)}, error="INVALID_ARGUMENT")

for axis in ([], [0], [-1], [0, 2], [0, 1, 2]):
    for keep in (False, True):
        op("Sum", {"input": R(2, 3, 4), "axis": const(np.array(axis, np.int32))}, {"keep_dims": keep},
           dtypes=NUMBERS, grad=True)


def assign_add(dtype):
    v = tf.get_variable("v", [3], dtype, tf.zeros_initializer(), use_resource=True)
    ref = tf.get_variable("r", [3], dtype, tf.zeros_initializer(), use_resource=False)
    x = feed(R(3))
    return [[v.initializer, ref.initializer], [v.assign_add(x), ref.assign_add(x)], [v.read_value(), ref]]


graph("assign_add", assign_add, dtypes=[tf.float32, tf.float64, tf.int64])
