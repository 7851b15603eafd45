"""Python processes with TensorFlow in them from the start, forked from one that has imported it: the import is 4 seconds of
a processor, and the tests want it some hundreds of times.

    p = forked.start([sys.executable, "worker.py", "--flag"], stdout=log, stderr=subprocess.STDOUT)

is as subprocess.Popen: a process of its own, with its own session, arguments, environment, folder and output, that runs the
program as __main__ and ends as any other; pid, poll(), wait(), send_signal() and kin are there. It is forked where
$SHOAL_FORKS names the socket of a server of such processes, which tests/run.py starts, and started anew elsewhere, or where
it wants what only a new one has: pipes, other flags of Python, other libraries. What differs: the environment comes after the
import, so that what TensorFlow reads while it is imported is the server's; and who asked for a process takes it along when
it ends.

Who can only be given a command, a launcher say, is given forked.python("worker.py", "--flag"): a small process that stands
for the forked one, has its output, hands on signals and ends as it does.

The server, `python forked.py --server SOCKET MODULE`, ends when its standard input does. A connection is a process: a
request, as JSON behind its length, with standard output and error beside it; a line with the process' id; a line with how
it ended.
"""
import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types

PLAIN = 0x0040000  # ADDR_NO_RANDOMIZE, of layout()
NOT_INHERITED = ("LD_PRELOAD", "PYTHONPATH", "PYTHONHASHSEED")  # what only a new process minds


# ---- who asks ----

class Process:
    """As subprocess.Popen has it."""

    def __init__(self, connection, args):
        self.connection, self.args, self.lines = connection, args, connection.makefile("rb", 0)
        self.returncode, self.worked = None, 0
        self.pid = json.loads(self.lines.readline())["pid"]

    def poll(self):
        if self.returncode is None and select.select([self.connection], [], [], 0)[0]:
            try:
                end = json.loads(self.lines.readline())
            except (OSError, ValueError):  # the server is gone, and all with it
                end = {"code": -9, "worked": 0}
            self.returncode, self.worked = end["code"], end["worked"]
            self.connection.close()
            self.lines.close()
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None and not select.select([self.connection], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.poll()

    def send_signal(self, number):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended, and the word of it is under way
                os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def layout():
    """How a process' addresses are drawn, which its children take over: setarch(8)."""
    return ctypes.CDLL(None).personality(0xffffffff)


def can_be_forked(command, streams, env):
    return (env.get("SHOAL_FORKS") and command[0] == sys.executable and (command[1] == "-c" or command[1][0] != "-")
            and all(hasattr(s, "fileno") or s == subprocess.STDOUT for s in streams)
            and all(env.get(n) == os.environ.get(n) for n in NOT_INHERITED) and not env.get("LD_PRELOAD"))


def start(command, stdout, stderr=subprocess.STDOUT, env=None, cwd=None):
    env, process = dict(os.environ) if env is None else env, None
    if can_be_forked(command, (stdout, stderr), env):
        process = ask(command, stdout, stdout if stderr == subprocess.STDOUT else stderr, env, cwd or os.getcwd(), layout())
    return process or subprocess.Popen(command, stdout=stdout, stderr=stderr, env=env, cwd=cwd)


def ask(command, stdout, stderr, env, cwd, layout_wanted):
    """None where the server does not answer."""
    connection = socket.socket(socket.AF_UNIX)
    request = json.dumps({"args": command[1:], "env": env, "cwd": cwd, "layout": layout_wanted}).encode()
    try:
        connection.connect(env["SHOAL_FORKS"])
        socket.send_fds(connection, [len(request).to_bytes(4, "big")], [stdout.fileno(), stderr.fileno()])
        connection.sendall(request)
        return Process(connection, command)
    except (OSError, ValueError):
        connection.close()
        return None


def python(*args):
    """A command as [sys.executable, *args]."""
    return [sys.executable, os.path.abspath(__file__), *args]


def stand_for(args):
    process = start([sys.executable, *args], sys.stdout, sys.stderr)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda n, _: process.send_signal(n))
    code = process.wait()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


# ---- the server ----

class Forks:
    """The server as who starts it sees it: there from when it is first asked for."""

    def __init__(self, env, module="tensorflow.compat.v1", interpreter=sys.executable):
        self.env, self.command, self.lock = env, (interpreter, os.path.abspath(__file__), module), threading.Lock()
        self.process, self.folder, self.path = None, None, None

    def socket(self):
        """Its name; None where there can be none."""
        with self.lock:
            if not self.process:
                self.folder = tempfile.TemporaryDirectory()
                path = os.path.join(self.folder.name, "forks")
                interpreter, server, module = self.command
                self.process = subprocess.Popen([interpreter, server, "--server", path, module], text=True, stdin=subprocess.PIPE,
                                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                                env={**self.env, "TF_CPP_MIN_LOG_LEVEL": "3"})
                if self.process.stdout.readline() == "ready\n":
                    self.path = path
            return self.path

    def end(self):
        if self.process:
            self.process.communicate()
            self.folder.cleanup()


def read_request(connection):
    head, streams, _, _ = socket.recv_fds(connection, 4, 2)
    with connection.makefile("rb", 0) as f:
        left, request = int.from_bytes(head, "big"), b""
        while left > len(request):
            part = f.read(left - len(request))
            if not part:
                break
            request += part
    return json.loads(request), streams


def kill_group(pid):
    """Of a process that is not waited for yet; one that was just forked has no group of its own."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(pid, signal.SIGKILL)


class Server:
    def __init__(self, path):
        self.selector = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(64)
        self.running = {}  # by connection: (pid, its descriptor, whose test it is)
        self.spent = {}  # processor time of ended processes, by test

    def serve(self):
        """None when it is to end; in a child what that is to run, and its streams."""
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        self.selector.register(0, selectors.EVENT_READ, lambda: "end")
        while True:
            for key, _ in self.selector.select():
                come = key.data()
                if come == "end":
                    for pid, _, _ in self.running.values():
                        kill_group(pid)
                    return None
                if come:
                    return come

    def accept(self):
        connection, _ = self.listener.accept()
        try:
            request, streams = read_request(connection)
        except (OSError, ValueError):  # who asked has gone in the middle of it
            connection.close()
            return None
        pid = os.fork()
        if pid == 0:
            os.setsid()
            for c in [connection, self.listener, *self.running]:
                c.close()
            for _, fd, _ in self.running.values():
                os.close(fd)
            self.selector.close()
            return request, streams
        for fd in streams:
            os.close(fd)
        fd = os.pidfd_open(pid)
        self.running[connection] = pid, fd, request["env"].get("SHOAL_TEST")
        self.selector.register(fd, selectors.EVENT_READ, lambda: self.ended(connection))
        self.selector.register(connection, selectors.EVENT_READ, lambda: self.left_alone(connection))
        self.tell(connection, pid=pid)
        return None

    def tell(self, connection, **what):
        try:
            connection.sendall((json.dumps(what) + "\n").encode())
        except OSError:  # who asked is gone
            pass

    def left_alone(self, connection):
        """Nothing is said but by going away."""
        if connection not in self.running:  # it has ended in the same moment
            return
        self.selector.unregister(connection)
        kill_group(self.running[connection][0])

    def ended(self, connection):
        pid, fd, test = self.running.pop(connection)
        _, status, usage = os.wait4(pid, 0)
        self.spent[test] = self.spent.get(test, 0) + usage.ru_utime + usage.ru_stime
        self.tell(connection, code=os.waitstatus_to_exitcode(status), worked=self.spent[test])
        for watched in (fd, connection):
            if watched in self.selector.get_map():
                self.selector.unregister(watched)
        os.close(fd)
        connection.close()


def become(request, streams):
    """This process is as a new one would be."""
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, place in ((null, 0), (streams[0], 1), (streams[1], 2)):
        os.dup2(fd, place)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    with open("/proc/self/comm", "w") as f:  # what ps calls it
        f.write(os.path.basename(request["args"][0])[:15])
    if os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if request["layout"] != layout():
        ctypes.CDLL(None).personality(request["layout"])


def run_main(args):
    """The program as __main__."""
    if args[0] == "-c":
        sys.argv, sys.path[0], name, text = ["-c", *args[2:]], "", "<string>", args[1]
    else:
        sys.argv, sys.path[0], name = args, os.path.dirname(os.path.abspath(args[0])), args[0]
        with open(name, "rb") as f:
            text = f.read()
    main = types.ModuleType("__main__")
    main.__file__ = name
    sys.modules["__main__"] = main
    exec(compile(text, name, "exec", dont_inherit=True), main.__dict__)  # pylint: disable=exec-used


def main():
    if sys.argv[1] != "--server":
        stand_for(sys.argv[1:])
    os.close(os.pidfd_open(os.getpid()))  # where a system has none, there is no server
    importlib.import_module(sys.argv[3])
    server = Server(sys.argv[2])
    gc.freeze()
    print("ready", flush=True)
    child = server.serve()
    if child:
        become(*child)
        run_main(child[0]["args"])


if __name__ == "__main__":
    main()
