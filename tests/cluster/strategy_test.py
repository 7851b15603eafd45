"""Strategies over several tasks (tests/programs/strategy_trainer.c): all have the bits of the same replicas in one process,
also when a task is killed or told to stop on the way; checkpoints are one model's, whatever strategy wrote them; mistakes
are told before training.
# long on the soft device; in short: several_steps
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from cluster import PATIENCE, SHOAL, Cluster, Skip, free_ports, report, until

DATA = "/usr/share/datasets/fashion-mnist"
TRAINER = os.path.join(os.path.dirname(SHOAL), "tests", "programs", "strategy_trainer")


def alone(kind, steps, *flags, code=0):
    """What one process prints: losses by step, and its weights."""
    p = subprocess.run([TRAINER, kind, str(steps), *flags], capture_output=True, text=True, timeout=PATIENCE)
    assert p.returncode == code, (p.returncode, p.stdout, p.stderr)
    return results(p.stdout)


def results(text):
    losses = {int(step): float.fromhex(loss) for step, loss in re.findall(r"^(\d+) (0x\S+)$", text, re.M)}
    return losses, re.findall(r"^weights (\w+)$", text, re.M)


class Worker:
    def __init__(self, cluster, job, index, steps, *flags, kind="multi"):
        self.job, self.index = job, index
        self.command = [TRAINER, kind, str(steps), *flags]
        self.env = {**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})}
        self.out = tempfile.TemporaryFile("w+", errors="replace")
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.out, stderr=subprocess.STDOUT, env=self.env)

    def text(self):
        self.out.seek(0)
        return self.out.read()

    def ends(self, *codes):
        try:
            got = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            got = "not yet"
        assert got in (codes or (0,)), f"{self.job} {self.index}: exit {got}\n{self.text()[-3000:]}"
        bad = re.search(r".* in step \d+ in step \d+.*|.*waiting for \d+ s: .*:; gives up.*", self.text())
        assert not bad, bad[0]  # a step that is said twice; a reason of which only the beginning is told
        return results(self.text())

    def passes(self, step):
        until(lambda: max(results(self.text())[0], default=-1) >= step,
              what=lambda: f"{self.job} {self.index} does not come to step {step}: {self.text()[-3000:]}")


def jobs(workers, chief=False):
    at = [f"127.0.0.1:{port}" for port in free_ports(workers)]
    return {"chief": at[:1], "worker": at[1:]} if chief else {"worker": at}


def start(cluster, steps, *flags, kind="multi"):
    return [Worker(cluster, job, i, steps, *flags, kind=kind) for job in cluster for i in range(len(cluster[job]))]


def lose(workers, victim, step):
    """A task is killed behind a step, and comes again once another one, the last, has seen that it is gone."""
    workers[victim].passes(step)
    workers[victim].process.kill()
    workers[victim].process.wait()
    until(lambda: "a task was lost" in workers[-1].text(), what=workers[-1].text)
    workers[victim].start()


def ends_like(worker, want):
    """To the same weights; the losses it saw, which are among those wanted, are returned."""
    losses, weights = worker.ends()
    assert weights == want[1] and losses.items() <= want[0].items(), (worker.text(), want)
    return losses


def test_tasks_have_the_bits_of_one_process():
    for workers, devices, chief in ((2, 1, False), (3, 1, True), (2, 2, False)):
        want = alone("mirrored", 8, f"devices={workers * devices}")
        for w in start(jobs(workers, chief), 8, f"devices={devices}"):
            assert w.ends() == want, (w.text(), want)
    want = alone("mirrored", 8, "devices=2")
    for w in start(jobs(2), 8, "before=1"):
        assert w.ends() == want, (w.text(), want)
    want = alone("mirrored", 8, "devices=3", "norm=1")
    for w in start(jobs(3), 8, "norm=1"):
        assert w.ends() == want, (w.text(), want)
    for w in start(jobs(2), 8, "kib=1", "sum=1"):
        losses, _ = w.ends()
        for step, loss in alone("one", 8)[0].items():
            assert abs(losses[step] - loss) < 1e-5 * loss, (step, losses[step], loss)


def test_tasks_drop_what_replicas_of_one_process_do():
    """By a seed of the step; whatever they reduce together, and who has which part of the state."""
    want = alone("mirrored", 8, "devices=4", "drop=1")
    for flags in ([], ["kib=1"], ["shard=1"]):
        assert alone("mirrored", 8, "devices=4", "drop=1", *flags) == want, (flags, want)
        for w in start(jobs(2), 8, "devices=2", "drop=1", *flags):
            assert w.ends() == want, (flags, w.text(), want)


def test_gradients_travel_as_bfloat16():
    """The same weights everywhere, near those of whole messages, and not the same."""
    losses, weights = alone("mirrored", 8, "devices=3")
    ended = [w.ends() for w in start(jobs(3), 8, "messages=14")]
    assert all(e == ended[0] for e in ended) and ended[0][1] != weights, (ended, weights)
    for step, loss in losses.items():
        assert abs(ended[0][0][step] - loss) < 2e-2 * loss, (step, ended[0][0][step], loss)


def test_a_killed_task_comes_again():
    """Whichever it is: the others name it, and all go on from the newest checkpoint, to the same bits."""
    want = alone("mirrored", 40, "devices=3")
    for victim in (0, 1):
        with tempfile.TemporaryDirectory() as folder:
            workers = start(jobs(3), 40, f"dir={folder}/run", "save=5", "slow=30", "tell=1")
            lose(workers, victim, 8)
            for w in workers:
                ends_like(w, want)
            for w in workers:
                lost = re.findall(r"a task was lost(?:.*\n)+?.*\[\[\{\{node", w.text())
                assert w.index == victim or re.search(rf"/job:worker/replica:0/task:{victim}\b", lost[0]), w.text()
                step = re.search(r", after training step (\d+)", w.text())
                assert w.index == victim or 8 <= int(step[1]) < 40, w.text()


def test_the_chief_is_killed_before_its_last_checkpoint():
    """The others have stayed for that: they are to be run again, as it is, and nothing but time is lost."""
    want = alone("mirrored", 6, "devices=3")
    for more in ([], ["shard=1"]):
        with tempfile.TemporaryDirectory() as folder:
            workers = start(jobs(3), 6, f"dir={folder}/run", "save=4", "slow=600", *more)
            workers[0].passes(5)
            workers[0].process.kill()
            workers[0].process.wait()
            for w in workers[1:]:
                w.ends(75)
                assert "a task was lost before the chief had saved" in w.text(), w.text()
            for w in workers:
                w.start()
            for w in workers:
                ends_like(w, want)


def test_the_leader_is_killed_while_the_others_wait_for_a_task():
    """They have met the one that was, make their sessions with the one that comes in its place, and count their steps as
    that does."""
    want = alone("mirrored", 30, "devices=3")
    with tempfile.TemporaryDirectory() as folder:
        workers = start(jobs(3), 30, f"dir={folder}/run", "save=5", "slow=30")
        workers[1].passes(8)
        workers[1].process.kill()
        workers[1].process.wait()
        until(lambda: "a task was lost" in workers[2].text(), what=workers[2].text)
        time.sleep(0.5)  # a session begins to be made, whose tasks but the second have answered
        workers[0].process.kill()
        workers[0].process.wait()
        workers[0].start()
        time.sleep(1)
        workers[1].start()
        for w in workers:
            ends_like(w, want)


def test_a_task_that_is_killed_before_its_first_step_comes_again():
    """At once, before the others have seen that it is gone: their first step fails since it comes, and it does not come to
    that one too, when it has begun anew with them."""
    want = alone("mirrored", 8, "devices=3")
    for victim in (0, 1, 2):
        cluster = jobs(3)
        workers = [Worker(cluster, "worker", i, 8, *(["away=1"] if i == victim else [])) for i in range(3)]
        lost = workers[victim]
        until(lambda: "away" in lost.text(), what=lost.text)
        time.sleep(0.5)  # the others are in their first step
        lost.process.kill()
        lost.process.wait()
        lost.command.remove("away=1")
        lost.start()
        for w in workers:
            ends_like(w, want)


def test_several_steps_in_a_run():
    """The bits of single steps, also when a task is killed between two of them; the last run is as long as what is left."""
    want = alone("mirrored", 38, "devices=3", "norm=1")
    with tempfile.TemporaryDirectory() as folder:
        workers = start(jobs(3), 38, f"dir={folder}/run", "save=5", "slow=30", "norm=1", "each=4")
        lose(workers, 1, 11)
        for w in workers:
            losses = ends_like(w, want)
            assert len(losses) < 12 and max(losses) == 37, losses


def test_a_stopped_task_is_named_and_goes_on():
    want = alone("mirrored", 40, "devices=3")
    for victim in (0, 1):
        with tempfile.TemporaryDirectory() as folder:
            workers = start(jobs(3), 40, f"dir={folder}/run", "save=5", "slow=30")
            workers[victim].passes(8)
            workers[victim].process.send_signal(signal.SIGSTOP)
            for w in workers:
                if w.index != victim:
                    until(lambda w=w: "a task was lost" in w.text(), what=w.text)
                    assert f"/job:worker/replica:0/task:{victim} at" in w.text(), w.text()
            workers[victim].process.send_signal(signal.SIGCONT)
            for w in workers:
                losses, weights = w.ends()
                assert weights == want[1] and losses.items() <= want[0].items(), (w.text(), want)


def test_a_task_that_does_not_come_is_named():
    """Before its first step, whose collectives nobody has met in yet, or a later one: the leader says for whom it waits, and
    ends with its step when it is told to stop; where the task is gone the others are told so."""
    for away in (1, 3):
        for gone in (True, False):
            cluster = jobs(2)
            workers = [Worker(cluster, "worker", 0, 9), Worker(cluster, "worker", 1, 9, f"away={away}")]
            if away > 1:
                workers[0].passes(away - 2)
            else:
                until(lambda: " has 1 of 2 members, and none of /job:worker/replica:0/task:1" in workers[0].text(),
                      what=workers[0].text)
            if gone:
                workers[1].process.kill()
                until(lambda: "a task was lost" in workers[0].text(), what=workers[0].text)
                lost = re.findall(r"a task was lost(?:.*\n)+?.*\[\[\{\{node", workers[0].text())
                assert "/job:worker/replica:0/task:1" in lost[0] and (away > 1 or " in step " in lost[0]), workers[0].text()
            workers[0].process.send_signal(signal.SIGTERM)
            workers[0].ends(75)
            workers[1].process.kill()
            workers[1].process.wait()


def test_a_task_whose_step_fails_alone_is_named():
    """Its program ends with its own error; the others are told by whom and why, at once, and go on with it from the newest
    checkpoint when it has come again."""
    want = alone("mirrored", 30, "devices=3")
    for victim in (0, 2):
        with tempfile.TemporaryDirectory() as folder:
            flags, cluster = [f"dir={folder}/run", "save=5", "slow=30"], jobs(3)
            workers = [Worker(cluster, "worker", i, 30, *flags, *(["wrong=8"] if i == victim else [])) for i in range(3)]
            workers[victim].ends(1)
            for w in workers:
                until(lambda w=w: "Incompatible shapes" in w.text(), what=w.text)
                assert w.index == victim or f"task:{victim} has failed in step" in w.text(), w.text()
            workers[victim].command.pop()
            workers[victim].start()
            for w in workers:
                ends_like(w, want)


def test_a_task_that_makes_its_session_anew_alone_is_followed():
    """After something in which the others have no part, and do not fail: the chief, which saves, and another; once the
    others have come to the next step, and while they are on their way to it, or stopped there; shared out state too."""
    want = alone("mirrored", 30, "devices=3")
    for victim, slow, shared in ((0, 0, False), (2, 0, True), (0, 300, True), (1, 300, False)):
        with tempfile.TemporaryDirectory() as folder:
            flags, cluster = [f"dir={folder}/run", "save=5", *(["shard=1"] if shared else [])], jobs(3)
            workers = [Worker(cluster, "worker", i, 30, *flags, "lost=8" if i == victim else f"slow={slow}")
                       for i in range(3)]
            for w in workers:
                ends_like(w, want)
                text = w.text()
                assert w.index == victim or f"task:{victim} has given up the session" in text, text
                assert text.count("the session is made anew") == 1 and "so it looks from here" in text, text


def test_told_to_stop_all_stop_in_one_step():
    want = alone("mirrored", 40, "devices=2")
    with tempfile.TemporaryDirectory() as folder:
        flags = [f"dir={folder}/run", "slow=30"]
        cluster = jobs(2)
        workers = start(cluster, 40, *flags)
        workers[1].passes(5)
        workers[1].process.send_signal(signal.SIGTERM)
        stopped = [w.ends(75) for w in workers]
        assert stopped[0] == stopped[1] and 5 <= max(stopped[0][0]) < 39, stopped
        for w in start(cluster, 40, *flags):
            losses, weights = w.ends()
            assert weights == want[1] and min(losses) == max(stopped[0][0]) + 1, w.text()


def test_checkpoints_fit_every_strategy():
    straight = alone("one", 12)[0]
    with tempfile.TemporaryDirectory() as folder:
        where = f"dir={folder}/run"
        losses = alone("mirrored", 3, where, "devices=3")[0]
        for w in start(jobs(2), 6, where):
            losses.update(w.ends()[0])
        losses.update(alone("one", 9, where)[0])
        ps = {"ps": [f"127.0.0.1:{port}" for port in free_ports(1)], **jobs(1)}
        tasks = start(ps, 12, where, kind="ps")
        losses.update(tasks[1].ends()[0])
        tasks[0].ends()
        assert sorted(losses) == list(range(12)), losses
        for step, loss in straight.items():
            assert abs(losses[step] - loss) < 1e-4 * loss, (step, losses[step], loss)


def test_shared_out_state_has_the_same_bits():
    """Each replica has a share of the optimizer's slots: in one process and in tasks, with small buckets, with a chief."""
    for workers, devices, chief, flags in ((2, 1, False, []), (3, 1, True, ["norm=1"]), (2, 2, False, ["kib=1"])):
        want = alone("mirrored", 8, f"devices={workers * devices}", *flags)
        assert alone("mirrored", 8, f"devices={workers * devices}", "shard=1", *flags) == want
        for w in start(jobs(workers, chief), 8, f"devices={devices}", "shard=1", *flags):
            assert w.ends() == want, (w.text(), want)


def test_shared_out_state_is_saved_whole():
    """What is written under one strategy is gone on with under another: as many steps of each, shared out and not, give the
    bits of those that share nothing out."""
    def run(folder, shard):
        where = f"dir={folder}/run{shard}"
        losses = alone("mirrored", 3, where, "devices=3", f"shard={shard}")[0]
        for w in start(jobs(2), 6, where, f"shard={1 - shard if shard else 0}"):
            losses.update(w.ends()[0])
        for w in start(jobs(3, True), 9, where, f"shard={shard}"):
            losses.update(w.ends()[0])
        losses.update(alone("mirrored", 12, where, "devices=5", f"shard={shard}")[0])
        last = alone("one", 15, where, f"shard={shard}")
        losses.update(last[0])
        return losses, last[1]
    with tempfile.TemporaryDirectory() as folder:
        want = run(folder, 0)
        assert sorted(want[0]) == list(range(15)) and run(folder, 1) == want


def test_a_killed_task_of_shared_out_state_comes_again():
    want = alone("mirrored", 40, "devices=3")
    for victim in (0, 1):
        with tempfile.TemporaryDirectory() as folder:
            workers = start(jobs(3), 40, f"dir={folder}/run", "save=5", "slow=30", "shard=1")
            lose(workers, victim, 8)
            for w in workers:
                ends_like(w, want)


def test_a_stopped_task_of_shared_out_state_goes_on():
    want = alone("mirrored", 40, "devices=3")
    with tempfile.TemporaryDirectory() as folder:
        workers = start(jobs(3), 40, f"dir={folder}/run", "save=5", "slow=30", "shard=1")
        workers[1].passes(8)
        workers[1].process.send_signal(signal.SIGSTOP)
        for w in (workers[0], workers[2]):
            until(lambda w=w: "a task was lost" in w.text(), what=w.text)
        workers[1].process.send_signal(signal.SIGCONT)
        for w in workers:
            ends_like(w, want)
        # And told to stop, all stop in one step, with a checkpoint that holds all of it.
        cluster = jobs(2)
        workers = start(cluster, 60, f"dir={folder}/run", "slow=30", "shard=1")
        workers[1].passes(45)
        workers[1].process.send_signal(signal.SIGTERM)
        stopped = [w.ends(75) for w in workers]
        for w in start(cluster, 60, f"dir={folder}/run", "shard=1"):
            assert min(w.ends()[0]) == max(stopped[0][0]) + 1, w.text()


def test_uneven_data_ends_in_all_tasks():
    """106 examples in batches of 24: in the last step one of three tasks has a whole batch, one a part, one nothing; 99:
    the last has two without; of 72 there is no last part. Every example is used once, as in one process; a run whose data
    has ended goes on with nothing."""
    for examples, steps in ((106, 5), (99, 5), (72, 3)):
        flag = f"examples={examples}"
        straight = alone("one", 100, flag)[0]
        assert len(straight) == steps
        with tempfile.TemporaryDirectory() as folder:
            cluster = jobs(3)
            for kind in ([], ["sum=1"], [f"dir={folder}/run"]):
                for w in start(cluster, 100, flag, *kind):
                    losses, _ = w.ends()
                    assert sorted(losses) == sorted(straight) and f"examples {examples}\n" in w.text(), w.text()
                    for step, loss in straight.items():
                        assert abs(losses[step] - loss) < 1e-5 * loss, (step, losses[step], loss)
            for w in start(cluster, 100, flag, f"dir={folder}/run"):
                assert not w.ends()[0], w.text()
        losses = alone("mirrored", 100, "devices=5", flag)[0]
        assert all(abs(losses[step] - loss) < 1e-5 * loss for step, loss in straight.items()), losses


def test_datasets_are_dealt_out():
    """By element: the bits of one process, and of the same batches fed; each example once; also after a task was killed,
    where the tasks go on behind what was used. By file: a dataset without files is refused."""
    for examples in (106, 99, 72):
        flag = f"examples={examples}"
        want = alone("mirrored", 100, "devices=3", "data=2", flag)
        for w in start(jobs(3), 100, flag):
            assert w.ends() == want, (w.text(), want)
        for w in start(jobs(3), 100, "data=2", flag):
            assert w.ends() == want and f"examples {examples}\n" in w.text(), (w.text(), want)
    want = alone("mirrored", 100, "devices=3", "data=2", "examples=900")
    with tempfile.TemporaryDirectory() as folder:
        workers = start(jobs(3), 100, "data=2", "examples=900", f"dir={folder}/run", "save=5", "slow=30")
        lose(workers, 1, 12)
        for w in workers:
            ends_like(w, want)
    for w in start(jobs(2), 100, "data=1", "examples=72"):
        w.ends(1)
        assert "error INVALID_ARGUMENT" in w.text() or "error NOT_FOUND" in w.text(), w.text()


def refused(config, part, kind="multi", flags=()):
    p = subprocess.run([TRAINER, kind, "3", *flags], capture_output=True, text=True, timeout=PATIENCE,
                       env={**os.environ, "TF_CONFIG": json.dumps(config)})
    assert p.returncode == 1 and part in p.stdout, (p.returncode, p.stdout, p.stderr)


def test_clusters_that_make_no_sense():
    a, b = (f"127.0.0.1:{port}" for port in free_ports(2))
    worker = {"type": "worker", "index": 0}
    refused({"cluster": {"worker": [a], "ps": [b]}, "task": worker}, "the cluster has parameter servers")
    refused({"cluster": {"worker": {"1": a, "2": b}}, "task": {"type": "worker", "index": 1}}, "the cluster has no chief")
    refused({"cluster": {"other": [a]}, "task": {"type": "other", "index": 0}}, "no job \"worker\" and none \"chief\"")
    refused({"cluster": {"worker": [a], "other": [b]}, "task": {"type": "other", "index": 0}}, "this task is other 0")
    refused({"cluster": {"chief": [a, b]}, "task": {"type": "chief", "index": 0}}, "2 chiefs")
    refused({"cluster": {"worker": [a]}}, "\"task\" is missing")
    refused({"cluster": {"worker": [a]}, "task": worker}, "no job \"ps\"", kind="ps")


def test_two_tasks_of_one_number():
    """Each is the first of its own list; and one that is in its list twice, by two names."""
    a, b = (f"127.0.0.1:{port}" for port in free_ports(2))
    both = [Worker({"worker": tasks}, "worker", 0, 3) for tasks in ([a, b], [b, a])]
    for w, other in zip(both, (b, a)):
        w.ends(1)
        assert f"{other} says it is /job:worker/replica:0/task:0, expected /job:worker/replica:0/task:1" in w.text(), w.text()
    again = a.replace("127.0.0.1", "localhost")
    refused({"cluster": {"worker": [a, again]}, "task": {"type": "worker", "index": 0}},
            f"{again} says it is /job:worker/replica:0/task:0, expected /job:worker/replica:0/task:1")


def test_lists_that_differ_are_told():
    """One task has another in its list, which is not there; the second makes its strategy at once, or seconds later. Both say
    which lists there are. Names of hosts may differ."""
    a, b, c = (f"127.0.0.1:{port}" for port in free_ports(3))
    more, less = {"worker": [a, b, c]}, {"worker": [a, b]}
    for first, second, late in ((less, more, 0), (more, less, 0), (less, more, 4), (more, less, 4)):
        flags = [[], [f"late={late}"]]
        for w in [Worker(cluster, "worker", i, 3, *flags[i]) for i, cluster in enumerate((first, second))]:
            w.ends(1)
            assert "lists of tasks differ" in w.text() and "worker 0-2" in w.text(), w.text()
            assert "worker 0-1" in w.text() and f"task:{1 - w.index}" in w.text(), w.text()
    want = alone("mirrored", 3, "devices=2")
    for w in [Worker({"worker": tasks}, "worker", i, 3)
              for i, tasks in enumerate(([a, b.replace("127.0.0.1", "localhost")], [a.replace("127.0.0.1", "localhost"), b]))]:
        assert w.ends() == want, w.text()
    workers = [Worker({"worker": tasks}, "worker", i, 3) for i, tasks in enumerate(([a, b], [a, c]))]
    until(lambda: f"by its list it is at {c}: do the lists differ?" in workers[0].text(), what=workers[0].text)
    for w in workers:
        w.process.send_signal(signal.SIGTERM)
        w.ends(75)


def test_unknown_devices_are_told_to_all():
    """One task of three has no such device: it says so before it has a session, and so do the others, which name it, whoever
    comes first; and where it is the only one, or its parameters are elsewhere. In none is a step run."""
    for wrong, late in ((1, None), (0, 2), (2, 0)):
        cluster = jobs(3)
        flags = {wrong: ("place=/gpu:40",), late: ("late=2",)}
        for w in [Worker(cluster, "worker", i, 5, *flags.get(i, ())) for i in range(3)]:
            if w.index == wrong:
                w.process.wait(PATIENCE)
                assert re.search(r"task_device '/device:GPU:40': /job:worker/replica:0/task:\d has \d+ devices of type GPU", w.text()), w.text()
                continue
            losses, _ = w.ends(1)
            assert not losses and f"/job:worker/replica:0/task:{wrong} takes no part: task_device '/device:GPU:40'" in w.text(), w.text()
    a, b = (f"127.0.0.1:{port}" for port in free_ports(2))
    worker = {"type": "worker", "index": 0}
    refused({"cluster": {"worker": [a]}, "task": worker}, "task_device '/device:CPU:7': /job:worker/replica:0/task:0 has", flags=["place=/cpu:7"])
    refused({"cluster": {"worker": [a], "ps": [b]}, "task": worker}, "task_device '/device:GPU:40'", kind="ps", flags=["place=/gpu:40"])


def test_tasks_that_differ_are_told():
    """Before training: one has another model, more replicas, other buckets, shares out its state. In none is a step run, and
    nobody waits in vain."""
    for flags, told in (("norm=1", "the model"), ("devices=2", "the number of replicas: "), ("kib=1", r"bucket_kib: \d+ in one, \d+ in another"),
                        ("shard=1", "shard_state"), ("sum=1", "gradients, ")):
        cluster = jobs(2)
        workers = [Worker(cluster, "worker", 0, 5), Worker(cluster, "worker", 1, 5, flags)]
        for w in workers:
            losses, _ = w.ends(1)
            assert not losses and "the_tasks_differ_in/" in w.text(), (flags, w.text())
            assert re.search("^error INVALID_ARGUMENT: the tasks' programs differ in " + told, w.text(), re.M), (told, w.text())
            assert "Shape mismatch" in w.text() and "a task was lost" not in w.text(), (flags, w.text())


def test_tasks_whose_sessions_differ_are_told():
    """Before the first step, and what it is: how many steps or batches go together, what feeds them, when they end, and what
    changes the weights, which would differ from then on without a word."""
    optimizer = "the optimizer: which it is, its numbers, or its learning rate$"
    for one, other, told in ((["each=2"], [], "steps_per_execution: (2 in this one, 1|1 in this one, 2) in another$"),
                             (["acc=2"], ["acc=3"], "the number of batches that gradients are accumulated over: "),
                             (["examples=100"], [], r"the number of hooks that feed .*: \d in this one, \d in another$"),
                             (["messages=14"], [], "messages, "),
                             (["optimizer=sgd"], ["optimizer=proximal"], optimizer), (["rate=4"], ["rate=5"], optimizer),
                             (["falling=1"], [], optimizer), (["falling=1", "rate=4"], ["falling=1", "rate=5"], optimizer),
                             ([], 6, "stop_at_step: (5 in this one, 6|6 in this one, 5) in another$")):
        cluster = jobs(2)
        steps, other = (other, []) if isinstance(other, int) else (5, other)
        for w in [Worker(cluster, "worker", 0, 5, *one), Worker(cluster, "worker", 1, steps, *other)]:
            losses, _ = w.ends(1)
            assert not losses and "a task was lost" not in w.text(), w.text()
            assert re.search("^error INVALID_ARGUMENT: the tasks' programs differ in " + told, w.text(), re.M), (told, w.text())


def test_two_hooks_feed_a_step():
    """Each by batches of its own: tasks ask each other about both."""
    want = alone("mirrored", 20, "devices=2", "examples=96")
    assert len(want[0]) == 4 and alone("mirrored", 20, "devices=2", "examples=96", "hooks=2") == want, want
    for w in start(jobs(2), 20, "examples=96", "hooks=2"):
        assert w.ends() == want, (w.text(), want)


def test_who_makes_its_session_later_is_told():
    """Of three tasks that differ, the second or the third by seconds: those who were told stay for it, for its session wants
    all of them."""
    cluster = jobs(3)
    for late, other in ((2, 1), (1, 2)):
        flags = {late: ("late=3",), other: ("norm=1",)}
        for w in [Worker(cluster, "worker", i, 5, *flags.get(i, ())) for i in range(3)]:
            losses, _ = w.ends(1)
            assert not losses and "the_tasks_differ_in/" in w.text() and "Shape mismatch" in w.text(), w.text()


def test_who_comes_when_the_others_have_ended_is_told():
    """Of three tasks two have compared themselves, and the first, which leads, ends with the error: it stays until the third,
    which has come no further than to its group, has asked and heard of it. That one and the second are played here."""
    from master_client import Client, Wrong, fields_of, message
    group, agree, reduce, int32 = 2, (1 << 25) + 3, 0, 3
    with Cluster(worker=["shoal"] * 3) as c:
        c.tasks["worker", 0].end()
        leader = Worker(c.lists(), "worker", 0, 5)
        devices = [Client(c.target("worker", i)).worker("GetStatus")[1] for i in (1, 2)]
        clients = [Client(c.target("worker", 0)) for _ in devices]
        shape = message(*[(2, message((1, n))) for n in (0, 9, 9, 9, 9, 9, 9)])

        def join(i):
            clients[i].worker("CompleteGroup", (1, group), (2, 3), (3, "CPU"), (6, devices[i]))

        def told(i):
            try:
                clients[i].worker("CompleteInstance", (2, reduce), (3, int32), (4, shape), (5, group), (6, 3), (7, agree),
                                  (10, fields_of(devices[i])[1]))
            except Wrong as e:
                return e.code == "INVALID_ARGUMENT" and "Shape mismatch" in e.text
            return False

        threads = [threading.Thread(target=join, args=(i,)) for i in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert told(0), leader.text()
        until(lambda: "do not fit: 1 have not" in leader.text(), what=leader.text)
        assert "the_tasks_differ_in/" in leader.text() and told(1), leader.text()
        for each in clients:
            each.channel.close()
        leader.ends(1)


def example(*command):
    p = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert p.returncode == 0, (p.returncode, p.stdout, p.stderr)
    accuracy = float(re.search(r"test accuracy (\S+)", p.stdout)[1])
    assert accuracy > 0.75, p.stdout
    return accuracy


def test_examples_have_the_same_weights():
    """Two replicas in one process, and two workers of which the run is cut in two."""
    if not os.path.exists(DATA):
        raise Skip(f"there is no {DATA}")
    programs = os.path.join(os.path.dirname(SHOAL), "examples")
    launch = [SHOAL, "launch", "--ps=0", "--workers=2", "--", f"{programs}/mnist_multiworker"]
    with tempfile.TemporaryDirectory() as folder:
        one = example(f"{programs}/mnist_mirrored", "--devices=2", "--train_steps=200", f"--checkpoint_dir={folder}/one")
        example(*launch, "--train_steps=120", f"--checkpoint_dir={folder}/two")
        two = example(*launch, "--train_steps=200", f"--checkpoint_dir={folder}/two")
        files = [open(f"{folder}/{run}/model.ckpt-200.data-00000-of-00001", "rb").read() for run in ("one", "two")]
        assert one == two and files[0] == files[1], (one, two)


if __name__ == "__main__":
    sys.exit(report([(name[5:], fn) for name, fn in list(globals().items()) if name.startswith("test_")]))
