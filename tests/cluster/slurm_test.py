"""Under a real Slurm, of one node, whose daemons this test starts by itself: munged, slurmctld, slurmd. The recipes are
those of docs/deploy.md, read from there; only the number of nodes is another, and ./mnist_replica is told how long to train.

Needs Debian's packages slurmctld, slurmd, slurm-client and munge, and root; skipped without them.
"""
# not on the soft device: it is about what starts servers
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from cluster import ROOT, SHOAL, free_ports, report, until

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
# A ps waits; workers look for a server at the ps' address and say who they are.
PROGRAM = f"""
for a in "$@"; do case $a in --job_name=*) job=${{a#*=}};; --task_index=*) task=${{a#*=}};; --ps_hosts=*) ps=${{a#*=}};; esac; done
[ "$job" = ps ] && exec {SHOAL} server --insecure_bind_all "$@"
until {SHOAL} status "grpc://$ps" >/dev/null 2>&1; do sleep 0.1; done
echo "I am $job $task $TF_CONFIG"
exit ${{CODE:-0}}
"""


class Slurm:
    """The daemons, in a folder of their own."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp()
        host = socket.gethostname().split(".")[0]
        with open(f"{self.folder}/key", "wb") as f:
            f.write(os.urandom(1024))
        os.chmod(f"{self.folder}/key", 0o600)
        for d in ("state", "spool"):
            os.mkdir(f"{self.folder}/{d}")
        with open(f"{self.folder}/slurm.conf", "w") as f:
            f.write(CONFIG.format(host=host, folder=self.folder, ports=free_ports(2)))
        self.env = {**os.environ, "SLURM_CONF": f"{self.folder}/slurm.conf"}
        self.daemons = []
        d = self.folder
        self.start("munged", "--force", "-F", f"--key-file={d}/key", f"--socket={d}/munge.socket",
                   f"--pid-file={d}/munge.pid", f"--log-file={d}/munge.log", f"--seed-file={d}/seed")
        until(lambda: os.path.exists(f"{d}/munge.socket"))
        self.start("slurmctld", "-D", "-i")
        self.start("slurmd", "-D", "-N", host)
        until(lambda: "idle" in self.run("sinfo", "-h", "-o", "%T")[0], what=lambda: self.run("sinfo")[0])
        return self

    def start(self, name, *flags):
        log = open(f"{self.folder}/{name}.out", "w")
        self.daemons.append(subprocess.Popen([shutil.which(name, path="/usr/sbin:/usr/bin"), *flags], stdout=log,
                                             stderr=log, env=self.env))

    def run(self, *command, cwd=None, **env):
        p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240,
                           env={**self.env, **env}, check=False, cwd=cwd)
        return p.stdout, p.returncode

    def job(self, id_):
        """What Slurm says of a job, by name."""
        out, _ = self.run("scontrol", "--oneliner", "show", "job", id_)
        return dict(field.partition("=")[::2] for field in out.split())

    def __exit__(self, *_):
        subprocess.run(["scancel", "--quiet", "--full", "--signal=KILL", "--user=root"], env=self.env, timeout=20, check=False)
        for p in reversed(self.daemons):
            p.terminate()
        for p in self.daemons:
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        for path in glob.glob("/proc/[0-9]*/environ"):  # a step's daemon that missed the end of its slurmd
            try:
                with open(path, "rb") as f:
                    if f"SLURM_CONF={self.folder}/".encode() in f.read():
                        os.kill(int(path.split("/")[2]), signal.SIGKILL)
            except OSError:
                pass
        shutil.rmtree(self.folder)


def recipe(begins):
    """The commands of docs/deploy.md that begin so."""
    with open(os.path.join(ROOT, "docs", "deploy.md")) as f:
        found = [block for block in re.findall(r"^```sh\n(.*?)^```$", f.read(), re.M | re.S) if block.startswith(begins)]
    assert len(found) == 1, found
    return found[0]


class Folder:
    """Where a user would stand: ./mnist_replica, which trains for as many steps as the file `steps` says."""

    def __enter__(self):
        self.path = tempfile.mkdtemp()
        program = os.path.join(os.path.dirname(SHOAL), "examples", "mnist_replica")
        with open(f"{self.path}/mnist_replica", "w") as f:
            f.write(f'#!/bin/sh\nexec {program} --train_steps="$(cat {self.path}/steps)" "$@"\n')
        os.chmod(f"{self.path}/mnist_replica", 0o755)
        with open(f"{self.path}/job.sh", "w") as f:
            f.write(recipe("#!/bin/sh\n#SBATCH"))
        self.env = {"HOME": self.path, "PATH": os.path.dirname(SHOAL) + ":" + os.environ["PATH"]}
        return self

    def steps(self, n):
        with open(f"{self.path}/steps", "w") as f:
            f.write(str(n))

    def submit(self, *flags):
        out, code = slurm.run("sbatch", "--parsable", "--nodes=1", "--ntasks-per-node=4", f"--chdir={self.path}",
                              f"--output={self.path}/out", *flags, f"{self.path}/job.sh", **self.env)
        assert code == 0, out
        return out.strip()

    def output(self):
        try:
            with open(f"{self.path}/out") as f:
                return f.read()
        except OSError:
            return ""

    def __exit__(self, *_):
        shutil.rmtree(self.path)


def batch():
    """A batch job that trains to its end is COMPLETED with 0; the ps has been ended."""
    with Folder() as f:
        f.steps(20)
        id_ = f.submit()
        until(lambda: slurm.job(id_)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"), 240, f.output)
        job = slurm.job(id_)
        assert (job["JobState"], job["ExitCode"]) == ("COMPLETED", "0:0"), (job, f.output())
        assert "all tasks have ended" in f.output() and "step 20/20" in f.output(), f.output()
        assert os.path.exists(f"{f.path}/run/checkpoint"), os.listdir(f.path)


def preempted():
    """Told to end, the launcher by --signal=B: or the tasks themselves: saved, 75, and back in the queue."""
    for flag in ("--batch", None):
        with Folder() as f:
            f.steps(100000000)
            id_ = f.submit()
            until(lambda: re.search(r"worker/0\].* step [1-9]", f.output()), 240, f.output)
            out, code = slurm.run("scancel", *([flag] if flag else []), "--signal=TERM", id_)
            assert code == 0, out
            until(lambda: (slurm.job(id_)["Restarts"], slurm.job(id_)["JobState"]) == ("1", "PENDING"), 240,
                  lambda: (slurm.job(id_), f.output()))
            out = f.output()
            assert f"launch: saved: {f.path}/run/model.ckpt-" in out and "put in the queue again" in out, out
            assert "failed" not in out, out
            slurm.run("scancel", id_)


def under_srun():
    """`srun shoal launch --slurm`: each rank becomes its task; with the end of the workers the ps ends, and srun with 0."""
    with Folder() as f:
        f.steps(20)
        out, code = slurm.run("sh", "-c", recipe("srun "), cwd=f.path, **f.env)
        assert code == 0 and "the job has ended" in out and "step 20/20" in out, (code, out)
    out, code = slurm.run("srun", "--ntasks=2", SHOAL, "launch", "--slurm", "--", "true")
    assert code and "say srun --ntasks=3" in out, out


def in_allocation():
    """In an allocation, `shoal launch --slurm` starts tasks by srun and ends them all; the exit code is the job's."""
    command = ["salloc", "--quiet", "--ntasks=4", SHOAL, "launch", "--slurm", "--port=23450", "--env=CODE", "--workers=2",
               "--grace=5", "--", "sh", "-c", PROGRAM, "program"]
    out, code = slurm.run(*command, CODE="6")
    assert code == 6 and re.search(r"worker/\d on \S+ failed: exit code 6", out), (code, out)
    until(lambda: not slurm.run("squeue", "-h", "--steps")[0].strip(), what=lambda: slurm.run("squeue", "--steps"))


missing = [p for p in ("slurmctld", "slurmd", "munged", "srun", "salloc", "sbatch", "scontrol")
           if not shutil.which(p, path="/usr/sbin:/usr/bin")]
if missing or os.geteuid() != 0:
    print(f"ok - slurm # SKIP needs root and Debian's slurmctld, slurmd, slurm-client, munge ({', '.join(missing)})")
    sys.exit(0)
with Slurm() as slurm:
    sys.exit(report([(f.__doc__.split(";")[0], f) for f in (batch, preempted, under_srun, in_allocation)]))
