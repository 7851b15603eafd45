"""Sessions in one process behave as TensorFlow's: feeds, fetches, targets, partial runs, callables, several devices,
sharing by name, cancellation, time-outs, traces, and the codes of what goes wrong.

# needs: tensorflow
"""
import os
import sys
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2

import shoal
import tap


def build(make):
    """A TensorFlow graph and the same as Shoal's."""
    g = tf.Graph()
    with g.as_default():
        made = make()
    return g, shoal.Graph(g.as_graph_def().SerializeToString()), made


def code_of(fn):
    """The canonical code that a call fails with, on either side; 0 when it does not."""
    try:
        fn()
    except shoal.Error as e:
        return e.code
    except tf.errors.OpError as e:
        return e.error_code
    return 0


def same_code(expected, *calls):
    codes = [code_of(c) for c in calls]
    assert all(c == expected for c in codes), f"codes {codes}, expected {expected}"


def test_any_tensor_can_be_fed():
    def make():
        a = tf.constant([1.0, 2.0], name="a")
        b = tf.multiply(a, 3.0, name="b")
        return tf.add(b, 1.0, name="c")
    _, g, _ = build(make)
    with shoal.Session(g) as s:
        assert list(s.run(["c:0"])[0]) == [4, 7]
        assert list(s.run(["c:0"], {"b:0": np.float32([10, 20])})[0]) == [11, 21]
        assert list(s.run(["c:0"], {"a:0": np.float32([0, 0])})[0]) == [1, 1]
        # Both at once is refused below Python, as TensorFlow does.
        assert code_of(lambda: s.run(["b:0"], {"b:0": np.float32([5, 5])})) == 3
        # The same tensor twice, another shape than before.
        assert [v.shape for v in s.run(["c:0", "c:0"], {"b:0": np.zeros((3, 2), np.float32)})] == [(3, 2), (3, 2)]


def test_reads_of_ref_variables_are_late():
    """A consumer that comes after an update sees it, though the read came before: in loops and branches too."""
    def make():
        tf.disable_control_flow_v2()
        v = tf.get_variable("v", [], initializer=tf.constant_initializer(2.0), use_resource=False)

        def body(i):
            with tf.control_dependencies([tf.cond(tf.constant(True), lambda: tf.assign(v, tf.square(v)), lambda: v)]):
                return i + 1
        loop = tf.while_loop(lambda i: i < 4, body, [tf.constant(0)])
        u = tf.raw_ops.Variable(shape=[1], dtype=tf.float32, name="u")
        off, on = (tf.raw_ops.RefIdentity(input=x) for x in
                   tf.raw_ops.RefSwitch(data=u, pred=tf.is_variable_initialized(u)))
        with tf.control_dependencies([off]):
            first = tf.assign(u, [1.0])
        with tf.control_dependencies([on]):
            later = tf.identity(u)
        merged = tf.raw_ops.Merge(inputs=[tf.identity(first), later]).output
        return tf.global_variables_initializer(), loop, v.read_value(), merged
    tg, g, (init, loop, v, merged) = build(make)
    with shoal.Session(g) as s, tf.Session(graph=tg) as t:
        s.run(targets=[init.name]), t.run(init)
        assert s.run([loop.name])[0] == t.run(loop) == 4
        assert s.run([v.name])[0] == t.run(v) == 65536
        for _ in range(2):
            assert list(s.run([merged.name])[0]) == list(t.run(merged)) == [1]


def test_reads_of_ref_variables_elsewhere_are_late():
    """A reader on another device waits for an update: it reads the variable after it, in loops and branches too."""
    def make():
        tf.disable_control_flow_v2()
        with tf.device("/cpu:0"):
            v = tf.get_variable("v", [], initializer=tf.constant_initializer(2.0), use_resource=False)
            n = tf.get_variable("n", [], initializer=tf.zeros_initializer(), use_resource=False)
            add = tf.assign_add(v, 1.0)
        with tf.device("/cpu:1"):
            with tf.control_dependencies([add]):
                reads = [tf.identity(v._variable), v * 10]
            by_data = tf.raw_ops.Add(x=v._variable, y=tf.multiply(add, 0.0))

            def body(i, s):
                with tf.device("/cpu:0"):
                    count = tf.assign_add(n, 1.0)
                with tf.control_dependencies([count]):
                    s += tf.identity(n._variable)
                s = tf.cond(s > 3, lambda: s + tf.identity(n._variable), lambda: s)
                return i + 1, s
            loop = tf.while_loop(lambda i, s: i < 4, body, [tf.constant(0), tf.constant(0.0)], parallel_iterations=1)
        return tf.global_variables_initializer(), reads[0], reads[1], by_data, loop[1]
    tg, g, (init, *fetches) = build(make)
    with shoal.Session(g, cpu_devices=2) as s, \
            tf.Session(graph=tg, config=tf.ConfigProto(device_count={"CPU": 2})) as t:
        s.run(targets=[init.name]), t.run(init)
        for _ in range(3):
            for part in ([0, 1], [2], [3]):
                expected = t.run([fetches[i] for i in part])
                assert s.run([fetches[i].name for i in part]) == expected, (part, expected)


def test_errors_have_tensorflows_codes():
    def make():
        x = tf.placeholder(tf.float32, [2], name="x")
        v = tf.get_variable("v", [2], use_resource=True)
        r = tf.get_variable("r", [2], use_resource=False)
        y = tf.identity(x, name="y")
        tf.identity(tf.raw_ops.Switch(data=1.0, pred=True)[0], name="dead")
        return x, v.read_value(), r.read_value(), y, tf.Assert(False, ["told you"])
    tg, g, (x, v, r, y, fail) = build(make)
    with shoal.Session(g) as s, tf.Session(graph=tg) as t:
        same_code(3, lambda: s.run(["y:0"]), lambda: t.run(y))                      # a placeholder that is not fed
        same_code(9, lambda: s.run([v.name]), lambda: t.run(v))                     # uninitialised, of either kind
        same_code(9, lambda: s.run([r.name]), lambda: t.run(r))
        same_code(3, lambda: s.run(targets=[fail.name]), lambda: t.run(fail))
        same_code(3, lambda: s.run(["dead:0"]), lambda: t.run("dead:0"))
        # What TensorFlow's Python checks itself; its C API and tests/cluster/codes_test.py have these.
        same_code(5, lambda: s.run(["nowhere:0"]), lambda: s.run(["y:0"], {"nowhere:0": np.float32(1)}),
                  lambda: s.run(targets=["nowhere"]))
        same_code(3, lambda: s.run(["y:1"]), lambda: s.run(["y:0"], {"x:1": np.float32([1, 2])}),
                  lambda: s.run(["y:0"], {"x:0": np.int32([1, 2])}))
        try:
            s.run(targets=[fail.name])
        except shoal.Error as e:
            assert "told you" in e.message and "{{node" in e.message, e.message
        assert list(s.run(["y:0"], {"x:0": np.float32([1, 2])})[0]) == [1, 2]       # and it goes on


def test_callables():
    _, g, _ = build(lambda: tf.add(tf.placeholder(tf.float32, [], "x"), tf.placeholder(tf.float32, [], "y"), name="z"))
    with shoal.Session(g) as s:
        f = s.callable(["z:0"], ["x:0", "y:0"])
        for i in range(100):
            assert f(np.float32(i), np.float32(2))[0] == i + 2
        shoal.library().shoal_session_release_callable(s.handle, f.id)
        assert code_of(lambda: f(np.float32(1), np.float32(1))) in (3, 5)


def test_partial_runs():
    def make():
        a, b, c = (tf.placeholder(tf.float32, [], n) for n in "abc")
        r1 = tf.add(a, b, name="r1")
        tf.multiply(r1, c, name="r2")
    _, g, _ = build(make)
    lib, C = shoal.library(), shoal.C
    with shoal.Session(g) as s:
        handle = C.c_void_p()
        lib.shoal_session_partial_setup(s.handle, shoal._names(["a:0", "b:0", "c:0"]), 3, shoal._names(["r1:0", "r2:0"]), 2,
                                        shoal._names([]), 0, C.byref(handle))

        def part(feeds, fetches):
            made = [shoal.to_handle(np.float32(v)) for v in feeds.values()]
            out = (C.c_void_p * max(1, len(fetches)))()
            lib.shoal_session_partial_run(s.handle, handle, shoal._names(list(feeds)),
                                          (C.c_void_p * max(1, len(made)))(*[m.value for m in made]), len(made),
                                          shoal._names(fetches), out, len(fetches))
            return [float(v) for v in shoal._take(out, len(fetches))]

        assert part({"a:0": 1, "b:0": 2}, ["r1:0"]) == [3]
        assert code_of(lambda: part({"a:0": 1}, [])) == 3            # fed twice
        assert part({"c:0": 10}, ["r2:0"]) == [30]
        assert code_of(lambda: part({"c:0": 1}, ["r2:0"])) in (3, 5)   # it is over


def test_time_out_of_a_step_that_waits():
    def make():
        q = tf.FIFOQueue(2, tf.float32, shared_name="q")
        return q.dequeue(name="take"), q.enqueue(7.0, name="put")
    _, g, _ = build(make)
    with shoal.Session(g) as s:
        assert code_of(lambda: s.run(["take:0"], timeout_ms=200)) == 4
        # The value that comes later is not lost to the step that gave up.
        s.run(targets=["put"])
        assert s.run(["take:0"])[0] == 7


def test_closing_ends_what_waits():
    def make():
        begun = tf.FIFOQueue(2, tf.float32)
        begun.dequeue(name="begun")
        with tf.control_dependencies([begun.enqueue(1.0)]):
            return tf.FIFOQueue(2, tf.float32).dequeue(name="take")
    _, g, _ = build(make)
    s = shoal.Session(g)
    codes = []
    waiting = threading.Thread(target=lambda: codes.append(code_of(lambda: s.run(["take:0"], timeout_ms=0))))
    waiting.start()
    s.run(["begun:0"])
    s.close()
    waiting.join(60)
    assert codes == [1], codes


def test_many_threads_in_one_session():
    def make():
        x = tf.placeholder(tf.float32, [None], "x")
        v = tf.get_variable("v", [], tf.int64, tf.zeros_initializer(), use_resource=True)
        return tf.reduce_sum(tf.square(x), name="y"), v.assign_add(1, read_value=False), v.initializer, v.read_value()
    _, g, (_, add, init, read) = build(make)
    wrong = []
    with shoal.Session(g) as s:
        s.run(targets=[init.name])

        def work(k):
            for i in range(100):
                n = (k * 31 + i) % 50 + 1
                got = s.run(["y:0"], {"x:0": np.full(n, 2, np.float32)}, [add.name])[0]
                if got != 4 * n:
                    wrong.append((n, got))

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong, wrong[:5]
        assert s.run([read.name])[0] == 800


def test_extending():
    g = shoal.Graph()
    tg = tf.Graph()
    with tg.as_default():
        tf.constant(2.0, name="a")
    g.load(tg.as_graph_def().SerializeToString())
    with shoal.Session(g) as s:
        assert s.run(["a:0"])[0] == 2
        more = tf.Graph()
        with more.as_default():
            tf.constant(5.0, name="b")
        g.load(more.as_graph_def().SerializeToString())
        assert code_of(lambda: s.run(["b:0"])) in (3, 5)
        s.extend()
        assert s.run(["b:0"])[0] == 5 and s.run(["a:0"])[0] == 2


def test_state_belongs_to_the_session():
    def make():
        v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=True)
        return v.initializer, v.assign_add(1.0, read_value=False), v.read_value()
    _, g, (init, add, read) = build(make)
    with shoal.Session(g) as a, shoal.Session(g) as b:
        a.run(targets=[init.name])
        a.run(targets=[add.name])
        assert a.run([read.name])[0] == 1
        assert code_of(lambda: b.run([read.name])) == 9


def test_several_devices():
    def make():
        with tf.device("/cpu:0"):
            a = tf.placeholder(tf.float32, [], "a")
            b = tf.multiply(a, 2.0)
        with tf.device("/cpu:1"):
            c = tf.add(b, 1.0)
            v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=True)
            d = v.assign_add(c)
        with tf.device("/cpu:2"):
            return v.initializer, tf.identity(d, name="out"), tf.identity(c, name="c")
    tg, g, (init, out, c) = build(make)
    with shoal.Session(g, cpu_devices=3) as s:
        s.run(targets=[init.name])
        for i in range(20):
            got, cv = s.run(["out:0", "c:0"], {"a:0": np.float32(1)})
            assert (got, cv) == (3 * (i + 1), 3)
        names = shoal.C.c_void_p()
        shoal.library().shoal_session_list_devices(s.handle, shoal.C.byref(names))
        text = shoal.C.string_at(names).decode()
        assert text.count("CPU:") == 3, text
    with shoal.Session(g, cpu_devices=1) as s:
        assert code_of(lambda: s.run(targets=[init.name])) == 3
    with shoal.Session(g, cpu_devices=1, allow_soft_placement=True) as s:
        s.run(targets=[init.name])


def test_what_has_a_kernel_on_tensorflows_gpus_may_be_asked_there():
    """Of ops that have state, handles and variants, on a soft device, where nothing may be elsewhere."""
    os.environ["SHOAL_SOFT_GPUS"] = "1"

    def make():
        tf.enable_control_flow_v2()
        with tf.device("/gpu:0"):
            x = tf.constant([[[1.0, 2.0], [3.0, 4.0]]])
            mapped = tf.gradients(tf.reduce_sum(tf.map_fn(lambda a: a * a, x)), x)[0]
            # (dynamic_rnn's gradient, without its random weights)
            ta = tf.TensorArray(tf.float32, 2, clear_after_read=False).unstack(x[0])
            _, h, ta = tf.while_loop(lambda i, h, t: i < 2, lambda i, h, t: (i + 1, h * 0.5 + t.read(i), t),
                                     [0, tf.zeros([2]), ta])
            rnn = tf.gradients(tf.reduce_sum(h * h), x)[0]
            u = tf.Variable(tf.zeros([4]), use_resource=True, name="u")
            v = tf.Variable(tf.zeros([4]), use_resource=False, name="v")
            with tf.control_dependencies([u[1:3].assign([3.0, 4.0])]):
                sliced = u.read_value()
            assigned = tf.identity(v[::2].assign([3.0, 4.0]))
            g = tf.random.Generator.from_seed(1)
            normal = g.normal([3])
            with tf.control_dependencies([normal]):
                ints = g.uniform([3], 0, 100, tf.int32)
                with tf.control_dependencies([ints]):
                    key = tf.raw_ops.RngReadAndSkip(resource=g.state.handle, alg=1, delta=tf.constant(5, tf.uint64))
            counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=[1, 2]).counter
            lock = tf.raw_ops.MutexLock(mutex=tf.raw_ops.MutexV2())
            with tf.control_dependencies([tf.raw_ops.ConsumeMutexLock(mutex_lock=lock),
                                          tf.raw_ops.Assert(condition=True, data=[x, "text"])]):
                after = tf.identity(x)
            handle = tf.raw_ops.GetSessionHandle(value=x * 2)
            place = tf.placeholder(tf.string, [])
            kept = tf.raw_ops.GetSessionTensor(handle=place, dtype=tf.float32) + 1.0
        return (tf.global_variables_initializer(), handle, place, kept,
                [mapped, rnn, sliced, assigned, normal, ints, key, counter, after])
    tg, g, (init, handle, place, kept, fetches) = build(make)
    with shoal.Session(g) as s, tf.Session(graph=tg, config=tf.ConfigProto(allow_soft_placement=True)) as t:
        s.run(targets=[init.name]), t.run(init)
        for f in fetches[:4] + fetches[7:]:
            np.testing.assert_allclose(s.run([f.name])[0], t.run(f), rtol=1e-6, err_msg=f.name)
        for have, want in zip(s.run([f.name for f in fetches[4:7]]), t.run(fetches[4:7])):
            np.testing.assert_allclose(have, want, rtol=1e-6)
        name = s.run([handle.name])[0]
        assert s.run([kept.name], {place.name: name})[0].tolist() == [[[3, 5], [7, 9]]]


def test_a_loop_over_two_devices():
    def make():
        tf.disable_control_flow_v2()

        def body(i, x):
            with tf.device("/cpu:1"):
                x = x * 2.0
            return i + 1, x
        with tf.device("/cpu:0"):
            return tf.identity(tf.while_loop(lambda i, x: i < 10, body, [0, 1.0])[1], name="y")
    _, g, _ = build(make)
    with shoal.Session(g, cpu_devices=2) as s:
        for _ in range(3):
            assert s.run(["y:0"])[0] == 1024


def test_trace():
    _, g, _ = build(lambda: tf.matmul(tf.ones([4, 4]), tf.placeholder(tf.float32, [4, 4], "x"), name="y"))
    with shoal.Session(g) as s:
        data = []
        s.run(["y:0"], {"x:0": np.ones((4, 4), np.float32)}, trace=True, metadata=data)
        metadata = config_pb2.RunMetadata.FromString(data[0])
        nodes = [n.node_name for d in metadata.step_stats.dev_stats for n in d.node_stats]
        assert "y" in nodes, nodes
        assert all(n.all_start_micros > 0 for d in metadata.step_stats.dev_stats for n in d.node_stats)


def test_config_proto():
    _, g, _ = build(lambda: tf.constant(1.0, name="a"))
    config = config_pb2.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1, device_count={"CPU": 2},
                                    allow_soft_placement=True, operation_timeout_in_ms=60000)
    with shoal.Session(g, config=config.SerializeToString()) as s:
        assert s.run(["a:0"])[0] == 1
    assert code_of(lambda: shoal.Session(g, config=b"\xff\xff\xff")) == 3


def test_rewrites_change_nothing():
    """The same numbers with all rewrites and with none."""
    def make():
        tf.set_random_seed(3)
        x = tf.placeholder(tf.float32, [8, 16], "x")
        w = tf.constant(np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32))
        h = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w), tf.constant([0.1, 0.2, 0.3, 0.4])))
        same = [tf.exp(h * 0.5 + 1.0 - 1.0) for _ in range(2)]
        return tf.add_n(same + [tf.zeros_like(h) + tf.ones([4]) * 2.0], name="y")
    _, g, _ = build(make)
    feeds = {"x:0": np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)}
    with shoal.Session(g) as a, shoal.Session(g, rewrites_off=b"all") as b:
        np.testing.assert_allclose(a.run(["y:0"], feeds)[0], b.run(["y:0"], feeds)[0], rtol=1e-6)


def nodes_run(session, target, feeds):
    data = []
    session.run([], feeds, [target], trace=True, metadata=data)
    metadata = config_pb2.RunMetadata.FromString(data[0])
    return {n.node_name for d in metadata.step_stats.dev_stats for n in d.node_stats}


def test_unread_is_skipped():
    """The gradient of the first layer's input is waited for and never read; an order made of waiting stays."""
    def make():
        x = tf.placeholder(tf.float32, [4, 3], "x")
        w = tf.get_variable("w", [3, 2], initializer=tf.ones_initializer(), use_resource=True)
        loss = tf.reduce_sum(tf.matmul(x, w))
        tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        first = tf.assign_add(w, tf.ones([3, 2]))
        with tf.control_dependencies([tf.square(tf.reduce_sum(first), name="square")]):
            tf.identity(w.read_value(), name="after")
        return tf.global_variables_initializer()
    _, g, init = build(make)
    feeds = {"x:0": np.ones((4, 3), np.float32)}
    with shoal.Session(g) as a, shoal.Session(g, rewrites_off=b"skip_unread") as b:
        for s in (a, b):
            s.run(targets=[init.name])
            assert (s.run(["after:0"])[0] == 2).all()
        ran, without = nodes_run(a, "train", feeds), nodes_run(b, "train", feeds)
        assert without - ran == {"gradients/MatMul_grad/MatMul"}, without ^ ran
        np.testing.assert_array_equal(a.run(["after:0"])[0], b.run(["after:0"])[0])


def test_updates_are_swept():
    """Small updates of one kind are one node, with the same bits; one that comes after another stays."""
    def make():
        x = tf.placeholder(tf.float32, [4, 3], "x")
        h = x
        for i in range(5):
            w = tf.get_variable(f"w{i}", [3, 3], initializer=tf.random_normal_initializer(seed=i), use_resource=True)
            b = tf.get_variable(f"b{i}", [3], initializer=tf.zeros_initializer(), use_resource=True)
            h = tf.tanh(tf.matmul(h, w) + b)
        loss = tf.reduce_sum(tf.square(h))
        for n, optimizer in enumerate([tf.train.AdamOptimizer(0.01), tf.train.MomentumOptimizer(0.01, 0.9)]):
            optimizer.minimize(loss, name=f"train{n}")
        a, b = (tf.get_variable(n, [2], initializer=tf.zeros_initializer(), use_resource=True) for n in "ab")
        apply = tf.raw_ops.ResourceApplyGradientDescent
        first = apply(var=a.handle, alpha=1.0, delta=tf.ones([2]), name="first")
        with tf.control_dependencies([first]):
            second = apply(var=b.handle, alpha=1.0, delta=tf.identity(a.read_value()), name="second")
        tf.group(first, second, name="both")
        tf.add_n([tf.reduce_sum(v) for v in tf.global_variables()[:14]], name="sum")
        return tf.global_variables_initializer()
    _, g, init = build(make)
    feeds = {"x:0": np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32)}
    names = [f"{v}{i}/Read/ReadVariableOp:0" for i in range(5) for v in "wb"]
    with shoal.Session(g) as a, shoal.Session(g, rewrites_off=b"sweep_updates") as b:
        for s in (a, b):
            s.run(targets=[init.name])
            for _ in range(3):
                s.run([], feeds, ["train0"])
                s.run([], feeds, ["train1"])
            s.run(targets=["both"])
            assert (s.run(["b/Read/ReadVariableOp:0"])[0] == 1).all()
        for x, y in zip(a.run(names), b.run(names)):
            np.testing.assert_array_equal(x, y)
        updates = [{n for n in nodes_run(s, "train0", feeds) if n.endswith("ApplyAdam") or "sweep" in n} for s in (a, b)]
        assert len(updates[0]) == 1 and len(updates[1]) == 10, updates


def test_reads_are_together():
    """Small variables' reads that wait for nothing are one node, whose errors are those of the read; others stay."""
    def make():
        v = [tf.get_variable(f"v{i}", [i + 1], tf.float32 if i % 2 else tf.int32, tf.ones_initializer(),
                             use_resource=True) for i in range(6)]
        large = tf.get_variable("large", [300, 300], initializer=tf.ones_initializer(), use_resource=True)
        with tf.control_dependencies([v[1].assign_add(tf.ones([2]))]):
            late = tf.reduce_sum(v[1].read_value())
        parts = [tf.reduce_sum(tf.cast(x.read_value(), tf.float32)) for x in v[:1] + v[2:]]
        tf.add_n([*parts, tf.reduce_sum(large.read_value()), late], name="all")
        tf.group(*[x.initializer for x in v[:4] + v[5:] + [large]], name="most")
        return v[4].initializer
    _, g, last = build(make)
    with shoal.Session(g) as a, shoal.Session(g, rewrites_off=b"read_together") as b:
        reads = []
        for s in (a, b):
            s.run(targets=["most"])
            try:
                s.run(["all:0"])
                raise AssertionError("it ran")
            except shoal.Error as e:
                assert e.code == tf.errors.FAILED_PRECONDITION and "v4" in e.message and "together" not in e.message, e.message
            s.run(targets=[last.name])
            reads.append({n for n in nodes_run(s, "all", {}) if "ReadVariableOp" in n})
        assert a.run(["all:0"])[0] == b.run(["all:0"])[0]
        assert len(reads[0]) == 3 and len(reads[1]) == 7, reads


def test_python_functions_say_why_they_cannot_run():
    _, g, _ = build(lambda: (tf.py_func(lambda x: x, [tf.constant(1.0)], tf.float32, name="p"), tf.constant(2.0, name="c")))
    with shoal.Session(g) as s:
        assert s.run(["c:0"])[0] == 2  # the rest of the graph is none the worse
        try:
            s.run(["p:0"])
            raise AssertionError("it ran")
        except shoal.Error as e:
            assert e.code == tf.errors.UNIMPLEMENTED and "Python" in e.message, (e.code, e.message)


def test_the_debuggers_ops_say_why_they_cannot_publish():
    _, g, _ = build(lambda: tf.raw_ops.DebugIdentity(input=tf.constant(1.0), tensor_name="c:0", debug_urls=["file:///x"], name="d"))
    with shoal.Session(g) as s:
        assert code_of(lambda: s.run(["d:0"])) == tf.errors.UNIMPLEMENTED


def test_export_loses_nothing():
    def make():
        with tf.device("/job:worker/task:1/cpu:0"), tf.name_scope("a"):
            x = tf.placeholder(tf.float32, [None, 3], "x")
        with tf.control_dependencies([tf.no_op(name="before")]):
            y = tf.matmul(x, tf.ones([3, 2]), name="y")
        with tf.colocate_with(x):
            tf.identity(y, name="z")
        tf.while_loop(lambda i: i < 3, lambda i: i + 1, [0])
        tf.enable_control_flow_v2()
        tf.cond(tf.constant(True), lambda: 1.0, lambda: 2.0)
    g, sg, _ = build(make)
    ours, theirs = tf.GraphDef.FromString(sg.export()), g.as_graph_def()

    def normal(n):
        n = type(n).FromString(n.SerializeToString())
        n.attr.pop("_output_shapes", None)
        return n
    a = {n.name: normal(n) for n in ours.node}
    b = {n.name: normal(n) for n in theirs.node}
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].input == b[name].input and a[name].op == b[name].op and a[name].device == b[name].device, name
        for key, value in b[name].attr.items():
            assert a[name].attr[key] == value, (name, key, a[name].attr[key], value)
    assert {f.signature.name for f in ours.library.function} == {f.signature.name for f in theirs.library.function}


if __name__ == "__main__":
    tap.main(globals())
