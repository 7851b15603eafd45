"""Stacks, tensor lists, and tensor arrays made of lists, with gradients."""
from cases import *
from tensor_array_cases import FEW, GRADS, array_cases

RAW = tf.raw_ops


def hidden(x):
    return tf.placeholder_with_default(x, None)


# ---- tensor arrays made of lists ----

array_cases()


# ---- stacks ----

def stack(dtype):
    h = RAW.StackV2(max_size=2, elem_type=dtype)
    x, y = feed(R(2)), feed(R(3))  # here: one that is fed does not wait for what its placeholder waits for
    a = RAW.StackPushV2(handle=h, elem=x)
    with tf.control_dependencies([a]):
        b = RAW.StackPushV2(handle=h, elem=y)
    with tf.control_dependencies([b]):
        c = RAW.StackPopV2(handle=h, elem_type=dtype)
    with tf.control_dependencies([c]):
        d = RAW.StackPopV2(handle=h, elem_type=dtype)
    return [a, b, c, d]


graph("stack", stack, dtypes=FEW, tol=0)


def stack_fails(full):
    h = RAW.StackV2(max_size=1, elem_type=tf.float32, stack_name="s")
    if not full:
        return [RAW.StackPopV2(handle=h, elem_type=tf.float32)]
    with tf.control_dependencies([RAW.StackPushV2(handle=h, elem=1.)]):
        return [RAW.StackPushV2(handle=h, elem=2.)]


graph("stack full", lambda: stack_fails(True), error="INVALID_ARGUMENT", message=r"Stack\[s_\d+\] overflowed its max_size \(1\)")
graph("stack empty", lambda: stack_fails(False), error="INVALID_ARGUMENT", message=r"Stack\[s_\d+\] is empty when calling Pop")


# ---- lists ----

def list_ops(dtype):
    x = feed(R(4, 3))
    empty = RAW.EmptyTensorList(element_shape=[3], max_num_elements=-1, element_dtype=dtype)
    one = RAW.TensorListPushBack(input_handle=empty, tensor=feed(R(3)))
    two = RAW.TensorListPushBack(input_handle=one, tensor=feed(R(3)))
    popped, last = RAW.TensorListPopBack(input_handle=two, element_shape=-1, element_dtype=dtype)
    rows = RAW.TensorListFromTensor(tensor=x, element_shape=[3])
    set_ = RAW.TensorListSetItem(input_handle=rows, index=2, item=feed(R(3)))
    scattered = RAW.TensorListScatterV2(tensor=x, indices=[5, 0, 2, 1], element_shape=[3], num_elements=-1)
    both = RAW.TensorListConcatLists(input_a=rows, input_b=two, element_dtype=dtype)
    parts = RAW.TensorListSplit(tensor=x, element_shape=[-1, 3], lengths=tf.constant([1, 0, 3], tf.int64))

    def whole(l):
        return RAW.TensorListStack(input_handle=l, element_shape=-1, element_dtype=dtype)
    return [whole(two), whole(popped), last, whole(set_), whole(rows), whole(both),
            RAW.TensorListLength(input_handle=both), RAW.TensorListElementShape(input_handle=rows, shape_type=tf.int64),
            RAW.TensorListGetItem(input_handle=rows, index=1, element_shape=[3], element_dtype=dtype),
            RAW.TensorListGather(input_handle=rows, indices=[3, 3, 0], element_shape=-1, element_dtype=dtype),
            RAW.TensorListGather(input_handle=scattered, indices=[5, 0], element_shape=-1, element_dtype=dtype),
            RAW.TensorListConcatV2(input_handle=parts, element_shape=[-1, 3], leading_dims=tf.constant([], tf.int64),
                                   element_dtype=dtype)[0],
            RAW.TensorListConcat(input_handle=parts, element_dtype=dtype)[1],
            RAW.TensorListLength(input_handle=RAW.TensorListResize(input_handle=rows, size=7)),
            whole(RAW.TensorListScatterIntoExistingList(input_handle=rows, tensor=feed(R(2, 3)), indices=[1, 3]))]


graph("list ops", list_ops, dtypes=FEW, tol=0)


def list_zeros(dtype):
    r = RAW.TensorListReserve(element_shape=[2], num_elements=3, element_dtype=dtype)
    s = RAW.TensorListSetItem(input_handle=r, index=1, item=feed(R(2)))
    return [RAW.TensorListStack(input_handle=s, element_shape=-1, element_dtype=dtype),
            RAW.TensorListGetItem(input_handle=s, index=0, element_shape=-1, element_dtype=dtype),
            RAW.TensorListStack(input_handle=tf.zeros_like(s), element_shape=[2], element_dtype=dtype),
            RAW.TensorListStack(input_handle=tf.add_n([s, s]), element_shape=[2], element_dtype=dtype),
            RAW.TensorListLength(input_handle=RAW.TensorListSetItem(input_handle=s, index=5, item=feed(R(2)),
                                                                    resize_if_index_out_of_bounds=True))]


graph("unset elements", list_zeros, dtypes=[tf.float32, tf.int32], tol=0)


def list_grad(dtype):
    x = feed(R(4, 3))
    rows = RAW.TensorListFromTensor(tensor=x * x, element_shape=[3])
    item = RAW.TensorListGetItem(input_handle=rows, index=1, element_shape=[3], element_dtype=dtype)
    set_ = RAW.TensorListSetItem(input_handle=rows, index=2, item=item * 3)
    pushed = RAW.TensorListPushBack(input_handle=set_, tensor=item * item)
    popped, last = RAW.TensorListPopBack(input_handle=pushed, element_shape=[3], element_dtype=dtype)
    return [RAW.TensorListStack(input_handle=pushed, element_shape=[3], element_dtype=dtype), last,
            RAW.TensorListStack(input_handle=popped, element_shape=[3], element_dtype=dtype),
            RAW.TensorListGather(input_handle=rows, indices=[0, 2], element_shape=[3], element_dtype=dtype),
            RAW.TensorListConcatV2(input_handle=RAW.TensorListSplit(
                tensor=x * x, element_shape=[-1, 3], lengths=tf.constant([1, 3], tf.int64)), element_shape=[-1, 3],
                leading_dims=tf.constant([], tf.int64), element_dtype=dtype)[0]]


graph("list gradients", list_grad, dtypes=GRADS, grad=True)


def list_fails(name, message, build):
    def made():
        l = RAW.TensorListFromTensor(tensor=[[1., 2.], [3., 4.]], element_shape=[2])
        made = build(l)
        return [RAW.TensorListLength(input_handle=made) if made.dtype == tf.variant else made]
    graph(name, made, error="INVALID_ARGUMENT", message=message)


list_fails("get outside", "Trying to access element 2 in a list with 2 elements.",
           lambda l: RAW.TensorListGetItem(input_handle=l, index=2, element_shape=-1, element_dtype=tf.float32))
list_fails("set outside", "Trying to modify element 2 in a list with 2 elements.",
           lambda l: RAW.TensorListSetItem(input_handle=l, index=2, item=[1., 2.]))
list_fails("push another shape", r"Tried to append a tensor with incompatible shape to a list. Op element shape: \[3\]",
           lambda l: RAW.TensorListPushBack(input_handle=l, tensor=hidden([1., 2., 3.])))
list_fails("a wrong number", "Operation expected a list with 3 elements but got a list with 2 elements.",
           lambda l: RAW.TensorListStack(input_handle=l, element_shape=-1, element_dtype=tf.float32, num_elements=3))
