"""Training as graph builders beside TensorFlow's: optimizers, schedules, averages, accumulation, loss scaling. Both
sides build the same model from the same numbers and run the same steps."""
# needs: tensorflow
import ctypes as C
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from cases import np, tf
import shoal
import train_api as api
from train_api import Model, Var, dims, optimizer

STEPS = 6
RNG = np.random.default_rng(3)
W = RNG.normal(size=(4, 3)).astype(np.float32)
TABLE = RNG.normal(size=(6, 4)).astype(np.float32)
IDS = [RNG.integers(0, 5, 7) for _ in range(STEPS)]  # repeated rows, and one row that never occurs
GOAL = RNG.normal(size=(7, 3)).astype(np.float32)


def shoal_model(m):
    """loss = mean((table[ids] @ w - goal)^2): w's gradient is dense, the table's sparse."""
    w, table = m.variable("w", W), m.variable("table", TABLE)
    ids = m.placeholder("ids", np.int64, [None])
    rows = m.call("shoal_embedding_lookup", (Var * 1)(table), 1, ids, "mod")
    y = m.op("SquaredDifference", m.op("MatMul", rows, w.value), m.constant(GOAL))
    return m.call("shoal_reduce_mean", y)


def tf_model(refs=False):
    w = tf.Variable(W, name="w", use_resource=not refs)
    table = tf.Variable(TABLE, name="table", use_resource=not refs)
    ids = tf.placeholder(tf.int64, [None], name="ids")
    return tf.reduce_mean(tf.squared_difference(tf.matmul(tf.nn.embedding_lookup(table, ids), w), GOAL))


def train_shoal(make, feeds=IDS, refs=False):
    """The values of all variables after each step, by name."""
    m = Model()
    m.call("shoal_use_ref_variables", refs)
    train = make(m, shoal_model(m), m.call("shoal_global_step"))
    inits = [m.op_name(m.call("shoal_initialize")), m.op_name(m.call("shoal_initialize_local"))]
    n = m.call("shoal_variables", False, None, 0)
    found = (Var * n)()
    m.call("shoal_variables", False, found, n)
    names, reads = [m.name(v.handle)[:-2] for v in found], [m.name(v.value) for v in found]
    history = []
    with shoal.Session(m) as s:
        s.run(targets=inits)
        for ids in feeds:
            s.run(feeds={"ids:0": ids}, targets=[m.op_name(train)])
            history.append(dict(zip(names, s.run(reads))))
    return history


def train_tf(make, refs=False):
    with tf.Graph().as_default():
        step = tf.Variable(0, dtype=tf.int64, name="global_step", trainable=False, use_resource=not refs)
        train = make(tf_model(refs), step)
        history = []
        with tf.Session() as s:
            s.run([tf.global_variables_initializer()])
            for ids in IDS:
                s.run(train, {"ids:0": ids})
                history.append({v.op.name: s.run(v) for v in tf.global_variables()})
    return history


def same(ours, theirs, tolerance=2e-6):
    assert len(ours) == len(theirs)
    for i, (a, b) in enumerate(zip(ours, theirs)):
        assert set(a) == set(b), (sorted(a), sorted(b))
        for name in b:
            assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape, (name, a[name].dtype)
            np.testing.assert_allclose(a[name], b[name], rtol=tolerance, atol=tolerance, err_msg=f"step {i}: {name}")


def compare(ours, theirs, **kw):
    same(train_shoal(lambda m, loss, step: m.call("shoal_minimize", ours, loss, step)),
         train_tf(lambda loss, step: theirs(step).minimize(loss, step)), **kw)


def test_sgd():
    compare(optimizer("shoal_sgd", 0.3), lambda step: tf.train.GradientDescentOptimizer(0.3))


def test_momentum():
    compare(optimizer("shoal_momentum", 0.1, 0.9), lambda step: tf.train.MomentumOptimizer(0.1, 0.9))


def test_nesterov():
    compare(optimizer("shoal_nesterov", 0.1, 0.9), lambda step: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True))


def test_adam():
    compare(optimizer("shoal_adam", 0.05), lambda step: tf.train.AdamOptimizer(0.05))


def test_adagrad():
    compare(optimizer("shoal_adagrad", 0.2), lambda step: tf.train.AdagradOptimizer(0.2))


def test_adagrad_da():
    compare(optimizer("shoal_adagrad_da", 0.2, 0.01, 0.1),
            lambda step: tf.train.AdagradDAOptimizer(0.2, step, l1_regularization_strength=0.01,
                                                     l2_regularization_strength=0.1))


def test_adadelta():
    compare(optimizer("shoal_adadelta", 1.0), lambda step: tf.train.AdadeltaOptimizer(1.0))


def test_rmsprop():
    compare(optimizer("shoal_rmsprop", 0.05, b=0.3), lambda step: tf.train.RMSPropOptimizer(0.05, momentum=0.3))


def test_centered_rmsprop():
    compare(optimizer("shoal_centered_rmsprop", 0.05, b=0.3),
            lambda step: tf.train.RMSPropOptimizer(0.05, momentum=0.3, centered=True), tolerance=2e-5)


def test_ftrl():
    compare(optimizer("shoal_ftrl", 0.2, a=0.01, b=0.02),
            lambda step: tf.train.FtrlOptimizer(0.2, l1_regularization_strength=0.01, l2_regularization_strength=0.02))


def test_proximal_sgd():
    compare(optimizer("shoal_proximal_sgd", 0.2, 0.01, 0.1),
            lambda step: tf.train.ProximalGradientDescentOptimizer(0.2, 0.01, 0.1))


def test_proximal_adagrad():
    compare(optimizer("shoal_proximal_adagrad", 0.2, 0.01, 0.1),
            lambda step: tf.train.ProximalAdagradOptimizer(0.2, l1_regularization_strength=0.01,
                                                           l2_regularization_strength=0.1))


def test_adamw():
    """TensorFlow's is Keras': eager, with other names, and epsilon 1e-7; the table's gradient is made dense there."""
    ours = train_shoal(lambda m, loss, step: m.call("shoal_minimize", optimizer("shoal_adamw", 0.05, 0.1, c=1e-7), loss,
                                                    step))
    grads = []
    with tf.Graph().as_default():
        ids, w, table = tf.placeholder(tf.int64), tf.placeholder(tf.float32), tf.placeholder(tf.float32)
        loss = tf.reduce_mean(tf.squared_difference(tf.matmul(tf.gather(table, ids), w), GOAL))
        dw, dt = tf.gradients(loss, [w, table])
        dt = tf.convert_to_tensor(dt)
        now = {"w": W.astype(np.float64), "table": TABLE.astype(np.float64)}
        slots = {k: [np.zeros_like(v), np.zeros_like(v)] for k, v in now.items()}
        with tf.Session() as s:
            for t, batch in enumerate(IDS, 1):
                grads = dict(zip(("w", "table"), s.run([dw, dt], {ids: batch, w: now["w"], table: now["table"]})))
                for k, g in grads.items():
                    m, v = slots[k]
                    m += 0.1 * (g - m)
                    v += 0.001 * (g * g - v)
                    now[k] = now[k] * (1 - 0.05 * 0.1)
                    now[k] -= 0.05 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-7)
                np.testing.assert_allclose(ours[t - 1]["w"], now["w"], rtol=1e-5, atol=1e-5)
                np.testing.assert_allclose(ours[t - 1]["table"], now["table"], rtol=1e-5, atol=1e-5)
    tf2 = __import__("tensorflow")
    with tf2.init_scope():
        if not tf2.executing_eagerly():
            return
        v = tf2.Variable(W)
        o = tf2.keras.optimizers.AdamW(0.05, weight_decay=0.1)
        o.apply_gradients([(tf2.constant(np.ones_like(W)), v)])
        first = v.numpy()
    np.testing.assert_allclose(first, W * (1 - 0.005) - 0.05, rtol=1e-4, atol=1e-4)


def test_reference_variables():
    """TensorFlow 1's kind of variables: the same names and numbers."""
    for ours, theirs in ((optimizer("shoal_sgd", 0.3), lambda: tf.train.GradientDescentOptimizer(0.3)),
                         (optimizer("shoal_momentum", 0.1, 0.9), lambda: tf.train.MomentumOptimizer(0.1, 0.9)),
                         (optimizer("shoal_adam", 0.05), lambda: tf.train.AdamOptimizer(0.05)),
                         (optimizer("shoal_adagrad", 0.2), lambda: tf.train.AdagradOptimizer(0.2)),
                         (optimizer("shoal_ftrl", 0.2), lambda: tf.train.FtrlOptimizer(0.2))):
        same(train_shoal(lambda m, loss, step: m.call("shoal_minimize", ours, loss, step), refs=True),
             train_tf(lambda loss, step: theirs().minimize(loss, step), refs=True))


def test_update_names():
    """The nodes that change variables are called as TensorFlow calls them, also a second time and inside a scope."""
    for refs in (False, True):
        for ours, theirs in ((optimizer("shoal_sgd", 0.3), tf.train.GradientDescentOptimizer(0.3)),
                             (optimizer("shoal_nesterov", 0.1, 0.9), tf.train.MomentumOptimizer(0.1, 0.9)),
                             (optimizer("shoal_adam", 0.05), tf.train.AdamOptimizer(0.05)),
                             (optimizer("shoal_rmsprop", 0.05), tf.train.RMSPropOptimizer(0.05)),
                             (optimizer("shoal_proximal_sgd", 0.2, 0.01, 0.1),
                              tf.train.ProximalGradientDescentOptimizer(0.2, 0.01, 0.1))):
            m = Model()
            m.call("shoal_use_ref_variables", refs)
            loss, step, names = shoal_model(m), m.call("shoal_global_step"), []
            names += [m.op_name(m.call("shoal_minimize", ours, loss, step))]
            m.call("shoal_push_scope", "outer")
            names += [m.op_name(m.call("shoal_minimize", ours, loss, step)) for _ in range(2)]
            m.call("shoal_pop_scope")
            with tf.Graph().as_default() as g:
                loss, step = tf_model(refs), tf.train.get_or_create_global_step()
                expected = [op_of(theirs.minimize(loss, step)).name]
                with tf.name_scope("outer"):
                    expected += [op_of(theirs.minimize(loss, step)).name for _ in range(2)]
                updates = changed(g.as_graph_def())
            assert names == expected, (names, expected)
            assert changed(tf.GraphDef.FromString(m.export())) == updates, (refs, updates)


def op_of(x):
    return getattr(x, "op", x)


def changed(graph_def):
    """Nodes that change variables. (Those of the old kind are scattered into by ScatterSub there, ScatterAdd here.)"""
    return sorted((n.op, n.name) for n in graph_def.node if "Apply" in n.op or n.op == "ResourceScatterAdd")


# ---- schedules ----

def schedule(ours, theirs, steps=(0, 1, 7, 10, 11, 25, 99, 100, 101, 350, 1000)):
    m = Model()
    step = m.placeholder("step", np.int64, [])
    name = m.name(ours(m, step))
    with tf.Graph().as_default(), shoal.Session(m) as s, tf.Session() as t:
        p = tf.placeholder(tf.int64, [])
        rate = theirs(p)
        rate = rate() if callable(rate) else rate
        for k in steps:
            a, b = s.run([name], {"step:0": np.int64(k)})[0], t.run(rate, {p: k})
            np.testing.assert_allclose(a, b, rtol=3e-6, atol=1e-9, err_msg=f"step {k}")


def test_exponential_decay():
    for stairs in (False, True):
        schedule(lambda m, p: m.call("shoal_exponential_decay", 0.1, p, 100, 0.96, stairs),
                 lambda p: tf.train.exponential_decay(0.1, p, 100, 0.96, stairs))
        schedule(lambda m, p: m.call("shoal_natural_exp_decay", 0.1, p, 100, 0.5, stairs),
                 lambda p: tf.train.natural_exp_decay(0.1, p, 100, 0.5, stairs))
        schedule(lambda m, p: m.call("shoal_inverse_time_decay", 0.1, p, 100, 0.5, stairs),
                 lambda p: tf.train.inverse_time_decay(0.1, p, 100, 0.5, stairs))


def test_polynomial_decay():
    for cycle in (False, True):
        schedule(lambda m, p: m.call("shoal_polynomial_decay", 0.1, p, 100, 0.01, 0.5, cycle),
                 lambda p: tf.train.polynomial_decay(0.1, p, 100, 0.01, 0.5, cycle))


def test_cosine_decay():
    schedule(lambda m, p: m.call("shoal_cosine_decay", 0.1, p, 100, 0.2),
             lambda p: tf.train.cosine_decay(0.1, p, 100, 0.2))
    for t_mul in (1.0, 2.0):
        schedule(lambda m, p: m.call("shoal_cosine_decay_restarts", 0.1, p, 100, t_mul, 0.9, 0.1),
                 lambda p: tf.train.cosine_decay_restarts(0.1, p, 100, t_mul, 0.9, 0.1),
                 steps=(0, 1, 7, 55, 99, 101, 350))


def test_piecewise_constant():
    at, rates = [10, 100], [1.0, 0.5, 0.1]
    schedule(lambda m, p: m.call("shoal_piecewise_constant", p, (C.c_int64 * 2)(*at), (C.c_double * 3)(*rates), 2),
             lambda p: tf.train.piecewise_constant(p, [tf.constant(a, tf.int64) for a in at], rates))


def test_warmup():
    schedule(lambda m, p: m.call("shoal_warmup", m.constant(np.float32(0.4)), p, 100),
             lambda p: 0.4 * tf.minimum(tf.cast(p, tf.float32) / 100, 1))


def test_schedule_drives_optimizer():
    def ours(m, loss, step):
        rate = m.call("shoal_exponential_decay", 0.3, step.value, 2, 0.5, True)
        return m.call("shoal_minimize", optimizer("shoal_momentum", 0, 0.9, learning_rate_out=rate), loss, step)
    same(train_shoal(ours), train_tf(lambda loss, step: tf.train.MomentumOptimizer(
        tf.train.exponential_decay(0.3, step, 2, 0.5, True), 0.9).minimize(loss, step)))


# ---- averages ----

def average_shoal(m, loss, step, num_updates):
    train = m.call("shoal_minimize", optimizer("shoal_sgd", 0.3), loss, step)
    return m.call("shoal_average_variables", 0.8, step.value if num_updates else shoal.Out(), None, 0, train)


def average_tf(loss, step, num_updates):
    read = step + 0  # before the update, and not the variable's own memory
    with tf.control_dependencies([read]):
        train = tf.train.GradientDescentOptimizer(0.3).minimize(loss, step)
    with tf.control_dependencies([train]):
        return tf.train.ExponentialMovingAverage(0.8, read if num_updates else None).apply(tf.trainable_variables())


def test_averages():
    same(train_shoal(lambda m, loss, step: average_shoal(m, loss, step, False)),
         train_tf(lambda loss, step: average_tf(loss, step, False)))


def test_averages_num_updates():
    same(train_shoal(lambda m, loss, step: average_shoal(m, loss, step, True)),
         train_tf(lambda loss, step: average_tf(loss, step, True)))


def test_averages_are_restored():
    with tempfile.TemporaryDirectory() as d:
        with tf.Graph().as_default(), tf.Session() as s:
            step = tf.Variable(0, dtype=tf.int64, name="global_step", trainable=False, use_resource=True)
            train = average_tf(tf_model(), step, False)
            s.run(tf.global_variables_initializer())
            for ids in IDS:
                s.run(train, {"ids:0": ids})
            wanted = s.run({v.op.name: tf.get_default_graph().get_tensor_by_name(
                v.op.name + "/ExponentialMovingAverage/Read/ReadVariableOp:0") for v in tf.trainable_variables()})
            path = tf.train.Saver().save(s, os.path.join(d, "m"))
        m = Model()
        shoal_model(m)
        m.call("shoal_global_step")
        restore = m.call("shoal_restore_averages", m.constant(np.array(path.encode(), object)))
        with shoal.Session(m) as s:
            s.run(targets=[m.op_name(restore)])
            w, table, step = s.run([f"{n}/Read/ReadVariableOp:0" for n in ("w", "table", "global_step")])
        np.testing.assert_array_equal(w, wanted["w"])
        np.testing.assert_array_equal(table, wanted["table"])
        assert step == STEPS


# ---- micro-batches, half precision ----

def test_accumulation_is_the_large_batch():
    """Three micro-batches a step do what one step does on their mean: the same goal for each, so ids joined."""
    for name, args in (("shoal_sgd", (0.3,)), ("shoal_momentum", (0.1, 0.9)), ("shoal_adam", (0.05,)),
                       ("shoal_adagrad", (0.2,))):
        micro = train_shoal(lambda m, loss, step: m.call("shoal_minimize_accumulated", optimizer(name, *args), loss,
                                                         step, 3))
        assert [int(h["global_step"]) for h in micro] == [0, 0, 1, 1, 1, 2]

        def joined(m):
            w, table = m.variable("w", W), m.variable("table", TABLE)
            ids = m.placeholder("ids", np.int64, [None])
            rows = m.call("shoal_embedding_lookup", (Var * 1)(table), 1, ids, "mod")
            y = m.op("SquaredDifference", m.op("MatMul", rows, w.value), m.constant(np.concatenate([GOAL] * 3)))
            return m.call("shoal_minimize", optimizer(name, *args), m.call("shoal_reduce_mean", y),
                          m.call("shoal_global_step"))
        m = Model()
        train = joined(m)
        init = m.op_name(m.call("shoal_initialize"))
        with shoal.Session(m) as s:
            s.run(targets=[init])
            for k in range(2):
                s.run(feeds={"ids:0": np.concatenate(IDS[3 * k:3 * k + 3])}, targets=[m.op_name(train)])
                for v in ("w", "table"):
                    np.testing.assert_allclose(micro[3 * k + 2][v], s.run([f"{v}/Read/ReadVariableOp:0"])[0], rtol=3e-6,
                                               atol=3e-6, err_msg=f"{name} {v}")


def test_loss_scale():
    """Dynamic: doubled after two good steps, halved and nothing applied at an infinite gradient."""
    boost = [1, 1, 1, np.inf, 1, np.nan, 1, 1, 1]
    m = Model()
    w = m.variable("w", np.ones(3, np.float32))
    b = m.placeholder("b", np.float32, [])
    loss = m.call("shoal_reduce_sum", m.op("Mul", m.op("Square", w.value), b))
    scale = api.LossScale(initial=8, increment_period=2, multiplier=2)
    train = m.op_name(m.call("shoal_minimize_scaled", optimizer("shoal_adam", 0.1), loss, m.call("shoal_global_step"),
                             C.byref(scale)))
    init = m.op_name(m.call("shoal_initialize"))
    names = ["w", "global_step", "current_loss_scale", "good_steps"]
    ours, theirs = [], []
    with shoal.Session(m) as s:
        s.run(targets=[init])
        for v in boost:
            s.run(feeds={"b:0": np.float32(v)}, targets=[train])
            ours.append(s.run([f"{n}/Read/ReadVariableOp:0" for n in names]))
    with tf.Graph().as_default(), tf.Session() as s:
        w = tf.Variable(np.ones(3, np.float32), name="w", use_resource=True)
        step = tf.Variable(0, dtype=tf.int64, name="global_step", trainable=False, use_resource=True)
        b = tf.placeholder(tf.float32, [])
        o = tf.mixed_precision.MixedPrecisionLossScaleOptimizer(
            tf.train.AdamOptimizer(0.1), tf.mixed_precision.DynamicLossScale(8, 2, 2.0))
        train = o.minimize(tf.reduce_sum(tf.square(w) * b), step)
        s.run(tf.global_variables_initializer())
        by_name = {v.op.name: v for v in tf.global_variables()}
        for v in boost:
            s.run(train, {b: v})
            theirs.append(s.run([by_name[n] for n in names]))
    for i, (x, y) in enumerate(zip(ours, theirs)):
        for n, p, q in zip(names, x, y):
            np.testing.assert_allclose(p, q, rtol=2e-6, err_msg=f"step {i}: {n}")


def test_half_precision_layers_keep_float_variables():
    m = Model()
    x = m.op("Cast", m.placeholder("x", np.float32, [None, 4]), DstT=19)
    y = m.call("shoal_dense", x, 3, "d")
    loss = m.call("shoal_reduce_mean", m.op("Cast", m.op("Square", y), DstT=1))
    train = m.op_name(m.call("shoal_minimize_scaled", optimizer("shoal_sgd", 0.1), loss,
                             m.call("shoal_global_step"), None))
    init = m.op_name(m.call("shoal_initialize"))
    with shoal.Session(m) as s:
        s.run(targets=[init])
        data = {"x:0": RNG.normal(size=(8, 4)).astype(np.float32)}
        first = s.run([m.name(loss)], data)[0]
        for _ in range(20):
            s.run(feeds=data, targets=[train])
        kernel, last = s.run(["d/kernel/Read/ReadVariableOp:0", m.name(loss)], data)
    assert kernel.dtype == np.float32 and last < first / 2, (first, last)


if __name__ == "__main__":
    tap.main(globals())
