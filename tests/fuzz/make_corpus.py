"""Writes seeds for the fuzz targets into tests/fuzz/corpus, from real TensorFlow: small graphs, tensors and checkpoints.

The seeds are kept in the tree; this says where they came from, and makes new ones when the targets change.
"""
import os
import struct
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def put(target, name, data):
    folder = os.path.join(ROOT, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)


def graphs():
    def plain():
        x = tf.placeholder(tf.float32, [None, 3], "x")
        w = tf.get_variable("w", [3, 2], initializer=tf.zeros_initializer())
        return tf.reduce_sum(tf.nn.relu(tf.matmul(x, w)))

    def loop():
        return tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0), [0, 1.0])

    def function():
        tf.enable_control_flow_v2()
        out = tf.cond(tf.placeholder(tf.bool, []), lambda: tf.constant(1.0), lambda: tf.constant(2.0))
        tf.disable_control_flow_v2()
        return out

    def queue():
        q = tf.FIFOQueue(2, [tf.float32, tf.string], [[2], []])
        return q.enqueue([[1.0, 2.0], "a"])

    for build in (plain, loop, function, queue):
        with tf.Graph().as_default() as g:
            build()
            put("graph_fuzz", build.__name__, b"\0" + g.as_graph_def().SerializeToString())
            put("graph_fuzz", build.__name__ + "_text", b"\1" + str(g.as_graph_def()).encode())


def functions():
    """Graphs for lowering: only ops that carry no attributes worth mutating, so that the structure is what varies."""
    x = lambda dtype=tf.float32: tf.placeholder(dtype, [])

    def branch():
        a = x()
        y = tf.cond(x(tf.bool), lambda: tf.identity(a), lambda: tf.zeros_like(a))
        return tf.while_loop(lambda i: x(tf.bool), lambda i: [tf.identity(i)], [y])

    def nested():
        a, p = x(), x(tf.bool)
        inner = lambda b: tf.while_loop(lambda i: p, lambda i: [tf.identity(i)], [b])
        return tf.while_loop(lambda i: p, lambda i: [tf.cond(p, lambda: inner(i), lambda: tf.identity(a))], [a])

    def choice():
        a = x()
        return tf.switch_case(x(tf.int32), [lambda: tf.identity(a), lambda: tf.zeros_like(a), lambda: tf.ones_like(a)])

    def call():
        f = tf.function(lambda a: tf.identity(a), autograph=False)
        return tf.function(lambda a: (f(a), f(tf.identity(a))), autograph=False)(x())

    for build in (branch, nested, choice, call):
        for functional in (False, True):
            (tf.enable_control_flow_v2 if functional else tf.disable_control_flow_v2)()
            with tf.Graph().as_default() as g:
                build()
                put("lower_fuzz", build.__name__ + ("_functional" if functional else ""), g.as_graph_def().SerializeToString())
    tf.disable_control_flow_v2()


def tensors():
    values = {"float": np.arange(6, dtype=np.float32).reshape(2, 3), "int64": np.int64(7), "bool": np.array([True, False]),
              "string": np.array([b"a", b"", b"long enough to leave the inline part"], object),
              "complex": np.array([1 + 2j], np.complex64), "half": np.array([1, 2], np.float16), "empty": np.zeros((0, 4))}
    for name, v in values.items():
        put("tensor_fuzz", name, tf.make_tensor_proto(v).SerializeToString())
    repeated = tf.make_tensor_proto(1.0, shape=[100])
    put("tensor_fuzz", "repeated", repeated.SerializeToString())


def bundles():
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default(), tf.Session() as s:
        prefix = os.path.join(folder, "m")
        s.run(tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["a", "b", "s"], shape_and_slices=["", "4 2 0,2:-", ""],
                                tensors=[np.arange(4, dtype=np.float32), np.ones((2, 2), np.int64), np.array(["x", "yz"])]))
        with open(prefix + ".index", "rb") as i, open(prefix + ".data-00000-of-00001", "rb") as d:
            index = i.read()
            put("bundle_fuzz", "three", struct.pack("<H", len(index)) + index + d.read())


def examples():
    feature = lambda **k: tf.train.Feature(**k)
    values = {"a": feature(int64_list=tf.train.Int64List(value=[1, -2, 3])), "b": feature(float_list=tf.train.FloatList(value=[1.5])),
              "c": feature(bytes_list=tf.train.BytesList(value=[b"x", b"yz"]))}
    features = tf.train.Features(feature=values)
    put("example_fuzz", "example", tf.train.Example(features=features).SerializeToString())
    lists = tf.train.FeatureLists(feature_list={k: tf.train.FeatureList(feature=[v, v]) for k, v in values.items()})
    put("example_fuzz", "sequence", tf.train.SequenceExample(context=features, feature_lists=lists).SerializeToString())


def images():
    image = tf.constant(np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3))
    with tf.Session() as s:
        png, jpeg = s.run([tf.raw_ops.EncodePng(image=image), tf.raw_ops.EncodeJpeg(image=image)])
    put("image_fuzz", "png", b"\0" + png)
    put("image_fuzz", "jpeg", b"\1" + jpeg)
    put("image_fuzz", "gif", b"\2GIF89a" + struct.pack("<HHBBB", 2, 2, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff" +
        b"," + struct.pack("<HHHHB", 0, 0, 2, 2, 0) + b"\x02\x03\x44\x02\x05\0;")
    put("image_fuzz", "bmp", b"\3BM" + struct.pack("<IHHI", 70, 0, 0, 54) +
        struct.pack("<IiiHHIIiiII", 40, 2, 2, 1, 24, 0, 16, 0, 0, 0, 0) + bytes(range(16)))


def patterns():
    for i, (p, t) in enumerate((("(a|b)*c", "ababc"), ("^[^x-z]+\\d{2,3}?$", "abc12"), ("(?i)\\bfoo\\b|[[:alpha:]]", "a Foo b"))):
        put("regex_fuzz", str(i), p.encode() + b"\0" + t.encode())


for make in (graphs, functions, tensors, bundles, examples, images, patterns):
    if len(sys.argv) < 2 or sys.argv[1] == make.__name__:
        make()
