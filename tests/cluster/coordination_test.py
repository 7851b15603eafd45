"""Workers of TensorFlow 2's MultiWorkerMirroredStrategy in one group with a program of Shoal's, either of them the leader:
sums and broadcasts come out the same everywhere; TensorFlow's workers coordinate by a server of Shoal's alone, values by
key included; where a worker is killed the others are told, and when it has come again the group works, under a leader that
has stayed."""
# needs: tensorflow
# not on the soft device: groups of TensorFlow 2, whose members are CPUs
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

from cluster import PATIENCE, ROOT, SHOAL, forked, free_ports, report, until

MEMBER = os.path.join(os.path.dirname(SHOAL), "tests", "programs", "multi_worker_member")
TOLD = os.path.join(os.path.dirname(SHOAL), "tests", "programs", "coordination_member")
MEET = os.path.join(os.path.dirname(SHOAL), "examples", "meet")
TRAINER = os.path.join(os.path.dirname(SHOAL), "tests", "programs", "strategy_trainer")
TRAIN_TF2 = os.path.join(ROOT, "tests", "cluster", "train_tf2.py")
TF2 = os.path.join(ROOT, "tests", "cluster", "multi_worker_tf2.py")


class Worker:
    def __init__(self, command, addresses, index):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        self.index = index
        self.out = tempfile.TemporaryFile("w+", errors="replace")
        self.process = forked.start(command, self.out, env={**os.environ, "TF_CONFIG": json.dumps(config)})

    def lines(self):
        """What it said of its plan or of values."""
        return [line for line in self.text().splitlines() if line[:1].isdigit() and line[:3] != "202"]

    def text(self):
        self.out.seek(0)
        return self.out.read()

    def ends(self, code=0):
        try:
            got = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            got = "not yet"
        assert got == code, f"worker {self.index}: exit {got}\n{self.text()[-3000:]}"
        return self

    def kill(self, signum=signal.SIGKILL):
        self.process.send_signal(signum)
        self.process.wait()


def addresses(n):
    return [f"127.0.0.1:{port}" for port in free_ports(n)]


def tf2(what, at, index):
    return Worker([sys.executable, TF2, what], at, index)


def member(plan, at, index):
    return Worker([MEMBER, str(len(at)), plan], at, index)


def told(at, index, *commands):
    """A program in C that does what it is told, by the functions of shoal/coordination.h."""
    return Worker([TOLD, *commands], at, index)


def ended(*workers):
    """What they say, once all have ended well, but for lines of the log."""
    try:
        return [re.sub(r"^[IWE] \d\d:.*\n", "", w.ends().text(), flags=re.M) for w in workers]
    finally:
        for w in workers:
            w.kill()


def wanted(plan, workers):
    lines = []
    for turn, letter in enumerate(plan):
        ranks = range(workers) if letter == "r" else [0]
        first, last = (sum((r + 1) * (1 + i % 7) + turn for r in ranks) for i in (0, 1002))
        lines.append(f"{turn} {letter} {first} {last}")
    return lines


def together(plan, kinds):
    at = addresses(len(kinds))
    workers = [(tf2 if kind == "tf" else member)(plan, at, i) for i, kind in enumerate(kinds)]
    try:
        for w in workers:
            assert w.ends().lines() == wanted(plan, len(kinds)), f"worker {w.index}: {w.text()[-3000:]}"
    finally:
        for w in workers:
            w.kill()


def shoal_leads():
    together("rbrrbrr", ["shoal", "tf"])


def tensorflow_leads():
    together("rbrrbrr", ["tf", "shoal"])


def three_of_both():
    together("brrb", ["shoal", "tf", "shoal"])


def values_by_key():
    at = addresses(3)
    leader = Worker([SHOAL, "server", "--coordination_service"], at, 0)
    workers = [tf2("values", at, i) for i in (1, 2)]
    try:
        for w in workers:
            text = w.ends().text()
            assert w.lines() == ["1 value 1", "2 value 2"], text
            assert "exists True" in text and "late" in text, text
    finally:
        for w in workers + [leader]:
            w.kill()


def a_worker_comes_again():
    """Of two workers one is killed; the leader's step fails, and when another has come in its place the group works."""
    at = addresses(2)
    plan = "rrrr"
    leader = member("!" + plan, at, 0)  # !: goes on where a step fails, from the first
    first = tf2("rrw", at, 1)
    second = None
    try:
        until(lambda: len(first.lines()) == 2, what=first.text)
        first.kill()
        until(lambda: "step:" in leader.text(), what=leader.text)
        second = tf2(plan, at, 1)
        try:
            assert second.ends().lines() == wanted(plan, 2), second.text()
        except AssertionError as e:
            raise AssertionError(f"{e}\nthe leader:\n{leader.text()[-3000:]}") from None
        assert leader.ends().lines()[-4:] == wanted(plan, 2), leader.text()
        assert "task:1" in leader.text().split("step:")[1], leader.text()
    finally:
        for w in [leader, first] + ([second] if second else []):
            w.kill()


def values_from_c():
    """Values among three programs in C: set once, waited for, listed, deleted; mistakes by name."""
    at = addresses(3)
    tell = ("set=/a//one/=first", "set=a/one=again", "try=a/none", "get=a/none=50", "get=a/two", "get=late=60000",
            "barrier=listed=60000")
    leader, second, third = ended(
        told(at, 0, *tell, "list=a", "delete=a", "barrier=gone=60000", "list=a", "barrier=end=60000"),
        told(at, 1, "set=a/two=second", "until=late", "barrier=listed=60000", "barrier=gone=60000", "try=a/one",
             "barrier=end=60000"),
        told(at, 2, "until=a/one", "set=a/b/deep", "set=late=now", "barrier=listed=60000", "barrier=gone=60000", "list=a",
             "barrier=end=60000"))
    assert "set: /a//one/\nset: ALREADY_EXISTS: coordination by /job:worker/replica:0/task:0: 'a/one'" in leader, leader
    assert "try: NOT_FOUND" in leader and "get: DEADLINE_EXCEEDED" in leader and "'a/none'" in leader, leader
    assert "get: second\nget: now\n" in leader, leader
    assert "list: a\n  a/b/deep = \n  a/one = first\n  a/two = second\n" in leader, leader
    assert leader.count("list: a\n") == 2 and leader.endswith("list: a\nbarrier: end\n"), leader
    assert "try: NOT_FOUND" in second and "list: a\nbarrier: end" in third, (second, third)


def barriers_from_c():
    """Who does not come is named; others know each other by names of tasks; what has passed has passed. The first to come
    says how long all wait: so the two that come say the same."""
    at = addresses(3)
    some = "/job:worker/task:0,/job:worker/task:2"
    texts = ended(
        told(at, 0, "set=begun=1", "barrier=all=3000", "barrier=all=60000", f"barrier=some=60000={some}",
             "barrier=odd=100=/cpu:0", "barrier=strange=60000=/job:ps/task:0", "barrier=end=60000"),
        told(at, 1, "until=go", "barrier=all=60000", "barrier=end=60000"),
        told(at, 2, "until=begun", "barrier=all=3000", f"barrier=some=60000={some}", "set=go=1", "barrier=end=60000"))
    late = "barrier: DEADLINE_EXCEEDED: coordination by /job:worker/replica:0/task:0: 'all': "
    for text in texts:
        assert late in text and "/job:worker/replica:0/task:1\n" in text and text.endswith("barrier: end\n"), text
    assert texts[0].count(late) == 2 and "'/cpu:0' names no task" in texts[0] and "/job:ps" in texts[0], texts[0]
    assert all("barrier: some" in text for text in (texts[0], texts[2])), texts


def errors_from_c():
    """Of a task, and of the leader: all others are told."""
    for source in (1, 0):
        at = addresses(3)
        commands = [["told=60000", f"set=heard/{i}=1"] for i in range(3)]
        commands[source] = ["error=the disk is full"]
        commands[0] += [f"until=heard/{i}" for i in range(3) if i != source]
        texts = ended(*(told(at, i, *commands[i]) for i in range(3)))
        for i, text in enumerate(texts):
            want = "error: reported" if i == source else "told: INTERNAL: Error reported from /job:worker/"
            assert want in text and ("disk is full" in text or i == source), (source, i, texts)


def values_between_both(kinds):
    """set_config_key_value and get_config_key_value of TensorFlow's, both ways; an error that it reports."""
    at = addresses(2)
    c = ["set=from/c=of a program in C", "get=from/tf", "list=from", "told=60000"]
    workers = [tf2("exchange", at, i) if kind == "tf" else told(at, i, *c) for i, kind in enumerate(kinds)]
    try:
        text = ended(workers[kinds.index("shoal")])[0]
        other = workers[kinds.index("tf")].text()
    finally:
        for w in workers:
            w.kill()
    assert "get: of TensorFlow\nlist: from\n  from/c = of a program in C\n  from/tf = of TensorFlow\n" in text, text + other
    assert "told: INTERNAL" in text and "trouble" in text, text + other
    assert "heard of a program in C" in other, other


def trained(kinds, how, tensorflow, kib=0, steps=8):
    """A strategy in C and TensorFlow's in one group: every step's loss, and the weights, are the same bits in all; the losses
    those of one process."""
    at = addresses(len(kinds))
    programs = {"tf": [sys.executable, TRAIN_TF2, str(steps), how] + ([str(kib)] if kib else []),
                "shoal": [TRAINER, "multi", str(steps), "sum=1", "optimizer=sgd", f"tensorflow={tensorflow}", f"kib={kib}"]}
    workers = [Worker(programs[kind], at, i) for i, kind in enumerate(kinds)]
    said = [re.findall(r"^(?:\d+ -?0x.*|weights \w+)$", text, re.M) for text in ended(*workers)]
    # Python and C write the same number in two ways.
    said = [[line if line[0] == "w" else (line.split()[0], float.fromhex(line.split()[1])) for line in one] for one in said]
    assert len(said[0]) == steps + 1 and all(one == said[0] for one in said), said
    one = subprocess.run([TRAINER, "one", str(steps), "optimizer=sgd"], capture_output=True, text=True, timeout=PATIENCE)
    for (_, loss), line in zip(said[0][:-1], one.stdout.splitlines()):
        assert abs(loss - float.fromhex(line.split()[1])) < 1e-5 * loss, (loss, line)


def trained_in_packs():
    trained(["shoal", "tf"], "packs", 1)
    trained(["tf", "shoal"], "packs", 1)
    trained(["shoal", "tf", "shoal"], "packs", 1)


def trained_one_by_one():
    trained(["tf", "shoal"], "eager", 2)


def fitted(kinds, optimizer, slots, epochs=3, steps=4):
    """Keras' fit beside C programs, either of them the first worker: the loss of each epoch is the same bits in all; with
    SGD, whose arithmetic is the same, so are the weights. (Keras' Adam rounds in another order.)"""
    at = addresses(len(kinds))
    c = [TRAINER, "multi", str(epochs * steps), "sum=1", f"optimizer={optimizer}", "tensorflow=3", f"keras={steps}",
         f"slots={slots}"]
    fit = [sys.executable, os.path.join(ROOT, "tests", "cluster", "fit_tf2.py"), str(epochs), str(steps), optimizer]
    texts = ended(*[Worker(c if kind == "c" else fit, at, i) for i, kind in enumerate(kinds)])
    losses, hashes = [], {"c": set(), "fit": set()}
    for kind, text in zip(kinds, texts):
        line, every = (r"^\d+ (\S+)$", steps) if kind == "c" else (r"^epoch \d+ (\S+)$", 1)
        losses.append([float.fromhex(x) for x in re.findall(line, text, re.M)][every - 1::every])
        hashes[kind].add(re.search(r"^weights (\w+)$", text, re.M)[1])
    assert all(x == losses[0] for x in losses) and len(losses[0]) == epochs, (losses, texts)
    assert losses[0][-1] < losses[0][0], losses[0]
    assert all(len(h) == 1 for h in hashes.values()), texts
    assert optimizer != "sgd" or hashes["c"] == hashes["fit"], texts


def fitted_with_keras():
    fitted(["fit", "c"], "sgd", 1)
    fitted(["fit", "c", "c"], "adam", 2)
    fitted(["c", "fit"], "sgd", 1)
    fitted(["c", "fit", "fit"], "adam", 2)


BOTH = """
case "$*" in *--task_index=0*) echo $$ > {folder}/pid0; exec {c};; esac
echo $$ > {folder}/pid1
exec {python}
"""


LOST_BESIDE = r"all are to be run again: (?:.*\n){1,4}?.*Collective op \S+ \(group 1, instance \d+\): .*/task:1\b"


def restarted(victim):
    """A program of Shoal's, the first worker, which has checkpoints, and TensorFlow's in one job; one of them is killed. The
    other ends, in time and by itself, and both are started again: to the weights of a run that nothing happened to."""
    steps, flags = 60, ["sum=1", "optimizer=sgd", "tensorflow=1"]
    want = re.findall(r"^weights \w+$", ended(*[Worker(c, at, i) for at in [addresses(2)] for i, c in enumerate(
        ([TRAINER, "multi", str(steps), *flags], [sys.executable, TRAIN_TF2, str(steps), "packs"]))])[0], re.M)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as out:
        run = BOTH.format(folder=folder, c=" ".join([TRAINER, "multi", str(steps), *flags, f"dir={folder}/run", "save=5",
                                                     "slow=30"]),
                          python=f"{sys.executable} {TRAIN_TF2} {steps} packs 0 {folder}/run")
        launch = subprocess.Popen([SHOAL, "launch", "--ps=0", "--workers=2", "--restarts=3", "--", "sh", "-c", run, "both"],
                                  stdout=out, stderr=subprocess.STDOUT)

        def text():
            out.seek(0)
            return out.read()
        try:
            until(lambda: re.search(r"\b12 0x", text()), what=text)
            with open(f"{folder}/pid{victim}") as f:
                os.kill(int(f.read()), signal.SIGKILL)
            assert launch.wait(PATIENCE) == 0, text()
        finally:
            launch.terminate()
            launch.wait(PATIENCE)
        assert all(text().count(line) == 2 for line in want) and len(want) == 1, (want, text())
        assert victim == 0 or re.search(LOST_BESIDE, text()), text()


def the_example_meets():
    launch = subprocess.run([SHOAL, "launch", "--ps=0", "--workers=3", "--", MEET], capture_output=True, text=True,
                            timeout=PATIENCE)
    assert launch.returncode == 0 and launch.stdout.count("names/worker/2 is process") == 3, launch.stdout + launch.stderr


def one_task_alone():
    """It leads itself, and is all there is."""
    text = ended(told(addresses(1), 0, "try=a", "set=a=1", "get=a", "barrier=b"))[0]
    assert "try: NOT_FOUND" in text and text.endswith("set: a\nget: 1\nbarrier: b\n"), text


if __name__ == "__main__":
    sys.exit(report([("a program of Shoal's leads TensorFlow's worker", shoal_leads),
                     ("TensorFlow's worker leads a program of Shoal's", tensorflow_leads),
                     ("three workers, of both", three_of_both),
                     ("TensorFlow's workers share values under a server of Shoal's", values_by_key),
                     ("values from programs in C", values_from_c),
                     ("barriers from programs in C", barriers_from_c),
                     ("errors from programs in C", errors_from_c),
                     ("values and errors with TensorFlow's worker, led by C", lambda: values_between_both(["shoal", "tf"])),
                     ("values and errors with TensorFlow's worker, which leads", lambda: values_between_both(["tf", "shoal"])),
                     ("a strategy in C trains with TensorFlow's, gradients in packs", trained_in_packs),
                     ("a strategy in C trains with TensorFlow's, eagerly", trained_one_by_one),
                     ("strategies in C beside Keras' fit", fitted_with_keras),
                     ("TensorFlow's worker is killed, and all go on from the checkpoint", lambda: restarted(1)),
                     ("a program of Shoal's is killed beside TensorFlow's worker, and all go on", lambda: restarted(0)),
                     ("the example", the_example_meets),
                     ("one task alone", one_task_alone),
                     ("a worker that was killed comes again", a_worker_comes_again)]))
