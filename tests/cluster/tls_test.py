"""TLS and mutual TLS: who gets in, who does not, and what each is told. Also: where a server without TLS listens."""
# needs: tensorflow
# not on the soft device: who gets in, before any op runs
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "interop"))
import grpc
import numpy as np
import shoal
import tensorflow.compat.v1 as tf

from certificates import Authority, chained, flags
from cluster import PATIENCE, SHOAL, Cluster, Skip, free_ports, report, until
from http2_test import PING, PREFACE, SETTINGS, frame

tf.disable_v2_behavior()
TOP = tempfile.TemporaryDirectory(prefix="shoal_tls_")
HOST = ("IP:127.0.0.1", "DNS:localhost")
CA, OTHER = Authority(TOP.name), Authority(TOP.name, "other")
PS, WORKER = CA.sign("ps", "DNS:*.ps.shoal", *HOST), CA.sign("worker", "DNS:*.worker.shoal", *HOST)
WORKER_1 = CA.sign("worker1", "DNS:1.worker.shoal", *HOST)
CLIENT, STRANGER = CA.sign("client", "DNS:client.example"), OTHER.sign("client", "DNS:client.example")
QUICK = PATIENCE / 2  # below the time-outs that would otherwise end the wait


def cluster(ps=PS, worker=WORKER, ca=CA.ca, more=()):
    c = Cluster(more, ps=["shoal"], worker=["shoal"])
    c.tasks["ps", 0].flags += flags(ps, ca)
    c.tasks["worker", 0].flags += flags(worker, ca)
    return c


class Identity:
    """The certificates of this process's C clients, for the while of a `with`."""
    NAMES = ("SHOAL_TLS_CERT", "SHOAL_TLS_KEY", "SHOAL_TLS_CA")

    def __init__(self, pair=CLIENT, ca=CA.ca):
        self.values = (*(pair or (None, None)), ca)

    def __enter__(self):
        os.environ.update({n: v for n, v in zip(self.NAMES, self.values) if v})

    def __exit__(self, *_):
        for n in self.NAMES:
            os.environ.pop(n, None)


def across():
    """A graph on both tasks, with a tensor of 4 MB on the way."""
    with tf.Graph().as_default() as g:
        with tf.device("/job:ps/task:0"):
            a = tf.fill([1024, 1024], tf.constant(2.0))
        with tf.device("/job:worker/task:0"):
            tf.reduce_sum(a * 3.0, name="sum")
    return shoal.Graph(g.as_graph_def().SerializeToString())


def total(target, **options):
    with shoal.Session(across(), target=target, operation_timeout_ms=PATIENCE * 1000, **options) as s:
        return float(s.run(["sum:0"])[0])


def refused(target, codes, *texts):
    start = time.time()
    try:
        total(target)
    except shoal.Error as e:
        assert time.time() - start < QUICK, f"after {time.time() - start:.1f} s: {e}"
        assert e.code in codes, e
        for t in texts:
            assert t in str(e), e
        return
    raise AssertionError("no error")


def command(name, *args, code=0, **environment):
    start = time.time()
    p = subprocess.run([SHOAL, name, *args], capture_output=True, text=True, timeout=120,
                       env={**os.environ, **environment})
    assert p.returncode == code, p
    assert time.time() - start < QUICK, p
    return p.stdout + p.stderr


def whole_cluster():
    with cluster() as c, Identity():
        for job in ("ps", "worker"):
            assert total(c.target(job)) == 6.0 * 1024 * 1024
        told = command("status", c.target("ps"), c.target("worker"))
        assert "/job:ps/replica:0/task:0" in told and "/job:worker/replica:0/task:0" in told, told


def options_of_a_session():
    """A program may say which certificates are its own, for one session; what the environment says is then nothing."""
    def files(pair, ca):
        return {"tls_cert": pair[0].encode(), "tls_key": pair[1].encode(), "tls_ca": ca.encode()}
    with cluster() as c:
        assert total(c.target("ps"), **files(CLIENT, CA.ca)) == 6.0 * 1024 * 1024
        with Identity(STRANGER, OTHER.ca):
            assert total(c.target("worker"), **files(CLIENT, CA.ca)) == 6.0 * 1024 * 1024
        for given, text in (({"tls_cert": CLIENT[0].encode()}, "--tls_key is missing"),
                            (files((CLIENT[0], "/nowhere"), CA.ca), "--tls_key=/nowhere"),
                            (files(CLIENT, OTHER.ca), "not signed by the authority")):
            try:
                total(c.target("ps"), **given)
            except shoal.Error as e:
                assert text in str(e), e
            else:
                raise AssertionError(f"no error: {text}")


def tools():
    """`shoal status` and `shoal stop` show a certificate given by flags; a ps that is stopped ends with 0."""
    with cluster() as c:
        assert "sessions" in command("status", *flags(CLIENT, CA.ca), c.target("ps"))
        spec = str(c.lists()).replace("'", '"')
        command("stop", *flags(CLIENT, CA.ca), "--cluster_spec=" + spec)
        for t in c.tasks.values():
            assert t.process.wait(PATIENCE) == 0, t.text()


def task_of_one_index():
    """A certificate for one task alone: right for that task, wrong for another of its job."""
    c = Cluster(ps=["shoal"], worker=["shoal", "shoal"])
    c.tasks["ps", 0].flags += flags(PS, CA.ca)
    c.tasks["worker", 0].flags += flags(WORKER, CA.ca)
    c.tasks["worker", 1].flags += flags(WORKER_1, CA.ca)
    with c, Identity():
        for i in (0, 1):
            assert total(c.target("worker", i)) == 6.0 * 1024 * 1024
    with cluster(worker=WORKER_1) as c, Identity():
        refused(c.target("ps"), [16], "/job:worker/replica:0/task:0", "another name")


def wrong_job():
    """A task that shows another job's certificate is not talked to."""
    with cluster(ps=WORKER) as c, Identity():
        refused(c.target("worker"), [16], "/job:ps/replica:0/task:0", c.spec["ps"]["0"], "another name")


def wrong_authority():
    with cluster() as c:
        with Identity(CLIENT, OTHER.ca):
            refused(c.target("ps"), [16], "not signed by the authority")
        with Identity(STRANGER, CA.ca):
            refused(c.target("ps"), [14], "certificate")
        told = command("status", *flags(CLIENT, OTHER.ca), c.target("ps"), code=1)
        assert "not signed by the authority" in told, told


def chains():
    """Authorities under the authority; certificates that are out of date, of another purpose, or signed by whom it does
    not behoove: who is taken, and what is said of whom is not."""
    under = Authority(TOP.name, "under", CA)
    last = Authority(TOP.name, "last", CA, "CA:TRUE,pathlen:0")
    beyond = Authority(TOP.name, "beyond", last)
    no_authority = Authority(TOP.name, "none", CA, "CA:FALSE")
    old = Authority(TOP.name, "old", CA)
    old.ca, _ = CA.sign("old", extensions=("basicConstraints=critical,CA:TRUE",), days=-1)

    def leaf(of, **more):
        return of.sign("leaf", "DNS:*.ps.shoal", *HOST, **more)
    purpose = {"extensions": ("extendedKeyUsage=clientAuth",)}

    def ask(pair, client, ca, code, server_ca=CA.ca):
        c = Cluster(ps=["shoal"])
        c.tasks["ps", 0].flags += flags(pair, server_ca)
        with c:
            return command("status", *flags(client, ca), c.target("ps"), code=code)
    good = leaf(under)
    assert "/job:ps" in ask(chained(good, under), CLIENT, CA.ca, 0)
    for pair, text in ((good, "those in between"),
                       (chained(leaf(beyond), beyond, last), "may not make others"),
                       (chained(leaf(no_authority), no_authority), "no authority's"),
                       (chained(leaf(old), old), "out of date"),
                       (CA.sign("expired", *HOST, days=-1), "out of date"),
                       (CA.sign("purpose", *HOST, **purpose), "serverAuth and clientAuth")):
        told = ask(pair, CLIENT, CA.ca, 1)
        assert text in told and "UNAUTHENTICATED" in told, told
    # The same of clients, who are hung up on.
    client = under.sign("client", "DNS:client.example")
    assert "/job:ps" in ask(PS, chained(client, under), CA.ca, 0)
    for pair in (client, chained(leaf(no_authority), no_authority), CA.sign("late", "DNS:client.example", days=-1),
                 CA.sign("server", "DNS:client.example", extensions=("extendedKeyUsage=serverAuth",))):
        assert "hung up" in ask(PS, pair, CA.ca, 1)
    # An authority under another may be the one that is trusted: then what is signed above it is not.
    assert "/job:ps" in ask(good, client, under.ca, 0, under.ca)
    assert "not signed by the authority" in ask(PS, client, under.ca, 1)
    assert "hung up" in ask(good, CLIENT, under.ca, 1, under.ca)


def no_certificate():
    with cluster() as c, Identity(None, CA.ca):
        refused(c.target("ps"), [14], "certificate")


def plain_client():
    with cluster() as c:
        refused(c.target("ps"), [14], "wants TLS")
        assert "wants TLS" in command("status", c.target("ps"), code=1)
        assert "wants TLS" in command("stop", c.target("ps"), code=1)
        # TensorFlow's client speaks plain text alone, and waits as long as it is told to.
        with tf.Graph().as_default():
            x = tf.constant(1.0)
            s = tf.Session(c.target("ps"), config=tf.ConfigProto(operation_timeout_in_ms=2000))
            try:
                s.run(x)
            except (tf.errors.UnavailableError, tf.errors.DeadlineExceededError):
                pass
            else:
                raise AssertionError("no error")
        with Identity():
            assert total(c.target("ps")) == 6.0 * 1024 * 1024


def plain_server():
    with Cluster(ps=["shoal"], worker=["shoal"]) as c:
        with Identity():
            refused(c.target("ps"), [16], "does not speak TLS")
        assert "does not speak TLS" in command("status", *flags(CLIENT, CA.ca), c.target("ps"), code=1)
        assert total(c.target("ps")) == 6.0 * 1024 * 1024


def mixed_cluster():
    """A task without TLS among others with it: the session says which."""
    c = Cluster(ps=["shoal"], worker=["shoal"])
    c.tasks["worker", 0].flags += flags(WORKER, CA.ca)
    with c, Identity():
        refused(c.target("worker"), [16], "/job:ps/replica:0/task:0", "does not speak TLS")


def server_certificate_alone():
    """Without --tls_ca servers ask for no certificate; whoever connects still checks theirs."""
    c = Cluster(ps=["shoal"])
    c.tasks["ps", 0].flags += flags(PS, CA.ca)[:2]
    with c, Identity(None, CA.ca):
        assert "sessions" in command("status", c.target("ps"))


def raw(address, pair, method, request):
    def read(path):
        with open(path, "rb") as f:
            return f.read()
    credentials = grpc.ssl_channel_credentials(read(CA.ca), read(pair[1]), read(pair[0]))
    with grpc.secure_channel(address, credentials) as channel:
        return channel.unary_unary(method)(request, timeout=60)


def denied(address, pair, method, request, text):
    try:
        raw(address, pair, method, request)
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.PERMISSION_DENIED and text in e.details(), e
        return
    raise AssertionError("no error")


def clients_are_no_tasks():
    """A client's certificate opens sessions, but is no worker's master."""
    with cluster() as c:
        address = c.spec["ps"]["0"]
        service = "/tensorflow.WorkerService/"
        for method in ("CreateWorkerSession", "DeleteWorkerSession", "RegisterGraph", "DeregisterGraph", "RunGraph",
                       "CleanupGraph", "CleanupAll", "RecvTensor", "Logging", "Tracing", "MarkRecvFinished"):
            denied(address, CLIENT, service + method, b"", "names no task of this cluster")
        assert raw(address, CLIENT, service + "GetStatus", b"")
        # A worker that says it is a ps.
        request = b"\x0a\x01s" + b"\x2a\x18/job:ps/replica:0/task:0"
        denied(address, WORKER, service + "CreateWorkerSession", request, "calls itself /job:ps/replica:0/task:0")
        request = b"\x0a\x01s" + b"\x2a\x1c/job:worker/replica:0/task:0"
        raw(address, WORKER, service + "CreateWorkerSession", request)


def names_that_only_look_like_a_task():
    """An e-mail address, a URI, a name that ends where a NUL is, a number that no task has: none of them makes a task of its
    holder."""
    def holder(kind, value):
        der = bytes([kind, len(value)]) + value
        der = b"0" + bytes([len(der)]) + der
        return CA.sign(f"odd{kind}", "DER:" + ":".join(f"{b:02x}" for b in der))
    email, dns, uri = 0x81, 0x82, 0x86
    with cluster(more=["--greeting_timeout=10"]) as c:
        address = c.spec["ps"]["0"]
        for kind, value in ((email, b"0.worker.shoal"), (uri, b"0.worker.shoal"), (dns, b"0.worker.shoal\0.example.com"),
                            (dns, b"*.worker.shoal\0"), (dns, b"+0.worker.shoal"), (dns, b"00.worker.shoal"),
                            (dns, b"1.worker.shoal"), (dns, b"*.*.shoal"), (dns, b"0.worker.shoal.")):
            pair = holder(kind, value)
            denied(address, pair, "/tensorflow.WorkerService/RegisterGraph", b"", "names no task of this cluster")
        pair = holder(dns, b"0.worker.shoal")  # the same, as it should be
        try:
            raw(address, pair, "/tensorflow.WorkerService/RegisterGraph", b"")
        except grpc.RpcError as e:
            assert e.code() != grpc.StatusCode.PERMISSION_DENIED, e
        # Whoever does not even begin with TLS is not waited for.
        with socket.create_connection((address.rsplit(":", 1)[0], int(address.rsplit(":", 1)[1])), PATIENCE) as mute:
            mute.sendall(b"\x16\x03\x01")
            assert mute.recv(1) == b""


def bad_files():
    spec = '--cluster_spec={"a": ["127.0.0.1:0"]}'
    for code, given, texts in ((2, [f"--tls_cert={PS[0]}"], ["--tls_key is missing"]),
                               (2, [f"--tls_ca={CA.ca}"], [f"--tls_ca={CA.ca} alone", "give --tls_cert and --tls_key"]),
                               (2, ["--tls_cert=", "--tls_key=", "--tls_ca="], ["--tls_cert=: expected FILE"]),
                               (2, ["--tls_cert=/nowhere", f"--tls_key={PS[1]}"], ["--tls_cert=/nowhere"]),
                               (2, [f"--tls_cert={PS[0]}", "--tls_key=/etc/hostname"], ["--tls_key", "no PEM"]),
                               (2, [f"--tls_cert={PS[0]}", f"--tls_key={WORKER[1]}"], ["--tls_cert", "--tls_key"])):
        told = command("server", spec, "--job_name=a", *given, code=code)
        for t in texts:
            assert t in told, told
    # A client's are tried before anyone is connected to, and nobody is asked for a pass phrase.
    with tempfile.TemporaryDirectory() as folder:
        locked = f"{folder}/locked.key"
        subprocess.run(["openssl", "pkey", "-in", PS[1], "-aes256", "-passout", "pass:word", "-out", locked], check=True)
        for pair, ca, text in (((PS[0], WORKER[1]), CA.ca, "--tls_key is not that of the certificate"),
                               ((PS[1], PS[1]), CA.ca, "--tls_cert holds no certificate"),
                               ((PS[0], PS[0]), CA.ca, "--tls_key holds no private key"),
                               ((PS[0], locked), CA.ca, "without a pass phrase"),
                               (PS, PS[1], "--tls_ca holds no certificate of an authority")):
            for name in ("status", "stop", "devices"):
                told = command(name, *flags(pair, ca), "grpc://127.0.0.1:1", code=2)
                assert text in told, told


def listening(port):
    """The local addresses that somebody listens on at a port, in hexadecimal."""
    found = set()
    for name in filter(os.path.exists, ("/proc/net/tcp", "/proc/net/tcp6")):
        with open(name) as f:
            for line in f.readlines()[1:]:
                local, state = line.split()[1], line.split()[3]
                if state == "0A" and int(local.split(":")[1], 16) == port:
                    found.add(local.split(":")[0])
    return found


def binds_loopback():
    for more, wide in (([], False), (["--insecure_bind_all"], True)):
        with Cluster(more, a=["shoal"]) as c:
            found = listening(int(c.spec["a"]["0"].split(":")[1]))
            loopback = {a for a in found if a == "0100007F" or a.endswith(("0000000001000000", "FFFF00000100007F"))}
            assert found and bool(found - loopback) == wide, (more, found)
    # An address beyond loopback: refused without protection, taken with certificates or the flag.
    port = free_ports(1)[0]
    spec = '--cluster_spec={"ps": ["%s:%d"]}' % (socket.gethostname() + ".invalid", port)
    told = command("server", spec, "--job_name=ps", code=2)
    assert "is not on loopback" in told and "--insecure_bind_all" in told and "--tls_cert" in told, told
    for more in (["--insecure_bind_all"], flags(PS, CA.ca)):
        p = subprocess.Popen([SHOAL, "server", spec, "--job_name=ps", *more], stdout=subprocess.PIPE, text=True)
        assert "listening on" in p.stdout.readline()
        assert listening(port) - {"0100007F"}, more
        p.terminate()
        assert p.wait(PATIENCE) == 0


def tunnel():
    """TensorFlow's ps and a Shoal worker, as if on two hosts, joined by stunnel as docs/security.md has it: plain text on
    loopback, TLS between. On one host the far ends of the tunnels need ports of their own."""
    if not shutil.which("stunnel"):
        raise Skip("there is no stunnel")
    c = Cluster(ps=["tf"], worker=["shoal"])
    ends = {job: int(c.spec[job]["0"].split(":")[1]) for job in c.spec}
    ports = free_ports(4)
    wires, far = dict(zip(ends, ports)), dict(zip(ends, ports[2:]))
    here = {job: {j: {"0": f"127.0.0.1:{(ends if j == job else far)[j]}"} for j in ends} for job in ends}
    tunnels = []
    try:
        for job, (cert, key) in (("ps", PS), ("worker", WORKER)):
            other = "worker" if job == "ps" else "ps"
            path = os.path.join(TOP.name, job + ".conf")
            with open(path, "w") as f:
                f.write(f"""foreground = yes
pid =
cert = {cert}
key = {key}
CAfile = {CA.ca}
verifyChain = yes
[{job}-in]
accept = 127.0.0.1:{wires[job]}
connect = 127.0.0.1:{ends[job]}
[{other}-out]
client = yes
accept = 127.0.0.1:{far[other]}
connect = 127.0.0.1:{wires[other]}
""")
            tunnels.append(subprocess.Popen(["stunnel", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            c.tasks[job, 0].spec = here[job]
        with c, tf.Graph().as_default():
            with tf.device("/job:ps/task:0"):
                v = tf.Variable(tf.fill([256, 1024], 2.0))
            with tf.device("/job:worker/task:0"):
                y = tf.reduce_sum(v * 3.0)
            for job in ("worker", "ps"):
                config = tf.ConfigProto(operation_timeout_in_ms=60000)
                with tf.Session("grpc://127.0.0.1:%d" % ends[job], config=config) as s:
                    s.run(v.initializer)
                    assert s.run(y) == 6.0 * 256 * 1024
    finally:
        for p in tunnels:
            p.terminate()
            p.wait()


def new_keys_without_end():
    """TLS's own messages cost more than they have bytes: a few are part of every connection, many end it."""
    with cluster() as c:
        address = c.target("worker").removeprefix("grpc://")
        p = subprocess.Popen(["openssl", "s_client", "-tls1_3", "-alpn", "h2", "-connect", address, "-cert", CLIENT[0],
                              "-key", CLIENT[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        out = bytearray()

        def listen():
            while data := os.read(p.stdout.fileno(), 65536):
                out.extend(data)

        def say(what, answer):
            """Waits for what follows, once more than so far; False when the connection is over."""
            before = out.count(answer)
            try:
                p.stdin.write(what)
                p.stdin.flush()
            except BrokenPipeError:
                return False
            until(lambda: out.count(answer) > before or p.poll() is not None, what=lambda: out.decode(errors="replace"))
            return out.count(answer) > before

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            assert say(PREFACE + frame(SETTINGS, 0, 0), frame(SETTINGS, 1, 0)), bytes(out)
            for i in range(5):
                assert say(b"k\n", b"KEYUPDATE"), bytes(out)
                ping = struct.pack(">Q", i)
                assert say(frame(PING, 0, 0, ping), frame(PING, 1, 0, ping)), bytes(out)
            assert not all(say(b"k\n", b"KEYUPDATE") for _ in range(1000)), "a thousand new keys"
            p.wait(PATIENCE)
        finally:
            p.kill()
            p.wait()
            thread.join()
        with Identity():
            assert total(c.target("worker")) == 6 << 20


def hello(*args):
    """What openssl's client begins with, as bytes that anybody may send again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        p = subprocess.Popen(["openssl", "s_client", "-alpn", "h2", *args, "-connect",
                              "127.0.0.1:%d" % listener.getsockname()[1]],
                             stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            peer, _ = listener.accept()
            with peer, peer.makefile("rb") as f:
                head = f.read(5)
                return head + f.read(int.from_bytes(head[3:], "big"))
        finally:
            p.kill()
            p.communicate()


def dear_handshakes():
    """A recorded greeting costs its sender nothing: what would cost us a third of a second is not to be had."""
    alert, handshake = b"\x15", b"\x16"
    with cluster() as c:
        host, port = c.target("worker").removeprefix("grpc://").split(":")
        for args, answer in ((("-tls1_3", "-groups", "ffdhe8192"), alert), (("-tls1_3", "-groups", "ffdhe2048"), alert),
                             (("-tls1_3", "-groups", "P-521"), alert), (("-tls1_3",), handshake),
                             (("-tls1_3", "-groups", "P-256"), handshake), (("-tls1_2",), handshake),
                             (("-tls1_2", "-cipher", "DHE:RSA:@SECLEVEL=0"), alert)):
            with socket.create_connection((host, int(port)), PATIENCE) as s:
                s.sendall(hello(*args))
                assert s.recv(1) == answer, args


TESTS = [(fn.__name__.replace("_", " "), fn) for fn in (
    whole_cluster, options_of_a_session, tools, task_of_one_index, wrong_job, wrong_authority, chains, no_certificate,
    plain_client, plain_server,
    mixed_cluster, server_certificate_alone, clients_are_no_tasks,
    names_that_only_look_like_a_task, new_keys_without_end, dear_handshakes, bad_files, binds_loopback, tunnel)]

if __name__ == "__main__":
    code = report(TESTS)
    TOP.cleanup()
    sys.exit(code)
