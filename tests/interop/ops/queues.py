"""Queues and conditional accumulators: values, sizes and errors, over several runs of one session."""
from cases import *

RAW = tf.raw_ops


def bound(f, *args):
    """f(*args) as a function without parameters."""
    return lambda: f(*args)


def steps(name, build, **options):
    graph(name, build, **options)


def queue(kind="FIFO", v2=True, types=(tf.int32,), shapes=((),), capacity=4, **more):
    make = getattr(RAW, {"FIFO": "FIFOQueue", "Padding": "PaddingFIFOQueue", "Shuffle": "RandomShuffleQueue",
                         "Priority": "PriorityQueue"}[kind] + ("V2" if v2 else ""))
    return make(component_types=list(types), shapes=[list(s) for s in shapes], capacity=capacity, **more)


def op_(name, v2):
    return getattr(RAW, name + ("V2" if v2 else ""))


for v2 in (True, False):
    def fifo(v2):
        q = queue(v2=v2, types=[tf.int32, tf.string], shapes=[(2,), ()], name="q")
        enq = op_("QueueEnqueue", v2)(handle=q, components=[[1, 2], "a"])
        many = op_("QueueEnqueueMany", v2)(handle=q, components=[[[3, 4], [5, 6], [7, 8]], ["b", "c", "d"]])
        deq = op_("QueueDequeue", v2)(handle=q, component_types=[tf.int32, tf.string])
        two = op_("QueueDequeueMany", v2)(handle=q, n=2, component_types=[tf.int32, tf.string])
        up_to = op_("QueueDequeueUpTo", v2)(handle=q, n=5, component_types=[tf.int32, tf.string])
        none = op_("QueueDequeueMany", v2)(handle=q, n=0, component_types=[tf.int32, tf.string])
        size = op_("QueueSize", v2)(handle=q)
        closed = op_("QueueIsClosed", v2)(handle=q)
        close = op_("QueueClose", v2)(handle=q)
        return [[enq], [many], [size, closed], list(deq), list(two), [size], [enq], [close], [size, closed],
                list(none), list(up_to), [size]]
    steps(f"fifo V{2 if v2 else 1}", bound(fifo, v2))

    def closed_empty(v2):
        q = queue(v2=v2, name="q")
        return [[op_("QueueClose", v2)(handle=q)], [op_("QueueDequeue", v2)(handle=q, component_types=[tf.int32])[0]]]
    steps(f"dequeue when closed V{2 if v2 else 1}", bound(closed_empty, v2), error="OUT_OF_RANGE",
          message=r"FIFOQueue '_\d+_q' is closed and has insufficient elements \(requested 1, current size 0\)")

    def enqueue_closed(v2):
        q = queue(v2=v2, name="q")
        return [[op_("QueueClose", v2)(handle=q)], [op_("QueueEnqueue", v2)(handle=q, components=[1])]]
    steps(f"enqueue when closed V{2 if v2 else 1}", bound(enqueue_closed, v2), error="CANCELLED",
          message=r"FIFOQueue '_\d+_q' is closed.")


def shared():
    a = queue(shared_name="s")
    b = RAW.FIFOQueueV2(component_types=[tf.int32], shapes=[[]], capacity=4, shared_name="s")
    return [[RAW.QueueEnqueueV2(handle=a, components=[7])], [RAW.QueueDequeueV2(handle=b, component_types=[tf.int32])[0]]]


steps("shared by name", shared)


def padding():
    q = queue("Padding", types=[tf.float32, tf.string], shapes=[(None, 2), (None,)])
    a = RAW.QueueEnqueueV2(handle=q, components=[np.ones((3, 2), np.float32), ["x"]])
    b = RAW.QueueEnqueueV2(handle=q, components=[np.full((1, 2), 5, np.float32), ["y", "z"]])
    c = RAW.QueueEnqueueV2(handle=q, components=[np.zeros((0, 2), np.float32), np.zeros(0, object).astype(str)])
    return [[a], [b], [c], list(RAW.QueueDequeueManyV2(handle=q, n=3, component_types=[tf.float32, tf.string]))]


steps("padding", padding)


def shuffle():
    q = queue("Shuffle", capacity=100, min_after_dequeue=2, seed=7, seed2=11)
    fill = RAW.QueueEnqueueManyV2(handle=q, components=[list(range(20))])
    deq = RAW.QueueDequeueV2(handle=q, component_types=[tf.int32])
    many = RAW.QueueDequeueManyV2(handle=q, n=12, component_types=[tf.int32])
    return [[fill]] + [list(deq)] * 4 + [list(many), [RAW.QueueSizeV2(handle=q)]]


steps("shuffle with seeds", shuffle)


def priority():
    q = queue("Priority", types=[tf.string], shapes=[()], capacity=10)
    fill = RAW.QueueEnqueueManyV2(handle=q, components=[tf.constant([5, 1, 3, 2, 4], tf.int64), ["e", "a", "c", "b", "d"]])
    one = RAW.QueueDequeueV2(handle=q, component_types=[tf.int64, tf.string])
    many = RAW.QueueDequeueManyV2(handle=q, n=4, component_types=[tf.int64, tf.string])
    return [[fill], list(one), list(many)]


steps("priority", priority)


def waits():
    """A dequeue that runs beside the enqueue it waits for."""
    q = queue(capacity=1)
    many = RAW.QueueEnqueueManyV2(handle=q, components=[[1, 2, 3, 4, 5]])
    got = RAW.QueueDequeueManyV2(handle=q, n=5, component_types=[tf.int32])
    return [[got[0], many]]


steps("wait for each other", waits)


def fails(name, message, build, code="INVALID_ARGUMENT"):
    steps(name, build, error=code, message=message)


def hidden(x):
    return tf.placeholder_with_default(x, None)


fails("another shape", r"Shape mismatch in tuple component 0. Expected \[2\], got \[3\]",
      lambda: [RAW.QueueEnqueueV2(handle=queue(shapes=[(2,)]), components=[hidden([1, 2, 3])])])
fails("another type", "Signature mismatch, have: resource, string-> expected: resource, int32->|Type mismatch|expected",
      lambda: [RAW.QueueEnqueueV2(handle=queue(), components=["a"])])
fails("negative batch", "DequeueManyOp requested -1 < 0 elements",
      lambda: [RAW.QueueDequeueManyV2(handle=queue(), n=hidden(-1), component_types=[tf.int32])[0]])
fails("batch without shapes", "FIFOQueue's DequeueMany and DequeueUpTo require the components to have specified shapes.",
      lambda: [RAW.QueueDequeueManyV2(handle=queue(shapes=()), n=1, component_types=[tf.int32])[0]])
fails("shared with another capacity", "Shared queue 's' has capacity 4 but requested capacity was 5",
      lambda: [[queue(shared_name="s").op], [queue(shared_name="s", capacity=5).op]])
fails("shared with other types", r"Shared queue 's' has component types \[int32\] but requested component types were \[float\]",
      lambda: [[queue(shared_name="s").op], [queue(shared_name="s", types=[tf.float32]).op]])


def closed_batch():
    q = queue(name="q")
    return [[RAW.QueueEnqueueV2(handle=q, components=[1])], [RAW.QueueCloseV2(handle=q)],
            [RAW.QueueDequeueManyV2(handle=q, n=3, component_types=[tf.int32])[0]]]


fails("batch when closed", r"FIFOQueue '_\d+_q' is closed and has insufficient elements \(requested 3, current size 1\)",
      closed_batch, "OUT_OF_RANGE")


def close_twice():
    q = queue(name="q")
    return [[RAW.QueueCloseV2(handle=q)], [RAW.QueueCloseV2(handle=q)]]


fails("close twice", r"Queue '_\d+_q' is already closed.", close_twice, "CANCELLED")

# ---- accumulators ----

ACC = [tf.float32, tf.float64, tf.float16]


def accumulate(dtype, resource, reduction="MEAN"):
    pre = "Resource" if resource else ""
    a = getattr(RAW, pre + "ConditionalAccumulator")(dtype=dtype, shape=[2, None], reduction_type=reduction)
    apply_ = [getattr(RAW, pre + "AccumulatorApplyGradient")(handle=a, local_step=np.int64(s), gradient=feed(R(2, 3)))
              for s in (0, 0, 5, 0)]
    take = getattr(RAW, pre + "AccumulatorTakeGradient")(handle=a, num_required=2, dtype=dtype)
    count = getattr(RAW, pre + "AccumulatorNumAccumulated")(handle=a)
    set_step = getattr(RAW, pre + "AccumulatorSetGlobalStep")(handle=a, new_global_step=np.int64(3))
    return [[count], [apply_[0]], [apply_[1]], [apply_[2]], [count], [take], [count], [apply_[3]], [count], [apply_[2]],
            [apply_[2]], [take], [set_step], [apply_[1]], [count]]


graph("accumulator", lambda t: accumulate(t, False), dtypes=ACC)
graph("accumulator resource", lambda t: accumulate(t, True), dtypes=ACC)
graph("accumulator sum", lambda t: accumulate(t, True, "SUM"), dtypes=ACC)


def sparse(dtype, reduction="MEAN"):
    a = RAW.SparseConditionalAccumulator(dtype=dtype, shape=[10, 2], reduction_type=reduction)

    def add(indices):
        return RAW.SparseAccumulatorApplyGradient(handle=a, local_step=np.int64(0), gradient_indices=np.int64(indices),
                                                  gradient_values=feed(R(len(indices), 2)), gradient_shape=np.int64([10, 2]),
                                                  has_known_shape=True)
    take = RAW.SparseAccumulatorTakeGradient(handle=a, num_required=3, dtype=dtype)
    return [[add([1, 4, 6])], [add([0, 4])], [add([4, 6, 9])], list(take), [RAW.AccumulatorNumAccumulated(handle=a)]]


graph("sparse accumulator", lambda t: sparse(t), dtypes=ACC)
graph("sparse accumulator sum", lambda t: sparse(t, "SUM"), dtypes=ACC)


def acc_fails(name, message, build):
    def made():
        a = RAW.ResourceConditionalAccumulator(dtype=tf.float32, shape=[2])
        return [build(a)]
    graph(name, made, error="INVALID_ARGUMENT", message=message)


acc_fails("gradient of another shape", r"Shape mismatch: expected \[2\], got \[3\]",
          lambda a: RAW.ResourceAccumulatorApplyGradient(handle=a, local_step=np.int64(0), gradient=hidden([1., 2., 3.])))
acc_fails("take none", "Argument num_required must be positive, but was 0",
          lambda a: RAW.ResourceAccumulatorTakeGradient(handle=a, num_required=0, dtype=tf.float32))
