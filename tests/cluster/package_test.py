"""What a user installs: by README's own commands, as Debian packages, as a wheel; each is used to run a small job.

Here they are laid out in folders. With SHOAL_BARE=1 (`make package-check`, as root) each is installed by apt or pip in a
Debian with nothing in it, and the steps of packaging/Dockerfile are taken in such a system.
"""
# not on the soft device: it is about what is installed
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from cluster import Skip, report

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("SHOAL_BUILD", os.path.join(ROOT, "build"))
# One ps of Shoal's, one worker that finds it there.
JOB = """shoal launch --ps=1 --workers=1 --ps_server -- sh -c \
'p=${1#*=}; until shoal status grpc://$p; do sleep 0.1; done; echo found' program"""
IN_PLACE = """
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
server = tf.train.Server({"worker": ["localhost:0"]}, job_name="worker", task_index=0)
with tf.Session(server.target) as session:
    print("sum", session.run(tf.constant(40) + 2), "by", type(tf.train.Server(
        {"worker": ["localhost:0"]}, job_name="worker", task_index=0, start=False)._server).__name__)
"""


def sh(command, env=None, seconds=600, cwd=ROOT):
    """What a shell says to a command, which must succeed. A test inside `make test` is not part of that make, and what cards
    the build folder has kernels for is left as it is."""
    env = {k: v for k, v in {**os.environ, "CARDS": "", **(env or {})}.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    p = subprocess.run(["bash", "-ec", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd,
                       timeout=seconds, check=False, env=env)
    assert p.returncode == 0, f"{command}\n{p.stdout}"
    return p.stdout


def readme():
    """README's commands for installing, as they are written."""
    with open(os.path.join(ROOT, "README.md")) as f:
        section = f.read().split("## Installing")[1].split("\n## ")[0]
    block = re.search(r"```sh\n(.*?)```", section, re.S).group(1)
    with tempfile.TemporaryDirectory() as home:
        os.makedirs(f"{home}/.cache")
        os.symlink(os.path.expanduser("~/.cache/shoal"), f"{home}/.cache/shoal")
        said = sh(block.replace("/tmp/hello", f"{home}/hello"), {"HOME": home, "BUILD": BUILD})
        assert "40 + 2 = 42\n" in said and re.search(r"^shoal \d+\.\d+\.\d+$", said, re.M), said
        told = re.search(r"^  (export PKG_CONFIG_PATH=.*)$", said, re.M).group(1)
        assert told.replace("'", "").replace(home, "$HOME") in block, (told, block)
        assert not os.listdir(f"{home}/shoal"), sh(f"find {home}/shoal")


def make_debs(folder):
    missing = [p for p in ("cpack", "dpkg-shlibdeps", "file") if not shutil.which(p)]
    if missing:
        raise Skip(f"needs {', '.join(missing)}")
    sh(f"cpack -G DEB -B {folder}", cwd=BUILD)
    return {os.path.basename(p).split("_")[0]: p for p in glob.glob(f"{folder}/*.deb")}


def debian_packages():
    """Three packages; the command of one finds the library of another; what they need is said."""
    with tempfile.TemporaryDirectory() as folder:
        debs = make_debs(folder)
        assert sorted(debs) == ["libshoal-dev", "libshoal0", "shoal"], debs
        needs = {name: sh(f"dpkg -f {path} Depends") for name, path in debs.items()}
        assert "libshoal0 (= " in needs["shoal"] and "libshoal0 (= " in needs["libshoal-dev"], needs
        assert all(f"lib{x}" in needs["libshoal0"] for x in ("ssl3", "openblas0", "nghttp2-14", "protobuf-c1")), needs
        for path in debs.values():
            sh(f"dpkg-deb -x {path} {folder}/root")
        usr = f"{folder}/root/usr"
        said = sh(JOB, {"PATH": f"{usr}/bin:{os.environ['PATH']}"})
        assert "found" in said, said
        # The files for pkg-config are right wherever the folder is.
        flags = sh("pkg-config --cflags --libs shoal", {"PKG_CONFIG_PATH": f"{usr}/lib/pkgconfig"}).strip()
        assert "40 + 2 = 42" in sh(f"cc examples/hello.c -o {folder}/hello {flags} && {folder}/hello",
                                   {"LD_LIBRARY_PATH": f"{usr}/lib"})
        assert "PROGRAM.py" in sh(f"{usr}/bin/shoal-in-place 2>&1 || true")
    # Those of another version go: README has *.deb.
    os.makedirs(f"{BUILD}/packages", exist_ok=True)
    open(f"{BUILD}/packages/shoal_0.0.1_all.deb", "w").close()
    sh(f"make deb BUILD={BUILD}")
    assert len(glob.glob(f"{BUILD}/packages/*.deb")) == 3, os.listdir(f"{BUILD}/packages")


def wheel():
    """In an environment of its own: the command, with none of the system's libraries; TensorFlow's servers replaced."""
    with tempfile.TemporaryDirectory() as folder:
        open(f"{folder}/shoal-0.0.1-py3-none-any.whl", "w").close()  # one of another version goes
        sh(f"python3 packaging/wheel.py {BUILD} {folder}")
        made, = glob.glob(f"{folder}/*.whl")
        if subprocess.run([sys.executable, "-c", "import ensurepip, venv"], check=False).returncode:
            raise Skip("needs python3-venv")
        sh(f"{sys.executable} -m venv {folder}/env && {folder}/env/bin/pip install -q --no-index {made}")
        path = {"PATH": f"{folder}/env/bin:{os.environ['PATH']}"}
        assert "found" in sh(JOB, path)
        loaded = sh("LD_DEBUG=libs shoal status grpc://127.0.0.1:1 2>&1 || true", path)
        inside = re.findall(r"calling init: (\S+)/lib(?:shoal|openblas|crypto|protobuf-c)\.so", loaded)
        assert len(inside) == 4 and all("lib/shoal" in p for p in inside), inside
        assert sh("python -m shoal --version", path) == sh("shoal --version", path)
        have = [p for p in sys.path if os.path.isdir(os.path.join(p, "tensorflow"))]
        if not have:
            raise Skip("there is no TensorFlow: the command was tried, shoal.in_place was not (make deps)")
        with open(f"{folder}/train.py", "w") as f:
            f.write(IN_PLACE)
        said = sh(f"python -m shoal.in_place {folder}/train.py", {**path, "PYTHONPATH": have[0]})
        assert "sum 42 by ServerProcess" in said, said


def bare(name, command):
    return sh(f". tools/env.sh; . tools/chroot.sh; chroot_run {name} bash -ec {shlex.quote(command)}", seconds=7200)


def fresh(name):
    """A bare system with nothing in it but git and make; its folder."""
    if not os.environ.get("SHOAL_BARE"):
        raise Skip("make package-check, as root")
    return sh(f". tools/env.sh; . tools/chroot.sh; chroot_new {name} >&2; echo $CHROOTS/{name}", seconds=3600).split()[-1]


def bare_packages():
    """In a bare Debian: the packages by apt, then a program; the wheel by pip."""
    root = fresh("packages")
    with tempfile.TemporaryDirectory() as folder:
        debs = make_debs(folder)
        sh(f"python3 packaging/wheel.py {BUILD} {folder}")
        for path in [*debs.values(), *glob.glob(f"{folder}/*.whl"), *glob.glob(f"{ROOT}/examples/*.h"),
                     f"{ROOT}/examples/hello.c"]:
            shutil.copy(path, f"{root}/root/")
    install = "apt-get install -y -qq --no-install-recommends"
    bare("packages", f"{install} /root/libshoal0_*.deb /root/shoal_*.deb")
    assert "found" in bare("packages", JOB)
    bare("packages", f"{install} gcc libc6-dev pkg-config /root/libshoal-dev_*.deb")
    assert "40 + 2 = 42" in bare("packages", "cd /root; cc hello.c -o hello $(pkg-config --cflags --libs shoal); ./hello")
    # Without the packages' own libraries.
    bare("packages", f"apt-get purge -y -qq libshoal0 shoal libshoal-dev && apt-get autoremove -y -qq && {install} python3-venv")
    bare("packages", "python3 -m venv /root/env && /root/env/bin/pip install -q --no-index /root/*.whl")
    assert "found" in bare("packages", "export PATH=/root/env/bin:$PATH; " + JOB)


def dockerfile():
    """The steps of packaging/Dockerfile in bare systems: the demo of one stage, the command of the last."""
    fresh("docker-build")
    with open(f"{ROOT}/packaging/Dockerfile") as f:
        steps = [line.split(None, 1) for line in f.read().splitlines() if line and not line.startswith("#")]
    stages, stage, cwd = {}, None, "/"
    for step, rest in steps:
        if step == "FROM":
            image, _, name = rest.partition(" AS ")
            if image in stages:  # goes on in the system of the other stage
                stage = stages[name] = stages[image]
            else:
                assert image == "debian:bookworm", image
                stage, cwd = f"docker-{name or 'last'}", "/"
                stages[name or "last"] = stage
                root = fresh(stage)
        elif step == "WORKDIR":
            cwd = rest
        elif step == "COPY" and rest.startswith("--from="):
            other, source, to = re.match(r"--from=(\S+) (\S+) (\S+)", rest).groups()
            from_ = os.path.join(os.path.dirname(root), stages[other])
            sh(f"mkdir -p {root}{to} && cp {from_}{source} {root}{to}")
        elif step == "COPY":
            sh(f"mkdir {root}{rest.split()[1]} && git archive HEAD | tar -x -C {root}{rest.split()[1]}")
        elif step == "RUN":
            bare(stage, f"cd {cwd}; export CCACHE_BASEDIR={cwd}; {rest}")
        elif step == "CMD":
            assert rest == '["make", "demo"]', rest
            assert re.search(r"^test accuracy +0\.\d+", bare(stage, f"cd {cwd}; make demo"), re.M)
        else:
            assert step == "ENTRYPOINT" and rest == '["shoal"]', (step, rest)
    assert re.match(r"shoal \d", bare("docker-last", "shoal --version"))
    assert "found" in bare("docker-last", JOB)


sys.exit(report([(f.__doc__.split(":")[0].rstrip("."), f) for f in
                 (readme, debian_packages, wheel, bare_packages, dockerfile)]))
