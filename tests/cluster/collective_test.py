"""Collective ops of TensorFlow clients on Shoal's servers: among the devices of one task they work, across tasks they are
refused at once."""
# needs: tensorflow
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf

from cluster import Cluster, gave_up, report

tf.disable_v2_behavior()
RAW = tf.raw_ops
DEVICES = 3


def sums(tasks, group_size, v2):
    """One member on each device of each task, in one group."""
    made = []
    for task in tasks:
        for d in range(group_size // len(tasks)):
            with tf.device(f"/job:worker/task:{task}/cpu:{d}"):
                x = tf.constant([1.0 + d, 10.0 * task])
                keys = dict(group_size=group_size, group_key=7, instance_key=1, merge_op="Add", final_op="Id")
                made.append(RAW.CollectiveReduceV2(input=x, ordering_token=[], **keys) if v2 else
                            RAW.CollectiveReduce(input=x, subdiv_offsets=[0], **keys))
    return made


def within_a_task(cluster):
    for v2 in (False, True):
        for task in (0, 1):
            with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
                made = sums([task], DEVICES, v2)
                for _ in range(20):
                    for value in s.run(made):
                        np.testing.assert_array_equal(value, [6.0, 30.0 * task])


def across_tasks(cluster):
    for v2 in (False, True):
        for size in (2, 2 * DEVICES):
            with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
                made = sums([0, 1], size, v2)
                try:
                    s.run(made)
                except tf.errors.UnimplementedError as e:
                    assert "groups that span tasks are not implemented" in e.message, e.message
                else:
                    raise AssertionError("no error")


def a_client_of_each_task(cluster):
    with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
        with tf.device("/job:worker/task:0/cpu:0"):
            one = RAW.CollectiveReduce(input=tf.constant([1.0]), group_size=DEVICES + 1, group_key=7, instance_key=1,
                                       merge_op="Add", final_op="Id", subdiv_offsets=[0])
        try:
            s.run(one)
        except tf.errors.UnimplementedError as e:
            assert f"group 7 has {DEVICES + 1} members, but its task has {DEVICES} devices" in e.message, e.message
        else:
            raise AssertionError("no error")


def waits_end(cluster):
    with tf.Graph().as_default(), tf.Session(cluster.target("worker", 0)) as s:
        made = sums([0], DEVICES, True)
        for _ in range(3):
            try:
                s.run(made[:2], options=tf.RunOptions(timeout_in_ms=300))
            except tf.errors.OpError as e:
                assert gave_up(e), e
            else:
                raise AssertionError("no time-out")
        np.testing.assert_array_equal(s.run(made)[2], [6.0, 0.0])


if __name__ == "__main__":
    with Cluster(flags=[f"--cpu_devices={DEVICES}"], worker=["shoal", "shoal"]) as c:
        code = report([(f.__name__.replace("_", " "), lambda f=f: f(c))
                       for f in (within_a_task, across_tasks, a_client_of_each_task, waits_end)])
    sys.exit(code)
