"""Under a real Slurm, of one node, whose daemons this test starts by itself: munged, slurmctld, slurmd.

Needs Debian's packages slurmctld, slurmd, slurm-client and munge, and root; skipped without them.
"""
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from cluster import SHOAL, free_ports, report

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
        while not os.path.exists(f"{d}/munge.socket"):
            time.sleep(0.05)
        self.start("slurmctld", "-D", "-i")
        self.start("slurmd", "-D", "-N", host)
        end = time.time() + 60
        while "idle" not in self.run("sinfo", "-h", "-o", "%T")[0]:
            if time.time() > end:
                raise RuntimeError(f"Slurm did not come up: {self.run('sinfo')[0]}")
            time.sleep(0.2)
        return self

    def start(self, name, *flags):
        log = open(f"{self.folder}/{name}.out", "w")
        self.daemons.append(subprocess.Popen([shutil.which(name, path="/usr/sbin:/usr/bin"), *flags], stdout=log,
                                             stderr=log, env=self.env))

    def run(self, *command, **env):
        p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                           env={**self.env, **env}, check=False)
        return p.stdout, p.returncode

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


def in_allocation():
    """In an allocation, `shoal launch --slurm` starts tasks by srun and ends them all; the exit code is the job's."""
    command = ["salloc", "--quiet", "--ntasks=4", SHOAL, "launch", "--slurm", "--port=23450", "--env=CODE", "--workers=2",
               "--grace=5", "--", "sh", "-c", PROGRAM, "program"]
    out, code = slurm.run(*command)
    assert code == 0 and sorted(re.findall(r"I am (\w+ \d)", out)) == ["worker 0", "worker 1"], out
    assert "[ps/0] listening on" in out and "all tasks have ended" in out, out
    out, code = slurm.run(*command, CODE="6")
    assert code == 6 and re.search(r"worker/\d on \S+ failed: exit code 6", out), (code, out)
    end = time.time() + 30
    while slurm.run("squeue", "-h", "--steps")[0].strip():
        assert time.time() < end, slurm.run("squeue", "--steps")
        time.sleep(0.2)


def under_srun():
    """`srun shoal launch --slurm`: each rank becomes its task; srun ends the ps after the workers."""
    out, _ = slurm.run("srun", "--ntasks=3", "--wait=2", "--label", SHOAL, "launch", "--slurm", "--port=23460", "--", "sh",
                       "-c", PROGRAM, "program")
    assert sorted(re.findall(r"I am (\w+ \d)", out)) == ["worker 0", "worker 1"], out
    out, code = slurm.run("srun", "--ntasks=2", SHOAL, "launch", "--slurm", "--", "true")
    assert code and "say srun --ntasks=3" in out, out


missing = [p for p in ("slurmctld", "slurmd", "munged", "srun", "salloc") if not shutil.which(p, path="/usr/sbin:/usr/bin")]
if missing or os.geteuid() != 0:
    print(f"ok - slurm # SKIP needs root and Debian's slurmctld, slurmd, slurm-client, munge ({', '.join(missing)})")
    sys.exit(0)
with Slurm() as slurm:
    sys.exit(report([(f.__doc__.split(";")[0], f) for f in (in_allocation, under_srun)]))
