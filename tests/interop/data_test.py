"""Datasets: the same pipeline in TensorFlow and Shoal gives the same elements in the same order.

# needs: tensorflow
Every pipeline runs behind an initializable and a one-shot iterator; shuffles with the same seeds must agree to the last
element.
"""
import os
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf

import shoal
from data_check import check, report, walk

tf.disable_eager_execution()
D = tf.data.Dataset
FOLDER = tempfile.mkdtemp()
LINES, RECORDS, FIXED = (os.path.join(FOLDER, n) for n in ("lines", "records", "fixed"))
with open(LINES, "w", newline="") as f:
    f.write("a\nbb\r\nccc\n\nlast")
with tf.io.TFRecordWriter(RECORDS, "GZIP") as w:
    for i in range(7):
        w.write(b"record %d" % i)
with open(FIXED, "wb") as f:
    f.write(b"HH" + bytes(range(12)) + b"F")

PAIRS = (np.arange(12).reshape(6, 2).astype(np.float32), np.arange(6))
PIPELINES = {
    "map filter batch": lambda: D.range(10).map(lambda x: x * 2).filter(lambda y: y % 3 > 0).batch(3),
    "shuffle repeat": lambda: D.from_tensor_slices(PAIRS).shuffle(4, seed=3).repeat(3).batch(4, drop_remainder=True),
    "shuffle once": lambda: D.range(8).shuffle(8, seed=5, reshuffle_each_iteration=False).repeat(2),
    "flat_map": lambda: D.range(5).flat_map(lambda x: D.range(x)),
    "interleave": lambda: D.range(5).interleave(lambda x: D.from_tensors(x).repeat(4), cycle_length=2, block_length=2),
    "parallel interleave": lambda: D.range(5).interleave(lambda x: D.from_tensors(x).repeat(3), cycle_length=3,
                                                         num_parallel_calls=2),
    "zip concatenate": lambda: D.zip((D.range(5), D.range(3, 9))).concatenate(D.zip((D.range(2), D.range(2)))),
    "padded batch": lambda: D.range(1, 6).map(lambda x: tf.fill([tf.cast(x, tf.int32)], x)).padded_batch(
        2, padded_shapes=[None]),
    "lines": lambda: tf.data.TextLineDataset(LINES).skip(1),
    "records": lambda: tf.data.TFRecordDataset(RECORDS, "GZIP"),
    "fixed records": lambda: tf.data.FixedLengthRecordDataset(FIXED, 4, header_bytes=2, footer_bytes=1),
    "shard take cache": lambda: D.range(20).shard(3, 1).take(4).cache().repeat(2),
    "parallel map prefetch": lambda: D.range(20).map(lambda x: x + 1, num_parallel_calls=4).prefetch(3),
    "window": lambda: D.range(7).window(3, shift=2, drop_remainder=False).flat_map(lambda w: w.batch(3)),
    "unbatch scan": lambda: D.range(6).batch(2).unbatch().scan(np.int64(0), lambda s, x: (s + x, s * x)),
    "take_while": lambda: D.range(9).take_while(lambda x: x < 5),
    "error in the middle": lambda: D.from_tensor_slices([1.0, 2.0, np.nan, 4.0]).map(
        lambda x: tf.debugging.check_numerics(x, "bad")),
    "group_by_window": lambda: D.range(20).group_by_window(
        lambda x: x % 3, lambda k, w: w.batch(4).map(lambda b: b + k * 100), window_size_func=lambda k: k + 2),
    "bucket_by_sequence_length": lambda: D.range(1, 12).map(lambda x: tf.fill([tf.cast(x % 5 + 1, tf.int32)], x)).bucket_by_sequence_length(
        lambda x: tf.shape(x)[0], [3, 5], [2, 2, 3]),
    "group_by_reducer": lambda: D.range(10).apply(tf.data.experimental.group_by_reducer(
        lambda x: x % 3, tf.data.experimental.Reducer(lambda k: (k, np.int64(0)), lambda s, x: (s[0] + x, s[1] + 1), lambda a, b: a * 10 + b))),
    "group_by_window of size 0": lambda: D.range(4).group_by_window(lambda x: x, lambda k, w: w, window_size_func=lambda k: k - 1),
    "unique": lambda: D.from_tensor_slices([3, 1, 3, 2, 1]).unique(),
    "unique strings": lambda: D.from_tensor_slices(["a", "bc", "a", ""]).unique(),
    "ignore_errors": lambda: D.from_tensor_slices([1.0, 2.0, np.nan, 4.0]).map(
        lambda x: tf.debugging.check_numerics(x, "bad")).apply(tf.data.experimental.ignore_errors()),
    "choose_from_datasets": lambda: D.choose_from_datasets([D.range(3), D.range(10, 12), D.range(20, 30)], D.range(9).map(lambda x: x % 3),
                                                           stop_on_empty_dataset=False),
    "choose stops": lambda: D.choose_from_datasets([D.range(3), D.range(10, 12)], D.range(9).map(lambda x: x % 2)),
    "choose out of range": lambda: D.choose_from_datasets([D.range(3), D.range(10, 12)], D.from_tensor_slices(np.array([0, 7], np.int64))),
    "sample_from_datasets": lambda: D.sample_from_datasets([D.range(8), D.range(100, 108)], [0.3, 0.7], seed=11, stop_on_empty_dataset=False),
    "assert_cardinality": lambda: D.range(4).filter(lambda x: x > 1).apply(tf.data.experimental.assert_cardinality(2)),
    "assert_cardinality more": lambda: D.range(4).filter(lambda x: x >= 0).apply(tf.data.experimental.assert_cardinality(2)),
    "assert_cardinality fewer": lambda: D.range(4).filter(lambda x: x > 2).apply(tf.data.experimental.assert_cardinality(2)),
    "batch of unequal shapes": lambda: D.range(4).map(lambda x: tf.zeros([x])).batch(2),
}


def elements(side, builds, steps=None):
    """What iterators over datasets give in one session of that side, in turn: all to the end, or by `steps`, a list of
    their numbers."""
    g = tf.Graph()
    with g.as_default():
        its = [tf.data.make_initializable_iterator(b()) for b in builds]
        names = [[t.name for t in tf.nest.flatten(it.get_next())] for it in its]
        init = [it.initializer.name for it in its]
    if side == "TensorFlow":
        s, code_of = tf.Session(graph=g), lambda e: e.error_code
        s.run(init)
    else:
        s, code_of = shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())), lambda e: e.code
        s.run(targets=init)
    try:
        if steps is None:
            return [[[np.asarray(v).tolist() for v in e] if isinstance(e, list) else e for e in walk(lambda: s.run(n), code_of)]
                    for n in names]
        out = []
        for i in steps:
            try:
                out.append([np.asarray(v).tolist() for v in s.run(names[i])])
            except Exception as e:
                out.append(code_of(e))
        return out
    finally:
        s.close()


def cached(prefix, n):
    """n elements of eleven components, so that numbers of components have two digits."""
    def build():
        d = D.range(n).map(lambda x: (tf.as_string(x), tf.fill([x, 2], x)) + (x,) * 9)
        return d.cache(prefix)
    return build


def cache_files(writer, reader):
    prefix = os.path.join(FOLDER, f"cache {writer} {reader}")
    written, = elements(writer, [cached(prefix, 12)])
    assert len(written) == 13 and written[-1] == 11, written
    assert not any(f.endswith("lockfile") for f in os.listdir(FOLDER)), os.listdir(FOLDER)
    again = elements(reader, [cached(prefix, 0)] * 2)  # nothing comes from above: all is in the files
    assert again == [written] * 2, again


def cache_by_two(side):
    prefix = os.path.join(FOLDER, f"two {side}")
    got = elements(side, [cached(prefix, 3)] * 2, [0, 1, 0])
    assert [type(x) for x in got] == [list, int, list] and got[1] == 6, got


def cache_half_written():
    prefix = os.path.join(FOLDER, "half")
    elements("Shoal", [cached(prefix, 5)], [0, 0])
    left, end = None, time.time() + 120  # the iterator goes with the last thread that had to do with it
    while left != [] and time.time() < end:
        time.sleep(0.02)
        left = [f for f in os.listdir(FOLDER) if f.startswith("half")]
    assert not left, left
    assert len(elements("Shoal", [cached(prefix, 5)])[0]) == 6


tests = [(f"{name}, {'one-shot' if one_shot else 'initializable'}", lambda b=build, o=one_shot: check(b, o))
         for name, build in PIPELINES.items() for one_shot in (False, True)]
SIDES = ("TensorFlow", "Shoal")
tests += [(f"a cache of {w}'s, read by {r}", lambda w=w, r=r: cache_files(w, r)) for w in SIDES for r in SIDES]
tests += [(f"a cache written by two iterators of {s}", lambda s=s: cache_by_two(s)) for s in SIDES]
tests += [("a cache half written", cache_half_written)]
report(tests)
