"""Calls of concurrent steps in one batch: what comes of them, in TensorFlow and in Shoal.

No case rests on time: where calls are to be joined, their batch waits for minutes unless it is full.

# needs: tensorflow
"""
import os
import sys
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import function

import shoal
from data_check import report

tf.disable_eager_execution()
RAW = tf.raw_ops
LONG = 600 * 1000 * 1000
WAIT = 120


class Steps:
    """A session of either kind whose steps run at once, on threads; an answer is an array, or the code of an error."""

    def __init__(self, who, build, x=tf.float32):
        g = tf.Graph()
        with g.as_default():
            feed = tf.placeholder(x, None, name="x")
            self.fetches = [t.name for t in build(feed)]
        self.who = who
        if who == "tensorflow":
            c = tf.ConfigProto(inter_op_parallelism_threads=8)
            c.graph_options.rewrite_options.disable_meta_optimizer = True
            self.session = tf.Session(graph=g, config=c)
        else:
            self.session = shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString()), inter_op_threads=2)
        self.answers, self.threads = {}, []

    def run(self, x, fetches=slice(None)):
        try:
            if self.who == "tensorflow":
                return self.session.run(self.fetches[fetches], {"x:0": x})
            return self.session.run(self.fetches[fetches], {"x:0": x}, timeout_ms=WAIT * 1000)
        except tf.errors.OpError as e:
            return e.error_code
        except shoal.Error as e:
            return e.code

    def start(self, name, x, fetches=slice(None), until=lambda answer: True):
        """Again and again, until the answer is as it should be."""
        def loop():
            while not until(answer := self.run(x, fetches)):
                pass
            self.answers[name] = answer
        t = threading.Thread(target=loop, daemon=True)
        t.start()
        self.threads.append(t)

    def end(self):
        for t in self.threads:
            t.join(WAIT)
            assert not t.is_alive(), f"{self.who}: a step did not end; others said {self.answers}"
        return self.answers


def rows(first, n=1):
    return np.arange(first, first + n, dtype=np.float32)


def called(f, size=4, timeout=LONG, threads=1, captured=(), **attrs):
    """BatchFunction of f."""
    def build(x):
        @function.Defun(*[tf.float32] * (1 + len(captured)))
        def body(*args):
            return f(*args)
        return RAW.BatchFunction(in_tensors=[x], captured_tensors=[tf.constant(c, tf.float32) for c in captured], f=body,
                                 num_batch_threads=threads, max_batch_size=size, batch_timeout_micros=timeout, Tout=[tf.float32], **attrs)
    return build


def times_size(x):
    return x * tf.cast(tf.size(x), tf.float32)


def both(steps):
    """steps(who) -> answers: the same of both."""
    theirs, ours = steps("tensorflow"), steps("shoal")
    assert theirs.keys() == ours.keys()
    for name, a in theirs.items():
        b = ours[name]
        assert a == b if isinstance(a, int) or isinstance(b, int) else all(np.array_equal(x, y) for x, y in zip(a, b)), (name, a, b)
    return ours


def joined():
    def steps(who):
        s = Steps(who, called(times_size, 4))
        for i in range(4):
            s.start(i, rows(10 * i))
        return s.end()
    ours = both(steps)
    assert all(np.array_equal(ours[i][0], [40 * i]) for i in range(4)), ours


def of_two_ops():
    """Two ops that share a queue, and do the same."""
    def steps(who):
        s = Steps(who, lambda x: [called(times_size, 3, shared_name="queue")(x)[0] for _ in range(2)])
        s.start("two", rows(1, 2), slice(0, 1))
        s.start("one", rows(7), slice(1, 2))
        return s.end()
    both(steps)


def rows_of_several():
    def steps(who):
        s = Steps(who, called(lambda x, c: times_size(x) + c, 6, captured=[2.0]))
        s.start("three", rows(1, 3))
        s.start("two", rows(20, 2))
        s.start("one", rows(50))
        return s.end()
    both(steps)


def padded():
    """One call, which waits for others in vain; its batch is padded."""
    for threads in (1, 0):  # 0: as many as TensorFlow likes
        both(lambda who: {"only": Steps(who, called(times_size, 8, timeout=1000, threads=threads, allowed_batch_sizes=[2, 4, 8])).run(rows(1, 3))})


def full_queue():
    """A batch waits, the queue takes no second one, and a call that fits goes in."""
    def steps(who):
        s = Steps(who, called(times_size, 2, max_enqueued_batches=1))
        # Each may find the other's batch in the queue; the first is in it for good when the second is refused.
        s.start("waits", rows(1), until=lambda answer: answer != 14)
        while not isinstance(answer := s.run(rows(5, 2)), int):
            pass
        s.answers["refused"] = answer
        s.start("fits", rows(3), until=lambda answer: answer != 14)
        return s.end()
    ours = both(steps)
    assert ours["refused"] == 14, ours


def split():
    def steps(who):
        s = Steps(who, called(times_size, 8, timeout=1000, allowed_batch_sizes=[2], enable_large_batch_splitting=True))
        return {n: s.run(rows(1, n)) for n in (2, 5, 8, 9)}
    ours = both(steps)
    assert ours[9] == 3, ours


def split_too_far():
    both(lambda who: {0: Steps(who, called(times_size, 8, timeout=1000, allowed_batch_sizes=[1], enable_large_batch_splitting=True,
                                           max_enqueued_batches=2)).run(rows(1, 7))})


def most_batches():
    """However many may wait by the graph, 65,536 do: of rows without bytes they would be without end."""
    s = Steps("shoal", called(times_size, 1 << 17, timeout=1000, allowed_batch_sizes=[1], enable_large_batch_splitting=True,
                              max_enqueued_batches=1 << 40))
    assert s.run(rows(1, 65537)) == 14


def split_and_joined():
    """What is left over of the first call is filled up by the second."""
    def steps(who):
        s = Steps(who, called(lambda x: x * 2, 8, allowed_batch_sizes=[2, 4], enable_large_batch_splitting=True))
        s.start("five", rows(1, 5))
        s.start("three", rows(100, 3))
        return s.end()
    both(steps)


def wrong_outputs():
    for f in (tf.reduce_sum, lambda x: tf.zeros([9])):
        both(lambda who: {0: Steps(who, called(f, 4, timeout=0)).run(rows(0, 2))})


def no_rows():
    both(lambda who: {0: Steps(who, called(times_size, 4)).run(rows(0, 0))})


def failing():
    """The error of a function is that of every call."""
    def steps(who):
        s = Steps(who, called(lambda x: tf.gather(x, tf.cast(x, tf.int32)), 2))
        s.start(0, rows(0))
        s.start(1, rows(7))
        return s.end()
    ours = both(steps)
    assert ours == {0: 3, 1: 3}, ours


def handed_over(size, **attrs):
    """Batch, something in the middle, Unbatch."""
    def build(x):
        b = RAW.Batch(in_tensors=[x, x + 1], num_batch_threads=1, max_batch_size=size, batch_timeout_micros=LONG, grad_timeout_micros=0, **attrs)
        middle = b.batched_tensors[0] * tf.cast(tf.size(b.batched_tensors[0]), tf.float32)
        back = [RAW.Unbatch(batched_tensor=t, batch_index=b.batch_index, id=b.id, timeout_micros=LONG) for t in (middle, b.batched_tensors[1])]
        grad = RAW.UnbatchGrad(original_input=b.batched_tensors[0], batch_index=b.batch_index, grad=back[0] * 2, id=b.id)
        return back + [tf.shape(b.batch_index), grad]
    return build


def there_and_back():
    for who in ("tensorflow", "shoal"):
        s = Steps(who, handed_over(4))
        s.start("two", rows(1, 2))
        s.start("one", rows(10))
        s.start("another", rows(20))
        ours = s.end()
        for name, x in (("two", rows(1, 2)), ("one", rows(10)), ("another", rows(20))):
            assert np.array_equal(ours[name][0], x * 4) and np.array_equal(ours[name][1], x + 1), (who, ours)
        one = [a for a in ours.values() if a[2][0]]  # who has the batch, and the gradients of all
        assert len(one) == 1 and one[0][2].tolist() == [3, 3], (who, ours)
        assert sorted(one[0][3]) == [8, 16, 80, 160], (who, ours)
        assert all(len(a[3]) == 0 for a in ours.values() if not a[2][0]), (who, ours)


def late():
    """Rows that nobody brings."""
    def build(x):
        return [RAW.Unbatch(batched_tensor=x, batch_index=np.zeros([0, 3], np.int64), id=tf.constant(5, tf.int64), timeout_micros=1000)]
    ours = both(lambda who: {0: Steps(who, build).run(rows(0, 0))})
    assert ours == {0: 4}, ours


def too_many_parts():
    """Gradients of 4,096 calls are kept, no more: a batch of more parts would wait for what was dropped."""
    def build(x):
        index = np.array([[i, i, i + 1] for i in range(4097)], np.int64)
        return [RAW.UnbatchGrad(original_input=x, batch_index=index, grad=x, id=tf.constant(0, tf.int64))]
    assert Steps("shoal", build).run(rows(0, 4097)) == 3


def cancelled():
    """A step that waits for company ends with its own time, and takes its rows with it."""
    s = Steps("shoal", called(times_size, 2))
    try:
        s.session.run(s.fetches, {"x:0": rows(1)}, timeout_ms=200)
        raise AssertionError("there was nobody to wait for")
    except shoal.Error as e:
        assert e.code in (1, 4), e
    s.start("one", rows(5))
    s.start("two", rows(6))
    ours = s.end()
    assert np.array_equal(ours["one"][0], [10]) and np.array_equal(ours["two"][0], [12]), ours


def refused():
    for attrs in (dict(timeout=-1), dict(allowed_batch_sizes=[2, 3]),
                  dict(allowed_batch_sizes=[2, 8], enable_large_batch_splitting=True)):
        ours = both(lambda who: {0: Steps(who, called(times_size, 4, **attrs)).run(rows(0, 2))})
        assert ours == {0: 3}, (attrs, ours)


tests = [("four calls in one batch", joined), ("ops that share a queue", of_two_ops), ("calls of several rows", rows_of_several),
         ("a batch that is padded", padded), ("a queue that is full", full_queue), ("a call in several batches", split),
         ("a call in more batches than may wait", split_too_far), ("more batches than may ever wait", most_batches),
         ("parts of calls joined", split_and_joined),
         ("outputs of wrong sizes", wrong_outputs), ("no rows", no_rows), ("a function that fails", failing),
         ("there and back through steps", there_and_back), ("rows that never come", late), ("a step that is cancelled", cancelled),
         ("a batch of too many parts", too_many_parts),
         ("attributes that make no sense", refused)]
if __name__ == "__main__":
    report(tests)
