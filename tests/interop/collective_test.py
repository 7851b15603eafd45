"""Collective ops among the devices of one session give what TensorFlow's give: values, shapes, and what goes wrong.

# needs: tensorflow
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf

import shoal
import tap

RAW = tf.raw_ops
DEVICES = 4
INVALID, DEADLINE, INTERNAL, UNIMPLEMENTED = 3, 4, 13, 12


def member(device, op, v2, x=None, **attrs):
    """One member's op on /cpu:device; keys are attributes or, with v2, inputs."""
    args = dict(group_size=2, group_key=1, instance_key=1, timeout_seconds=0)
    if op == "Reduce":
        args.update(merge_op="Add", final_op="Id", **({} if v2 else {"subdiv_offsets": [0]}))
    if v2 and op in ("Reduce", "Gather"):
        args["ordering_token"] = []
    args.update(attrs)
    with tf.device(f"/cpu:{device}"):
        if x is not None:
            args["input"] = tf.constant(x)
        if v2:
            for k in ("group_size", "group_key", "instance_key", "shape"):
                if k in args:
                    args[k] = tf.constant(args[k])
        return getattr(RAW, f"Collective{op}{'V2' if v2 else ''}")(**args)


def reduce_(device, x, v2=True, **attrs):
    return member(device, "Reduce", v2, x, **attrs)


def gather(device, x, v2=True, **attrs):
    return member(device, "Gather", v2, x, **attrs if v2 else {"shape": [0], **attrs})


def send(device, x, v2=True, **attrs):
    return member(device, "BcastSend", v2, x, **attrs if v2 else {"shape": np.shape(x), **attrs})


def receive(device, shape, v2=True, **attrs):
    return member(device, "BcastRecv", v2, shape=shape, **{"T": tf.float32, **attrs})


def both(build, with_tf=True, times=1):
    """What TensorFlow and Shoal fetch: arrays, or an exception each."""
    g = tf.Graph()
    with g.as_default():
        names = [t.name for t in build()]
    results = []
    if with_tf:
        with tf.Session(graph=g, config=tf.ConfigProto(device_count={"CPU": DEVICES})) as s:
            try:
                options = tf.RunOptions()  # which TensorFlow asks for where no op of the first generations is
                options.experimental.collective_graph_key = 1
                results.append(s.run(names, options=options))
            except tf.errors.OpError as e:
                results.append(e)
    with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString()), cpu_devices=DEVICES) as s:
        for _ in range(times):
            try:
                results.append(s.run(names))
            except shoal.Error as e:
                results.append(e)
    return results


def same(build):
    theirs, *ours = both(build, times=3)
    assert not isinstance(theirs, Exception), theirs
    for o in ours:
        assert not isinstance(o, Exception), o
        for a, b in zip(theirs, o):
            assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, a.shape, b.dtype, b.shape)
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-6)
        for a, b in zip(ours[0], o):
            assert a.tobytes() == b.tobytes(), "not repeatable"


def fails(code, text, build, with_tf=True):
    """Both fail with the code, and with the text in their message, in every run."""
    results = both(build, with_tf, times=2)
    for r in results:
        assert isinstance(r, Exception), f"no error but {r}"
        assert (r.code if isinstance(r, shoal.Error) else r.error_code) == code, r
        assert text in r.message, r.message


def values(dtype, rank, size=1000):
    rng = np.random.RandomState(rank)
    return rng.uniform(-50, 50, size).astype(tf.as_dtype(dtype).as_numpy_dtype)


def test_reductions_of_every_type():
    for dtype in ("float32", "float64", "float16", "int32", "int64"):
        for merge in ("Add", "Mul", "Max", "Min"):
            for final in ("Id", "Div"):
                same(lambda: [reduce_(i, values(dtype, i), v2=final == "Id", merge_op=merge, final_op=final)
                              for i in range(2)])


def test_bfloat16_is_rounded_at_each_step():
    same(lambda: [tf.cast(reduce_(i, values("bfloat16", i), final_op="Div"), tf.float32) for i in range(2)])


def test_more_members_and_large_tensors():
    same(lambda: [reduce_(i, values("int64", i, 100_003), group_size=4) for i in range(4)])
    same(lambda: [reduce_(i, values("float64", i, 100_003), group_size=3) for i in (3, 1, 2)])


def test_the_sum_goes_by_rank():
    # In this order alone it is 1: the large ones cancel before the small one is added.
    parts = np.float32([1e8, -1e8, 1])
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        ours, = both(lambda: [reduce_(i, parts[i:i + 1], group_size=3) for i in order], with_tf=False)
        assert [float(v[0]) for v in ours] == [1, 1, 1], ours


def test_shapes_of_all_kinds():
    for x in (np.float32(3), np.zeros((0, 3), np.float32), np.ones((2, 3, 4), np.float32)):
        same(lambda: [reduce_(i, x) for i in range(2)])
        if x.size:
            same(lambda: [send(0, x), receive(1, np.int64(x.shape))])
    none = np.zeros((0, 3), np.float32)  # TensorFlow ends with a signal here
    ours, = both(lambda: [send(0, none), receive(1, none.shape)], with_tf=False)
    assert [v.shape for v in ours] == [(0, 3)] * 2
    same(lambda: [reduce_(0, np.float32([5, 6]), group_size=1, final_op="Div")])


def test_gathers():
    for v2 in (False, True):
        same(lambda: [gather(d, np.float32([[d, 10 * d]]), v2, group_size=3) for d in (2, 0, 3)])
        same(lambda: [gather(d, np.int64([d, d + 1]), v2) for d in (1, 0)])
    ours, = both(lambda: [gather(d, np.zeros((0, 2), np.float32)) for d in range(2)], with_tf=False)
    assert [v.shape for v in ours] == [(0, 2)] * 2


def all_to_all(device, x, **attrs):
    return member(device, "AllToAll", True, x, ordering_token=[], **attrs)


def scatter(device, x, **attrs):
    return member(device, "ReduceScatter", True, x, **{"ordering_token": [], "merge_op": "Add", "final_op": "Id", **attrs})


def test_all_to_all():
    for dtype in ("float32", "float16", "int64"):
        same(lambda: [all_to_all(d, values(dtype, d, 12).reshape(3, 2, 2), group_size=3) for d in (2, 0, 1)])
    fails(INVALID, "input to all-to-all first dimension size (3) must be the same as the group size (2)",
          lambda: [all_to_all(d, np.float32([1, 2, 3])) for d in range(2)])


def test_reduce_scatter():
    """TensorFlow has it on GPUs alone."""
    parts = [values("float32", d, 12).reshape(6, 2) for d in range(3)]
    for final in ("Id", "Div"):
        ours, = both(lambda: [scatter(d, parts[d], group_size=3, final_op=final)
                              for d in range(3)], with_tf=False)
        whole = np.sum(parts, 0) / (3 if final == "Div" else 1)
        np.testing.assert_allclose(np.concatenate(ours), whole, rtol=1e-5)
        assert [o.shape for o in ours] == [(2, 2)] * 3
    fails(INVALID, "must be a multiple of the group size (2)", lambda: [scatter(d, [1.0, 2.0, 3.0]) for d in range(2)],
          with_tf=False)


def communicator(device, rank, size=2, key=1, **attrs):
    with tf.device(f"/cpu:{device}"):
        return RAW.CollectiveInitializeCommunicator(group_key=tf.constant(key), rank=tf.constant(rank),
                                                    group_size=tf.constant(size), **attrs)


def with_communicators(ranks):
    """ranks: (device, rank) pairs. Its name stays taken, so such a graph runs once in a session."""
    made = []
    for device, rank in ranks:
        c, none = communicator(device, rank, len(ranks), key=9), tf.zeros([0, 0], tf.int32)
        with tf.device(f"/cpu:{device}"):
            total = RAW.CollectiveReduceV3(input=tf.constant([1.0 + rank]), communicator=c, group_assignment=none,
                                           reduction="Add")
            with tf.control_dependencies([total]):
                made += [total, RAW.CollectiveAllToAllV3(input=tf.constant([10.0 * rank + k for k in range(len(ranks))]),
                                                         communicator=c, group_assignment=none)]
    return made


def test_communicators():
    theirs, ours = both(lambda: with_communicators([(0, 0), (1, 1), (3, 2)]))
    for a, b in zip(theirs, ours):
        np.testing.assert_array_equal(a, b)
    # TensorFlow orders what comes by rank, but sends by the names of devices: with other ranks than theirs each gets
    # what was meant for another.
    ranks = [(0, 2), (1, 0), (3, 1)]
    ours, = both(lambda: with_communicators(ranks), with_tf=False)
    for i, (_, rank) in enumerate(ranks):
        assert ours[2 * i].tolist() == [6] and ours[2 * i + 1].tolist() == [rank, 10 + rank, 20 + rank], ours
    fails(INVALID, "rank must be less than group size but got 2 >= 2", lambda: [communicator(0, 2)])
    fails(INVALID, "both claim rank 1", lambda: [communicator(0, 1), communicator(1, 1)], with_tf=False)


def test_groups_assigned():
    def build(device=2, base=5, groups=((0, 1), (2, 3))):
        return RAW.CollectiveAssignGroupV2(group_assignment=tf.constant(groups), device_index=tf.constant(device),
                                           base_key=tf.constant(base))
    same(build)
    fails(INVALID, "device_index 7 is not found in group_assignment", lambda: build(7))
    fails(INVALID, "Using the reserved group_key = 0 is not allowed: group_id = 1, base_key = -1", lambda: build(base=-1))
    fails(INVALID, "is within [0, number of devices)", lambda: build(groups=((0, 9),)))


def test_broadcasts():
    for v2 in (False, True):
        same(lambda: [receive(0, [2], v2, group_size=3), send(1, np.float32([7, 8]), v2, group_size=3),
                      receive(3, [2], v2, group_size=3)])
        same(lambda: [send(1, np.array([True, False]), v2), receive(0, [2], v2, T=tf.bool)])


def test_many_instances_and_groups_at_once():
    same(lambda: [reduce_(d, np.float32([d + 10 * k]), instance_key=k, group_key=1 + k % 3, group_size=4)
                  for k in range(30) for d in range(4)])


def test_static_shapes():
    g = tf.Graph()
    with g.as_default():
        made = [gather(0, np.zeros((2, 3), np.float32), v2=False), gather(0, np.zeros((2, 3), np.float32)),
                send(0, np.zeros(5, np.float32)), receive(1, [2, 2]), receive(1, [4], v2=False), reduce_(0, [1.0])]
    ours = shoal.Graph(g.as_graph_def().SerializeToString())
    for t in made:
        shape = ours.shape(t.name)
        assert shape == t.shape.as_list() or [None if d == -1 else d for d in shape] == t.shape.as_list(), (t, shape)


def test_mismatches():
    for v2 in (False, True):
        fails(INVALID, "Shape mismatch in the collective instance 1. Op at device /job:localhost/replica:0/task:0/device:CPU:",
              lambda: [reduce_(0, [1.0, 2.0], v2), reduce_(1, [1.0, 2.0, 3.0], v2)])
        fails(INTERNAL, "Collective instance 1 expected type 0 and data_type",
              lambda: [reduce_(0, [1.0, 2.0], v2), reduce_(1, [1, 2], v2)])
        fails(INTERNAL, " is joining a group with size",
              lambda: [reduce_(0, [1.0, 2.0], v2), reduce_(1, [1.0, 2.0], v2, group_size=3)])
        fails(INVALID, "group_size must be positive integer but got 0", lambda: [reduce_(0, [1.0], v2, group_size=0)])
        fails(INTERNAL, "Instance 1 found no source for broadcast.  This could mean that there were group_size=2 BcastRecvs",
              lambda: [receive(0, [2], v2), receive(1, [2], v2)])
        fails(INTERNAL, "Instance 1 already has source", lambda: [send(0, [1.0], v2), send(1, [1.0], v2)])
    fails(INTERNAL, " is joining a group that is already full (group_key=1)",
          lambda: [reduce_(i, [1.0], v2=False) for i in range(3)])
    fails(INTERNAL, "Collective instance 1 expected type", lambda: [reduce_(0, [1.0]), send(1, [1.0])])
    fails(INTERNAL, "Declared shape of op", lambda: [send(0, [1.0, 2.0], v2=False, shape=[3]), receive(1, [3], v2=False)])
    fails(INVALID, "Unexpected dimensions on input group_size, got [1]", lambda: [reduce_(0, [1.0], group_size=[1])])
    fails(INVALID, "Dimension -1 must be >= 0", lambda: [receive(0, [-1])])


def test_one_device_twice_is_told():
    fails(INVALID, "both take part in instance 1 of group 1 on device",
          lambda: [reduce_(0, [1.0]), reduce_(0, [2.0])], with_tf=False)


def test_groups_across_tasks_are_refused():
    fails(UNIMPLEMENTED, "group 1 has 5 members, but its task has 4 devices",
          lambda: [reduce_(i, [1.0], group_size=5) for i in range(DEVICES)], with_tf=False)


def test_time_outs():
    for v2 in (False, True):
        fails(DEADLINE, "Collective has timed out waiting for other workers.",
              lambda: [reduce_(0, [1.0], v2, timeout_seconds=0.2)])


def test_waits_end_with_the_step():
    g = tf.Graph()
    with g.as_default():
        alone = reduce_(0, [1.0])
        with tf.control_dependencies([tf.placeholder(tf.float32, name="x")]), tf.device("/cpu:2"):
            bad = tf.debugging.check_numerics(tf.placeholder(tf.float32, name="y"), "bad")
    with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString()), cpu_devices=DEVICES) as s:
        try:
            s.run([alone.name], timeout_ms=100)
            assert False, "no time-out"
        except shoal.Error as e:
            assert e.code == DEADLINE, e
        try:  # another op's error ends the wait, and is what the run says
            s.run([alone.name, bad.name], {"x:0": np.float32(1), "y:0": np.float32("nan")})
            assert False, "no error"
        except shoal.Error as e:
            assert e.code == INVALID and "bad" in e.message, e


def test_in_loops():
    def build():
        def part(device, v):
            with tf.device(f"/cpu:{device}"):
                return RAW.CollectiveReduceV2(input=v, group_size=2, group_key=1, instance_key=1, merge_op="Add",
                                              final_op="Div", ordering_token=[]) + float(device)
        return tf.while_loop(lambda i, x, y: i < 5, lambda i, x, y: (i + 1, part(0, x), part(1, y)),
                             [0, tf.constant([1.0, 2.0]), tf.constant([5.0, 9.0])])[1:]
    tf.disable_control_flow_v2()
    same(build)


if __name__ == "__main__":
    tap.main(globals())
