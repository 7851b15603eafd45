"""Collective ops of TensorFlow's clients on Shoal's servers and on mixed ones: among the devices of a task, across tasks by
one client and by a client of each, with TensorFlow's servers as members and as leaders; what does not fit is told to all,
who does not come is not waited for, and a group works again afterwards."""
# needs: tensorflow
# long on the soft device; in short: three tasks
import contextlib
import os
import re
import signal
import sys
import threading
import time
import urllib.request

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf

from tensorflow.core.framework.device_attributes_pb2 import DeviceAttributes

from cluster import PATIENCE, Cluster, gave_up, report, until
from master_client import Client, Wrong, message, varint

tf.disable_v2_behavior()
RAW = tf.raw_ops
DEVICES = 3


def member(op, x, task, cpu=0, v2=False, size=2, group=7, instance=1, **attrs):
    keys = dict(group_size=size, group_key=group, instance_key=instance, **attrs)
    with tf.device(f"/job:worker/task:{task}/cpu:{cpu}"):
        if v2:
            keys.update({k: tf.constant(keys[k]) for k in ("group_size", "group_key", "instance_key")})
        if op == "reduce":
            keys = {"merge_op": "Add", "final_op": "Id", **keys}
            return (RAW.CollectiveReduceV2(input=tf.constant(x), ordering_token=[], **keys) if v2 else
                    RAW.CollectiveReduce(input=tf.constant(x), subdiv_offsets=[0], **keys))
        if op == "gather":
            return (RAW.CollectiveGatherV2(input=tf.constant(x), ordering_token=[], **keys) if v2 else
                    RAW.CollectiveGather(input=tf.constant(x), shape=[0], **keys))
        if op == "send":
            return (RAW.CollectiveBcastSendV2(input=tf.constant(x), **keys) if v2 else
                    RAW.CollectiveBcastSend(input=tf.constant(x), shape=np.shape(x), **keys))
        return (RAW.CollectiveBcastRecvV2(T=tf.float32, shape=tf.constant(np.shape(x)), **keys) if v2 else
                RAW.CollectiveBcastRecv(T=tf.float32, shape=np.shape(x), **keys))


def values(rank, n=1003):
    return np.random.RandomState(rank).uniform(-1, 1, n).astype(np.float32)


def within_a_task(cluster):
    for v2 in (False, True):
        for task in (0, 1):
            with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
                made = [member("reduce", [1.0 + d, 10.0 * task], task, d, v2, DEVICES) for d in range(DEVICES)]
                for _ in range(20):
                    for value in s.run(made):
                        np.testing.assert_array_equal(value, [6.0, 30.0 * task])


def build(ranks, v2, mine=None):
    """All operations among ranks, a list of (task, cpu); those of one task, if said so. Fetches and what they are."""
    size, made, wanted = len(ranks), [], []
    group = 100 + sum(1 << 4 * task + cpu for task, cpu in ranks)  # one for each set of members
    whole = np.stack([values(r) for r in range(size)])
    for r, (task, cpu) in enumerate(ranks):
        if mine is not None and task != mine:
            continue
        at = dict(task=task, cpu=cpu, v2=v2, size=size, group=group)
        made += [member("reduce", values(r), instance=1, final_op="Div", **at),
                 member("reduce", values(r), instance=2, merge_op="Max", **at),
                 member("gather", values(r), instance=3, **at),
                 member("send" if r == size - 1 else "receive", values(r), instance=4, **at)]
        wanted += [whole.mean(0), whole.max(0), whole.reshape(-1), values(size - 1)]
    return made, wanted


def check(got, wanted):
    for a, b in zip(got, wanted):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def across(cluster, ranks, steps=5):
    for v2 in (False, True):
        first = None
        with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
            made, wanted = build(ranks, v2)
            for _ in range(steps):
                got = s.run(made)
                check(got, wanted)
                first = first or got
                assert all(a.tobytes() == b.tobytes() for a, b in zip(first, got)), "not repeatable"
                sums = got[0::4]
                assert all(a.tobytes() == sums[0].tobytes() for a in sums), "ranks differ"


def across_tasks(cluster):
    across(cluster, [(0, 0), (1, 0)])
    across(cluster, [(t, d) for t in (0, 1) for d in range(DEVICES)])
    across(cluster, [(0, 0), (0, 1), (1, 2)])


def clients(cluster, ranks, v2, steps=5, config=None, **options):
    """A client of each task at a time, each with a graph of its own; what each got or what it failed with."""
    tasks = sorted({t for t, _ in ranks})
    results = {}

    def client(task):
        try:
            with tf.Graph().as_default(), tf.Session(cluster.target("worker", task), config=config) as s:
                made, wanted = build(ranks, v2, mine=task)
                for _ in range(steps):
                    check(s.run(made, **options), wanted)
            results[task] = None
        except Exception as e:
            results[task] = e
    threads = [threading.Thread(target=client, args=(t,)) for t in tasks]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for task, error in results.items():
        if error:
            raise AssertionError(f"task {task}: {error}")


def a_client_of_each_task(cluster):
    for v2 in (False, True):
        clients(cluster, [(0, 0), (1, 0)], v2)
        clients(cluster, [(0, 0), (0, 1), (1, 0)], v2)
    options = tf.RunOptions()
    options.experimental.collective_graph_key = 4711
    clients(cluster, [(0, 0), (1, 0)], True, options=options)


def exchange(op, x, task, cpu, size, group, instance):
    keys = dict(group_size=tf.constant(size), group_key=tf.constant(group), instance_key=tf.constant(instance),
                ordering_token=[])
    with tf.device(f"/job:worker/task:{task}/cpu:{cpu}"):
        if op == "scatter":
            return RAW.CollectiveReduceScatterV2(input=tf.constant(x), merge_op="Add", final_op="Div", **keys)
        return RAW.CollectiveAllToAllV2(input=tf.constant(x), **keys)


def all_to_all(cluster, ranks, steps=3, with_scatter=True):
    """Each gets what the others have for it; and a part of the mean."""
    size, made, wanted = len(ranks), [], []
    parts = [values(r, size * 6).reshape(size, 6) for r in range(size)]
    options = tf.RunOptions()
    options.experimental.collective_graph_key = 77
    with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
        for r, (task, cpu) in enumerate(ranks):
            made.append(exchange("all to all", parts[r], task, cpu, size, 300 + size, 1))
            wanted.append(np.stack([p[r] for p in parts]))
            if with_scatter:
                made.append(exchange("scatter", parts[r], task, cpu, size, 300 + size, 2))
                wanted.append(np.mean(parts, 0)[r:r + 1])
        for _ in range(steps):
            got = s.run(made, options=options)
            check(got, wanted)
            assert [a.shape for a in got] == [b.shape for b in wanted]


def exchanges(cluster):
    all_to_all(cluster, [(0, 0), (1, 0)])
    all_to_all(cluster, [(0, 0), (0, 1), (1, 0), (1, 2)])


def communicators(cluster):
    """Ranks that are claimed, in an order that is not the devices'."""
    ranks = {(0, 1): 2, (0, 0): 1, (1, 0): 0}
    none = lambda: tf.zeros([0, 0], tf.int32)

    def communicator(rank, size, key):
        return RAW.CollectiveInitializeCommunicator(group_key=tf.constant(key), rank=tf.constant(rank),
                                                    group_size=tf.constant(size))
    with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
        made, wanted = [], []
        for (task, cpu), rank in ranks.items():
            with tf.device(f"/job:worker/task:{task}/cpu:{cpu}"):
                c = communicator(rank, 3, 500)
                total = RAW.CollectiveReduceV3(input=tf.constant([1.0 + rank]), communicator=c, group_assignment=none(),
                                               reduction="Add")
                with tf.control_dependencies([total]):
                    made += [total, RAW.CollectiveAllToAllV3(input=tf.constant([10.0 * rank + k for k in range(3)]),
                                                             communicator=c, group_assignment=none())]
            wanted += [[6.0], [rank, 10.0 + rank, 20.0 + rank]]
        check(s.run(made), wanted)
        same = []
        for task in (0, 1):
            with tf.device(f"/job:worker/task:{task}/cpu:0"):
                same.append(communicator(0, 2, 501).op)
        fails(lambda: s.run(same), tf.errors.InvalidArgumentError, "none claims rank 1")


def large(cluster):
    n = 3_000_001
    with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
        x = [tf.placeholder(tf.float32, [n]) for _ in (0, 1)]
        made = []
        for t in (0, 1):
            with tf.device(f"/job:worker/task:{t}/cpu:0"):
                made.append(RAW.CollectiveReduce(input=x[t], group_size=2, group_key=7, instance_key=9, merge_op="Add",
                                                 final_op="Id", subdiv_offsets=[0]))
        fed = {x[t]: values(t, n) for t in (0, 1)}
        for value in s.run(made, fed):
            np.testing.assert_array_equal(value, values(0, n) + values(1, n))


def odd_sizes(cluster):
    """No element at all, one, and what no number of ranks divides, of every type, in memory and by messages: all ranks have the reference."""
    ranks = [(t, d) for t in (0, 1) for d in range(DEVICES)]
    types = (np.float32, np.float64, np.float16, np.int32, np.int64)
    with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
        for group, (size, hint) in enumerate((k, h) for k in range(2, len(ranks) + 1) for h in ("auto", "shoal:direct", "shoal:tree", "shoal:halving")):
            mine = ranks[-size:]
            made, wanted = [], []
            for i, (n, dtype) in enumerate((n, t) for n in (0, 1, 7, 1003, 20011) for t in types):
                x = [(values(r, n) * 100).astype(dtype) for r in range(size)]
                made += [member("reduce", x[r], t, d, size=size, group=100 + group, instance=1 + i, communication_hint=hint)
                         for r, (t, d) in enumerate(mine)]
                wanted += [sum_of(x)] * size
            for got, want in zip(s.run(made), wanted):
                assert got.dtype == want.dtype and got.tobytes() == want.tobytes(), (size, hint, want.dtype, len(want))


def sum_of(x):
    """In the order of pairs."""
    if len(x) == 1:
        return x[0]
    h = 1 << (len(x) - 1).bit_length() - 1
    return sum_of(x[:h]) + sum_of(x[h:])


def fails(run, error, text):
    try:
        run()
    except error as e:
        assert text in e.message, e.message
    else:
        raise AssertionError("no error")


def what_does_not_fit(cluster):
    good = lambda s: check(s.run([member("reduce", [1.0], t, group=11) for t in (0, 1)]), [[2.0]] * 2)
    with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
        fails(lambda: s.run([member("reduce", [1.0], 0, group=11), member("reduce", [1.0], 1, group=11, size=3)]),
              tf.errors.InternalError, "is joining a group with size")
        good(s)
        fails(lambda: s.run([member("reduce", [1.0], 0, group=11, instance=5),
                             member("reduce", [1], 1, group=11, instance=5)]),
              tf.errors.InternalError, "Collective instance 5 expected type 0 and data_type")
        good(s)
        fails(lambda: s.run([member("reduce", [1.0], 0, group=11, instance=6),
                             member("reduce", [1.0, 2.0], 1, group=11, instance=6)]),
              tf.errors.InvalidArgumentError, "Shape mismatch in the collective instance 6")
        for i, other in enumerate(({"merge_op": "Max"}, {"final_op": "Div"})):
            for places in ((0, 0), (0, 1)):  # of one task, of two
                cpu = (0, 1 - places[1])
                ends = [member("reduce", [1.0], places[k], cpu[k], group=14 + places[1], instance=7 + i, **more)
                        for k, more in enumerate(({}, other))]
                fails(lambda: s.run(ends), tf.errors.InvalidArgumentError, f"Collective instance {7 + i} expected ")
        good(s)
        fails(lambda: s.run([member("reduce", [1.0], t, c, group=12) for t, c in ((0, 0), (1, 0), (1, 1))]),
              tf.errors.InternalError, "already full")
        good(s)


def alone(task):
    """The configuration of a client that is one task's."""
    return tf.ConfigProto(device_filters=[f"/job:worker/task:{task}"])


def told_to_all(cluster, ranks, build, text, error=tf.errors.InvalidArgumentError):
    """What a client of each task, at a time, fails with has the text in it; those who heard of it by a step that has failed
    elsewhere have it with the task. (Of a session that has failed and is closed nobody is told who comes later: all stay.)"""
    said, all_said = {}, threading.Barrier(len(ranks))

    def client(task):
        with tf.Graph().as_default(), tf.Session(cluster.target("worker", task), config=alone(task)) as s:
            try:
                said[task] = s.run(build(task))
            except tf.errors.OpError as e:
                said[task] = e
            all_said.wait(100)
    threads = [threading.Thread(target=client, args=(t,)) for t in ranks]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for task, e in said.items():
        assert isinstance(e, (error, tf.errors.AbortedError)) and text in e.message, (task, getattr(e, "message", e))
    assert any(isinstance(e, error) for e in said.values()), said


def one_after_the_other(task, instances, cpu=0, **how):
    """Sums, each after the one before."""
    last = []
    for i in instances:
        with tf.control_dependencies(last):
            last = [member("reduce", [1.0], task, cpu, instance=i, **how)]
    return last[0]


def what_would_never_end():
    """What TensorFlow's members wait for without end, and ours without need until the time is up: groups larger than their
    cluster, two members on one device, other algorithms, other orders. All are told, and the group works again. What nothing
    orders may come in any order."""
    with Cluster(flags=[f"--cpu_devices={DEVICES}", "--collective_timeout=40"], worker=["shoal"] * 3) as c:
        group = iter(range(800, 900))
        for v2 in (False, True):
            with tf.Graph().as_default(), tf.Session(c.target("worker", 1)) as s:
                def bad(made, text):
                    fails(lambda: s.run(made), tf.errors.InvalidArgumentError, text)

                def good(group, size=2, tasks=(0, 1)):
                    for instance in (1, 2):
                        check(s.run([member("reduce", [1.0], t, group=group, size=size, instance=instance, v2=v2) for t in tasks]), [[size]] * size)
                g = next(group)
                bad([member("reduce", [1.0], t, group=g, size=10, v2=v2) for t in range(3)],
                    f"is joining a group with size 10 (group_key={g}), which can never be whole: its cluster has 9 devices of type CPU")
                good(g)
                for others in ([], [1]):
                    g = next(group)
                    bad([member("reduce", [1.0], t, group=g, v2=v2) for t in [0, 0] + others], f"both take part in instance 1 of group {g} on device")
                    good(g)
                g = next(group)
                bad([member("reduce", [1.0], t, group=g, size=3, v2=v2, communication_hint=h) for t, h in enumerate(("auto", "shoal:direct", "auto"))],
                    f"Collective instance 1 of group {g} expected communication_hint ")
                good(g, 3, range(3))
                g = next(group)
                bad([one_after_the_other(t, (1, 2) if t else (2, 1), group=g, v2=v2) for t in (0, 1)],
                    "Collectives are called in other orders by their members, which wait for each other in step ")
                good(g)
                g = next(group)
                bad([one_after_the_other(t, [(3, 1), (1, 2), (2, 3)][t], group=g, size=3, v2=v2) for t in range(3)], "called in other orders")
                good(g, 3, range(3))
                for task in (0, 1):  # of one task's devices
                    g = next(group)
                    bad([one_after_the_other(task, (1, 2) if cpu else (2, 1), cpu, group=g, v2=v2) for cpu in (0, 1)], "called in other orders")
                    check(s.run([one_after_the_other(task, (1, 2), cpu, group=g, v2=v2) for cpu in (0, 1)]), [[2.0]] * 2)
                g = next(group)
                for _ in range(3):  # in any order
                    made = [member("reduce", [1.0], t, group=g, instance=i, v2=v2) for t in (0, 1) for i in (range(1, 9) if t else range(8, 0, -1))]
                    assert all(list(x) == [2.0] for x in s.run(made))
                check(s.run([one_after_the_other(t, range(10, 20), group=g, v2=v2) for t in (0, 1)]), [[2.0]] * 2)
                g, first = next(group), tf.placeholder(tf.bool)  # one order or the other, in all; and round a loop
                chosen = [tf.cond(first, lambda t=t: one_after_the_other(t, (1, 2), group=g, v2=v2),
                                  lambda t=t: one_after_the_other(t, (2, 1), group=g, v2=v2)) for t in (0, 1)]
                for way in (True, False, True):
                    check(s.run(chosen, {first: way}), [[2.0]] * 2)
                g = next(group)
                rounds = tf.while_loop(lambda i, *x: i < 4, lambda i, *x: (i + 1, *(y + one_after_the_other(t, (1, 2), group=g, v2=v2) for t, y in enumerate(x))),
                                       (0, tf.zeros([1]), tf.zeros([1])))[1:]
                check(s.run(rounds), [[8.0]] * 2)
            at = dict(group=next(group), v2=v2)
            told_to_all(c, (0, 1), lambda t: one_after_the_other(t, (1, 2) if t else (2, 1), **at), "called in other orders")
            told_to_all(c, (0, 1), lambda t: member("reduce", [1.0], t, communication_hint="shoal:tree" if t else "shoal:ring", **at), "expected communication_hint ")
            if not v2:  # of a group that has not met yet, a member that comes late hears nothing of the step's failure
                continue
            told_to_all(c, (0, 1), lambda t: [member("reduce", [1.0], t, **at) for _ in range(2 - t)], "both take part in instance 1")
            large = next(group)  # clients that see their own task alone: the leader asks all of them, after a while
            told_to_all(c, (0, 1), lambda t: member("reduce", [1.0], t, group=large, v2=v2, size=10), "can never be whole: its cluster has 9 devices of type CPU")
            clients(c, [(0, 0), (1, 0)], v2)
            g = next(group)  # who says two sizes of a group is refused before its step begins, and the others wait
            told_to_all(c, (0, 1, 2), lambda t: [member("reduce", [1.0], t, cpu, group=g, v2=v2, size=4 - cpu) for cpu in range(2 - t % 2)],
                        "is joining a group with size ", tf.errors.InternalError)


def behind(made, *at, **keys):
    with tf.control_dependencies(made):
        return member("reduce", [1.0], *at, **keys)


def what_may_look_endless():
    """Legal steps that look like others which never end: an instance that a device comes to twice, with another one between;
    one whose other node is dead; a branch with a group too large, not taken; other algorithms beside each other, on some
    devices with a collective between."""
    def run(s, made, want, feeds=None, steps=4):
        for _ in range(steps):
            got = s.run(made, feeds, options=tf.RunOptions(timeout_in_ms=30000))
            assert all(list(x) == y for x, y in zip(got, want)), got

    with Cluster(flags=["--cpu_devices=2"], worker=["shoal"] * 2) as c, tf.Graph().as_default():
        with tf.Session(c.target("worker", 0)) as s:
            made = []
            first, other = (member("reduce", [1.0], 0, group=1, instance=i) for i in (2, 1))
            made += [first, other, behind([first, other], 0, group=1, instance=2)]
            made += [member("reduce", [1.0], 1, group=1, instance=2)]
            made += [behind(made[-1:], 1, group=1, instance=1)]
            made += [behind(made[-1:], 1, group=1, instance=2)]
            run(s, made, [[2.0]] * 6)
            taken = tf.placeholder(tf.bool)
            with tf.device("/job:worker/task:0/cpu:0"):
                free, dead = RAW.Switch(data=[1.0], pred=taken)
                held = member("reduce", [1.0], 0, group=2, instance=1)
                keys = dict(group_size=2, group_key=2, instance_key=2, merge_op="Add", final_op="Id", subdiv_offsets=[0])
                with tf.control_dependencies([held]):
                    dead = RAW.CollectiveReduce(input=dead, **keys)
                free = RAW.CollectiveReduce(input=free, **keys)
            other = member("reduce", [1.0], 1, group=2, instance=2)
            run(s, [held, other, behind([other], 1, group=2, instance=1), free], [[2.0]] * 4, {taken: False})
            large = [tf.cond(taken, lambda t=t: member("reduce", [1.0], t, group=3, size=64), lambda t=t: member("reduce", [1.0], t, group=4)) for t in (0, 1)]
            run(s, large, [[2.0]] * 2, {taken: False})
            places = [(t, cpu) for t in (0, 1) for cpu in (0, 1)]
            made = [member("reduce", [1.0], *p, group=5, size=4, communication_hint="shoal:direct") for p in places]
            made += [member("reduce", [1.0], *p, group=6, size=3, instance=2) for p in places[1:]]
            made += [member("reduce", [1.0], *p, group=5, size=4, instance=3) for p in places]
            run(s, made, [[4.0]] * 4 + [[3.0]] * 3 + [[4.0]] * 4)


def waits_end(cluster):
    with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
        made = [member("reduce", [1.0 + d], 0, d, True, DEVICES, group=20) for d in range(DEVICES)]
        for turn in range(20):  # some at once: a step that comes while the one before is being ended waits for that
            try:
                s.run(made[:2], options=tf.RunOptions(timeout_in_ms=300 if turn < 3 else 10))
            except tf.errors.OpError as e:
                assert gave_up(e), e
            else:
                raise AssertionError("no time-out")
        np.testing.assert_array_equal(s.run(made)[2], [6.0])
        for leads in (0, 1):  # the member that came asks its own task, or another
            alone = member("reduce", [1.0], leads, size=2, group=13 + leads, timeout_seconds=1)
            fails(lambda: s.run(alone), tf.errors.DeadlineExceededError, "timed out waiting for other workers")


def roles_change(cluster):
    """What a session knows of a broadcast does not make a receiver its source."""
    with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
        ways = [[member("send" if t == source else "receive", [1.0 + source], t, group=16, instance=3) for t in (0, 1)]
                for source in (0, 1)]
        check(s.run(ways[0]), [[1.0]] * 2)
        fails(lambda: s.run(ways[1]), tf.errors.InternalError, "Instance 3 already has source 0")

        def other_way():  # a leader takes it for another program's after a while
            try:
                check(s.run(ways[1]), [[2.0]] * 2)
                return True
            except tf.errors.InternalError:
                return False
        until(other_way)


def only_messages_are_taken(cluster):
    """Under a message's name, which its step's master can know, comes a value of another kind: nothing of it is read as
    bytes. A graph of a master of no cluster, with a member of its own making."""
    w = Client(cluster.target("worker", 0))
    fake = DeviceAttributes(name="/job:worker/replica:0/task:0/device:CPU:9", incarnation=5, physical_device_desc="shoal")
    task = "/job:worker/replica:0/task:0/device:CPU:0"
    shape = tf.TensorShape([24]).as_proto()
    names = "{}:parcel:0", "{}:1:0:0:0:1:0"
    for kind, (sent, name) in enumerate((x, y) for x in ([b"a"] * 4, [1.0] * 24) for y in names):  # 96 bytes each, as what is summed
        with tf.Graph().as_default() as made:
            value = tf.constant(sent)
            member("reduce", np.zeros(24, np.float32), 0, group=40 + kind,
                   communication_hint="auto" if "parcel" in name else "shoal:tree")
            g = made.as_graph_def()
        send = g.node.add(name="send", op="_Send", input=[value.op.name], device=task)
        send.attr["T"].type = value.dtype.as_datatype_enum
        send.attr["tensor_name"].s = name.format(40 + kind).encode()
        send.attr["send_device"].s, send.attr["recv_device"].s = fake.name.encode(), task.encode()
        send.attr["send_device_incarnation"].i = fake.incarnation
        send.attr["client_terminated"].b = False
        for each in g.node:
            each.device = task
        session = f"of nobody {kind}"
        w.worker("CreateWorkerSession", (1, session))
        graph = w.worker("RegisterGraph", (1, session), (2, g), (6, 1))[1]

        def other_member():
            k = Client(cluster.target("worker", 0))
            k.worker("CompleteGroup", (1, 40 + kind), (2, 2), (3, "CPU"), (6, fake))
            k.worker("CompleteInstance", (2, 0), (3, 1), (4, shape), (5, 40 + kind), (6, 2), (7, 1), (10, fake.name))
        t = threading.Thread(target=other_member)
        t.start()
        try:
            w.worker("RunGraph", (1, graph), (2, 4711 + kind), (8, session), (10, 1), (11, 77 + kind))
        except Wrong as e:
            assert e.code == "INVALID_ARGUMENT" and "no message of a collective" in e.text, (sent, name, e)
        else:
            raise AssertionError(sent)
        t.join()
        w.worker("CleanupGraph", (1, 4711 + kind))
        w.worker("DeleteWorkerSession", (1, session))


def sequences(cluster):
    """Only the leader tells numbers of steps, of few graphs at a time; what others ask for does not change those that are
    counted here."""
    ranks = [(0, 0), (1, 0)]
    wrong(lambda: Client(cluster.target("worker", 1)).worker("GetStepSequence", (1, 5)), "INTERNAL", "non-group-leader")
    w = Client(cluster.target("worker", 0))
    wrong(lambda: w.worker("GetStepSequence", (1, b"\1" * 5000)), "INVALID_ARGUMENT", "more than 1024")
    w.worker("GetStepSequence", (1, 6))
    failed = message((1, (1 << 63) - 1), (2, 6), (3, "/job:worker/replica:0/task:1"))
    w.channel.unary_unary("/shoal.Server/StepFailed")(failed, timeout=PATIENCE)  # the number after it is one, too
    w.worker("GetStepSequence", (1, 6))
    flood = threading.Event()

    def ask():
        n = 10
        while not flood.is_set():
            w.worker("GetStepSequence", (1, b"".join(varint(k) for k in range(n, n + 1000))))
            n += 1000
    t = threading.Thread(target=ask)
    t.start()
    try:
        clients(cluster, ranks, False, steps=30)
    finally:
        flood.set()
        t.join()


def wrong(call, code, text):
    try:
        call()
    except Wrong as e:
        assert e.code == code and text in e.text, e
    else:
        raise AssertionError("no error")


def a_member_is_lost(cluster):
    """The other ends with its name, at once; and the group works again when it is back."""
    for hint in ("auto", "shoal:direct"):
        with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
            made = [member("reduce", [1.0], t, group=15, communication_hint=hint) for t in (0, 1)]
            check(s.run(made), [[2.0]] * 2)
            cluster.tasks["worker", 1].kill(signal.SIGKILL)
            fails(lambda: s.run(made), (tf.errors.UnavailableError, tf.errors.AbortedError), "task:1")
        cluster.tasks["worker", 1].process.wait()
        cluster.tasks["worker", 1].start().wait()
        across(cluster, [(0, 0), (1, 0)])


def a_member_is_gone_before_it_comes():
    """To its group, and to an instance of one: the leader, which waits alone, is told who it is, as is a member that waits
    for the leader's answer. Nobody misses a task that is not needed."""
    lost = tf.errors.UnavailableError
    with Cluster(worker=["shoal"] * 3, flags=["--peer_timeout=4"]) as c, tf.Graph().as_default():
        made = [member("reduce", [1.0], t, group=15, size=3) for t in range(3)]
        later = [member("reduce", [1.0], t, group=15, instance=2, size=3) for t in range(3)]
        other = [member("reduce", [1.0], t, group=16, size=3) for t in range(3)]
        with tf.Session(c.target("worker", 0)) as s:
            check(s.run(made), [[3.0]] * 3)
            c.tasks["worker", 2].kill(signal.SIGKILL)
            for kind, said in ((later, "instance 2 of collective group 15 waits for /job:worker/replica:0/task:2/device:CPU:0 "
                                       "(rank 2): Task /job:worker/replica:0/task:2 at "),
                               (other, "collective group 16 has 2 of 3 members, and waits for /job:worker/replica:0/task:2: ")):
                fails(lambda: s.run(kind[:2]), lost, said)
                fails(lambda: s.run(kind[:2]), lost, "does not answer")
        got = []
        with contextlib.ExitStack() as opened:
            def run(t):
                alone = tf.ConfigProto(device_filters=[f"/job:worker/task:{t}"])
                with tf.Graph().as_default() as g:
                    made = member("reduce", [1.0], t, group=17)
                session = tf.Session(c.target("worker", t), graph=g, config=alone)
                opened.callback(session.close)
                got.append(session.run(made))
            first = threading.Thread(target=run, args=(0,))
            first.start()
            time.sleep(6)  # longer than it takes to find out that the third is gone
            run(1)
            first.join()
        check(got, [[2.0]] * 2)


def a_member_is_stopped(hint="auto"):
    """A client of each task: the one that runs is told who does not answer; the one that was stopped is told that its step
    is over; then their steps meet again."""
    sessions, steps, got = [], [], {0: [], 1: []}
    # Sessions are closed before their servers are gone, whatever happens: TensorFlow's would wait for these.
    with Cluster(worker=["shoal"] * 2, flags=["--peer_timeout=4"]) as c, contextlib.ExitStack() as opened:
        for task in (0, 1):
            with tf.Graph().as_default():
                made = member("reduce", values(task), task, v2=True, group=9, communication_hint=hint)
                alone = tf.ConfigProto(device_filters=[f"/job:worker/task:{task}"])
                sessions.append(tf.Session(c.target("worker", task), config=alone))
                opened.callback(sessions[task].close)
                steps.append(lambda s=sessions[task], m=made: s.run(m))

        def until_well(task, times):
            while got[task].count("well") < times:
                try:
                    steps[task]()
                    got[task].append("well")
                except tf.errors.AbortedError:
                    got[task].append("over")

        def run(times):
            threads = [threading.Thread(target=until_well, args=(task, times)) for task in (0, 1)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        run(2)
        c.tasks["worker", 1].kill(signal.SIGSTOP)
        fails(steps[0], tf.errors.UnavailableError, "task:1")
        c.tasks["worker", 1].kill(signal.SIGCONT)
        run(5)
        assert got == {0: ["well"] * 5, 1: ["well", "well", "over", "well", "well", "well"]}, got


def a_member_is_stopped_amid_messages():
    a_member_is_stopped("shoal:direct")


def three_tasks():
    with Cluster(worker=["shoal"] * 3, flags=["--cpu_devices=2"]) as c:
        across(c, [(0, 0), (1, 0), (2, 0)])
        across(c, [(0, 0), (0, 1), (1, 1), (2, 1)])
        clients(c, [(0, 0), (1, 0), (2, 0)], True)


def metrics(cluster, task):
    log = cluster.tasks["worker", task].text()
    with urllib.request.urlopen(re.search(r"pages at (http://127.0.0.1:\d+)/", log)[1] + "/metrics", timeout=120) as page:
        return page.read().decode()


def begun(cluster, task):
    """How often it began some in shared memory, one or several at a time."""
    return int(re.search(r"shoal_collective_parties_total (\d+)", metrics(cluster, task))[1])


def ways(cluster, task):
    """How many collectives the task began in shared memory, and how many by messages."""
    text = metrics(cluster, task)
    return [int(re.search(rf'shoal_collectives_total{{by="{by}"}} (\d+)', text)[1]) for by in ("memory", "messages")]


def in_shared_memory():
    with Cluster(["--http_port=0"], worker=["shoal"] * 3) as c:
        across(c, [(0, 0), (1, 0), (2, 0)])
        assert all(ways(c, task)[0] >= 40 and ways(c, task)[1] == 0 for task in range(3)), [ways(c, t) for t in range(3)]


def many_together():
    """200 that a step comes to at one moment, of several types and sizes: begun as few, with the bits that messages give."""
    types = (np.float32, np.float64, np.int32, np.float16)
    def build_many(group, v2, **attrs):
        return [member("reduce", values(rank, 1 + 37 * i % 2000).astype(types[i % 4]) * 100, rank, v2=v2, size=3, group=group,
                       instance=1 + i, **attrs) for rank in range(3) for i in range(200)]
    with Cluster(["--http_port=0"], worker=["shoal"] * 3) as c, tf.Graph().as_default():
        alone = build_many(12, True, communication_hint="shoal:halving")
        with tf.Session(c.target("worker", 0)) as s:
            wanted = s.run(alone)
            for way, made in enumerate((build_many(11, False), build_many(13, False, communication_hint="shoal:direct"))):
                first = s.run(made)
                before = [(ways(c, task), begun(c, task)) for task in range(3)]
                for _ in range(5):
                    got = s.run(made)
                    assert all(a.tobytes() == b.tobytes() == x.tobytes() for a, b, x in zip(got, wanted, first)), way
                for task, (was, parties) in enumerate(before):
                    now = ways(c, task)
                    assert now[way] - was[way] == 1000 and now[1 - way] == was[1 - way], (was, now)
                    assert begun(c, task) - parties < 50, (way, parties, begun(c, task))


def messages_of_bfloat16():
    """What each brings is rounded, the sum is of float32, and rounded: the same bits everywhere, and what makes no sense refused."""
    near = lambda x: np.asarray(x, np.float32).astype(tf.bfloat16.as_numpy_dtype).astype(np.float32)
    with Cluster(worker=["shoal"] * 3) as c, tf.Graph().as_default(), tf.Session(c.target("worker", 0)) as s:
        for group, n in enumerate((1, 1003, 50000)):
            made = [member("reduce", values(r, n), r, size=3, group=60 + group, communication_hint="shoal:bf16") for r in range(3)]
            x = [near(values(r, n)) for r in range(3)]
            for _ in range(2):
                got = s.run(made)
                assert all(g.tobytes() == near(x[0] + x[1] + x[2]).tobytes() for g in got), n
        for op, x in (("gather", [1.0]), ("reduce", [1]), ("reduce", np.ones(3, np.float64))):
            fails(lambda: s.run([member(op, x, r, size=2, group=70, communication_hint="shoal:bf16") for r in range(2)]),
                  tf.errors.InvalidArgumentError, '"shoal:bf16" is for')
    with Cluster(worker=["shoal", "tf"]) as c, tf.Graph().as_default(), tf.Session(c.target("worker", 0)) as s:
        fails(lambda: s.run([member("reduce", [1.0], r, group=71, communication_hint="shoal:bf16") for r in range(2)]),
              tf.errors.InvalidArgumentError, "none of Shoal's tasks")


def shapes_that_change():
    """A session knows the instance; then its members differ, both in parcels, or one too large for them."""
    with Cluster(worker=["shoal"] * 2) as c, tf.Graph().as_default(), tf.Session(c.target("worker", 0)) as s:
        for group, hint in ((21, "auto"), (22, "shoal:direct")):
            fed, made = [], []
            for task in (0, 1):
                with tf.device(f"/job:worker/task:{task}"):
                    fed.append(tf.placeholder(tf.float32, [None]))
                    made.append(RAW.CollectiveReduceV2(
                        input=fed[-1], group_size=tf.constant(2), group_key=tf.constant(group), instance_key=tf.constant(1),
                        ordering_token=[], merge_op="Add", final_op="Id", communication_hint=hint))
            run = lambda *n: s.run(made, dict(zip(fed, (np.ones(k, np.float32) for k in n))))
            for n in ((3, 4), (3, 100000), (100000, 3), (5, 4)):
                for k in (3, 100000):
                    check(run(k, k), [[2.0] * k] * 2)
                try:
                    run(*n)
                except tf.errors.InvalidArgumentError as e:
                    assert "shape" in e.message, e.message
                else:
                    raise AssertionError((hint, n))


def steps_of_one():
    """Instances that nobody knows yet, a step for each: it ends as its only collective does, and nothing of that is left in it."""
    with Cluster(worker=["shoal"] * 2) as c, tf.Graph().as_default():
        made = [[member("reduce", [1.0], task, group=9, instance=i + 1) for task in (0, 1)] for i in range(400)]
        with tf.Session(c.target("worker", 0)) as s:
            for pair in made:
                assert [list(v) for v in s.run(pair)] == [[2.0]] * 2


def more_groups_than_there_is_memory_for():
    """Those that were used longest ago make room, or the new ones go by messages."""
    with Cluster(worker=["shoal"] * 2) as c, tf.Graph().as_default(), tf.Session(c.target("worker", 0)) as s:
        for turn in range(2):
            for group in range(40):
                made = [member("reduce", [1.0 + turn], task, group=100 + group) for task in (0, 1)]
                assert [list(v) for v in s.run(made)] == [[2.0 + 2 * turn]] * 2


def without_the_fast_path():
    with Cluster(worker=["shoal"] * 2, flags=["--fast_path=false", "--http_port=0"]) as c:
        across(c, [(0, 0), (1, 0)])
        assert ways(c, 0)[0] == 0 < ways(c, 0)[1], ways(c, 0)


def another_leads():
    flags = ["--collective_group_leader=/job:worker/task:1", "--collective_timeout=2"]
    with Cluster(worker=["shoal"] * 2, flags=flags) as c:
        across(c, [(0, 0), (1, 0)])
        with tf.Graph().as_default(), tf.Session(c.target("worker", 0)) as s:
            fails(lambda: s.run(member("reduce", [1.0], 0, group=3)), tf.errors.DeadlineExceededError,
                  "1 of 2 members came: /job:worker/replica:0/task:0/device:CPU:0")


def config(leader, **said):
    return tf.ConfigProto(experimental=tf.ConfigProto.Experimental(collective_group_leader=leader, **said))


def a_session_names_its_leader():
    """By clients of each task, with numbers of steps from the leader that their sessions name, beside sessions that do not;
    who is no task, and NCCL, are refused by name."""
    with Cluster(worker=["shoal"] * 3) as c:
        ask = lambda task: Client(c.target("worker", task)).worker("GetStepSequence", (1, 5))
        wrong(lambda: ask(2), "INTERNAL", "non-group-leader")
        clients(c, [(0, 0), (1, 0)], False, config=config("/job:worker/task:2"))
        clients(c, [(0, 0), (1, 0), (2, 0)], True, config=config("/job:worker/replica:0/task:2"))
        ask(2)
        wrong(lambda: ask(1), "INTERNAL", "non-group-leader")
        across(c, [(0, 0), (1, 0)])
        with tf.Graph().as_default():
            fails(lambda: tf.Session(c.target("worker", 0), config=config("/job:worker/task:7")).run(tf.constant(1)),
                  tf.errors.InvalidArgumentError, "/job:worker/task:7: expected a task")
        clients(c, [(0, 0), (1, 0)], False, config=config("/job:worker/task:2", collective_nccl=True))  # is its servers'


def a_servers_config_names_its_leader():
    flags = ["--session_config=experimental { collective_group_leader: '/job:worker/task:1' }"]
    with Cluster(worker=["shoal"] * 2, flags=flags) as c:
        clients(c, [(0, 0), (1, 0)], False)
        Client(c.target("worker", 1)).worker("GetStepSequence", (1, 5))
        wrong(lambda: Client(c.target("worker", 0)).worker("GetStepSequence", (1, 5)), "INTERNAL", "non-group-leader")


def loops_over_devices(kinds):
    """Of a client's graph that is cut by task, and then by TensorFlow's task for its devices."""
    with Cluster(flags=["--cpu_devices=2"], worker=kinds) as c, tf.Graph().as_default():
        places = [(t, cpu) for t in (0, 1) for cpu in (0, 1)]
        with tf.device("/job:worker/task:0/cpu:0"):
            sums = tf.while_loop(lambda i, *_: i < 3, lambda i, *x: (i + 1, *(y + member("reduce", [1.0], *p, size=4) for y, p in zip(x, places))),
                                 (0, *[tf.zeros([1])] * 4), parallel_iterations=1)[1:]
        with tf.Session(c.target("worker", 0)) as s:
            check(s.run(sums, options=tf.RunOptions(timeout_in_ms=60000)), [[12.0]] * 4)


def even_sizes(cluster, ranks):
    """Of which a rank's part is a multiple of what TensorFlow's pieces are aligned to: they are larger by another one then."""
    with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
        made, wanted = [], []
        for i, n in enumerate((16, 48, 1024, 1536, 98304)):
            made += [member("reduce", values(r, n), t, d, size=len(ranks), group=200, instance=1 + i) for r, (t, d) in enumerate(ranks)]
            wanted += [sum(values(r, n) for r in range(len(ranks)))] * len(ranks)
        check(s.run(made, options=tf.RunOptions(timeout_in_ms=60000)), wanted)


def mixed(kinds):
    with Cluster(worker=kinds) as c:
        ranks = [(t, 0) for t in range(len(kinds))]
        even_sizes(c, ranks)
        across(c, ranks)
        for v2 in (False, True):
            clients(c, ranks, v2)
        all_to_all(c, ranks, with_scatter=False)


if __name__ == "__main__":
    with Cluster(flags=[f"--cpu_devices={DEVICES}"], worker=["shoal", "shoal"]) as c:
        code = report([(f.__name__.replace("_", " "), lambda f=f: f(c))
                       for f in (within_a_task, across_tasks, a_client_of_each_task, exchanges, communicators, large, odd_sizes, what_does_not_fit, waits_end,
                                 roles_change, only_messages_are_taken, sequences, a_member_is_lost)] +
                      [(f.__name__.replace("_", " "), f) for f in (what_would_never_end, what_may_look_endless, a_member_is_gone_before_it_comes, a_member_is_stopped, a_member_is_stopped_amid_messages, three_tasks, in_shared_memory, many_together,
                                                                  shapes_that_change, messages_of_bfloat16, steps_of_one,
                                                                  more_groups_than_there_is_memory_for,
                                                                  without_the_fast_path, another_leads, a_session_names_its_leader,
                                                                  a_servers_config_names_its_leader)] +
                      [("led by shoal, with tensorflow", lambda: mixed(["shoal", "tf", "shoal"])),
                       ("led by tensorflow", lambda: mixed(["tf", "shoal"])),
                       ("loops over tensorflow's devices", lambda: loops_over_devices(["shoal", "tf"])),
                       ("loops over devices, by tensorflow's master", lambda: loops_over_devices(["tf", "shoal"]))])
    sys.exit(code)
