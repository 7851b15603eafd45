"""Datasets built through the C API (shoal/dataset.h) beside tf.data: each kind of source and transformation gives the
same elements when Shoal walks it, when TensorFlow runs the graph that was exported, and when tf.data makes it itself.
Shuffles of a seed are in the same order. What was had already can be skipped, and the rest is what it was.

# needs: tensorflow
"""
import gzip
import os
import struct
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf

import shoal
import tap

PROGRAM = os.path.join(os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build")), "tests", "programs", "datasets")
Dataset = tf.data.Dataset
X = np.float32([[1, 2], [3, 4], [5, 6]])
S = [b"a", b"", b"ccc"]
RECORDS = [b"one", b"", b"\x00\xff\n", b"x" * 3000]
IMAGES = np.arange(4 * 2 * 3, dtype=np.int16).reshape(4, 2, 3) - 5
LABELS = np.uint8([9, 0, 255, 3])


def put(folder, name, data):
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)


def idx_file(a, code):
    return bytes([0, 0, code, a.ndim]) + struct.pack(f">{a.ndim}I", *a.shape) + a.astype(a.dtype.newbyteorder(">")).tobytes()


def example(i):
    def number(kind, *values):
        return tf.train.Feature(**{f"{kind}_list": getattr(tf.train, f"{kind.capitalize()}List")(value=values)})
    features = {"label": number("int64", i), "x": number("float", i, -i), "tail": number("int64", *range(i)),
                "ragged": number("int64", *range(10, 10 + i % 3)), "sparse": number("float", *([0.5] * (i % 2)))}
    if i % 2:
        features["name"] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"n%d" % i]))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def records(path, packing, values):
    with tf.python_io.TFRecordWriter(path, tf.io.TFRecordOptions(compression_type=packing)) as w:
        for r in values:
            w.write(r)


def write_files(folder):
    put(folder, "images", idx_file(IMAGES, 0x0B))
    put(folder, "labels.gz", gzip.compress(idx_file(LABELS, 0x08)))
    for name, n in (("a", 3), ("b", 0), ("c", 5), ("d", 1)):
        put(folder, f"{name}.txt", b"".join(b"%s%d\r\n" % (name.encode(), i) for i in range(n)))
    put(folder, "lines.gz", gzip.compress(b"first\n\nlast without an end"))
    put(folder, "table.csv", b'id;left;right;text\n1;x;0.5;"a;b"\n2;y;;\n3;z;NA;c\n')
    for name, packing in (("plain", ""), ("gzip", "GZIP"), ("zlib", "ZLIB")):
        records(os.path.join(folder, f"{name}.tfrecord"), packing, RECORDS)
    records(os.path.join(folder, "examples.tfrecord"), "", [example(i) for i in range(7)])


# ---- what Shoal gives ----

TYPES = {"float32": np.float32, "int64": np.int64, "uint8": np.uint8, "int16": np.int16}


def component(text):
    head, values = text.split(":")
    kind, *dims = head.split()
    dims = [int(d) for d in dims]
    if kind == "string":
        a = np.empty(max(len(values.split()), 0), dtype=object)
        a[:] = [bytes.fromhex(v[1:]) for v in values.split()]
    else:
        a = np.array(values.split(), dtype=np.float64).astype(TYPES[kind])
    return a.reshape(dims)


def run_program(name, folder, *skip):
    p = subprocess.run([PROGRAM, name, folder, *map(str, skip)], capture_output=True, text=True, check=False)
    assert p.returncode == 0, (name, p.returncode, p.stdout[-500:], p.stderr[-2000:])
    begin, following, *lines = p.stdout.splitlines()
    elements = [tuple(component(c) for c in line.split("\t")) for line in lines]
    return begin.split()[1], following.split()[1:], elements


# ---- what TensorFlow gives ----

def walk(session, begin, following):
    session.run(begin)
    elements = []
    while True:
        try:
            elements.append(tuple(session.run(list(following))))
        except tf.errors.OutOfRangeError:
            return elements


def run_exported(folder, begin, following):
    with open(os.path.join(folder, "graph.pb"), "rb") as f:
        graph_def = tf.GraphDef.FromString(f.read())
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        with tf.Session(graph=graph) as s:
            return walk(s, begin, following)


def flat(x):
    if isinstance(x, tf.RaggedTensor):
        return [x.values, x.row_splits]
    if isinstance(x, tf.SparseTensor):
        return [x.indices, x.values, x.dense_shape]
    if isinstance(x, (tuple, list)):
        return [y for part in x for y in flat(part)]
    return [x]


def run_twin(make, folder):
    with tf.Graph().as_default() as graph:
        iterator = tf.data.make_initializable_iterator(make(folder))
        following = flat(iterator.get_next())
        with tf.Session(graph=graph) as s:
            return walk(s, iterator.initializer, following)


def same(ours, theirs, what):
    assert len(ours) == len(theirs), (what, len(ours), len(theirs))
    for i, (a, b) in enumerate(zip(ours, theirs)):
        assert len(a) == len(b), (what, i, len(a), len(b))
        for x, y in zip(a, b):
            y = np.asarray(y, dtype=object) if isinstance(y, bytes) else np.asarray(y)
            assert x.dtype == y.dtype and x.shape == y.shape, (what, i, x.dtype, y.dtype, x.shape, y.shape)
            np.testing.assert_array_equal(x, y, err_msg=f"{what}, element {i}")


# ---- twins ----

def name_in(folder, *names):
    return [os.path.join(folder, n) for n in names]


def slices(_=None):
    return Dataset.from_tensor_slices((X, S))


def triangle(n):
    return Dataset.range(n).map(lambda x: (tf.fill([x], x), x))


def several(x):
    return Dataset.from_tensor_slices(tf.range(x, x + 350, 100))


FEATURES = {"label": tf.FixedLenFeature([], tf.int64), "sparse": tf.VarLenFeature(tf.float32),
            "x": tf.FixedLenFeature([2], tf.float32), "name": tf.FixedLenFeature([], tf.string, "nobody"),
            "tail": tf.FixedLenSequenceFeature([], tf.int64, allow_missing=True),
            "ragged": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)}


def parsed(folder, alone):
    d = tf.data.TFRecordDataset(name_in(folder, "examples.tfrecord"))
    names = list(FEATURES)[:5 if alone else 6]
    features = {n: FEATURES[n] for n in names}
    if alone:
        return d.map(lambda s: tuple(tf.io.parse_single_example(s, features)[n] for n in names))
    return d.batch(3).map(lambda s: tuple(tf.io.parse_example(s, features)[n] for n in names))


def squares(**more):
    return lambda _: Dataset.range(50).map(lambda x: (x * x + 7, x), **more)


def with_graph_seed(_):
    tf.set_random_seed(77)
    return Dataset.range(40).shuffle(9, seed=42)


TWINS = {
    "tensors": lambda _: Dataset.from_tensors((X, S)),
    "slices": slices,
    "range": lambda _: Dataset.range(10, -3, -4),
    "idx": lambda _: Dataset.from_tensor_slices((IMAGES, LABELS)),
    "files": lambda f: Dataset.list_files(os.path.join(f, "*.txt"), seed=5),
    "lines": lambda f: tf.data.TextLineDataset(name_in(f, "a.txt")),
    "all_lines": lambda f: tf.data.TextLineDataset(name_in(f, "a.txt", "b.txt", "c.txt", "d.txt")),
    "lines_gzip": lambda f: tf.data.TextLineDataset(name_in(f, "lines.gz"), compression_type="GZIP"),
    "csv": lambda f: tf.data.experimental.CsvDataset(
        name_in(f, "table.csv"), [tf.int64, tf.constant([-1.0]), tf.constant(["none"])], header=True, field_delim=";",
        na_value="NA", select_cols=[0, 2, 3]),
    "tfrecord": lambda f: tf.data.TFRecordDataset(name_in(f, "plain.tfrecord")),
    "tfrecord_gzip": lambda f: tf.data.TFRecordDataset(name_in(f, "gzip.tfrecord"), "GZIP"),
    "tfrecord_zlib": lambda f: tf.data.TFRecordDataset(name_in(f, "zlib.tfrecord"), "ZLIB"),
    "parse_one": lambda f: parsed(f, True),
    "parse_batch": lambda f: parsed(f, False),
    "map": squares(),
    "map_parallel": squares(num_parallel_calls=3),
    "map_unordered": squares(),
    "filter": lambda _: Dataset.range(20).filter(lambda x: tf.equal(x % 3, 2)),
    "flat_map": lambda _: Dataset.range(5).flat_map(several),
    "interleave": lambda _: Dataset.range(7).interleave(several, cycle_length=3, block_length=2),
    "interleave_parallel": lambda f: Dataset.list_files(os.path.join(f, "*.txt"), shuffle=False).interleave(
        tf.data.TextLineDataset, cycle_length=2, num_parallel_calls=2),
    "batch": lambda _: slices().batch(2),
    "batch_drop": lambda _: slices().batch(2, drop_remainder=True),
    "unbatch": lambda _: slices().batch(2).unbatch(),
    "padded": lambda _: triangle(7).padded_batch(3, ([None], [])),
    "padded_to": lambda _: triangle(7).padded_batch(3, ([8], []), (np.int64(-1), np.int64(0)), drop_remainder=True),
    "ragged": lambda _: triangle(7).ragged_batch(3),
    "shuffle": lambda _: Dataset.range(40).shuffle(9, seed=42),
    "shuffle_repeat": lambda _: Dataset.range(40).shuffle(9, seed=42).repeat(3),
    "shuffle_same": lambda _: Dataset.range(12).shuffle(20, seed=0, reshuffle_each_iteration=False).repeat(2),
    "shuffle_graph_seed": with_graph_seed,
    "saved": slices,
    "snapshot": slices,
    "repeat": lambda _: Dataset.range(3).repeat(3),
    "take_skip": lambda _: Dataset.range(30).repeat().skip(25).take(10),
    "shard": lambda _: Dataset.range(11).shard(3, 1),
    "concatenate": lambda _: slices().batch(2).concatenate(slices().batch(2, drop_remainder=True)),
    "zip": lambda _: Dataset.zip((Dataset.range(5), slices())),
    "enumerate": lambda _: slices().enumerate(4),
    "prefetch": lambda _: Dataset.range(9).prefetch(2),
    "cache": lambda _: Dataset.range(40).shuffle(9, seed=42).cache().repeat(2),
    "cache_file": lambda f: Dataset.range(6).cache(os.path.join(f, "theirs")).repeat(2),
    "window": lambda _: Dataset.range(14).window(4, shift=3, stride=2).take(4).flat_map(lambda w: w.batch(4)),
    "group_by_window": lambda _: Dataset.range(20).group_by_window(lambda x: x % 3, lambda k, w: w.batch(4), 4),
    "group_by_length": lambda _: triangle(13).bucket_by_sequence_length(
        lambda v, x: tf.shape(v)[0], [3, 7], [2, 3, 2], padded_shapes=([None], [])),
}
UNORDERED = {"map_unordered"}


def compare(name):
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder)
        begin, following, ours = run_program(name, folder)
        assert ours or name == "nothing", name
        exported, twin = run_exported(folder, begin, following), run_twin(TWINS[name], folder)
        if name in UNORDERED:
            ours, exported = sorted(ours), sorted(exported)
        for n in {1, len(ours) // 2, len(ours)} if name not in UNORDERED else ():
            same(run_program(name, folder, n)[2], ours[n:], f"{name}: after {n}")
        same(ours, twin, f"{name}: Shoal and tf.data")
        same([tuple(np.asarray(x, dtype=object) if isinstance(x, bytes) else np.asarray(x) for x in e) for e in exported],
             twin, f"{name}: TensorFlow on the exported graph, and tf.data")


for case in TWINS:
    globals()[f"test_{case}"] = lambda case=case: compare(case)


def test_on_a_server_of_tensorflow():
    """Shoal's client, TensorFlow's server."""
    server = tf.train.Server.create_local_server()
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder)
        for name in ("idx", "parse_batch", "map_parallel", "interleave_parallel", "ragged", "shuffle_repeat", "window",
                     "group_by_length"):
            ours = run_program(name, folder)[2]
            os.environ["MASTER"] = server.target
            same(run_program(name, folder)[2], ours, name)
            del os.environ["MASTER"]


def test_callback():
    """Elements that the program makes; its last batch is not lost."""
    with tempfile.TemporaryDirectory() as folder:
        _, _, elements = run_program("callback", folder)
        rows = [[10 * p + i for i in range(p)] for p in range(9)]
        assert [e[0].tolist() for e in elements] == rows
        _, _, elements = run_program("callback_batched", folder)
        assert [e[0].shape for e in elements] == [(4, 3), (4, 7), (1, 8)]
        assert elements[2][0].tolist() == [rows[8]]


if __name__ == "__main__":
    tap.main(globals())
