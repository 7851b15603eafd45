"""Clusters of Shoal's servers beside clusters of TensorFlow's: steps, transfers, memory, starting.

  python bench/cluster.py [--build build] [--before BUILD] [--only REGEX] [--sides REGEX] [--rounds 7] [--short]
                          [--markdown]

Three clusters of a ps and two workers run at once: TensorFlow's own servers, Shoal's, and Shoal's with the fast path
off (what a TensorFlow peer gets: gRPC). The client is TensorFlow's, the same process for all; rows that say so use
Shoal's client. The clusters take turns round by round, so that a busy moment of the machine falls on all of them.
Printed: the median of the rounds, their spread (half the distance between the quartiles, in percent), how many times
better Shoal is than TensorFlow, and what is aimed at. --before BUILD has the servers of another build of Shoal, of an
earlier commit say, in TensorFlow's place (`make bench-before`).
"""
import argparse
import os
import re
import statistics
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "tests", folder) for folder in ("cluster", "interop")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from run import print_row, spread

PS, W0, W1 = "/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"
SIDES = {"tensorflow": ("tf", ()), "shoal": ("shoal", ()), "shoal, gRPC": ("shoal", ("--fast_path=false",))}
BEFORE = None  # the folder of a build that is in TensorFlow's place
CASES = []  # (name, function, arguments)


def case(name, *args):
    """Decorators apply from the last to the first: of several on a function, the last is the first to run."""
    def add(fn):
        CASES.append((name, fn, args))
        return fn
    return add


class Side:
    """One cluster, and the sessions opened on it."""

    def __init__(self, name):
        from cluster import Cluster
        kind, flags = SIDES[name]
        self.name = name
        self.cluster = Cluster(flags, ps=[kind], worker=[kind, kind])
        self.sessions = []
        if name == "before":
            for task in self.cluster.tasks.values():
                task.program = os.path.join(BEFORE, "shoal")
        start = time.perf_counter()
        self.cluster.tasks["ps", 0].start().wait()
        self.ready = time.perf_counter() - start
        self.first_resident = self.resident()
        for task in self.cluster.tasks.values():
            if task.process is None:
                task.start().wait()

    def pid(self, job="ps", index=0):
        return self.cluster.tasks[job, index].process.pid

    def status(self, field, job="ps", index=0):
        with open(f"/proc/{self.pid(job, index)}/status") as f:
            return int(re.search(rf"^{field}:\s+(\d+)", f.read(), re.M).group(1))

    def resident(self, job="ps", index=0):
        return self.status("VmRSS", job, index) / 1024

    def processor_time(self, job="worker", index=0):
        """Nanoseconds, of all threads, those that have ended too: clock_getcpuclockid(3)."""
        return time.clock_gettime_ns(~self.pid(job, index) << 3 | 2)

    def session(self, graph, job="worker", index=0):
        import tensorflow.compat.v1 as tf
        s = tf.Session(self.cluster.target(job, index), graph=graph)
        self.sessions.append(s)
        return s

    def close_sessions(self):
        """Also drops the variables, on every task."""
        import tensorflow.compat.v1 as tf
        for s in self.sessions:
            s.close()
        self.sessions.clear()
        tf.Session.reset(self.cluster.target("worker", 0))

    def end(self):
        for task in self.cluster.tasks.values():
            task.end()


class Bench:
    """The turns, and the table."""

    def __init__(self, sides, rounds, seconds, markdown):
        self.sides, self.rounds, self.seconds = sides, rounds, seconds
        self.failed = []
        print_row.markdown = markdown
        self.peer = list(SIDES)[0]
        self.row(["case", *SIDES, *(f"{ours} vs {'TF' if self.peer == 'tensorflow' else self.peer}"
                                    for ours in ("shoal", "gRPC")), "aim"])
        if markdown:
            self.row(["---"] * (len(SIDES) + 4))

    @staticmethod
    def row(cells):
        print_row(cells, (62, 20, 20, 20, 12, 12, 12))

    def turns(self, steps, once=False):
        """steps: a function for each side. The seconds a call takes, by rounds; each round is a mean over several
        calls, unless once."""
        count, times = {}, {name: [] for name in steps}
        for name, step in steps.items():
            for _ in range(1 if once else 3):
                step()
            start = time.perf_counter()
            if not once:
                step()
            each = time.perf_counter() - start
            count[name] = 1 if once else max(1, min(2000, int(self.seconds / max(each, 1e-6))))
        for _ in range(self.rounds):
            for name, step in steps.items():
                start = time.perf_counter()
                for _ in range(count[name]):
                    step()
                times[name].append((time.perf_counter() - start) / count[name])
        return times

    def show(self, title, values, form, aim="", higher_is_better=False):
        """values: lists of numbers by side."""
        medians = {name: statistics.median(v) for name, v in values.items()}
        cells = [title]
        for name in SIDES:
            cells.append(f"{form(medians[name])} ±{spread(values[name]):.0f}%" if name in values else "-")
        for name in list(SIDES)[1:]:
            if name in values and self.peer in values and medians[name] and medians[self.peer]:
                ratio = medians[name] / medians[self.peer]
                cells.append(f"{ratio if higher_is_better else 1 / ratio:.2f}x")
            else:
                cells.append("-")
        self.row([*cells, aim])


def microseconds(v):
    return f"{v * 1e6:,.0f} us"


def milliseconds(v):
    return f"{v * 1e3:,.2f} ms"


def megabytes(v):
    return f"{v:,.0f} MB"


def graph_of(build):
    """A graph, and what build() returned while it was the default."""
    import tensorflow.compat.v1 as tf
    g = tf.Graph()
    with g.as_default():
        tf.get_variable_scope().set_use_resource(True)
        made = build()
        init = tf.global_variables_initializer() if tf.global_variables() else tf.no_op()
    return g, made, init


def again(step):
    """step(), a second time where TensorFlow's server takes it for another one: its master draws the ids of requests
    from 32 bits, so that of 100,000 steps one or two have the id of another."""
    def run(*args):
        try:
            return step(*args)
        except Exception as e:  # pylint: disable=broad-except
            if "received twice" not in str(e):
                raise
            return step(*args)
    return run


def steps_of(bench, build):
    """For each side a function that runs the fetches (and feeds) that build() returns."""
    steps = {}
    for side in bench.sides:
        g, (fetches, feeds), init = graph_of(build)
        s = side.session(g)
        s.run(init)
        steps[side.name] = lambda run=again(s.run), fetches=fetches, feeds=feeds: run(fetches, feeds)
    return steps


# ---- steps ----

def one_task():
    import tensorflow.compat.v1 as tf
    with tf.device(W0):
        x = tf.placeholder(tf.float32, [])
        return x + 1.0, {x: 2.0}


def second_task():
    import tensorflow.compat.v1 as tf
    with tf.device(PS):
        v = tf.get_variable("v", initializer=[1.0, 2.0])
    with tf.device(W0):
        return v + 1.0, None


def three_tasks():
    import tensorflow.compat.v1 as tf
    with tf.device(PS):
        v = tf.get_variable("v", initializer=[1.0, 2.0])
        read = tf.identity(v)
    parts = []
    for device in (W0, W1):
        with tf.device(device):
            parts.append(read * 0.5)
    with tf.device(PS):
        return tf.assign(v, parts[0] + parts[1]), None


@case("step over ps and two workers", three_tasks, "2.5x")
@case("step that touches a second task", second_task, "2.5x")
@case("step on one task", one_task, "2.2x")
def step(bench, name, build, aim):
    bench.show(name, bench.turns(steps_of(bench, build)), microseconds, aim)


@case("step on one task, slowest of 100 by median", "3 or less")
def tail(bench, name, aim):
    ratios = {}
    steps = steps_of(bench, one_task)
    for side, one in steps.items():
        for _ in range(20):
            one()
        ratios[side] = []
    for _ in range(bench.rounds):
        for side, one in steps.items():
            took = []
            for _ in range(200):
                start = time.perf_counter()
                one()
                took.append(time.perf_counter() - start)
            ratios[side].append(statistics.quantiles(took, n=100)[98] / statistics.median(took))
    bench.show(name, ratios, lambda v: f"{v:.1f}", aim)


CHAIN = 500, 2500  # lengths; what an op costs is the difference


@case("chain of adds: vectors of 10", [10], False)
@case("chain of adds: two scalars", [], True)
@case("chain of adds: a scalar", [], False)
def chain(bench, name, shape, two):
    """What each op of a long chain costs the server that runs it."""
    import numpy as np
    import tensorflow.compat.v1 as tf

    def build(n):
        def made():
            with tf.device(W0):
                x = tf.placeholder(tf.float32, shape)
                z = tf.placeholder(tf.float32, shape) if two else x
                y = x
                for _ in range(n):
                    y = y + z
                return y, {t: np.ones(shape, np.float32) for t in (x, z)}
        return made
    steps = [steps_of(bench, build(n)) for n in CHAIN]
    sides = {side.name: side for side in bench.sides}
    computed, passed = {}, {}
    for turn in range(bench.rounds + 1):  # the first compiles
        for side in sides:
            used, best = [], []
            for of in steps:
                before, took = sides[side].processor_time(), []
                for _ in range(200):
                    start = time.perf_counter()
                    of[side]()
                    took.append(time.perf_counter() - start)
                used.append((sides[side].processor_time() - before) / len(took))
                best.append(1e9 * statistics.mean(sorted(took)[:10]))
            if turn:
                ops = CHAIN[1] - CHAIN[0]
                computed.setdefault(side, []).append((used[1] - used[0]) / ops)
                passed.setdefault(side, []).append((best[1] - best[0]) / ops)
    show = lambda v: f"{v:,.0f} ns"
    bench.show(f"{name}; an op, the server's processor time", computed, show, "60 ns")
    bench.show(f"{name}; an op, by the clock, best steps", passed, show, "60 ns")


def threads(bench, name, steps, n, aim):
    rates = {}
    for _ in range(bench.rounds):
        for side, one in steps.items():
            done, stop = [0] * n, threading.Event()

            def work(i, one=one, done=done, stop=stop):
                while not stop.is_set():
                    one()
                    done[i] += 1
            started = [threading.Thread(target=work, args=(i,)) for i in range(n)]
            start = time.perf_counter()
            for t in started:
                t.start()
            time.sleep(max(0.3, bench.seconds))
            stop.set()
            for t in started:
                t.join()
            rates.setdefault(side, []).append(sum(done) / (time.perf_counter() - start))
    bench.show(name, rates, lambda v: f"{v:,.0f}/s", aim, True)


@case("steps a second on one task, 8 client threads", 8, "2.5x")
def tf_threads(bench, name, n, aim):
    threads(bench, name, steps_of(bench, one_task), n, aim)


def c_client(bench, build):
    """The same by Shoal's own client."""
    import numpy as np
    import shoal
    steps = {}
    for side in bench.sides:
        g, (fetch, feeds), init = graph_of(build)
        s = shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString()), side.cluster.target("worker", 0))
        side.sessions.append(s)
        s.run(targets=[init.name])
        feeds = feeds or {}
        run = s.callable([fetch.name], [t.name for t in feeds])
        values = [shoal.to_handle(np.float32(v)) for v in feeds.values()]
        steps[side.name] = lambda run=again(run), values=values: run(*values)
    return steps


@case("step that touches a second task, Shoal's client", second_task)
@case("step on one task, Shoal's client", one_task)
def step_in_c(bench, name, build):
    bench.show(name, bench.turns(c_client(bench, build)), microseconds)


@case("steps a second on one task, 8 threads of Shoal's client", 8, "")
def c_threads(bench, name, n, aim):
    threads(bench, name, c_client(bench, one_task), n, aim)


# ---- transfers ----

SIZES = {"4 KB": 4 << 10, "1 MB": 1 << 20, "64 MB": 64 << 20, "400 MB": 400 << 20}


@case("transfers")
def transfers(bench, name):
    import numpy as np
    import tensorflow.compat.v1 as tf

    def build():
        pulls, pushes = {}, {}
        for size, n in SIZES.items():
            key = size.replace(" ", "")
            with tf.device(PS):
                v = tf.get_variable(f"ps{key}", [n // 4], initializer=tf.zeros_initializer())
            with tf.device(W0):
                w = tf.get_variable(f"worker{key}", [n // 4], initializer=tf.zeros_initializer())
                pulls[size] = tf.identity(v).op
            with tf.device(PS):
                pushes[size] = v.assign(w).op
        return pulls, pushes
    made = {}
    for side in bench.sides:
        g, ops, init = graph_of(build)
        s = side.session(g)
        s.run(init)
        made[side.name] = (s, *ops)
    for size, n in SIZES.items():
        speed = lambda v: f"{v / 1e9:.2f} GB/s"
        a, b = np.ones(n, np.uint8), np.ones(n, np.uint8)
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < 0.2:
            np.copyto(b, a)
            count += 1
        memcpy = n * count / (time.perf_counter() - start)
        for which, way in ((1, "ps -> worker"), (2, "worker -> ps")):
            times = bench.turns({side: lambda m=m: m[0].run(m[which][size]) for side, m in made.items()})
            if n < 1 << 20:  # a step's own cost is all there is to see
                bench.show(f"{size}, {way}", times, microseconds, "3x / 1.5x")
                continue
            bench.show(f"{size}, {way} (memcpy {speed(memcpy)})", {k: [n / t for t in v] for k, v in times.items()},
                       speed, "3x / 1.5x", True)
    held = sum(SIZES.values()) / (1 << 20)
    time.sleep(5)
    for job, task in (("ps", "ps"), ("worker", "worker 0")):
        bench.show(f"resident 5 s after these, {task} (variables: {held:.0f} MB)",
                   {s.name: [s.resident(job)] for s in bench.sides}, megabytes, "variables")


@case("200 variables of 4 KB pulled and pushed in a step", 200, "5x")
def small_variables(bench, name, n, aim):
    import tensorflow.compat.v1 as tf

    def build():
        pushes = []
        for i in range(n):
            with tf.device(PS):
                v = tf.get_variable(f"v{i}", [1024], initializer=tf.zeros_initializer())
            with tf.device(W0):
                new = v + 1.0
            with tf.device(PS):
                pushes.append(v.assign(new).op)
        return tf.group(*pushes), None
    bench.show(name, bench.turns(steps_of(bench, build)), milliseconds, aim)


@case("gather and scatter of 1,000 rows of a 1M x 64 table", "3x")
def rows(bench, name, aim):
    import numpy as np
    import tensorflow.compat.v1 as tf

    def build():
        with tf.device(PS):
            table = tf.get_variable("table", [1 << 20, 64], initializer=tf.zeros_initializer())
        with tf.device(W0):
            ids = tf.constant(np.random.RandomState(1).permutation(1 << 20)[:1000].astype(np.int32))
        with tf.device(PS):
            found = tf.gather(table, ids)
        with tf.device(W0):
            change = found * 0.5 + 1.0
        with tf.device(PS):
            return tf.group(tf.raw_ops.ResourceScatterAdd(resource=table.handle, indices=ids, updates=change)), None
    bench.show(name, bench.turns(steps_of(bench, build)), milliseconds, aim)


# ---- registering, holding ----

def field(number, value):
    """One field of a protocol buffer: bytes, or an integer."""
    def varint(v):
        out = b""
        while v > 0x7f:
            out += bytes([v & 0x7f | 0x80])
            v >>= 7
        return out + bytes([v])
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def method(side, name, job="worker"):
    """A raw call of WorkerService."""
    import grpc
    channel = grpc.insecure_channel(side.cluster.target(job)[7:], [("grpc.max_send_message_length", -1)])
    return channel, channel.unary_unary("/tensorflow.WorkerService/" + name)


@case("registering a graph of 20,000 nodes", 20000, "3.3x")
def register(bench, name, n, aim):
    import tensorflow.compat.v1 as tf
    g = tf.Graph()
    with g.as_default(), tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
        x = [tf.constant(float(i)) for i in range(10)]
        for i in range(n - 10):
            x.append(tf.add(x[-1], x[-1 - i % 9]))
    request = field(2, g.as_graph_def().SerializeToString())
    steps = {}
    for side in bench.sides:
        _, call = method(side, "RegisterGraph")
        steps[side.name] = lambda call=call: call(request, timeout=120)
    bench.show(name, bench.turns(steps, once=True), milliseconds, aim)


@case("step on one task, with 100 other sessions open, by one alone", 100, "1.0")
def many_sessions(bench, name, n, aim):
    alone = bench.turns(steps_of(bench, one_task))
    import tensorflow.compat.v1 as tf
    for side in bench.sides:
        for i in range(n):
            g = tf.Graph()
            with g.as_default(), tf.device(W0):
                y = tf.constant(float(i)) + 1.0
            side.session(g).run(y)
    crowd = bench.turns(steps_of(bench, one_task))
    bench.show(name, {k: [b / a for a, b in zip(alone[k], crowd[k])] for k in alone}, lambda v: f"{v:.2f}", aim)


@case("threads of a server more, with 1,000 RecvTensor calls pending", 1000, "none each")
def pending(bench, name, n, aim):
    found = {}
    for side in bench.sides:
        _, status = method(side, "GetStatus")
        device = re.search(rb"(/job:worker/replica:0/task:0/device:CPU:0).*?1(.{8})", status(b"", timeout=10), re.S)
        incarnation = int.from_bytes(device.group(2), "little")
        _, receive = method(side, "RecvTensor")
        before = side.status("Threads", "worker")
        source = device.group(1).decode()
        calls = [receive.future(field(1, 77) + field(2, f"{source};{incarnation:016x};{source};edge_{i};0:0".encode()) +
                                field(7, i + 1), timeout=60) for i in range(n)]
        time.sleep(1.0)
        alive = sum(not c.done() for c in calls)
        found[side.name] = [side.status("Threads", "worker") - before]
        if alive < n:
            bench.failed.append(f"{side.name}: only {alive} of {n} calls wait")
        for c in calls:
            c.cancel()
    bench.show(name, found, lambda v: f"{v:.0f}", aim)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--before", help="another build of Shoal, in TensorFlow's place")
    parser.add_argument("--only", default="", help="a regular expression on the names of the cases")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--short", action="store_true", help="a few minutes")
    parser.add_argument("--sides", default="", help="a regular expression on the names of the sides")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    os.environ["SHOAL_BUILD"], os.environ["SHOAL_LIBRARY"] = build, os.path.join(build, "libshoal.so")
    if args.before:
        global BEFORE, SIDES
        BEFORE = os.path.abspath(args.before)
        SIDES = {"before": ("shoal", ()), **{name: SIDES[name] for name in list(SIDES)[1:]}}
    import tensorflow.compat.v1 as tf
    tf.disable_eager_execution()
    tf.logging.set_verbosity(tf.logging.ERROR)
    sides = []
    try:
        sides = [Side(name) for name in SIDES if re.search(args.sides, name)]
        bench = Bench(sides, 3 if args.short else args.rounds, 0.1 if args.short else 0.4, args.markdown)
        bench.show("ps ready after", {s.name: [s.ready] for s in sides}, milliseconds, "50 ms")
        bench.show("ps resident then", {s.name: [s.first_resident] for s in sides}, megabytes, "25 MB")
        for name, fn, more in CASES:
            if not re.search(args.only, name):
                continue
            try:
                fn(bench, name, *more)
            except Exception as e:  # pylint: disable=broad-except
                bench.failed.append(f"{name}: {e}")
            for side in sides:
                side.close_sessions()
    finally:
        for side in sides:
            side.end()
    for line in bench.failed:
        print("failed: " + line, file=sys.stderr)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
