"""Skipgram and NegTrain, in graphs that say they are of version 18: the same pairs, counts and rows as TensorFlow's.

# needs: tensorflow
"""
import os
import random
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf

import shoal
import tap

OUTPUTS = [f"pairs:{i}" for i in range(7)]


def sessions(definition):
    """Functions that run it, TensorFlow's first: (fetches, targets) to values."""
    definition.versions.producer = 18
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(definition, name="")
    theirs, ours = tf.Session(graph=graph), shoal.Session(shoal.Graph(definition.SerializeToString()))
    return (lambda f=(), t=(): theirs.run([list(f), [graph.get_operation_by_name(n) for n in t]])[0],
            lambda f=(), t=(): ours.run(list(f), targets=list(t)))


def skipgram(path, **attrs):
    definition = tf.GraphDef()
    node = definition.node.add(name="pairs", op="Skipgram")
    node.attr["filename"].s = path.encode()
    for name, value in {"batch_size": 100, "window_size": 5, "min_count": 5, **attrs}.items():
        node.attr[name].i = value
    node.attr["subsample"].f = attrs.pop("subsample", 1e-3)
    return definition


def write_text(path, kinds=40):
    """Word i is there 5 + 3 i times: no two have one frequency, and some are rarer than min_count below."""
    words = [f"w{i}" for i in range(kinds) for _ in range(5 + 3 * i)]
    random.Random(2).shuffle(words)
    with open(path, "w") as f:
        f.write("  ".join(" \n\v".join(words[i:i + 7]) for i in range(0, len(words), 7)))
    return len(words)


def in_folder(test):
    def run():
        with tempfile.TemporaryDirectory() as folder:
            test(os.path.join(folder, "text"))
    return run


@in_folder
def test_pairs(path):
    n = write_text(path)
    for attrs in ({}, {"min_count": 30}, {"window_size": 1}, {"window_size": 8}, {"batch_size": 7000}):
        definition = skipgram(path, **attrs)
        for subsample in (0, 1e-3, 0.05):
            definition.node[0].attr["subsample"].f = subsample
            theirs, ours = sessions(definition)
            for step in range(40 if attrs != {"batch_size": 7000} else 3):
                want, got = theirs(OUTPUTS), ours(OUTPUTS)
                assert list(want[0]) == list(got[0]) and want[0][0] == b"UNK", (want[0], got[0])
                for name, a, b in zip(OUTPUTS, want[1:], got[1:]):
                    assert np.array_equal(a, b), (attrs, subsample, step, name, a, b)
            assert want[2] == n


@in_folder
def test_texts_that_will_not_do(path):
    with open(path, "w") as f:
        f.write("a b c " * 10)
    for definition, words in ((skipgram(path), "too little data"), (skipgram(path + "x"), "No such file"),
                              (skipgram(path, window_size=0), "window_size"), (skipgram(path, batch_size=-1), "batch_size")):
        definition.versions.producer = 18
        try:
            shoal.Session(shoal.Graph(definition.SerializeToString())).run(OUTPUTS)
        except shoal.Error as e:
            assert words in str(e), e
        else:
            assert False, words


@in_folder
def test_a_step_that_would_never_end_ends(path):
    write_text(path)
    definition = skipgram(path)
    definition.node[0].attr["subsample"].f = 1e-30
    definition.versions.producer = 18
    session = shoal.Session(shoal.Graph(definition.SerializeToString()))
    try:
        session.run(OUTPUTS, timeout_ms=300)
    except shoal.Error as e:
        assert e.code in (1, 4), e
    else:
        assert False, "it ended"


def train_graph(examples, labels, counts, samples, rate=0.1):
    """Two matrices, and a step on them."""
    with tf.Graph().as_default() as g:
        rng = np.random.default_rng(3)
        for name in ("in", "out"):
            v = tf.raw_ops.VariableV2(shape=[4, 3], dtype=tf.float32, name=name)
            tf.raw_ops.Assign(ref=v, value=tf.constant(rng.normal(size=(4, 3)), tf.float32), name="init_" + name)
        tf.constant(examples, tf.int32, name="examples")
        tf.constant(labels, tf.int32, name="labels")
        tf.constant(rate, tf.float32, name="rate")
        definition = g.as_graph_def()
    node = definition.node.add(name="train", op="NegTrain", input=["in", "out", "examples", "labels", "rate"])
    node.attr["vocab_count"].list.i.extend(counts)
    node.attr["num_negative_samples"].i = samples
    return definition


def test_training():
    """One word alone can be drawn: so both draw it."""
    for samples in (0, 1, 5):
        definition = train_graph([0, 1, 0, 3], [1, 2, 2, 0], [0, 0, 9, 0], samples)
        theirs, ours = sessions(definition)
        for run in (theirs, ours):
            run(t=["init_in", "init_out"])
        for _ in range(5):
            for run in (theirs, ours):
                run(t=["train"])
            for name in ("in:0", "out:0"):
                a, b = theirs([name])[0], ours([name])[0]
                assert np.allclose(a, b, rtol=1e-5, atol=1e-6), (samples, name, a, b)


def test_words_are_drawn_by_their_counts():
    """Only rows that were drawn, or are a label, change."""
    definition = train_graph([0] * 50, [1] * 50, [5, 5, 0, 5], 4)
    _, ours = sessions(definition)
    ours(t=["init_in", "init_out"])
    before = ours(["out:0"])[0].copy()
    ours(t=["train"])
    changed = (ours(["out:0"])[0] != before).any(1)
    assert list(changed) == [True, True, False, True], changed


def test_what_makes_no_sense():
    for graph, words in ((train_graph([0], [4], [1] * 4, 1), "labels[0] = 4"), (train_graph([-1], [0], [1] * 4, 1), "examples[0] = -1"),
                         (train_graph([0], [0, 1], [1] * 4, 1), "examples.shape == labels.shape"),
                         (train_graph([0], [0], [1] * 3, 1), "vocab_size mismatches: 4 vs. 3"),
                         (train_graph([[0]], [[0]], [1] * 4, 1), "Must be a vector"),
                         (train_graph([0], [0], [1] * 4, 1, [0.1]), "Must be a scalar")):
        graph.versions.producer = 18
        session = shoal.Session(shoal.Graph(graph.SerializeToString()))
        session.run(targets=["init_in", "init_out"])
        try:
            session.run(targets=["train"])
        except shoal.Error as e:
            assert e.code == 3 and words in str(e), (words, e)
        else:
            assert False, words


if __name__ == "__main__":
    tap.main(globals())
