"""The test runner counts what is told: a skipped test is named, inside a plan or beside it; a lost one is a failure, and so
is what a sanitizer reports. And
tools/order.py finds calls that rest on the order of their arguments, tools/schema.py fields by bare numbers, and
ConfigProto anywhere but in its file."""
import contextlib
import glob
import io
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "interop"))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import forked
import tap
import run as runner


def judged(text):
    """(passed, failed, skipped), what was skipped, the last line of what would be shown."""
    r = runner.run(runner.Job("unit", "a program", ["printf", "%s", text]))
    return r.counts, r.skipped, r.text.splitlines()[-1]


def test_skipped_beside_the_plan():
    counts, skipped, _ = judged("ok - a real sshd # SKIP needs root\n1..2\nok - a (0.1 s)\nok - b\n")
    assert counts == [2, 0, 1] and skipped == [("a real sshd", "needs root")], (counts, skipped)


def test_skipped_inside_the_plan():
    counts, skipped, _ = judged("1..3\nok - a\nok - b # SKIP no tunnel\nok 3 # skip c\n")
    assert counts == [1, 0, 2] and skipped == [("b", "no tunnel"), ("c", "")], (counts, skipped)


def test_lost_tests():
    for text in ("1..3\nok - a\nok - b # SKIP why\n", "1..1\nok - a\nok - b\n", "1..2\n", ""):
        counts, _, last = judged(text)
        assert counts[1] == 1 and last.startswith("a program: "), (text, counts, last)


def test_reports_of_sanitizers():
    for report, failed in (("", 0), ("echo a race >${TSAN_OPTIONS#*log_path=}.7;", 1)):
        job = runner.Job("soft", "it", ["sh", "-c", report + "echo 'ok - a'"])
        job.watched = ("TSAN_OPTIONS", "history_size=4")
        r = runner.run(job)
        assert r.counts == [1, failed, 0] and ("a race" in r.text) == bool(failed), (r.counts, r.text)


def test_processor_time():
    r = runner.run(runner.Job("unit", "it", ["sh", "-c", "timeout 0.3 sh -c 'while :; do :; done'; sleep 0.3; echo 'ok - a'"]))
    assert r.counts == [1, 0, 0] and r.seconds >= 0.6 and 0.005 < r.worked < 0.6, (r.seconds, r.worked)


def test_on_the_soft_device():
    with tempfile.TemporaryDirectory() as folder:
        for said, arguments in (("", []), ("# on the soft device: all shoal | a step\n", ["all shoal", "a step"]),
                                ("# not on the soft device: no op runs\n", None)):
            path = os.path.join(folder, "x_test.py")
            with open(path, "w") as f:
                f.write(f'"""What is shown."""\n{said}import os\n')
            job = runner.soft_job(path, True)
            assert (job and job.command[2:]) == arguments and (not job or job.env == {"SHOAL_SOFT_GPUS": "1"}), said


def test_long_on_the_soft_device():
    with tempfile.TemporaryDirectory() as folder:
        for said, short, whole in (("# long on the soft device", None, []), ("# long on the soft device; in short: a", ["a"], []),
                                   ("# on the soft device: a | b\n# long on the soft device; in short: b", ["b"], ["a", "b"]),
                                   ("# under sanitizers: all", None, []), ("# under sanitizers: a", [], [])):
            path = os.path.join(folder, "x_test.py")
            with open(path, "w") as f:
                f.write(f'"""Words.\n\n{said}\n"""\n')
            job = runner.soft_job(path, True, long=False)
            assert (job and job.command[2:]) == short and runner.soft_job(path, True).command[2:] == whole, said


def test_something_of_every_long_one():
    """What is long on the soft device says which part of it `make test` runs there, or sanitizers are met by it there."""
    for path in glob.glob(os.path.join(ROOT, "tests", "*", "*_test.py")):
        with open(path) as f:
            text = f.read()
        if path != os.path.abspath(__file__) and re.search("^# long on the soft device", text, re.M):
            assert re.search("^# (long on the soft device; in short|under sanitizers): ", text, re.M), path


FORKED = """
import os, signal, sys, time
print(sys.argv, os.environ["SAID"], os.getcwd(), __name__, flush=True)
if sys.argv[-1] == "stay":
    time.sleep(60)
sys.exit(3)
"""


def test_forked():
    """A process that is forked is as one that is started: what it is given, what it says, how it ends; and it does not outlive
    who asked for it."""
    forks = forked.Forks(dict(os.environ), "json")
    if not forks.socket():
        raise tap.Skip("this system has no descriptors of processes")
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "w+") as log:
        program, env = os.path.join(folder, "program.py"), {**os.environ, "SAID": "so", "SHOAL_FORKS": forks.path}
        with open(program, "w") as f:
            f.write(FORKED)
        for args in (["-c", FORKED], [program]):
            p, q = (forked.start([sys.executable, *args, last], log, env=env, cwd=folder) for last in ("end", "stay"))
            assert p.wait() == 3 and p.poll() == 3 and q.poll() is None, (p.returncode, q.returncode)
            q.kill()
            assert q.wait(60) == -9, q.returncode
        left = forked.start([sys.executable, program, "stay"], log, env=env, cwd=folder)
        left.connection.shutdown(socket.SHUT_RDWR)  # as where this process ends
        end = time.time() + 60
        while os.path.exists(f"/proc/{left.pid}") and time.time() < end:
            time.sleep(0.01)
        assert time.time() < end, "it stays"
        log.seek(0)
        said = [line for line in log.read().splitlines() if "'stay'" not in line]
    forks.end()
    assert said == [f"{args} so {folder} __main__" for args in (["-c", "end"], [program, "end"])], said


def test_once_more_alone():
    with tempfile.TemporaryDirectory() as folder:
        # Fails the first time, and passes once its mark is there.
        chancy = ["sh", "-c", f"test -e {folder}/mark && echo 'ok - a' || {{ touch {folder}/mark; echo 'not ok - a'; }}"]
        for again, passing, last in ((False, False, "0 passed, 1 failed"), (True, True, "1 passed, 0 failed"),
                                     (True, False, "0 passed, 1 failed")):
            if os.path.exists(f"{folder}/mark"):
                os.unlink(f"{folder}/mark")
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = runner.run_all([runner.Job("unit", "it", chancy if passing or not again else ["echo", "not ok - a"])],
                                      1, again)
            assert code == (0 if passing else 1) and last in out.getvalue().splitlines()[-1], out.getvalue()
            assert ("passed alone: it" in out.getvalue()) == passing, out.getvalue()
        found = ["sh", "-c", chancy[2].replace("'not ok - a'", "'not ok - a'; echo SUMMARY: AddressSanitizer: a leak")]
        with contextlib.redirect_stdout(io.StringIO()):
            assert runner.run_all([runner.Job("unit", "it", found)], 1, True) == 1


def test_order_of_arguments():
    source = """int both(int a, int b), set(int *v), look(const int *v);
        int f(void) {
          int v = 0, w[2] = {look(&v), v};
          both(set(&v), sizeof v);
          both(look(&v), v);
          both(set(&v), v == 2);
          int x[2] = {v, set(&v)};
        }"""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.c")
        with open(path, "w") as f:
            f.write(source)
        p = subprocess.run([os.path.join(ROOT, "tools", "order.py"), path], stdout=subprocess.PIPE, text=True, check=False)
    assert p.returncode == 1 and [line.split(": ")[0].split(":")[1] for line in p.stdout.splitlines()] == ["6", "7"], p.stdout


def test_no_such_call_here():
    p = subprocess.run([os.path.join(ROOT, "tools", "order.py")], stdout=subprocess.PIPE, text=True, check=False)
    assert p.returncode == 0, p.stdout


def test_layers():
    p = subprocess.run([os.path.join(ROOT, "tools", "layers.py")], stdout=subprocess.PIPE, text=True, check=False)
    assert p.returncode == 0, p.stdout


def test_what_is_out_of_order():
    """A tree with the rooms' first files alone, and lines that are not to be."""
    wrong = {
        "src/runtime/plan.c": ('"device/soft/soft.h"', "src/device/soft is known to itself alone"),
        "src/device/cuda/cuda.c": ('"device/soft/soft.h"', "src/device/soft is known to itself alone"),
        "src/base/mem.c": ('"word2vec/crew.h"', "src/base may not include from src/word2vec, which stands after it"),
        "src/graph/graph.c": ('"../ops/math/add.h"', '"../ops/math/add.h": files of src/ are named from there'),
        "src/graph/node.c": ("<ops/math/add.h>", '<ops/math/add.h> is ours: "ops/math/add.h"'),
        "src/device/gate.c": ('"runtime/plan.h"', "src/device may not include from src/runtime, which stands after it"),
        "src/serving/model.c": ('"train/saver.h"', "src/serving knows nothing of src/train, by the table in docs/design.md"),
        "src/attic/box.c": ('"base/mem.h"', "src/attic has no place in the order of docs/design.md"),
    }
    right = {"src/device/soft/soft.c": '"device/soft/soft.h"', "src/device/soft/copy.c": '"ops/math/add.h"',
             "src/cli/word2vec.c": '"word2vec/crew.h"', "src/base/text.c": "<sys/stat.h>"}
    with tempfile.TemporaryDirectory() as tree:
        for path in glob.glob(os.path.join(ROOT, "src", "ops", "*", "")) + [os.path.join(ROOT, "docs", "design.md")]:
            path = os.path.join(path, min(os.listdir(path))) if os.path.isdir(path) else path
            there = os.path.join(tree, os.path.relpath(path, ROOT))
            os.makedirs(os.path.dirname(there), exist_ok=True)
            shutil.copy(path, there)
        for path, line in [*right.items(), *((p, w[0]) for p, w in wrong.items()), ("src/ops/attic/box.c", "<math.h>"),
                           ("src/ops/text/a.c", "<math.h>")]:
            os.makedirs(os.path.dirname(os.path.join(tree, path)), exist_ok=True)
            with open(os.path.join(tree, path), "w") as f:
                f.write(f"#include {line}\n")
        p = subprocess.run([os.path.join(ROOT, "tools", "layers.py"), tree], stdout=subprocess.PIPE, text=True, check=False)
    said = {line for line in p.stdout.splitlines() if "a comment says" not in line}
    expected = {f"{path}:1: {w[1]}" for path, w in wrong.items()}
    assert said - expected == {"src/ops/attic has no row in docs/design.md's table of rooms"} | {
        line for line in said if line.startswith("src/ops/text/a.c: the room's first file begins with /* ops/text: ")}, p.stdout
    assert expected <= said and len(said) == len(expected) + 2 and p.returncode == 1, p.stdout


def test_fields_by_bare_numbers():
    source = """void f(struct text *t, struct wire_field f) {
          wire_add_uint(t, 3, 1);
          wire_add_uint(t, VersionDef_producer, 3);
          if (f.number == 2) return;
          if (f.tag == NodeDef_name && f.size == 2) return;
          switch (f.tag) {
            case 10: return;
          }
          put_ConfigProto_allow_soft_placement(t, RunOptions_trace_level);
        }"""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.c")
        with open(path, "w") as f:
            f.write(source)
        p = subprocess.run([os.path.join(ROOT, "tools", "schema.py"), path], stdout=subprocess.PIPE, text=True, check=False)
    assert p.returncode == 1 and [line.split(": ")[0].split(":")[1] for line in p.stdout.splitlines()] == ["2", "4", "6", "9"], p.stdout
    p = subprocess.run([os.path.join(ROOT, "tools", "schema.py")], stdout=subprocess.PIPE, text=True, check=False)
    assert p.returncode == 0, p.stdout


if __name__ == "__main__":
    tap.main(globals())
