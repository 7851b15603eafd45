"""One harness for all ops, in three modes and a half, with real TensorFlow as the judge.

  compare  the same GraphDef runs in TensorFlow and in Shoal, in this process; dtypes, shapes, values and error codes
           must agree, and what Shoal inferred of the shapes must not contradict the values
  grad     shoal_gradients is compared with tf.gradients on the same graph and, for float64, with finite differences
  time     both run each case many times, in turn; prints medians and their ratio
  oracle   TensorFlow alone, for writing cases: does it do what the case says?

The cases are tables in ops/FAMILY.py; cases.py says how they are written, oracle.py asks TensorFlow, judge.py Shoal. Each
file runs in a child forked after TensorFlow's import, which costs seconds; a child that crashes or hangs costs one case,
and the next child goes on after it. Output is TAP, as of all tests of this tree.

  python harness.py [--mode=MODE ...] [--only=REGEX] [--one=row|op] [--keep | --replay] [-j N] [-v] [ops/FILE.py ...]

TensorFlow takes nine tenths of the time. With --keep its answers are kept (answers.py); with --replay they are taken from
there, and this process has no TensorFlow in it: for comparing and gradients once more, elsewhere. Files of which there is
no answer, or one of another time, are asked for first, by a process of their own.

What was kept can be asked in part, where a sanitizer makes each case ten times as long: --one=row, of cases that differ in
their dtype alone, one; --one=op, of all cases of an op, one; and of their gradients one.
"""
import argparse
import glob
import importlib.util
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import traceback
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import answers
import shoal
from judge import Failure, np

CASE_SECONDS = 120


# ---- time ----

def measure(case):
    """In words; None where there is nothing to measure."""
    from oracle import build, tf, tf_config
    g, runs, _ = build(case)
    if case.error or len(runs) != 1:
        return None
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


# ---- running files of cases ----

def load(path):
    from cases import registered
    del registered[:]
    spec = importlib.util.spec_from_file_location("case_file", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return list(registered)


def asked(path, modes):
    """(mode, name, question) of each case, the question as a function that asks TensorFlow; None: there is nothing to ask."""
    from oracle import ask_gradients, ask_values
    ask = {"compare": ask_values, "grad": ask_gradients, "time": lambda case: case}
    for case in load(path):
        for mode in ["compare", "grad"] if "oracle" in modes else modes:
            yield mode, case.name, lambda mode=mode, case=case: ask[mode](case)


DTYPE = re.compile(r" (bfloat16|float(16|32|64)|u?int(8|16|32|64)|complex(64|128)|bool|string)\b")


def one_of(what, name):
    """Of which cases this is one: those of a row, that differ in their dtype, or those of an op, where it is of one."""
    return name.split()[0] if what == "op" and name[0].isupper() else DTYPE.sub("", name, 1)


def chosen(todo, what):
    """Of the cases of each row, or op, one of each mode: not the first, so that all dtypes have their turn."""
    groups = {}
    for mode, name, question in todo:
        if not answers.nothing(question):
            groups.setdefault((mode, one_of(what, name)), []).append((mode, name, question))
    return [cases[zlib.crc32(name.encode()) % len(cases)] for (_, name), cases in groups.items()]


def judge(question, modes):
    """What came of it, in a word and a few more."""
    if question is None:
        return "none", ""
    if "time" in modes:
        text = measure(question)
        return ("pass", text) if text else ("none", "")
    if "oracle" not in modes:
        question.check()
    return "pass", ""


def run_case(question, args, keep):
    try:
        try:
            q = question()
        except Failure as e:
            keep(e)
            raise
        except Exception:
            keep(Failure(traceback.format_exc()))  # else nobody would miss the case where answers are taken from
            raise
        keep(q)
        return judge(q, args.mode)
    except Failure as e:
        return "fail", str(e)
    except Exception:
        return "fail", traceback.format_exc()


def run_child(path, args, first, pipe):
    """Runs the cases from number `first` on; a line of JSON before and after each."""
    def say(**what):
        os.write(pipe, (json.dumps(what) + "\n").encode())

    try:
        keeper = answers.Keeper(path, first) if args.keep else None
        todo = answers.kept(path, args.mode) if args.replay else asked(path, args.mode)
        todo = [t for t in todo if not args.only or re.search(args.only, t[1])]
        if args.one:
            todo = chosen(todo, args.one)
    except Exception:
        say(n=first, name="load", result="fail", text=traceback.format_exc())
        os._exit(0)
    for n, (mode, name, question) in enumerate(todo):
        if n < first:
            continue
        label = name if mode == "compare" else f"{name} [{mode}]"
        say(n=n, name=label)
        result, text = run_case(question, args, lambda q: keeper and keeper.keep(mode, name, q))
        say(n=n, name=label, result=result, text=text)
    if keeper:
        keeper.finish()
    os._exit(0)


class Worker:
    """The child that runs one file, started again after a crash."""

    def __init__(self, path, args):
        self.path, self.args, self.first, self.buffer, self.current = path, args, 0, b"", None
        self.done = 0  # how many have a result
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
            run_child(self.path, self.args, self.first, w)
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
            if "result" in message:
                self.done = message["n"] + 1
            yield message
        if not data:
            yield None

    def finish(self, report):
        """The pipe has ended: True when the file is done, False when a new child goes on after a crash."""
        os.close(self.fd)
        _, status = os.waitpid(self.pid, 0)
        if self.current is None and not status:
            return True
        how = f"killed by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
        between = {"n": self.done, "name": f"before case {self.done}"}  # or behind the last: what follows was not run
        report(self.path, dict(self.current or between, result="fail", text=f"the process ended: {how}"))
        after = self.current["n"] + 1 if self.current else self.done
        stuck = after == self.first  # it comes to no case
        self.first, self.buffer, self.current = after, b"", None
        if stuck:
            return True
        self.start()
        return False


def ask_first(paths):
    """What is not kept, in a process of its own, which has no sanitizer in it either. One asker at a time: the next finds the
    answers there, and does not take away the files of those that are in use."""
    with answers.lock():
        paths = [f for f in paths if not answers.fresh(f)]
        if not paths:
            return
        own = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        command = [sys.executable, os.path.join(HERE, "harness.py"), "--mode=oracle", "--keep", *paths]
        done = subprocess.run(command, env=own, check=False, stdout=subprocess.DEVNULL)
        print(f"# {len(paths)} files were asked of TensorFlow first (exit code {done.returncode})", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*")
    parser.add_argument("--mode", action="append", choices=["compare", "grad", "time", "oracle"])
    parser.add_argument("--only")
    parser.add_argument("--keep", action="store_true", help="what TensorFlow answers: comparing and gradients, all cases")
    parser.add_argument("--replay", action="store_true", help="what was kept, without TensorFlow")
    parser.add_argument("--one", choices=["row", "op"], help="of what was kept: one case of each, in turn of another dtype")
    parser.add_argument("-j", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-v", action="store_true", help="show what passes too")
    args = parser.parse_args()
    args.mode = args.mode or ["compare", "grad"]
    if args.keep and (args.only or args.replay or args.mode not in (["compare", "grad"], ["oracle"])):
        parser.error("what is kept is of all cases of a file, and both of comparing and gradients")
    if args.one and not args.replay:
        parser.error("--one is for what was kept: --replay")
    waiting = sorted(args.files or glob.glob(os.path.join(HERE, "ops", "*.py")), reverse=True)
    if args.replay:
        ask_first(waiting)
        waiting.sort(key=lambda f: os.path.getsize(answers.place(f)) if answers.fresh(f) else 0)  # the longest first
    else:
        import oracle  # before the first fork
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
