"""Tensor arrays as resources (V3): what programs of the first generation of control flow use."""
from cases import *

tf.disable_control_flow_v2()
RAW = tf.raw_ops
FEW = [tf.float32, tf.int64, tf.string, tf.bool, tf.complex64, tf.float16]
GRADS = [tf.float32, tf.float64]


def hidden(x):
    return tf.placeholder_with_default(x, None)


def array_write_read(dtype):
    a = tf.TensorArray(dtype, 3, clear_after_read=False)
    a = a.write(0, feed(R(2, 3))).write(2, feed(R(2, 3))).write(1, feed(R(2, 3)))
    return [a.read(0), a.read(2), a.stack(), a.gather([2, 0, 2]), a.size(), a.concat()]


def array_unstack(dtype):
    a = tf.TensorArray(dtype, 4).unstack(feed(R(4, 2)))
    b = tf.TensorArray(dtype, 0, dynamic_size=True, infer_shape=False).split(feed(R(5, 2)), [1, 0, 4])
    c = tf.TensorArray(dtype, 0, dynamic_size=True).scatter([3, 1], feed(R(2, 2)))
    return [a.read(1), b.read(2), c.read(3), c.size(), b.size()]


graph("array write and read", array_write_read, dtypes=FEW, tol=0)
graph("array unstack, split, scatter", array_unstack, dtypes=FEW, tol=0)


def array_grad(dtype):
    x = feed(R(3, 2))
    a = tf.TensorArray(dtype, 3, clear_after_read=False).unstack(x)
    b = tf.TensorArray(dtype, 3).write(0, a.read(0) * a.read(1)).write(1, a.read(2) * 2).write(2, a.read(0) * 3)
    c = tf.TensorArray(dtype, 2, infer_shape=False).split(x, [2, 1])
    return [b.stack(), c.read(0) * c.read(1), a.gather([1, 2]), tf.TensorArray(dtype, 2, infer_shape=False).split(
        x * x, [1, 2]).concat()]


graph("array gradients", array_grad, dtypes=GRADS, grad=True)


def array_loop(dtype):
    x = feed(R(5, 3))
    xs = tf.TensorArray(dtype, 5).unstack(x)
    out = tf.TensorArray(dtype, 5)
    loop = tf.while_loop(lambda i, h, out: i < 5,
                         lambda i, h, out: (i + 1, tf.tanh(h + xs.read(i)), out.write(i, h)),
                         [0, feed(R(3)), out])
    return [loop[1], loop[2].stack()]


graph("array in a loop", array_loop, dtypes=GRADS, grad=True)


def array_fails(name, message, build, code="INVALID_ARGUMENT"):
    def made():
        h, f = RAW.TensorArrayV3(size=2, dtype=tf.float32, tensor_array_name="a")
        return [build(h, f)]
    graph(name, made, error=code, message=message)


def write(h, i, v, f):
    return RAW.TensorArrayWriteV3(handle=h, index=i, value=v, flow_in=f)


def read(h, i, f, t=tf.float32):
    return RAW.TensorArrayReadV3(handle=h, index=i, flow_in=f, dtype=t)


array_fails("write outside", r"TensorArray a_\d+: Tried to write to index 2 but array is not resizeable and size is: 2",
            lambda h, f: write(h, 2, 1., f))
array_fails("write twice", "Could not write to TensorArray index 0 because it has already been written to.",
            lambda h, f: write(h, 0, 2., write(h, 0, 1., f)))
array_fails("read unwritten", "Could not read from TensorArray index 1.  Furthermore, the element shape is not fully",
            lambda h, f: read(h, 1, f))
array_fails("read outside", "Tried to read from index 7 but array size is: 2", lambda h, f: read(h, 7, f))
array_fails("read as another type", "TensorArray dtype is float but Op requested dtype int32.",
            lambda h, f: read(h, 0, f, tf.int32))
array_fails("write another type", "TensorArray dtype is float but Op is trying to write dtype int32.",
            lambda h, f: write(h, 0, 1, f))
array_fails("read twice", "Could not read index 0 twice because it was cleared after a previous read",
            lambda h, f: read(h, 0, write(h, 1, read(h, 0, write(h, 0, 1., f)), f)))
array_fails("stack of different shapes", "TensorArray has inconsistent shapes.  Index 0 has shape: ",
            lambda h, f: RAW.TensorArrayGatherV3(handle=h, indices=[0, 1], dtype=tf.float32,
                                                 flow_in=write(h, 1, [1., 2.], write(h, 0, 1., f))))
array_fails("index is no scalar", r"TensorArray index must be scalar, but had shape: \[1\]",
            lambda h, f: write(h, hidden([0]), 1., f))


def closed():
    h, f = RAW.TensorArrayV3(size=2, dtype=tf.float32, tensor_array_name="a")
    with tf.control_dependencies([RAW.TensorArrayCloseV3(handle=h)]):
        return [RAW.TensorArraySizeV3(handle=h, flow_in=tf.identity(f))]


graph("use after close", closed, error="INVALID_ARGUMENT", message="has already been closed")
