"""Programs with tensor arrays, for both of their forms: made of lists, and as resources. Which it is depends on
tf.disable_control_flow_v2(), which a file of cases calls before array_cases()."""
from cases import *

FEW = [tf.float32, tf.int64, tf.string, tf.bool, tf.complex64, tf.float16]
GRADS = [tf.float32, tf.float64]


def array_write_read(dtype):
    a = tf.TensorArray(dtype, 3, clear_after_read=False)
    a = a.write(0, feed(R(2, 3))).write(2, feed(R(2, 3))).write(1, feed(R(2, 3)))
    return [a.read(0), a.read(2), a.stack(), a.gather([2, 0, 2]), a.size(), a.concat()]


def array_unstack(dtype):
    a = tf.TensorArray(dtype, 4).unstack(feed(R(4, 2)))
    b = tf.TensorArray(dtype, 0, dynamic_size=True, infer_shape=False).split(feed(R(5, 2)), [1, 0, 4])
    c = tf.TensorArray(dtype, 0, dynamic_size=True).scatter([3, 1], feed(R(2, 2)))
    return [a.read(1), b.read(2), c.read(3), c.size(), b.size()]



def array_grad(dtype):
    x = feed(R(3, 2))
    a = tf.TensorArray(dtype, 3, clear_after_read=False).unstack(x)
    b = tf.TensorArray(dtype, 3).write(0, a.read(0) * a.read(1)).write(1, a.read(2) * 2).write(2, a.read(0) * 3)
    c = tf.TensorArray(dtype, 2, infer_shape=False).split(x, [2, 1])
    return [b.stack(), c.read(0) * c.read(1), a.gather([1, 2]), tf.TensorArray(dtype, 2, infer_shape=False).split(
        x * x, [1, 2]).concat()]



def array_loop(dtype):
    x = feed(R(5, 3))
    xs = tf.TensorArray(dtype, 5).unstack(x)
    out = tf.TensorArray(dtype, 5)
    loop = tf.while_loop(lambda i, h, out: i < 5,
                         lambda i, h, out: (i + 1, tf.tanh(h + xs.read(i)), out.write(i, h)),
                         [0, feed(R(3)), out])
    return [loop[1], loop[2].stack()]


def array_cases():
    graph("array write and read", array_write_read, dtypes=FEW, tol=0)
    graph("array unstack, split, scatter", array_unstack, dtypes=FEW, tol=0)
    graph("array gradients", array_grad, dtypes=GRADS, grad=True)
    graph("array in a loop", array_loop, dtypes=GRADS, grad=True)
