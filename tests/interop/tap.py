"""Runs test functions one by one, each in a child of its own, and prints TAP. A crash or a hang costs one test.

    if __name__ == "__main__":
        tap.main(globals())      every function whose name starts with test_; arguments of the program choose by name
"""
import os
import signal
import sys
import tempfile
import time
import traceback

TEST_SECONDS = 300


class Skip(Exception):
    """Raised by a test that cannot run here; the text says why."""


def _child(fn, out):
    code = 0
    try:
        fn()
    except Skip as e:
        out.write(f"skip {e}")
        code = 2
    except BaseException:
        out.write(traceback.format_exc())
        code = 1
    out.flush()
    os._exit(code)


def run(name, fn):
    """True unless it failed."""
    with tempfile.TemporaryFile("w+") as out:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            _child(fn, out)
        end = time.time() + TEST_SECONDS
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            if time.time() > end:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        out.seek(0)
        text = out.read()
    if os.WIFSIGNALED(status):
        text += f"killed by signal {os.WTERMSIG(status)}" + (f" after {TEST_SECONDS} s" if time.time() > end else "")
    elif os.WEXITSTATUS(status) == 0:
        print(f"ok - {name}", flush=True)
        return True
    elif os.WEXITSTATUS(status) == 2:
        print(f"ok - {name} # SKIP {text[5:]}", flush=True)
        return True
    print(f"not ok - {name}\n# " + text.strip().replace("\n", "\n# "), flush=True)
    return False


def main(names):
    tests = [(n[5:].replace("_", " "), f) for n, f in names.items() if n.startswith("test_") and callable(f)]
    wanted = sys.argv[1:]
    chosen = [(n, f) for n, f in tests if not wanted or any(w.replace("_", " ") in n for w in wanted)]
    print(f"1..{len(chosen)}", flush=True)
    results = [run(n, f) for n, f in chosen]
    sys.exit(0 if all(results) else 1)
