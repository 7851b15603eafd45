"""`shoal status`: every task of a cluster in a line, those of TensorFlow and those that are gone too; jobs of `shoal
launch`; answers that would move a terminal's cursor. And the pages /healthz and /metrics."""
# needs: tensorflow
import fcntl
import http.server
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import urllib.error
import urllib.request
from concurrent import futures

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
from tensorflow.core.framework.device_attributes_pb2 import DeviceAttributes

from cluster import PATIENCE, SHOAL, Cluster, report, until
from master_client import Client, each_field


def status(spec, *flags):
    p = subprocess.run([SHOAL, "status", f"--cluster_spec={json.dumps(spec)}", *flags], capture_output=True, text=True,
                       timeout=120)
    return p.returncode, p.stdout, p.stderr


def one_line_each():
    with Cluster(ps=["shoal"], worker=["shoal", "tf"]) as c:
        code, out, err = status(c.spec)
        assert code == 0, (code, out, err)
        assert re.search(r"^TASK +ADDRESS +STATE +PROCESS +MEMORY .*GLOBAL_STEP$", out, re.M), out
        assert re.search(r"/job:ps/task:0 +127.0.0.1:\d+ +up +\d+ s +\d+ +\d+\.\d MB .* 0$", out, re.M), out
        assert re.search(r"/job:worker/task:0 .* up ", out), out
        assert re.search(r"/job:worker/task:1 .*up, but not Shoal's", out), out
        assert "3 tasks, 3 up" in out, out
        c.tasks["ps", 0].kill()
        c.tasks["ps", 0].process.wait()
        code, out, err = status(c.spec)
        assert code == 1 and "3 tasks, 2 up" in out and re.search(r"/job:ps/task:0 .* no answer: ", out), (code, out)
        assert "1 of 3 tasks do not answer" in err, err


def variables_and_step():
    trainer = os.path.join(os.path.dirname(SHOAL), "tests", "programs", "trainer")
    with Cluster(ps=["shoal"], worker=["shoal"]) as c:
        subprocess.run([trainer, f"--master={c.target('worker')}", "--steps=12", "--step_ms=0"], check=True, timeout=120,
                       stdout=subprocess.DEVNULL)
        code, out, _ = status(c.spec)
        assert code == 0 and re.search(r"/job:ps/task:0 .* 12\n", out), out
        code, out, _ = status(c.spec, "--json")
        tasks = {t["task"]: t for t in json.loads(out)["tasks"]}
        ps = tasks["/job:ps/task:0"]
        assert code == 0 and ps["global_step"] == 12 and ps["state"] == "up" and ps["memory_bytes"] > 1 << 20, out
        assert ps["process"] == c.tasks["ps", 0].process.pid and tasks["/job:worker/task:0"]["steps"] >= 12, out


def narrow_terminals():
    """Whole columns go where there is no room for them, the least telling first: no line is broken."""
    with Cluster(ps=["shoal"], worker=["shoal"]) as c:
        for width, there, gone in ((200, ["ADDRESS", "TENSORS", "GLOBAL_STEP"], []),
                                   (100, ["ADDRESS", "MEMORY", "STEPS", "GLOBAL_STEP"], ["TENSORS", "VARIABLES"]),
                                   (80, ["ADDRESS", "MEMORY", "GLOBAL_STEP"], ["TENSORS", "VARIABLES", "SESSIONS"]),
                                   (40, ["STATE"], ["ADDRESS", "GLOBAL_STEP"])):
            outer, inner = pty.openpty()
            fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
            subprocess.run([SHOAL, "status", f"--cluster_spec={json.dumps(c.spec)}"], stdout=inner, check=True, timeout=120)
            os.close(inner)
            out = ""
            try:
                while chunk := os.read(outer, 65536):
                    out += chunk.decode()
            except OSError:  # how a terminal says that all was read
                pass
            os.close(outer)
            lines = out.split("\r\n")
            assert max(map(len, lines)) <= width and lines[0].startswith("TASK ") and "2 tasks, 2 up" in lines, out
            assert all(word in lines[0] for word in there) and not any(word in lines[0] for word in gone), out
            assert re.match(r"/job:ps/task:0 .*up +\d+ s", lines[1]), out


def devices():
    """`shoal devices`: what a task here would have, and what a server's cluster has; --devices: how many of a type."""
    def shoal(*args, gpus):
        p = subprocess.run([SHOAL, *args], capture_output=True, text=True, timeout=120,
                           env={**os.environ, "SHOAL_SOFT_GPUS": str(gpus)})
        return p.returncode, re.findall(r"^(\S+) type=\w+ memory=\d+ incarnation=\w{16}$", p.stdout, re.M), p.stderr

    local = "/job:localhost/replica:0/task:0/device:"
    assert shoal("devices", gpus=0)[:2] == (0, [local + "CPU:0"])
    assert shoal("devices", gpus=2)[:2] == (0, [local + "CPU:0", local + "GPU:0", local + "GPU:1"])
    code, names, err = shoal("devices", "grpc://127.0.0.1:1", gpus=0)
    assert code == 1 and not names and "Connection refused" in err, (code, err)
    start = ("server", "--worker_hosts=127.0.0.1:0", "--job_name=worker")
    for asked, why in (("GPU=3", "there are 2 devices of type GPU here"), ("NPU=1", "no devices of type NPU"),
                       ("GPU", "expected TYPE=N"), ("GPU=x", "expected TYPE=N"), ("CPU=0", "there are 1 devices")):
        code, _, err = shoal(*start, f"--devices={asked}", gpus=2)
        assert code == 2 and f"--devices={asked}" in err and why in err, (asked, code, err)
    os.environ["SHOAL_SOFT_GPUS"] = "2"
    try:
        with Cluster(ps=["shoal"], worker=["shoal"], flags=["--devices=GPU=1,CPU=2"]) as c:
            code, names, err = shoal("devices", c.target("worker"), gpus=0)
            last = Client(c.target("worker")).worker("GetStatus")[1]
    finally:
        del os.environ["SHOAL_SOFT_GPUS"]
    assert code == 0 and sorted(names) == [f"/job:{job}/replica:0/task:0/device:{d}" for job in ("ps", "worker")
                                           for d in ("CPU:0", "CPU:1", "GPU:0")], (names, err)


    gpu = DeviceAttributes.FromString(last)  # what TensorFlow has of a GPU
    assert gpu.name.endswith("/device:GPU:0") and gpu.memory_limit == 1 << 30 and gpu.locality.bus_id == 1, gpu
    assert gpu.physical_device_desc.startswith("device: 0, name: soft device"), gpu


def gpu_options():
    """The same by flags, as a ConfigProto has them, and by a ConfigProto as text: which cards, how much of each."""
    start = [SHOAL, "server", "--worker_hosts=127.0.0.1:0", "--job_name=worker"]
    for flag, why in (("--visible_device_list=2", "visible device count is 2"),
                      ("--gpu_memory_fraction=1.5", "expected a number above 0"), ("--gpu_memory_fraction=x", "expected"),
                      ("--virtual_devices=1+,2", "expected megabytes"), ("--virtual_devices=1;2", "expected megabytes"),
                      ("--session_config=gpu_option {}", 'no field named "gpu_option"'),
                      ("--session_config=device_count { key: 'CPU' value: -1 }", "CPU devices, not -1")):
        p = subprocess.run([*start, flag], capture_output=True, text=True, timeout=120,
                           env={**os.environ, "SHOAL_SOFT_GPUS": "2"})
        assert p.returncode == 2 and why in p.stderr, (flag, p.returncode, p.stderr)
    os.environ["SHOAL_SOFT_GPUS"] = "2"
    mb = 1 << 20
    try:
        for flags, cpus, want in (
                (["--visible_device_list=1,0", "--gpu_memory_fraction=0.25"], 1, [(1, 256 * mb), (0, 256 * mb)]),
                (["--virtual_devices=1+2,4", "--allow_growth"], 1, [(0, mb), (0, 2 * mb), (1, 4 * mb)]),
                (["--virtual_devices=,8"], 1, [(0, 1024 * mb), (1, 8 * mb)]),
                (["--session_config=device_count { key: 'CPU' value: 3 } gpu_options { visible_device_list: '0' }",
                  "--visible_device_list=1"], 3, [(1, 1024 * mb)])):
            with Cluster(worker=["shoal"], flags=flags) as c:
                ask = Client(c.target("worker")).channel.unary_unary("/tensorflow.WorkerService/GetStatus")
                answer = ask(b"", timeout=PATIENCE, wait_for_ready=True)
            each = [DeviceAttributes.FromString(d) for _, d in each_field(answer)]
            gpus = [(int(d.physical_device_desc.split(",")[0][8:]), d.memory_limit) for d in each if d.device_type == "GPU"]
            assert gpus == want and len(each) == cpus + len(gpus), (flags, each)
    finally:
        del os.environ["SHOAL_SOFT_GPUS"]


def wrong_description():
    for spec in ('{"worker": ["nowhere"]}', "/does/not/exist", "{}"):
        p = subprocess.run([SHOAL, "status", f"--cluster_spec={spec}"], capture_output=True, text=True, timeout=120)
        assert p.returncode == 2 and "cluster_spec" in p.stderr, (spec, p.stdout, p.stderr)


def silent_port():
    """Something listens there and says nothing: that is said, also by `shoal stop`."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        target = f"grpc://127.0.0.1:{s.getsockname()[1]}"
        for command in ("status", "stop"):
            p = subprocess.run([SHOAL, command, target, "--timeout_ms=3000"], capture_output=True, text=True, timeout=120)
            assert p.returncode == 1 and "silent for 3.0 s" in p.stderr and "another service" in p.stderr, p


def other_service():
    """What listens there is a server of pages: that is said, too."""
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        p = subprocess.run([SHOAL, "status", f"127.0.0.1:{pages.server_port}"], capture_output=True, text=True, timeout=120)
        pages.shutdown()
        assert p.returncode == 1 and "another service is there" in p.stderr, p


def waits():
    """What a step waits for, in words, in the table and in JSON."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow.compat.v1 as tf
    tf.disable_v2_behavior()
    with Cluster(ps=["shoal"], worker=["shoal"]) as c, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            value = tf.FIFOQueue(1, [tf.float32], shapes=[[]]).dequeue()
        with tf.device("/job:worker/task:0"):
            out = value * 2.0
        s = tf.Session(c.target("worker"))

        def run():
            try:
                s.run(out)
            except tf.errors.OpError:
                pass
        t = threading.Thread(target=run, daemon=True)
        t.start()
        wanted = r"step \d+: waits for a value since \d+\.\d s: RecvTensor to /job:ps/replica:0/task:0"
        until(lambda: re.search(r"/job:worker/task:0:\n(  step.*\n)*  " + wanted, status(c.spec)[1]))
        tasks = {t["task"]: t for t in json.loads(status(c.spec, "--json")[1])["tasks"]}
        assert any(re.match(wanted, w) for w in tasks["/job:worker/task:0"]["waits"]), tasks
        # In the table the value goes by its name; what waits for less than a second is not there.
        table = status(c.spec)[1]
        assert re.search(r", for edge_\d+_fifo_queue_Dequeue\n", table) and ";" not in table, table
        # The number of a step is not to be had here: with it anybody could end it.
        for task in c.tasks.values():
            said = subprocess.run([SHOAL, "status", c.target(task.job)], capture_output=True, text=True, timeout=120).stdout
            numbers = {int(n) for n in re.findall(r"step (\d+)", said)}
            assert numbers and max(numbers) < 1 << 20, said
            for n in numbers:
                Client(c.target(task.job)).worker("CleanupGraph", (1, n))
        assert re.search(wanted, status(c.spec)[1]) and t.is_alive()
        s.close()
        t.join(PATIENCE)


def strangers_words():
    """A server that answers with a terminal's commands: none reaches the terminal."""
    import grpc
    evil = b"\x1b[2J\x1b]0;mine\x07 \xc2\x9b1A \xe2\x80\xae \r /job:ps\n"

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            if details.method == "/shoal.Server/Stop":
                return grpc.unary_unary_rpc_method_handler(lambda q, c: c.abort(grpc.StatusCode.INTERNAL, "\x1b[2J no"))
            text = evil + b"  step 1: waits for " + evil
            return grpc.unary_unary_rpc_method_handler(
                lambda q, c: b"\x0a" + bytes([len(text)]) + text + b"\x6a" + bytes([len(evil)]) + evil)
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        for args in ([f"grpc://127.0.0.1:{port}"], [f"127.0.0.1:{port}", "--json"],
                     [f'--cluster_spec={{"a": ["127.0.0.1:{port}"]}}']):
            p = subprocess.run([SHOAL, "status", *args], capture_output=True, timeout=120)
            assert p.returncode == 0 and b"mine" in p.stdout, p
            bad = [b for b in p.stdout if b < 32 and b != 10]
            assert not bad and b"\xc2\x9b" not in p.stdout and b"\xe2\x80\xae" not in p.stdout, p.stdout
            if "--json" in args:
                json.loads(p.stdout)
        p = subprocess.run([SHOAL, "stop", f"127.0.0.1:{port}"], capture_output=True, timeout=120)
        assert p.returncode == 1 and b"\x1b" not in p.stderr and b"no" in p.stderr, p
    finally:
        server.stop(0)


def handles():
    """Whoever knows a session's handle has the session: neither other tasks nor those who ask for the status learn it."""
    import grpc
    from master_client import fields_of, message
    told, seen = [], []

    class Task(grpc.GenericRpcHandler):
        def service(self, details):
            method = details.method.rsplit("/", 1)[1]

            def answer(request, context):
                seen.append(request)
                if method == "CreateWorkerSession":
                    told.append(fields_of(request)[1].decode())
                device = message((1, "/job:b/replica:0/task:0/device:CPU:0"), (2, "CPU"), (4, 1 << 28)) + b"\x31" + b"7" * 8
                return message((1, device)) if method == "GetStatus" else b""
            return grpc.unary_unary_rpc_method_handler(answer)
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Task()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    c = Cluster(["--http_port=0"], a=["shoal"], b=["shoal"])
    c.spec["b"]["0"] = f"127.0.0.1:{port}"
    t = c.tasks["a", 0]
    try:
        t.start().wait()
        url = until(lambda: re.search(r"pages at (http://127.0.0.1:\d+)/", t.text()))[1]
        with grpc.insecure_channel(c.spec["a"]["0"]) as channel:
            answer = channel.unary_unary("/tensorflow.MasterService/CreateSession")(message((1, b"")), timeout=120)
            handle = fields_of(answer)[1].decode()
            assert len(handle) >= 32 and len(told) == 1 and told[0] != handle, (handle, told)
            assert not any(handle.encode() in request for request in seen)
            for flags in ([], ["--json"]):
                p = subprocess.run([SHOAL, "status", *flags, c.target("a")], capture_output=True, text=True, timeout=120)
                assert p.returncode == 0 and handle not in p.stdout and told[0] not in p.stdout, p
            assert handle not in get(url + "/metrics")[1] and handle not in t.text()
    finally:
        t.end()
        server.stop(0)


def job_of_launch():
    """The job that launch runs here is found without ports; when there is none, that is said, with --watch too."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "XDG_RUNTIME_DIR": folder}

        def ask(*flags):
            return subprocess.run([SHOAL, "status", *flags], capture_output=True, text=True, timeout=120, env=env)
        p = ask()
        assert p.returncode == 1 and "no job of `shoal launch`" in p.stderr and "grpc://" in p.stderr, p
        assert json.loads(ask("--json").stdout) == {"jobs": []}
        job = subprocess.Popen([SHOAL, "launch", "--ps=1", "--workers=1", "--ps_server", "--", "sh", "-c", "exec sleep 600",
                                "the program"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda: "2 tasks, 1 up" in ask().stdout, what=lambda: ask().stdout)
            out = ask().stdout
            assert f"job of process {job.pid}" in out and "the program" in out, out
            assert re.search(r"/job:worker/task:0 .* no answer: Connection refused", out), out
            found = json.loads(ask("--json").stdout)["jobs"]
            assert [(j["process"], j["cluster"]["up"]) for j in found] == [(job.pid, 1)], found
            assert os.stat(f"{folder}/shoal").st_mode & 0o777 == 0o700
        finally:
            job.send_signal(signal.SIGKILL)
            job.wait()
        until(lambda: "no job of" in ask().stderr)  # its other half has gone, too
        assert os.listdir(f"{folder}/shoal") == []
        os.chmod(f"{folder}/shoal", 0o777)  # others could have put files there: not looked at
        with open(f"{folder}/shoal/1.job", "w") as f:
            f.write("process 1\nbegan 1\ncluster {}\nprogram x\n")
        assert ask().returncode == 1 and os.path.exists(f"{folder}/shoal/1.job")
        watch = subprocess.Popen([SHOAL, "status", "--watch=1"], stdout=subprocess.PIPE, text=True, env=env)
        lines = [watch.stdout.readline() for _ in range(4)]
        watch.terminate()
        watch.communicate()
        assert sum("no job of" in line for line in lines) == 2, lines


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as r:
            return r.status, r.read().decode(), r.headers
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode(), e.headers


def pages():
    """/healthz and /metrics; whoever connects and is slow, idle, or not HTTP at all locks nobody out."""
    with Cluster(["--http_port=0"], a=["shoal"]) as c:
        t = c.tasks["a", 0]
        url = until(lambda: re.search(r"pages at (http://127.0.0.1:\d+)/", t.text()))[1]
        port = int(url.rpartition(":")[2])
        assert get(url + "/healthz")[:2] == (200, "ok\n")
        code, text, headers = get(url + "/metrics?x")
        assert code == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4"), headers
        values = {}
        for line in text.splitlines():
            if line.startswith("#"):
                assert re.match(r"# (HELP|TYPE) \w+ ", line), line
            else:
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        for name in ("shoal_uptime_seconds", "shoal_connections", "shoal_steps_total", "process_resident_memory_bytes",
                     "shoal_fast_connections", "shoal_fast_received_bytes_total", "shoal_fast_sent_bytes_total",
                     'shoal_limit_used{flag="max_fast_connections"}', 'shoal_limit_max{flag="max_held_bytes"}',
                     'shoal_limit_max{flag="max_sessions"}', 'shoal_info{task="/job:a/replica:0/task:0"}'):
            assert name in values, text
        assert re.search(r"^shoal_uptime_seconds \d+(\.\d{1,3})?$", text, re.M), text  # thousandths, and no more
        assert get(url + "/nothing")[0] == 404

        def raw(data):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
                s.sendall(data)
                answer = b""
                while chunk := s.recv(65536):
                    answer += chunk
                return answer
        for data, code in ((b"POST /metrics HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 405), (b"\x00\r\n\r\n", 400),
                           (b"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
                           (b"GET /healthz HTTP/3\r\n\r\n", 505), (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
                           (b"G" * 8192, 431), (b"HEAD /healthz HTTP/1.1\r\n\r\n", 200)):
            answer = raw(data)
            assert answer.startswith(b"HTTP/1.1 %d " % code), (data[:40], answer)
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
        for s in idle[::2]:
            s.sendall(b"GET /healthz")
        assert get(url + "/healthz")[0] == 200
        for s in (idle[1], idle[-1]):  # one of the oldest made room, the youngest has had its time
            s.settimeout(60)
            assert s.recv(1) == b""
        for s in idle:
            s.close()
    p = subprocess.run([SHOAL, "server", '--cluster_spec={"a": ["127.0.0.1:0"]}', "--job_name=a", "--http_host=::1"],
                       capture_output=True, text=True, timeout=120)
    assert p.returncode == 2 and "--http_port" in p.stderr, p


if __name__ == "__main__":
    sys.exit(report([(f.__name__.replace("_", " "), f) for f in (
        one_line_each, variables_and_step, narrow_terminals, devices, gpu_options, wrong_description, silent_port,
        other_service, waits, strangers_words, handles, job_of_launch, pages)]))
