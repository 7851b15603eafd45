"""Tests of this folder in the environment of the newest TensorFlow there was at `make deps`, forked from one process that has
it (../forked.py): each would else import it for itself, and so would all that they start."""
import os
import subprocess
import sys

from cluster import forked

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(os.environ.get("SHOAL_TF_NEWEST_ENV", ""), "bin", "python")


def run(title, *tests):
    """tests: lists of a file and its arguments. The exit code; without such an environment there is one test, skipped."""
    if not os.path.exists(PYTHON):
        print(f"ok - {title} # SKIP there is no newest TensorFlow (make deps)")
        return 0
    forks = forked.Forks(os.environ, interpreter=PYTHON)
    env = {**os.environ, "SHOAL_FORKS": forks.socket() or "", "SHOAL_TEST": title}
    try:
        return max([run_one([PYTHON, os.path.join(HERE, test[0]), *test[1:]], env) for test in tests])
    finally:
        forks.end()


def run_one(command, env):
    p = forked.ask(command, sys.stdout, sys.stderr, env, os.getcwd(), forked.layout()) or subprocess.Popen(command, env=env)
    return abs(p.wait())
