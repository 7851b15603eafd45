#!/usr/bin/env python3
"""Runs a TensorFlow program unchanged, with `shoal server` in the place of its tf.train.Server.

    tools/python.sh tools/in_place.py PROGRAM.py [its arguments...]    from the tree
    shoal-in-place PROGRAM.py [its arguments...]                       where Shoal is installed
    python -m shoal.in_place PROGRAM.py [its arguments...]             by its wheel

A distributed program starts a server in its own process: tf.train.Server(...), or an Estimator with TF_CONFIG does it.
Under this script each such server is a process of `shoal server` beside the program, with the same cluster, job and
task; the program's sessions go to it as they would have gone to TensorFlow's. The server ends with the program, and the
program with its server: with 1 when that died, with 75 ("run me again") when it was told to stop. $SHOAL names the
command; default: build/shoal of this tree, the one beside this script or beside python, the one in the PATH.
$SHOAL_SERVER_FLAGS are flags for it, as `shoal server --help` has them: on several machines --insecure_bind_all.

Nothing but the four functions under tf.train.Server is replaced. (A ps task needs no program at all: `shoal server`.)
"""
import atexit
import ctypes
import importlib.util
import json
import os
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import types


def shoal():
    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.path.join(os.path.dirname(here), "build"), here, os.path.dirname(sys.executable)]
    found = [p for p in (os.path.join(place, "shoal") for place in places) if os.path.isfile(p)]
    return os.environ.get("SHOAL") or (found or [shutil.which("shoal") or "shoal"])[0]


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class ServerProcess:
    def __init__(self, serialized):
        from tensorflow.core.protobuf import tensorflow_server_pb2
        server = tensorflow_server_pb2.ServerDef.FromString(serialized)
        cluster = {job.name: {str(i): address for i, address in job.tasks.items()} for job in server.cluster.job}
        self.process = self.watcher = None
        self.expected = False  # its end: the program waits for it, or has told it
        self.command = [shoal(), "server", "--cluster_spec=" + json.dumps(cluster), "--job_name=" + server.job_name,
                        f"--task_index={server.task_index}"]
        config = server.default_session_config
        if config.ByteSize():
            from google.protobuf import text_format
            self.command.append("--session_config=" + text_format.MessageToString(config, as_one_line=True))
        if config.experimental.collective_group_leader:
            self.command.append("--collective_group_leader=" + config.experimental.collective_group_leader)
        self.command += shlex.split(os.environ.get("SHOAL_SERVER_FLAGS", ""))
        self.target = "grpc://" + cluster[server.job_name][str(server.task_index)]

    def start(self):
        if self.process:
            return
        try:
            self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        except FileNotFoundError:
            sys.exit(f"in_place: there is no command {self.command[0]}: build or install it, or name it by $SHOAL")
        line = self.process.stdout.readline()
        if "listening on " not in line:
            from tensorflow.python.framework import errors
            raise errors.UnknownError(None, None, f"Could not start the server: exit code {self.process.wait()}")
        self.target = line.split("listening on ")[1].strip()
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()
        STARTED.append(self)
        atexit.register(self.end)

    def watch(self):
        """What ops print there is printed here. A program without its server would wait for it for ever: TensorFlow's
        sessions try again and again."""
        for line in self.process.stdout:
            print(line, end="", flush=True)
        code = self.process.wait()
        if not self.expected:
            how = f"died of signal {-code}" if code < 0 else f"ended with {code}"
            print(f"in_place: the server {self.target} of this program {how}: so ends the program", file=sys.stderr)
            sys.stderr.flush()
            os._exit(75 if code in (0, 75) else 1)

    def end(self):
        self.expected = True
        self.process.terminate()
        self.watcher.join(20)  # what it still has to print

    def join(self):
        self.expected = True
        self.process.wait()


STARTED = []  # servers
LAST_STEP_S = 15


def wait_for_servers(kind, error, trace, tell=sys.excepthook):
    """A server that ends first ends its steps, and so perhaps the program: which then waits, so that its exit code says
    what became of the server (ServerProcess.watch), and not what became of a step."""
    tell(kind, error, trace)
    from tensorflow.python.framework import errors
    if issubclass(kind, (errors.AbortedError, errors.CancelledError, errors.UnavailableError)):
        for server in STARTED:
            server.watcher.join(LAST_STEP_S)


def install():
    """From now on tf.train.Server is a process of its own."""
    from tensorflow.python.training import server_lib
    server_lib.c_api = types.SimpleNamespace(
        TF_NewServer=ServerProcess, TF_ServerStart=ServerProcess.start, TF_ServerJoin=ServerProcess.join,
        TF_ServerTarget=lambda s: s.target, TF_ServerStop=lambda s: None)
    sys.excepthook = wait_for_servers


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        sys.exit(2 if len(sys.argv) < 2 else 0)
    sys.argv = sys.argv[1:]
    if not os.path.isfile(sys.argv[0]):
        sys.exit(f"in_place: there is no program {sys.argv[0]}")
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    if not importlib.util.find_spec("tensorflow"):
        sys.exit(f"in_place: {sys.executable} has no TensorFlow: install it there (pip install tensorflow==2.15.1), "
                 "or run this by a Python that has it; in Shoal's tree, after `make deps`, that is tools/python.sh")
    install()
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
