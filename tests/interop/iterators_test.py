"""Iterators that are saved and restored, shared by devices, or made by functions: as TensorFlow's.

# needs: tensorflow
"""
import gzip
import os
import sys
import tempfile
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.framework import function

import shoal
from data_check import check, report
from datasets_test import both, made

tf.disable_eager_execution()
D, raw = tf.data.Dataset, tf.raw_ops
FOLDER = tempfile.mkdtemp()


def value(v):
    return [np.asarray(x).tolist() for x in v]


def code(e):
    return e.code if isinstance(e, shoal.Error) else e.error_code


class Side:
    """A session of either side, with steps named alike."""

    def __init__(self, side, g):
        self.ours = side == "Shoal"
        self.s = shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) if self.ours else tf.Session(graph=g)

    def do(self, *ops):
        self.s.run(targets=list(ops)) if self.ours else self.s.run(list(ops))

    def get(self, names, most=1):
        out = []
        while len(out) < most:
            try:
                out.append(value(self.s.run(names)))
            except Exception as e:
                return out + [code(e)]
        return out

    def close(self):
        self.s.close()


def saved_graph(build):
    g = tf.Graph()
    with g.as_default():
        it = tf.data.make_initializable_iterator(build())
        names = [t.name for t in tf.nest.flatten(it.get_next())]
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, tf.data.experimental.make_saveable_from_iterator(it))
        saver = tf.train.Saver().saver_def
    return g, it.initializer.name, names, saver


def feed_file(g, saver, path):
    """The graph with the file's name as a constant in place of what the saver would feed."""
    d = g.as_graph_def()
    nodes = {n.name: n for n in d.node}
    at = nodes[saver.filename_tensor_name.split(":")[0]]
    while at.op != "Const":  # placeholders with a default, one upon another
        at = nodes[at.input[0]]
    at.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(path))
    with tf.Graph().as_default() as fixed:
        tf.import_graph_def(d, name="")
    return fixed


def saved(build, taken, side="Shoal"):
    """Some elements, a checkpoint, the rest; then in a new session the checkpoint, and the same rest."""
    path = os.path.join(FOLDER, f"saved {len(os.listdir(FOLDER))}")
    g, init, names, saver = saved_graph(build)
    g = feed_file(g, saver, path)
    save, restore = saver.save_tensor_name.split(":")[0], saver.restore_op_name
    one = Side(side, g)
    one.do(init)
    first = one.get(names, taken)
    assert len(first) == taken, first
    one.do(save)
    rest = one.get(names, 30)
    one.close()
    two = Side(side, g)
    two.do(init)
    two.get(names, 2)
    two.do(restore)
    again = two.get(names, 30)
    two.close()
    assert again == rest, f"{again} instead of {rest}"
    return first, rest


def saved_alike(build, taken):
    assert saved(build, taken) == saved(build, taken, "TensorFlow")


def saved_unasked():
    g, init, names, saver = saved_graph(lambda: D.range(3))
    g = feed_file(g, saver, os.path.join(FOLDER, "unasked"))
    codes = []
    for side in ("Shoal", "TensorFlow"):
        s = Side(side, g)
        try:
            s.do(saver.save_tensor_name.split(":")[0])
        except Exception as e:
            codes.append(code(e))
        s.close()
    assert codes == [9, 9], codes


def of_another_dataset():
    """A state with seeds for a dataset that has no shuffle."""
    path = os.path.join(FOLDER, "another")
    g, init, names, saver = saved_graph(lambda: D.range(9).shuffle(3))
    one = Side("Shoal", feed_file(g, saver, path))
    one.do(init)
    one.do(saver.save_tensor_name.split(":")[0])
    one.close()
    g, init, names, saver = saved_graph(lambda: D.range(9).filter(lambda x: x > 1))
    two = Side("Shoal", feed_file(g, saver, path))
    two.do(init)
    try:
        two.do(saver.restore_op_name)
    except shoal.Error as e:
        assert e.code == 3 and "another dataset" in str(e), e
        assert two.get(names) == [[2]]
        return
    finally:
        two.close()
    raise AssertionError("restored")


SHUFFLED = lambda: D.range(10).shuffle(4, seed=5).repeat(2).map(lambda x: x * x).batch(3).prefetch(2)
SAVED = {
    "saved: a map, a batch, ahead": (lambda: D.range(20).map(lambda x: (x, x * x)).batch(3).prefetch(2), 3, True),
    "saved: a shuffle with seeds": (SHUFFLED, 4, True),
    "saved: a shuffle without": (lambda: D.range(12).shuffle(6).repeat(2), 15, False),
    "saved: one that did not reshuffle": (lambda: D.range(8).shuffle(8, reshuffle_each_iteration=False).repeat(2), 11, False),
    "saved: at the end": (lambda: D.range(4).take(3), 3, True),
    "saved: before the first": (lambda: D.range(4).zip((D.range(3), D.range(7))), 0, True),
    "saved: with errors on the way": (lambda: D.from_tensor_slices([1.0, np.nan, 3.0, 4.0, 5.0]).map(
        lambda x: tf.debugging.check_numerics(x, "bad")).apply(tf.data.experimental.ignore_errors()).batch(1), 2, False),
    "saved: flat, filtered, in parallel": (lambda: D.range(6).flat_map(lambda x: D.range(x)).filter(lambda y: y % 2 < 1).map(
        lambda z: z + 1, num_parallel_calls=3), 4, True),
}


def file_of(name, data):
    path = os.path.join(FOLDER, name)
    with open(path, "wb") as f:
        f.write(data)
    return path


def records_of(name, packing=""):
    path = os.path.join(FOLDER, name)
    with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions(compression_type=packing)) as w:
        for i in range(9):
            w.write(b"%d" % i * i)
    return path


def cached():
    """A file of its own for each graph: a second one would find the first's."""
    return os.path.join(tempfile.mkdtemp(dir=FOLDER), "cache")


LINES = file_of("lines", b"".join(b"line %d\n" % i for i in range(9)))
PACKED = file_of("packed", gzip.compress(b"".join(b"line %d\n" % i for i in range(9))))
TABLE = file_of("table", b"".join(b"%d,%d.5,n%d\n" % (i, i, i) for i in range(9)))
triangle = lambda n: D.range(n).map(lambda x: (tf.fill([x], x), x))
some = lambda x: D.range(x, x + 3)
# Each source and transformation by itself, in the middle.
SAVED.update({f"saved: {name}": (build, taken, True) for name, (build, taken) in {
    "tensors": (lambda: D.from_tensors(([1, 2], "a")).repeat(3), 1),
    "slices": (lambda: D.from_tensor_slices((np.arange(8.0), [b"%d" % i for i in range(8)])), 3),
    "lines of text": (lambda: tf.data.TextLineDataset([LINES, LINES]), 11),
    "lines of packed text": (lambda: tf.data.TextLineDataset(PACKED, "GZIP"), 4),
    "CSV": (lambda: tf.data.experimental.CsvDataset(TABLE, [tf.int64, tf.float32, tf.string]), 5),
    "records": (lambda: tf.data.TFRecordDataset([records_of("a"), records_of("b")]), 11),
    "records by gzip": (lambda: tf.data.TFRecordDataset(records_of("gzip", "GZIP"), "GZIP"), 4),
    "records by zlib": (lambda: tf.data.TFRecordDataset(records_of("zlib", "ZLIB"), "ZLIB"), 4),
    "filter": (lambda: D.range(20).filter(lambda x: tf.equal(x % 3, 2)), 3),
    "batch": (lambda: D.range(11).batch(3), 2),
    "batch in parallel": (lambda: D.range(11).batch(3, num_parallel_calls=2), 2),
    "padded batch": (lambda: triangle(11).padded_batch(3, ([None], [])), 2),
    "ragged batch": (lambda: triangle(11).ragged_batch(3).map(lambda r, x: (r.values, r.row_splits, x)), 2),
    "unbatch": (lambda: D.range(11).batch(4).unbatch(), 6),
    "rebatch": (lambda: D.range(20).batch(6).rebatch(4), 2),
    "repeat for ever": (lambda: D.range(3).repeat().take(20), 7),
    "skip, take": (lambda: D.range(20).skip(3).take(9), 4),
    "shard": (lambda: D.range(20).shard(3, 1), 3),
    "flat_map": (lambda: D.range(6).flat_map(some), 7),
    "interleave": (lambda: D.range(6).interleave(some, cycle_length=3, block_length=2), 7),
    "interleave in parallel": (lambda: D.range(6).interleave(some, cycle_length=3, num_parallel_calls=2), 7),
    "concatenate": (lambda: D.range(3).concatenate(D.range(10, 14)), 4),
    "zip": (lambda: D.zip((D.range(7), D.range(10, 20))), 3),
    "enumerate": (lambda: D.range(10, 17).enumerate(5), 3),
    "prefetch": (lambda: D.range(9).prefetch(3), 4),
    "cache in memory, first time": (lambda: D.range(9).cache().repeat(2), 4),
    "cache in memory, again": (lambda: D.range(9).cache().repeat(3), 13),
    "cache in a file": (lambda: D.range(9).cache(cached()).repeat(2), 12),
    "window": (lambda: D.range(14).window(4, shift=3).flat_map(lambda w: w.batch(4)), 2),
    "group by window": (lambda: D.range(20).group_by_window(lambda x: x % 3, lambda k, w: w.batch(4), 4), 3),
    "group by length": (lambda: triangle(13).bucket_by_sequence_length(
        lambda v, x: tf.shape(v)[0], [3, 7], [2, 3, 2], padded_shapes=([None], [])), 3),
    "scan": (lambda: D.range(9).scan(np.int64(0), lambda s, x: (s + x, s + x)), 5),
    "take while": (lambda: D.range(9).take_while(lambda x: x < 7), 5),
    "unique": (lambda: D.from_tensor_slices([1, 2, 1, 3, 2, 4, 5]).unique(), 2),
    "choose": (lambda: D.choose_from_datasets([D.range(5), D.range(10, 15)], D.range(2).repeat(5)), 5),
}.items()})


# ---- several devices ----

def shared(order, dataset=lambda: D.range(7), devices=2, buffer=4):
    """Shards asked in that order, one step each: both sides give the same."""
    g = tf.Graph()
    with g.as_default():
        spec = dict(output_types=[tf.int64], output_shapes=[[]])
        it = raw.MultiDeviceIterator(devices=["/cpu:0"] * devices, shared_name="m", container="", **spec)
        by_name = raw.MultiDeviceIteratorFromStringHandle(string_handle=raw.MultiDeviceIteratorToStringHandle(multi_device_iterator=it), **spec)
        number = raw.MultiDeviceIteratorInit(dataset=dataset()._variant_tensor, multi_device_iterator=it, max_buffer_size=buffer)
        ask = [raw.MultiDeviceIteratorGetNextFromShard(multi_device_iterator=h, shard_num=i, incarnation_id=n, **spec)[0].name
               for i, (h, n) in enumerate([(it, np.int64(1)), (by_name, np.int64(1)), (it, np.int64(7))])]
    out = []
    for side in ("TensorFlow", "Shoal"):
        s = Side(side, g)
        got = [s.get([number.name])]
        got += [s.get([ask[i]]) for i in order]
        s.close()
        out.append(got)
    assert out[1] == out[0], f"{out[1]} instead of {out[0]}"
    return out[0]


def waits_for_the_other():
    """With room for one element, the first shard's third waits until the second shard has taken its first."""
    g = tf.Graph()
    with g.as_default():
        spec = dict(output_types=[tf.int64], output_shapes=[[]])
        it = raw.MultiDeviceIterator(devices=["/cpu:0"] * 2, shared_name="w", container="", **spec)
        number = raw.MultiDeviceIteratorInit(dataset=D.range(6)._variant_tensor, multi_device_iterator=it, max_buffer_size=1)
        a, b = (raw.MultiDeviceIteratorGetNextFromShard(multi_device_iterator=it, shard_num=i, incarnation_id=np.int64(1), **spec)[0].name
                for i in (0, 1))
    s = Side("Shoal", g)
    s.get([number.name])
    got = []
    t = threading.Thread(target=lambda: got.extend(s.get([a], 3)))
    t.start()
    others = s.get([b], 3)
    t.join()
    s.close()
    assert got == [[0], [2], [4]] and others == [[1], [3], [5]], (got, others)


def python_api():
    g = tf.Graph()
    with g.as_default():
        it = multi_device_iterator_ops.MultiDeviceIterator(D.range(5), ["/cpu:0", "/cpu:0"])
        names = [t.name for t in it.get_next()]
        init = it.initializer.name
    out = []
    for side in ("TensorFlow", "Shoal"):
        s = Side(side, g)
        s.do(init)
        out.append(s.get(names, 9))
        s.close()
    assert out[1] == out[0], f"{out[1]} instead of {out[0]}"


# ---- functions ----

def generated(fail=False):
    @function.Defun(func_name="begin")
    def begin():
        return tf.constant(3, tf.int64)

    @function.Defun(tf.int64, func_name="more")
    def more(state):
        drawn = tf.raw_ops.RandomUniformInt(shape=np.zeros(0, np.int32), minval=state, maxval=state + 1, seed=1, seed2=2)
        if fail:
            with tf.control_dependencies([tf.debugging.Assert(drawn < 0, ["no"])]):
                return tf.identity(drawn)
        return drawn

    @function.Defun(tf.int64, func_name="finish")
    def finish(state):
        return state

    return made(raw.GeneratorDataset(init_func_other_args=[], next_func_other_args=[], finalize_func_other_args=[], init_func=begin,
                                     next_func=more, finalize_func=finish, output_types=[tf.int64], output_shapes=[[]]),
                tf.TensorSpec([], tf.int64)).take(4)


def mapped(args, f, types, shapes, captured=()):
    g = tf.get_default_graph()
    f.add_to_graph(g)
    return raw.MapDefun(arguments=args, captured_inputs=list(captured), output_types=types, output_shapes=shapes, f=f)


@function.Defun(tf.float32, tf.float32, func_name="scaled")
def scaled(x, by):
    return x * by, tf.reduce_sum(x)


@function.Defun(tf.int32, func_name="ragged")
def ragged(n):
    return tf.zeros([n])


X = np.arange(6, dtype=np.float32).reshape(3, 2)
MAPPED = {
    "a function over rows": lambda: mapped([X], scaled, [tf.float32, tf.float32], [[2], []], [np.float32(10)]),
    "a function over no rows": lambda: mapped([X[:0]], scaled, [tf.float32, tf.float32], [[2], []], [np.float32(10)]),
    "a function whose results do not fit": lambda: mapped([np.array([1, 2], np.int32)], ragged, [tf.float32], [[None]]),
}

tests = [(name, lambda b=build, n=n, c=alike: (saved_alike if c else saved)(b, n)) for name, (build, n, alike) in SAVED.items()]
tests += [("saved before it was begun", saved_unasked), ("the state of another dataset", of_another_dataset),
          ("shards in turn", lambda: shared([0, 1, 0, 1, 0, 1, 0, 1, 0])),
          ("shards, one first", lambda: shared([1, 1, 0, 0, 1, 0, 0, 0])),
          ("shards of another incarnation", lambda: shared([2], devices=3)),
          ("one shard waits for another", waits_for_the_other), ("MultiDeviceIterator", python_api),
          ("a dataset of functions", lambda: check(generated, False)),
          ("a dataset of functions that fail", lambda: check(lambda: generated(True), False))]
tests += [(name, lambda b=build: both(b)) for name, build in MAPPED.items()]
if __name__ == "__main__":
    report(tests)
