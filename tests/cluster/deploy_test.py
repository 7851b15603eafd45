"""docs/deploy.md and the certificates of docs/security.md, as they are written: by ssh and by hand on hosts of those
names, which are network namespaces on one cable; the operator's TF_CONFIG with the manifest's arguments; the unit of
systemd. Only ./mnist_replica trains for fewer steps, and in step. (Slurm's recipes are slurm_test.py's.)"""
# not on the soft device: it is about hosts and what starts servers there
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.request

from cluster import ROOT, SHOAL, Skip, free_ports, report

BUILD = os.path.dirname(SHOAL)
DATA = "/usr/share/datasets/fashion-mnist"
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do [ "$1" = -o ] && shift; shift; done
host=${1##*@}; shift
exec ip netns exec PREFIX$host sh -c "$*"
"""


def text_of(name):
    with open(os.path.join(ROOT, "docs", name)) as f:
        return f.read()


def block(name, begins, language=r"\w*"):
    """The one block of a document that begins so."""
    found = [b for b in re.findall(rf"^```{language}\n(.*?)^```$", text_of(name), re.M | re.S) if b.startswith(begins)]
    assert len(found) == 1, (begins, found)
    return found[0]


class Folder(tempfile.TemporaryDirectory):
    """Where a user stands: ./mnist_replica is there, shoal in the PATH."""

    def __enter__(self):
        self.path = super().__enter__()
        if not os.path.isdir(DATA):
            raise Skip(f"there is no {DATA}")
        os.mkdir(f"{self.path}/bin")
        # In step, so that no worker finds the job over before it has begun.
        program = f"{BUILD}/examples/mnist_replica --train_steps=20 --strict"
        self.program("mnist_replica", f'#!/bin/sh\nexec {program} "$@"\n')
        os.symlink("../mnist_replica", f"{self.path}/bin/mnist_replica")
        self.env = {**os.environ, "PATH": f"{self.path}/bin:{BUILD}:{os.environ['PATH']}", "TF_CONFIG": ""}
        return self

    def program(self, name, text):
        with open(f"{self.path}/{name}", "w") as f:
            f.write(text)
        os.chmod(f"{self.path}/{name}", 0o755)

    def start(self, command, **env):
        return subprocess.Popen(["sh", "-ec", command], cwd=self.path, env={**self.env, **env}, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, command, **env):
        return ended(self.start(command, **env))


def ended(p, code=0, seconds=300):
    try:
        said, _ = p.communicate(timeout=seconds)
    finally:
        p.kill()
    assert p.returncode == code, (p.args, p.returncode, said)
    return said


class Lan:
    """Hosts of these names on one cable."""

    def __init__(self, *hosts):
        self.hosts, self.prefix = hosts, f"s{os.getpid()}-"

    def __enter__(self):
        if os.geteuid() or not shutil.which("ip"):
            raise Skip("network namespaces need root, and iproute2")
        try:
            self.ip("netns", "add", self.prefix)
            self.ip("-n", self.prefix, "link", "add", "br0", "type", "bridge")
            self.ip("-n", self.prefix, "link", "set", "br0", "up")
            for i, host in enumerate(self.hosts):
                self.add(host, i)
        except subprocess.CalledProcessError as e:
            self.__exit__()
            raise Skip(f"no network of our own can be had here: {e.stderr}") from e
        return self

    def ip(self, *args):
        subprocess.run(["ip", *args], check=True, capture_output=True, text=True)

    def add(self, host, i):
        name = self.prefix + host
        self.ip("netns", "add", name)
        os.makedirs(f"/etc/netns/{name}")
        with open(f"/etc/netns/{name}/hosts", "w") as f:  # ip netns exec has it as /etc/hosts
            f.write("127.0.0.1 localhost\n" + "".join(f"10.99.0.{k + 1} {h}\n" for k, h in enumerate(self.hosts)))
        self.ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{i}", "netns", self.prefix)
        self.ip("-n", self.prefix, "link", "set", f"p{i}", "master", "br0", "up")
        self.ip("-n", name, "addr", "add", f"10.99.0.{i + 1}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            self.ip("-n", name, "link", "set", device, "up")

    def __exit__(self, *_):
        for host in ("", *self.hosts):
            subprocess.run(["ip", "netns", "del", self.prefix + host], check=False, capture_output=True)
            shutil.rmtree(f"/etc/netns/{self.prefix}{host}", ignore_errors=True)

    def on(self, host, command):
        return f"exec ip netns exec {self.prefix}{host} sh -c {shlex.quote('exec ' + command)}"


def by_ssh():
    """By ssh: a hosts file, four tasks on three hosts."""
    with Lan("cpu1", "gpu1", "gpu2") as lan, Folder() as here:
        here.program("bin/ssh", SSH.replace("PREFIX", lan.prefix))
        said = here.run(block("deploy.md", "cat > hosts"))
        assert "[worker/0] test accuracy" in said and "launch: all tasks have ended" in said, said
        for task, address in (("ps/0", "cpu1:2222 on cpu1"), ("worker/0", "gpu1:2222 on me@gpu1"),
                              ("worker/1", "gpu1:2223 on me@gpu1"), ("worker/2", "gpu2:2222 on gpu2")):
            assert re.search(rf"{task} +{address}", said), said


def by_hand():
    """By hand, on three hosts; the server is stopped as the document says."""
    lines = re.findall(r"^(.*?) +# on (\w)$", block("deploy.md", "shoal server --ps_hosts=a:2222"), re.M)
    stop, = re.findall(r"^`(shoal stop --cluster_spec=.*?)`", text_of("deploy.md"), re.M)
    assert [host for _, host in lines] == ["a", "b", "c"], lines
    with Lan("a", "b", "c") as lan, Folder() as here:
        tasks = [here.start(lan.on(host, command)) for command, host in lines]
        try:
            assert "test accuracy" in ended(tasks[1]) and "local steps" in ended(tasks[2])
            here.run(lan.on("b", stop))
            assert "listening on grpc://a:2222" in ended(tasks[0])
        finally:
            for p in tasks:
                p.kill()


def stateful_sets():
    """Pods of StatefulSets, by their host names."""
    command, = re.findall(r'^command: \["sh", "-c", "(.*?)"\]$', text_of("deploy.md"), re.M | re.S)
    command = re.sub(r"\s+", " ", command)  # as YAML folds it
    pods = ("ps-0", "worker-0", "worker-1")
    with Lan(*(f"{pod}.fashion" for pod in pods)) as lan, Folder() as here:
        tasks = [here.start(f"exec ip netns exec {lan.prefix}{pod}.fashion env HOSTNAME={pod} sh -c '{command}'")
                 for pod in pods]
        try:
            said = [ended(p) for p in tasks[1:] + tasks[:1]]  # the ps of a program of ours ends with its job
            assert "test accuracy" in said[0], said
        finally:
            for p in tasks:
                p.kill()


def operator():
    """TF_CONFIG as the operator writes it, and the manifest's arguments."""
    server, worker = (json.loads(args) for args in re.findall(r"^ +args: (\[.*\])$", text_of("deploy.md"), re.M))
    ps, first, page = free_ports(3)
    config = {"cluster": {"ps": [f"localhost:{ps}"], "worker": [f"localhost:{first}"]}, "environment": "cloud"}
    with Folder() as here:
        worker = [a.replace("=/checkpoints", f"={here.path}/checkpoints").replace("=/data", f"={DATA}") for a in worker]
        server = [a.replace("8080", str(page)) for a in server]
        p = subprocess.Popen([SHOAL, *server], env={**here.env, "TF_CONFIG": json.dumps(
            {**config, "task": {"type": "ps", "index": 0}})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            said = here.run("exec mnist_replica " + " ".join(worker), TF_CONFIG=json.dumps(
                {**config, "task": {"type": "worker", "index": 0}}))
            assert "test accuracy" in said and os.path.exists(f"{here.path}/checkpoints/checkpoint"), said
            with urllib.request.urlopen(f"http://127.0.0.1:{page}/healthz", timeout=60) as answer:
                assert answer.status == 200
            here.run(f"shoal stop grpc://localhost:{ps}")
            ended(p)
        finally:
            p.kill()


def certificates():
    """The certificates of docs/security.md, and the server that it shows."""
    if not shutil.which("openssl"):
        raise Skip("there is no openssl")
    ps, worker = free_ports(2)
    command = block("security.md", "shoal server --cluster_spec=cluster.json")
    flags = "--tls_cert=worker.pem --tls_key=worker.key --tls_ca=ca.pem"
    with Folder() as here:
        with open(f"{here.path}/cluster.json", "w") as f:
            json.dump({"ps": [f"127.0.0.1:{ps}"], "worker": [f"127.0.0.1:{worker}"]}, f)
        here.run(block("security.md", "openssl req -x509"))
        p = here.start("exec " + command)
        try:
            said = here.run(f"exec ./mnist_replica --ps_hosts=127.0.0.1:{ps} --worker_hosts=127.0.0.1:{worker} "
                            f"--job_name=worker {flags}")
            assert "test accuracy" in said, said
            # Without certificates one is told that they are wanted.
            said = ended(here.start(f"exec shoal status grpc://127.0.0.1:{ps}"), code=1)
            assert "give certificates" in said, said
            here.run(f"shoal stop grpc://127.0.0.1:{ps} {flags}")
            ended(p)
        finally:
            p.kill()


def service():
    """The unit of systemd. Its command is one that the server takes."""
    unit = block("deploy.md", "[Unit]", "ini")
    command = re.search(r"^ExecStart=/usr/bin/shoal (.*?[^\\])$", unit, re.M | re.S).group(1).replace("\\\n", " ").split()
    p = subprocess.run([SHOAL, *command], capture_output=True, text=True, timeout=60, check=False)
    assert p.returncode == 2 and "/etc/shoal/cluster.json" in p.stderr, p  # the flags are right, the files are not here


def service_verified():
    """The unit of systemd, by systemd."""
    if not shutil.which("systemd-analyze"):
        raise Skip("there is no systemd-analyze")
    unit = block("deploy.md", "[Unit]", "ini")
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/shoal-ps.service", "w") as f:
            f.write(unit.replace("/usr/bin/shoal", SHOAL).replace("User=shoal", "User=root"))
        p = subprocess.run(["systemd-analyze", "verify", f"{folder}/shoal-ps.service"], capture_output=True, text=True,
                           timeout=120, check=False)
        assert "shoal-ps.service" not in p.stdout + p.stderr, p


if __name__ == "__main__":
    sys.exit(report([(f.__doc__.split(".")[0], f) for f in (
        by_ssh, by_hand, stateful_sets, operator, certificates, service, service_verified)]))
