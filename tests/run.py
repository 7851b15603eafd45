"""Runs the tests of this tree side by side and ends with what was skipped, by name and with the reason, what failed, and
one line: N passed, N failed, N skipped.

Every test program speaks TAP ("ok - name", "not ok - name", "# SKIP why") or ends with a line "# total: N passed, N
failed, N skipped", on standard output alone: what it or its libraries log goes to standard error and cannot tear a TAP
line. A plan ("1..N") is held against what ran; what is skipped may be said inside the plan or beside it. The output is
shown only when something failed. Kinds, all by default:

  unit     build/tests/*_test, one cmocka program a file of tests/unit, and tests/unit/*_test.py
  interop  tests/interop/harness.py over ops/*.py, and tests/interop/*_test.py: beside real TensorFlow
  cluster  tests/cluster/*_test.py: real server processes
  chaos    tests/chaos/*_test.py: real processes that are killed, stopped, cut off
  soft     the tests of clusters and faults once more, as they are, in tasks that each have a soft device. One that is
           not for it says why (`# not on the soft device: REASON`), one of which a part is enough says which (`# on
           the soft device: NAME | NAME`). What runs there under sanitizers as a whole (below), does not without one.
           Of long ones some part is run (`# long on the soft device; in short: NAME | NAME`). All of all are run by
           `make test-soft`, which asks for this kind alone: `make test` must end within 40 minutes on two cores. And,
           twice, the op harness (in `make test` one case of each row of its tables under the first, of each op under
           the second; all by `make test-soft`), units of devices, and what says so (`# under sanitizers: NAME |
           NAME`, or `all`), on the soft device: in the build of the fuzz targets, under Address- and
           UndefinedBehaviorSanitizer, and in build-tsan, under ThreadSanitizer. What a sanitizer reports in any
           process that a test starts is a failure of the test, whatever that makes of it
  fuzz     build-fuzz/fuzz/*_fuzz, each for --fuzz-seconds from its corpus in tests/fuzz/corpus/NAME; with --fuzz-seed the
           same inputs each time, so that a failure is a change's and not chance's

With --again a program that failed beside others is run once more when all is done, alone and not forked; what fails
then has failed. One that passes counts, and the last lines name it: something in it, or in what it tests, rests on
chance, and wants looking for. What a sanitizer reported has failed, whether it comes again or not.

A Python test that needs TensorFlow says so with a line `# needs: tensorflow`; without it the file counts as one skipped. It
is forked from a process that has TensorFlow in it already (forked.py), unless it says why not (`# not forked: REASON`).
"""
import argparse
import concurrent.futures
import glob
import importlib.util
import itertools
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time

import forked

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KINDS = ["unit", "interop", "cluster", "chaos", "soft", "fuzz"]
# For what hangs: several times what the slowest takes on two busy cores.
# The same tests on every machine: cards are tried by `make test-gpu`.
NO_CARDS = {"CUDA_VISIBLE_DEVICES": ""}
TIMEOUT = {"unit": 900, "interop": 3000, "cluster": 2400, "chaos": 2400, "soft": 2400, "fuzz": 600}


class Job:
    def __init__(self, kind, name, command, env=None, seconds=0, exclusive=False, missing="there is no TensorFlow: make deps"):
        self.kind, self.name, self.command, self.env = kind, name, command, env or {}
        self.missing = missing  # why it is skipped, where there is no command
        self.timeout = TIMEOUT[kind] + seconds
        self.exclusive = exclusive  # uses all cores by itself
        self.forked = False  # from a process with TensorFlow, where there is one
        self.plain_layout = False  # of its addresses, and of those of the processes it starts
        self.watched = None  # by a sanitizer: the variable with its options, and those
        self.first = False  # of those that run side by side: the longest, so that none is left alone at the end


def tap(text):
    """(passed, failed, skipped) of a program's output."""
    totals = re.findall(r"^# total: (\d+) passed, (\d+) failed, (\d+) skipped", text, re.M)
    if totals:
        return [sum(int(t[i]) for t in totals) for i in range(3)]
    failed = len(re.findall(r"^not ok\b", text, re.M))
    skipped = len(skips(text))
    return [len(re.findall(r"^ok\b", text, re.M)) - skipped, failed, skipped]


def skips(text):
    """(name, reason) of each test that was skipped."""
    found = re.findall(r"^ok\b[ \d]*(?:- )?(.*?)\s*# SKIP\b\s*(.*)$", text, re.M | re.I)
    return [(name or reason, reason if name else "") for name, reason in found]


def off_plan(text, counts):
    """What is wrong with the number of tests that ran, in words; None when nothing is, or when no number was said."""
    plans = re.findall(r"^1\.\.(\d+)$", text, re.M)
    plan, ran = sum(map(int, plans)), sum(counts)
    return None if not plans or ran - counts[2] <= plan <= ran else f"{plan} tests were planned, {ran} are told of"


class Result:
    def __init__(self, counts, skipped, text, seconds, worked):
        self.counts, self.skipped, self.text = counts, skipped, text
        self.seconds, self.worked = seconds, worked  # by the clock, and processor time of all its processes


def run(job):
    if not job.watched:
        return run_once(job, {})
    with tempfile.TemporaryDirectory() as folder:
        variable, options = job.watched
        result = run_once(job, {variable: f"{options} log_path={folder}/report"})
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), errors="replace") as f:
                result.text += f"\n{job.name}: {name}\n{f.read()}"
        result.counts[1] += len(os.listdir(folder))
        return result


forks = forked.Forks({**os.environ, **NO_CARDS})
numbers = itertools.count()


def start_program(job, out, err, env):
    """(the process, how to wait for its exit code and processor time)."""
    env = {**os.environ, **NO_CARDS, **job.env, **env}
    if job.forked and forks.socket():
        env.update(SHOAL_FORKS=forks.socket(), SHOAL_TEST=f"{next(numbers)}")
        layout = forked.layout() | (forked.PLAIN if job.plain_layout else 0)
        p = forked.ask(job.command, out, err, env, ROOT, layout)
        if p:
            return p, lambda: (p.wait(), p.worked)
    command = [*(plain_layout() if job.plain_layout else []), *job.command]
    p = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, cwd=ROOT, env=env, start_new_session=True)

    def wait():
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        return p.returncode, usage.ru_utime + usage.ru_stime
    return p, wait


def run_program(job, env):
    """(exit code, standard output, standard error, processor time)."""
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        p, wait = start_program(job, out, err, env)
        timer = threading.Timer(job.timeout, lambda: os.killpg(p.pid, 9))
        timer.start()
        code, worked = wait()
        timer.cancel()
        texts = []
        for f in (out, err):
            f.seek(0)
            texts.append(f.read())
        return code, *texts, worked


def run_once(job, env):
    start = time.time()
    code, text, logged, worked = run_program(job, env)
    counts = [1, 0, 0] if job.kind == "fuzz" and code == 0 else tap(text)
    skipped, wrong = skips(text), off_plan(text, counts)
    if wrong:
        counts[1] += 1
        text += f"\n{job.name}: {wrong}"
    text = logged + text
    if code and not counts[1]:
        counts[1] = 1
        text += f"\n{job.name}: exit code {code}" + (f" (after {job.timeout} s)" if code == -9 else "")
    if sum(counts) == 0:
        counts[1] = 1
        text += f"\n{job.name}: no test ran"
    return Result(counts, skipped, text, time.time() - start, worked)


def python_job(kind, path, have_tensorflow, arguments=()):
    with open(path) as f:
        text = f.read()
    needs = re.search(r"^# needs: tensorflow", text, re.M)
    job = Job(kind, os.path.relpath(path, ROOT), None if needs and not have_tensorflow else [sys.executable, path, *arguments])
    job.forked = needs and not re.search(r"^# not forked: ", text, re.M)
    return job


# Where the soft device is watched: the build, its sanitizer's options, why it may not be there. (ThreadSanitizer's own search
# for deadlocks ends with 64 locks in one hand, and joined updates lock each variable; `make asan` checks the order of locks.)
# And which op cases are run where not all are wanted: what is wrong with memory is so in one shape, races are of an op.
WATCHED = [
    ("build-fuzz", ("ASAN_OPTIONS", ""), "--one=row", "there is no such build, for want of clang: make deps"),
    ("build-tsan", ("TSAN_OPTIONS", f"suppressions={ROOT}/tools/tsan.supp history_size=4 detect_deadlocks=0"),
     "--one=op", "there is no such build: make test"),
]


def plain_layout():
    """Addresses as they were before kernels drew more bits of them: gcc 12's ThreadSanitizer knows no others."""
    command = ["setarch", "-R"]
    try:
        return command if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0 else []
    except OSError:
        return []


def no_search_for_leaks():
    """Where each process that ends searches all addresses there are for three seconds: on aarch64. Units search there, too."""
    return "" if platform.machine() == "x86_64" else " detect_leaks=0"


def soft_job(path, have_tensorflow, long=True):
    """A test with a soft device in each of its tasks; None where it says why not. Of a long one a part, where no more is
    wanted."""
    with open(path) as f:
        text = f.read()
    said = re.search(r"^# (not )?on the soft device: (.*)$", text, re.M)
    whole = re.search(r"^# long on the soft device(?:; in short: (.*))?$", text, re.M)
    part = said[2] if said else None
    if not long and re.search(r"^# under sanitizers: all$", text, re.M):
        return None
    if whole and not long:
        part = whole[1]
    if said and said[1] or whole and not long and not part:
        return None
    job = python_job("soft", path, have_tensorflow)
    if part and job.command:
        job.command += part.split(" | ")
    job.name = f"{job.name} on the soft device"
    job.env = {"SHOAL_SOFT_GPUS": "1"}
    return job


def under_sanitizers():
    """(path, names of its tests, none for all) of each test that says so."""
    for path in sorted(glob.glob(f"{ROOT}/tests/*/*_test.py")):
        with open(path) as f:
            said = re.search(r"^# under sanitizers: (.*)$", f.read(), re.M)
        if said:
            yield path, [] if said[1] == "all" else said[1].split(" | ")


def watched_jobs(have_tensorflow, long=True):
    """The programs for the soft device that builds with sanitizers have, and the tests that start their servers or load
    them. ThreadSanitizer's is not for loading into Python: ops are sent to a server."""
    jobs = []
    for name, watched, part, missing in WATCHED:
        build = os.path.join(ROOT, name)
        units = os.path.join(build, "soft_units.txt")
        if not os.path.exists(os.path.join(build, "shoal")) or not os.path.exists(units):
            jobs.append(Job("soft", f"{name}: the soft device under a sanitizer", None, missing=missing))
            continue
        with open(units) as f:
            of = [Job("soft", unit, [os.path.join(build, "tests", unit)], {"CMOCKA_MESSAGE_OUTPUT": "TAP"})
                  for unit in f.read().split()]
        tests = [python_job("soft", path, have_tensorflow, names) for path, names in
                 [(os.path.join(ROOT, "tests/interop/soft_device_test.py"), [] if long else [part]), *under_sanitizers()]]
        tests[0].first = True  # the op harness
        for job in tests:
            job.env["SHOAL_SOFT_GPUS"] = "1"
        for job in of + tests:
            job.name = f"{name}: {job.name}"
            job.watched = watched[0], watched[1] + (no_search_for_leaks() if job in tests else "")
            job.env = {**job.env, "SHOAL_BUILD": build}
            if name != "build-tsan":
                job.env["SHOAL_LIBRARY"] = os.path.join(build, "libshoal.so")
            else:
                job.plain_layout = True
        jobs += of + tests
    return jobs


def collect(kinds, build, fuzz_seconds, fuzz_seed, emulator):
    have_tensorflow = importlib.util.find_spec("tensorflow") is not None
    jobs, env = [], {"SHOAL_BUILD": build, "SHOAL_LIBRARY": os.path.join(build, "libshoal.so"),
                     "SHOAL_ANSWERS": os.path.join(build, "answers")}
    if "interop" in kinds:
        harness = os.path.join(ROOT, "tests/interop/harness.py")
        # Alone, since it forks one process for each core from one TensorFlow.
        # What TensorFlow answers there is kept for the soft device, which is asked the same three times more.
        jobs.append(Job("interop", "tests/interop/harness.py", [sys.executable, harness, "--keep"] if have_tensorflow else None,
                        exclusive=True))
    for kind in ("interop", "cluster", "chaos"):
        if kind in kinds:
            jobs += [python_job(kind, p, have_tensorflow) for p in sorted(glob.glob(f"{ROOT}/tests/{kind}/*_test.py"))]
    if "unit" in kinds:
        for p in sorted(glob.glob(os.path.join(build, "tests", "*_test"))):
            jobs.append(Job("unit", os.path.basename(p), [*emulator, p],
                            {"CMOCKA_MESSAGE_OUTPUT": "TAP", "SHOAL_EMULATOR": " ".join(emulator)}))
        if not emulator:
            jobs += [python_job("unit", p, have_tensorflow) for p in sorted(glob.glob(f"{ROOT}/tests/unit/*_test.py"))]
    if "soft" in kinds:
        paths = [p for kind in ("cluster", "chaos") for p in sorted(glob.glob(f"{ROOT}/tests/{kind}/*_test.py"))]
        long = kinds == ["soft"]
        jobs += filter(None, (soft_job(p, have_tensorflow, long) for p in paths))
        jobs += watched_jobs(have_tensorflow, long)
    if "fuzz" in kinds:
        targets = sorted(glob.glob(f"{ROOT}/build-fuzz/fuzz/*_fuzz"))
        if not targets:
            jobs.append(Job("fuzz", "fuzzing", None, missing="there are no fuzz targets, for want of clang: make deps"))
        for p in targets:
            name = os.path.basename(p)
            fresh = os.path.join(ROOT, "build-fuzz", "corpus", name)
            os.makedirs(fresh, exist_ok=True)
            kept = [d for d in [f"{ROOT}/tests/fuzz/corpus/{name}"] if os.path.isdir(d)]
            jobs.append(Job("fuzz", name, [p, f"-max_total_time={fuzz_seconds}", f"-seed={fuzz_seed}",
                                           f"-runs={20000 if fuzz_seed else -1}", "-timeout=60", "-rss_limit_mb=2048",
                                           f"-artifact_prefix={fresh}-", "-print_final_stats=0", fresh, *kept],
                            seconds=fuzz_seconds))
    for j in jobs:
        j.env = {**env, **j.env}
    return jobs


def at_once_here():
    """More than there are cores: most programs wait as long as they compute, for servers to start, and to give up."""
    cores = len(os.sched_getaffinity(0))
    return cores + max(2, (cores + 1) // 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="default: all")
    parser.add_argument("--build", default="build")
    parser.add_argument("--fuzz-seconds", type=int, default=10)
    parser.add_argument("--fuzz-seed", type=int, default=0, help="other than 0: the same inputs each time")
    parser.add_argument("--only", help="a regular expression on the programs' names")
    parser.add_argument("--again", action="store_true", help="what failed beside others is run once more, alone")
    parser.add_argument("--patience", type=int, default=1, help="times the usual bounds on a program's time")
    parser.add_argument("--emulator", help="runs the unit programs of a build for another architecture")
    parser.add_argument("-j", type=int, default=at_once_here(), help="programs at once; default: 4 for 2 cores, 6 for 4, 24 for 16")
    args = parser.parse_args()
    jobs = collect(args.kinds or KINDS, os.path.abspath(args.build), args.fuzz_seconds, args.fuzz_seed,
                   args.emulator.split() if args.emulator else [])
    jobs = [j for j in jobs if not args.only or re.search(args.only, j.name)]
    for j in jobs:
        j.timeout *= args.patience
    try:
        code = run_all(jobs, args.j, args.again)
    finally:
        forks.end()
    sys.exit(code)


class Summary:
    def __init__(self):
        self.total, self.skipped, self.failed, self.chancy = [0, 0, 0], [], [], []
        self.start, self.worked = time.time(), 0

    def tell(self, job, result):
        passed, failed, skipped = result.counts
        also = f", {skipped} skipped" if skipped else ""
        self.worked += result.worked
        print(f"{'FAIL' if failed else 'ok  '} {job.name}: {passed} passed, {failed} failed{also} "
              f"({result.seconds:.1f} s; {result.worked:.1f} of processors)", flush=True)
        if failed:
            print("\n".join("     " + line for line in result.text.splitlines()[-200:]), flush=True)

    def count(self, job, result):
        self.skipped += [(f"{job.name}: {name}", reason) for name, reason in result.skipped]
        self.total = [a + b for a, b in zip(self.total, result.counts)]
        if result.counts[1]:
            self.failed.append(job.name)

    def end(self):
        for name, reason in sorted(self.skipped):
            print(f"skipped: {name}" + (f": {reason}" if reason else ""))
        if self.chancy:
            print("failed beside others, passed alone: " + ", ".join(self.chancy))
        if self.failed:
            print("failed: " + ", ".join(self.failed))
        print(f"{(time.time() - self.start) / 60:.1f} minutes, {self.worked / 60:.1f} of processors")
        print("{} passed, {} failed, {} skipped".format(*self.total))
        return 1 if self.total[1] else 0


def run_all(jobs, at_once, again):
    """The exit code."""
    summary, doubtful = Summary(), []

    def done(job, result):
        summary.tell(job, result)
        if result.counts[1] and again and not job.exclusive and "Sanitizer:" not in result.text:
            doubtful.append(job)
        else:
            summary.count(job, result)

    for job in [j for j in jobs if not j.command]:
        summary.total[2] += 1
        summary.skipped.append((job.name, job.missing))
    jobs = [j for j in jobs if j.command]
    for job in [j for j in jobs if j.exclusive]:
        done(job, run(job))
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        running = {pool.submit(run, j): j for j in sorted(jobs, key=lambda j: not j.first) if not j.exclusive}
        for f in concurrent.futures.as_completed(running):
            done(running[f], f.result())
    for job in doubtful:
        print(f"once more, alone: {job.name}", flush=True)
        job.forked = False
        result = run(job)
        summary.tell(job, result)
        summary.count(job, result)
        if not result.counts[1]:
            summary.chancy.append(job.name)
    return summary.end()


if __name__ == "__main__":
    main()
