"""Whole models as TensorFlow 1 programs write them, for the model tests and the benchmarks.

Each function builds a model in the default graph and returns a Model: its loss, its training op (gradients and
optimizer included), and a function that makes the feeds of step i. All randomness has seeds, so the same graph starts
from the same weights and sees the same batches wherever it runs.
"""
import collections
import math

import numpy as np
import tensorflow.compat.v1 as tf

Model = collections.namedtuple("Model", "loss train feeds")


def _rng(step):
    return np.random.default_rng(1000 + step)


def _images(batch, side=28, channels=1, classes=10):
    """Pictures whose class can be learnt: a bright block where the class says, in noise."""
    def feeds(step):
        rng = _rng(step)
        y = rng.integers(0, classes, batch)
        x = rng.uniform(0, 0.5, (batch, side, side, channels)).astype(np.float32)
        for i, c in enumerate(y):
            x[i, 2 * c:2 * c + 4, 4:8] += 0.5
        return x, y
    return feeds


def _dense(x, units, name, dtype=tf.float32):
    n = int(x.shape[-1])
    w = tf.get_variable(name + "_w", [n, units], dtype, tf.truncated_normal_initializer(0, 1 / math.sqrt(n), seed=1))
    b = tf.get_variable(name + "_b", [units], dtype, tf.zeros_initializer())
    return tf.nn.bias_add(tf.matmul(x, w), b)


def _loss(logits, y):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


def mlp(hidden=(100,), batch=100, optimizer=None, bf16=False):
    make = _images(batch)
    x, y = tf.placeholder(tf.float32, [batch, 784], "x"), tf.placeholder(tf.int64, [batch], "y")
    h = x
    for i, units in enumerate(hidden):
        h = tf.nn.relu(_dense16(h, units, f"hidden{i}") if bf16 else _dense(h, units, f"hidden{i}"))
    loss = _loss(_dense16(h, 10, "out") if bf16 else _dense(h, 10, "out"), y)
    train = (optimizer or tf.train.AdamOptimizer(0.001)).minimize(loss)

    def feeds(step):
        images, labels = make(step)
        return {x: images.reshape(batch, 784), y: labels}

    return Model(loss, train, feeds)


def _dense16(x, units, name):
    """Mixed precision: weights kept in float32, products in bfloat16."""
    n = int(x.shape[-1])
    w = tf.get_variable(name + "_w", [n, units], tf.float32, tf.truncated_normal_initializer(0, 1 / math.sqrt(n), seed=1))
    b = tf.get_variable(name + "_b", [units], tf.float32, tf.zeros_initializer())
    return tf.nn.bias_add(tf.cast(tf.matmul(tf.cast(x, tf.bfloat16), tf.cast(w, tf.bfloat16)), tf.float32), b)


def cnn(batch=32, filters=(32, 64), units=1024, optimizer=None, bf16=False):
    make = _images(batch)
    x, y = tf.placeholder(tf.float32, [batch, 28, 28, 1], "x"), tf.placeholder(tf.int64, [batch], "y")
    h = x
    for i, f in enumerate(filters):
        shape = [5, 5, int(h.shape[-1]), f]
        w = tf.get_variable(f"conv{i}_w", shape, initializer=tf.truncated_normal_initializer(0, 0.1, seed=2 + i))
        b = tf.get_variable(f"conv{i}_b", [f], initializer=tf.constant_initializer(0.1))
        if bf16:
            h = tf.cast(tf.nn.conv2d(tf.cast(h, tf.bfloat16), tf.cast(w, tf.bfloat16), [1, 1, 1, 1], "SAME"), tf.float32)
        else:
            h = tf.nn.conv2d(h, w, [1, 1, 1, 1], "SAME")
        h = tf.nn.relu(tf.nn.bias_add(h, b))
        h = tf.nn.max_pool2d(h, 2, 2, "SAME")
    h = tf.reshape(h, [batch, -1])
    dense = _dense16 if bf16 else _dense
    h = tf.nn.relu(dense(h, units, "full"))
    loss = _loss(dense(h, 10, "out"), y)
    train = (optimizer or tf.train.AdamOptimizer(0.001)).minimize(loss)

    def feeds(step):
        images, labels = make(step)
        return {x: images, y: labels}

    return Model(loss, train, feeds)


def lstm(batch=8, steps=10, inputs=6, units=16):
    """A cell unrolled by tf.while_loop over TensorArrays, and its gradient through the loop."""
    x, y = tf.placeholder(tf.float32, [steps, batch, inputs], "x"), tf.placeholder(tf.float32, [batch, units], "y")
    w = tf.get_variable("w", [inputs + units, 4 * units], initializer=tf.random_uniform_initializer(-0.3, 0.3, seed=5))
    b = tf.get_variable("b", [4 * units], initializer=tf.zeros_initializer())
    source = tf.TensorArray(tf.float32, steps, clear_after_read=False).unstack(x)
    outputs = tf.TensorArray(tf.float32, steps)

    def body(t, c, h, out):
        z = tf.nn.bias_add(tf.matmul(tf.concat([source.read(t), h], 1), w), b)
        i, j, f, o = tf.split(z, 4, 1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        return t + 1, c, h, out.write(t, h)

    zero = tf.zeros([batch, units])
    _, _, h, out = tf.while_loop(lambda t, *_: t < steps, body, [0, zero, zero, outputs])
    loss = tf.reduce_mean(tf.square(h - y)) + 0.1 * tf.reduce_mean(tf.square(out.stack()))
    grads, variables = zip(*tf.train.AdamOptimizer(0.01).compute_gradients(loss))
    grads, _ = tf.clip_by_global_norm(grads, 1.0)
    train = tf.train.AdamOptimizer(0.01).apply_gradients(zip(grads, variables))

    def feeds(step):
        rng = _rng(step % 4)
        value = rng.uniform(-1, 1, (steps, batch, inputs)).astype(np.float32)
        return {x: value, y: np.tanh(value.sum(0)[:, :1] + np.zeros((1, units), np.float32)).astype(np.float32)}

    return Model(loss, train, feeds)


def transformer(batch=4, length=12, words=50, width=32, heads=4):
    """One block: embedding, masked self-attention, layer normalisation, a feed-forward part, and a softmax over words."""
    x, y = tf.placeholder(tf.int32, [batch, length], "x"), tf.placeholder(tf.int32, [batch, length], "y")
    normal = tf.random_normal_initializer(0, 0.1, seed=9)
    table = tf.get_variable("table", [words, width], initializer=normal)
    position = tf.get_variable("position", [length, width], initializer=normal)

    def norm(h, name):
        scale = tf.get_variable(name + "_scale", [width], initializer=tf.ones_initializer())
        shift = tf.get_variable(name + "_shift", [width], initializer=tf.zeros_initializer())
        mean, variance = tf.nn.moments(h, [-1], keepdims=True)
        return (h - mean) * tf.rsqrt(variance + 1e-6) * scale + shift

    def project(h, n, name):
        w = tf.get_variable(name, [int(h.shape[-1]), n], initializer=tf.glorot_uniform_initializer(seed=3))
        return tf.einsum("btd,dn->btn", h, w)

    def split(h):
        return tf.transpose(tf.reshape(h, [batch, length, heads, width // heads]), [0, 2, 1, 3])

    h = tf.gather(table, x) + position
    q, k, v = (split(project(norm(h, "n1") if n == "q" else h, width, n)) for n in "qkv")
    scores = tf.matmul(q, k, transpose_b=True) / math.sqrt(width // heads)
    mask = tf.linalg.band_part(tf.ones([length, length]), -1, 0)
    weights = tf.nn.softmax(scores * mask - 1e9 * (1 - mask))
    joined = tf.reshape(tf.transpose(tf.matmul(weights, v), [0, 2, 1, 3]), [batch, length, width])
    h = h + project(joined, width, "o")
    h = h + project(tf.nn.elu(project(norm(h, "n2"), 4 * width, "up")), width, "down")
    logits = tf.einsum("btd,wd->btw", norm(h, "n3"), table)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    train = tf.train.AdamOptimizer(0.003).minimize(loss)

    def feeds(step):
        start = _rng(step).integers(0, words, (batch, 1))
        text = (start + 3 * np.arange(length + 1)) % words
        return {x: text[:, :-1].astype(np.int32), y: text[:, 1:].astype(np.int32)}

    return Model(loss, train, feeds)


def word2vec(batch=64, words=500, width=32, negatives=16):
    """Skip-grams with noise-contrastive estimation; embedding gradients stay sparse."""
    x, y = tf.placeholder(tf.int32, [batch], "x"), tf.placeholder(tf.int64, [batch, 1], "y")
    table = tf.get_variable("table", [words, width], initializer=tf.random_uniform_initializer(-1, 1, seed=4))
    w = tf.get_variable("nce_w", [words, width],
                        initializer=tf.truncated_normal_initializer(0, 1 / math.sqrt(width), seed=6))
    b = tf.get_variable("nce_b", [words], initializer=tf.zeros_initializer())
    sampled = tf.random.log_uniform_candidate_sampler(y, 1, negatives, True, words, seed=8)
    loss = tf.reduce_mean(tf.nn.nce_loss(w, b, y, tf.nn.embedding_lookup(table, x), negatives, words,
                                         sampled_values=sampled))
    train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)

    def feeds(step):
        rng = _rng(step)
        a = np.minimum(rng.geometric(0.02, batch), words) - 1
        return {x: a.astype(np.int32), y: ((a + 1) % words).astype(np.int64)[:, None]}

    return Model(loss, train, feeds)
