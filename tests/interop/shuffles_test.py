"""Shuffles with seeds, used more than once: in the order of TensorFlow's.

# needs: tensorflow
Which uses share a generator of seeds depends on the version of the op and on whether TensorFlow rewrites the pipeline,
and who draws first on when iterators are made (src/ops/data/dataset_final.c).
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.data.ops import dataset_ops

import shoal
from data_check import check, report

tf.disable_eager_execution()
D, raw = tf.data.Dataset, tf.raw_ops
N = 5
SEEDS = {"seed": 5, "seed2": 6}
SPEC = {"output_types": [tf.int64], "output_shapes": [[]]}


def made(op, **args):
    return dataset_ops._VariantDataset(op(**args, **SPEC), tf.TensorSpec([], tf.int64))


def own(d, again=True, seeds=SEEDS):
    """What tf.data makes in a graph: the generator goes with the dataset."""
    return made(raw.ShuffleDataset, input_dataset=d._variant_tensor, buffer_size=9, reshuffle_each_iteration=again, **seeds)


def named(d, again=True):
    """The generator is another op's."""
    return made(raw.ShuffleDatasetV2, input_dataset=d._variant_tensor, buffer_size=9,
                seed_generator=raw.AnonymousSeedGenerator(reshuffle=again, **SEEDS).handle)


def shared(d, again=True):
    """What it makes in functions, and outside graphs."""
    return made(raw.ShuffleDatasetV3, input_dataset=d._variant_tensor, buffer_size=9, seed_generator=raw.DummySeedGenerator(),
                reshuffle_each_iteration=again, **SEEDS)


def shared_and_named(d, again=True):
    return made(raw.ShuffleDatasetV3, input_dataset=d._variant_tensor, buffer_size=9, reshuffle_each_iteration=again,
                seed_generator=raw.AnonymousSeedGenerator(reshuffle=again, **SEEDS).handle, **SEEDS)


def own_rounds(d, again=True):
    return made(raw.ShuffleAndRepeatDataset, input_dataset=d._variant_tensor, buffer_size=9, count=2, reshuffle_each_iteration=again, **SEEDS)


def optimized(d, default=False, **switches):
    o = tf.data.Options()
    o.autotune.enabled = False
    o.experimental_optimization.apply_default_optimizations = default
    for name, value in switches.items():
        setattr(o.experimental_optimization, name, value)
    return d.with_options(o)


def by_turns(first):
    return D.range(2 * N).map(lambda i: (i + first) % 2)


USES = {
    "zipped": lambda d: D.zip((d, d)),
    "zipped, parts": lambda d: D.zip((d.take(4), d.skip(1).map(lambda x: -x))),
    "zipped, round by round": lambda d: D.zip((d, d)).repeat(2),
    "zipped rounds": lambda d: D.zip((d.repeat(2), d.repeat(2))),
    "zipped ahead": lambda d: D.zip((d.prefetch(1), d.prefetch(1))),
    "zipped behind nothing": lambda d: D.zip((D.range(0), d)).concatenate(D.zip((d, d))),
    "joined": lambda d: d.concatenate(d).concatenate(d),
    "joined behind rounds": lambda d: d.repeat(2).concatenate(d),
    "joined behind rounds of batches": lambda d: d.batch(2).repeat(2).concatenate(d.batch(2)),
    "joined behind a part": lambda d: d.repeat().take(7).concatenate(d),
    "joined behind none": lambda d: d.take(0).concatenate(d.skip(-1)).concatenate(d),
    "joined behind a cache": lambda d: d.cache().repeat(2).concatenate(d),
    "chosen": lambda d: D.choose_from_datasets([d.take(4), d.skip(0)], by_turns(1)),
    "captured": lambda d: D.range(3).flat_map(lambda i: d),
    "captured and zipped": lambda d: D.range(2).flat_map(lambda i: D.zip((d, d))),
    "captured by two": lambda d: D.range(2).flat_map(lambda i: d).flat_map(lambda x: d.take(2)),
    "captured by its own": lambda d: d.flat_map(lambda i: d),
    "interleaved": lambda d: D.range(3).interleave(lambda i: d, cycle_length=2),
    "in windows": lambda d: D.zip((d.window(2).flat_map(lambda w: w.batch(2)), d.batch(2))),
    "not rewritten, zipped": lambda d: optimized(D.zip((d, d))),
    "not rewritten, one of two": lambda d: D.zip((d, optimized(d))),
    "not rewritten, joined": lambda d: optimized(d.concatenate(d)),
    "not rewritten, chosen": lambda d: optimized(D.choose_from_datasets([d.take(4), d.skip(0)], by_turns(1))),
    "rewritten a little": lambda d: optimized(D.zip((d, d)), noop_elimination=True),
    "rewritten, not tuned": lambda d: optimized(D.zip((d, d)), default=True),
}
PIPELINES = {f"{name}: {shuffle.__name__}": lambda s=shuffle, use=use: use(s(D.range(N)))
             for name, use in USES.items() for shuffle in (own, shared)}
for name in ("zipped", "joined", "captured", "not rewritten, zipped"):
    for shuffle in (named, shared_and_named, own_rounds):
        PIPELINES[f"{name}: {shuffle.__name__}"] = lambda s=shuffle, use=USES[name]: use(s(D.range(N)))
    for shuffle in (own, shared):
        PIPELINES[f"{name}, always the same: {shuffle.__name__}"] = lambda s=shuffle, use=USES[name]: use(s(D.range(N), False))
        PIPELINES[f"{name}, one behind the other: {shuffle.__name__}"] = lambda s=shuffle, use=USES[name]: use(s(s(D.range(N))))
        PIPELINES[f"{name}, in a function: {shuffle.__name__}"] = (
            lambda s=shuffle, use=USES[name]: D.range(2).flat_map(lambda i: use(s(D.range(N)))))


def graph(build):
    g = tf.Graph()
    with g.as_default():
        names = build()
    return g, names


def on_both(g, walk):
    """walk(run): run(names, fetch) fetches, or runs only."""
    with tf.Session(graph=g) as s:
        theirs = walk(lambda names, fetch: [np.asarray(v).tolist() for v in s.run(names)] if fetch else s.run(names))
    with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) as s:
        ours = walk(lambda names, fetch: [np.asarray(v).tolist() for v in s.run(names)] if fetch else s.run(targets=names))
    return theirs, ours


def two_iterators():
    """Over pipelines of their own above one shuffle, begun in one step, or one after the other."""
    def build():
        d = own(D.range(N))
        its = [tf.data.make_initializable_iterator(x.batch(N)) for x in (d.map(lambda x: x), d.take(N))]
        return [it.initializer.name for it in its], [it.get_next().name for it in its]
    g, (inits, nexts) = graph(build)
    def walk(run):
        out = []
        for steps in ([inits], [[i] for i in inits]):
            for step in steps:
                run(step, False)
            out.append(run(nexts, True))
        return out
    theirs, ours = on_both(g, walk)
    assert ours == theirs, f"{ours} instead of {theirs}"


def reduced():
    def build():
        d = own(D.range(N))
        return [D.zip((d, d)).reduce(np.int64(0), lambda s, x: s * 100 + x[0] * 10 + x[1]).name]
    g, names = graph(build)
    theirs, ours = on_both(g, lambda run: run(names, True))
    assert ours == theirs, f"{ours} instead of {theirs}"


def without_seeds():
    """Each use draws seeds of its own, those that stay in their order too."""
    def build():
        d = own(D.range(10 * N), False, {"seed": 0, "seed2": 0})
        it = tf.data.make_initializable_iterator(D.zip((d, d)).batch(10 * N))
        return it.initializer.name, [t.name for t in it.get_next()]
    g, (init, names) = graph(build)
    def walk(run):
        run([init], False)
        a, b = run(names, True)
        return a == b
    assert on_both(g, walk) == (False, False)


tests = [(name, lambda b=build: check(b, False)) for name, build in PIPELINES.items()]
tests += [("two iterators above one shuffle", two_iterators), ("reduced", reduced), ("without seeds", without_seeds)]
report(tests)
