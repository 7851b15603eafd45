"""The examples on clusters, by `shoal launch`: every way of training, short; and TensorFlow's workers among Shoal's.
"""
# needs: tensorflow
# under sanitizers: Strict
# on the soft device: Synchronous with | Strict | Bounded | A chief, | One client | Layers on | A supervisor: | is killed: | A convolutional
# long on the soft device
import glob
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from cluster import ROOT, SHOAL, forked, free_ports, report

EXAMPLES = os.path.join(os.path.dirname(SHOAL), "examples")
DATA = "/usr/share/datasets/fashion-mnist"


def launch(*command, flags=(), code=0, seconds=800, env=None):
    p = subprocess.run([SHOAL, "launch", *flags, "--", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, timeout=seconds, env={**os.environ, **(env or {})}, check=False)
    assert p.returncode == code, (p.returncode, p.stdout)
    return p.stdout


def run(name, *flags, code=0, env=None):
    p = subprocess.run([f"{EXAMPLES}/{name}", *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       timeout=600, env={**os.environ, **(env or {})}, check=False)
    assert p.returncode == code, (p.returncode, p.stdout)
    return p.stdout


def accuracy(text):
    return float(re.search(r"test accuracy (\S+)", text).group(1))


def learnt(text):
    """Far above chance, 0.1, and far below what these short runs reach, 0.7 to 0.85: how stale a gradient is when it
    is added is the machine's business."""
    assert accuracy(text) > 0.4, text


def replica(*flags, launch_flags=()):
    text = launch(f"{EXAMPLES}/mnist_replica", "--train_steps=300", *flags, flags=launch_flags)
    learnt(text)
    return text


def scalars(tf, pattern, tag):
    return [v.simple_value for f in glob.glob(pattern) for e in tf.train.summary_iterator(f) for v in e.summary.value
            if v.tag == tag]


def asynchronous():
    """Asynchronous, with a checkpoint, event files and a trace that TensorFlow reads; validation; prediction."""
    import tensorflow.compat.v1 as tf
    with tempfile.TemporaryDirectory() as folder:
        text = launch(f"{EXAMPLES}/mnist_replica", "--train_steps=3000", f"--checkpoint_dir={folder}",
                      "--trace_steps=100", "--validation_steps=500", "--save_checkpoint_steps=1000")
        # What was done is said; steps past the last one are not.
        assert f"starts anew: there is no checkpoint in {folder}" in text, text
        assert text.count(f"saved {folder}/model.ckpt-") >= 2, text
        assert re.search(r"step 3000/3000  loss \S+  \d+ examples/s  staleness", text), text
        assert not [n for n in re.findall(r"step (\d+)/3000", text) if int(n) > 3000], text
        # The chief steps on some of the 3000: where it does past 500, it validates.
        checked, = scalars(tf, f"{folder}/validation/events.out.*", "test_accuracy")
        assert abs(checked - accuracy(text)) < 1e-3, (checked, text)
        assert min(scalars(tf, f"{folder}/validation/events.out.*", "validation_accuracy"), default=1) > 0.3, text
        learnt(text)
        steps = [int(n) for n in re.findall(r"worker \d: (\d+) local steps", text)]
        assert len(steps) == 2 and 3000 <= sum(steps) <= 3004, text
        reader = tf.train.load_checkpoint(folder)
        saved = int(reader.get_tensor("global_step"))
        assert 3000 <= saved <= sum(steps), (saved, text)  # the other worker's last step may end after the chief's
        assert reader.get_variable_to_shape_map()["hid_w/Adam"] == [784, 100]
        events = [e for f in glob.glob(f"{folder}/events.out.*") for e in tf.train.summary_iterator(f)]
        assert any(v.tag == "loss" for e in events for v in e.summary.value)
        with open(glob.glob(f"{folder}/timeline-*.json")[0]) as f:
            assert len(json.load(f)["traceEvents"]) > 20
        # And on from there.
        text = launch(f"{EXAMPLES}/mnist_replica", "--train_steps=3100", f"--checkpoint_dir={folder}")
        assert f"restored {folder}/model.ckpt-{saved}" in text, text
        steps = [int(n) for n in re.findall(r"worker \d: (\d+) local steps", text)]
        assert 96 <= sum(steps) <= 104, text
        text = run("predict", f"--checkpoint_dir={folder}", "--images=200")
        assert f"restored {folder}/model.ckpt-" in text, text
        assert int(re.search(r"(\d+) of 200 right", text).group(1)) > 80, text


def synchronous():
    """Synchronous with tokens; global steps count means, not gradients."""
    text = replica("--sync_replicas", "--learning_rate=0.002")
    assert sum(int(n) for n in re.findall(r"worker \d: (\d+) local steps", text)) >= 590, text


def strict():
    """Strict: two runs give the same accuracy and loss to the last digit, by each worker's own batches."""
    def lines():
        with tempfile.TemporaryDirectory() as folder:
            text = launch(f"{EXAMPLES}/mnist_replica", "--train_steps=100", "--strict", f"--checkpoint_dir={folder}")
            data, = glob.glob(f"{folder}/model.ckpt-10*.data-*")
            with open(data, "rb") as f:
                return accuracy(text), hash(f.read())
    a, b = lines(), lines()
    assert a == b, (a, b)


def bounded():
    """Bounded staleness."""
    replica("--staleness=2")


def chief_and_config():
    """A chief, three parameter servers: by TF_CONFIG alone, and by the flags alone."""
    replica(launch_flags=["--chief", "--flags=false", "--ps=3", "--workers=1"])
    learnt(launch("env", "-u", "TF_CONFIG", f"{EXAMPLES}/mnist_replica", "--train_steps=300",
                  flags=["--chief", "--ps=3", "--workers=1"]))


def existing_servers():
    """Servers of `shoal server`, found by --existing_servers."""
    from cluster import Cluster
    with Cluster(ps=["shoal"], worker=["shoal", "tf"]) as c:
        lists = c.lists()
        flags = [f"--ps_hosts={','.join(lists['ps'])}", f"--worker_hosts={','.join(lists['worker'])}",
                 "--existing_servers", "--train_steps=200", "--job_name=worker"]
        tasks = [subprocess.Popen([f"{EXAMPLES}/mnist_replica", *flags, f"--task_index={i}"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True) for i in range(2)]
        texts = [t.communicate(timeout=600)[0] for t in tasks]
        assert all(t.returncode == 0 for t in tasks), texts
        learnt(texts[0])


def in_graph():
    """One client, a copy of the model on each worker."""
    learnt(launch(f"{EXAMPLES}/in_graph", "--train_steps=200"))
    text = launch(f"{EXAMPLES}/in_graph", "--train_steps=20", flags=["--chief", "--workers=1"])
    assert "test accuracy" in text and "left alone" not in text, text  # a chief ends the workers, all of them


def model_parallel():
    """Layers on different tasks."""
    text = launch(f"{EXAMPLES}/model_parallel", "--train_steps=150", flags=["--ps=0", "--workers=3"])
    learnt(text)


def supervisor():
    """A supervisor: checkpoints by the clock, a last one at the end; and on from it."""
    import tensorflow.compat.v1 as tf
    with tempfile.TemporaryDirectory() as folder:
        text = launch(f"{EXAMPLES}/supervisor", "--train_steps=400", f"--logdir={folder}", "--save_model_secs=1")
        learnt(text)
        assert 400 <= tf.train.load_checkpoint(folder).get_tensor("global_step") <= 410
        text = launch(f"{EXAMPLES}/supervisor", "--train_steps=500", f"--logdir={folder}")
        assert "goes on from step 4" in text, text
        assert 500 <= tf.train.load_checkpoint(folder).get_tensor("global_step") <= 510


def tensorflow_program():
    """A TensorFlow program as it is, ps and workers, with a chief: TF_CONFIG read by itself."""
    text = launch(*forked.python(f"{ROOT}/tests/cluster/tf_replica.py"), "--train_steps=60", flags=["--flags=false"])
    assert text.count("local steps") == 2, text


def together():
    """A TensorFlow worker, the chief, and a Shoal worker train one model, asynchronously and with tokens. The chief ends it
    when both have done their part, whoever of them is the faster."""
    for sync in (False, True):
        chief = '" "'.join(forked.python(f"{ROOT}/tests/cluster/tf_replica.py"))
        program = (f'case "$*" in *--job_name=worker\\ --task_index=0*) exec "{chief}" "$@";; *) '
                   f'exec "{EXAMPLES}/mnist_replica" "$@";; esac')
        flags = ["--train_steps=1000000", *(["--sync_replicas"] if sync else [])]
        text = launch("sh", "-c", program, "program", *flags, env={"ENOUGH": "100"})
        steps = {kind: int(n) for kind, n in re.findall(r"(\w+) \d: (\d+) local steps", text)}
        assert min(steps["worker"], steps["tensorflow"]) > 2, text
        assert float(re.search(r"local steps, loss (\S+)", text).group(1)) < 2, text


def validation():
    """Validation on the way and the test at the end, in event files at the steps that they are of."""
    import tensorflow.compat.v1 as tf
    def written(folder, tag):
        return [e.step for f in sorted(glob.glob(f"{folder}/validation/events.out.*")) for e in
                tf.train.summary_iterator(f) for v in e.summary.value if v.tag == tag]
    with tempfile.TemporaryDirectory() as folder:
        flags = (f"--checkpoint_dir={folder}", "--validation_steps=20")
        run("mnist_replica", "--train_steps=50", *flags)
        steps = written(folder, "validation_accuracy")
        assert len(steps) == 2 and 20 <= steps[0] < 40 <= steps[1] < 50, steps
        assert written(folder, "test_accuracy") == [50]
        assert "has nothing to train" in run("mnist_replica", "--train_steps=30", *flags)
        assert written(folder, "test_accuracy") == [50, 50]  # the model that was tested is that of step 50


def mistakes():
    """Each a clear error before time is wasted."""
    def fails(text, *flags, code=2, env=None):
        said = run("mnist_replica", *flags, code=code, env=env)
        assert text in said, said
    fails("is no flag", "--no_such_flag=1")
    fails("did you mean --train_steps?", "--train_step=5")
    fails("did you mean --batch_size?", "--batchsize", "5")
    fails("--checkpoint_dir: expected a value", "--checkpoint_dir", "--worker_hosts=localhost:1", "--job_name=worker")
    fails("--batch_size=many: expected a whole number", "--batch_size=many")
    fails("--batch_size=0: expected a whole number of at least 1", "--batch_size=0")
    fails("--train_steps=99999999999999999999", "--train_steps=99999999999999999999")
    fails("--learning_rate=nan: expected a number", "--learning_rate=nan")
    fails("--strict=perhaps: expected true or false", "--strict=perhaps")
    fails("--job_name=worker of which cluster?", "--job_name=worker", env={"TF_CONFIG": ""})
    # What the user gave is spoken of by the program's name, not by a line of it.
    fails("mnist_replica: --job_name", "--ps_hosts=localhost:1", "--worker_hosts=localhost:2")
    fails("mnist_replica: --ps_hosts: \"localhost\"", "--ps_hosts=localhost", "--worker_hosts=localhost:2",
          "--job_name=worker")
    fails("is a comma missing", "--ps_hosts=h:1h:2", "--worker_hosts=localhost:2", "--job_name=worker")
    for index in ("3", str(2**32)):
        fails("is out of range", "--worker_hosts=localhost:2", "--job_name=worker", f"--task_index={index}")
    fails("mnist_replica: TF_CONFIG: not valid JSON, it ends too early", env={"TF_CONFIG": "{"})
    fails("--data_dir=DIR", "--data_dir=/there/is/none", code=1)
    fails("there are 60000 examples", "--batch_size=60001")
    # Flags that would do nothing.
    fails("--trace_steps is for --log_dir", "--trace_steps=2")
    fails("are for --checkpoint_dir", "--save_checkpoint_steps=2")
    fails("is for --sync_replicas", "--replicas_to_aggregate=2")
    fails("is instead of", "--staleness=2", "--strict")
    fails("--strict is instead of --sync_replicas", "--sync_replicas", "--strict")
    fails("several workers train one model on parameter servers", "--worker_hosts=localhost:1,localhost:2",
          "--job_name=worker")
    assert "no number any more at step" in run("linear_regression", "--learning_rate=100", code=1)
    fails("--existing_servers of which cluster?", "--existing_servers", env={"TF_CONFIG": ""})
    fails("a ps is nothing else", "--existing_servers", "--ps_hosts=h:1", "--worker_hosts=h:2", "--job_name=ps")
    for flag in ("--task_index=1", "--insecure_bind_all", "--tls_cert=x"):
        fails("are for a task of a cluster", flag, env={"TF_CONFIG": ""})
    for flag in ("--sync_replicas", "--strict"):
        fails("shoal launch --ps=1 --workers=2", flag, env={"TF_CONFIG": ""})
    fails("expected a whole number from 0 to 10000", "--sync_replicas", "--replicas_to_aggregate=4294967297")
    fails("expected a whole number from 0 to 1000000", "--staleness=4294967297")
    # A variable of a script that is not set: not the root of the file system.
    for flag in ("--checkpoint_dir=", "--log_dir=", "--data_dir="):
        fails(f"mnist_replica: {flag}: expected a path", flag)
    fails("write $HOME", "--checkpoint_dir=~/run")
    fails("--checkpoint_dir=/dev/null: event files cannot be written: /dev/null", "--checkpoint_dir=/dev/null")
    fails("--log_dir=/dev/null: event files cannot be written: /dev/null", "--log_dir=/dev/null")
    assert "mnist_local: --out_dir=/dev/null: " in run("mnist_local", "--out_dir=/dev/null", code=2)
    assert "supervisor: --logdir=/dev/null: " in run("supervisor", "--logdir=/dev/null", code=2)
    assert "extra is no flag" in run("mnist_local", "extra", code=2)
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{DATA}/train-images-idx3-ubyte.gz", "rb") as f, open(f"{folder}/train-images-idx3-ubyte.gz", "wb") as g:
            g.write(f.read(100000))
        # Where a mistake is: in the example's file, not in the library's.
        text = run("mnist_replica", f"--data_dir={folder}", code=1)
        assert re.search(r"^\S*examples/common.h:\d+: DATA_LOSS: ", text, re.M), text
        # Places inside the library are for who asks for them.
        inside = r"^src/\w+/\w+\.c:\d+ "
        assert not re.search(inside, text, re.M), text
        text = run("mnist_replica", f"--data_dir={folder}", code=1, env={"SHOAL_LOG": "debug"})
        assert re.search(inside, text, re.M), text
    for name in sorted(os.listdir(EXAMPLES)):
        assert name in run(name, "--help")
    # A loss that is no number: which step, and no accuracy.
    text = run("mnist_replica", "--learning_rate=1e30", "--train_steps=300", code=1)
    assert re.search(r"NaN loss during training.*at step \d+", text) and "accuracy" not in text, text
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/a.csv", "w") as f:
            f.write("1,2,3\n" * 200)
        text = run("feed", f"--data_dir={folder}", "--learning_rate=1e38", "--epochs=3")
        assert re.search(r"the loss is (inf|-?nan) at step \d+: a smaller learning rate", text), text


def by_hand():
    """Tasks started by hand, with TLS: the parameter server waits for a chief that crashed, and ends with one that is
    done."""
    from certificates import Authority
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(folder)
        ps, worker = free_ports(2)
        hosts = [f"--ps_hosts=localhost:{ps}", f"--worker_hosts=localhost:{worker}", f"--tls_ca={authority.ca}",
                 f"--checkpoint_dir={folder}/run", "--save_checkpoint_steps=50"]

        def start(job, steps):
            cert, key = authority.sign(job, f"DNS:*.{job}.shoal", "IP:127.0.0.1", "DNS:localhost")
            return subprocess.Popen([f"{EXAMPLES}/mnist_replica", *hosts, f"--job_name={job}", f"--train_steps={steps}",
                                     f"--tls_cert={cert}", f"--tls_key={key}"], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
        server, chief = start("ps", 1), start("worker", 10**9)
        try:
            for line in chief.stdout:
                if "saved" in line and "ckpt-0" not in line:
                    break
            chief.kill()
            chief.communicate(timeout=120)
            with open(f"{folder}/run/checkpoint") as f:
                saved = int(re.search(r"ckpt-(\d+)", f.read()).group(1))
            chief = start("worker", saved + 2000)
            text, _ = chief.communicate(timeout=600)
            assert chief.returncode == 0 and "test accuracy" in text, text
            said, _ = server.communicate(timeout=120)
            assert server.returncode == 0, said
        finally:
            for p in (server, chief):
                p.kill()
                p.wait()


def late_worker():
    """A worker that comes when all others have ended: the parameter server says that it stays for it, and it trains."""
    for command in ([f"{EXAMPLES}/mnist_replica"], [SHOAL, "server", "--exit_with_job=1"]):
        ps, first, late = free_ports(3)
        hosts = [f"--ps_hosts=localhost:{ps}", f"--worker_hosts=localhost:{first},localhost:{late}"]
        server = subprocess.Popen([*command, *hosts, "--job_name=ps"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True)
        try:
            run("mnist_replica", *hosts, "--job_name=worker", "--train_steps=100")
            said = ""
            while "staying 10 s for /job:worker/replica:0/task:1, which" not in said:
                line = server.stdout.readline()
                assert line, said  # it has ended
                said += line
            text = run("mnist_replica", *hosts, "--job_name=worker", "--task_index=1", "--train_steps=200")
            assert int(re.search(r"worker 1: (\d+) local steps", text)[1]) == 100, text
            said, _ = server.communicate(timeout=120)
            assert server.returncode == 0, said
        finally:
            server.kill()
            server.wait()


def stopped():
    """Told to stop, as by Ctrl-C: says where it stopped and how to go on."""
    for name, flag in (("mnist_replica", "checkpoint_dir"), ("supervisor", "logdir")):
        with tempfile.TemporaryDirectory() as folder:
            command = [f"{EXAMPLES}/{name}", "--train_steps=1000000000", f"--{flag}={folder}"]
            p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for line in p.stdout:
                if "  step " in line:
                    break
            p.send_signal(signal.SIGINT)
            text, _ = p.communicate(timeout=120)
            assert p.returncode == 75, (p.returncode, text)
            step, = re.findall(r"stopped at step (\d+)", text)
            assert f"goes on from {folder}" in text, text
            assert name == "supervisor" or f"saved {folder}/model.ckpt-{step}" in text, text
            assert os.path.exists(f"{folder}/model.ckpt-{step}.index"), os.listdir(folder)


def done_already():
    """A folder whose step is reached: says so, trains nothing, saves nothing."""
    with tempfile.TemporaryDirectory() as folder:
        text = run("mnist_replica", "--train_steps=20", f"--checkpoint_dir={folder}")
        assert re.search(r"saved \S+-20\nworker 0: 20 local steps in .*\ntest accuracy \S+\n$", text), text  # at the end
        text = run("mnist_replica", "--train_steps=20", f"--checkpoint_dir={folder}")
        assert "nothing to train: step 20 is reached, and training ends at 20" in text and "test accuracy" in text, text
        assert "saved" not in text and "loss" not in text, text
        text = run("predict", f"--checkpoint_dir={folder}", "--hidden_units=7", code=2)
        assert f"predict: checkpoint {folder}/model.ckpt-20 is of another model: give another folder" in text, text


def left_behind():
    """A folder with checkpoints that are not named, or damaged: says so, and how to go on."""
    def train(steps, folder, code=0):
        return run("mnist_replica", f"--train_steps={steps}", f"--checkpoint_dir={folder}", code=code)
    with tempfile.TemporaryDirectory() as root:
        first = f"{root}/first"
        train(20, first)
        for name, break_it, text in (
                ("gone", lambda d: os.remove(f"{d}/checkpoint"), 'has no file "checkpoint" that names one; model.ckpt-20 is'),
                ("empty", lambda d: open(f"{d}/checkpoint", "w").close(), "that names one; model.ckpt-20 is there"),
                ("part", lambda d: os.remove(f"{d}/model.ckpt-20.index"), "model.ckpt-20, which has no files; model.ckpt-0")):
            folder = f"{root}/{name}"
            shutil.copytree(first, folder)
            break_it(folder)
            said = train(30, folder)
            assert "starts anew: " in said and text in said and "there is no checkpoint" not in said, said
        shutil.copytree(first, f"{root}/cut")
        os.truncate(f"{root}/cut/model.ckpt-20.data-00000-of-00001", 100)
        said = train(30, f"{root}/cut", code=1)
        assert f"is damaged ({root}/cut/checkpoint may name an older one in its place)" in said, said
        with open(f"{root}/cut/checkpoint", "w") as f:
            f.write("nonsense")
        assert "is no checkpoint state file: remove it, or let it say" in train(30, f"{root}/cut", code=1)
        os.remove(f"{root}/cut/checkpoint")
        os.symlink("checkpoint", f"{root}/cut/checkpoint")  # cannot be read, by root neither
        said = run("predict", f"--checkpoint_dir={root}/cut", code=1)
        assert f"predict: {root}/cut/checkpoint: Too many levels" in said, said


def no_room_for_events():
    """An event file that cannot grow any more, as on a full disk: said once, and training goes on."""
    def train(steps, folder, **more):
        return subprocess.run([f"{EXAMPLES}/mnist_replica", f"--train_steps={steps}", f"--log_dir={folder}"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=True,
                              **more).stdout
    with tempfile.TemporaryDirectory() as folder:
        train(1, f"{folder}/first")
        size = max(os.path.getsize(f) for f in glob.glob(f"{folder}/first/events.out.*"))

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
        text = train(500, f"{folder}/second", preexec_fn=limit)
        assert text.count("event files cannot be written, training goes on without: ") == 1, text
        assert "step 500/500" in text and "test accuracy" in text, text


def process(*arguments):
    """The one whose command line has all of these."""
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, errors="replace") as f:
                line = f.read()
        except OSError:  # it has ended
            continue
        if all(a in line for a in arguments):
            return int(path.split("/")[2])
    raise AssertionError(f"there is no process with {arguments}")


def one_folder_each():
    """Two runs that save in one folder: the second is told whose it is."""
    with tempfile.TemporaryDirectory() as folder:
        command = [f"{EXAMPLES}/mnist_replica", "--train_steps=1000000000", f"--checkpoint_dir={folder}"]
        p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            for line in p.stdout:
                if "saved" in line:
                    break
            text = run("mnist_replica", "--train_steps=5", f"--checkpoint_dir={folder}", code=1)
            assert f"saves in {folder}: each would go on from the other's" in text and "restored" not in text, text
        finally:
            p.kill()
            p.communicate()
        text = run("mnist_replica", "--train_steps=5", f"--checkpoint_dir={folder}")  # killed: the folder is free
        assert f"restored {folder}/model.ckpt-" in text, text


def parameter_server_lost():
    """A parameter server is killed: what was restored, and how many steps were lost, is said."""
    with tempfile.TemporaryDirectory() as folder:
        command = [SHOAL, "launch", "--ps=1", "--workers=1", "--restarts=3", "--", f"{EXAMPLES}/mnist_replica",
                   "--train_steps=1000000000", f"--checkpoint_dir={folder}", "--save_checkpoint_steps=1000000000"]
        p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        text, killed = "", False
        try:
            for line in p.stdout:
                text += line
                if not killed and len(re.findall(r" step [1-9]", text)) == 2:  # those since the first checkpoint
                    os.kill(process(folder, "--job_name=ps"), signal.SIGKILL)
                    killed = True
                if "goes on from step" in line:
                    break
        finally:
            p.send_signal(signal.SIGTERM)
            p.communicate(timeout=120)
        assert f"restored {folder}/model.ckpt-0" in text, text
        assert re.search(r"goes on from step 0: with a task at least [1-9]\d* steps were lost$", text, re.M), text


def network():
    """A convolutional network, on one worker and a parameter server."""
    text = launch(f"{EXAMPLES}/mnist_cnn", "--train_steps=60", "--batch_size=32", flags=["--workers=1"])
    learnt(text)


def devices():
    """--device: every example on a GPU (a soft one) and on the CPU; one that is not there is refused by what there is."""
    soft = {"SHOAL_SOFT_GPUS": "1"}
    for name in sorted(os.listdir(EXAMPLES)):
        more = [f"--op_library={os.path.dirname(SHOAL)}/ops/own_op.so"] if name == "use_own_op" else []
        more += ["--checkpoint_dir=/there/is/none"] if name == "predict" else []
        more += ["--records=/there/is/none"] if name == "mnist_records" else []
        more += [f"--data={__file__}"] if name == "gpt" else []  # by itself it wants a package that may not be there
        more += ["--model_dir=/there/is/none"] if name == "wide_deep" else []
        if name in ("in_graph", "model_parallel"):
            more += ["--worker_hosts=localhost:1", "--job_name=worker"]
        if name == "meet":  # which computes nothing
            continue
        assert "--device" in run(name, "--help"), name
        text = run(name, "--device=TPU", *more, code=1 if name == "predict" else 2, env=soft)
        assert name == "predict" or "--device=TPU: there is no such device here; there is CPU:0, GPU:0" in text, text
    for wrong in ("GPU:1", "CPU:1"):
        assert f"--device={wrong}: there is no such device" in run("hello", f"--device={wrong}", code=2, env=soft)
    for wrong in ("", ":1", "GPU:", "GPU:x", "GPU:-1"):
        assert f"--device={wrong}: expected CPU, GPU" in run("hello", f"--device={wrong}", code=2, env=soft)
    assert "there is CPU:0\n" in run("hello", "--device=GPU", code=2)
    for good in ("GPU", "/gpu:0", "/device:GPU:0", "/cpu:0", "cpu:0"):
        assert run("hello", f"--device={good}", env=soft) == "40 + 2 = 42\n"
    for name, *flags in (("linear_regression",), ("functions",), ("mnist_cnn", "--train_steps=3", "--batch_size=8"),
                         ("mnist_multiworker", "--train_steps=50")):
        same = [re.findall(r"y = .*|test accuracy .*", run(name, *flags, f"--device={d}", env=soft)) for d in ("CPU", "GPU")]
        assert same[0] == same[1] and same[0], same
    run("mnist_mirrored", "--train_steps=20", "--device=GPU", env={"SHOAL_SOFT_GPUS": "1", "SHOAL_VIRTUAL_DEVICES": "100+100"})
    text = run("mnist_mirrored", "--train_steps=20", "--device=GPU", env={"SHOAL_SOFT_GPUS": "2"})
    assert "test accuracy" in text, text
    run("mnist_mirrored", "--device=GPU:1", code=2, env={"SHOAL_SOFT_GPUS": "2"})
    with tempfile.TemporaryDirectory() as folder:
        for device, flags in (("CPU", []), ("GPU", []), ("GPU", ["--ps=1", "--workers=1"])):
            command = ["mnist_replica", "--train_steps=30", "--trace_steps=10", f"--device={device}"]
            log = f"--log_dir={folder}/{device}{len(flags)}"
            if flags:
                launch(f"{EXAMPLES}/{command[0]}", *command[1:], log, flags=flags, env=soft)
            else:
                run(*command, log, env=soft)
            with open(glob.glob(f"{log[10:]}/timeline-*.json")[0]) as f:
                on = [p["args"]["name"] for p in json.load(f)["traceEvents"] if p.get("name") == "process_name"]
            assert any("device:GPU:0" in p for p in on) == (device == "GPU"), on
        run("supervisor", "--train_steps=20", f"--logdir={folder}/supervisor", "--device=GPU", env=soft)
        run("mnist_replica", "--train_steps=20", f"--checkpoint_dir={folder}/run", "--device=GPU", env=soft)
        assert "right" in run("predict", f"--checkpoint_dir={folder}/run", "--device=GPU", env=soft)
    for name in ("in_graph", "model_parallel", "mnist_multiworker"):
        ps = "--ps=1" if name == "in_graph" else "--ps=0"
        assert "test accuracy" in launch(f"{EXAMPLES}/{name}", "--train_steps=20", "--device=GPU", env=soft,
                                         flags=[ps, "--workers=2"])


def card_of_the_workers():
    """A parameter server on a host without a GPU serves workers that compute on theirs."""
    alone = ["sh", "-c", 'case "$*" in *job_name=worker*) export SHOAL_SOFT_GPUS=1;; esac; p=$1; shift; '
                         'exec "$p" --device=GPU "$@"', "sh"]
    with tempfile.TemporaryDirectory() as folder:
        for name, *flags in (("in_graph", "--train_steps=3"), ("model_parallel", "--train_steps=3"),
                             ("gpt", f"--data={__file__}", "--steps=2", "--layers=1", "--width=12", "--context=16"),
                             ("dates", "--steps=2", "--layers=1"),
                             ("wide_deep", f"--model_dir={folder}", "--train_steps=5", "--rows=2000", "--test_rows=500")):
            launch(*alone, f"{EXAMPLES}/{name}", *flags, flags=["--ps=1", "--workers=1"], env={"SHOAL_SOFT_GPUS": "0"})


def train_py():
    """README's TensorFlow program: its workers on parameter servers of Shoal, and as a client of servers of Shoal."""
    from cluster import Cluster
    text = launch(*forked.python(f"{ROOT}/examples/train.py"), "--train_steps=300",
                  flags=["--ps_server", "--workers=1"])
    assert "worker 0: loss " in text, text
    with Cluster(ps=["shoal"], worker=["shoal"]) as c:
        p = subprocess.run(forked.python(f"{ROOT}/examples/train.py", f"--master={c.target('worker')}"),
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
        assert p.returncode == 0 and float(re.search(r"loss (\S+) after step", p.stdout).group(1)) < 2, p.stdout


if __name__ == "__main__":
    if not os.path.isdir(DATA):
        print(f"ok - examples # SKIP there is no {DATA}")
        sys.exit(0)
    sys.exit(report([(f.__doc__.split(".")[0], f) for f in (
        asynchronous, synchronous, strict, bounded, chief_and_config, existing_servers, in_graph, model_parallel,
        supervisor, tensorflow_program, together, validation, mistakes, by_hand, late_worker, stopped, done_already, left_behind, no_room_for_events, one_folder_each, parameter_server_lost, network, devices, card_of_the_workers, train_py)]))
