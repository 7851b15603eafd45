"""The examples on clusters, by `shoal launch`: every way of training, short; and TensorFlow's workers among Shoal's.
"""
# needs: tensorflow
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from cluster import ROOT, SHOAL, report

EXAMPLES = os.path.join(os.path.dirname(SHOAL), "examples")
DATA = "/usr/share/datasets/fashion-mnist"


def launch(*command, flags=(), code=0, seconds=400):
    p = subprocess.run([SHOAL, "launch", *flags, "--", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, timeout=seconds, check=False)
    assert p.returncode == code, (p.returncode, p.stdout)
    return p.stdout


def accuracy(text):
    return float(re.search(r"test accuracy (\S+)", text).group(1))


def replica(*flags, least=0.75, launch_flags=()):
    text = launch(f"{EXAMPLES}/mnist_replica", "--train_steps=300", *flags, flags=launch_flags)
    assert accuracy(text) > least, text
    return text


def asynchronous():
    """Asynchronous, with a checkpoint, event files and a trace that TensorFlow reads."""
    import tensorflow.compat.v1 as tf
    with tempfile.TemporaryDirectory() as folder:
        text = launch(f"{EXAMPLES}/mnist_replica", "--train_steps=3000", f"--checkpoint_dir={folder}", "--trace_steps=100")
        assert accuracy(text) > 0.8, text
        steps = [int(n) for n in re.findall(r"worker \d: (\d+) local steps", text)]
        assert len(steps) == 2 and 3000 <= sum(steps) <= 3004, text
        reader = tf.train.load_checkpoint(folder)
        assert reader.get_tensor("global_step") == sum(steps)
        assert reader.get_variable_to_shape_map()["hid_w/Adam"] == [784, 100]
        events = [e for f in glob.glob(f"{folder}/events.out.*") for e in tf.train.summary_iterator(f)]
        assert any(v.tag == "loss" for e in events for v in e.summary.value)
        with open(glob.glob(f"{folder}/timeline-*.json")[0]) as f:
            assert len(json.load(f)["traceEvents"]) > 20
        # And on from there.
        text = launch(f"{EXAMPLES}/mnist_replica", "--train_steps=3100", f"--checkpoint_dir={folder}")
        steps = [int(n) for n in re.findall(r"worker \d: (\d+) local steps", text)]
        assert 96 <= sum(steps) <= 104, text


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
    """A chief, TF_CONFIG alone, three parameter servers."""
    replica(launch_flags=["--chief", "--flags=false", "--ps=3", "--workers=1"])


def existing_servers():
    """Servers of `shoal server`, found by --existing_servers."""
    from cluster import Cluster
    with Cluster(ps=["shoal"], worker=["shoal", "tf"]) as c:
        lists = c.lists()
        flags = [f"--ps_hosts={','.join(lists['ps'])}", f"--worker_hosts={','.join(lists['worker'])}",
                 "--existing_servers", "--train_steps=200", "--job_name=worker"]
        tasks = [subprocess.Popen([f"{EXAMPLES}/mnist_replica", *flags, f"--task_index={i}"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True) for i in range(2)]
        texts = [t.communicate(timeout=300)[0] for t in tasks]
        assert all(t.returncode == 0 for t in tasks), texts
        assert accuracy(texts[0]) > 0.7, texts


def in_graph():
    """One client, a copy of the model on each worker."""
    assert accuracy(launch(f"{EXAMPLES}/in_graph", "--train_steps=200")) > 0.75


def model_parallel():
    """Layers on different tasks."""
    text = launch(f"{EXAMPLES}/model_parallel", "--train_steps=150", flags=["--ps=0", "--workers=3"])
    assert accuracy(text) > 0.7, text


def supervisor():
    """A supervisor: checkpoints by the clock, a last one at the end; and on from it."""
    import tensorflow.compat.v1 as tf
    with tempfile.TemporaryDirectory() as folder:
        text = launch(f"{EXAMPLES}/supervisor", "--train_steps=400", f"--logdir={folder}", "--save_model_secs=1")
        assert accuracy(text) > 0.7, text
        assert 400 <= tf.train.load_checkpoint(folder).get_tensor("global_step") <= 410
        text = launch(f"{EXAMPLES}/supervisor", "--train_steps=500", f"--logdir={folder}")
        assert 500 <= tf.train.load_checkpoint(folder).get_tensor("global_step") <= 510


def tensorflow_program():
    """A TensorFlow program as it is, ps and workers, with a chief: TF_CONFIG read by itself."""
    text = launch(sys.executable, f"{ROOT}/tests/cluster/tf_replica.py", "--train_steps=60", flags=["--flags=false"])
    assert text.count("local steps") == 2, text


def together():
    """A TensorFlow worker, the chief, and a Shoal worker train one model, asynchronously and with tokens."""
    for sync in (False, True):
        program = (f'case "$*" in *--job_name=worker\\ --task_index=0*) exec "{sys.executable}" '
                   f'"{ROOT}/tests/cluster/tf_replica.py" "$@";; *) exec "{EXAMPLES}/mnist_replica" "$@";; esac')
        flags = ["--train_steps=200", "--sync_replicas"] if sync else ["--train_steps=4000"]
        text = launch("sh", "-c", program, "program", *flags)
        steps = {kind: int(n) for kind, n in re.findall(r"(\w+) \d: (\d+) local steps", text)}
        assert min(steps["worker"], steps["tensorflow"]) > (10 if sync else 2), text
        assert float(re.search(r"local steps, loss (\S+)", text).group(1)) < 1, text


BATCHES = """
static void next_batch(shoal_tensor **images, shoal_tensor **labels) {
  shoal_status_free(shoal_tensor_new(SHOAL_FLOAT32, 2, (const int64_t[]){10, 784}, images));
  shoal_status_free(shoal_tensor_new(SHOAL_INT64, 1, (const int64_t[]){10}, labels));
  memset(shoal_tensor_data(*images), 0, 10 * 784 * 4);
  memset(shoal_tensor_data(*labels), 0, 10 * 8);
}
"""


def tutorial():
    """The program of docs/training.md compiles and trains."""
    import tensorflow.compat.v1 as tf
    with open(f"{ROOT}/docs/training.md") as f:
        program = re.search(r"```c\n(#include.*?)```", f.read(), re.S).group(1)
    program = program.replace("int main", BATCHES + "\nint main", 1).replace("20000", "50")
    build = os.path.dirname(SHOAL)
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/program.c", "w") as f:
            f.write("#include <stdio.h>\n#include <string.h>\n" + program.replace('"out"', f'"{folder}/out"'))
        subprocess.run(["cc", "-Wall", "-Werror", f"{folder}/program.c", "-o", f"{folder}/program", f"-I{ROOT}/include",
                        f"-I{build}/gen/include", f"-L{build}", "-lshoal", f"-Wl,-rpath,{build}"], check=True)
        launch(f"{folder}/program")
        assert 50 <= tf.train.load_checkpoint(f"{folder}/out").get_tensor("global_step") <= 52


def mistakes():
    """Each a clear error before time is wasted."""
    def fails(text, *flags, env=None):
        p = subprocess.run([f"{EXAMPLES}/mnist_replica", *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, timeout=120, env={**os.environ, **(env or {})}, check=False)
        assert p.returncode in (1, 2) and text in p.stdout, (p.returncode, p.stdout)
    fails("is no flag", "--no_such_flag=1")
    fails("expected a number", "--batch_size=many")
    fails("must be at least 1", "--batch_size=0")
    fails("--job_name", "--ps_hosts=localhost:1", "--worker_hosts=localhost:2")
    fails("localhost", "--ps_hosts=localhost", "--worker_hosts=localhost:2", "--job_name=worker")
    fails("task", "--worker_hosts=localhost:2", "--job_name=worker", "--task_index=3")
    fails("TF_CONFIG", env={"TF_CONFIG": "{"})
    fails("No such file", "--data_dir=/there/is/none")
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{DATA}/train-images-idx3-ubyte.gz", "rb") as f, open(f"{folder}/train-images-idx3-ubyte.gz", "wb") as g:
            g.write(f.read(100000))
        fails("DATA_LOSS", f"--data_dir={folder}")
    for name in ("hello", "linear_regression", "mnist_local", "mnist_replica", "in_graph", "model_parallel", "supervisor"):
        p = subprocess.run([f"{EXAMPLES}/{name}", "--help"], stdout=subprocess.PIPE, text=True, timeout=120, check=False)
        assert p.returncode == 0 and name in p.stdout, (name, p.stdout)


if __name__ == "__main__":
    if not os.path.isdir(DATA):
        print(f"ok - examples # SKIP there is no {DATA}")
        sys.exit(0)
    sys.exit(report([(f.__doc__.split(".")[0], f) for f in (asynchronous, synchronous, strict, bounded, chief_and_config,
                     existing_servers, in_graph, model_parallel, supervisor, tensorflow_program, together, tutorial, mistakes)]))
