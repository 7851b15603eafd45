"""--file_root: what ops of a graph may open, asked by TensorFlow's own client.

Every op that takes a path is tried inside the root, where it works, and outside, by its path, by "..", and through a link,
where it is refused by name and nothing outside is read, made or changed.
"""
# needs: tensorflow
# not on the soft device: ops that open files run on the CPU whatever the devices
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow.compat.v1 as tf

from cluster import PATIENCE, SHOAL, Cluster, report

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)

TOP = tempfile.TemporaryDirectory(prefix="shoal_root_")
ROOT, OUT = os.path.join(TOP.name, "root"), os.path.join(TOP.name, "outside")


def prepare():
    for d in (ROOT, OUT):
        os.makedirs(d)
        with open(os.path.join(d, "words"), "w") as f:
            f.write("alpha\nbeta\n")
        with tf.python_io.TFRecordWriter(os.path.join(d, "records")) as w:
            w.write(b"one")
        with tf.Graph().as_default(), tf.Session() as s:
            s.run(save(os.path.join(d, "ckpt")))
    os.symlink(OUT, os.path.join(ROOT, "link"))


def save(prefix):
    return tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["x"], shape_and_slices=[""], tensors=[tf.constant([1.0, 2.0])])


def first(dataset):
    return tf.data.make_one_shot_iterator(dataset).get_next()


def read_queue(reader, path):
    q = tf.FIFOQueue(2, [tf.string], shapes=[[]])
    with tf.control_dependencies([q.enqueue([path])]):
        return reader.read(q)[1]


def table(path):
    t = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
        path, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER), -1)
    with tf.control_dependencies([t._init_op]):  # pylint: disable=protected-access
        return t.lookup(tf.constant("beta"))


def summary(path):
    w = tf.raw_ops.SummaryWriter(shared_name=path, container="")
    made = tf.raw_ops.CreateSummaryFileWriter(writer=w, logdir=path, max_queue=1, flush_millis=1, filename_suffix="")
    with tf.control_dependencies([made]):
        return tf.raw_ops.WriteScalarSummary(writer=w, step=1, tag="t", value=1.0)


def merge(path):
    return tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=[path], destination_prefix=path + "_merged",
                                         delete_old_dirs=False)


def sampled(path):
    return tf.raw_ops.FixedUnigramCandidateSampler(true_classes=[[0]], num_true=1, num_sampled=1, unique=False, range_max=2,
                                                   vocab_file=path, distortion=1.0, num_reserved_ids=0, num_shards=1, shard=0,
                                                   unigrams=[])[0]


# Name: (an op on a directory, what it looks for there). The directory is the root, or one of the ways out of it.
READS = {
    "ReadFile": lambda d: tf.io.read_file(d + "/words"),
    "MatchingFiles": lambda d: tf.io.matching_files(d + "/w*"),
    "WholeFileReader": lambda d: read_queue(tf.WholeFileReader(), d + "/words"),
    "TextLineReader": lambda d: read_queue(tf.TextLineReader(), d + "/words"),
    "FixedLengthRecordReader": lambda d: read_queue(tf.FixedLengthRecordReader(2), d + "/words"),
    "TFRecordReader": lambda d: read_queue(tf.TFRecordReader(), d + "/records"),
    "TextLineDataset": lambda d: first(tf.data.TextLineDataset(d + "/words")),
    "TFRecordDataset": lambda d: first(tf.data.TFRecordDataset(d + "/records")),
    "FixedLengthRecordDataset": lambda d: first(tf.data.FixedLengthRecordDataset(d + "/words", 11)),
    "a dataset run ahead": lambda d: first(tf.data.TextLineDataset(d + "/words").prefetch(2)),
    "a function of a dataset": lambda d: first(tf.data.Dataset.from_tensors(d + "/words").map(
        tf.io.read_file, num_parallel_calls=4).prefetch(1)),
    "interleaved files": lambda d: first(tf.data.Dataset.from_tensors(d + "/words").interleave(
        tf.data.TextLineDataset, cycle_length=2, num_parallel_calls=2)),
    "RestoreV2": lambda d: tf.raw_ops.RestoreV2(prefix=d + "/ckpt", tensor_names=["x"], shape_and_slices=[""],
                                                dtypes=[tf.float32])[0],
    "InitializeTableFromTextFile": lambda d: table(d + "/words"),
}
WRITES = {
    "WriteFile": lambda d: tf.io.write_file(d + "/new", "x"),
    "WriteFile in a new directory": lambda d: tf.io.write_file(d + "/new_dir/deeper/new", "x"),
    "SaveV2": lambda d: save(d + "/new_ckpt"),
    "MergeV2Checkpoints": lambda d: merge(d + "/ckpt"),
    "CreateSummaryFileWriter": lambda d: summary(d + "/new_logs"),
    "PrintV2": lambda d: tf.raw_ops.PrintV2(input="line", output_stream="file://" + d + "/new_print"),
}
WAYS_OUT = {"by its path": OUT, "by ..": ROOT + "/../outside", "through a link": ROOT + "/link"}


def tree(d):
    return sorted((os.path.relpath(os.path.join(p, f), d), os.path.getsize(os.path.join(p, f)))
                  for p, _, files in os.walk(d) for f in files)


def run(op):
    with tf.Graph().as_default():
        fetch = op()
        with tf.Session(CLUSTER.target("worker", 0), config=tf.ConfigProto(isolate_session_state=True)) as s:
            return s.run(fetch)


def works_inside(make):
    run(lambda: make(ROOT))
    if make in READS.values():
        run(lambda: make("file://" + ROOT))


def refused_outside(make):
    before = tree(OUT)
    for way, d in WAYS_OUT.items():
        try:
            run(lambda: make(d))  # pylint: disable=cell-var-from-loop
        except tf.errors.PermissionDeniedError as e:
            assert "--file_root=" + ROOT in e.message and d in e.message, e.message
        else:
            raise AssertionError(f"{way}: no error")
    assert tree(OUT) == before


def vocab_file():
    with open(os.path.join(ROOT, "vocab"), "w") as f:
        f.write("a,1\nb,2\n")
    run(lambda: sampled(ROOT + "/vocab"))
    try:
        run(lambda: sampled("/etc/passwd"))
    except tf.errors.PermissionDeniedError:
        return
    raise AssertionError("no error")


def other_task():
    """The confinement is the task's that runs the op, not the master's."""
    for job, allowed in (("worker", False), ("ps", True)):
        with tf.Graph().as_default(), tf.device(f"/job:{job}/task:0"):
            read = tf.io.read_file(OUT + "/words")
            with tf.Session(CLUSTER.target("ps", 0)) as s:
                try:
                    assert s.run(read) == b"alpha\nbeta\n" and allowed
                except tf.errors.PermissionDeniedError:
                    assert not allowed


def pipes_and_devices():
    """What may never end, or never begin, is not opened: not inside the root, nor by a server that has none."""
    for d in (ROOT, OUT):
        os.mkfifo(d + "/pipe")
    devices = [d for d in ("/dev/zero", "/dev/ptmx") if pathlib.Path(d).is_char_device()]
    for job, paths in (("worker", [ROOT + "/pipe"]), ("ps", [OUT + "/pipe", *devices])):
        for path in paths:
            for make in (tf.io.read_file, lambda p: first(tf.data.TextLineDataset(p)),
                         lambda p: tf.raw_ops.PrintV2(input="line", output_stream="file://" + p)):
                with tf.Graph().as_default(), tf.device(f"/job:{job}/task:0"):
                    fetch = make(path)
                    config = tf.ConfigProto(isolate_session_state=True, operation_timeout_in_ms=PATIENCE * 1000)
                    with tf.Session(CLUSTER.target("ps", 0), config=config) as s:
                        try:
                            s.run(fetch)
                        except (tf.errors.PermissionDeniedError, tf.errors.InvalidArgumentError) as e:
                            assert path in e.message, e.message
                        else:
                            raise AssertionError(f"{path}: no error")


def bad_root():
    p = subprocess.run([SHOAL, "server", '--cluster_spec={"worker": ["127.0.0.1:0"]}', "--job_name=worker",
                        "--file_root=/nowhere/at/all"], capture_output=True, text=True, timeout=PATIENCE)
    assert p.returncode == 2 and "--file_root" in p.stderr and "/nowhere/at/all" in p.stderr, p


TESTS = [(f"{name} works inside the root", lambda make=make: works_inside(make)) for name, make in {**READS, **WRITES}.items()]
TESTS += [(f"{name} is refused outside", lambda make=make: refused_outside(make)) for name, make in {**READS, **WRITES}.items()]
TESTS += [("a vocabulary given as an attribute", vocab_file), ("each task has its own root", other_task),
          ("pipes and devices", pipes_and_devices), ("a root that does not exist", bad_root)]

if __name__ == "__main__":
    prepare()
    CLUSTER = Cluster(ps=["shoal"], worker=["shoal"])
    CLUSTER.tasks["worker", 0].flags.append("--file_root=" + ROOT)
    with CLUSTER:
        code = report(TESTS)
    TOP.cleanup()
    sys.exit(code)
