"""Variables of both kinds, scatter and gather on them, with the errors' words."""
from cases import *

RAW = tf.raw_ops


def ref(dtype=tf.float32, shape=(3,), name="v"):
    return RAW.VariableV2(dtype=dtype, shape=shape, shared_name=name, name=name)


def handle(dtype=tf.float32, shape=(3,), name="v"):
    return RAW.VarHandleOp(dtype=dtype, shape=shape, shared_name=name)


def hidden(x):
    """A value whose shape the graph does not know."""
    return tf.placeholder_with_default(x, None)


def both(name, run, dtypes=(tf.float32,), start=(3, 4), **options):
    """run(v, dtype, read) makes updates of a variable of either kind; its value is fetched after."""
    def with_ref(dtype):
        v = ref(dtype, start)
        init = RAW.Assign(ref=v, value=feed(R(*start, lo=1, hi=5)))
        return [[init], [run(v, dtype, False)], [tf.identity(v)]]

    def with_handle(dtype):
        h = handle(dtype, start)
        init = RAW.AssignVariableOp(resource=h, value=feed(R(*start, lo=1, hi=5)))
        return [[init], [run(h, dtype, True)], [RAW.ReadVariableOp(resource=h, dtype=dtype)]]
    graph(name + " ref", with_ref, dtypes=list(dtypes), **options)
    graph(name + " resource", with_handle, dtypes=list(dtypes), **options)


both("assign_add", lambda v, t, res: (RAW.AssignAddVariableOp(resource=v, value=feed(R(3, 4))) if res else
                                      RAW.AssignAdd(ref=v, value=feed(R(3, 4)))), NUMBERS, tol=0)
both("assign_sub", lambda v, t, res: (RAW.AssignSubVariableOp(resource=v, value=feed(R(3, 4))) if res else
                                      RAW.AssignSub(ref=v, value=feed(R(3, 4)))), NUMBERS, tol=0)
for what, types in [("Update", ALL), ("Add", NUMBERS), ("Sub", NUMBERS), ("Mul", NUMBERS), ("Div", NUMBERS),
                    ("Min", [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64]),
                    ("Max", [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64])]:
    for index in (tf.int32, tf.int64):
        def scatter(v, t, res, what=what, index=index, scalar=False):
            indices = tf.constant([[2, 0], [2, 2]], index)
            updates = feed(R(lo=1, hi=3)) if scalar else feed(R(2, 2, 4, lo=1, hi=3))
            if res:
                return getattr(RAW, "ResourceScatter" + what)(resource=v, indices=indices, updates=updates)
            return getattr(RAW, "Scatter" + what)(ref=v, indices=indices, updates=updates)
        both(f"scatter_{what.lower()} {index.name}", scatter, types if index == tf.int32 else [tf.float32],
             tol=None if what == "Div" else 0)
        both(f"scatter_{what.lower()} scalar {index.name}", lambda v, t, res, f=scatter: f(v, t, res, scalar=True),
             [tf.float32, tf.int32], tol=0)
    if what in ("Mul", "Div"):
        continue

    def scatter_nd(v, t, res, what=what, depth=1):
        indices = tf.constant([[2], [0], [2]] if depth == 1 else [[2, 1], [0, 3], [2, 1]])
        updates = feed(R(3, 4) if depth == 1 else R(3))
        name = ("ResourceScatterNd" if res else "ScatterNd") + what
        return getattr(RAW, name)(ref=v, indices=indices, updates=updates)
    types = [tf.float32, tf.float64, tf.int32, tf.int64, tf.float16] + ([tf.string, tf.bool] if what == "Update" else [])
    both(f"scatter_nd_{what.lower()}", scatter_nd, types, tol=0)
    both(f"scatter_nd_{what.lower()} deep", lambda v, t, res, f=scatter_nd: f(v, t, res, depth=2), types, tol=0)


def gather(dtype):
    h = handle(dtype, [4, 3])
    init = RAW.AssignVariableOp(resource=h, value=feed(R(4, 3)))
    return [[init], [RAW.ResourceGather(resource=h, indices=[[3, 0], [1, 1]], dtype=dtype),
                     RAW.ResourceGather(resource=h, indices=tf.constant(2, tf.int64), dtype=dtype),
                     RAW.ResourceGather(resource=h, indices=np.zeros((0, 2), np.int32), dtype=dtype),
                     RAW.ResourceGather(resource=h, indices=[[1, 0], [2, 2], [0, 0], [1, 1]], dtype=dtype, batch_dims=1),
                     RAW.ResourceGatherNd(resource=h, indices=[[3, 2], [0, 0]], dtype=dtype),
                     RAW.ResourceGatherNd(resource=h, indices=[[[3]], [[0]]], dtype=dtype),
                     RAW.ResourceGatherNd(resource=h, indices=np.zeros((2, 0), np.int32), dtype=dtype)]]


graph("gather", gather, dtypes=ALL, tol=0)


def life():
    h = handle(tf.int32, [2])
    assign = RAW.AssignVariableOp(resource=h, value=tf.constant([1, 2]))
    is_set = RAW.VarIsInitializedOp(resource=h)
    return [[is_set], [assign], [is_set, RAW.VariableShape(input=h), RAW.VariableShape(input=h, out_type=tf.int64)],
            [RAW.DestroyResourceOp(resource=h)], [is_set], [assign], [RAW.ReadVariableOp(resource=h, dtype=tf.int32)]]


graph("life of a resource variable", life)


def life_ref():
    v = ref(tf.int32, [2])
    is_set = RAW.IsVariableInitialized(ref=v)
    return [[is_set], [RAW.Assign(ref=v, value=[1, 2])], [is_set],
            [RAW.Assign(ref=v, value=[[5]], validate_shape=False)], [tf.identity(v)]]


graph("life of a ref variable", life_ref)


def count():
    v = ref(tf.int64, [])
    h = handle(tf.int32, [], "h")
    return [[RAW.Assign(ref=v, value=np.int64(1)), RAW.AssignVariableOp(resource=h, value=0)],
            [RAW.CountUpTo(ref=v, limit=3), RAW.ResourceCountUpTo(resource=h, limit=5, T=tf.int32)],
            [RAW.CountUpTo(ref=v, limit=3), RAW.ResourceCountUpTo(resource=h, limit=5, T=tf.int32)],
            [RAW.CountUpTo(ref=v, limit=3)]]


graph("count_up_to", count, error="OUT_OF_RANGE", message="Reached limit of 3")


def temporary():
    t = RAW.TemporaryVariable(shape=[2], dtype=tf.float32, var_name="a")
    set_ = RAW.Assign(ref=t, value=[1., 2.])
    return [RAW.DestroyTemporaryVariable(ref=RAW.AssignAdd(ref=set_, value=[3., 4.]), var_name="a")]


graph("temporary variable", temporary)


def stays():
    h = handle(tf.float32, [2])
    init = RAW.AssignVariableOp(resource=h, value=[1., 2.])
    before = RAW.ReadVariableOp(resource=h, dtype=tf.float32)
    with tf.control_dependencies([before]):
        add = RAW.AssignAddVariableOp(resource=h, value=[10., 10.])
    with tf.control_dependencies([add]):
        after = RAW.ReadVariableOp(resource=h, dtype=tf.float32)
    with tf.control_dependencies([after]):
        scattered = RAW.ResourceScatterAdd(resource=h, indices=[0], updates=[5.])
    with tf.control_dependencies([scattered]):
        last = RAW.ReadVariableOp(resource=h, dtype=tf.float32)
    with tf.control_dependencies([last]):
        again = RAW.ResourceScatterAdd(resource=h, indices=[0], updates=[7.])
    return [[init], [before, after, last + 0, last, again]]


graph("a value that was read stays", stays)


def fails(name, code, message, build, init=None):
    def made():
        steps = [[init()]] if init else []
        return steps + [[build()]]
    graph(name, made, error=code, message=message)


def started(h=None):
    return RAW.AssignVariableOp(resource=handle(), value=np.ones(3, np.float32))


def ref_started():
    return RAW.Assign(ref=ref(name="r"), value=np.ones(3, np.float32))


NONE = r"Container localhost does not exist. \(Could not find resource: localhost/v\)"
UNSET = "Could not find variable v. This could mean that the variable has been deleted. In TF1, it can also mean the " \
        "variable is uninitialized. Debug info: container=localhost, status error message=" + NONE
fails("read unset", "FAILED_PRECONDITION", UNSET, lambda: RAW.ReadVariableOp(resource=handle(), dtype=tf.float32))
fails("add unset", "NOT_FOUND", NONE, lambda: RAW.AssignAddVariableOp(resource=handle(), value=np.ones(3, np.float32)))
fails("scatter unset", "NOT_FOUND", NONE,
      lambda: RAW.ResourceScatterAdd(resource=handle(), indices=[0], updates=np.ones(1, np.float32)))
fails("gather unset", "NOT_FOUND", NONE, lambda: RAW.ResourceGather(resource=handle(), indices=[0], dtype=tf.float32))
fails("shape unset", "NOT_FOUND", NONE, lambda: RAW.VariableShape(input=handle()))
fails("destroy unset", "NOT_FOUND", "Container localhost does not exist.",
      lambda: RAW.DestroyResourceOp(resource=handle(), ignore_lookup_error=False))
fails("read of another", "FAILED_PRECONDITION", "Resource localhost/w/N10tensorflow3VarE does not exist.",
      lambda: RAW.ReadVariableOp(resource=handle(name="w"), dtype=tf.float32), started)
fails("read as another type", "INVALID_ARGUMENT", "Trying to read variable with wrong dtype. Expected int32 got float",
      lambda: RAW.ReadVariableOp(resource=handle(tf.int32), dtype=tf.int32), started)
fails("assign another type", "INVALID_ARGUMENT", "Trying to assign variable with wrong dtype. Expected float got int32",
      lambda: RAW.AssignVariableOp(resource=handle(tf.int32), value=np.ones(3, np.int32)), started)
fails("assign another shape", "INVALID_ARGUMENT",
      r"Trying to assign to variable with tensor with wrong shape. Expected \[3\] got \[4\]",
      lambda: RAW.AssignVariableOp(resource=handle(shape=None), value=hidden(np.ones(4, np.float32)), validate_shape=True),
      started)
fails("add another shape", "INVALID_ARGUMENT",
      r"Cannot update variable with shape \[3\] using a Tensor with shape \[4\], shapes must be equal.",
      lambda: RAW.AssignAddVariableOp(resource=handle(shape=None), value=hidden(np.ones(4, np.float32))), started)
fails("scatter outside", "INVALID_ARGUMENT", r"indices\[0,0\] = 5 is not in \[0, 3\)",
      lambda: RAW.ResourceScatterAdd(resource=handle(), indices=hidden([[5]]), updates=hidden(np.ones((1, 1), np.float32))),
      started)
fails("scatter shapes", "INVALID_ARGUMENT", r"Must have updates.shape = indices.shape \+ params.shape\[1:\]",
      lambda: RAW.ResourceScatterAdd(resource=handle(), indices=hidden([1]), updates=hidden(np.ones((1, 2), np.float32))),
      started)
fails("scatter_nd outside", "INVALID_ARGUMENT", r"indices\[1\] = \[7\] does not index into shape \[3\]",
      lambda: RAW.ResourceScatterNdAdd(ref=handle(), indices=hidden([[0], [7]]), updates=hidden(np.ones(2, np.float32))),
      started)
fails("scatter_nd shapes", "INVALID_ARGUMENT", r"Dimensions \[0,1\) of indices\[shape=\[2,1\]\] = 2 must match",
      lambda: RAW.ResourceScatterNdAdd(ref=handle(), indices=hidden([[0], [1]]), updates=hidden(np.ones(3, np.float32))),
      started)
fails("gather outside", "INVALID_ARGUMENT", r"indices\[1,0\] = 7 is not in \[0, 3\)",
      lambda: RAW.ResourceGather(resource=handle(), indices=hidden([[1, 2], [7, 1]]), dtype=tf.float32), started)
fails("gather_nd outside", "INVALID_ARGUMENT", r"indices\[1\] = \[7\] does not index into param shape \[3\], node name: ",
      lambda: RAW.ResourceGatherNd(resource=handle(), indices=hidden([[1], [7]]), dtype=tf.float32), started)
fails("ref read unset", "FAILED_PRECONDITION", "Attempting to use uninitialized value r", lambda: tf.identity(ref(name="r")))
fails("ref add unset", "FAILED_PRECONDITION", "Attempting to use uninitialized value r",
      lambda: RAW.AssignAdd(ref=ref(name="r"), value=np.ones(3, np.float32)))
fails("ref assign shape", "INVALID_ARGUMENT",
      r"Assign requires shapes of both tensors to match. lhs shape= \[3\] rhs shape= \[4\]",
      lambda: RAW.Assign(ref=ref(name="r"), value=hidden(np.ones(4, np.float32))))
fails("ref add shape", "INVALID_ARGUMENT", "Parameters and update must be the same size",
      lambda: RAW.AssignAdd(ref=RAW.VariableV2(dtype=tf.float32, shape=[3], shared_name="r"),
                            value=hidden(np.ones(4, np.float32))), ref_started)
fails("ref of another type", "INTERNAL", "Output 0 of type float_ref does not match declared output type int32_ref",
      lambda: RAW.Assign(ref=RAW.VariableV2(dtype=tf.int32, shape=[3], shared_name="r"), value=np.ones(3, np.int32)),
      ref_started)


def read_in_loop():
    """A ref variable's read goes into a loop that assigns it: each iteration sees the one before."""
    v = tf.get_variable("v", [], initializer=tf.constant_initializer(2.0), use_resource=False)

    def body(i, total):
        squared = tf.assign(v, tf.square(v))
        with tf.control_dependencies([squared]):
            return i + 1, total + tf.identity(v)
    functional = tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()
    r = tf.while_loop(lambda i, t: i < 3, body, [tf.constant(0), tf.constant(0.0)], parallel_iterations=1)
    if functional:
        tf.enable_control_flow_v2()
    return [[v.initializer], [r[0]], [v]]


graph("while_loop assigns a ref variable", read_in_loop)


def ranks():
    """The rank of a variable is known, and asked for to learn whether it has a value."""
    v = tf.get_variable("v", [3], use_resource=False)
    w = tf.get_variable("w", [], use_resource=False)
    return [[tf.assert_variables_initialized([v, w])]]


graph("assert_variables_initialized", ranks, error="FAILED_PRECONDITION", message="uninitialized value")
