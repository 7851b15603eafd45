"""Datasets: the same pipeline in TensorFlow and Shoal gives the same elements in the same order.

# needs: tensorflow
Every pipeline runs behind an initializable and a one-shot iterator; shuffles with the same seeds must agree to the last
element.
"""
import os
import sys
import tempfile
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf

import shoal

tf.disable_eager_execution()
D = tf.data.Dataset
MOST = 40
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
    "batch of unequal shapes": lambda: D.range(4).map(lambda x: tf.zeros([x])).batch(2),
}


def walk(step, code_of):
    out = []
    while len(out) < MOST:
        try:
            out.append(step())
        except Exception as e:  # the code is what is compared
            out.append(code_of(e))
            if out[-1] == 11 or out.count(out[-1]) > 2:
                break
    return out


def check(build, one_shot):
    g = tf.Graph()
    with g.as_default():
        tf.set_random_seed(7)
        make = tf.data.make_one_shot_iterator if one_shot else tf.data.make_initializable_iterator
        it = make(build())
        names = [t.name for t in tf.nest.flatten(it.get_next())]
        init = None if one_shot else it.initializer.name
    with tf.Session(graph=g) as s:
        if init:
            s.run(init)
        theirs = walk(lambda: s.run(names), lambda e: e.error_code)
    with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) as s:
        if init:
            s.run(targets=[init])
        ours = walk(lambda: s.run(names), lambda e: e.code)
    assert len(ours) == len(theirs), f"{ours} instead of {theirs}"
    for a, b in zip(ours, theirs):
        same = a == b if isinstance(b, int) or isinstance(a, int) else all(np.array_equal(x, y) for x, y in zip(a, b))
        assert same, f"{a} instead of {b}"


failed = 0
for name, build in PIPELINES.items():
    for one_shot in (False, True):
        label = f"{name}, {'one-shot' if one_shot else 'initializable'}"
        try:
            check(build, one_shot)
            print(f"ok - {label}")
        except Exception as e:
            failed += 1
            print(f"not ok - {label}\n# " + "".join(traceback.format_exception_only(type(e), e)).strip().replace("\n", "\n# "))
sys.exit(failed > 0)
