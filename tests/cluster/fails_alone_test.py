"""A step that fails in one task alone, by an index that is out of range, while the other tasks wait for it in a collective:
they are told at once by whom and why, each once, and the next step goes well. By a client of each task, in shared memory
and by messages, in the first step of a group and of an instance and in later ones; on the devices of one task; with a
task of TensorFlow's among them, which takes part again when it is started again."""
# needs: tensorflow
import os
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf

from cluster import SLACK, Cluster, report

tf.disable_v2_behavior()
TASKS = 3


def all_reduce(x, group, instance, hint, size=TASKS):
    return tf.raw_ops.CollectiveReduceV2(input=x, group_size=tf.constant(size), group_key=tf.constant(group),
                                         instance_key=tf.constant(instance), ordering_token=[], merge_op="Add",
                                         final_op="Id", communication_hint=hint)


class Member:
    """A client of one task with two all-reduces, each of which needs an index that it feeds."""

    def __init__(self, cluster, task, group, hint):
        with tf.Graph().as_default() as g, tf.device(f"/job:worker/task:{task}/cpu:0"):
            self.at = tf.placeholder(tf.int32, [1], "first"), tf.placeholder(tf.int32, [1], "second")
            data = tf.constant(np.arange(4, dtype=np.float32))
            x = all_reduce(tf.gather(data, self.at[0], name="look"), group, 1, hint)
            second = tf.gather(data, self.at[1] + tf.cast(0 * x, tf.int32), name="look_again")
            self.out = all_reduce(x + second, group, 2, hint)
        alone = tf.ConfigProto(device_filters=[f"/job:worker/task:{task}"])
        self.session = tf.Session(cluster.target("worker", task), graph=g, config=alone)
        self.session.run(data)  # it begins now, not with the first step

    def run(self, indices):
        try:
            return self.session.run(self.out, {p: [i] for p, i in zip(self.at, indices)})
        except tf.errors.OpError as e:
            return e


def together(members, indices):
    got = [None] * len(members)

    def run(i):
        got[i] = members[i].run(indices[i])
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(members))]
    began = time.time()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert time.time() - began < SLACK, got
    return got


def one_fails(members, failing, indices):
    wanted = [(1, 1)] * len(members)
    wanted[failing] = indices
    for i, e in enumerate(together(members, wanted)):
        if i == failing:
            assert isinstance(e, tf.errors.InvalidArgumentError) and "is not in [0, 4)" in e.message, e
            continue
        # Who asked the failing task for a message may have the answer of that one, with its code.
        assert isinstance(e, (tf.errors.AbortedError, tf.errors.InvalidArgumentError)), (i, e)
        for said in (f"task:{failing}", "indices[0] = 9 is not in [0, 4)", "Collective op ", "step "):
            assert said in e.message, (said, e.message)


def well(members):
    for x in together(members, [(1, 1)] * len(members)):
        np.testing.assert_array_equal(x, [12.0])


def close(members):
    for m in members:
        m.session.close()


def drill(members, first):
    try:
        if first:
            one_fails(members, 2, first)
        well(members)
        for failing in (0, 1, 2, 2):  # the leader, and others; twice in a row
            one_fails(members, failing, (9, 1))
        well(members)
        one_fails(members, 1, (1, 9))
        well(members)
    finally:
        close(members)


def between_tasks():
    """First steps of their kind among them, in which members wait at the leader, for their group or an instance of it."""
    with Cluster(worker=["shoal"] * TASKS) as c:
        group = 0
        for hint in ("auto", "shoal:direct", "shoal:ring"):
            for first in ((9, 1), (1, 9), None):
                group += 1
                drill([Member(c, t, group, hint) for t in range(TASKS)], first)


def told(e, *said):
    assert isinstance(e, tf.errors.OpError), e
    for text in said:
        assert text in e.message, (text, e.message)


def with_tensorflow():
    """The middle one is TensorFlow's: it is told where it waits, for a message of ours and at our leader, by whom and why.
    By its own rule it has no collectives then until it is started again: who meets it is told so at once, and when it has
    been, the others, which have not, go on with it."""
    with Cluster(worker=["shoal", "tf", "shoal"]) as c:
        members = [Member(c, t, 1, "auto") for t in range(TASKS)]
        well(members)
        for turn, group in enumerate((1, 2)):
            if turn:  # a new group, whose members wait at the leader
                close(members)
                members = [Member(c, t, group, "auto") for t in range(TASKS)]
            failing = 2 if turn else 0
            wanted = [(1, 1)] * TASKS
            wanted[failing] = (9, 1)
            for e in together(members, wanted):
                told(e, "indices[0] = 9 is not in [0, 4)")
            if not turn:
                first, second, _ = together(members, [(1, 1)] * TASKS)
                told(first, "task:1 takes part in no collectives until it is started again")
                told(second, "Restart your program")
            members[1].session.close()
            task = c.tasks["worker", 1]
            task.kill()
            task.process.wait()
            open(task.log.name, "w").close()
            task.start().wait()
            members[1] = Member(c, 1, group, "auto")
            well(members)
            well(members)
        close(members)


def a_run_that_begins_anew():
    """A step that one task alone came to has failed; all clients end, and others come: they have nothing to do with it."""
    with Cluster(worker=["shoal"] * TASKS) as c:
        for failing in range(TASKS):  # the leader first
            members = [Member(c, t, 1, "auto") for t in range(TASKS)]
            well(members)
            e = members[failing].run((9, 1))
            assert isinstance(e, tf.errors.InvalidArgumentError), e
            close(members)
            time.sleep(0.2)  # the others have heard of it
        members = [Member(c, t, 1, "auto") for t in range(TASKS)]
        well(members)
        close(members)


def sessions_that_begin_later():
    """One's step has failed before the others' sessions began, and its own is still open and does nothing: they are told,
    the leader or not, and then all go on. Where it has gone on by itself, they meet it there."""
    with Cluster(worker=["shoal"] * TASKS) as c:
        for failing in range(TASKS):
            for goes_on in (False, True):
                members = [None] * TASKS
                members[failing] = Member(c, failing, 1, "auto")
                e = members[failing].run((9, 1))
                assert isinstance(e, tf.errors.InvalidArgumentError), e
                time.sleep(0.2)  # the others have heard of it
                others = [t for t in range(TASKS) if t != failing]
                for t in others:
                    members[t] = Member(c, t, 1, "auto")
                if not goes_on:
                    for e in together([members[t] for t in others], [(1, 1)] * (TASKS - 1)):
                        told(e, f"task:{failing} has failed in step", "indices[0] = 9 is not in [0, 4)")
                    well(members)
                else:
                    got = []
                    first = threading.Thread(target=lambda: got.append(members[failing].run((1, 1))))
                    first.start()
                    time.sleep(0.5)  # it is in its next step
                    got += together([members[t] for t in others], [(1, 1)] * (TASKS - 1))
                    first.join()
                    for x in got:
                        np.testing.assert_array_equal(x, [12.0])
                well(members)
                close(members)


def devices_of_a_task():
    """By one client: its master cancels the other devices' parts, and tells what was wrong at first."""
    with Cluster(worker=["shoal"] * 2, flags=["--cpu_devices=2"]) as c:
        with tf.Graph().as_default(), tf.Session(c.target("worker", 0)) as s:
            at, made = tf.placeholder(tf.int32, [1]), []
            for i in range(2):
                with tf.device(f"/job:worker/task:0/cpu:{i}"):
                    made.append(all_reduce(tf.gather([1.0, 2.0], at if i else [0]), 1, 1, "auto", size=2))
            began = time.time()
            for _ in range(3):
                try:
                    s.run(made, {at: [9]})
                    raise AssertionError("no error")
                except tf.errors.InvalidArgumentError as e:
                    assert "indices[0] = 9" in e.message, e.message
                np.testing.assert_array_equal(s.run(made, {at: [1]}), [[3.0]] * 2)
            assert time.time() - began < SLACK


if __name__ == "__main__":
    tests = between_tasks, with_tensorflow, a_run_that_begins_anew, sessions_that_begin_later, devices_of_a_task
    sys.exit(report([(f.__name__.replace("_", " "), f) for f in tests]))
