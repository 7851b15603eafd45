"""Maps from tensors to tensors."""
from cases import *

RAW = tf.raw_ops


def insert(m, key, value):
    return RAW.TensorMapInsert(input_handle=m, key=key, value=value)


def lookup(m, key, dtype):
    return RAW.TensorMapLookup(input_handle=m, key=key, value_dtype=dtype)


def maps(dtype):
    one, two = feed(V([1, 2])), feed(V([1, 3]))
    a = insert(RAW.EmptyTensorMap(), one, feed(R(3)))
    b = insert(a, two, feed(R(2, 2)))
    c = insert(b, one, feed(R(4)))
    d = RAW.TensorMapErase(input_handle=c, key=one, value_dtype=dtype)
    other = insert(d, tf.constant("text"), feed(R(1)))
    zeros, both = tf.zeros_like(c), tf.add_n([c, d])
    return [RAW.TensorMapSize(input_handle=m) for m in (a, b, c, d, other, zeros, both)] + \
           [lookup(a, one, dtype), lookup(b, one, dtype), lookup(c, one, dtype), lookup(c, two, dtype), lookup(d, two, dtype),
            lookup(other, tf.constant("text"), dtype), lookup(both, two, dtype), lookup(both, one, dtype)] + \
           [RAW.TensorMapHasKey(input_handle=m, key=k) for m in (a, d) for k in (one, two)] + \
           [RAW.TensorMapHasKey(input_handle=c, key=tf.reshape(one, [1, 2])), RAW.TensorMapStackKeys(input_handle=a, key_dtype=dtype)]


graph("map", maps, dtypes=[tf.float32, tf.int64], tol=0)


def many():
    m = RAW.EmptyTensorMap()
    for i in range(40):
        m = insert(m, tf.constant(i * 7), tf.constant([float(i)]))
    for i in range(0, 40, 3):
        m = RAW.TensorMapErase(input_handle=m, key=tf.constant(i * 7), value_dtype=tf.float32)
    keys = tf.sort(RAW.TensorMapStackKeys(input_handle=m, key_dtype=tf.int32))
    return [RAW.TensorMapSize(input_handle=m), keys, lookup(m, tf.constant(7 * 38), tf.float32)]


graph("many keys", many, tol=0)


def loop():
    def body(i, m):
        return i + 1, insert(m, i % 17, tf.cast(i, tf.float32))
    _, m = tf.while_loop(lambda i, m: i < 50, body, [tf.constant(0), RAW.EmptyTensorMap()])
    return [RAW.TensorMapSize(input_handle=m), lookup(m, tf.constant(15), tf.float32)]


graph("map in a loop", loop, tol=0)


def fails(name, build, message):
    graph(name, lambda: [build(insert(RAW.EmptyTensorMap(), tf.constant("k"), tf.constant([1.])))], error="INVALID_ARGUMENT",
          message=message)


fails("lookup of a missing key", lambda m: lookup(m, tf.constant("x"), tf.float32), "lookup non-existent key.*\"x\"")
fails("erasing a missing key", lambda m: RAW.TensorMapSize(input_handle=RAW.TensorMapErase(
    input_handle=m, key=tf.constant("x"), value_dtype=tf.float32)), "erase non-existent item")
fails("keys of another type", lambda m: RAW.TensorMapStackKeys(input_handle=m, key_dtype=tf.int32), "requested dtype")
fails("keys of different shapes", lambda m: RAW.TensorMapStackKeys(
    input_handle=insert(m, tf.constant(["k"]), tf.constant(1.)), key_dtype=tf.string), "same shape")
graph("keys of an empty map", lambda: [RAW.TensorMapStackKeys(input_handle=RAW.EmptyTensorMap(), key_dtype=tf.int32)],
      error="INVALID_ARGUMENT", message="empty map")
graph("a list is no map", lambda: [RAW.TensorMapSize(input_handle=RAW.EmptyTensorList(
    element_shape=[1], max_num_elements=-1, element_dtype=tf.float32))], error="INVALID_ARGUMENT", message="is not a map")
