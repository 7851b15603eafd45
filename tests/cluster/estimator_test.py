"""Estimators on clusters, by `shoal launch`: every role from TF_CONFIG, with parameter servers and without; and each role
killed in the middle: the job goes on from the last checkpoint, and the evaluator evaluates the last one."""
# needs: tensorflow
# long on the soft device; in short: alone
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from cluster import SHOAL, report

WIDE_DEEP = os.path.join(os.path.dirname(SHOAL), "examples", "wide_deep")


def launch(folder, *flags, program=()):
    command = [SHOAL, "launch", *flags, "--", WIDE_DEEP, f"--model_dir={folder}", *program]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ends(p, seconds=240):
    try:
        text = p.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        p.terminate()
        raise AssertionError(f"still running: {p.communicate()[0]}") from None
    assert p.returncode == 0, (p.returncode, text)
    return text


def learnt(text):
    """What the evaluator says of the last checkpoint; the larger class has 0.52."""
    m = re.search(r"step (\d+): accuracy (\S+)", text)
    assert m and float(m.group(2)) > 0.65, text
    return int(m.group(1))


def evaluated(folder):
    import tensorflow as tf
    return sorted({e.step for f in glob.glob(f"{folder}/eval/events*") for e in tf.compat.v1.train.summary_iterator(f)
                   for v in e.summary.value if v.tag == "accuracy"})


def all_roles():
    """ps, chief, worker, evaluator."""
    with tempfile.TemporaryDirectory() as d:
        text = ends(launch(d, "--ps=1", "--chief", "--workers=1", "--evaluator", program=["--train_steps=800",
                                                                                          "--save_steps=200"]))
        last = learnt(text)
        assert last >= 800 and evaluated(d)[-1] == last, (last, evaluated(d))
        assert glob.glob(f"{d}/export/best/*/saved_model.pb")


def all_reduce():
    """Without parameter servers: workers in step, as under MultiWorkerMirroredStrategy."""
    with tempfile.TemporaryDirectory() as d:
        learnt(ends(launch(d, "--ps=0", "--workers=2", "--evaluator", program=["--train_steps=300"])))


def input_ends():
    """Tasks in step whose inputs are not of one length: all end with the shortest, and the last step is saved. On parameter
    servers each has its own end."""
    import tensorflow as tf
    program = os.path.join(os.path.dirname(SHOAL), "tests", "programs", "estimator_member")
    for ps, first, others, last in ((0, 10, 7, [7]), (0, 7, 10, [7]), (0, 8, 8, [8]), (0, 0, 3, [0]),
                                    (1, 10, 7, range(10, 18))):  # what the other had done when the first ended
        with tempfile.TemporaryDirectory() as d:
            command = [SHOAL, "launch", f"--ps={ps}", "--workers=2", "--flags=false", "--", program, d, str(first), str(others)]
            p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            text = ends(p, 60)
            step = tf.train.load_variable(d, "global_step")
            assert step in last, (ps, first, others, step, text)


def alone():
    with tempfile.TemporaryDirectory() as d:
        p = subprocess.run([WIDE_DEEP, f"--model_dir={d}", "--train_steps=400", "--save_steps=200"], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200, check=False)
        assert p.returncode == 0, p.stdout
        assert learnt(p.stdout) == 400 and evaluated(d)[-1] == 400


def stops_early(*flags):
    """All tasks end when the target is reached, long before the last step; the last checkpoint says so."""
    import tensorflow as tf
    with tempfile.TemporaryDirectory() as d:
        text = ends(launch(d, *flags, "--evaluator", program=["--train_steps=1000000", "--save_steps=100", "--target=0.6",
                                                              "--test_rows=1000"]))
        m = re.search(r"step (\d+): accuracy", text)
        assert m and tf.train.load_variable(d, "signal_early_stopping/STOP"), text
        assert int(m.group(1)) == tf.train.load_variable(d, "global_step"), text


def stops_early_on_ps():
    stops_early("--ps=1", "--workers=2")


def stops_early_in_step():
    """Without parameter servers: after one and the same step, or the other would wait for it."""
    stops_early("--ps=0", "--workers=2")


def six_steps():
    """A job that tests itself: both workers come to the same decision; one that never gets better is begun anew."""
    program = os.path.join(os.path.dirname(WIDE_DEEP), "six_steps")
    for flags, said in ((["--target=0.6"], "stop: the target is reached"),
                        (["--target=1", "--round_steps=20", "--patience=1"], "stop: it gets no better")):
        p = subprocess.run([SHOAL, "launch", "--ps=1", "--workers=2", "--", program, *flags], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200, check=False)
        assert p.returncode == 0 and p.stdout.count(said) == 2, p.stdout
        assert "gets" not in said or p.stdout.count("train anew") == 2, p.stdout


def task_pid(flag, job, index=0):
    """Of the program that was given this flag, which no other has."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline") as f:
                command = f.read().split("\0")
            with open(f"/proc/{entry}/environ") as f:
                env = dict(x.split("=", 1) for x in f.read().split("\0") if "=" in x)
        except OSError:
            continue
        if flag not in command or not command[0].endswith(("wide_deep", "six_steps")):
            continue
        task = json.loads(env.get("TF_CONFIG", "{}")).get("task", {})
        if task.get("type") == job and task.get("index") == index:
            return int(entry)
    return None


def kill_when_saved(folder, p, job, index=0, at=100):
    """SIGKILL to a task once a checkpoint of that step or later is there."""
    end = time.time() + 120
    while time.time() < end and p.poll() is None:
        steps = [int(re.search(r"-(\d+)\.index", n).group(1)) for n in glob.glob(f"{folder}/model.ckpt-*.index")]
        if steps and max(steps) >= at:
            pid = task_pid(f"--model_dir={folder}", job, index)
            if pid:
                os.kill(pid, signal.SIGKILL)
                return max(steps)
        time.sleep(0.01)
    raise AssertionError(f"{job} {index} was not there to be killed")


def six_steps_survive():
    """The parameter server is lost, and the table of what was found goes back; then the chief: both workers go by the table
    to one and the same end."""
    program = os.path.join(os.path.dirname(WIDE_DEEP), "six_steps")
    with tempfile.TemporaryDirectory() as d, open(f"{d}/said", "w+") as said:
        flag = f"--checkpoint_dir={d}/saved"
        p = subprocess.Popen([SHOAL, "launch", "--ps=1", "--workers=2", "--restarts=3", "--", program, flag,
                              "--save_secs=0.3", "--target=0.99", "--patience=25", "--retrains=0", "--round_steps=50", "--rows=5000",
                              "--test_rows=500", "--wait_secs=60"], stdout=said, stderr=subprocess.STDOUT, text=True)

        def lines():
            with open(f"{d}/said") as f:
                return re.findall(r"worker (\d): round (\d+), .*, (\S+) of all: (.*)", f.read())

        def kill_after(job, rounds):
            """Once the workers have told of so many more rounds."""
            end, before, pid = time.time() + 90, len(lines()), None
            while time.time() < end and p.poll() is None:
                pid = pid or task_pid(flag, job)
                if pid and len(lines()) >= before + 2 * rounds:
                    os.kill(pid, signal.SIGKILL)
                    return
                time.sleep(0.01)
            p.terminate()
            raise AssertionError(f"{job} was not there to be killed: {lines()}")
        kill_after("ps", 4)
        kill_after("worker", 3)
        try:
            code = p.wait(timeout=150)
        except subprocess.TimeoutExpired:
            p.terminate()
            raise AssertionError(f"still running: {lines()}") from None
        said.seek(0)
        ends = [[x for x in lines() if x[0] == w][-1] for w in "01"]
        assert code == 0 and ends[0][1:] == ends[1][1:] and "stop: it gets no better" in ends[0][3], (code, said.read())
        assert int(ends[0][1]) >= 25, ends


def killed(job, index=0):
    with tempfile.TemporaryDirectory() as d:
        p = launch(d, "--ps=1", "--chief", "--workers=1", "--evaluator", "--restarts=3",
                   program=["--train_steps=6000", "--save_steps=500", "--test_rows=1000"])
        kill_when_saved(d, p, job, index)
        text = ends(p)
        assert learnt(text) >= 6000, text
        assert "restart" in text or "again" in text or "killed" in text, text


def kill_chief():
    killed("chief")


def kill_worker():
    killed("worker")


def kill_ps():
    killed("ps")


def kill_evaluator():
    killed("evaluator")


if __name__ == "__main__":
    sys.exit(report([(f.__name__.replace("_", " "), f) for f in (
        alone, six_steps, six_steps_survive, all_roles, all_reduce, input_ends, stops_early_on_ps,
        stops_early_in_step, kill_chief, kill_worker, kill_ps, kill_evaluator)]))
