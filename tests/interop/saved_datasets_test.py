"""Datasets in files: what TensorFlow saves Shoal loads, and the other way round; snapshots; elements packed into values.

# needs: tensorflow
"""
import glob
import os
import shutil
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.data.ops import dataset_ops, save_op, structured_function

import shoal
from data_check import report

tf.disable_eager_execution()
D, raw = tf.data.Dataset, tf.raw_ops
FOLDER = tempfile.mkdtemp()
RNG = np.random.default_rng(1)
MIXED = (np.arange(7, dtype=np.int64), np.array([b"", b"a", b"x" * 300, b"z\0z", b"e", b"f", b"g"], object), RNG.normal(size=(7, 2, 3)).astype(np.float32),
         np.arange(7) % 2 == 0)
BIG = (np.repeat(RNG.normal(size=(6, 1)), 40000, 1), RNG.normal(size=(6, 40000)))  # more than a block of Snappy's; one packs, one does not


def session(g):
    """Without folding: TensorFlow cannot keep a dataset as a constant."""
    c = tf.ConfigProto()
    c.graph_options.rewrite_options.disable_meta_optimizer = True
    c.graph_options.optimizer_options.opt_level = -1
    return tf.Session(graph=g, config=c)


def run_tf(g, fetches, targets=()):
    with session(g) as s:
        try:
            return s.run((list(fetches), list(targets)))[0]
        except tf.errors.OpError as e:
            return e.error_code


def run_shoal(g, fetches, targets=()):
    with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) as s:
        try:
            return s.run(list(fetches), {}, list(targets))
        except shoal.Error as e:
            return e.code


RUN = {"tensorflow": run_tf, "shoal": run_shoal}


def graph_of(build):
    g = tf.Graph()
    with g.as_default():
        made = build()
    return g, [t.name for t in made if isinstance(t, tf.Tensor)], [t.name for t in made if isinstance(t, tf.Operation)]


def run(who, build):
    try:
        g = graph_of(build)
    except tf.errors.OpError as e:  # of a file that is looked at while building
        return e.error_code
    return RUN[who](*g)


def walk(who, dataset, n):
    """n elements of a dataset, then the end."""
    def build():
        it = tf.data.make_initializable_iterator(dataset())
        return tf.nest.flatten(it.get_next()) + [it.initializer]
    g, fetches, init = graph_of(build)
    if who == "tensorflow":
        with session(g) as s:
            s.run(init)
            out = [s.run(fetches) for _ in range(n)]
            try:
                s.run(fetches)
            except tf.errors.OutOfRangeError:
                return out
    else:
        with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) as s:
            s.run(targets=init)
            out = [s.run(fetches) for _ in range(n)]
            try:
                s.run(fetches)
            except shoal.Error as e:
                assert e.code == 11, e
                return out
    raise AssertionError("more elements than there should be")


def same(a, b):
    assert len(a) == len(b), (a, b)
    for x, y in zip(a, b):
        assert len(x) == len(y)
        assert all(np.array_equal(p, q) for p, q in zip(x, y)), (x, y)


def save(who, path, values, compression="", shard=None):
    def build():
        d = D.from_tensor_slices(values)
        f = structured_function.StructuredFunctionWrapper(shard or (lambda *x: tf.constant(0, tf.int64)), "save()", dataset=d)
        return [raw.SaveDataset(input_dataset=d._variant_tensor, path=path, shard_func_other_args=f.function.captured_inputs,
                                compression=compression, shard_func=f.function, use_shard_func=shard is not None)]
    return run(who, build)


def spec_of(values):
    return tuple(tf.TensorSpec(v.shape[1:], tf.string if v.dtype == object else v.dtype) for v in values)


def itself(x):
    return x


def by_parity(x):
    return x % 2


def third(x):
    return tf.constant(3, tf.int64)


def one_after_another(shards):
    return shards.flat_map(itself)


def in_turn(shards):
    return shards.interleave(itself, 2)


def load(path, values, compression=None):
    return D.load(path, spec_of(values), compression, one_after_another)


def travels(writer, reader, values, compression, shard=None, order=None):
    path = tempfile.mkdtemp(dir=FOLDER)
    assert save(writer, path, values, compression or "", shard) == []
    n = len(values[0])
    got = walk(reader, lambda: load(path, values, compression), n)
    same(got, [[v[i] for v in values] for i in (order or range(n))])
    assert len(glob.glob(f"{path}/*/*.shard/*.snapshot")) == (2 if shard else 1)


def counted(who):
    path = tempfile.mkdtemp(dir=FOLDER)
    save("shoal", path, MIXED)
    assert run(who, lambda: [load(path, MIXED).cardinality()]) == [7]


def saved_in_passing(writer, reader):
    """SaveDatasetV2 passes elements on; nothing is finalized before the end."""
    path = tempfile.mkdtemp(dir=FOLDER)
    same(walk(writer, lambda: save_op._SaveDataset(D.range(5), path, None, None), 5), [[i] for i in range(5)])
    same(walk(reader, lambda: D.load(path, tf.TensorSpec([], tf.int64)), 5), [[i] for i in range(5)])


def refused(build, who=("tensorflow", "shoal")):
    codes = [run(w, build) for w in who]
    assert isinstance(codes[0], int) and codes[0] == codes[1], codes


def mismatches():
    path = tempfile.mkdtemp(dir=FOLDER)
    save("tensorflow", path, (np.arange(3),), "GZIP")
    first = lambda d: [tf.data.make_one_shot_iterator(d).get_next()]
    os.makedirs(path + "/none")
    refused(lambda: first(D.load(path + "/none", tf.TensorSpec([], tf.int64))))
    refused(lambda: first(D.load(path, tf.TensorSpec([], tf.float32), "GZIP")))
    refused(lambda: first(D.load(path, tf.TensorSpec([], tf.int64))))  # packed, and not said so


def damaged():
    """Bytes of a stranger's: every prefix, and flips, are errors or fewer elements, never more."""
    for compression in ("", "GZIP", "SNAPPY"):
        path = tempfile.mkdtemp(dir=FOLDER)
        save("shoal", path, (np.arange(20), RNG.normal(size=(20, 9))), compression)
        file = glob.glob(f"{path}/*/*/*.snapshot")[0]
        whole = open(file, "rb").read()
        g, fetches, _ = graph_of(lambda: [D.load(path, (tf.TensorSpec([], tf.int64), tf.TensorSpec([9], tf.float64)), compression,
                                                 one_after_another).reduce(np.int64(0), lambda n, element: n + 1)])
        with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) as s:
            assert s.run(fetches) == [20]
            for k in range(0, len(whole), 37):
                for bad in (whole[:k], whole[:k] + bytes([whole[k] ^ 0x41]) + whole[k + 1:]):
                    open(file, "wb").write(bad)
                    try:
                        assert s.run(fetches)[0] <= 20
                    except shoal.Error as e:
                        assert e.code in (15, 3), e


def snapshot(compression):
    """The first walk writes, the second reads: of a pipeline whose elements are gone by then."""
    path = tempfile.mkdtemp(dir=FOLDER)
    source = os.path.join(path, "lines")
    build = lambda k=1: tf.data.TextLineDataset(source).map(lambda x: tf.strings.join([x] * k)).snapshot(
        path, compression=compression, shard_func=third, reader_func=one_after_another)
    open(source, "w").write("a\nb\nc\n")
    same(walk("shoal", build, 3), [[b"a"], [b"b"], [b"c"]])
    assert len(glob.glob(f"{path}/*/*/00000003.shard/00000000.snapshot")) == 1
    open(source, "w").write("x\n")
    same(walk("shoal", build, 3), [[b"a"], [b"b"], [b"c"]])
    same(walk("shoal", lambda: build(2), 1), [[b"xx"]])  # another pipeline has another snapshot
    # What was written TensorFlow reads, shard by shard.
    shard = glob.glob(f"{path}/*/*/00000003.shard")
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False

    def both(who, p, op, **args):
        def build():
            return dataset_ops._VariantDataset(getattr(raw, op)(
                **{("shard_dir" if op == "SnapshotDatasetReader" else "chunk_file"): p}, output_types=[tf.string], output_shapes=[[]],
                compression="SNAPPY" if compression == "AUTO" else compression or "", **args), tf.TensorSpec([], tf.string)).with_options(options)
        return walk(who, build, 2 if args else 3)
    first = next(p for p in shard if os.path.getsize(p + "/00000000.snapshot") > 45)
    for who in ("shoal", "tensorflow"):
        same(both(who, first, "SnapshotDatasetReader", start_index=1, version=2), [[b"b"], [b"c"]])
    same(both("shoal", first + "/00000000.snapshot", "SnapshotChunkDataset"), [[b"a"], [b"b"], [b"c"]])


def half_a_snapshot():
    """A walk that stops early leaves nothing that is taken for a snapshot."""
    path = tempfile.mkdtemp(dir=FOLDER)
    build = lambda: D.range(5).snapshot(path, shard_func=by_parity, reader_func=in_turn)
    same(walk("shoal", lambda: build().take(2), 2), [[0], [1]])
    same(walk("shoal", build, 5), [[0], [1], [2], [3], [4]])


def elements(who, values):
    build = lambda: raw.UncompressElement(
        compressed=raw.CompressElement(components=[tf.constant(v) for v in values]),
        output_types=[tf.constant(v).dtype for v in values], output_shapes=[np.shape(v) for v in values])
    got = run(who, build)
    same([got], [values])


def packed_by_the_other():
    """Through a GraphDef: a packed element of either is a constant for the other."""
    values = [np.arange(5000) // 70, np.array([b"x", b"", b"yy" * 200], object), np.float32(3), np.array([True, False]), np.zeros((0, 2), np.float16)]
    build = lambda: [raw.SerializeTensor(tensor=raw.CompressElement(components=[tf.constant(v) for v in values]))]
    texts = {who: run(who, build)[0] for who in RUN}
    for writer in RUN:
        for reader in RUN:
            got = run(reader, lambda: raw.UncompressElement(
                compressed=raw.ParseTensor(serialized=tf.constant(texts[writer]), out_type=tf.variant),
                output_types=[tf.constant(v).dtype for v in values], output_shapes=[v.shape for v in values]))
            assert not isinstance(got, int), (writer, reader, got)
            same([got], [values])


def cut_short():
    """What a writer did not finish, or what has lost files, is an error, not fewer elements."""
    loaded = lambda: run("shoal", lambda: [tf.data.make_one_shot_iterator(D.load(path, tf.TensorSpec([], tf.int64))).get_next()])
    path = tempfile.mkdtemp(dir=FOLDER)
    same(walk("shoal", lambda: save_op._SaveDataset(D.range(5), path, None, None).take(2), 2), [[0], [1]])
    assert loaded() == 15
    path = tempfile.mkdtemp(dir=FOLDER)
    save("shoal", path, (np.arange(3),))
    assert loaded() == [0]
    shutil.rmtree(glob.glob(f"{path}/[0-9]*")[0])
    assert loaded() == 15
    path = tempfile.mkdtemp(dir=FOLDER)
    save("shoal", path, (np.zeros(0, np.int64),))
    assert loaded() == 11  # none were saved
    cached = lambda: walk("shoal", lambda: D.range(50).cache(f"{path}/cache"), 50)
    same(cached(), [[i] for i in range(50)])
    file = glob.glob(f"{path}/cache.data*")[0]
    os.truncate(file, os.path.getsize(file) // 2)
    try:
        cached()
    except shoal.Error as e:
        assert e.code == 15, e
    else:
        raise AssertionError("half a cache is read")


def bad_elements():
    one = lambda types, shapes, value=None: lambda: raw.UncompressElement(
        compressed=value() if value else raw.CompressElement(components=[tf.constant([1, 2])]), output_types=types, output_shapes=shapes)
    refused(one([tf.float32], [[2]]))
    refused(one([tf.int32, tf.int32], [[2], [2]]))
    refused(one([tf.int32], [[2]], lambda: D.range(2)._variant_tensor))
    text = bytearray(run("tensorflow", lambda: [raw.SerializeTensor(tensor=raw.CompressElement(components=[tf.constant(["abc", "d"])]))])[0])
    g, fetches, _ = graph_of(lambda: raw.UncompressElement(
        compressed=raw.ParseTensor(serialized=tf.placeholder(tf.string, [], name="text"), out_type=tf.variant), output_types=[tf.string],
        output_shapes=[None]))
    with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) as s:
        for i in range(len(text)):  # whatever is changed: an error, or strings of some kind
            bad = bytes(text[:i]) + bytes([text[i] ^ 0x11]) + bytes(text[i + 1:])
            try:
                s.run(fetches, {"text:0": (np.array(bad, object), 7)})
            except shoal.Error as e:
                assert e.code in (3, 9, 15), e


tests = [(f"{w} saves, {r} loads, {c or 'plain'}", lambda w=w, r=r, c=c: travels(w, r, MIXED, c))
         for w, r in (("tensorflow", "shoal"), ("shoal", "tensorflow"), ("shoal", "shoal")) for c in (None, "GZIP", "SNAPPY")]
tests += [(f"{w} saves much, {r} loads", lambda w=w, r=r: travels(w, r, BIG, "SNAPPY")) for w, r in (("tensorflow", "shoal"), ("shoal", "tensorflow"))]
tests += [(f"{w} saves in shards, {r} loads", lambda w=w, r=r: travels(w, r, (np.arange(6),), None, by_parity, [0, 2, 4, 1, 3, 5]))
          for w, r in (("tensorflow", "shoal"), ("shoal", "tensorflow"))]
tests += [(f"{w} saves in passing, {r} loads", lambda w=w, r=r: saved_in_passing(w, r)) for w, r in (("tensorflow", "shoal"), ("shoal", "tensorflow"))]
tests += [(f"{w} knows how many were saved", lambda w=w: counted(w)) for w in RUN]
tests += [("what cannot be loaded", mismatches), ("damaged files", damaged), ("half a snapshot", half_a_snapshot),
          ("what was cut short", cut_short)]
tests += [(f"snapshot, {c or 'plain'}", lambda c=c: snapshot(c)) for c in ("AUTO", "GZIP", None)]
tests += [("a packed element", lambda: elements("shoal", [np.arange(9), np.array([b"a", b""], object)])),
          ("packed elements travel both ways", packed_by_the_other), ("bad packed elements", bad_elements)]
if __name__ == "__main__":
    report(tests)
