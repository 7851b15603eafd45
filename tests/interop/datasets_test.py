"""Datasets that have no function of tf.data's own, or an experimental one: the same elements as TensorFlow's.

# needs: tensorflow
"""
import gzip
import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.data.experimental.ops import testing
from tensorflow.python.data.ops import dataset_ops, structured_function

import shoal
from data_check import check, report

tf.disable_eager_execution()
D, raw = tf.data.Dataset, tf.raw_ops
FOLDER = tempfile.mkdtemp()
RECORDS = os.path.join(FOLDER, "records")
OFFSETS = [0]
with tf.io.TFRecordWriter(RECORDS) as w:
    for i in range(5):
        w.write(b"record %d" % i)
        OFFSETS.append(OFFSETS[-1] + 16 + len("record 0"))


def made(variant, spec):
    """A dataset of a variant that a raw op made."""
    return dataset_ops._VariantDataset(variant, spec)


def over(op, d, spec=None, **args):
    """A raw op over a dataset d, whose elements it keeps unless a spec is given."""
    spec = spec or d.element_spec
    flat = tf.nest.flatten(spec)
    return made(op(input_dataset=d._variant_tensor, output_types=[s.dtype for s in flat],
                   output_shapes=[s.shape for s in flat], **args), spec)


def vector(dtype=tf.int64):
    return tf.TensorSpec([None], dtype)


def sparse_batches(d, size, row):
    variant = raw.DenseToSparseBatchDataset(input_dataset=d._variant_tensor, batch_size=size, row_shape=np.array(row, np.int64),
                                            output_types=[tf.variant], output_shapes=[tf.TensorShape(None)])
    return made(variant, tf.SparseTensorSpec([None] + [None if r < 0 else r for r in row], d.element_spec.dtype)).map(
        lambda s: (s.indices, s.values, s.dense_shape))


def sparse_slices(indices, values, shape):
    spec = (tf.TensorSpec([None, len(shape) - 1], tf.int64), vector(tf.float32), tf.TensorSpec([len(shape) - 1], tf.int64))
    return made(raw.SparseTensorSliceDataset(indices=np.array(indices, np.int64).reshape(-1, len(shape)), values=np.array(values, np.float32),
                                             dense_shape=np.array(shape, np.int64)), spec)


def listed(op, elements, **names):
    # TensorFlow folds what it can, and then cannot keep a dataset as a constant.
    flat = [raw.DatasetToSingleElement(dataset=D.from_tensors(v)._variant_tensor, output_types=[v.dtype], output_shapes=[v.shape])[0]
            for e in elements for v in e]
    spec = tuple(tf.TensorSpec(v.shape, v.dtype) for v in flat[:len(elements[0])])
    return made(op(output_types=[s.dtype for s in spec], output_shapes=[s.shape for s in spec], **{k: flat for k in names}), spec)


def plain(d):
    """Without what TensorFlow would make of the pipeline."""
    o = tf.data.Options()
    o.experimental_optimization.apply_default_optimizations = False
    o.autotune.enabled = False
    return d.with_options(o)


def from_offsets(*offsets):
    """In one batch: TensorFlow cannot make an iterator over this dataset itself."""
    d = made(raw.TFRecordDatasetV2(filenames=[RECORDS] * len(offsets), compression_type="", buffer_size=0,
                                   byte_offsets=np.array(offsets, np.int64)), tf.TensorSpec([], tf.string)).batch(99)
    return raw.DatasetToSingleElement(dataset=d._variant_tensor, output_types=[tf.string], output_shapes=[[None]])


CSV_FILES = {
    "plain.csv": b"a,b,c\n1,x,2.5\n2,,-1e3\r\n3,\"y\",\n-4,zzz,7\r5,w,8",
    "quotes.csv": b'n,"a\nheader",f\n1,"two, with ""quotes""",1\n2,"line\nbreak",2\n3,"",3\n4,"open",4\n',
    "bad.csv": b'1,a,1\nx,b,2\n3,c\n4,d,4,5\n5,e"f,5\n6,"g"h,6\n7,i,\n\n8,j,8\n9,"k',
    "empty.csv": b"",
    "wide.csv": b"1;2;3;4;5\n6;NA;8;9;10\n",
}
for file, text in CSV_FILES.items():
    open(os.path.join(FOLDER, file), "wb").write(text)
with gzip.open(os.path.join(FOLDER, "packed.csv"), "wb") as w:
    w.write(CSV_FILES["quotes.csv"])
TYPES = (np.int32(0), b"", np.float32(0))


def constant(value):
    return tf.constant(value, tf.string) if getattr(value, "dtype", None) == object else tf.constant(value)


def csv(files, defaults=TYPES, op="CSVDatasetV2", header=False, select=(), exclude=(), delim=",", quotes=True, na="", packing="", buffer=11):
    """buffer_size: small, so that TensorFlow's fields cross its buffers."""
    args = dict(filenames=[os.path.join(FOLDER, f) for f in files], compression_type=packing, buffer_size=buffer, header=header,
                field_delim=delim, use_quote_delim=quotes, na_value=na, select_cols=np.array(select, np.int64),
                record_defaults=[constant(d) for d in defaults], output_shapes=[[]] * len(defaults))
    if op.endswith("V2"):
        args["exclude_cols"] = np.array(exclude, np.int64)
    return made(getattr(raw, op)(**args), tuple(tf.TensorSpec([], constant(d).dtype) for d in defaults))


def example(**features):
    def feature(v):
        if isinstance(v[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=v))
        kind = dict(int64_list=tf.train.Int64List(value=v)) if isinstance(v[0], int) else dict(float_list=tf.train.FloatList(value=v))
        return tf.train.Feature(**kind)
    return tf.train.Example(features=tf.train.Features(feature={k: feature(v) for k, v in features.items() if v})).SerializeToString()


EXAMPLES = [example(i=[i], f=[i + 0.5, -1.0], s=[b"%d" % k for k in range(i)], r=list(range(10, 10 + i % 3)), v=[float(i)] * (2 * (i % 3)))
            for i in range(7)]
FEATURES = {"i": tf.io.FixedLenFeature([], tf.int64), "f": tf.io.FixedLenFeature([2], tf.float32), "s": tf.io.VarLenFeature(tf.string),
            "v": tf.io.FixedLenSequenceFeature([2], tf.float32, allow_missing=True, default_value=3.0),
            "r": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int32), "absent": tf.io.FixedLenFeature([1], tf.string, b"none")}


def flat(parsed):
    return [p for k in sorted(parsed) for p in (
        (parsed[k].indices, parsed[k].values, parsed[k].dense_shape) if isinstance(parsed[k], tf.SparseTensor)
        else (parsed[k].values, parsed[k].row_splits) if isinstance(parsed[k], tf.RaggedTensor) else (parsed[k],))]


def parsed(features, examples=EXAMPLES, batch=3, calls=1, deterministic=None):
    return D.from_tensor_slices(np.array(examples, object)).batch(batch).apply(
        tf.data.experimental.parse_example_dataset(features, calls, deterministic)).map(lambda p: tuple(flat(p)))


def parsed_raw(op="ParseExampleDataset", keys=("a",), types=(tf.int64,), shapes=([],), defaults=(np.int64(1),), out=None, sparse=(), calls=1):
    n = len(keys) + len(sparse)
    out = out or [[None]] * n
    return made(getattr(raw, op)(
        input_dataset=D.from_tensors(np.array([example(a=[5]), example(b=[6])], object))._variant_tensor, num_parallel_calls=calls,
        dense_defaults=[tf.constant(d) for d in defaults], sparse_keys=list(sparse), dense_keys=list(keys), sparse_types=[tf.int64] * len(sparse),
        dense_shapes=list(shapes), output_types=list(types) + [tf.variant] * len(sparse), output_shapes=out),
        tuple(tf.TensorSpec(None, t) for t in types))


def fastest(*branches, ratio=(1, 1)):
    d = D.range(8)
    made_of = [structured_function.StructuredFunctionWrapper(b, "branch", input_structure=dataset_ops.DatasetSpec(d.element_spec)) for b in branches]
    inputs = [list(f.function.captured_inputs) for f in made_of]
    return made(raw.ChooseFastestBranchDataset(
        input_dataset=d._variant_tensor, ratio_numerator=ratio[0], ratio_denominator=ratio[1], other_arguments=sum(inputs, []),
        num_elements_per_branch=2, branches=[f.function for f in made_of], other_arguments_lengths=[len(i) for i in inputs],
        output_types=[tf.int64], output_shapes=[None]), tf.TensorSpec(None, tf.int64))


def with_captured():
    by, plus = tf.constant(3, tf.int64), tf.constant(1, tf.int64)
    return fastest(lambda d: d.map(lambda x: x * by + plus), lambda d: d.map(lambda x: plus + by * x))


def bad_third(n=12):
    """The fourth element is an error."""
    return D.range(n).map(lambda x: tf.debugging.check_numerics(1 / (tf.cast(x, tf.float32) - 3), "bad"))


def whole_shard(d, shards, index):
    """A shard of some in which none may be empty."""
    return over(raw.ShardDataset, d, num_shards=shards, index=index, require_non_empty=True)


def grouped(d):
    return d.group_by_window(lambda x: tf.cast(x > 0, tf.int64), lambda _, w: w, window_size=2)


def fixed(names, header=0, footer=0):
    paths = [os.path.join(FOLDER, n) for n in names]
    for path in paths:
        with gzip.open(path, "wb") as f:
            f.write(bytes(range(header + 13 + footer)))
    return tf.data.FixedLengthRecordDataset(paths, 5, header, footer, compression_type="GZIP")


LISTED = [(np.float32(1), np.array([1, 2])), (np.float32(2), np.array([3, 4])), (np.float32(3), np.array([5, 6]))]
PIPELINES = {
    "rebatch": lambda: over(raw.RebatchDataset, D.range(17).batch(8), vector(), num_replicas=3),
    "rebatch of fewer rows": lambda: over(raw.RebatchDataset, D.range(5).batch(2), vector(), num_replicas=4),
    "rebatch by the old name": lambda: over(raw.ExperimentalRebatchDataset, D.range(12).batch(4), vector(), num_replicas=2),
    "rebatch of scalars": lambda: over(raw.RebatchDataset, D.range(3), num_replicas=2),
    "rebatch for 0": lambda: over(raw.RebatchDataset, D.range(4).batch(2), num_replicas=0),
    "rebatch to sizes": lambda: D.range(20).batch(6).rebatch([3, 5], drop_remainder=False),
    "rebatch to sizes, whole ones": lambda: D.range(20).batch(6).rebatch(7, drop_remainder=True),
    "rebatch with an empty batch": lambda: over(raw.RebatchDatasetV2, D.range(7).batch(2), vector(), batch_sizes=np.array([2, 0], np.int64),
                                                drop_remainder=False),
    "rebatch of pairs": lambda: D.from_tensor_slices((np.arange(12).reshape(6, 2), list("abcdef"))).batch(4).rebatch(3),
    "rebatch to sizes of scalars": lambda: over(raw.RebatchDatasetV2, D.range(7), tf.TensorSpec(None, tf.int64), batch_sizes=np.array([2], np.int64),
                                                drop_remainder=False),
    "sliding windows": lambda: over(raw.SlidingWindowDataset, D.range(11), vector(), window_size=3, window_shift=2, window_stride=2),
    "sliding windows to the end": lambda: over(raw.SlidingWindowDataset, D.range(8), vector(), window_size=3, window_shift=2,
                                               window_stride=1, drop_remainder=False),
    "sliding windows, apart": lambda: over(raw.ExperimentalSlidingWindowDataset, D.range(11), vector(), window_size=2, window_shift=4,
                                           window_stride=1),
    "sliding by 0": lambda: over(raw.SlidingWindowDataset, D.range(8), vector(), window_size=3, window_shift=0, window_stride=1),
    "sliding windows of unequal shapes": lambda: over(raw.SlidingWindowDataset, D.range(4).map(lambda x: tf.zeros([x])),
                                                      tf.TensorSpec(None, tf.float32), window_size=2, window_shift=1, window_stride=1),
    "sparse batches": lambda: sparse_batches(D.range(1, 6).map(lambda x: tf.fill([x], x)), 2, [-1]),
    "sparse batches of a shape": lambda: sparse_batches(D.range(1, 4).map(lambda x: tf.fill([x, 2], x)), 2, [5, 2]),
    "sparse batches, too large": lambda: sparse_batches(D.range(1, 4).map(lambda x: tf.fill([x], x)), 2, [2]),
    "sparse batches, another rank": lambda: sparse_batches(D.range(1, 4).map(lambda x: tf.fill([x], x)), 1, [2, 2]),
    "sparse slices": lambda: sparse_slices([[0, 1], [0, 2], [2, 0], [2, 1], [2, 3]], [1, 2, 3, 4, 5], [4, 5]),
    "sparse slices of a vector": lambda: sparse_slices([[1], [3]], [1, 2], [4]),
    "sparse slices of nothing": lambda: sparse_slices([], [], [2, 3]),
    "sparse slices out of order": lambda: sparse_slices([[1, 0], [0, 0]], [1, 2], [2, 2]),
    "a list": lambda: listed(raw.ListDataset, LISTED, tensors=1),
    "from_list": lambda: tf.data.experimental.from_list([(1, "a"), (2, "b")]),
    "a window's elements": lambda: listed(raw.WindowOp, LISTED, inputs=1),
    "sampling": lambda: over(raw.SamplingDataset, D.range(60), rate=0.3, seed=4, seed2=9),
    "sleep": lambda: over(raw.SleepDataset, D.range(3), sleep_microseconds=100),
    "shards of elements": lambda: over(raw.AutoShardDataset, D.range(10).map(lambda x: x * x), num_workers=3, index=1, auto_shard_policy=2),
    "shards, no files": lambda: over(raw.AutoShardDataset, D.range(10), num_workers=3, index=2),
    "no shards": lambda: over(raw.ExperimentalAutoShardDataset, D.range(5), num_workers=3, index=2, auto_shard_policy=-1),
    "a shard that is not": lambda: over(raw.AutoShardDataset, D.range(10), num_workers=3, index=3),
    "the fastest": lambda: made(raw.ChooseFastestDataset(
        input_datasets=[D.range(6).map(lambda x: x + 1)._variant_tensor, D.range(1, 7)._variant_tensor], num_experiments=2,
        output_types=[tf.int64], output_shapes=[[]]), tf.TensorSpec([], tf.int64)),
    "random numbers again": lambda: D.random(seed=3, rerandomize_each_iteration=True).take(4).repeat(2),
    "random numbers, the same": lambda: D.random(seed=3, rerandomize_each_iteration=False).take(4).repeat(2),
    "options": lambda: D.range(4).with_options(tf.data.Options()),
    "next as promised": lambda: plain(D.range(4).apply(testing.assert_next(["Map", "Batch"])).map(lambda x: x + 1).batch(2)),
    "previous as promised": lambda: D.range(4).batch(2).take(1).apply(testing.assert_prev([("TakeDataset", {}), ("BatchDataset", {})])),
    "previous not as promised": lambda: D.range(4).batch(2).take(1).apply(testing.assert_prev([("BatchDataset", {})])),
    "previous, more promised": lambda: D.range(4).take(1).apply(testing.assert_prev([("TakeDataset", {}), ("RangeDataset", {})] * 2)),
    "latency and bytes": lambda: over(raw.BytesProducedStatsDataset, over(raw.LatencyStatsDataset, D.range(3), tag="a"), tag="b"),
    "a thread pool": lambda: over(raw.ThreadPoolDataset, D.range(3), thread_pool=raw.ThreadPoolHandle(num_threads=2, display_name="p")),
    "wrapped": lambda: made(raw.UnwrapDatasetVariant(input_handle=raw.WrapDatasetVariant(input_handle=D.range(3)._variant_tensor)),
                            tf.TensorSpec([], tf.int64)),
    "unwrapped, not wrapped": lambda: made(raw.UnwrapDatasetVariant(input_handle=D.range(3)._variant_tensor), tf.TensorSpec([], tf.int64)),
    "csv": lambda: csv(["plain.csv", "empty.csv", "plain.csv"]),
    "csv with a header": lambda: csv(["plain.csv", "plain.csv"], header=True),
    "csv with a header, nothing else": lambda: csv(["empty.csv", "plain.csv"], header=True),
    "csv with quotes": lambda: csv(["quotes.csv"], header=True),
    "csv in one buffer": lambda: csv(["quotes.csv", "bad.csv"], header=True, buffer=4096),
    "csv with quotes taken as they are": lambda: csv(["quotes.csv"], (b"", b"", b""), quotes=False),
    "csv, packed": lambda: csv(["packed.csv"], header=True, packing="GZIP", buffer=4096),
    "csv, packed by a way that is none": lambda: csv(["packed.csv"], packing="SNAPPY"),
    "csv with mistakes": lambda: csv(["bad.csv"]),
    "csv with required fields": lambda: csv(["plain.csv"], (np.int64([]), np.array([], object), np.float64([]))),
    "csv, some columns": lambda: csv(["wide.csv"], (np.int32(0), np.float64(7)), select=[1, 4], delim=";", na="NA"),
    "csv, but some columns": lambda: csv(["wide.csv"], (np.int64(0), np.int32(7)), exclude=[0, 2, 3], delim=";", na="NA"),
    "csv by the old names": lambda: csv(["wide.csv"], (np.int32(0),), "CSVDataset", select=[2], delim=";").concatenate(
        csv(["wide.csv"], (np.int32(0),), "ExperimentalCSVDataset", select=[0], delim=";")),
    "csv, more columns than there are": lambda: csv(["wide.csv"], (np.int32(0),), select=[7], delim=";"),
    "csv, fewer defaults": lambda: csv(["wide.csv"], (np.int32(0),), delim=";"),
    "csv, a file that is not there": lambda: csv(["none.csv"]),
    "csv, columns in disorder": lambda: csv(["wide.csv"], (np.int32(0),) * 2, select=[2, 1]),
    "csv, both lists": lambda: csv(["wide.csv"], (np.int32(0),), select=[2], exclude=[1]),
    "csv, columns below 0": lambda: csv(["wide.csv"], (np.int32(0),), exclude=[-1]),
    "csv, delimiters": lambda: csv(["wide.csv"], delim=";;"),
    "csv, no buffer": lambda: csv(["wide.csv"], buffer=0),
    "make_csv_dataset": lambda: tf.data.experimental.make_csv_dataset(
        os.path.join(FOLDER, "quotes.csv"), 2, shuffle=False, num_epochs=1, column_names=["n", "a", "f"], header=True).map(
            lambda c: (c["n"], c["a"], c["f"])),
    "parsed examples": lambda: parsed(FEATURES),
    "parsed examples, several calls": lambda: parsed(FEATURES, calls=4, deterministic=True),
    "parsed examples, no batch": lambda: parsed({"f": FEATURES["f"]}, []),
    "parsed examples, a broken one": lambda: parsed({"f": FEATURES["f"]}, EXAMPLES[:2] + [b"\x0a\x7f"] + EXAMPLES[2:], 1),
    "parsed examples, a type": lambda: parsed({"f": tf.io.VarLenFeature(tf.int64)}),
    "parsed examples, a shape": lambda: parsed({"f": tf.io.FixedLenFeature([3], tf.float32)}),
    "parsed examples, one without": lambda: parsed({"s": tf.io.FixedLenFeature([1], tf.string)}, batch=1),
    "parsed examples of the old op": lambda: parsed_raw("ExperimentalParseExampleDataset"),
    "parsed examples of the op": lambda: parsed_raw(),
    "parsed examples, another shape said": lambda: parsed_raw(out=[[3]]),
    "parsed examples, a key twice": lambda: parsed_raw(keys=("a",), sparse=("a",)),
    "parsed examples, a default's shape": lambda: parsed_raw(defaults=(np.array([1, 2], np.int64),)),
    "parsed examples, no calls": lambda: parsed_raw(calls=0),
    "parsed examples, shapes unknown within": lambda: parsed_raw(shapes=([2, None],)),
    "the fastest branch": lambda: fastest(lambda d: d.map(lambda x: x * x), lambda d: d.map(lambda x: x ** 2)),
    "the fastest branch, captured values": with_captured,
    "the fastest branch, of batches": lambda: fastest(lambda d: d.batch(2), lambda d: d.batch(2).map(lambda x: x), ratio=(2, 1)),
    "the fastest branch, no ratio": lambda: fastest(lambda d: d, ratio=(0, 1)),
    "windows behind an error": lambda: grouped(bad_third()),
    "windows behind an error, in other windows": lambda: grouped(grouped(bad_third())),
    "windows behind an error, prefetched": lambda: grouped(bad_third()).prefetch(2),
    "windows behind an error, mapped in parallel": lambda: grouped(bad_third()).map(lambda x: x + 1, num_parallel_calls=2),
    "windows behind an error, flat": lambda: grouped(bad_third()).flat_map(D.from_tensors),
    "windows behind an error, interleaved": lambda: grouped(bad_third()).interleave(D.from_tensors, cycle_length=2),
    "zipped with an error that is ignored": lambda: D.zip((bad_third(), D.range(12))).ignore_errors(),
    "zipped behind an error, skipped": lambda: D.zip((D.range(12), bad_third())).skip(2),
    "parts behind errors": lambda: bad_third().skip(2).concatenate(bad_third().skip(3)).concatenate(bad_third().skip(4).take(2)),
    "parts behind errors, ignored": lambda: bad_third().skip(4).ignore_errors().concatenate(bad_third().ignore_errors().skip(4)),
    "shards behind errors": lambda: bad_third().shard(3, 0).concatenate(bad_third().shard(3, 1)).concatenate(bad_third().shard(20, 15)),
    "shards behind errors, ignored": lambda: bad_third().shard(2, 1).ignore_errors().concatenate(bad_third().ignore_errors().shard(2, 1)),
    "shards that must not be empty": lambda: whole_shard(D.range(7), 3, 1),
    "shards, one of them empty": lambda: whole_shard(D.range(7), 8, 1),
    "shards, this one empty": lambda: whole_shard(D.range(7), 8, 7),
    "shards that must not be empty, behind an error": lambda: whole_shard(bad_third(), 3, 0).concatenate(whole_shard(bad_third(), 20, 0)),
    "shuffled and repeated": lambda: D.range(8).apply(tf.data.experimental.shuffle_and_repeat(3, 3, seed=5)),
    "shuffled and repeated by one element": lambda: D.range(5).apply(tf.data.experimental.shuffle_and_repeat(1, 2, seed=5)),
    "shuffled and repeated, all at once": lambda: D.range(5).apply(tf.data.experimental.shuffle_and_repeat(50, 4, seed=6)),
    "packed records of a length that ends too early": lambda: fixed(["fixed.gz"]),
    "packed records of a length with a header": lambda: fixed(["fixed_head.gz"], header=2, footer=2),
    "a window that would wrap around": lambda: D.range(5).window(1 << 62, shift=2, stride=3, drop_remainder=False).flat_map(
        lambda w: w.batch(3)),
}


def both(build, compare=None):
    """One step that fetches what build() made: the same values, or the same code."""
    g = tf.Graph()
    with g.as_default():
        fetches = build()
        init = [op.name for op in g.get_operations() if op.type.startswith("InitializeTable")]
    out = []
    for side in ("TensorFlow", "Shoal"):
        shoals = side == "Shoal"
        s = shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) if shoals else tf.Session(graph=g)
        try:
            if init:
                s.run(targets=init) if shoals else s.run(init)
            # As objects: NumPy's own strings drop zeros at their end.
            out.append([np.asarray(v, object).tolist() for v in s.run([t.name for t in fetches])])
        except Exception as e:
            out.append(e.code if shoals else e.error_code)
        finally:
            s.close()
    assert out[1] == out[0], f"{out[1]} instead of {out[0]}"


def element(d, index):
    spec = tf.nest.flatten(d.element_spec)
    return raw.GetElementAtIndex(dataset=d._variant_tensor, index=index, output_types=[s.dtype for s in spec],
                                 output_shapes=[s.shape for s in spec])


def batch_size(d):
    return [raw.ComputeBatchSize(input_dataset=d._variant_tensor)]


def table_of(d, keys):
    table = raw.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, shared_name="table of a dataset")
    raw.InitializeTableFromDataset(table_handle=table, dataset=d._variant_tensor)
    return [raw.LookupTableFindV2(table_handle=table, keys=keys, default_value=np.int64(-1)), raw.LookupTableSizeV2(table_handle=table)]


def named(n):
    return D.range(n).map(lambda x: (tf.as_string(x), x * x))


def options():
    o = tf.data.Options()
    o.deterministic = False
    o.threading.private_threadpool_size = 3
    return o


ASKED = {
    "an element by number": lambda: element(D.zip((D.range(10), D.range(7, 20))).batch(3), 2),
    "an element past the end": lambda: element(D.range(10), 10),
    "an element before the first": lambda: element(D.range(10), -1),
    "an element of a dataset of unknown size": lambda: element(D.range(10).map(lambda x: (x, x * x)), 4),
    "records from offsets": lambda: from_offsets(OFFSETS[3], OFFSETS[1]),
    "records from inside": lambda: from_offsets(7),
    "records from past the end": lambda: from_offsets(1000),
    "records from before the beginning": lambda: from_offsets(-1),
    "sizes": lambda: [d.cardinality() for d in (D.range(9).map(lambda x: x), D.range(9).batch(4), D.range(9).batch(4).unbatch(), D.range(9).repeat(),
                      D.range(9).window(2, 3, 1 << 62), D.range(9).window(2, 3, 1), D.range(9).concatenate(D.range(4)))],
    "an element of a dataset without end": lambda: element(D.range(10).repeat(), 1),
    "batches' size": lambda: batch_size(D.range(10).batch(4).prefetch(2).repeat(3)),
    "batches' size after a map": lambda: batch_size(D.range(10).batch(4).map(lambda x: x)),
    "batches' size of a zip": lambda: batch_size(D.zip((D.range(10).batch(4), D.range(10).batch(4)))),
    "batches' size of an uneven zip": lambda: batch_size(D.zip((D.range(10).batch(4), D.range(10).batch(3)))),
    "batches' size of none": lambda: batch_size(D.range(10)),
    "a table of a dataset": lambda: table_of(named(5), ["3", "0", "9"]),
    "a table of a dataset that contradicts itself": lambda: table_of(named(3).concatenate(D.range(1).map(lambda x: ("1", x))), ["1"]),
    "options that were set": lambda: [raw.GetOptions(input_dataset=raw.OptionsDataset(
        input_dataset=D.range(3)._variant_tensor, serialized_options=options()._to_proto().SerializeToString(), output_types=[tf.int64],
        output_shapes=[[]]))],
    "no options": lambda: [raw.GetOptions(input_dataset=D.range(3)._variant_tensor)],
}

LINES = [os.path.join(FOLDER, f"lines {i}") for i in range(4)]
for i, path in enumerate(LINES):
    with open(path, "w") as w:
        w.write("".join(f"{i}{c}\n" for c in "abc"))
Text = tf.data.TextLineDataset
SHARDED = {
    "lines": lambda: Text(LINES),
    "lines, transformed": lambda: Text(LINES).map(lambda x: x + "!").filter(lambda x: tf.strings.length(x) > 1).batch(2).prefetch(1),
    "files interleaved": lambda: D.from_tensor_slices(LINES).interleave(lambda f: Text(f), cycle_length=2),
    "files shuffled": lambda: D.from_tensor_slices(LINES).shuffle(4, seed=1).flat_map(lambda f: Text(f)),
    "files zipped": lambda: D.zip((Text(LINES), Text(LINES))),
    "files joined": lambda: Text(LINES[:2]).concatenate(Text(LINES[1:])),
    "files beside numbers": lambda: D.zip((Text(LINES), D.range(9))),
    "fewer files than workers": lambda: Text(LINES[:1]),
    "numbers": lambda: D.range(7),
    "names only": lambda: D.from_tensor_slices(LINES).flat_map(lambda f: D.from_tensors(f)),
}
for shown, policy in (("by what suits", 0), ("by file", 1), ("by element", 2), ("by hint", 3)):
    for label, build in SHARDED.items():
        if policy == 0 and label == "files beside numbers":
            continue  # TensorFlow deals out the files and then, finding the numbers, the elements too: half of them are nobody's
        PIPELINES[f"shards {shown}: {label}"] = lambda b=build, p=policy: over(raw.AutoShardDataset, b(), num_workers=2, index=1, auto_shard_policy=p)
HINT = tf.data.experimental.SHARD_HINT
PIPELINES["shards by hint: a hint"] = lambda: over(raw.AutoShardDataset, D.range(7).shard(HINT, HINT).map(lambda x: x + 1), num_workers=3, index=2,
                                                   auto_shard_policy=3)


def records_of(side):
    path = os.path.join(FOLDER, f"written by {side}")
    g = tf.Graph()
    with g.as_default():
        write = raw.DatasetToTFRecord(input_dataset=D.range(5).map(tf.as_string)._variant_tensor, filename=path, compression_type="GZIP").name
    if side == "Shoal":
        with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) as s:
            s.run(targets=[write])
    else:
        with tf.Session(graph=g) as s:
            s.run(write)
    return [r for r in tf.python_io.tf_record_iterator(path, tf.python_io.TFRecordOptions(tf.python_io.TFRecordCompressionType.GZIP))]


def written_records():
    ours, theirs = records_of("Shoal"), records_of("TensorFlow")
    assert ours == theirs == [b"%d" % i for i in range(5)], ours


def refused(build, code):
    """What TensorFlow would take, and never come back from."""
    g = tf.Graph()
    with g.as_default():
        fetch = build().name
    with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) as s:
        try:
            s.run([fetch])
        except shoal.Error as e:
            assert e.code == code, e
            return
    raise AssertionError("nothing was refused")


def doubled(times):
    d = D.range(3)
    variant = d._variant_tensor
    for i in range(times):
        variant = raw.ZipDataset(input_datasets=[variant, variant], output_types=[tf.int64] * min(2 << i, 64),
                                 output_shapes=[[]] * min(2 << i, 64))
    return raw.DatasetCardinality(input_dataset=variant)


def twice(times):
    variant = D.range(3)._variant_tensor
    for _ in range(times):
        variant = raw.ConcatenateDataset(input_dataset=variant, another_dataset=variant, output_types=[tf.int64], output_shapes=[[]])
    return raw.DatasetCardinality(input_dataset=variant)


def deep(times):
    variant = D.range(3)._variant_tensor
    for _ in range(times):
        variant = raw.TakeDataset(input_dataset=variant, count=2, output_types=[tf.int64], output_shapes=[[]])
    return raw.DatasetCardinality(input_dataset=variant)


def broken_promise(*transformations):
    """TensorFlow says so when the iterator is made, Shoal with the first element."""
    g = tf.Graph()
    with g.as_default():
        it = tf.data.make_initializable_iterator(plain(D.range(4).apply(testing.assert_next(transformations)).map(lambda x: x + 1).batch(2)))
        init, fetch = it.initializer.name, it.get_next().name
    with tf.Session(graph=g) as s:
        try:
            s.run(init)
            raise AssertionError("TensorFlow is content")
        except tf.errors.InvalidArgumentError:
            pass
    with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) as s:
        s.run(targets=[init])
        try:
            s.run([fetch])
            raise AssertionError("Shoal is content")
        except shoal.Error as e:
            assert e.code == 3 and "Asserted" in str(e), e


tests = [(name, lambda b=build: check(b, False)) for name, build in PIPELINES.items()]
tests += [(name, lambda b=build: both(b)) for name, build in ASKED.items()]
tests += [("records written from a dataset", written_records),
          ("next not as promised", lambda: broken_promise("Batch")),
          ("next, more promised", lambda: broken_promise("Map", "Batch", "Map")),
          ("50 zips of pairs are refused", lambda: refused(lambda: doubled(50), 3)),
          ("50 concatenations of a dataset with itself are refused", lambda: refused(lambda: twice(50), 3)),
          ("3000 transformations one upon another are refused", lambda: refused(lambda: deep(3000), 3))]
if __name__ == "__main__":
    report(tests)
