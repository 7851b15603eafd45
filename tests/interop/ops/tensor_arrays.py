"""Tensor arrays as resources (V3): what programs of the first generation of control flow use."""
from cases import *
from tensor_array_cases import FEW, GRADS, array_cases

tf.disable_control_flow_v2()
RAW = tf.raw_ops


def hidden(x):
    return tf.placeholder_with_default(x, None)


array_cases()


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
