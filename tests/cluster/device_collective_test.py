"""Collective ops of a TensorFlow client on devices whose memory is their own, of one task and of several on one host: in
that memory (windows), by way of the host's where that cannot be, and to the last bit what CPUs make of it. The devices are
soft ones (src/device/soft)."""
# needs: tensorflow
# under sanitizers: in one task | in two tasks
# not on the soft device: it has several anyway
import os
import re
import signal
import sys
import threading
import urllib.request

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["SHOAL_SOFT_GPUS"] = "1"
os.environ["SHOAL_VIRTUAL_DEVICES"] = "400+400"
import numpy as np
import tensorflow.compat.v1 as tf

from cluster import Cluster, report

tf.disable_v2_behavior()
RAW = tf.raw_ops


def values(rank, n):
    return np.random.RandomState(rank).uniform(-1, 1, n).astype(np.float32)


def members(kind, ranks, n, group):
    """All operations among devices, each a (task, number); the values that each has."""
    made = []
    size = len(ranks)
    for r, (task, number) in enumerate(ranks):
        with tf.device(f"/job:worker/task:{task}/device:{kind}:{number}"):
            x = tf.constant(values(r, n))
            keys = dict(group_size=size, group_key=group)
            made += [RAW.CollectiveReduce(input=x, merge_op="Add", final_op="Div", subdiv_offsets=[0], instance_key=1, **keys),
                     RAW.CollectiveGather(input=x, shape=[size * n], instance_key=2, **keys),
                     RAW.CollectiveBcastSend(input=x, shape=[n], instance_key=3, **keys) if r == 1 else
                     RAW.CollectiveBcastRecv(T=tf.float32, shape=[n], instance_key=3, **keys),
                     RAW.CollectiveReduceScatterV2(input=x, merge_op="Add", final_op="Id", ordering_token=[], group_size=size,
                                                   group_key=group, instance_key=4),
                     RAW.CollectiveAllToAllV2(input=tf.reshape(x, [size, -1]), ordering_token=[], group_size=size,
                                              group_key=group, instance_key=5)]
            made += [RAW.CollectiveReduce(input=x * k, merge_op="Add", final_op="Id", subdiv_offsets=[0],
                                          instance_key=10 + k, **keys) for k in range(8)]
    return made


def compare(cluster, ranks, n, group, steps=4):
    with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
        on_cpus, on_gpus = (members(kind, ranks, n, group + k) for k, kind in enumerate(("CPU", "GPU")))
        wanted = s.run(on_cpus)
        np.testing.assert_allclose(wanted[0], np.mean([values(r, n) for r in range(len(ranks))], 0), rtol=1e-4, atol=1e-6)
        for _ in range(steps):
            for a, b in zip(wanted, s.run(on_gpus)):
                assert a.tobytes() == b.tobytes(), np.abs(a - b).max()


def counted(cluster, how):
    pages = re.search(r"pages at (http://127.0.0.1:\d+)/", cluster.tasks["worker", 0].text())[1]
    with urllib.request.urlopen(pages + "/metrics", timeout=60) as page:
        return int(re.search(rf'shoal_collectives_total{{by="{how}"}} (\d+)', page.read().decode())[1])


def in_one_task():
    with Cluster(["--http_port=0", "--devices=CPU=2"], worker=["shoal"]) as c:
        compare(c, [(0, 0), (0, 1)], 1000, 1)
        assert not counted(c, "windows")


def across_tasks():
    with Cluster(["--http_port=0", "--devices=CPU=2"], worker=["shoal"] * 2) as c:
        compare(c, [(0, 0), (1, 0)], 200000, 1)  # windows, and what is too small for them
        compare(c, [(0, 1), (1, 0)], 9 << 18, 3, steps=2)  # several chunks
        compare(c, [(t, d) for t in (0, 1) for d in (0, 1)], 4000, 5)
        assert counted(c, "windows")


def by_a_library():
    """collective_nccl of servers: each task has a card of its own, until both say that they are on one."""
    flags = ["--session_config=experimental { collective_nccl: true }", "--devices=CPU=2", "--http_port=0"]
    for card in (None, "one"):
        if card:
            os.environ["SHOAL_SOFT_CARD"] = card
        try:
            with Cluster(flags, worker=["shoal"] * 2) as c:
                compare(c, [(0, 0), (1, 0)], 200000, 1)
                told = any("they are on one card" in c.tasks["worker", t].text() for t in (0, 1))
                assert told == bool(card), c.tasks["worker", 0].text()
        finally:
            os.environ.pop("SHOAL_SOFT_CARD", None)


def without_shared_memory():
    with Cluster(["--http_port=0", "--devices=CPU=2", "--fast_path=false"], worker=["shoal"] * 2) as c:
        compare(c, [(0, 0), (1, 0)], 1000, 1)
        assert not counted(c, "windows")


def a_task_is_lost():
    """In the middle of steps: the others are told who, at once, and the group works again when it is back."""
    with Cluster(["--http_port=0", "--devices=CPU=2"], worker=["shoal"] * 2) as c:
        with tf.Graph().as_default(), tf.Session(c.target("worker", 0)) as s:
            made = members("GPU", [(0, 0), (1, 0)], 200000, 2)  # the group that compare has
            s.run(made)
            threading.Timer(0.5, lambda: c.tasks["worker", 1].kill(signal.SIGKILL)).start()
            try:
                while True:
                    s.run(made)
            except (tf.errors.UnavailableError, tf.errors.AbortedError) as e:
                assert "task:1" in str(e), e
        c.tasks["worker", 1].process.wait()
        c.tasks["worker", 1].start().wait()
        compare(c, [(0, 0), (1, 0)], 1000, 1)


if __name__ == "__main__":
    sys.exit(report([("in one task", in_one_task), ("in two tasks of one host", across_tasks),
                     ("by a library", by_a_library), ("by way of the host", without_shared_memory), ("a task that is lost", a_task_is_lost)]))
