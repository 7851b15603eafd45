"""Layers of shoal/layers.h beside TensorFlow's own: values and gradients. Each is built by the C API, its variables get
numbers, and the same formula is TensorFlow's with the same numbers."""
# needs: tensorflow
import ctypes as C
import math
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from cases import np, tf
import shoal
import train_api as api
from shoal import Out, P, S
from train_api import B, D, G, L, I, Model, Var, VARS, GRADS, Optimizer, optimizer

RNG = np.random.default_rng(5)
FLOAT, BFLOAT = 1, 14


def options(*fields):
    return type("Options", (C.Structure,), {"_fields_": [("size", C.c_size_t), *fields]})


Dense = options(("kernel", S), ("bias", S), ("stddev", D), ("leading", L), ("no_bias", B))
Norm = options(("scale", S), ("shift", S), ("epsilon", D))
Dropout = options(("seed", Out))
Attention = options(("mask", Out), ("dropout", D), ("drop_seed", Out))
Entropy = options(("label_smoothing", D))
Conv = options(("kernel", S), ("bias", S), ("stride", L), ("symmetric", B), ("he_normal", B), ("no_bias", B))
BatchNorm = options(("momentum", D), ("epsilon", D), ("fused", B), ("zero_gamma", B))
Apply = options(("no_decay", C.POINTER(B)))
api.SIGNATURES.update({
    "shoal_dense_with": (Out, G, Out, L, S, P), "shoal_layer_norm": (Out, G, Out, S, P), "shoal_gelu": (Out, G, Out),
    "shoal_dropout": (Out, G, Out, D, P), "shoal_embedding": (Out, G, Var, Out, I),
    "shoal_position_embedding": (Out, G, Out, Var), "shoal_embedding_logits": (Out, G, Out, Var),
    "shoal_causal_mask": (Out, G, I, L, L), "shoal_attention_mask": (Out, G, I, Out),
    "shoal_attention": (Out, G, Out, Out, Out, L, P), "shoal_cross_entropy": (Out, G, Out, Out, P),
    "shoal_conv_layer_with": (Out, G, Out, L, L, S, P), "shoal_batch_norm": (Out, G, Out, Out, S, P),
    "shoal_apply_gradients_with": (P, G, Optimizer, VARS, GRADS, I, Var, P)})


def given(kind, **fields):
    o = kind(size=C.sizeof(kind))
    for name, value in fields.items():
        setattr(o, name, value)
    return C.addressof(o), o


def ask(m, name, *args):
    """A call whose last argument may be (address, options)."""
    return m.call(name, *[a[0] if isinstance(a, tuple) else a for a in args])


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def compare(build, formula, inputs, tolerance=2e-5):
    """build(m, *placeholders) and formula(*placeholders, {name: value}) of the same inputs, and the gradients of the sum
    of squares of what they return, by the inputs of floats and all variables."""
    m = Model()
    fed = [m.placeholder(f"in{i}", v.dtype, v.shape) for i, v in enumerate(inputs)]
    y = build(m, *fed)
    n = m.call("shoal_variables", True, None, 0)
    found = (Var * max(n, 1))()
    m.call("shoal_variables", True, found, n)
    names = [m.name(v.handle)[:-2] for v in found[:n]]
    loss = m.call("shoal_reduce_sum", m.op("Square", m.op("Cast", y, DstT=FLOAT)))
    by = [m.name(fed[i]) for i, v in enumerate(inputs) if v.dtype == np.float32] + [m.name(v.handle) for v in found[:n]]
    grads = m.gradients([m.name(loss)], by)
    dense = []
    for g in grads:
        assert g is not None
        if isinstance(g, tuple):  # rows of a table
            rows = m.op("GatherV2", m.out(g[2]), m.constant(np.int32(0)), m.constant(np.int32(0)))
            g = m.name(m.op("UnsortedSegmentSum", m.out(g[0]), m.out(g[1]), rows))
        dense.append(g)
    values = {name: normal(*(m.shape(m.name(v.value)) or ())) for name, v in zip(names, found[:n])}
    assigns = [m.op_name(m.call("shoal_variable_assign", v, m.constant(values[k]))) for k, v in zip(names, found[:n])]
    with shoal.Session(m) as s:
        if assigns:
            s.run(targets=assigns)
        ours = s.run([m.name(y), *dense], feeds={f"in{i}:0": v for i, v in enumerate(inputs)})
    with tf.Graph().as_default():
        tensors = [tf.constant(v) for v in inputs]
        variables = {k: tf.constant(v) for k, v in values.items()}
        out = formula(*tensors, variables)
        xs = [t for t in tensors if t.dtype == tf.float32] + [variables[k] for k in names]
        slopes = tf.gradients(tf.reduce_sum(tf.square(tf.cast(out, tf.float32))), xs)
        with tf.Session() as s:
            theirs = s.run([out, *[tf.convert_to_tensor(x) for x in slopes]])
    for what, a, b in zip(["value", *by], ours, theirs):
        a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
        assert a.shape == b.shape, (what, a.shape, b.shape)
        scale = max(1.0, float(np.abs(b).max(initial=0)))
        np.testing.assert_allclose(a / scale, b / scale, rtol=tolerance, atol=tolerance, err_msg=str(what))


def gelu(x):
    return 0.5 * x * (1 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * tf.pow(x, 3))))


# ---- layers ----

def test_dense_of_any_rank():
    for shape in ((5, 3), (2, 4, 3), (2, 3, 4, 3)):
        compare(lambda m, x: ask(m, "shoal_dense_with", x, 6, "d", given(Dense, kernel=b"w", bias=b"b", leading=1)),
                lambda x, v: tf.tensordot(x, v["d/w"][0], 1) + v["d/b"], [normal(*shape)])
    compare(lambda m, x: ask(m, "shoal_dense_with", x, 6, None, given(Dense, no_bias=True, stddev=0.1)),
            lambda x, v: tf.tensordot(x, v["dense/kernel"], 1), [normal(2, 4, 3)])
    compare(lambda m, x: m.call("shoal_dense_with", x, 6, None, None),
            lambda x, v: tf.tensordot(x, v["dense/kernel"], 1) + v["dense/bias"], [normal(2, 4, 3)])


def test_layer_norm():
    def formula(x, v):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.rsqrt(variance + 1e-5) * v["n/g"] + v["n/b"]
    for shape in ((7,), (4, 5), (2, 3, 8)):
        compare(lambda m, x: ask(m, "shoal_layer_norm", x, "n", given(Norm, scale=b"g", shift=b"b")), formula,
                [3 + normal(*shape)], 1e-4)
    compare(lambda m, x: ask(m, "shoal_layer_norm", x, None, given(Norm, epsilon=0.1)), lambda x, v: tf.nn.batch_normalization(
        x, *tf.nn.moments(x, [-1], keepdims=True), v["layer_normalization/beta"], v["layer_normalization/gamma"], 0.1),
            [normal(3, 8)])


def test_gelu():
    compare(lambda m, x: m.call("shoal_gelu", x), lambda x, v: gelu(x), [3 * normal(6, 50)])


def test_convolutions():
    for size, stride, symmetric in ((3, 1, True), (3, 2, True), (7, 2, True), (1, 2, True), (3, 2, False), (2, 0, False)):
        def formula(x, v, size=size, stride=stride, symmetric=symmetric):
            by = (size - 1) // 2 if symmetric else 0
            x = tf.pad(x, [[0, 0], [by, by], [by, by], [0, 0]])
            return tf.nn.conv2d(x, v["c/w"], max(stride, 1), "VALID" if symmetric else "SAME")
        compare(lambda m, x, size=size, stride=stride, symmetric=symmetric: ask(m, "shoal_conv_layer_with", x, 4, size, "c", given(
            Conv, kernel=b"w", stride=stride, symmetric=symmetric, no_bias=True)), formula, [normal(2, 8, 9, 3)])
    compare(lambda m, x: m.call("shoal_conv_layer_with", x, 4, 3, None, None),
            lambda x, v: tf.nn.conv2d(x, v["conv2d/kernel"], 1, "SAME") + v["conv2d/bias"], [normal(2, 5, 5, 3)])


def test_batch_norm_as_one_op():
    """In training and not; the moving averages are TensorFlow's."""
    x = 2 + normal(3, 4, 5, 6)
    for trains in (True, False):
        m = Model()
        fed = m.placeholder("x", np.float32, x.shape)
        y = ask(m, "shoal_batch_norm", fed, m.constant(np.array(trains)), "bn",
                given(BatchNorm, momentum=0.75, epsilon=0.1, fused=True))
        init = m.call("shoal_initialize")
        with shoal.Session(m) as s:
            s.run(targets=[m.op_name(init)])
            ours = [s.run([m.name(y)], feeds={"x:0": x})[0]]
            ours += s.run([f"bn/moving_{w}/Read/ReadVariableOp:0" for w in ("mean", "variance")])
        with tf.Graph().as_default(), tf.Session() as s:
            mean, variance = np.zeros(6, np.float32), np.ones(6, np.float32)
            more = {} if trains else {"mean": mean, "variance": variance}
            fed = tf.placeholder(tf.float32, x.shape)
            outs = tf.nn.fused_batch_norm(fed, np.ones(6, np.float32), mean, epsilon=0.1, is_training=trains, **more)
            y, *moments = s.run(outs if trains else outs[:1], {fed: x})
        moved = [o + (n - o) * 0.25 for o, n in zip((mean, variance), moments)] if trains else [mean, variance]
        for a, b in zip(ours, [y, *moved]):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    m = Model()
    y = ask(m, "shoal_batch_norm", m.constant(x), m.constant(np.array(True)), "bn", given(BatchNorm, fused=True, zero_gamma=True))
    init = m.call("shoal_initialize")
    with shoal.Session(m) as s:
        s.run(targets=[m.op_name(init)])
        assert not s.run([m.name(y)])[0].any()


def test_embeddings_that_share_a_table():
    ids = RNG.integers(0, 9, (2, 5)).astype(np.int32)

    def build(m, ids):
        table = m.variable("wte", np.zeros((9, 4), np.float32))
        places = m.variable("wpe", np.zeros((7, 4), np.float32))
        h = m.call("shoal_position_embedding", m.call("shoal_embedding", table, ids, FLOAT), places)
        return m.call("shoal_embedding_logits", h, table)
    compare(build, lambda ids, v: tf.einsum("btw,vw->btv", tf.gather(v["wte"], ids) + v["wpe"][:5], v["wte"]), [ids])


def attention_formula(q, k, v, heads, may=None):
    def split(x):
        return tf.transpose(tf.reshape(x, [x.shape[0], x.shape[1], heads, x.shape[2] // heads]), [0, 2, 1, 3])
    scores = tf.matmul(split(q), split(k), transpose_b=True) / math.sqrt(int(q.shape[2]) // heads)
    if may is not None:
        scores = scores * tf.cast(may, tf.float32) - 1e10 * (1 - tf.cast(may, tf.float32))  # as GPT-2's program has it
    return tf.reshape(tf.transpose(tf.matmul(tf.nn.softmax(scores), split(v)), [0, 2, 1, 3]), [q.shape[0], q.shape[1], -1])


def test_attention():
    q, k, v = normal(2, 5, 12), normal(2, 5, 12), normal(2, 5, 12)
    compare(lambda m, *x: m.call("shoal_attention", *x, 3, None), lambda q, k, v, _: attention_formula(q, k, v, 3), [q, k, v])
    compare(lambda m, *x: ask(m, "shoal_attention", *x, 4, given(Attention, mask=m.call("shoal_causal_mask", FLOAT, 5, 5))),
            lambda q, k, v, _: attention_formula(q, k, v, 4, np.tri(5)), [q, k, v])
    # Fewer queries than keys, counted from the end: the last ones of a text whose beginning is known.
    compare(lambda m, *x: ask(m, "shoal_attention", *x, 4, given(Attention, mask=m.call("shoal_causal_mask", FLOAT, 2, 5))),
            lambda q, k, v, _: attention_formula(q, k, v, 4, np.tri(2, 5, 3)), [q[:, 3:], k, v])
    # By a mask of its own: the second text has three words. Values of another width.
    may = (np.arange(5) < [[5], [3]]).reshape(2, 1, 1, 5)
    compare(lambda m, *x: ask(m, "shoal_attention", *x, 2, given(
        Attention, mask=m.call("shoal_attention_mask", FLOAT, m.constant(may)))),
            lambda q, k, v, _: attention_formula(q, k, v, 2, may), [q[:, :3], k, normal(2, 5, 6)])


def test_cross_entropy():
    logits, labels = normal(2, 3, 7), RNG.integers(0, 7, (2, 3))
    for labels in (labels, labels.astype(np.int32)):
        for by in (0.0, 0.1, 1.0):
            compare(lambda m, x, y, by=by: ask(m, "shoal_cross_entropy", x, y, given(Entropy, label_smoothing=by)),
                    lambda x, y, _, by=by: tf.reshape(tf.keras.losses.categorical_crossentropy(
                        tf.one_hot(y, 7), x, from_logits=True, label_smoothing=by), [-1]), [logits, labels])


def test_half_precision():
    """Beside bfloat16 variables and moments are float32; values are near those of float32."""
    x = normal(2, 6, 8)

    def build(dtype):
        def made(m, x):
            h = m.op("Cast", x, DstT=dtype)
            h = ask(m, "shoal_layer_norm", h, "n", given(Norm))
            h = ask(m, "shoal_dense_with", h, 8, "d", given(Dense))
            mask = m.call("shoal_causal_mask", dtype, 6, 6)
            h = m.call("shoal_gelu", ask(m, "shoal_attention", h, h, h, 2, given(Attention, mask=mask)))
            for v in ("n/gamma", "n/beta", "d/kernel", "d/bias"):
                assert m.op("Identity", m.out(v + "/Read/ReadVariableOp:0")) and dtype_of(m, v) == FLOAT
            return m.op("Cast", h, DstT=FLOAT)
        return made

    def dtype_of(m, name):
        shoal.library().shoal_out_dtype.argtypes = [Out]
        return shoal.library().shoal_out_dtype(m.out(name + "/Read/ReadVariableOp:0"))

    def formula(x, v):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        h = (x - mean) * tf.rsqrt(variance + 1e-5) * v["n/gamma"] + v["n/beta"]
        h = tf.tensordot(h, v["d/kernel"], 1) + v["d/bias"]
        return gelu(attention_formula(h, h, h, 2, np.tri(6)))
    compare(build(FLOAT), formula, [x], 1e-4)
    compare(build(BFLOAT), formula, [x], 0.05)


# ---- dropout ----

def dropped(*seeds, rate=0.25):
    """Of ones, twice in one graph, for each seed."""
    m = Model()
    x = m.constant(np.ones(4000, np.float32))
    seed = m.placeholder("seed", np.int64, [2])
    ys = [m.name(ask(m, "shoal_dropout", x, rate, given(Dropout, seed=seed))) for _ in range(2)]
    with shoal.Session(m) as s:
        return [s.run(ys, feeds={"seed:0": np.array(v)}) for v in seeds]


def test_dropout():
    (a, b), (c, _), (again, _) = dropped((1, 2), (1, 3), (1, 2))
    assert set(np.unique(a)) == {0, np.float32(1 / 0.75)} and abs((a == 0).mean() - 0.25) < 0.03, np.unique(a)
    assert (a == again).all() and (a != b).any() and (a != c).any()
    m = Model()
    x = m.constant(np.ones(10, np.float32))
    assert m.call("shoal_dropout", x, 0.0, None).node == x.node
    y = m.call("shoal_dropout", x, 0.5, None)
    with shoal.Session(m) as s:
        assert set(s.run([m.name(y)])[0]) <= {0, 2}


# ---- decay ----

def test_decay_spares_what_it_is_told():
    def after(no_decay):
        m = Model()
        v = [m.variable(n, np.ones(2, np.float32)) for n in "ab"]
        loss = m.call("shoal_reduce_sum", m.op("AddV2", v[0].value, v[1].value))
        found, grads = (Var * 2)(), (shoal.Gradient * 2)()
        assert m.call("shoal_compute_gradients", loss, found, grads, 2) == 2
        adam = optimizer("shoal_adamw", 0.1, 0.5)
        spared = None if no_decay is None else given(Apply, no_decay=C.cast((B * 2)(*no_decay), C.POINTER(B)))
        train = m.call("shoal_apply_gradients_with", adam, found, grads, 2, Var(), spared and spared[0])
        init = m.call("shoal_initialize")
        with shoal.Session(m) as s:
            s.run(targets=[m.op_name(init)])
            s.run(targets=[m.op_name(train)])
            return [float(x[0]) for x in s.run([m.name(x.value) for x in v])]
    np.testing.assert_allclose(after(None), [0.85, 0.85], atol=1e-6)
    np.testing.assert_allclose(after([False, True]), [0.85, 0.9], atol=1e-6)


# ---- mistakes ----

def test_mistakes():
    def fails(text, name, *args):
        m = Model()
        made = [m.placeholder(f"p{i}", np.float32, a) if isinstance(a, list) else a for i, a in enumerate(args)]
        try:
            ask(m, name, *made)
        except shoal.Error as e:
            assert e.code == 3 and text in str(e), e
            return
        raise AssertionError(f"{name} of {args} was taken")
    fails("rank 2 or more whose last dimension is known", "shoal_dense_with", [None, None], 3, None, None)
    fails("at most one unknown dimension", "shoal_dense_with", [None, None, 3], 3, None, None)
    fails("leading 99", "shoal_dense_with", [2, 3], 3, None, given(Dense, leading=99))
    fails("epsilon -1", "shoal_layer_norm", [2, 3], None, given(Norm, epsilon=-1))
    fails("rank 1 or more", "shoal_layer_norm", [], None, None)
    fails("rate 1", "shoal_dropout", [2], 1.0, None)
    fails("rate nan", "shoal_dropout", [2], float("nan"), None)
    fails("of 5 heads takes [batch, time, width]", "shoal_attention", [2, 3, 8], [2, 3, 8], [2, 3, 8], 5, None)
    fails("of 0 heads", "shoal_attention", [2, 3, 8], [2, 3, 8], [2, 3, 8], 0, None)
    fails("queries are [2,3,8], keys [2,3,4]", "shoal_attention", [2, 3, 8], [2, 3, 4], [2, 3, 8], 2, None)
    fails("0 queries", "shoal_causal_mask", FLOAT, 0, 5)
    fails("symmetric padding is of odd sizes", "shoal_conv_layer_with", [1, 4, 4, 3], 2, 2, None, given(Conv, symmetric=True))
    fails("rank 4 whose last dimension is known", "shoal_conv_layer_with", [4, 4, 3], 2, 3, None, None)
    fails("label_smoothing 2", "shoal_cross_entropy", [2, 3], [2], given(Entropy, label_smoothing=2))


if __name__ == "__main__":
    tap.main(globals())
