"""Starting together, stopping together, and what `shoal server` says to those who start it wrongly."""
# needs: tensorflow
# not on the soft device: servers that start and stop; hardly an op runs
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import grpc
import tensorflow.compat.v1 as tf

from cluster import PATIENCE, SHOAL, SLACK, Cluster, free_ports, report, until, until_step
from master_client import Client, Wrong, graph_def, message

tf.disable_v2_behavior()


def trio(*flags):
    return Cluster(flags, ps=["shoal"], worker=["shoal", "shoal"])


def shoal(*args, seconds=120, **environment):
    return subprocess.run([SHOAL, *args], capture_output=True, text=True, timeout=seconds, env={**os.environ, **environment})


def any_order():
    """Whoever comes first waits, and says for whom and why, every few seconds; all work once the last is there."""
    for order in ((("ps", 0), ("worker", 1), ("worker", 0)), (("worker", 0), ("ps", 0), ("worker", 1))):
        c = trio()
        try:
            c.tasks[order[0]].start().wait()
            first = c.tasks[order[0]]
            lines = until(lambda: re.findall(r"waiting since.*", first.text())[1:], what=first.text)
            for job, i in order[1:]:
                assert f"/job:{job}/replica:0/task:{i} at {c.spec[job][str(i)]} (" in lines[0], lines
            assert "Connection refused" in lines[0], lines
            for key in order[1:]:
                c.tasks[key].start().wait()
            with tf.Graph().as_default():
                with tf.device("/job:ps/task:0"):
                    x = tf.constant(1.0) + 1.0
                with tf.Session(c.target("worker", 1)) as s:
                    assert s.run(x) == 2.0
        finally:
            c.__exit__()


def startup_timeout():
    """The cluster is not whole in time: the server ends with 1 and lists who is missing, where, and why."""
    c = trio("--startup_timeout=15")  # those who are there must find each other in that time
    try:
        for key in (("ps", 0), ("worker", 0)):
            c.tasks[key].start().wait()
        for key in (("ps", 0), ("worker", 0)):
            t = c.tasks[key]
            assert t.process.wait(PATIENCE) == 1, t.text()
            assert f"/job:worker/replica:0/task:1 at {c.spec['worker']['1']} (" in t.text(), t.text()
            assert "Connection refused" in t.text() and "--startup_timeout" in t.text(), t.text()
            missing = t.text().split("Missing:")[1]
            assert "/job:ps" not in missing and "task:0" not in missing, missing
    finally:
        c.__exit__()


def startup_timeout_in_session():
    """A session that waits meanwhile gets the same list before the server ends."""
    c = trio("--startup_timeout=8")
    try:
        c.tasks["worker", 0].start().wait()
        with tf.Graph().as_default():
            try:
                config = tf.ConfigProto(operation_timeout_in_ms=120000)
                tf.Session(c.target("worker", 0), config=config).run(tf.constant(1.0))
            except tf.errors.DeadlineExceededError as e:
                for job, i in (("ps", 0), ("worker", 1)):
                    assert f"/job:{job}/replica:0/task:{i} at {c.spec[job][str(i)]} (" in e.message, e.message
            else:
                raise AssertionError("no error")
        assert c.tasks["worker", 0].process.wait(PATIENCE) == 1
    finally:
        c.__exit__()


def startup_timeout_by_default():
    """Nobody has said how long: five minutes, and the server that waits says so. Who comes in time is welcome."""
    c = trio()
    try:
        t = c.tasks["worker", 0].start().wait()
        with tf.Graph().as_default() as g:
            x, found = tf.constant(2.0), []
            client = threading.Thread(target=lambda: found.append(tf.Session(c.target("worker", 0), graph=g).run(x)))
            client.start()
            line = until(lambda: re.search(r"CreateSession still waiting .*", t.text()))[0]
            for key in (("ps", 0), ("worker", 1)):
                c.tasks[key].start().wait()
            client.join(PATIENCE)
            assert found == [2.0], t.text()
        for job, i in (("ps", 0), ("worker", 1)):
            assert f"/job:{job}/replica:0/task:{i} at {c.spec[job][str(i)]} (" in line, line
        assert line.endswith("; it gives up after 300 s (--startup_timeout)"), line
    finally:
        c.__exit__()


def at_work_in_time():
    """A session that needs only who is there ends the waiting: nobody is missed who is not wanted."""
    c = trio("--startup_timeout=15")
    try:
        for key in (("ps", 0), ("worker", 0)):
            c.tasks[key].start().wait()
        with tf.Graph().as_default():
            x = tf.constant(1.0) + 1.0
            config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:0"])
            with tf.Session(c.target("worker", 0), config=config) as s:
                assert s.run(x) == 2.0
                time.sleep(17)
                assert s.run(x) == 2.0
    finally:
        c.__exit__()


def client_deadline():
    """The client's deadline covers the creation of the session, and the error still says who was missing."""
    c = trio()
    try:
        c.tasks["worker", 0].start().wait()
        with tf.Graph().as_default():
            s = tf.Session(c.target("worker", 0), config=tf.ConfigProto(operation_timeout_in_ms=8000))
            start = time.time()
            try:
                s.run(tf.constant(1.0))
            except tf.errors.DeadlineExceededError as e:
                assert time.time() - start < 8 + SLACK, e
                assert "/job:ps/replica:0/task:0 at " + c.spec["ps"]["0"] in e.message, e.message
            else:
                raise AssertionError("no error")
    finally:
        c.__exit__()


def stop_cluster():
    """`shoal stop --cluster_spec` ends every task with 0, a step of a client under way; the ports are free at once."""
    with trio() as c, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            never = tf.FIFOQueue(1, [tf.float32], shapes=[[]]).dequeue()
        s = tf.Session(c.target("worker", 0), config=tf.ConfigProto(operation_timeout_in_ms=60000))
        errors = []

        def client():
            try:
                s.run(never)
            except tf.errors.OpError as e:
                errors.append(e)
        t = threading.Thread(target=client, daemon=True)
        t.start()
        until_step(c.target("ps"))
        p = shoal("stop", "--cluster_spec=" + json.dumps(c.lists()))
        assert p.returncode == 0, p
        for task in c.tasks.values():
            assert task.process.wait(PATIENCE) == 0, task.text()
            with socket.socket() as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("127.0.0.1", int(task.address.split(":")[1])))
        t.join(PATIENCE)
        assert errors, "the step did not end"
        # Stopping what is not there says so.
        p = shoal("stop", "--timeout_ms=60000", "--cluster_spec=" + json.dumps(c.lists()))
        assert p.returncode == 1 and "UNAVAILABLE: 3 of 3 tasks were not stopped" in p.stderr, p
        assert all(task.address in p.stderr for task in c.tasks.values()), p


CLIENT = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
with tf.device("/job:ps/task:0"):
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
s = tf.Session(sys.argv[1])
s.run(tf.global_variables_initializer())
print("here", flush=True)
for line in sys.stdin:
    print("value", s.run(v.assign_add(1.0)), flush=True)
s.close()
print("closed", flush=True)
"""


def client(target):
    p = subprocess.Popen([sys.executable, "-c", CLIENT, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "here\n"
    return p


def exit_with_job():
    """Servers end with 0 after their client: one that closed its session, one that was killed; not while it only idles."""
    for killed in (False, True):
        c = Cluster(["--exit_with_job=1"], ps=["shoal"], worker=["shoal"])
        with c:
            p = client(c.target("worker"))
            time.sleep(0 if killed else 4)
            p.stdin.write("\n")
            p.stdin.flush()
            assert p.stdout.readline() == "value 1.0\n"
            if killed:
                p.kill()
            p.communicate(timeout=120)
            for t in c.tasks.values():
                assert t.process.wait(120) == 0, t.text()
                assert "the job has ended" in t.text(), t.text()


def exit_with_tensorflow():
    """A ps under TensorFlow's workers: one closes its session, one only dies; then the job is over."""
    c = Cluster(ps=["shoal"], worker=["tf", "tf"])
    c.tasks["ps", 0].flags = ["--exit_with_job"]
    with c:
        clients = [client(c.target("worker", i)) for i in range(2)]
        try:
            clients[0].communicate(timeout=120)
            c.tasks["worker", 1].kill()
            assert c.tasks["ps", 0].process.wait(120) == 0, c.tasks["ps", 0].text()
        finally:
            for p in clients:
                p.kill()
                p.communicate(timeout=120)


def stop_by_signal():
    for sig in (signal.SIGTERM, signal.SIGINT):
        with trio() as c:
            for t in c.tasks.values():
                t.kill(sig)
            for t in c.tasks.values():
                assert t.process.wait(PATIENCE) == 0, t.text()


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        return sum(map(int, f.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def stop_beside_a_kernel():
    """A kernel that computes for minutes heeds nothing: the server goes without it."""
    with Cluster(a=["shoal"]) as c:
        t = c.tasks["a", 0]
        graph = graph_def(lambda: tf.raw_ops.Svd(input=tf.random.uniform([4000, 4000]), name="slow"))
        s = Client(c.target("a")).create(graph)

        def step():
            try:
                s.run(target="slow")
            except Wrong:
                pass
        thread = threading.Thread(target=step)
        thread.start()
        until(lambda: processor_seconds(t.process.pid) > 3)  # the matrix is there by then
        t.kill(signal.SIGTERM)
        assert t.process.wait(PATIENCE) == 0, t.text()
        thread.join()


def owed_cleanups():
    """A server that is told to stop answers the CleanupGraph of a step that another master ran on it just before, as
    TensorFlow's waits for ever where it does not; and does not wait where nothing is due."""
    graph = tf.GraphDef()
    graph.node.add(name="n", op="NoOp", device="/job:worker/replica:0/task:0/device:CPU:0")

    def stop(due, gone):
        with Cluster(["--log_level=info", "--http_port=0"], worker=["shoal"]) as c:
            task, client = c.tasks["worker", 0], Client(c.target("worker"))
            handle = client.worker("RegisterGraph", (2, graph))[1]
            for step in (1, 2):
                client.worker("RunGraph", (1, handle), (2, step), (11, step))
            for step in range(1, 3 - due):
                client.worker("CleanupGraph", (1, step))
            if gone:
                client.channel.close()
                pages = until(lambda: re.search(r"pages at (http://\S*)/healthz", task.text()))[1]
                until(lambda: b"shoal_connections 0\n" in urllib.request.urlopen(pages + "/metrics").read())
            task.kill(signal.SIGTERM)
            answered = False
            if due and not gone:
                time.sleep(0.3)  # without waiting for what is due it would be gone
                clean = client.channel.unary_unary("/tensorflow.WorkerService/CleanupGraph")
                try:
                    for step in range(3 - due, 3):
                        clean(message((1, step)), timeout=PATIENCE)
                    answered = True
                except grpc.RpcError:  # too late, on a machine that stood still for a while
                    pass
            assert task.process.wait(PATIENCE) == 0, task.text()
            return answered, "have yet to tidy up" in task.text()

    assert stop(0, False) == (False, False) and stop(2, True) == (False, False)
    for due in (1, 2):
        assert any(stop(due, False) == (True, True) for _ in range(5)), "nobody answered"


def port_in_use():
    with Cluster(a=["shoal"]) as c:
        p = shoal("server", "--cluster_spec=" + json.dumps(c.lists()), "--job_name=a")
        assert p.returncode == 1 and "Address already in use" in p.stderr and c.spec["a"]["0"] in p.stderr, p


def bad_flags():
    spec = '{"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2", "127.0.0.1:3"]}'
    for args, code, texts in (
            (["--cluster_spec=" + spec], 2, ["job_name", "--task_index"]),
            (["--cluster_spec=" + spec, "--job_name=chief"], 2, ["job_name", '"chief"', '"ps"', '"worker"']),
            (["--cluster_spec=" + spec, "--job_name=worker", "--task_index=2"], 2, ["task_index", "2 is out of range"]),
            (["--cluster_spec=" + spec, "--job_name=worker", "--task_index=-1"], 2, ["--task_index=-1", "from 0"]),
            (["--cluster_spec=" + spec, "--job_name=worker", "--task_index=x"], 2, ["--task_index=x", "number"]),
            (["--cluster_spec={", "--job_name=worker"], 2, ["--cluster_spec", "not valid JSON"]),
            (["--cluster_spec=/nowhere.json", "--job_name=worker"], 2, ["--cluster_spec", "/nowhere.json"]),
            (["--cluster_spec=/tmp", "--job_name=worker"], 2, ["/tmp cannot be read", "directory"]),
            (["--cluster_spec={'ps': ['h:1']}", "--job_name=ps"], 2, ["'ps'", "double quotes"]),
            (["--cluster_spec={\"ps\": [\"h:1\"],}", "--job_name=ps"], 2, ["a comma too many"]),
            (["--worker_hosts=h:1", "--tls_ca=/nowhere.pem", "--tls_cert=/nowhere.pem", "--tls_key=/nowhere.key"], 2,
             ["--tls_cert=/nowhere.pem", "No such file"]),
            (["--worker_hosts=[::1]2222", "--job_name=worker"], 2, ['"[::1]2222"', "a colon and a number"]),
            (["--worker_hosts=[::1]", "--job_name=worker"], 2, ['"[::1]"', "a colon and a number"]),
            (["--cluster_spec=" + spec, "--job_name=ps", "--coordination_service"], 2, ["--coordination_service is for"]),
            (["--cluster_spec=" + spec, "--job_name=ps", "--collective_group_leader=worker"], 2,
             ["expected a task of the cluster"]),
            (["--worker_hosts=host", "--job_name=worker"], 2, ["--worker_hosts", '"host"']),
            (["--worker_hosts=host:99999", "--job_name=worker"], 2, ["--worker_hosts", "port"]),
            (["--worker_hosts=host:1host:2", "--job_name=worker"], 2, ["--worker_hosts", "comma missing"]),
            (["--worker_hosts=127.0.0.1:2,127.0.0.1:2", "--job_name=worker"], 2, ["127.0.0.1:2", "two tasks"]),
            (["--cluster_spec=" + spec, "--tf_config={}", "--job_name=ps"], 2, ["--cluster_spec", "--tf_config"]),
            (["--cluster_spec=" + spec, "--ps_hosts=h:1", "--job_name=ps"], 2, ["--cluster_spec", "host lists"]),
            (["--tf_config={\"cluster\": 3}"], 2, ["--tf_config", "cluster"]),
            (['--tf_config={"cluster": {"ps": ["h:1"]}, "task": {"type": "ps", "index": 0.5}}'], 2, ["task.index"]),
            (['--tf_config={"cluster": {"ps": ["h:1"]}, "task": {"type": "x", "index": 0}}'], 2, ["task.type in TF_CONFIG"]),
            (["--job_name=worker"], 2, ["cluster"]),
            (["--no_such_flag"], 2, ["--no_such_flag", "--help"]),
            (["--task-indx=0"], 2, ["--task-indx=0", "did you mean --task_index?"]),
            (["--cpu_devices=0"], 2, ["--cpu_devices=0", "from 1 to"]),
            (["--cpu_devices=9999999999999999999999"], 2, ["--cpu_devices", "from 1 to"]),
            (["--inter_op_threads=-1"], 2, ["--inter_op_threads=-1", "from 0 to"]),
            (["--intra_op_threads=1.5"], 2, ["--intra_op_threads=1.5", "number"]),
            (["--peer_timeout=-5"], 2, ["--peer_timeout=-5", "from 1 to"]),
            (["--startup_timeout=-1"], 2, ["--startup_timeout=-1"]),
            (["--exit_with_job=0"], 2, ["--exit_with_job=0", "from 1 to"]),
            (["--log_level=loud"], 2, ["--log_level", "loud"]),
            (["extra"], 2, ["extra"]),
            (["--cluster_spec"], 2, ["--cluster_spec needs a value"]),
            (["--worker_hosts", "--job_name=worker"], 2, ["--worker_hosts needs a value"])):
        p = shoal("server", *args, TF_CONFIG="")
        assert p.returncode == code, (args, p)
        for t in texts:
            assert t in p.stderr, (args, t, p.stderr)
    for command in (["status", "nowhere"], ["stop", "[::1]"]):
        p = shoal(*command)
        assert p.returncode == 2 and "INVALID_ARGUMENT" in p.stderr, p
    p = shoal("server", "--help")
    assert p.returncode == 0 and "--startup_timeout" in p.stdout and "--file_root" in p.stdout, p


def limits_of_the_process():
    """Too few descriptors: a line that says what to raise, no abort."""
    p = subprocess.run(["sh", "-c", f'ulimit -n 8; exec "{SHOAL}" server --ps_hosts=127.0.0.1:1 --job_name=ps'],
                       capture_output=True, text=True, timeout=120, check=False)
    assert p.returncode == 1 and "Too many open files" in p.stderr and "invariant" not in p.stderr, p


def closed_output():
    """A server whose standard output is closed prints into nothing that it opens."""
    port, = free_ports(1)
    command = f'exec "{SHOAL}" server --ps_hosts=127.0.0.1:{port} --job_name=ps >&-'
    p = subprocess.Popen(["sh", "-c", command], stderr=subprocess.PIPE)
    try:
        until(lambda: shoal("status", f"127.0.0.1:{port}").returncode == 0)
        assert os.readlink(f"/proc/{p.pid}/fd/1") == "/dev/null", os.readlink(f"/proc/{p.pid}/fd/1")
    finally:
        p.terminate()
        p.communicate(timeout=120)
    assert p.returncode == 0


def all_forms():
    """One cluster, described in each of the ways there are."""
    ports = free_ports(2)
    cluster = {"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{ports[1]}"]}
    config = json.dumps({"cluster": cluster, "task": {"type": "ps", "index": 0}})
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("spec", json.dumps(cluster)), ("config", config)):
            with open(os.path.join(folder, name), "w") as f:
                f.write(text)
        for args, environment in (
                ([f"--ps_hosts={cluster['ps'][0]}", f"--worker_hosts={cluster['worker'][0]}", "--job_name=ps"], {}),
                (["--cluster_spec=" + json.dumps(cluster), "--job_name=ps"], {}),
                (["--cluster_spec", os.path.join(folder, "spec"), "--job_name", "ps"], {}),
                (["--tf_config=" + os.path.join(folder, "config")], {}),
                ([], {"TF_CONFIG": config}),
                (['--cluster_spec={"ps": {"3": "127.0.0.1:%d"}}' % ports[0], "--job_name=ps", "--task_index=3"], {})):
            p = subprocess.Popen([SHOAL, "server", *args], stdout=subprocess.PIPE, text=True,
                                 env={**os.environ, **environment})
            assert p.stdout.readline() == f"listening on grpc://127.0.0.1:{ports[0]}\n", args
            p.terminate()
            assert p.wait(PATIENCE) == 0
            p.stdout.close()


def help_and_version():
    """Asked for in any of the usual ways; what comes before an error stands before it, redirected too."""
    for args in (("help", "server"), ("help", "bench", "allreduce")):
        p = shoal(*args)
        assert p.returncode == 0 and p.stdout == shoal(*args[1:], "--help").stdout, p
    assert "serve" in shoal("help").stdout and shoal("version").stdout == shoal("--version").stdout
    p = shoal("help", "sever")
    assert p.returncode == 2 and 'did you mean "server"?' in p.stderr, p
    p = subprocess.run([SHOAL, "status", '--cluster_spec={"ps": ["127.0.0.1:1"]}'], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False)
    assert p.returncode == 1 and p.stdout.index("0 up") < p.stdout.index("do not answer"), p
    for args in (("help",), ("version",), ("devices",)):
        with open("/dev/full", "w") as full:
            p = subprocess.run([SHOAL, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
        assert p.returncode == 1 and "cannot be written" in p.stderr, p


TESTS = [(fn.__name__.replace("_", " "), fn) for fn in (
    any_order, startup_timeout, startup_timeout_in_session, startup_timeout_by_default, at_work_in_time, client_deadline,
    stop_cluster, stop_by_signal, stop_beside_a_kernel, owed_cleanups, exit_with_job, exit_with_tensorflow, port_in_use, bad_flags, limits_of_the_process,
    closed_output, all_forms, help_and_version)]

if __name__ == "__main__":
    sys.exit(report(TESTS))
