"""Training sessions beside TensorFlow's: checkpoint directories that either side goes on with, event files that
TensorFlow reads, sessions on TensorFlow's servers, and the same run under MonitoredTrainingSession and under ours.
"""
# needs: tensorflow
import json
import os
import re
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "cluster"))
import numpy as np
import tensorflow.compat.v1 as tf

import tap
from cluster import SHOAL, Cluster, until

tf.disable_v2_behavior()
tf.enable_resource_variables()
tf.logging.set_verbosity(tf.logging.ERROR)
TRAINER = os.path.join(os.path.dirname(SHOAL), "tests", "programs", "trainer")


def trainer(*flags, code=0):
    p = subprocess.run([TRAINER, "--step_ms=0", *flags], capture_output=True, text=True, timeout=600)
    assert p.returncode == code, (p.returncode, p.stdout, p.stderr)
    return p.stdout + p.stderr


def counting_graph():
    """The trainer's model, in TensorFlow."""
    step = tf.train.get_or_create_global_step()
    a = tf.get_variable("a", initializer=np.zeros(8, np.float32), use_resource=True)
    b = tf.get_variable("b", initializer=np.zeros(8, np.float32), use_resource=True)
    ones = np.ones(8, np.float32)
    return step, a, b, tf.group(a.assign_add(ones), b.assign_add(ones), step.assign_add(1))


def tf_run(directory, last, **kwargs):
    """TensorFlow goes on in a directory; (first step seen, last step, a)."""
    with tf.Graph().as_default():
        step, a, _, train = counting_graph()
        with tf.train.MonitoredTrainingSession(checkpoint_dir=directory, hooks=[tf.train.StopAtStepHook(last_step=last)],
                                               log_step_count_steps=10, **kwargs) as s:
            first = s._tf_sess().run(step)  # pylint: disable=protected-access
            while not s.should_stop():
                s.run(train)
    values = tf.train.load_checkpoint(tf.train.latest_checkpoint(directory))
    return first, values.get_tensor("global_step"), values.get_tensor("a")


def test_a_run_changes_sides():
    """C, TensorFlow, C, TensorFlow: one run, in one directory."""
    with tempfile.TemporaryDirectory() as d:
        assert "made initialized at step 0" in trainer("--steps=30", f"--checkpoint_dir={d}", "--save_steps=10")
        assert tf.train.latest_checkpoint(d) == os.path.join(d, "model.ckpt-30")
        state = tf.train.get_checkpoint_state(d)
        assert [p.rsplit("-", 1)[1] for p in state.all_model_checkpoint_paths] == ["0", "10", "20", "30"]
        assert len(state.all_model_checkpoint_timestamps) == 4
        assert dict(tf.train.list_variables(d)) == {"a": [8], "b": [8], "global_step": []}
        first, last, a = tf_run(d, 50, save_checkpoint_steps=10)
        assert (first, last) == (30, 50) and (a == 50).all(), (first, last, a)
        text = trainer("--steps=70", f"--checkpoint_dir={d}", "--save_steps=10")
        assert "made restored at step 50" in text and "stopping at step 70 own 20 a 70 b 70" in text, text
        first, last, a = tf_run(d, 80)
        assert (first, last) == (70, 80) and (a == 80).all(), (first, last, a)
        kept = [n for n in os.listdir(d) if n.endswith(".index")]
        assert len(kept) == 5, kept


def test_import_meta_graph():
    """TensorFlow takes the graph, the values and the saver from our files, without the program: goes on training, saves,
    and our program goes on from that."""
    with tempfile.TemporaryDirectory() as d:
        trainer("--steps=30", f"--checkpoint_dir={d}", "--save_steps=10")
        with tf.Graph().as_default() as g:
            saver = tf.train.import_meta_graph(os.path.join(d, "model.ckpt-30.meta"))
            names = [v.op.name for v in tf.global_variables()]
            assert sorted(names) == ["a", "b", "global_step"], names
            assert sorted(v.op.name for v in tf.trainable_variables()) == ["a", "b"], tf.trainable_variables()
            assert [v.trainable for v in tf.global_variables()] == [n != "global_step" for n in names]
            assert tf.train.get_global_step().op.name == "global_step"
            assert len(tf.get_collection("summaries")) == 3, tf.get_collection("summaries")
            a = next(v for v in tf.global_variables() if v.op.name == "a")
            with tf.Session() as s:
                saver.restore(s, os.path.join(d, "model.ckpt-30"))
                for _ in range(5):
                    s.run("train")
                assert (s.run(a) == 35).all() and s.run(tf.train.get_global_step()) == 35
                s.run(tf.global_variables_initializer())
                assert (s.run(a) == 0).all()
                saver.restore(s, os.path.join(d, "model.ckpt-30"))
                for _ in range(7):
                    s.run("train")
                assert saver.save(s, os.path.join(d, "model.ckpt"), global_step=37) == os.path.join(d, "model.ckpt-37")
            assert g.get_operation_by_name("save/restore_all")
        text = trainer("--steps=40", f"--checkpoint_dir={d}", "--save_steps=10")
        assert "made restored at step 37" in text and "stopping at step 40 own 3 a 40 b 40" in text, text
        left = {n.rsplit(".", 1)[0] for n in os.listdir(d) if n.endswith(".meta")}
        assert left == {n.rsplit(".", 1)[0] for n in os.listdir(d) if n.endswith(".index")}, os.listdir(d)


def test_the_same_checkpoints_as_tensorflow():
    """Which checkpoints there are after a run of 47 steps, saved every 10."""
    names = []
    for side in (lambda d: trainer("--steps=47", f"--checkpoint_dir={d}", "--save_steps=10"),
                 lambda d: tf_run(d, 47, save_checkpoint_steps=10)):
        with tempfile.TemporaryDirectory() as d:
            side(d)
            names.append(sorted(n for n in os.listdir(d) if n.endswith(".index")))
            assert tf.train.latest_checkpoint(d) == os.path.join(d, "model.ckpt-47")
    assert names[0] == names[1], names


def events(directory):
    found = []
    for n in sorted(os.listdir(directory)):
        if "tfevents" in n:
            found += list(tf.train.summary_iterator(os.path.join(directory, n)))
    return found


def test_event_files():
    with tempfile.TemporaryDirectory() as d:
        trainer("--steps=450", f"--checkpoint_dir={d}", "--save_steps=100", f"--trace={d}")
        ours = events(d)
        assert ours[0].file_version == "brain.Event:2"
        graph = [e for e in ours if e.graph_def]
        assert len(graph) == 1
        nodes = {n.name for n in tf.GraphDef.FromString(graph[0].graph_def).node}
        assert {"a", "b", "global_step", "train"} <= nodes
        with open(os.path.join(d, "graph.pbtxt")) as f:
            from google.protobuf import text_format
            assert nodes == {n.name for n in text_format.Parse(f.read(), tf.GraphDef()).node}
        scalars = [(e.step, v.tag, v.simple_value) for e in ours for v in e.summary.value if v.tag == "mean"]
        assert [s[0] for s in scalars] == [1, 101, 201, 301, 401], scalars
        assert all(abs(step - value) <= 1 for step, _, value in scalars), scalars
        assert [e.step for e in ours for v in e.summary.value if v.tag == "global_step/sec"], "no step counter"
        histograms = [v for e in ours for v in e.summary.value if v.HasField("histo")]
        assert histograms and histograms[0].histo.num == 8, histograms
        images = [v for e in ours for v in e.summary.value if v.HasField("image")]
        assert images and (images[0].image.width, images[0].image.height) == (4, 2), images
        logs = [e.session_log for e in ours if e.HasField("session_log")]
        assert [l.status for l in logs if l.status == tf.SessionLog.START], logs
        assert any(l.checkpoint_path.endswith("model.ckpt-450") for l in logs), logs
        traced = [e for e in ours if e.HasField("tagged_run_metadata")]
        assert traced, "no trace"
        metadata = tf.RunMetadata.FromString(traced[0].tagged_run_metadata.run_metadata)
        assert {"a", "train"} & {s.node_name for dev in metadata.step_stats.dev_stats for s in dev.node_stats}
        step = traced[0].step
        with open(os.path.join(d, f"timeline-{step}.json")) as f:
            trace = json.load(f)["traceEvents"]
        assert any(e["ph"] == "X" and e["name"] == "AssignAddVariableOp" for e in trace), trace[:5]
        assert any(e["ph"] == "M" and "CPU:0" in e["args"]["name"] for e in trace), trace[:5]


def test_tensorboard_reads_it():
    try:
        from tensorboard.backend.event_processing import event_accumulator
    except ImportError as e:
        raise tap.Skip(f"no tensorboard: {e}") from None
    with tempfile.TemporaryDirectory() as d:
        trainer("--steps=250", f"--checkpoint_dir={d}", f"--trace={d}")
        board = event_accumulator.EventAccumulator(d)
        board.Reload()
        tags = board.Tags()
        assert "mean" in tags["scalars"] and "values" in tags["histograms"] and tags["graph"], tags
        assert any(t.startswith("picture") for t in tags["images"]) and tags["run_metadata"], tags
        assert board.Graph().node
        assert board.RunMetadata(tags["run_metadata"][0]).step_stats.dev_stats


def test_on_tensorflows_servers():
    """Both tasks are TensorFlow's; the parameter server is killed and comes back."""
    with tempfile.TemporaryDirectory() as d, Cluster(ps=["tf"], worker=["tf"]) as c:
        p = subprocess.Popen([TRAINER, f"--master={c.target('worker')}", "--steps=1500", f"--checkpoint_dir={d}",
                              "--save_steps=50", "--step_ms=10"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True)
        until(lambda: p.poll() is not None or int((tf.train.latest_checkpoint(d) or "-0").rpartition("-")[2]) >= 100)
        c.tasks["ps", 0].kill()
        c.tasks["ps", 0].process.wait()
        c.tasks["ps", 0].start()
        text, _ = p.communicate(timeout=600)
        assert p.returncode == 0, text
        restored = int(re.search(r"made restored at step (\d+)", text).group(1))
        assert restored >= 100, text
        assert re.search(r"stopping at step (\d+) own \d+ a \1 b \1 ", text), text
        values = tf.train.load_checkpoint(tf.train.latest_checkpoint(d))
        assert (values.get_tensor("a") == values.get_tensor("global_step")).all()


def test_a_tensorflow_worker_joins():
    """The chief is a C program, the other worker MonitoredTrainingSession: one run. The chief is told to stop when the
    other has ended: what it saves then is no step's half."""
    with tempfile.TemporaryDirectory() as d, Cluster(ps=["shoal"], worker=["shoal", "shoal"]) as c:
        p = subprocess.Popen([TRAINER, f"--master={c.target('worker', 0)}", "--steps=100000", f"--checkpoint_dir={d}",
                              "--step_ms=5"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with tf.Graph().as_default():
            with tf.device(tf.train.replica_device_setter(1, worker_device="/job:worker/task:1")):
                step, a, _, train = counting_graph()
            own = 0
            with tf.train.MonitoredTrainingSession(c.target("worker", 1), is_chief=False,
                                                   hooks=[tf.train.StopAtStepHook(num_steps=100)]) as s:
                while not s.should_stop():
                    s.run(train)
                    own += 1
        p.terminate()
        text, _ = p.communicate(timeout=600)
        assert p.returncode == 75 and own > 0, text  # to be run again
        values = tf.train.load_checkpoint(tf.train.latest_checkpoint(d))
        assert (values.get_tensor("a") == values.get_tensor("global_step")).all()
        ours = int(re.search(r"own (\d+)", text).group(1))
        assert ours + own == values.get_tensor("global_step"), (ours, own, text)


if __name__ == "__main__":
    tap.main(globals())
