"""One harness for all ops, in three modes and a half, with real TensorFlow as the judge.

  compare  the same GraphDef runs in TensorFlow and in Shoal, in this process; dtypes, shapes, values and error codes
           must agree, and what Shoal inferred of the shapes must not contradict the values
  grad     shoal_gradients is compared with tf.gradients on the same graph and, for float64, with finite differences
  time     both run each case many times, in turn; prints medians and their ratio
  oracle   TensorFlow alone, for writing cases: does it do what the case says?

The cases are tables in ops/FAMILY.py; cases.py says how they are written. Each file runs in a child forked after
TensorFlow's import, which costs seconds; a child that crashes or hangs costs one case, and the next child goes on after
it. Output is TAP, as of all tests of this tree.

  python harness.py [--mode=MODE ...] [--only=REGEX] [-j N] [-v] [ops/FILE.py ...]
"""
import argparse
import glob
import importlib.util
import json
import os
import re
import select
import signal
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import shoal
from cases import Building, np, outputs_of, registered, tf

CASE_SECONDS = 120
TOLERANCE = {"float32": 2e-5, "float64": 1e-11, "float16": 4e-3, "bfloat16": 2e-2, "complex64": 2e-5, "complex128": 1e-11}
CODES = {name: getattr(tf.errors, name) for name in dir(tf.errors) if name.isupper() and isinstance(getattr(tf.errors, name), int)}


class Failure(Exception):
    pass


class Skip(Exception):
    pass


# ---- both sides ----

def tf_config():
    c = tf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
    c.graph_options.rewrite_options.disable_meta_optimizer = True
    c.graph_options.optimizer_options.opt_level = -1
    return c


def build(case):
    """(graph, runs, feeds): runs is a list of (fetches, feeds)."""
    g = tf.Graph()
    with g.as_default(), Building(case) as b:
        tf.set_random_seed(87654321)
        try:
            made = case.build()
        except Exception as e:
            raise Failure(f"the graph cannot be built: {type(e).__name__}: {e}")
    if not isinstance(made, list) or not made:
        made = outputs_of(made)
    several = any(isinstance(m, (list, tuple)) and not hasattr(m, "_fields") for m in made)
    runs = []
    for m in made if several else [made]:
        fetches, feeds = m if isinstance(m, tuple) and len(m) == 2 and isinstance(m[1], dict) else (m, {})
        runs.append((outputs_of(fetches), {**b.feeds, **feeds}))
    return g, runs, b.feeds


def fetchable(t):
    return isinstance(t, tf.Tensor) and t.dtype.base_dtype not in (tf.resource, tf.variant)


def run_tf(g, runs, extra=()):
    """For each run the arrays, or (code, message) in the last place."""
    results = []
    with tf.Session(graph=g, config=tf_config()) as s:
        for fetches, feeds in runs:
            tensors = [t for t in fetches if fetchable(t)]
            ops = [t if isinstance(t, tf.Operation) else t.op for t in fetches if not fetchable(t)]
            try:
                # Copies: there are ops that write where they read, and TensorFlow may use an array's memory as it is.
                own = {t: v.copy() if isinstance(v, np.ndarray) else v for t, v in feeds.items()}
                results.append(s.run((tensors, ops), own)[0])
            except tf.errors.OpError as e:
                # Without the Python places, which TensorFlow puts first.
                results.append((e.error_code, re.sub(r"(?s)^Graph execution error:.*?\nNode: [^\n]*\n", "", e.message)))
                break
    return results


def feed_names(feeds):
    return {t.name: (np.asarray(v), t.dtype.base_dtype.as_datatype_enum) for t, v in feeds.items()}


def session(g):
    """In this process; or, with $SHOAL_TARGET, on a server, where it has its variables to itself."""
    target = os.environ.get("SHOAL_TARGET", "")
    return shoal.Session(g, target=target, isolate_session_state=bool(target), inter_op_threads=1, intra_op_threads=2)


def run_shoal(graph_def, runs):
    """The same of Shoal; a graph that is refused counts as the first run's error."""
    results = []
    try:
        g = shoal.Graph(graph_def)
        with session(g) as s:
            for fetches, feeds in runs:
                tensors = [t.name for t in fetches if fetchable(t)]
                ops = [(t if isinstance(t, tf.Operation) else t.op).name for t in fetches if not fetchable(t)]
                results.append(s.run(tensors, feed_names(feeds), ops))
                for name, value in zip(tensors, results[-1]):
                    # Where TensorFlow is wrong too (a ref variable that changed its shape), nothing can be asked.
                    if shape_fits(fetches, name, value):
                        check_shape(g.shape(name), value, name)
    except shoal.Error as e:
        results.append((e.code, e.message))
    return results


def shape_fits(fetches, name, value):
    return all(t.shape.is_compatible_with(value.shape) for t in fetches if fetchable(t) and t.name == name)


def check_shape(inferred, value, name):
    if inferred is None:
        return
    if len(inferred) != value.ndim or any(d not in (None, v) for d, v in zip(inferred, value.shape)):
        raise Failure(f"{name}: inferred shape {inferred}, but the value has {value.shape}")


# ---- comparing ----

def plain(a):
    a = np.asarray(a, object if isinstance(a, bytes) else None)  # NumPy's own strings lose zeros at the end
    if a.dtype.names:
        a = a.view(a.dtype[0])
    if a.dtype.kind in "SU":
        a = a.astype(object)
    return a


def compare(what, ours, theirs, tol=None, floor=0):
    """Equal within tol of the largest value (of floor, if that is more)."""
    ours, theirs = plain(ours), plain(theirs)
    if ours.dtype != theirs.dtype:
        raise Failure(f"{what}: dtype {ours.dtype}, TensorFlow has {theirs.dtype}")
    if ours.shape != theirs.shape:
        raise Failure(f"{what}: shape {ours.shape}, TensorFlow has {theirs.shape}")
    name = ours.dtype.name
    if name not in TOLERANCE:
        same = ours == theirs
    elif tol == 0:
        same = ours.reshape(-1).view(np.uint8) == theirs.reshape(-1).view(np.uint8)
        same = same.reshape(-1, ours.itemsize).all(-1).reshape(ours.shape) | ((ours != ours) & (theirs != theirs))
    else:
        wide = np.complex128 if ours.dtype.kind == "c" else np.float64
        ours, theirs = ours.astype(wide), theirs.astype(wide)
        tol = TOLERANCE[name] if tol is None else tol
        finite = np.abs(theirs[np.isfinite(theirs)])
        atol = tol * max(finite.max() if finite.size and finite.max() > 0 else 1, floor)
        with np.errstate(invalid="ignore"):
            same = (np.abs(ours - theirs) <= atol + tol * np.abs(theirs)) | (ours == theirs)
        same |= (ours != ours) & (theirs != theirs)
    if not np.all(same):
        bad = np.argwhere(~np.asarray(same).reshape(ours.shape))
        at = tuple(bad[0])
        raise Failure(f"{what}: {len(bad)} of {ours.size} values differ, first at {tuple(map(int, at))}: "
                      f"{ours[at]!r}, TensorFlow has {theirs[at]!r}")


def is_error(result):
    return isinstance(result, tuple)


def code_name(code):
    return next((n for n, c in CODES.items() if c == code), str(code))


def compare_runs(case, runs, ours, theirs):
    for i, (fetches, _) in enumerate(runs):
        where = f"run {i}: " if len(runs) > 1 else ""
        if i >= len(theirs):
            break
        a, b = ours[i] if i < len(ours) else None, theirs[i]
        if is_error(b):
            if not case.error:
                raise Failure(f"{where}TensorFlow itself fails: {code_name(b[0])}: {b[1]}")
            if b[0] != CODES[case.error]:
                raise Failure(f"{where}TensorFlow gives {code_name(b[0])}, the case says {case.error}: {b[1]}")
            if not is_error(a):
                raise Failure(f"{where}no error, TensorFlow has {code_name(b[0])}: {b[1]}")
            if a[0] != b[0]:
                raise Failure(f"{where}{code_name(a[0])}: {a[1]}\n  TensorFlow has {code_name(b[0])}: {b[1]}")
            if case.message and not re.search(case.message, a[1]):
                raise Failure(f"{where}the error {a[1]!r} does not match {case.message!r}; TensorFlow has {b[1]!r}")
            return
        if is_error(a):
            raise Failure(f"{where}{code_name(a[0])}: {a[1]}")
        names = [t.name for t in fetches if fetchable(t)]
        for k, (name, x, y) in enumerate(zip(names, a, b)):
            if case.only is None or k in case.only:
                compare(where + name, x, y, case.tol)
    if case.error:
        raise Failure(f"TensorFlow gives no error, the case says {case.error}")


def mode_compare(case):
    g, runs, _ = build(case)
    theirs = run_tf(g, runs)
    ours = run_shoal(g.as_graph_def(add_shapes=False).SerializeToString(), runs)
    compare_runs(case, runs, ours, theirs)


# ---- gradients ----

def dense(result):
    """A gradient as fetched: an array, or slices added up into one."""
    if not isinstance(result, tuple):
        return result
    values, indices, shape = result
    out = np.zeros(tuple(shape), np.asarray(values).dtype)
    np.add.at(out, indices, values)
    return out


def mode_grad(case):
    if not case.grad or case.error:
        raise Skip()
    if not (case.dtype.is_floating or case.dtype.is_complex):
        raise Skip()
    g, runs, feeds = build(case)
    fetches = runs[-1][0]
    floating = lambda t: t.dtype.base_dtype.is_floating or t.dtype.base_dtype.is_complex
    ys = [t for i, t in enumerate(fetches) if fetchable(t) and floating(t) and (case.only is None or i in case.only)]
    xs = [t for t in feeds if floating(t)]
    if isinstance(case.grad, (list, tuple)):
        xs = [t for t in xs if re.sub(r"_\d+$", "", t.op.name) in case.grad]
    rng = np.random.default_rng(7)
    values = run_tf(g, [(ys, feeds)])[0]
    if is_error(values):
        raise Failure(f"TensorFlow itself fails: {values[1]}")
    with g.as_default():
        weigh = lambda v: np.asarray(rng.uniform(0.5, 1.5, v.shape)).astype(v.dtype)
        dys = [tf.constant(weigh(np.asarray(v)), y.dtype) for v, y in zip(values, ys)]
        graph_def = g.as_graph_def(add_shapes=False).SerializeToString()
        try:
            grads, failed = tf.gradients(ys, xs, dys), None
        except (LookupError, TypeError) as e:
            grads, failed = None, e
    try:
        sg = shoal.Graph(graph_def)
        names = sg.gradients([y.name for y in ys], [x.name for x in xs], [d.name for d in dys])
    except shoal.Error as e:
        if failed:
            return
        raise Failure(f"shoal_gradients: {code_name(e.code)}: {e.message}")
    if failed:
        raise Failure(f"TensorFlow refuses this gradient ({failed}); Shoal gives {names}")
    for x, a, b in zip(xs, names, grads):
        if (a is None) != (b is None):
            raise Failure(f"gradient of {x.name}: {a}, TensorFlow has {b}")
    theirs = run_tf(g, [([b for b in flatten(grads)], feeds)])[0]
    if is_error(theirs):
        raise Failure(f"TensorFlow's gradient fails: {theirs[1]}")
    theirs = regroup([None if b is None else ((b.values, b.indices, b.dense_shape) if isinstance(b, tf.IndexedSlices) else b)
                      for b in grads], theirs)
    with session(sg) as s:
        try:
            flat = [n for a in names if a for n in (a if isinstance(a, tuple) else (a,)) if n]
            fed = {t.name: np.asarray(v) for t, v in feeds.items()}  # what is fed cannot be fetched: indices of slices
            ran = iter(s.run([n for n in flat if n not in fed], feed_names(feeds)))
            got = iter([fed[n] if n in fed else next(ran) for n in flat])
        except shoal.Error as e:
            raise Failure(f"gradient: {code_name(e.code)}: {e.message}")
        ours = []
        for a, x in zip(names, xs):
            if a is None:
                ours.append(None)
            elif isinstance(a, tuple):
                ours.append(dense((next(got), next(got), next(got) if a[2] else feeds[x].shape)))
            else:
                ours.append(next(got))
        for x, a, b in zip(xs, ours, theirs):
            if a is not None:
                # Sixteen bits round at the size of what was multiplied, about 1, not at that of the result.
                floor = 1 if case.dtype in (tf.float16, tf.bfloat16) else 0
                compare(f"gradient of {x.name}", a, dense(b), case.tol or None, floor)
        if case.fd and case.dtype == tf.float64:
            check_differences(s, ys, dys, xs, feeds, ours)


def flatten(grads):
    for b in grads:
        if isinstance(b, tf.IndexedSlices):
            yield from (b.values, b.indices, b.dense_shape)
        elif b is not None:
            yield b


def regroup(like, flat):
    it = iter(flat)
    return [None if b is None else (next(it), next(it), next(it)) if isinstance(b, tuple) else next(it) for b in like]


def check_differences(s, ys, dys, xs, feeds, grads):
    """One random direction tells as much as all elements: <gradient, v> against the change of <dy, y> along v."""
    rng, h = np.random.default_rng(11), 1e-5
    along = {x: rng.uniform(-1, 1, feeds[x].shape) for x, d in zip(xs, grads) if d is not None and feeds[x].dtype == np.float64}
    if not along:
        return

    def value(sign):
        moved = {x: feeds[x] + sign * h * along[x] if x in along else v for x, v in feeds.items()}
        out = s.run([t.name for t in ys + dys], feed_names(moved))
        return sum(float(np.sum(y * d)) for y, d in zip(out, out[len(ys):]) if y.dtype == np.float64)

    slope = (value(1) - value(-1)) / (2 * h)
    expect = sum(float(np.sum(d * along[x])) for x, d in zip(xs, grads) if x in along)
    scale = sum(float(np.sum(np.abs(d * along[x]))) for x, d in zip(xs, grads) if x in along)
    if abs(slope - expect) > 1e-4 * max(scale, 1e-3):
        raise Failure(f"finite differences give {slope}, the gradient {expect}")


# ---- time ----

def mode_time(case):
    if case.error:
        raise Skip()
    g, runs, _ = build(case)
    if len(runs) != 1:
        raise Skip()
    fetches, feeds = runs[0]
    ops = [t if isinstance(t, tf.Operation) else t.op for t in fetches]
    sg = shoal.Graph(g.as_graph_def().SerializeToString())
    names = [o.name for o in ops]
    with tf.Session(graph=g, config=tf_config()) as t, shoal.Session(sg, inter_op_threads=1, intra_op_threads=1) as s:
        theirs = t.make_callable(ops, list(feeds))
        ours = s.callable([], [f.name for f in feeds], names)
        values = list(feeds.values())
        handles = [shoal.to_handle(np.asarray(v), f.dtype.base_dtype.as_datatype_enum) for f, v in feeds.items()]
        times = ([], [])
        for i in range(25):
            for fn, args, into in ((ours, handles, times[0]), (theirs, values, times[1])):
                start = time.perf_counter()
                for _ in range(20):
                    fn(*args)
                into.append((time.perf_counter() - start) / 20 * 1e6)
        a, b = (float(np.median(x[5:])) for x in times)
        for h in handles:
            shoal.library().shoal_tensor_unref(h)
    return f"{a:9.1f} us, TensorFlow {b:9.1f} us, ratio {a / b:5.2f}"


def mode_oracle(case):
    g, runs, _ = build(case)
    theirs = run_tf(g, runs)
    compare_runs(case, runs, theirs, theirs)


MODES = {"compare": mode_compare, "grad": mode_grad, "time": mode_time, "oracle": mode_oracle}


# ---- running files of cases ----

def load(path):
    del registered[:]
    spec = importlib.util.spec_from_file_location("case_file", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return list(registered)


def run_child(path, modes, only, first, pipe):
    """Runs the cases from number `first` on; a line of JSON before and after each."""
    def say(**what):
        os.write(pipe, (json.dumps(what) + "\n").encode())

    try:
        cases = load(path)
    except Exception:
        say(n=first, name="load", result="fail", text=traceback.format_exc())
        os._exit(0)
    todo = [(m, c) for c in cases for m in modes if not only or re.search(only, c.name)]
    for n, (mode, case) in enumerate(todo):
        if n < first:
            continue
        name = case.name if mode == "compare" else f"{case.name} [{mode}]"
        say(n=n, name=name)
        try:
            text = MODES[mode](case)
            result = "pass"
        except Skip:
            result, text = "none", ""
        except Failure as e:
            result, text = "fail", str(e)
        except Exception:
            result, text = "fail", traceback.format_exc()
        say(n=n, name=name, result=result, text=text or "")
    os._exit(0)


class Worker:
    """The child that runs one file, started again after a crash."""

    def __init__(self, path, args):
        self.path, self.args, self.first, self.buffer, self.current = path, args, 0, b"", None
        self.start()

    def start(self):
        r, w = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(r)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            run_child(self.path, self.args.mode, self.args.only, self.first, w)
        os.close(w)
        self.fd, self.since = r, time.time()

    def lines(self):
        data = os.read(self.fd, 1 << 16)
        self.buffer += data
        *whole, self.buffer = self.buffer.split(b"\n")
        self.since = time.time()
        for line in whole:
            message = json.loads(line)
            self.current = None if "result" in message else message
            yield message
        if not data:
            yield None

    def finish(self, report):
        """The pipe has ended: True when the file is done, False when a new child goes on after a crash."""
        os.close(self.fd)
        _, status = os.waitpid(self.pid, 0)
        if self.current is None:
            return True
        how = f"killed by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
        report(self.path, dict(self.current, result="fail", text=f"the process ended: {how}"))
        self.first, self.current = self.current["n"] + 1, None
        self.start()
        return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*")
    parser.add_argument("--mode", action="append", choices=list(MODES))
    parser.add_argument("--only")
    parser.add_argument("-j", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-v", action="store_true", help="show what passes too")
    args = parser.parse_args()
    args.mode = args.mode or ["compare", "grad"]
    waiting = sorted(args.files or glob.glob(os.path.join(HERE, "ops", "*.py")), reverse=True)
    count = {"pass": 0, "fail": 0, "none": 0}
    files = {}

    def report(path, m):
        count[m["result"]] += 1
        name = f"{os.path.splitext(os.path.basename(path))[0]}: {m['name']}"
        tally = files.setdefault(path, {"pass": 0, "fail": 0, "none": 0})
        tally[m["result"]] += 1
        if m["result"] == "fail":
            print(f"not ok - {name}\n# " + m["text"].strip().replace("\n", "\n# "), flush=True)
        elif m["result"] == "pass" and (args.v or "time" in args.mode):
            print(f"ok - {name}" + (f" # {m['text']}" if m["text"] else ""), flush=True)

    workers = []
    while waiting or workers:
        while waiting and len(workers) < args.j:
            workers.append(Worker(waiting.pop(), args))
        ready, _, _ = select.select([w.fd for w in workers], [], [], 1)
        for w in list(workers):
            if w.fd in ready:
                for m in w.lines():
                    if m is None:
                        if w.finish(report):
                            workers.remove(w)
                            t = files.get(w.path, count)
                            print(f"# {os.path.basename(w.path)}: {t['pass']} passed, {t['fail']} failed", flush=True)
                        break
                    if "result" in m:
                        report(w.path, m)
            elif time.time() - w.since > CASE_SECONDS:
                os.kill(w.pid, signal.SIGKILL)
                w.since = time.time()
    print(f"# total: {count['pass']} passed, {count['fail']} failed, 0 skipped")
    sys.exit(1 if count["fail"] else 0)


if __name__ == "__main__":
    main()
