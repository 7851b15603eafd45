"""Every mixture of TensorFlow's servers and Shoal's: the same programs, the same numbers.

Programs are run by TensorFlow's own client against the master named by the arrangement; results are compared with those of
a session in this process.
"""
# needs: tensorflow
# under sanitizers: all shoal
# on the soft device: all shoal | under a shoal master | shoal master on ps
# long on the soft device
import os
import sys
import tempfile
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf

from cluster import PATIENCE, Cluster, report

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
RNG = np.random.RandomState(0)
X = RNG.rand(64, 8).astype(np.float32)
Y = (X.sum(1, keepdims=True) > 4).astype(np.float32)


def expect(a, b, tolerance=1e-5):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def train(cluster, master, use_resource, optimizer):
    """Variables on ps, the rest on a worker; losses as in one process."""
    def losses(target, device):
        with tf.Graph().as_default():
            tf.set_random_seed(7)
            with tf.device(device):
                x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.float32, [None, 1])
                step = tf.train.get_or_create_global_step()
                with tf.variable_scope("m", use_resource=use_resource):
                    w = tf.get_variable("w", initializer=np.linspace(-1, 1, 40).reshape(8, 5).astype(np.float32))
                    b = tf.get_variable("b", [5], initializer=tf.zeros_initializer())
                    v = tf.get_variable("v", initializer=np.linspace(1, -1, 5).reshape(5, 1).astype(np.float32))
                h = tf.nn.relu(tf.matmul(x, w) + b)
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=tf.matmul(h, v)))
                op = optimizer().minimize(loss, global_step=step)
            with tf.Session(target, config=tf.ConfigProto(isolate_session_state=True)) as s:
                s.run(tf.global_variables_initializer())
                out = [s.run([loss, op], {x: X, y: Y})[0] for _ in range(8)]
                assert s.run(step) == 8
                return out
    setter = tf.train.replica_device_setter(worker_device="/job:worker/task:0",
                                            cluster=tf.train.ClusterSpec(cluster.lists()))
    expect(losses(cluster.target(*master), setter), losses("", ""))


def model_parallel(cluster, master):
    """Each layer on another task; gradients come back the same way; strings and control edges cross too."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 8])
        with tf.device("/job:worker/task:1"):
            w1 = tf.Variable(tf.ones([8, 4]) * 0.1)
            h = tf.tanh(tf.matmul(x, w1))
        with tf.device("/job:ps/task:0"):
            w2 = tf.Variable(tf.ones([4, 2]) * 0.2)
            y = tf.matmul(h, w2)
            label = tf.strings.join([tf.as_string(tf.shape(y)[0]), " rows"])
        with tf.device("/job:worker/task:0"):
            loss = tf.reduce_sum(tf.square(y))
            said = tf.strings.join(["got ", label])
            with tf.control_dependencies([tf.assign(w1, w1 * 2)]):
                after = tf.identity(loss)
        g1, g2 = tf.gradients(loss, [w1, w2])
        with tf.Session(cluster.target(*master), config=tf.ConfigProto(isolate_session_state=True)) as s:
            s.run(tf.global_variables_initializer())
            got = s.run([loss, g1, g2, said], {x: X})
            h_ = np.tanh(X @ np.full([8, 4], 0.1, np.float32))
            y_ = h_ @ np.full([4, 2], 0.2, np.float32)
            dy = 2 * y_
            expect(got[0], (y_ ** 2).sum(), 1e-4)
            expect(got[2], h_.T @ dy, 1e-4)
            expect(got[1], X.T @ ((dy @ np.full([4, 2], 0.2, np.float32).T) * (1 - h_ ** 2)), 1e-4)
            assert got[3] == b"got 64 rows", got[3]
            s.run(after, {x: X})
            expect(s.run(w1), np.full([8, 4], 0.2))


def loop_across(cluster, master):
    """A v1 loop whose body spans three tasks, nested, with gradients."""
    tf.disable_control_flow_v2()
    with tf.Graph().as_default():
        n = tf.placeholder(tf.int32, [])
        start = tf.placeholder(tf.float32, [])

        def body(i, a):
            with tf.device("/job:worker/task:1"):
                b = a * 1.5
            with tf.device("/job:ps/task:0"):
                b = b + tf.cast(i, tf.float32)
            with tf.device("/job:worker/task:0"):
                c = tf.while_loop(lambda j, v: j < 2, lambda j, v: (j + 1, v + 1.0), [0, b])[1]
            return i + 1, c
        out = tf.while_loop(lambda i, a: i < n, body, [tf.constant(0), start])[1]
        g = tf.gradients(out, start)[0]
        with tf.Session(cluster.target(*master)) as s:
            for k in (0, 1, 5, 13):
                want = 2.0
                for i in range(k):
                    want = want * 1.5 + i + 2
                got, dg = s.run([out, g], {n: k, start: 2.0})
                expect(got, want, 1e-4)
                expect(dg, 1.5 ** k, 1e-4)


def conditional_across(cluster, master):
    with tf.Graph().as_default():
        p = tf.placeholder(tf.bool, [])
        with tf.device("/job:ps/task:0"):
            a = tf.constant(3.0)

        def on(task, f):
            with tf.device(task):
                return f()
        out = tf.cond(p, lambda: on("/job:worker/task:1", lambda: a * 2.0),
                      lambda: on("/job:worker/task:0", lambda: a - 1.0))
        with tf.Session(cluster.target(*master)) as s:
            for _ in range(50):  # word of the branch not taken may come before the other's value, or after
                assert s.run(out, {p: True}) == 6.0
                assert s.run(out, {p: False}) == 2.0


def queue_between_clients(cluster, master):
    """A queue on ps, one client fills it, another, connected elsewhere, empties it."""
    def queue():
        with tf.device("/job:ps/task:0"):
            return tf.FIFOQueue(4, [tf.int32, tf.string], shapes=[[], []], shared_name="between")
    got = []

    def consume():
        with tf.Graph().as_default():
            value = queue().dequeue()
            with tf.Session(cluster.target("worker", 1)) as s:
                for _ in range(10):
                    got.append(s.run(value))
    t = threading.Thread(target=consume)
    t.start()
    with tf.Graph().as_default():
        q = queue()
        a, b = tf.placeholder(tf.int32, []), tf.placeholder(tf.string, [])
        put = q.enqueue([a, b])
        with tf.Session(cluster.target(*master)) as s:
            for i in range(10):
                s.run(put, {a: i, b: "s%d" % i})
            t.join(PATIENCE)
            assert not t.is_alive()
            s.run(q.close())
    assert [g[0] for g in got] == list(range(10)) and got[3][1] == b"s3", got


def embedding(cluster, master):
    """Gather and sparse updates of a partitioned table on ps."""
    with tf.Graph().as_default():
        ids = tf.placeholder(tf.int64, [None])
        with tf.device("/job:ps/task:0"):
            table = tf.get_variable("table", [100, 4], initializer=tf.ones_initializer(),
                                    partitioner=tf.fixed_size_partitioner(3))
        with tf.device("/job:worker/task:0"):
            rows = tf.nn.embedding_lookup(table, ids, partition_strategy="div")
            loss = tf.reduce_sum(rows * 2.0)
        op = tf.train.GradientDescentOptimizer(0.25).minimize(loss)
        with tf.Session(cluster.target(*master), config=tf.ConfigProto(isolate_session_state=True)) as s:
            s.run(tf.global_variables_initializer())
            s.run(op, {ids: [1, 1, 50, 99]})
            expect(s.run(rows, {ids: [0, 1, 50, 99]})[:, 0], [1, 0, 0.5, 0.5])


def sync_replicas(cluster, master):
    """SyncReplicasOptimizer's accumulators and token queue, two replicas."""
    lists = cluster.lists()
    finals, errors = {}, []
    ready = threading.Event()  # else the other replica finds nothing initialized, and sleeps for half a minute

    def replica(index):
        try:
            with tf.Graph().as_default():
                tf.set_random_seed(1)
                with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % index,
                                                              cluster=tf.train.ClusterSpec(lists))):
                    step = tf.train.get_or_create_global_step()
                    w = tf.get_variable("sync_w", [4], initializer=tf.ones_initializer())
                    loss = tf.reduce_sum(w * (index + 1.0))
                    opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 2, 2)
                    op = opt.minimize(loss, global_step=step)
                hook = opt.make_session_run_hook(index == 0)
                if index:
                    ready.wait(PATIENCE)
                # The master must be the replica's own server or any other; both are used.
                with tf.train.MonitoredTrainingSession(cluster.target("worker", index), is_chief=index == 0,
                                                       hooks=[hook, tf.train.StopAtStepHook(last_step=5)],
                                                       stop_grace_period_secs=5) as s:
                    ready.set()
                    while not s.should_stop():
                        s.run(op)
                        if not s.should_stop():
                            finals[index] = s.run(step)
        except Exception as e:  # pylint: disable=broad-except
            errors.append(e)
    threads = [threading.Thread(target=replica, args=(i,)) for i in (0, 1)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(2 * PATIENCE)
        assert not t.is_alive(), "a replica hangs"
    assert not errors, errors


def saver(cluster, master):
    """A sharded checkpoint, written by the ps task, read back."""
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            a = tf.get_variable("a", initializer=np.arange(6, dtype=np.float32), use_resource=False)
            b = tf.get_variable("b", initializer=np.arange(4, dtype=np.int64), use_resource=True)
        with tf.device("/job:worker/task:1"):
            c = tf.get_variable("c", initializer=np.array(["x", "yz"], object), dtype=tf.string, use_resource=False) \
                if False else tf.get_variable("c", initializer=np.ones([2, 2], np.float32), use_resource=False)
        save = tf.train.Saver(sharded=True)
        with tf.Session(cluster.target(*master), config=tf.ConfigProto(isolate_session_state=True)) as s:
            s.run(tf.global_variables_initializer())
            path = save.save(s, os.path.join(folder, "model"))
            s.run([tf.assign(a, a * 0), tf.assign(c, c * 0), b.assign(b * 0)])
            save.restore(s, path)
            expect(s.run(a), np.arange(6))
            expect(s.run(b), np.arange(4))
            expect(s.run(c), np.ones([2, 2]))


def errors(cluster, master):
    """An op that fails elsewhere: its code, its node and its task are told, and the session goes on."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None])
        with tf.device("/job:worker/task:1"):
            bad = tf.check_numerics(x, "not a number there", name="there")
        with tf.device("/job:ps/task:0"):
            out = bad + 1.0
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("never_initialized", [], use_resource=False)
        with tf.Session(cluster.target(*master)) as s:
            for _ in range(3):
                try:
                    s.run(out, {x: [1.0, float("nan")]})
                    raise AssertionError("no error")
                except tf.errors.InvalidArgumentError as e:
                    assert "not a number there" in e.message and "there" in e.message, e.message
                expect(s.run(out, {x: [1.0]}), [2.0])
            try:
                s.run(v)
                raise AssertionError("no error")
            except tf.errors.FailedPreconditionError as e:
                assert "uninitialized value never_initialized" in e.message, e.message


def fused(cluster, master):
    """What a master's optimizer makes of a model, run by the other task."""
    with tf.Graph().as_default():
        with tf.device("/job:worker/task:1"):
            x = tf.placeholder(tf.float32, [None, 8, 8, 3])
            f = tf.get_variable("f", initializer=(np.arange(108).reshape(3, 3, 3, 4) % 7 - 3).astype(np.float32))
            b = tf.get_variable("bias", [4], initializer=tf.ones_initializer())
            c = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, f, [1, 1, 1, 1], "SAME"), b))
            c = tf.nn.max_pool(c, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
            w = tf.get_variable("dense", initializer=(np.arange(320).reshape(64, 5) % 5 - 2).astype(np.float32))
            d = tf.nn.relu(tf.nn.bias_add(tf.matmul(tf.reshape(c, [-1, 64]), w), tf.ones([5])))
            y = tf.exp(-tf.sqrt(tf.abs(d + 1.0)))
        image = RNG.rand(2, 8, 8, 3).astype(np.float32)
        results = []
        for target in (cluster.target(*master), ""):
            config = tf.ConfigProto(isolate_session_state=True, allow_soft_placement=True)
            if not target:
                with tf.Graph().as_default():
                    stripped = tf.Graph()
                with stripped.as_default():
                    definition = y.graph.as_graph_def()
                    for node in definition.node:
                        node.device = ""
                        node.attr.pop("_class", None)
                    tf.import_graph_def(definition, name="")
                    init = y.graph.get_operations()
                    with tf.Session(config=tf.ConfigProto()) as s:
                        s.run([n for n in ("f/Assign", "bias/Assign", "dense/Assign")])
                        results.append(s.run(y.name, {x.name: image}))
            else:
                with tf.Session(target, config=config) as s:
                    s.run(tf.global_variables_initializer())
                    results.append(s.run(y, {x: image}))
        expect(results[0], results[1], 1e-4)


def sgd():
    return tf.train.GradientDescentOptimizer(0.5)


def adam():
    return tf.train.AdamOptimizer(0.05)


PROGRAMS = [
    ("train, ref variables", lambda c, m: train(c, m, False, sgd)),
    ("train, resource variables", lambda c, m: train(c, m, True, adam)),
    ("model parallel", model_parallel),
    ("loop across tasks", loop_across),
    ("conditional across tasks", conditional_across),
    ("queue between clients", queue_between_clients),
    ("embedding", embedding),
    ("saver", saver),
    ("errors", errors),
    ("fused", fused),
    ("sync replicas", sync_replicas),
]
ARRANGEMENTS = [
    ("all shoal", dict(ps=["shoal"], worker=["shoal", "shoal"]), ("worker", 0)),
    ("shoal ps under a tf master", dict(ps=["shoal"], worker=["tf", "tf"]), ("worker", 0)),
    ("shoal worker under a tf master", dict(ps=["tf"], worker=["tf", "shoal"]), ("worker", 0)),
    ("tf worker and ps under a shoal master", dict(ps=["tf"], worker=["shoal", "tf"]), ("worker", 0)),
    ("shoal master on ps, tf workers", dict(ps=["shoal"], worker=["tf", "tf"]), ("ps", 0)),
]


def main():
    tests, clusters = [], {}

    def run(arrangement, jobs, master, program):
        if arrangement not in clusters:
            for c in clusters.values():
                c.__exit__()
            clusters.clear()
            clusters[arrangement] = Cluster(**jobs).__enter__()
        program(clusters[arrangement], master)
    for name, jobs, master in ARRANGEMENTS:
        for title, program in PROGRAMS:
            tests.append((f"{name}: {title}", lambda n=name, j=jobs, m=master, p=program: run(n, j, m, p)))
    code = report(tests)
    for c in clusters.values():
        c.__exit__()
    return code


if __name__ == "__main__":
    sys.exit(main())
