"""Where variables go, beside TensorFlow: device setter, variables in parts and their checkpoints, rows of shards."""
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

RNG = np.random.default_rng(4)
PARTS = ("", "/Assign", "/Read/ReadVariableOp", "/Adam", "/Adam_1")
TABLE = RNG.normal(size=(11, 4)).astype(np.float32)


# ---- the device setter ----

def devices_shoal(setter, inner):
    m = Model()
    m.call("shoal_push_replica_setter", C.byref(setter))
    loss = None
    for i, device in enumerate(inner):
        if device is not None:
            m.call("shoal_push_device", device)
        v = m.variable(f"v{i}", np.ones(i + 1, np.float32))
        y = m.call("shoal_reduce_sum", m.op("Square", v.value))
        loss = y if loss is None else m.op("AddV2", loss, y)
        if device is not None:
            m.call("shoal_pop_device")
    step = m.call("shoal_global_step")
    m.call("shoal_minimize", optimizer("shoal_adam", 0.1), loss, step)
    m.call("shoal_pop_device")
    names = [f"v{i}{s}" for i in range(len(inner)) for s in PARTS]
    return {n: m.device(n) for n in names + ["beta1_power", "beta2_power", "global_step"]}, m.device(m.name(loss)[:-2])


def devices_tf(setter, inner):
    with tf.Graph().as_default() as g, tf.device(setter):
        loss = None
        for i, device in enumerate(inner):
            with tf.device(device) if device is not None else tf.name_scope(""):
                v = tf.Variable(np.ones(i + 1, np.float32), name=f"v{i}", use_resource=True)
                y = tf.reduce_sum(tf.square(v))
                loss = y if loss is None else loss + y
        step = tf.Variable(0, dtype=tf.int64, name="global_step", trainable=False, use_resource=True)
        tf.train.AdamOptimizer(0.1).minimize(loss, step)
        names = [f"v{i}{s}" for i in range(len(inner)) for s in PARTS]
        return {n: g.get_operation_by_name(n).device for n in names + ["beta1_power", "beta2_power", "global_step"]}, \
            loss.op.device


def check_setter(inner, **kw):
    tf_args = dict(kw)
    ours = api.Setter(**{k: v.encode() if isinstance(v, str) else v for k, v in kw.items() if k != "merge_devices"})
    a, b = devices_shoal(ours, inner), devices_tf(tf.train.replica_device_setter(**tf_args), inner)
    assert a[1] == b[1], (a[1], b[1])
    for n in [n for n in b[0] if "Read" not in n]:
        assert a[0][n] == b[0][n], (n, a[0][n], b[0][n])
    for n, device in a[0].items():  # a read is with its variable
        assert device == a[0][n.split("/")[0]], (n, device)


def test_setter_round_robin():
    check_setter([None] * 5, ps_tasks=2, worker_device="/job:worker/task:1")


def test_setter_inner_devices():
    check_setter([None, "/cpu:0", "/job:ps/task:1", None, "/job:worker", "/job:ps", "/task:1", None], ps_tasks=3,
                 worker_device="/job:worker/task:0/device:CPU:0")


def test_setter_other_job_and_none():
    check_setter([None, None], ps_tasks=2, ps_device="/job:params/cpu:0", worker_device="/job:trainer")
    check_setter([None, "/cpu:0"], ps_tasks=0)


def test_setter_by_bytes():
    """Layers of very different sizes over 3 tasks: no task has more than 1.2 times the mean."""
    sizes = [784 * 512, 512, 512 * 512, 512, 512 * 512, 512, 512 * 10, 10, 3 * 3 * 64 * 128, 128, 3 * 3 * 128 * 128,
             128, 1 << 18, 1 << 17, 1 << 16, 200000, 180000, 1000]
    m = Model()
    setter = api.Setter(ps_tasks=3, by_bytes=True)
    m.call("shoal_push_replica_setter", C.byref(setter))
    for i, n in enumerate(sizes):
        m.call("shoal_variable", f"v{i}", m.call("shoal_init_zeros", 1, dims([n])))
    load = {}
    for i, n in enumerate(sizes):
        device = m.device(f"v{i}")
        assert device.startswith("/job:ps/task:"), device
        assert m.device(f"v{i}/Assign") == device
        load[device] = load.get(device, 0) + n
    assert len(load) == 3 and max(load.values()) <= 1.2 * sum(sizes) / 3, load


# ---- parts ----

PARTITIONERS = [("shoal_fixed_partitioner", (3, 0), lambda: tf.fixed_size_partitioner(3)),
                ("shoal_fixed_partitioner", (20, 1), lambda: tf.fixed_size_partitioner(20, 1)),
                ("shoal_max_bytes_partitioner", (50, 0, 0), lambda: tf.variable_axis_size_partitioner(50)),
                ("shoal_max_bytes_partitioner", (3, 0, 0), lambda: tf.variable_axis_size_partitioner(3)),
                ("shoal_max_bytes_partitioner", (50, 0, 2),
                 lambda: tf.variable_axis_size_partitioner(50, max_shards=2)),
                ("shoal_min_bytes_partitioner", (50, 0, 10), lambda: tf.min_max_variable_partitioner(10, 0, 50)),
                ("shoal_min_bytes_partitioner", (50, 1, 10), lambda: tf.min_max_variable_partitioner(10, 1, 50))]


def partitioned_shoal(m, maker, args):
    p = getattr(api.lib(), maker)(*args)
    init = C.cast(api.lib().shoal_init_zeros, C.c_void_p)
    parts = m.call("shoal_partitioned_variable", "table", 1, dims(TABLE.shape), C.byref(p), init, None)
    start, m.fill = 0, []
    for i in range(parts.n):
        length = m.shape(m.name(parts.parts[i].value))[args[1]]
        cut = TABLE[start:start + length] if args[1] == 0 else TABLE[:, start:start + length]
        m.fill.append(m.op_name(m.call("shoal_variable_assign", parts.parts[i], m.constant(cut))))
        start += length
    return parts


def test_parts_as_tensorflow():
    for maker, args, theirs in PARTITIONERS:
        m = Model()
        ours = partitioned_shoal(m, maker, args)
        mine = [(m.name(ours.parts[i].handle), m.shape(m.name(ours.parts[i].value))) for i in range(ours.n)]
        with tf.Graph().as_default(), tf.variable_scope("", use_resource=True):
            t = tf.get_variable("table", TABLE.shape, partitioner=theirs())
            want = [(v.op.name + ":0", tuple(v.shape.as_list())) for v in t]
        assert mine == want, (maker, args, mine, want)
        whole = m.name(m.call("shoal_partitioned_value", C.byref(ours)))
        init = m.op_name(m.call("shoal_initialize"))
        with shoal.Session(m) as s:
            s.run(targets=[init])
            s.run(targets=m.fill)
            np.testing.assert_array_equal(s.run([whole])[0], TABLE)
        api.lib().shoal_partitioned_free(C.byref(ours))


def train_on_parts(m, parts, n):
    ids = m.placeholder("ids", np.int64, [None])
    rows = m.call("shoal_embedding_lookup", parts, n, ids, "div")
    loss = m.call("shoal_reduce_sum", m.op("Square", rows))
    return m.op_name(m.call("shoal_minimize", optimizer("shoal_adam", 0.1), loss, m.call("shoal_global_step")))


def tf_parts(n):
    with tf.variable_scope("", use_resource=True):
        table = tf.get_variable("table", TABLE.shape, partitioner=tf.fixed_size_partitioner(n) if n else None)
    ids = tf.placeholder(tf.int64, [None], name="ids")
    step = tf.Variable(0, dtype=tf.int64, name="global_step", trainable=False, use_resource=True)
    return tf.train.AdamOptimizer(0.1).minimize(
        tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids, partition_strategy="div"))), step)


def whole(s, name, n):
    return np.concatenate([s.run(f"table/part_{i}{name}/Read/ReadVariableOp:0") for i in range(n)]) if n else s.run(
        f"table{name}/Read/ReadVariableOp:0")


def test_checkpoints_in_other_parts():
    """Shoal trains in three parts and saves; TensorFlow restores in two and in one, trains and saves in two; Shoal
    restores in four. Slots too."""
    batches = [np.array([0, 3, 10]), np.array([5, 5, 9, 1])]
    with tempfile.TemporaryDirectory() as d:
        m = Model()
        ours = partitioned_shoal(m, "shoal_fixed_partitioner", (3, 0))
        train = train_on_parts(m, ours.parts, ours.n)
        prefix = m.placeholder("prefix", object, [])
        save = m.op_name(m.call("shoal_save_variables", prefix))
        init = m.op_name(m.call("shoal_initialize"))
        path = os.path.join(d, "ours")
        with shoal.Session(m) as s:
            s.run(targets=[init])
            s.run(targets=m.fill)
            for ids in batches:
                s.run(feeds={"ids:0": ids}, targets=[train])
            s.run(feeds={"prefix:0": np.array(path, object)}, targets=[save])
            mine = {n: np.concatenate(s.run([f"table/part_{i}{n}/Read/ReadVariableOp:0" for i in range(3)]))
                    for n in ("", "/Adam", "/Adam_1")}
        for parts in (0, 2):
            with tf.Graph().as_default(), tf.Session() as s:
                train = tf_parts(parts)
                saver = tf.train.Saver()
                saver.restore(s, path)
                for n, v in mine.items():
                    np.testing.assert_array_equal(whole(s, n, parts), v, err_msg=n)
                s.run(train, {"ids:0": batches[0]})
                theirs = {n: whole(s, n, parts) for n in mine}
                back = saver.save(s, os.path.join(d, f"theirs{parts}"), write_meta_graph=False)
            m = Model()
            ours = partitioned_shoal(m, "shoal_fixed_partitioner", (4, 0))
            train_on_parts(m, ours.parts, ours.n)
            restore = m.op_name(m.call("shoal_restore_variables", m.constant(np.array(back, object))))
            with shoal.Session(m) as s:
                s.run(targets=[restore])
                for n, v in theirs.items():
                    got = np.concatenate(s.run([f"table/part_{i}{n}/Read/ReadVariableOp:0" for i in range(4)]))
                    np.testing.assert_array_equal(got, v, err_msg=n)
                assert s.run(["global_step/Read/ReadVariableOp:0"])[0] == 3


def test_meta_graphs():
    """TensorFlow takes up the graph of partitioned variables, and of TensorFlow 1's kind of variables, from the file
    beside the checkpoint; a saver of its own, by the slices the file tells, writes the same names."""
    for refs in (False, True):
        with tempfile.TemporaryDirectory() as d, tf.Graph().as_default():
            m = Model()
            m.call("shoal_use_ref_variables", refs)
            if refs:
                m.fill, parts = [], [m.variable("table", TABLE)]
            else:
                ours = partitioned_shoal(m, "shoal_fixed_partitioner", (3, 0))
                parts = [ours.parts[i] for i in range(3)]
            train = train_on_parts(m, (Var * len(parts))(*parts), len(parts))
            saver = m.call("shoal_saver_new", None)
            init = m.op_name(m.call("shoal_initialize"))
            with shoal.Session(m) as s:
                s.run(targets=[init])
                s.run(targets=[init, *m.fill][-3:])
                s.run(feeds={"ids:0": np.array([0, 3, 10])}, targets=[train])
                mine = np.concatenate(s.run([m.name(p.value) for p in parts]))
                assert not api.lib().shoal_saver_save(saver, s.handle, os.path.join(d, "m").encode(), 1, None)
            api.lib().shoal_saver_free(saver)
            theirs = tf.train.import_meta_graph(os.path.join(d, "m-1.meta"))
            with tf.Session() as s:
                theirs.restore(s, os.path.join(d, "m-1"))
                np.testing.assert_array_equal(np.concatenate(s.run(tf.trainable_variables())), mine)
                s.run(train, {"ids:0": np.array([1, 2])})
                again = tf.train.Saver().save(s, os.path.join(d, "again"), write_meta_graph=False)
            assert tf.train.list_variables(again) == tf.train.list_variables(os.path.join(d, "m-1"))


# ---- lookups ----

def test_lookup_and_gradients():
    """Values, and the rows and values of each shard's gradient, for ids of two shapes."""
    for strategy in ("mod", "div"):
        for n in (1, 2, 3, 4):
            if strategy == "mod":
                cuts = [TABLE[i::n] for i in range(n)]
            else:
                cuts = np.array_split(TABLE, n)
            for ids in (np.array([3, 10, 3, 0]), np.array([[1, 9], [10, 2]], np.int32)):
                m = Model()
                shards = [m.variable(f"s{i}", c) for i, c in enumerate(cuts)]
                rows = m.call("shoal_embedding_lookup", (Var * n)(*shards), n, m.constant(ids), strategy)
                grads = (shoal.Gradient * n)()
                found = (Var * n)()
                loss = m.call("shoal_reduce_sum", m.op("Square", rows))
                assert m.call("shoal_compute_gradients", loss, found, grads, n) == n
                assert all(g.indices.node for g in grads)
                names = [m.name(rows)] + [m.name(o) for g in grads for o in (g.values, g.indices)]
                init = m.op_name(m.call("shoal_initialize"))
                with shoal.Session(m) as s:
                    s.run(targets=[init])
                    ours = s.run(names)
                with tf.Graph().as_default(), tf.Session() as s:
                    shards = [tf.Variable(c, use_resource=True) for c in cuts]
                    rows = tf.nn.embedding_lookup(shards, ids, partition_strategy=strategy)
                    slices = tf.gradients(tf.reduce_sum(tf.square(rows)), shards)
                    s.run(tf.global_variables_initializer())
                    theirs = s.run([rows] + [o for g in slices for o in (g.values, g.indices)])
                for a, b in zip(ours, theirs):
                    np.testing.assert_allclose(a, b, rtol=1e-6)
                assert sum(ours[1 + 2 * i].shape[0] for i in range(n)) == ids.size  # no row that was not asked for


if __name__ == "__main__":
    tap.main(globals())
