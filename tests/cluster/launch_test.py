"""`shoal launch`: what tasks are told, how they end, and that nothing is ever left behind.

The programs are small shell scripts; every test marks its processes by a variable in their environment and looks through
/proc for any that still has it.
"""
# not on the soft device: shell scripts stand for the programs
import fcntl
import glob
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

from cluster import SHOAL, Skip, free_ports, report, until

NUMBER = iter(range(1000))
# By job: ps tasks wait for ever, others do what $BODY says with $job and $task.
SCRIPT = """
for a in "$@"; do case $a in --job_name=*) job=${a#*=};; --task_index=*) task=${a#*=};; esac; done
[ "$job" = ps ] && { echo "ps up"; exec sleep 1000; }
eval "$BODY"
"""


class Job:
    def __init__(self, body, *flags, program=None, env=None, terminal=False, columns=120, rows=24, shell=None):
        self.mark = f"SHOAL_LAUNCH_TEST_{os.getpid()}_{next(NUMBER)}"
        command = [SHOAL, "launch", *flags, "--", *(program or ["sh", "-c", SCRIPT, "program"])]
        if shell:  # with jobs of its own, as on a terminal
            command = ["bash", "-mc", shell, "bash", *command]
        env = {**os.environ, self.mark: "1", "BODY": body, **(env or {})}
        self.terminal = None
        if terminal:
            self.terminal, inner = pty.openpty()
            fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            env["TERM"] = "xterm"
            self.p = subprocess.Popen(command, env=env, stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
                                      preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
            os.close(inner)
        else:
            self.p = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self, seconds=120):
        """Its output and exit code; nothing may be left."""
        self.out, _ = self.p.communicate(timeout=seconds)
        self.nothing_left(0)
        return self.out, self.p.returncode

    def rest_of_terminal(self):
        """What comes until the last who writes there has gone; it ends well."""
        text = b""
        try:
            while True:
                text += os.read(self.terminal, 65536)
        except OSError:  # how a terminal says so
            pass
        assert self.p.wait(60) == 0, text
        return text

    def processes(self):
        found = []
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as f:
                    if self.mark.encode() + b"=" in f.read():
                        found.append(int(path.split("/")[2]))
            except OSError:
                pass
        return found

    def wait_for(self, n, seconds=120):
        """Until there are n processes."""
        end = time.time() + seconds
        while len(self.processes()) < n:
            assert time.time() < end, self.processes()
            time.sleep(0.02)

    def nothing_left(self, seconds=60):
        end = time.time() + seconds
        while self.processes():
            assert time.time() < end, [open(f"/proc/{p}/cmdline").read() for p in self.processes()]
            time.sleep(0.05)


def told():
    """TF_CONFIG and the four flags; prefixes; the end of the workers ends ps."""
    out, code = Job('echo "$job $task $* $TF_CONFIG"', "--ps=2", "--workers=2", "--chief", "--evaluator").end()
    assert code == 0, out
    lines = dict(re.findall(r"^\[(\w+/\d)\] (.*--job_name.*)$", out, re.M))
    assert sorted(lines) == ["chief/0", "evaluator/0", "worker/0", "worker/1"], out
    assert out.count("] ps up") == 2, out
    for name, line in lines.items():
        job, task = name.split("/")
        config = json.loads(line[line.index("{"):])
        assert config["task"] == {"type": job, "index": int(task)}, config
        cluster = config["cluster"]
        assert {k: len(v) for k, v in cluster.items()} == {"ps": 2, "chief": 1, "worker": 2}
        assert f"--ps_hosts={','.join(cluster['ps'])} " in line and f"--worker_hosts={','.join(cluster['worker'])} " in line
        assert f"--chief_hosts={cluster['chief'][0]}" in line
        assert len({a for tasks in cluster.values() for a in tasks}) == 5


def placeholders():
    """{task_index} in an argument is filled in and nothing is appended; --flags=false appends nothing."""
    out, code = Job("", "--ps=0", "--workers=1", program=["echo", "n={task_index}", "{worker_hosts}", "{x}"]).end()
    assert code == 0 and re.search(r"^\[worker/0\] n=0 127.0.0.1:\d+ \{x\}$", out, re.M), out
    out, code = Job("", "--ps=0", "--workers=1", "--flags=false", program=["echo", "it's", "a b"]).end()
    assert code == 0 and "[worker/0] it's a b\n" in out, out


def failure():
    """The first failure ends the job with its exit code, the task's name and its last lines."""
    out, code = Job('[ $task = 1 ] && { for i in 1 2 3; do echo "line $i" >&2; done; exit 7; }; sleep 1000').end()
    assert code == 7, (code, out)
    report_ = out[out.index("launch: worker/1 failed: exit code 7"):]
    assert report_.count("  | line") == 3, out
    out, code = Job('[ $task = 1 ] && kill -SEGV $$; sleep 1000').end()
    assert code == 128 + signal.SIGSEGV and "worker/1 failed: signal 11" in out, out


def restarts():
    """A failed task is started again, at most so often, on the same address."""
    with tempfile.TemporaryDirectory() as folder:
        body = f'echo "$*" >> {folder}/$job$task; [ $task = 0 ] || [ $(wc -l < {folder}/worker1) = 3 ]'
        out, code = Job(body, "--restarts=2").end()
        assert code == 0, out
        with open(f"{folder}/worker1") as f:
            lines = f.read().splitlines()
        assert len(lines) == 3 and len(set(lines)) == 1, lines
    out, code = Job("exit 4", "--restarts=1", "--workers=1").end()
    assert code == 4 and out.count("worker/0 failed") == 2, out


def restarted_ps():
    """A ps that is killed comes back while the workers go on."""
    with tempfile.TemporaryDirectory() as folder:
        script = SCRIPT.replace("exec sleep 1000", f"echo $$ >> {folder}/pids; exec sleep 1000")
        open(f"{folder}/pids", "w").close()  # a worker may look before the ps has written
        job = Job(f"while [ $(wc -l < {folder}/pids) -lt 2 ]; do sleep 0.1; done", "--restarts=1",
                  program=["sh", "-c", script, "program"])
        end = time.time() + 60
        while not open(f"{folder}/pids").read():
            assert time.time() < end
            time.sleep(0.05)
        os.kill(int(open(f"{folder}/pids").read()), signal.SIGKILL)
        out, code = job.end()
        assert code == 0 and "ps/0 failed: signal 9" in out, out


def terminate():
    """SIGTERM: those that train first, with ps still there; their word for "run me again" is the job's."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(f'trap "sleep 0.3; echo saved; exit 75" TERM; touch {folder}/$task; while :; do sleep 0.05; done')
        until(lambda: len(os.listdir(folder)) == 2)
        job.p.send_signal(signal.SIGTERM)
        out, code = job.end()
    assert code == 75 and out.count("] saved") == 2, (code, out)
    assert "failed" not in out, out


def twice():
    """Two signals at once, as timeout(1) sends them, are one: tasks have their time to save. A later one kills."""
    with tempfile.TemporaryDirectory() as folder:
        body = f"trap 'touch {folder}/told; until [ -e {folder}/go ]; do sleep 0.05; done; echo saved; exit 75' TERM; "
        job = Job(body + f"touch {folder}/up; while :; do sleep 0.05; done", "--workers=1", "--grace=300")
        until(lambda: os.path.exists(f"{folder}/up"))
        keeper, = [p for p in job.processes() if parent(p) == job.p.pid]
        os.kill(keeper, signal.SIGSTOP)  # so that it finds both
        job.p.send_signal(signal.SIGINT)
        job.p.send_signal(signal.SIGTERM)

        def both_wait():
            with open(f"/proc/{keeper}/status") as f:
                waiting = int(re.search(r"ShdPnd:\s*(\w+)", f.read()).group(1), 16)
            return all(waiting >> (s - 1) & 1 for s in (signal.SIGINT, signal.SIGTERM))
        until(both_wait)
        os.kill(keeper, signal.SIGCONT)
        until(lambda: os.path.exists(f"{folder}/told"))
        with open(f"{folder}/go", "w"):
            pass
        out, code = job.end()
        assert code == 75 and "] saved" in out and "again: killing" not in out, (code, out)
        os.remove(f"{folder}/go")
        os.remove(f"{folder}/up")
        os.remove(f"{folder}/told")
        job = Job(body + f"touch {folder}/up; while :; do sleep 0.05; done", "--workers=1", "--grace=300")
        until(lambda: os.path.exists(f"{folder}/up"))
        job.p.send_signal(signal.SIGINT)
        until(lambda: os.path.exists(f"{folder}/told"))
        time.sleep(1.5)  # a second signal counts after a second
        job.p.send_signal(signal.SIGINT)
        out, code = job.end()
        assert code == 130 and "again: killing" in out and "] saved" not in out, (code, out)


def stubborn():
    """Who does not listen is killed when the grace is over."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(f'trap "" TERM INT; touch {folder}/$task; while :; do sleep 0.05; done', "--grace=1", "--workers=1")
        until(lambda: os.listdir(folder))
        job.p.send_signal(signal.SIGINT)
        out, code = job.end()
    assert code == 130, (code, out)


def ctrl_c():
    """On a terminal: the view, and Ctrl-C ends all, once."""
    job = Job('i=0; while :; do i=$((i+1)); printf "step $i of many\\r"; sleep 0.1; done', terminal=True)
    job.wait_for(5)
    seen = b""
    end = time.time() + 60
    while not re.search(rb"step \d+ of many", seen):
        assert time.time() < end, seen
        seen += os.read(job.terminal, 65536)
    os.write(job.terminal, b"\x03")
    try:
        while job.p.poll() is None:
            seen += os.read(job.terminal, 65536)
    except OSError:
        pass
    assert job.p.wait(60) == 130, seen
    job.nothing_left()
    assert b"worker/1" in seen and b"running" in seen and b"\x1b[" in seen, seen


RUNAWAY = 'setsid sh -c "sleep 1000 & sleep 1001" & (sleep 1002 &) ; sleep 1003'


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


def killed_launcher():
    """kill -9 of either half of the launcher leaves nothing, not even what fled into sessions of its own."""
    for half in (0, 1):
        job = Job(RUNAWAY)
        job.wait_for(2 + 1 + 2 * 5)
        pid = job.p.pid
        if half:
            pid, = [p for p in job.processes() if parent(p) == pid]
        os.kill(pid, signal.SIGKILL)
        job.p.communicate(timeout=120)
        job.nothing_left()
        assert job.p.returncode == (137 if half else -9), job.p.returncode


def runaways():
    """At an ordinary end, too."""
    out, code = Job(RUNAWAY.replace("; sleep 1003", "; sleep 0.5")).end()
    assert code == 0, out


def many():
    """Launchers side by side never give a port twice."""
    ports = []
    with tempfile.TemporaryDirectory() as folder:
        # Every task waits for all of them.
        body = f'echo "$*"; touch {folder}/$$; while [ $(ls {folder} | wc -l) -lt 18 ]; do sleep 0.2; done'
        jobs = [Job(body, "--workers=3") for _ in range(6)]
        for job in jobs:
            out, code = job.end(240)
            assert code == 0, out
            ports += set(re.findall(r"127.0.0.1:(\d+)", out))
    assert len(ports) == len(set(ports)) == 24, ports


def servers():
    """--ps_server: ps tasks are Shoal's own; --log_dir: files too."""
    with tempfile.TemporaryDirectory() as folder:
        body = f'p=${{1#*=}}; until {SHOAL} status grpc://$p; do sleep 0.1; done'
        out, code = Job(body, "--ps_server", f"--log_dir={folder}/logs").end()
        assert code == 0 and "[ps/0] listening on grpc://127.0.0.1:" in out, out
        assert sorted(os.listdir(f"{folder}/logs")) == ["ps-0.log", "worker-0.log", "worker-1.log"]
        with open(f"{folder}/logs/ps-0.log") as f:
            assert "listening on" in f.read()
        # A full disk is said, and stops nobody.
        os.makedirs(f"{folder}/full")
        os.symlink("/dev/full", f"{folder}/full/worker-0.log")
        out, code = Job("echo done", f"--log_dir={folder}/full").end()
        assert code == 0 and out.count("not all can be written there: No space left") == 1, out


def mistakes():
    """Each a line that says what to do; nothing is started."""
    def fails(text, *command, code):
        p = subprocess.run([SHOAL, "launch", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           check=False)
        assert p.returncode == code and text in p.stdout, (p.returncode, p.stdout)
    fails("which program?", code=2)
    fails("put -- before", "true", code=2)
    fails("stand behind --", "--workers=1", "true", "--train_steps=3", code=2)
    fails("it is a folder", "--", "/tmp", code=127)
    fails("--log_dir=/proc/x cannot be made", "--log_dir=/proc/x", "--", "true", code=2)
    fails("--log_dir=: expected DIR", "--log_dir=", "--", "true", code=2)  # an unset variable: not the root folder
    # Flags that would do nothing.
    fails("--evaluator_wait is for --evaluator", "--evaluator_wait=9", "--", "true", code=2)
    fails("--ssh is for --hosts", "--ssh=ssh", "--", "true", code=2)
    fails("--env is for --hosts", "--env=HOME", "--", "true", code=2)
    fails("--remote_shoal is for --hosts", "--remote_shoal=/x", "--", "true", code=2)
    fails("--insecure_bind_all is for --ps_server", "--insecure_bind_all", "--", "true", code=2)
    fails("is not in PATH", "--", "there-is-no-such-program", code=127)
    fails("No such file", "--", "./there-is-no-such-program", code=127)
    fails("words of their own: -- PROGRAM ARG", "--", "ls -l", code=127)
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/script", "w") as f:
            f.write("#!/there/is/none\n")
        os.chmod(f"{folder}/script", 0o755)
        fails("it is there, but its interpreter is not", "--", f"{folder}/script", code=127)
        with open(f"{folder}/train.py", "w") as f:
            f.write("print('here')\n")
        fails(f"it is not executable: chmod +x, or name what runs it, as in -- python3 {folder}/train.py", "--",
              f"{folder}/train.py", code=127)
    fails("--hosts needs a value", "--hosts", "--", "true", code=2)
    fails("nobody would train", "--workers=0", "--", "true", code=2)
    fails("write $HOME", "--log_dir=~/logs", "--", "true", code=2)
    fails("--tls_cert and --tls_key go together", "--tls_cert=x", "--", "true", code=2)
    fails("--workers=-1", "--workers=-1", "--", "true", code=2)
    fails("did you mean --workers?", "--wrokers=1", "--", "true", code=2)
    fails("--requeue is for --slurm", "--requeue", "--", "true", code=2)
    fails("unknown flag --wrokers=1", "--wrokers=1", "--", "true", code=2)
    fails("--hosts, a file with one host a line, cannot be read: /there/is/none", "--hosts=/there/is/none", "--", "true",
          code=2)
    fails("no allocation here", "--slurm", "--", "true", code=2)
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("# nobody\n\n")
        f.flush()
        fails("names no host", f"--hosts={f.name}", "--", "true", code=2)
        f.write("host1 worker\nhost2 gpu\n")
        f.flush()
        fails(':4: there is no (further) task "gpu"', f"--hosts={f.name}", "--", "true", code=2)
        for word in ("host1:2222", "[::1]:22"):
            f.seek(0)
            f.truncate()
            f.write(f"{word}\n")
            f.flush()
            fails(f'"{word}" has a port: servers\' ports are given by --port', f"--hosts={f.name}", "--", "true", code=2)


def hosts_by_number():
    """IPv6 hosts: ssh is given them without brackets, the tasks with."""
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("::1 ps\nme@[fe80::1] worker\n")
        f.flush()
        p = subprocess.run([SHOAL, "launch", f"--hosts={f.name}", "--ps=1", "--workers=1", "--dry_run", "--", "train"],
                           capture_output=True, text=True, timeout=120, check=True)
        assert "# ps/0 at [::1]:2222 on ::1\n" in p.stdout and "ssh -o BatchMode=yes ::1 " in p.stdout, p.stdout
        assert "# worker/0 at [fe80::1]:2222 on me@fe80::1\n" in p.stdout, p.stdout


def tells_plan():
    """At the start: tasks, addresses, folders. With --dry_run the commands alone, which a shell runs as they are."""
    out, code = Job("true", "--workers=1", program=["sh", "-c", SCRIPT, "program", "--checkpoint_dir=/tmp/c"]).end()
    assert code == 0 and re.search(r"^launch: 2 tasks of sh -c ", out, re.M), out
    assert re.search(r"^launch:   ps/0 +127.0.0.1:\d+\nlaunch:   worker/0 +127.0.0.1:\d+\n", out, re.M), out
    assert f"launch: in {os.getcwd()}, checkpoint_dir /tmp/c\n" in out, out
    out, code = Job("", "--workers=1", "--ps_server", "--dry_run", program=["echo", "it's", "a  b", "$HOME"]).end()
    assert code == 0 and "shoal server --ps_hosts=" in out.replace("'", ""), out
    command = out.split("# worker/0")[1].split("\n", 1)[1]
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("it's a  b $HOME --ps_hosts=127.0.0.1:"), ran


def cards_of_tasks():
    """--gpus_per_task: the machine's cards one task after the other, those of CUDA_VISIBLE_DEVICES if that is there; a
    ps sees none; on other hosts they are counted anew."""

    def run(*flags, given=None):
        env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        if given is not None:
            env["CUDA_VISIBLE_DEVICES"] = given
        return subprocess.run([SHOAL, "launch", *flags, "--", "sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"', "sh"],
                              capture_output=True, text=True, timeout=120, env=env)
    out = run("--gpus_per_task=2", "--workers=2").stdout
    assert all(f"[{cards}]" in out for cards in ("", "0,1", "2,3")), out
    out = run("--gpus_per_task=1", "--workers=2", "--ps=0", given="5,3").stdout
    assert "[5]" in out and "[3]" in out, out
    out = run("--ps=0", "--workers=1", given="5,3").stdout
    assert "[5,3]" in out, out
    p = run("--gpus_per_task=1", "--workers=3", given="5,3")
    assert p.returncode == 2 and "CUDA_VISIBLE_DEVICES=5,3 has no card left for worker/2" in p.stderr, p
    for given, why in (("-1", "has no card left for worker/0"), ("4,-1,5", "has no card left for worker/1"),
                       ("0,1,0", "has 0 twice")):
        p = run("--gpus_per_task=1", "--workers=2", "--ps=0", given=given)
        assert p.returncode == 2 and f"CUDA_VISIBLE_DEVICES={given} {why}" in p.stderr, p
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("a worker\nb worker worker\n")
        f.flush()
        out = run(f"--hosts={f.name}", "--ps=0", "--workers=3", "--gpus_per_task=1", "--dry_run", given="7").stdout
        assert [out.count(f"CUDA_VISIBLE_DEVICES={i}") for i in (0, 1, 7)] == [2, 1, 0], out


FLAGS = ["--ps_hosts", "--worker_hosts", "--job_name", "--task_index"]


def no_cluster_flags():
    """A program that takes no cluster flags, or ignores them: what to do."""
    out, code = Job("", program=[sys.executable, "-c", "import argparse; argparse.ArgumentParser().parse_args()"]).end()
    assert code == 2 and "does not take --ps_hosts" in out and "--flags=false" in out and "{task_index}" in out, out
    with tempfile.TemporaryDirectory() as folder:
        wait = f'case "$*" in *=worker*) until [ -e {folder}/go ]; do sleep 0.05; done;; esac'
        job = Job("", "--workers=1", program=["sh", "-c", wait, "program"])
        for line in job.p.stdout:
            if "ps/0 has ended by itself before" in line and "--flags=false" in line:
                open(f"{folder}/go", "w").close()
        assert job.p.wait(120) == 0
    out, code = Job("exit 3").end()
    assert code == 3 and "--flags=false" not in out, out
    # Another flag is refused, with a usage that lists ours.
    takes = "import argparse; p = argparse.ArgumentParser(); [p.add_argument(n) for n in " + repr(FLAGS) + "]; p.parse_args()"
    out, code = Job("", program=[sys.executable, "-c", takes, "--nonsense"]).end()
    assert code == 2 and "unrecognized arguments: --nonsense" in out and "--flags=false" not in out, out


def waits_for_the_ended():
    """Worker 0 is done and gone, and the session of worker 1 waits for it: said, and ended, with success."""
    with tempfile.TemporaryDirectory() as folder:
        line = "W 12:00:00.0 x.c:1] CreateSession still waiting for response from worker: /job:worker/replica:0/task:"
        body = (f'[ $task = 0 ] && {{ until [ -e {folder}/ready ]; do sleep 0.1; done; exit 0; }}; touch {folder}/ready; '
                f'while :; do echo "{line}1"; echo "{line}01"; [ $task = 2 ] || echo "{line}0 at 127.0.0.1:1 (gone)"; '
                f'sleep 0.2; [ -e {folder}/end$task ] && exit 0; done')
        job = Job(body, "--workers=3")
        lines = []
        for text in job.p.stdout:
            lines.append(text)
            if "worker/1 waits for worker/0, which has ended" in text:
                open(f"{folder}/end2", "w").close()  # this one waits for nobody who has ended, and may go on
        job.p.wait(120)
        job.nothing_left()
        out = "".join(lines)
        assert job.p.returncode == 0 and "all tasks have ended" in out and "worker/2 waits for worker/0" not in out, out


def the_chief_waits_for_the_ended():
    """The chief waits for a worker that is done and gone: it is ended, and that is no success, for it was to save."""
    line = "W 12:00:00.0 x.c:1] CreateSession still waiting for response from worker: /job:worker/replica:0/task:1"
    out, code = Job(f'[ $task = 1 ] && exit 0; while :; do echo "{line}"; sleep 0.2; done').end()
    assert code != 0 and "worker/0 waits for worker/1, which has ended" in out and "worker/0 failed" in out, (code, out)


def left_alone():
    """The chief and the ps have ended: a worker that waits for a ps, saying so or not, is ended with success."""
    for words in ("W 12:00:00.0] waiting since 5 s for /job:ps/replica:0/task:0 at 127.0.0.1:1 (gone), /job:worker", ""):
        script = f"""case "$*" in *--job_name=ps*|*--task_index=0) echo "listening on x"; exit 0;; esac
                     while :; do echo "{words}"; sleep 0.2; done"""
        out, code = Job("", f"--grace={60 if words else 1}", program=["sh", "-c", script, "program"]).end()
        said = "worker/1 waits for ps/0, which has ended" if words else "worker/1 is left alone"
        assert code == 0 and said in out and "failed" not in out, (code, out)


def what_was_saved():
    """Stopped: "saved" only of what was written in this run; else what there is to go on from."""
    def stop(on_term, before=None, when=1):
        with tempfile.TemporaryDirectory() as folder:
            def write(step, whole=True):
                state = f"echo 'model_checkpoint_path: \"model.ckpt-{step}\"' > {folder}/checkpoint"
                return state + (f"; touch {folder}/model.ckpt-{step}.index" if whole else "")
            if before is not None:
                subprocess.run(["sh", "-c", write(before)], check=True)
                os.utime(f"{folder}/checkpoint", (when, when))
            action = on_term(write).replace('"', '\\"').replace("$dir", folder)
            body = f'trap "{action}" TERM; touch {folder}/$job$task; while :; do sleep 0.05; done'
            job = Job(body, "--workers=1", program=["sh", "-c", SCRIPT, "program", f"--checkpoint_dir={folder}"])
            until(lambda: os.path.exists(f"{folder}/worker0"))
            job.p.send_signal(signal.SIGINT)
            out, code = job.end()
            return out.replace(folder, "DIR"), code
    out, code = stop(lambda write: write(12) + "; exit 75")
    assert code == 75 and "saved: DIR/model.ckpt-12; the same command goes on from there" in out, (code, out)
    out, code = stop(lambda write: "echo 'step 30/100'; " + write(12) + "; exit 75")
    assert "DIR/model.ckpt-12; the same command goes on from there: at least 18 steps are lost" in out, out
    out, code = stop(lambda write: "exit 1")
    assert code == 130 and "nothing was saved in DIR: the same command begins anew" in out and "saved:" not in out, out
    out, code = stop(lambda write: write(12, whole=False) + "; exit 75")  # the next run would not find it either
    assert "nothing was saved in DIR: the same command begins anew" in out, out
    # Whoever keeps the files may have another clock: it is not asked.
    out, code = stop(lambda write: write(12) + "; touch -d 2001-01-01 $dir/checkpoint; exit 75", before=7)
    assert "saved: DIR/model.ckpt-12" in out, out
    for when in (1, 4000000000):
        out, code = stop(lambda write: "exit 75", before=7, when=when)
        assert "nothing was saved in this run; the same command goes on from DIR/model.ckpt-7" in out, out

    # While another run saves in the folder, what is new there is of that one.
    with tempfile.TemporaryDirectory() as folder:
        other = os.open(folder, os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX)
        body = f"""echo 'model_checkpoint_path: "model.ckpt-9"' > {folder}/checkpoint; touch {folder}/model.ckpt-9.index
                   exit 1"""
        for held in (True, False):
            out, code = Job(body, "--workers=1",
                            program=["sh", "-c", SCRIPT, "program", f"--checkpoint_dir={folder}"]).end()
            assert code == 1 and ("goes on from there" in out) == (not held), (held, out)
            if held:
                os.close(other)


def outside():
    """Stopped by others (a scheduler): who is still saving when the first says 75 is not told again, which would kill it."""
    with tempfile.TemporaryDirectory() as folder:
        body = (f'trap "trap - TERM; touch {folder}/told$task; until [ -e {folder}/go$task ]; do sleep 0.05; done; '
                f'echo done$task; exit 75" TERM; echo $$ > {folder}/pid$task; while :; do sleep 0.05; done')
        job = Job(body)
        until(lambda: all(os.path.exists(f"{folder}/pid{i}") and open(f"{folder}/pid{i}").read() for i in (0, 1)))
        for i in (0, 1):
            os.kill(int(open(f"{folder}/pid{i}").read()), signal.SIGTERM)
        until(lambda: all(os.path.exists(f"{folder}/told{i}") for i in (0, 1)))
        open(f"{folder}/go1", "w").close()
        until(lambda: len([p for p in job.processes() if p == int(open(f"{folder}/pid1").read())]) == 0)
        time.sleep(1)  # time in which it could be told again
        open(f"{folder}/go0", "w").close()
        out, code = job.end()
        assert code == 75 and "] done0" in out and "] done1" in out and "stopped from outside" in out, (code, out)


def live_view():
    """Lines of progress: bars and one line of the whole job on a terminal, plain lines elsewhere."""
    body = ('echo "worker $task  step $((task * 10 + 40))/100  loss 0.5000  1000 examples/s  eta 0:12  staleness 1.0"; '
            'until [ -e "$GO" ]; do sleep 0.05; done')
    with tempfile.TemporaryDirectory() as folder:
        job = Job(body, terminal=True, env={"GO": f"{folder}/go"})
        seen = b""
        end = time.time() + 120
        while not (re.search(rb"worker/1 +running +\d+:\d\d  \[#{10}-{10}\]  step 50/100  loss 0.5000", seen) and
                   re.search(rb"job +step 50/100  loss 0.5000  2000 examples/s", seen)):
            assert time.time() < end, seen
            seen += os.read(job.terminal, 65536)
        assert b"[worker/0]" not in seen.replace(b"\x1b", b""), seen
        # Where there is little room, whole fields stay: the step, no piece of a bar.
        narrow, said = Job(body, terminal=True, env={"GO": f"{folder}/go"}, columns=40), b""
        while not (b"worker/1  step 50/100  loss 0.5000\x1b" in said and b"job       step 50/100\r" in said):
            assert time.time() < end, said
            said += os.read(narrow.terminal, 65536)
        assert b"[#" not in said, said
        # Where there are more tasks than lines, it says how many are not shown.
        low, lines = Job(body, "--ps=0", "--workers=9", terminal=True, env={"GO": f"{folder}/go"}, rows=9), b""
        while not (re.search(rb"worker/3  [^\n]*\n[^\n]*\.\.\. +and 5 more", lines) and b"job       step 100/100" in lines):
            assert time.time() < end, lines[-2000:]
            lines += os.read(low.terminal, 65536)
        open(f"{folder}/go", "w").close()
        assert not re.search(rb"worker/4 +running", lines + low.rest_of_terminal()), lines[-2000:]
        narrow.rest_of_terminal()
        seen += job.rest_of_terminal()
        assert seen.replace(b"\r", b"").rstrip().endswith(b"step 50/100  loss 0.5000"), seen[-500:]
        # Behind & the screen is the shell's: lines, and no view over what it shows.
        behind, said = Job(body, terminal=True, env={"GO": f"{folder}/go"}, shell='"$@" & wait'), b""
        while b"launch: all tasks have ended" not in said:
            assert time.time() < end, said
            said += os.read(behind.terminal, 65536)
        assert b"launch: 3 tasks" in said and not re.search(rb"\x1b\[\d+A|worker/1 +running", said), said
        behind.rest_of_terminal()
        # After Ctrl-Z, too; fg brings the view back, below what the shell has shown.
        stopped, said = Job(body, terminal=True, env={"GO": f"{folder}/later"}, shell='"$@"; echo the shell; sleep 3; fg'), b""
        told = False
        while not re.search(rb"the shell.*job +step 50/100", said, re.S):
            assert time.time() < end, said
            said += os.read(stopped.terminal, 65536)
            if not told and b"job       step 50/100" in said:
                launcher, = subprocess.run(["pgrep", "-P", str(stopped.p.pid)], capture_output=True, check=True).stdout.split()
                os.kill(int(launcher), signal.SIGTSTP)
                told = True
        assert not re.search(rb"the shell.*?\x1b\[\d+A.*?job +step", said, re.S), said
        open(f"{folder}/later", "w").close()
        stopped.rest_of_terminal()
        out, code = Job(body, env={"GO": f"{folder}/go"}).end()
        assert code == 0 and "\x1b" not in out, out
        assert "[worker/1] worker 1  step 50/100  loss 0.5000  1000 examples/s" in out, out
        assert re.search(r"all tasks have ended, after .* s; the last that they told: step 50/100  loss 0.5000\n$", out), out


def open_servers():
    """--ps_server on other hosts: in plain text only when told, with the certificates given, by the command named."""
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("node1 ps\nnode2 worker\n")
        f.flush()
        base = [SHOAL, "launch", f"--hosts={f.name}", "--ps=1", "--workers=1", "--ps_server", "--dry_run"]

        def dry(*flags):
            p = subprocess.run([*base, *flags, "--", "train"], capture_output=True, text=True, timeout=120)
            return p.returncode, p.stderr, p.stdout.split("# worker/0")[0]
        code, err, _ = dry()
        assert code == 2 and "node1:2222" in err and "--insecure_bind_all" in err and "--tls_cert" in err, err
        code, err, ps = dry("--insecure_bind_all", "--remote_shoal=/opt/shoal")
        assert code == 0 and "/opt/shoal" in ps and "--insecure_bind_all" in ps, (err, ps)
        code, err, ps = dry("--tls_cert=c.pem", "--tls_key=k.pem", "--tls_ca=a.pem")
        assert code == 0 and "--insecure_bind_all" not in ps and "--tls_cert=c.pem" in ps and "SHOAL_TLS_CA=a.pem" in ps, ps
        assert os.path.realpath(SHOAL) in ps, ps


def slurm_rank():
    """Under srun, by its environment alone: the rank's task, the nodes of the others, ports from --port on."""
    def rank(n, nodes, counts, tasks=5):
        env = {**os.environ, "SLURM_PROCID": str(n), "SLURM_STEP_NUM_TASKS": str(tasks), "SLURM_STEP_NODELIST": nodes,
               "SLURM_STEP_TASKS_PER_NODE": counts, "SLURM_JOB_NODELIST": nodes}
        p = subprocess.run([SHOAL, "launch", "--slurm", "--ps=2", "--workers=3", "--port=3000", "--", "sh", "-c",
                            'echo "$TF_CONFIG"; echo "$*"', "program"], env=env, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, check=False)
        return p.stdout
    config, flags = rank(3, "a[09-10],b", "2(x2),1").splitlines()
    config = json.loads(config)
    assert config["task"] == {"type": "worker", "index": 1}, config
    assert config["cluster"] == {"ps": ["a09:3000", "a09:3001"], "worker": ["a10:3000", "a10:3001", "b:3000"]}, config
    assert flags.endswith("--job_name=worker --task_index=1"), flags
    assert "say srun --ntasks=5" in rank(0, "a", "4", tasks=4)
    assert "has fewer than the 5 tasks" in rank(0, "a[1-2]", "2,1")
    assert "is none" in rank(0, "a[1-x]", "5")
    assert "one pair of brackets" in rank(0, "a[1-2]b[1-2]", "5")


# Takes what ssh takes and runs it in a shell, as sshd would.
FAKE_SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do case $1 in -o|-p|-i|-F) shift;; esac; shift; done
host=$1; shift
echo "host $host" >&2
exec sh -c "$*"
"""


def over_ssh(ssh_flags, env=None):
    with tempfile.TemporaryDirectory(prefix="it's a folder ") as folder:
        hosts = os.path.join(folder, "hosts")
        with open(hosts, "w") as f:
            f.write("# three\n127.0.0.1 ps worker # two here\nlocalhost worker\n")
        odd = ["it's", "two  words", '"$HOME"', "back\\slash", "new\nline", ""]
        program = [sys.executable, "-c", "import json, os, sys, time\n"
                   "config = json.loads(os.environ['TF_CONFIG'])\n"
                   "if config['task']['type'] == 'ps': time.sleep(1000)\n"
                   "print('ARGS', json.dumps(sys.argv[1:]), os.getcwd(), os.environ.get('HANDED'), flush=True)\n"
                   "time.sleep(float(sys.argv[1]))\nsys.exit(int(sys.argv[2]))"]
        flags = [f"--hosts={hosts}", *ssh_flags, "--env=HANDED,ABSENT", "--grace=3"]
        env = {"HANDED": "over 'there'", **(env or {})}
        job = Job("", *flags, program=[*program, "0", "0", *odd], env=env)
        out, code = job.end()
        assert code == 0, out
        lines = re.findall(r"^\[worker/\d\] ARGS (\[.*?\]) (.*)$", out, re.M)
        assert len(lines) == 2, out
        for args, rest in lines:
            assert json.loads(args)[2:-4] == odd, args
            assert rest == f"{os.getcwd()} over 'there'", rest
        assert "--ps_hosts=127.0.0.1:2222" in out and "--worker_hosts=127.0.0.1:2223,localhost:2222" in out, out
        out, code = Job("", *flags, program=[*program, "0", "9"], env=env).end()
        assert code == 9 and re.search(r"worker/\d on \S+ failed: exit code 9", out), (code, out)
        # Processes over there do not have the mark; they are known by an argument.
        unique = f"4000.{os.getpid()}"

        def there():
            found = []
            for path in glob.glob("/proc/[0-9]*/cmdline"):
                try:
                    with open(path, errors="replace") as f:
                        if unique in f.read():
                            found.append(int(path.split("/")[2]))
                except OSError:  # it has ended
                    pass
            return found
        for how in (signal.SIGTERM, signal.SIGKILL):
            job = Job("", *flags, program=[*program, unique, "0"], env=env)
            end = time.time() + 120
            while len(there()) < 8:
                assert time.time() < end, there()
                time.sleep(0.1)
            time.sleep(0.5)
            job.p.send_signal(how)
            job.p.communicate(timeout=120)
            end = time.time() + 60
            while there():
                assert time.time() < end, there()
                time.sleep(0.1)


def hosts_that_fail():
    """A host that ssh does not reach, or that has no such folder or program: what to look at is said."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/hosts", "w") as f:
            f.write("node1\n")
        for name, script, code, text in (
                ("refused", "#!/bin/sh\necho refused >&2\nexit 255\n", 255, "`ssh node1 true` must work from here"),
                ("moved", FAKE_SSH.replace('"$*"', '"$(echo "$*" | sed "s#$PWD#/there/is/none#")"'), 125,
                 "node1 has no such folder"),
                ("fake", FAKE_SSH, 127, "node1 does not have the program")):
            with open(f"{folder}/{name}", "w") as f:
                f.write(script)
            os.chmod(f"{folder}/{name}", 0o755)
            out, got = Job("", f"--hosts={folder}/hosts", "--ps=0", "--workers=1", f"--ssh={folder}/{name}",
                           program=["./there-is-no-such-program"]).end()
            assert got == code and text in out, (got, out)
        out, got = Job("", f"--hosts={folder}/hosts", "--ps=0", "--workers=1", "--ssh=/there/is/none").end()
        assert got == 127 and "/there/is/none must be a command of this machine (--ssh)" in out, (got, out)
        assert "does not have the program" not in out, out


def fake_ssh():
    """Hosts of a file, by a stand-in for ssh: quoting, exit codes, no orphan over there."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ssh")
        with open(path, "w") as f:
            f.write(FAKE_SSH)
        os.chmod(path, 0o755)
        over_ssh([], {"PATH": folder + ":" + os.environ["PATH"]})


def real_ssh():
    """The same by a real sshd on the loopback."""
    if os.geteuid() != 0 or not shutil.which("sshd", path="/usr/sbin:/usr/bin"):
        raise Skip("needs openssh-server and root")
    with tempfile.TemporaryDirectory() as folder:
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{key}"], check=True)
        shutil.copy(f"{folder}/user.pub", f"{folder}/authorized")
        port, = free_ports(1)
        os.makedirs("/run/sshd", exist_ok=True)
        sshd = subprocess.Popen([shutil.which("sshd", path="/usr/sbin:/usr/bin"), "-D", "-e", "-f", "/dev/null",
                                 "-h", f"{folder}/host", "-p", str(port), "-o", "ListenAddress=127.0.0.1",
                                 "-o", f"AuthorizedKeysFile={folder}/authorized", "-o", "StrictModes=no",
                                 "-o", f"PidFile={folder}/pid", "-o", "UsePAM=no"],
                                stderr=subprocess.PIPE, text=True)
        try:
            common = (f"ssh -4 -o BatchMode=yes -p {port} -i {folder}/user -o IdentitiesOnly=yes -F /dev/null "
                      f"-o StrictHostKeyChecking=no -o UserKnownHostsFile={folder}/known -o LogLevel=ERROR")
            end = time.time() + 60
            while subprocess.run([*common.split(), "127.0.0.1", "true"], stderr=subprocess.DEVNULL,
                                 check=False).returncode:
                assert time.time() < end and sshd.poll() is None, sshd.stderr.read()
                time.sleep(0.1)
            over_ssh([f"--ssh={common}"])
        finally:
            sshd.terminate()
            sshd.wait()


TESTS = [(f.__doc__.split(".")[0].replace("\n", " "), f) for f in
         (told, placeholders, failure, restarts, restarted_ps, terminate, twice, stubborn, ctrl_c, killed_launcher, runaways, many,
          servers, mistakes, hosts_by_number, tells_plan, cards_of_tasks, no_cluster_flags, waits_for_the_ended, the_chief_waits_for_the_ended, left_alone, what_was_saved, outside, live_view,
          open_servers, slurm_rank, hosts_that_fail, fake_ssh, real_ssh)]
sys.exit(report(TESTS))
