"""Batches of calls, and the functions on them."""
from cases import *
from tensorflow.python.framework import function

RAW = tf.raw_ops


def batched(tensors, **attrs):
    return RAW.Batch(in_tensors=tensors, num_batch_threads=1, max_batch_size=8, batch_timeout_micros=0, grad_timeout_micros=0, **attrs)


def there_and_back(dtype, sizes=()):
    x, y = feed(R(3, 2)), feed(R(3))
    b = batched([x, y], allowed_batch_sizes=list(sizes))
    parts = [RAW.Unbatch(batched_tensor=t, batch_index=b.batch_index, id=b.id, timeout_micros=1000000) for t in b.batched_tensors]
    grad = RAW.UnbatchGrad(original_input=b.batched_tensors[1], batch_index=b.batch_index, grad=y, id=b.id)
    return list(b.batched_tensors) + parts + [b.batch_index[:, 1:], grad]


TYPES = [tf.float32, tf.int64, tf.string]
graph("batch and unbatch", there_and_back, dtypes=TYPES, tol=0)
graph("padded batch", lambda d: there_and_back(d, [2, 4, 8]), dtypes=TYPES, tol=0)
graph("batch of too much", lambda: [batched([feed(R(9))]).id], error="INVALID_ARGUMENT")
graph("batch of unequal", lambda: [batched([feed(R(2)), feed(R(3))]).id], error="INVALID_ARGUMENT")
graph("batch of a scalar", lambda: [batched([feed(R())]).id], error="INVALID_ARGUMENT")
graph("sizes that fall", lambda: [batched([feed(R(2))], allowed_batch_sizes=[4, 2, 8]).id], error="INVALID_ARGUMENT")
graph("sizes without the largest", lambda: [batched([feed(R(2))], allowed_batch_sizes=[2, 4]).id], error="INVALID_ARGUMENT")
L = lambda x: np.array(x, np.int64)
op("Unbatch", {"batched_tensor": R(5, 2), "batch_index": L([[7, 0, 2], [9, 2, 5]]), "id": L(9)}, {"timeout_micros": 1000})
for index, id_, error in ((L([[7, 0, 2], [9, 2, 5]]), L([9]), "INVALID_ARGUMENT"), (L([[7, 0]]), L(7), "INVALID_ARGUMENT"),
                          (L([[7, 0, 9]]), L(7), "INVALID_ARGUMENT"), (L([[7, 0, 5]]), L(8), "DEADLINE_EXCEEDED")):
    op("Unbatch", {"batched_tensor": R(5, 2), "batch_index": index, "id": id_}, {"timeout_micros": 1000}, error=error)
op("UnbatchGrad", {"original_input": R(0, 2), "batch_index": np.zeros([0, 3], np.int64), "grad": R(3, 2), "id": L(1)})


def through_function(**attrs):
    def build():
        @function.Defun(tf.float32, tf.float32)
        def f(x, scale):
            return x * scale + 1.0, tf.reduce_sum(x, 1)
        out = RAW.BatchFunction(in_tensors=[feed(R(3, 2))], captured_tensors=[feed(R())], f=f, num_batch_threads=1, max_batch_size=4,
                                batch_timeout_micros=0, Tout=[tf.float32, tf.float32], **attrs)
        return list(out)
    return build


graph("batch function", through_function())
graph("padded batch function", through_function(allowed_batch_sizes=[2, 4]))
