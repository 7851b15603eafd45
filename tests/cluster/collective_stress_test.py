"""Random programs of collectives (collective_programs.py) on clusters of Shoal's servers, and of Shoal's and TensorFlow's: legal
ones end with the right values, in all steps and sessions; illegal ones, which are legal ones with one thing changed, end with
an error that says what, at all who wait, within the time that docs/errors.md promises, and the same servers and groups
work again. Nothing is left waiting.

Always the same few seeds in `make test`. SHOAL_STRESS_SECONDS=N runs others for so long; SHOAL_STRESS_SEED=K runs one again:
a cluster and all that happens to it. A seed that found something is a symptom: what was mended has a case of its own in
collective_test.py or a unit test."""
# needs: tensorflow
# not on the soft device: its programs are of CPUs, and device_collective_test.py has those of devices
import contextlib
import faulthandler
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf

from cluster import PATIENCE, SHOAL, SLACK, Cluster, Skip, report, until
from collective_programs import HINTS, TURNS, Built, Program

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
BOUND = 100         # seconds for a step that could go on for ever
PEER_TIMEOUT = 4    # of the servers
AT_ONCE = 10 + SLACK
SECONDS = float(os.environ.get("SHOAL_STRESS_SECONDS", 0))
SEED = os.environ.get("SHOAL_STRESS_SEED")
TOLD = os.environ.get("SHOAL_STRESS_TELLS")  # what happens, as it does


def tell(*what):
    if TOLD:
        print("#", *what, flush=True)


def some_parts(r, tasks):
    """Which clients there are: one, one for each task, or some of several."""
    tasks, way = list(tasks), r.random()
    if way < 0.4:
        return [tasks]
    if way < 0.8:
        return [[t] for t in tasks]
    parts = [[] for _ in range(2)]
    for t in tasks:
        r.choice(parts).append(t)
    return [p for p in parts if p]


class Run:
    """A program, built for some clients, each with a session at one of its own tasks."""

    def __init__(self, cluster, program, seed, bent=None):
        r = random.Random(seed)
        self.cluster, self.program = cluster, program
        tasks = sorted(set().union(*(g.tasks() for g in program.groups)) |
                       {t for b in program.blocks for x in b.instances for t in x.group.tasks()})
        self.parts = some_parts(r, tasks)
        alone = len(self.parts) == 1
        mixed = any(k != "shoal" for k in program.kinds)
        self.built = [Built(program, part, bent, random.Random(r.getrandbits(31))) for part in self.parts]
        self.targets = [r.choice(part) for part in self.parts]
        # By what graphs have in them alone, clients cannot tell steps of one plan from those of another.
        self.keys = [r.getrandbits(30) + 1 if mixed or not alone or r.random() < 0.5 else 0 for _ in program.plans]
        self.filtered = not mixed and r.random() < 0.4
        self.sessions = []

    def config(self, part):
        if not self.filtered:
            return tf.ConfigProto()
        return tf.ConfigProto(device_filters=[f"/job:worker/task:{t}" for t in part])

    def __enter__(self):
        for built, part, target in zip(self.built, self.parts, self.targets):
            self.sessions.append(tf.Session(self.cluster.target("worker", target), graph=built.graph, config=self.config(part)))
        return self

    def __exit__(self, *_):
        for s in self.sessions:
            with contextlib.suppress(tf.errors.OpError):  # its server was started anew
                s.close()

    def step(self, c, plan, turn):
        """A client's part; what it got, or None: it has none."""
        built = self.built[c]
        fetches = built.fetches(self.program.plans[plan])
        if not fetches:
            return None
        way = turn % 2 == 0
        options = tf.RunOptions(timeout_in_ms=BOUND * 1000)
        if self.keys[plan]:
            options.experimental.collective_graph_key = self.keys[plan]
        return fetches, built, way, self.sessions[c].run(fetches, {built.turn: turn, built.way: way}, options=options)

    def checked(self, c, plan, turn):
        got = self.step(c, plan, turn)
        if got:
            got[1].check(got[3], turn, got[2])

    def each(self, run, bound):
        """run(c) for each client, side by side: what each failed with, by client."""
        failed = {}

        def client(c):
            try:
                run(c)
            except Exception as e:
                failed[c] = e
                if not isinstance(e, tf.errors.OpError):
                    tell(traceback.format_exc())
        threads = [threading.Thread(target=client, args=(c,), daemon=True) for c in range(len(self.parts))]
        for t in threads:
            t.start()
        end = time.time() + bound
        for t in threads:
            t.join(max(end - time.time(), 0.01))
        if any(t.is_alive() for t in threads):
            faulthandler.dump_traceback(all_threads=True)
            raise AssertionError(f"clients {[c for c, t in enumerate(threads) if t.is_alive()]} of {self.parts} hang; "
                                 f"failed: {failed}\n{statuses(self.cluster)}")
        return failed

    def well(self, schedule):
        """All steps, with the right values."""
        def client(c):
            for plan, turn in schedule:
                self.checked(c, plan, turn)
        began = time.time()
        failed = self.each(client, BOUND * 2 + SLACK)
        assert not failed, f"after {time.time() - began:.1f} s, {self}: {said(failed)}\n{statuses(self.cluster)}"

    def __str__(self):
        p = self.program
        return f"clients {self.parts} at {self.targets}, {len(p.groups)} groups, {[(b.kind, len(b.instances)) for b in p.blocks]}"


def said(failed):
    """Without the lines of this program that made the nodes."""
    texts = {c: getattr(e, "message", str(e)) for c, e in failed.items()}
    return {c: f"{type(failed[c]).__name__}: {text[max(text.rfind(chr(10) + 'Node: '), 0):][:1500]}" for c, text in texts.items()}


def status(cluster, task):
    p = subprocess.run([SHOAL, "status", "--json", cluster.target("worker", task)], capture_output=True, text=True, timeout=PATIENCE)
    return json.loads(p.stdout)["tasks"][0]


def shoals(cluster):
    return [i for (_, i), t in cluster.tasks.items() if t.kind == "shoal" and t.process.poll() is None and not t.stopped()]


def statuses(cluster):
    return "\n".join(str(status(cluster, i)) for i in shoals(cluster))


def nothing_waits(cluster):
    """All servers are there, and nothing is left in them."""
    for (_, i), t in cluster.tasks.items():
        assert t.process.poll() is None, f"{t.kind} {i} has ended: {t.text()[-3000:]}"

    def left():
        return [x for x in (status(cluster, i) for i in shoals(cluster)) if x["waits"] or x.get("running") or x["state"] != "up"]
    until(lambda: not left(), what=lambda: f"left: {left()}")


# ---- legal programs ----

def schedule(r, program, steps):
    """Plans and turns; what may be run once only is, somewhere."""
    often = [p for p in range(len(program.plans)) if p not in program.once]
    planned = [(r.choice(often), r.randrange(100)) for _ in range(steps)]
    for p in program.once:
        planned.insert(r.randrange(len(planned) + 1), (p, r.randrange(100)))
    return planned


def legal(cluster, r, kinds, devices, keys):
    """One program, or several at once, each in sessions of its own."""
    n = r.choice((1, 1, 1, 2, 3))
    runs, threads, errors = [], [], []
    for _ in range(n):
        p = Program(r, kinds, devices, keys, most=None if n == 1 else 12)
        runs.append((Run(cluster, p, r.getrandbits(31)), schedule(r, p, r.randrange(1, 7))))

    def one(run, planned):
        try:
            with run:
                run.well(planned)
        except Exception as e:
            errors.append(e)
    for run, planned in runs:
        tell("legal", run, len(planned), "steps")
        threads.append(threading.Thread(target=one, args=(run, planned)))
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


# ---- illegal ones ----

def pick(r, program, good):
    """A collective of a plain block with several members, for which good holds; None: there is none."""
    at = [(0, i) for i, x in enumerate(program.blocks[0].instances) if x.group.size > 1 and good(x)]
    return r.choice(at) if at else None


def differ(what, good, texts):
    """One member says something else of it: what(r, x) is what."""
    def bend(r, program):
        at = pick(r, program, good)
        if not at:
            return None
        x = program.blocks[0].instances[at[1]]
        rank = r.randrange(x.group.size)
        return {(*at, rank): what(r, x, rank)}, x.group.tasks(), texts, AT_ONCE
    return bend


def other(r, all_of_them, but):
    return r.choice([x for x in all_of_them if x != but])


def other_order(r, program):
    """Two of a group, which two members come to in turn, each in another order."""
    block = program.blocks[0]
    pairs = [(i, j) for i, x in enumerate(block.instances) for j, y in enumerate(block.instances)
             if i < j and x.group is y.group and x.group.size > 1 and x.gen < 3 and not x.group.rows]
    if not pairs:
        return None
    block.edges = {}
    i, j = r.choice(pairs)
    a, b = r.sample(range(block.instances[i].group.size), 2)
    return ({(0, j, a): {"after": [(i, a)]}, (0, i, b): {"after": [(j, b)]}}, block.instances[i].group.tasks(), ["called in other orders"], AT_ONCE)


def missing(r, program):
    """A member that nobody runs: only the time ends that."""
    at = pick(r, program, lambda x: True)
    if not at:
        return None
    x = program.blocks[0].instances[at[1]]
    program.blocks[0].edges = {}
    gone = r.randrange(x.group.size)
    bent = {(*at, k): {"timeout": r.choice((1, 2, 3))} for k in range(x.group.size)}
    bent[(*at, gone)] = {"missing": True}
    rest = {t for k, (t, _) in enumerate(x.group.places) if k != gone}
    return bent, rest, ["timed out waiting for other workers"], AT_ONCE


def fails_alone(r, program):
    at = pick(r, program, lambda x: True)
    if not at:
        return None
    x = program.blocks[0].instances[at[1]]
    return {(*at, r.randrange(x.group.size)): {"fails": 5000}}, x.group.tasks(), ["is not in [0, "], AT_ONCE


plain_keys = lambda x: not x.group.rows
BENDS = {
    "another type": differ(lambda r, x, k: {"dtype": np.int64 if x.dtype is not np.int64 else np.float64},
                           lambda x: x.hint != "shoal:bf16", ["expected type"]),
    "another shape": differ(lambda r, x, k: {"shape": [*x.shape[:-1], x.shape[-1] + r.choice((1, 30000))]},
                            lambda x: x.shape and x.op in ("reduce", "broadcast", "gather"), ["Shape mismatch", "shape"]),
    "another op": differ(lambda r, x, k: {"op": other(r, ("reduce", "gather"), x.op), "hint": "auto"},
                         lambda x: x.op in ("reduce", "gather") and x.shape and x.dtype is np.float32 and x.hint != "shoal:bf16", ["expected type"]),
    "another sum": differ(lambda r, x, k: {"merge": other(r, ("Add", "Max", "Min", "Mul"), x.merge)},
                          lambda x: x.op in ("reduce", "scatter"), ["expected "]),
    "another end": differ(lambda r, x, k: {"final": other(r, ("Id", "Div"), x.final)}, lambda x: x.op in ("reduce", "scatter"), ["expected "]),
    "another hint": differ(lambda r, x, k: {"hint": "shoal:" + other(r, HINTS["reduce"], x.hint.partition(":")[2])},
                           lambda x: x.op == "reduce", ["expected communication_hint"]),
    "another size": differ(lambda r, x, k: {"size": x.group.size + 1}, plain_keys, ["is joining a group", "it has to join it (again)", "size"]),
    "twice": differ(lambda r, x, k: {"twice": True}, lambda x: True, ["both take part in instance"]),
    "two sources": differ(lambda r, x, k: {"sends": k != x.source}, lambda x: x.op == "broadcast", ["source"]),
    "other orders": other_order,
    "missing": missing,
    "fails alone": fails_alone,
}


def illegal(cluster, r, kinds, devices, keys):
    """Told to all who wait; then the program as it should be, in the same groups."""
    for _ in range(20):
        name = r.choice(sorted(BENDS))
        program = Program(r, kinds, devices, keys, most=r.choice((2, 6, 20)), plain=True)
        bend = BENDS[name](r, program)
        if bend:
            break
    bent, tasks, texts, bound = bend
    seed = r.getrandbits(31)
    run = Run(cluster, program, seed, bent)
    if len(run.parts) == 1:
        bound += 5
    tell("illegal", name, bent, run)
    began = time.time()
    with run:
        failed = run.each(lambda c: run.step(c, 0, 1), BOUND + SLACK)
        took = time.time() - began
        for c, part in enumerate(run.parts):
            what = f"{name} {bent}, {program.blocks[0].instances[next(iter(bent))[1]]}, {run}: {said(failed)} after {took:.1f} s"
            if c not in failed:
                assert not tasks & set(part), f"no error at {part}: {what}"
                continue
            e = failed[c]
            assert isinstance(e, tf.errors.OpError) and any(t in e.message for t in texts), what
        assert took < bound, what
    with Run(cluster, program, seed) as again:
        again.well([(0, 1), (0, 2)])


def fault(cluster, r, kinds, devices, keys):
    """A task is killed, or stopped, while steps are run: who has it in a group is told so. Then it is there again."""
    program = Program(r, kinds, devices, keys, most=10, plain=True)
    run = Run(cluster, program, r.getrandbits(31))
    victims = sorted(set().union(*(g.tasks() for g in program.groups if len(g.tasks()) > 1)))
    used = [x.group for x in program.blocks[0].instances]
    victims = [v for v in victims if any(v in g.tasks() and len(g.tasks()) > 1 for g in used)]
    if not victims:
        return
    victim, sig = r.choice(victims), r.choice((signal.SIGKILL, signal.SIGSTOP))
    task = cluster.tasks["worker", victim]
    others = set().union(*(g.tasks() for g in used if victim in g.tasks()))
    tell("fault", victim, sig, run)
    over, ended = threading.Event(), {}

    def client(c):
        try:
            for turn in itertools.count():
                if over.is_set():
                    return
                if run.step(c, 0, turn) is None:
                    return
        finally:
            ended[c] = time.time()

    moment = r.choice((0, 0.02, 0.3, 1))
    with contextlib.ExitStack() as opened:
        opened.enter_context(run)
        for s, built in zip(run.sessions, run.built):
            s.run(built.ready)  # a session that is begun later waits for the task
        failed = {}
        loops = threading.Thread(target=lambda: failed.update(run.each(client, BOUND * 2 + SLACK)), daemon=True)
        loops.start()
        time.sleep(moment)
        task.kill(sig)
        began = time.time()
        waiting = [c for c, part in enumerate(run.parts) if others & set(part) and victim not in part]
        try:
            until(lambda: all(c in ended for c in waiting), seconds=BOUND, what=lambda: f"not told: {waiting}, {ended}, {run}")
            took = time.time() - began
            if sig == signal.SIGSTOP:
                time.sleep(r.choice((0, 1)))
        finally:
            if sig == signal.SIGSTOP:
                task.kill(signal.SIGCONT)
            else:
                task.process.wait()
                task.start().wait()
            over.set()
        loops.join(BOUND + SLACK)
        assert not loops.is_alive(), f"{run} goes on for ever"
        assert took < 2 * PEER_TIMEOUT + 10 + SLACK, (took, said(failed))
        for c in waiting:
            assert c in failed and isinstance(failed[c], tf.errors.OpError), (victim, str(run), said(failed))
            assert f"task:{victim}" in failed[c].message, (victim, sig, str(run), said(failed))
    until(lambda: reached(cluster, victim), what=lambda: f"task {victim} does not come again")
    if sig == signal.SIGKILL:  # who meets it in the same groups may be told once that it was started anew
        with Run(cluster, program, r.getrandbits(31)) as first:
            told = first.each(lambda c: first.step(c, 0, 0), BOUND + SLACK)
            assert all(isinstance(e, (tf.errors.AbortedError, tf.errors.UnavailableError)) for e in told.values()), said(told)
    with Run(cluster, program, r.getrandbits(31)) as again:
        again.well([(0, 1), (0, 2)])


def reached(cluster, task):
    try:
        with tf.Graph().as_default(), tf.Session(cluster.target("worker", task)) as s:
            return s.run(tf.constant(True), options=tf.RunOptions(timeout_in_ms=20000))
    except tf.errors.OpError:
        return False


# ---- clusters ----

def scenario(seed, rounds=None, mixed=None, end=None):
    r = random.Random(seed)
    tasks, devices = r.choice((2, 2, 3, 3, 4)), r.choice((1, 1, 2, 3))
    kinds = ["shoal"] * tasks
    if r.random() < 0.25 if mixed is None else mixed:
        kinds = [r.choice(("tf", "shoal")) for _ in range(tasks)]
        kinds[r.randrange(tasks)] = "tf"
        if "shoal" not in kinds:
            kinds[0] = "shoal"
    ours = "tf" not in kinds
    flags = [f"--cpu_devices={devices}", f"--peer_timeout={PEER_TIMEOUT}"]
    if r.random() < 0.2:
        flags.append("--fast_path=false")
    if ours and r.random() < 0.2:
        flags.append(f"--collective_group_leader=/job:worker/task:{r.randrange(tasks)}")
    keys = itertools.count(r.randrange(1, 1 << 20))
    rounds = rounds or r.randrange(4, 12)
    tell("seed", seed, kinds, flags)
    try:
        with Cluster(flags=flags, worker=kinds) as c:
            for _ in range(rounds):
                if end and time.time() > end:
                    break
                what = r.random()
                one = random.Random(r.getrandbits(40))
                (legal if not ours or what < 0.45 else illegal if what < 0.9 else fault)(c, one, kinds, devices, keys)
            nothing_waits(c)
    except Exception:
        print(f"# SHOAL_STRESS_SEED={seed}, {kinds} {' '.join(flags)}", flush=True)
        raise


def one_seed():
    seed, _, mixed = SEED.partition(":")
    scenario(int(seed), mixed={"": None, "mixed": True, "ours": False}[mixed])


def for_a_time():
    first, end = random.SystemRandom().randrange(1 << 30), time.time() + SECONDS
    print(f"# seeds from {first} on", flush=True)
    for seed in itertools.count(first):
        if time.time() > end:
            print(f"# {seed - first} clusters", flush=True)
            return
        scenario(seed, end=end)


def a_few(seeds, **how):
    def run():
        for seed in seeds:
            print(f"# seed {seed}", flush=True)
            scenario(seed, **how)
    return run


if __name__ == "__main__":
    if SEED:
        tests = [(f"seed {SEED}", one_seed)]
    elif SECONDS:
        tests = [(f"{SECONDS:.0f} seconds", for_a_time)]
    else:
        tests = [("a few programs", a_few((1, 2, 3), rounds=4, mixed=False)), ("a few with tensorflow", a_few((4,), rounds=4, mixed=True))]
    sys.exit(report(tests))
