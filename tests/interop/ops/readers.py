"""Readers, barriers, staging areas and tensors kept between runs."""
import gzip
import os
import tempfile

from cases import *

RAW = tf.raw_ops
FOLDER = tempfile.mkdtemp()


def write(name, data):
    path = os.path.join(FOLDER, name)
    with open(path, "wb") as f:
        f.write(data)
    return path


LINES = [write("a.txt", b"one\ntwo\r\n\nfour"), write("empty.txt", b""), write("b.txt", b"five\n")]
FIXED = [write("fixed", b"HH" + b"abcdefghij" + b"FF"), write("fixed2", b"HHxyzFF")]
ZIPPED = write("fixed.gz", gzip.compress(b"HH" + b"0123456789" + b"FF"))
RECORDS = os.path.join(FOLDER, "records")
with tf.io.TFRecordWriter(RECORDS) as w:
    for r in (b"first", b"", b"third" * 1000):
        w.write(r)
PACKED = os.path.join(FOLDER, "packed")
with tf.io.TFRecordWriter(PACKED, tf.io.TFRecordOptions("ZLIB")) as w:
    w.write(b"packed")


def reading(make, files, n, v2=True, up_to=None, close=True):
    o = lambda name: getattr(RAW, name + ("V2" if v2 else ""))
    q = o("FIFOQueue")(component_types=[tf.string], shapes=[[]], capacity=10)
    r = o(make[0])(**make[1])
    read = o("ReaderRead")(reader_handle=r, queue_handle=q) if up_to is None else \
        o("ReaderReadUpTo")(reader_handle=r, queue_handle=q, num_records=np.int64(up_to))
    counts = [o("ReaderNumRecordsProduced")(reader_handle=r), o("ReaderNumWorkUnitsCompleted")(reader_handle=r)]
    return [[o("QueueEnqueueMany")(handle=q, components=[files])]] + \
        ([[o("QueueClose")(handle=q)]] if close else []) + [list(read), counts] * n


graph("whole files V1", lambda: reading(("WholeFileReader", {}), LINES, 3, False))
graph("whole files", lambda: reading(("WholeFileReader", {}), LINES, 3))
graph("lines", lambda: reading(("TextLineReader", {}), LINES, 5))
graph("names", lambda: reading(("IdentityReader", {}), LINES, 3))
graph("fixed length", lambda: reading(
    ("FixedLengthRecordReader", dict(header_bytes=2, record_bytes=3, footer_bytes=2)), FIXED, 4))
graph("records", lambda: reading(("TFRecordReader", {}), [RECORDS], 3))
graph("lines without header", lambda: reading(("TextLineReader", dict(skip_header_lines=1)), LINES, 3))
graph("fixed length hops", lambda: reading(
    ("FixedLengthRecordReader", dict(header_bytes=2, record_bytes=3, footer_bytes=2, hop_bytes=2)), FIXED, 5))
graph("fixed length hops far", lambda: reading(
    ("FixedLengthRecordReader", dict(header_bytes=2, record_bytes=3, footer_bytes=2, hop_bytes=5)), FIXED, 3))
graph("fixed length gzip", lambda: reading(
    ("FixedLengthRecordReader", dict(header_bytes=2, record_bytes=5, footer_bytes=2, encoding="GZIP")), [ZIPPED], 2))
graph("packed records", lambda: reading(("TFRecordReader", dict(compression_type="ZLIB")), [PACKED], 1))
graph("several lines", lambda: reading(("TextLineReader", {}), LINES, 3, up_to=3))
graph("several records", lambda: reading(("TFRecordReader", {}), [RECORDS, RECORDS], 4, up_to=2))
graph("no more", lambda: reading(("TextLineReader", {}), LINES, 6), error="OUT_OF_RANGE",
      message=r"is closed and has insufficient elements \(requested 1, current size 0\)")
graph("no such file", lambda: reading(("TextLineReader", {}), ["/nowhere"], 1), error="NOT_FOUND",
      message="/nowhere; No such file or directory")


def state():
    q = RAW.FIFOQueueV2(component_types=[tf.string], shapes=[[]], capacity=10)
    r = RAW.IdentityReaderV2()
    read = RAW.ReaderReadV2(reader_handle=r, queue_handle=q)
    save = RAW.ReaderSerializeStateV2(reader_handle=r)
    return [[RAW.QueueEnqueueManyV2(handle=q, components=[["x", "y", "z"]])], list(read), [save], list(read), [save],
            [RAW.ReaderRestoreStateV2(reader_handle=r, state=b"\x08\x05\x10\x05\x18\x07\x22\x01w")], [save],
            [RAW.ReaderNumRecordsProducedV2(reader_handle=r)], [RAW.ReaderResetV2(reader_handle=r)], [save]]


graph("state of a reader", state)

# ---- barriers ----


def barrier(**more):
    return RAW.Barrier(component_types=[tf.float32, tf.float32], shapes=[[], [2]], name="b", **more)


def insert(b, keys, values, component):
    return RAW.BarrierInsertMany(handle=b, keys=keys, values=values, component_index=component)


def take(b, n, **more):
    return list(RAW.BarrierTakeMany(handle=b, num_elements=n, component_types=[tf.float32, tf.float32], **more))


def meeting():
    b = barrier()
    sizes = [RAW.BarrierReadySize(handle=b), RAW.BarrierIncompleteSize(handle=b)]
    return [[insert(b, ["a", "b", "c"], [1., 2., 3.], 0)], sizes,
            [insert(b, ["c", "a"], [[5., 6.], [7., 8.]], 1)], sizes, [insert(b, ["z"], [9.], 0)],
            [insert(b, ["z"], [[0., 0.]], 1)], take(b, 2), [insert(b, ["b"], [[1., 1.]], 1)],
            take(b, 2), sizes, [RAW.BarrierClose(handle=b)], sizes]


graph("barrier", meeting)


def small():
    b = barrier()
    return [[insert(b, ["a", "b"], [1., 2.], 0)], [insert(b, ["b", "a"], [[1., 2.], [3., 4.]], 1)],
            [RAW.BarrierClose(handle=b)], take(b, 5, allow_small_batch=True)]


graph("barrier small batch", small)


def late():
    b = barrier()
    return [[insert(b, ["a"], [1.], 0)], [RAW.BarrierClose(handle=b)], [insert(b, ["a"], [[1., 2.]], 1)], take(b, 1)]


graph("barrier completed after closing", late)


def barrier_fails(name, code, message, *steps):
    def build():
        b = barrier()
        return [[insert(b, ["a"], [1.], 0)]] + [made if isinstance(made, list) else [made] for made in (s(b) for s in steps)]
    graph(name, build, error=code, message=message)


barrier_fails("barrier twice", "INVALID_ARGUMENT", r"Key a already has a value for component 0 in barrier",
              lambda b: insert(b, ["a"], [2.], 0))
barrier_fails("barrier closed, new key", "CANCELLED", "is closed, but attempted to insert a brand new key: q",
              lambda b: RAW.BarrierClose(handle=b), lambda b: insert(b, ["q"], [2.], 0))
barrier_fails("barrier closed, too few", "OUT_OF_RANGE", r"is closed and has insufficient elements \(requested 3, total size 1\)",
              lambda b: RAW.BarrierClose(handle=b), lambda b: take(b, 3))
barrier_fails("barrier closed twice", "CANCELLED", "is already closed.",
              lambda b: RAW.BarrierClose(handle=b), lambda b: RAW.BarrierClose(handle=b))

# ---- staging ----


def stage():
    at = dict(shared_name="s", capacity=3)
    types = [tf.int32, tf.string]
    put = RAW.Stage(values=[feed(R(2, dtype=tf.int32)), "x"], **at)
    return [[RAW.StageSize(dtypes=types, **at)], [put], [RAW.Stage(values=[[7], "y"], **at)],
            [RAW.StageSize(dtypes=types, **at)], list(RAW.StagePeek(index=1, dtypes=types, **at)),
            list(RAW.Unstage(dtypes=types, **at)), [put], [put], list(RAW.Unstage(dtypes=types, **at)),
            [RAW.StageClear(dtypes=types, **at)], [RAW.StageSize(dtypes=types, **at)]]


graph("stage", stage)


def staged(ordered):
    pre = "OrderedMap" if ordered else "Map"
    at = dict(dtypes=[tf.int32, tf.float32], shared_name="m")
    put = lambda k, i, v: getattr(RAW, pre + "Stage")(key=np.int64(k), indices=i, values=v, **at)
    sizes = [getattr(RAW, pre + "Size")(**at), getattr(RAW, pre + "IncompleteSize")(**at)]
    get = lambda k: list(getattr(RAW, pre + "Unstage")(key=np.int64(k), indices=[0, 1], **at))
    any_ = getattr(RAW, pre + "UnstageNoKey")(indices=[0, 1], **at)
    steps = [[put(5, [0, 1], [1, 2.])], [put(3, [0], [7])], sizes, [put(3, [1], [8.])], sizes,
             list(getattr(RAW, pre + "Peek")(key=np.int64(5), indices=[0, 1], **at)), get(5)]
    return steps + [[any_[0], *any_[1]], sizes, [getattr(RAW, pre + "Clear")(**at)], sizes]


graph("staged by key", lambda: staged(False))
graph("staged in order", lambda: staged(True))


def record_input(compression):
    """The order is random, what comes in an epoch is not."""
    folder = tempfile.mkdtemp()
    for i in range(4):
        with tf.io.TFRecordWriter(os.path.join(folder, f"part{i}"), compression) as w:
            for k in range(5):
                w.write(b"%02d" % (i * 5 + k))

    def build():
        y = tf.raw_ops.RecordInput(file_pattern=os.path.join(folder, "part*"), file_buffer_size=7, file_parallelism=2, batch_size=20,
                                   file_shuffle_shift_ratio=0.3, compression_type=compression)
        return [[tf.sort(tf.strings.to_number(y, tf.int32))]] * 3
    return build


for compression in ("", "GZIP", "ZLIB"):
    graph(f"RecordInput {compression}", record_input(compression))
op("RecordInput", {}, {"file_pattern": "/nonexistent/part*"}, error="NOT_FOUND")
