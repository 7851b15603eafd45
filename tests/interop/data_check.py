"""What tests of datasets share: the same pipeline walked in TensorFlow and in Shoal, and lists of named checks."""
import sys
import traceback

import numpy as np
import tensorflow.compat.v1 as tf

import shoal

MOST = 40


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


def begin(init, step, code_of):
    try:
        init()
    except Exception as e:
        return [code_of(e)]
    return walk(step, code_of)


def check(build, one_shot):
    g = tf.Graph()
    with g.as_default():
        tf.set_random_seed(7)
        make = tf.data.make_one_shot_iterator if one_shot else tf.data.make_initializable_iterator
        it = make(build())
        names = [t.name for t in tf.nest.flatten(it.get_next())]
        init = None if one_shot else it.initializer.name
    with tf.Session(graph=g) as s:
        theirs = begin(lambda: init and s.run(init), lambda: s.run(names), lambda e: e.error_code)
    with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) as s:
        ours = begin(lambda: init and s.run(targets=[init]), lambda: s.run(names), lambda e: e.code)
    assert len(ours) == len(theirs), f"{ours} instead of {theirs}"
    for a, b in zip(ours, theirs):
        same = a == b if isinstance(b, int) or isinstance(a, int) else all(np.array_equal(x, y) for x, y in zip(a, b))
        assert same, f"{a} instead of {b}"


def report(tests):
    """Runs (label, function) pairs and exits."""
    failed = 0
    for label, run in tests:
        try:
            run()
            print(f"ok - {label}")
        except Exception as e:
            failed += 1
            print(f"not ok - {label}\n# " + "".join(traceback.format_exception_only(type(e), e)).strip().replace("\n", "\n# "))
    sys.exit(failed > 0)
