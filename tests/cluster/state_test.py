"""What outlives a session on a server and what does not: containers and Reset, isolated sessions, callables that were
released, steps whose time is up, branches that were not taken; variables of two devices in one call."""
# needs: tensorflow
# under sanitizers: all
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework.function import Defun

from cluster import Cluster, gave_up, report

tf.disable_v2_behavior()
TWO = {"worker": ["shoal", "shoal"]}


def two_tasks():
    """Variables on both tasks, in the default container and in one of its own."""
    g, made = tf.Graph(), {}
    with g.as_default():
        for task in (0, 1):
            for container in ("", "mine"):
                with tf.device(f"/job:worker/task:{task}"), tf.container(container):
                    made[task, container] = tf.Variable(task + 1.0, name=f"v{task}{container}",
                                                        use_resource=bool(container))
        return g, made, tf.global_variables_initializer()


def ready(target, g, made):
    with tf.Session(target, graph=g) as s:
        with g.as_default():
            checks = {k: tf.is_variable_initialized(v) if not k[1] else v.is_initialized() for k, v in made.items()}
        return {k for k, there in s.run(checks).items() if there}


def ended(fn):
    try:
        fn()
    except tf.errors.AbortedError as e:
        assert "is not found" in e.message, e.message
    else:
        raise AssertionError("the session goes on")


def reset(containers, left):
    with Cluster(**TWO) as c:
        target = c.target("worker")
        g, made, init = two_tasks()
        before = tf.Session(target, graph=g)
        before.run(init)
        assert ready(target, g, made) == set(made)
        tf.Session.reset(target, containers)
        ended(lambda: before.run(made[0, ""]))  # the master's sessions end with it
        ended(before.close)
        assert ready(target, g, made) == left, ready(target, g, made)


def reset_all():
    reset(None, {(0, "mine"), (1, "mine")})  # all there is: the default container


def reset_one():
    reset(["mine"], {(0, ""), (1, "")})


def isolated():
    with Cluster(**TWO) as c:
        target = c.target("worker")
        g, made, init = two_tasks()
        with tf.Session(target, graph=g, config=tf.ConfigProto(isolate_session_state=True)) as s:
            s.run(init)
            assert s.run(made[1, ""]) == 2
            assert ready(target, g, made) == set()


def released_callable():
    with Cluster(**TWO) as c, tf.Graph().as_default():
        with tf.device("/job:worker/task:1"):
            x = tf.placeholder(tf.float32, [])
            y = x * 2.0
        with tf.Session(c.target("worker")) as s:
            made = s.make_callable(y, [x], accept_options=True)
            assert made(3.0, options=tf.RunOptions(timeout_in_ms=60000)) == 6
            raw = s._make_callable_from_options(config_pb2.CallableOptions(feed=[x.name], fetch=[y.name]))
            assert raw(np.float32(4))[0] == 8
            handle = raw._handle
            raw.__del__()
            raw._handle = handle
            try:
                raw(np.float32(4))
            except tf.errors.InvalidArgumentError as e:
                assert "No such callable handle" in e.message, e.message
            else:
                raise AssertionError("a released callable runs")
            finally:
                raw._handle = None


def time_is_up():
    with Cluster(**TWO) as c, tf.Graph().as_default():
        with tf.device("/job:worker/task:1"):
            q = tf.FIFOQueue(1, [tf.float32], shapes=[[]])
            get, put = q.dequeue(), q.enqueue(5.0)
        with tf.Session(c.target("worker")) as s:
            try:
                s.run(get, options=tf.RunOptions(timeout_in_ms=300))
            except tf.errors.OpError as e:
                assert gave_up(e), e
            else:
                raise AssertionError("no error")
            s.run(put)  # the one who gave up takes nothing
            assert s.run(get, options=tf.RunOptions(timeout_in_ms=60000)) == 5


def branch_not_taken():
    """Of a v1 branch spread over tasks only what was taken has effects; what tells the other task is a dead value."""
    with Cluster(**TWO) as c, tf.Graph().as_default():
        tf.disable_control_flow_v2()

        def variable():
            with tf.device("/job:worker/task:1"):
                return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="counted")

        def counted():
            with tf.device("/job:worker/task:1"):
                one_more = tf.raw_ops.AssignAddVariableOp(resource=variable(), value=tf.constant(1.0))
                with tf.control_dependencies([one_more]):
                    return tf.constant(1.0)

        taken = tf.placeholder(tf.bool, [])
        with tf.device("/job:worker/task:0"):
            y = tf.cond(taken, counted, lambda: tf.constant(-1.0))
        init = tf.raw_ops.AssignVariableOp(resource=variable(), value=tf.constant(0.0))
        read = tf.raw_ops.ReadVariableOp(resource=variable(), dtype=tf.float32)
        with tf.Session(c.target("worker")) as s:
            s.run(init)
            for now in (True, False, False, True, False):
                assert s.run(y, {taken: now}) == (1 if now else -1)
            assert s.run(read) == 2, s.run(read)


def handles_of_two_devices():
    """Variables of two devices of a task in one call of a function, made on either of them. TensorFlow's master leaves such
    a call to the worker; Shoal's inlines it. (While and If with such handles TensorFlow refuses to place.)"""
    for master in ("tf", "shoal"):
        with Cluster(worker=[master, "shoal"], flags=["--cpu_devices=2"]) as c, tf.Graph().as_default() as g:
            @Defun(tf.resource, tf.resource, noinline=True)
            def times(x, y):
                return tf.raw_ops.ReadVariableOp(resource=x, dtype=tf.float32) * tf.raw_ops.ReadVariableOp(
                    resource=y, dtype=tf.float32)

            times.add_to_graph(g)
            handles, inits, calls = [], [], []
            for i in (0, 1):
                with tf.device(f"/job:worker/task:1/cpu:{i}"):
                    handles.append(tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name=f"v{i}"))
                    inits.append(tf.raw_ops.AssignVariableOp(resource=handles[i], value=tf.constant(3.0 + i)))
            for i in (0, 1):
                for args in (handles, handles[::-1]):
                    with tf.device(f"/job:worker/task:1/cpu:{i}"):
                        calls.append(tf.raw_ops.StatefulPartitionedCall(args=args, Tout=[tf.float32], f=times)[0])
            with tf.Session(c.target("worker")) as s:
                s.run(inits)
                assert s.run(calls) == [12.0] * 4, master


TESTS = [(fn.__name__.replace("_", " "), fn) for fn in (reset_all, reset_one, isolated, released_callable, time_is_up,
                                                         branch_not_taken, handles_of_two_devices)]

if __name__ == "__main__":
    sys.exit(report(TESTS))
