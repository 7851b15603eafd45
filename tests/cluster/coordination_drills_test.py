"""Tasks of a coordinated cluster that are killed, stand still or leave, in each thing that others wait for: before all are
there, in a collective, at a barrier, for a value. The others end in time, with an error that names the task; and one that
only stood still before all were there has lost nothing."""
# not on the soft device: requests of the coordination service, and sums of CPUs
import os
import re
import signal
import sys
import threading
import time

from cluster import PATIENCE, SLACK, report, until
from coordination_test import TRAINER, Worker, addresses, member, told, wanted

os.environ["SHOAL_LOG"] = "info"  # the leader says who is here
MAY_TAKE = 15 + SLACK  # seconds, of what is told after a heartbeat's time-out (10 s)


def standing(worker):
    """Stops it, until it is let go or killed."""
    worker.process.send_signal(signal.SIGSTOP)


def going(worker):
    worker.process.send_signal(signal.SIGCONT)


def kill(workers):
    for w in workers:
        w.kill()


def ends_with(worker, *words, code=1, seconds=MAY_TAKE):
    """It has ended in time, and said so."""
    until(lambda: worker.process.poll() is not None, seconds, what=worker.text)
    text = worker.text()
    assert worker.process.poll() == code and all(word in text for word in words), text


def is_here(leader, index):
    until(lambda: f"task:{index} is here" in leader.text(), what=leader.text)


def a_slow_start():
    """A task stands still, longer than a heartbeat may, before the last has come. It is waited for."""
    at = addresses(3)
    workers = [member("brrb", at, 0), member("brrb", at, 2)]
    try:
        is_here(workers[0], 2)
        standing(workers[1])
        until(lambda: "task:2: " in workers[0].text() and "heartbeat timeout" in workers[0].text(), what=workers[0].text)
        going(workers[1])
        workers.append(member("brrb", at, 1))
        for w in workers:
            assert w.ends().lines() == wanted("brrb", 3), w.text()
    finally:
        kill(workers)


def early_ones_say_for_whom_they_wait():
    """A leader, and a task without it, in a step that has begun; both go on when the others have come."""
    at = addresses(3)
    workers = [member("rb", at, 1)]
    try:
        until(lambda: re.search(r"waiting since \d+ s for .*task:0", workers[0].text()), what=workers[0].text)
        workers.append(member("rb", at, 0))
        until(lambda: re.search(r"waiting since \d+ s for .*task:2", workers[1].text()), what=workers[1].text)
        workers.append(member("rb", at, 2))
        for w in workers:
            assert w.ends().lines() == wanted("rb", 3), w.text()
    finally:
        kill(workers)


def the_leader_stood_still():
    """It blames nobody for the time in which it did not run itself."""
    at = addresses(2)
    workers = [member("rrw", at, 0), member("rr", at, 1)]
    try:
        until(lambda: len(workers[0].lines()) == 2, what=workers[0].text)
        workers.append(told(at, 1, "told=9000"))
        is_here(workers[0], 1)
        standing(workers[0])
        time.sleep(12)
        going(workers[0])
        workers[2].ends()
        assert "heartbeat timeout" not in workers[0].text(), workers[0].text()
    finally:
        kill(workers)


def never_comes_again():
    """Killed before all were there (the fourth never comes): who waits is told after a minute."""
    at = addresses(4)
    workers = [member("r", at, 0), member("r", at, 1)]
    lost = told(at, 2, "until=never")
    try:
        is_here(workers[0], 2)
        lost.kill()
        lost = None
        began = time.monotonic()
        for w in workers:
            ends_with(w, "step: ", "task:2 was here, has gone and has not come again", seconds=PATIENCE)
        assert time.monotonic() - began > 60, workers[0].text()
    finally:
        kill(workers + ([lost] if lost else []))


def in_a_collective(do, victim):
    """It does not come to the third sum; the two others wait for it there."""
    at = addresses(3)
    workers = [member("rrw" if i == victim else "rrr", at, i) for i in range(3)]
    try:
        until(lambda: all(len(w.lines()) == 2 for w in workers), what=workers[0].text)
        do(workers[victim])
        for w in workers:
            if w.index != victim:
                ends_with(w, "step: ", f"task:{victim}")
    finally:
        kill(workers)


def in_a_new_collective(do):
    """The same where the third is not known yet: the leader has been asked what it is."""
    at = addresses(3)
    workers = [member("rrw" if i == 1 else "rrb", at, i) for i in range(3)]
    try:
        until(lambda: all(len(w.lines()) == 2 for w in workers), what=workers[0].text)
        do(workers[1])
        for w in (workers[0], workers[2]):
            ends_with(w, "step: ", "task:1")
    finally:
        kill(workers)


def leaves_in_order():
    """It ends, without a word of an error, and the others wait for it."""
    at = addresses(3)
    workers = [member("rr" if i == 2 else "rrr", at, i) for i in range(3)]
    try:
        workers[2].ends()
        ends_with(workers[0], "step: ", "task:2")
        ends_with(workers[1], "step: ", "task:")  # or the leader, which has ended for that
    finally:
        kill(workers)


def at_a_barrier(do):
    at = addresses(3)
    workers = [told(at, i, "set=here/%d=1" % i, *(["until=never"] if i == 1 else ["until=here/1", "barrier=all=110000"]))
               for i in range(3)]
    try:
        is_here(workers[0], 1)
        until(lambda: "set: here/1" in workers[1].text(), what=workers[1].text)
        do(workers[1])
        ends_with(workers[2], "barrier: INTERNAL", "'all'", "task:1", code=0)
        ends_with(workers[0], "barrier: INTERNAL", "'all'", "task:1", code=0)
    finally:
        kill(workers)


def the_leader_is_lost(do):
    """Who waits for a value, or at a barrier, is told at the latest when its own time is up; whom it waited for."""
    at = addresses(3)
    leader, *others = workers = [told(at, 0, "set=begun=1", "until=never"), told(at, 1, "until=begun", "get=never=15000"),
                                 told(at, 2, "until=begun", "barrier=all=15000")]
    try:
        for i in (1, 2):
            is_here(leader, i)
        time.sleep(2)
        do(leader)
        ends_with(others[0], "get: ", "coordination by /job:worker/replica:0/task:0: 'never'", code=0)
        ends_with(others[1], "barrier: ", "coordination by /job:worker/replica:0/task:0: 'all'", code=0)
    finally:
        kill(workers)


def the_first_worker_of_a_training(do):
    """Of programs beside TensorFlow's, which end with their tasks: the others say so, and ask to be run again."""
    at = addresses(3)
    workers = [Worker([TRAINER, "multi", "1000", "sum=1", "optimizer=sgd", "tensorflow=1", "slow=30"], at, i)
               for i in range(3)]
    try:
        until(lambda: "5 0x" in workers[1].text(), what=workers[1].text)
        do(workers[0])
        for w in workers[1:]:
            ends_with(w, "all are to be run again: ", "task:0 at ", "does not answer (", code=75)
    finally:
        kill(workers)


def died(worker):
    worker.process.send_signal(signal.SIGKILL)


def at_once(*drills):
    """Drills that mostly wait, side by side."""
    failed = []

    def one(drill):
        try:
            drill()
        except Exception as e:  # pylint: disable=broad-except
            failed.append(e)
    threads = [threading.Thread(target=one, args=(d,)) for d in drills]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]


if __name__ == "__main__":
    sys.exit(report([
        ("a task that stood still before all were there", lambda: at_once(a_slow_start, the_leader_stood_still,
                                                                          early_ones_say_for_whom_they_wait)),
        ("a task that has gone before all were there", lambda: at_once(never_comes_again, leaves_in_order)),
        ("a killed task, in a collective", lambda: at_once(*(lambda v=v: in_a_collective(died, v) for v in (0, 1)),
                                                           lambda: in_a_new_collective(died))),
        ("a task that stands still, in a collective", lambda: at_once(*(lambda v=v: in_a_collective(standing, v) for v in (0, 1)),
                                                                      lambda: in_a_new_collective(standing))),
        ("at a barrier", lambda: at_once(lambda: at_a_barrier(died), lambda: at_a_barrier(standing))),
        ("a leader that is lost", lambda: at_once(lambda: the_leader_is_lost(died), lambda: the_leader_is_lost(standing))),
        ("the first worker of a training", lambda: at_once(lambda: the_first_worker_of_a_training(died),
                                                           lambda: the_first_worker_of_a_training(standing)))]))
