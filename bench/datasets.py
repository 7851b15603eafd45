"""Datasets in C beside tf.data on this machine.

  python bench/datasets.py [--build build] [--rounds 7] [--only REGEX]

Both sides walk the same dataset, each in a process of its own, and take turns round by round. Printed: the median of
the rounds in rows (or calls) a second, their spread (half the distance between the quartiles, in percent), and how many
times faster Shoal is. "one core": both are bound to one. The last but one compares Shoal
with itself; the last says what a stream of 10 GB takes of memory.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH, BATCH, ROWS, BUFFER, CALLS, NUMBERS, OPS, RECORDS = 32, 128, 50000, 10000, 2000, 2048, 40, 51200


def tensorflow(case, path, parallel):
    """The other side: answers each line by a walk."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import time
    import tensorflow as tf
    features = {"x": tf.io.FixedLenFeature([WIDTH], tf.float32), "name": tf.io.FixedLenFeature([], tf.string),
                "label": tf.io.FixedLenFeature([], tf.int64)}

    def compute(x):
        v = tf.fill([NUMBERS], tf.cast(x, tf.float32))
        for _ in range(OPS):
            v = tf.tanh(tf.cumsum(v))
        return tf.reduce_mean(v)
    d = {"parse": lambda: tf.data.TFRecordDataset(path).batch(BATCH, drop_remainder=True).map(
             lambda s: tf.io.parse_example(s, features), num_parallel_calls=parallel or None),
         "shuffle": lambda: tf.data.Dataset.from_tensor_slices(
             (tf.zeros([ROWS, WIDTH]), tf.zeros([ROWS], tf.int64))).shuffle(BUFFER, 1).batch(BATCH, True),
         "map": lambda: tf.data.Dataset.range(CALLS).map(compute, num_parallel_calls=parallel or None)}[case]()
    for _ in sys.stdin:
        start, rows = time.perf_counter(), 0
        for element in d:
            first = tf.nest.flatten(element)[0]
            rows += int(first.shape[0]) if first.shape.rank else 1
        print(f"{time.perf_counter() - start:.9f} {rows}", flush=True)


def write_records(path):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    with tf.io.TFRecordWriter(path) as w:
        for i in range(RECORDS):
            w.write(tf.train.Example(features=tf.train.Features(feature={
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i * 0.5 + k for k in range(WIDTH)])),
                "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"name of %d" % i])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 10]))})).SerializeToString())


class Side:
    def __init__(self, command, cores):
        bind = (lambda: os.sched_setaffinity(0, cores)) if cores else None
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=bind)
        self.rates, self.peak_mb = [], 0

    def walk(self, keep=True):
        self.p.stdin.write("\n")
        self.p.stdin.flush()
        took, rows, *peak = self.p.stdout.readline().split()
        self.peak_mb = int(peak[0]) / 1024 if peak else 0
        if keep:
            self.rates.append(int(rows) / float(took))

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def spread(values):
    low, _, high = statistics.quantiles(values, n=4)
    return 100 * (high - low) / 2 / statistics.median(values)


def compare(title, sides, rounds, aim):
    for side in sides:
        side.walk(keep=False)
    for _ in range(rounds):
        for side in sides:
            side.walk()
    for side in sides:
        side.close()
    a, b = (statistics.median(s.rates) for s in sides)
    print(f"{title:44} {a:12,.0f}/s ±{spread(sides[0].rates):.0f}%  {b:12,.0f}/s ±{spread(sides[1].rates):.0f}%  "
          f"{a / b:6.2f}x  {aim}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(os.path.dirname(HERE), "build"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    program, core = os.path.join(args.build, "bench", "datasets"), {min(os.sched_getaffinity(0))}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "records")
        subprocess.run([sys.executable, __file__, "--write", path], check=True)

        def ours(case, parallel, cores=None):
            return Side([program, case, path, str(parallel)], cores)

        def theirs(case, parallel, cores=None):
            return Side([sys.executable, __file__, "--serve", case, path, str(parallel)], cores)
        print(f"{'':44} {'Shoal':>14}      {'tf.data':>14}")
        for title, case, parallel, cores, aim in (
                ("TFRecord and Example, one core", "parse", 0, core, "3x wanted"),
                ("shuffle and batch in memory, one core", "shuffle", 0, core, "5x wanted"),
                ("map that computes, 2 at a time", "map", 2, None, "")):
            if re.search(args.only, title):
                compare(title, [ours(case, parallel, cores), theirs(case, parallel, cores)], args.rounds, aim)
        title = "map, 2 at a time beside one"
        if re.search(args.only, title):
            compare(title + " (both Shoal)", [ours("map", 2), ours("map", 0)], args.rounds, "1.8x wanted")
        if re.search(args.only, "stream"):
            one = ours("stream", 0)
            one.walk()
            one.close()
            print(f"{'10 GB made by the program, shuffled':44} {one.rates[0] / 1024:12.2f} GB/s, "
                  f"{one.peak_mb:.0f} MB at most; 200 MB wanted", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        tensorflow(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif sys.argv[1:2] == ["--write"]:
        write_records(sys.argv[2])
    else:
        main()
