"""Candidate samplers: the same draws for the same seeds; and files."""
import os
import tempfile

from cases import *


def twice(name, classes=((1, 2), (0, 7), (3, 3)), **attrs):
    def build():
        out = getattr(tf.raw_ops, name)(true_classes=feed(np.array(classes, np.int64)), num_true=2, seed=3, seed2=4, **attrs)
        return [list(out), list(out)]
    return build


for unique in (True, False):
    for name in ("UniformCandidateSampler", "LogUniformCandidateSampler", "LearnedUnigramCandidateSampler",
                 "ThreadUnsafeUnigramCandidateSampler"):
        for range_max, n in ((8, 5), (8, 8), (1000, 64), (65536, 20)):
            graph(f"{name} {unique} {range_max} {n}", twice(name, num_sampled=n, unique=unique, range_max=range_max))
    weights = [float(i % 7 + 1) for i in range(50)]
    for distortion in (1.0, 0.75):
        graph(f"FixedUnigramCandidateSampler {unique} {distortion}",
              twice("FixedUnigramCandidateSampler", num_sampled=20, unique=unique, range_max=50, unigrams=weights,
                    distortion=distortion))
    graph(f"FixedUnigramCandidateSampler reserved {unique}",
          twice("FixedUnigramCandidateSampler", num_sampled=20, unique=unique, range_max=52, unigrams=weights,
                num_reserved_ids=2))
    graph(f"FixedUnigramCandidateSampler shard {unique}",
          twice("FixedUnigramCandidateSampler", num_sampled=9, unique=unique, range_max=25, unigrams=weights,
                num_shards=2, shard=1))
graph("AllCandidateSampler", twice("AllCandidateSampler", num_sampled=9, unique=True))


def from_file():
    with tempfile.NamedTemporaryFile("w", delete=False) as f:
        f.write("".join(f"word{i},{i + 1}\n" for i in range(30)))
    return twice("FixedUnigramCandidateSampler", num_sampled=9, unique=True, range_max=30, vocab_file=f.name)()


graph("FixedUnigramCandidateSampler file", from_file)
op("UniformCandidateSampler", {"true_classes": np.zeros((2, 1), np.int64)},
   {"num_true": 1, "num_sampled": 9, "unique": True, "range_max": 8}, error="INVALID_ARGUMENT",
   message="Sampler's range is too small")
op("UniformCandidateSampler", {"true_classes": np.zeros((2, 3), np.int64)},
   {"num_true": 1, "num_sampled": 3, "unique": True, "range_max": 8}, error="INVALID_ARGUMENT")
op("ComputeAccidentalHits", {"true_classes": np.array([[1, 2], [5, 9]], np.int64),
                             "sampled_candidates": np.array([9, 3, 1, 9, 5], np.int64)}, {"num_true": 2})
op("ComputeAccidentalHits", {"true_classes": np.zeros((0, 2), np.int64), "sampled_candidates": np.zeros(0, np.int64)},
   {"num_true": 2})
op("ComputeAccidentalHits", {"true_classes": np.zeros((3, 1), np.int64), "sampled_candidates": np.zeros(1, np.int64)},
   {"num_true": 2}, error="INVALID_ARGUMENT")

# ---- files ----
D = tempfile.mkdtemp()
for name in ("a1.txt", "a2.txt", "b.txt", ".hidden.txt", "sub/c.txt"):
    os.makedirs(os.path.dirname(f"{D}/{name}"), exist_ok=True)
    open(f"{D}/{name}", "w").write(name)
for pattern in ("*.txt", "a?.txt", "[ab]*.txt", "*/c.txt", "none*", "b.txt", "*", "a{1,2}.txt", "nodir/*"):
    op("MatchingFiles", {"pattern": np.array(f"{D}/{pattern}".encode(), object)}, name=pattern)
op("MatchingFiles", {"pattern": np.array([f"{D}/b*".encode(), f"{D}/a*".encode()], object)}, name="two")
op("ReadFile", {"filename": np.array(f"{D}/b.txt".encode(), object)})
op("ReadFile", {"filename": np.array(f"file://{D}/b.txt".encode(), object)}, name="with a scheme")
op("ReadFile", {"filename": np.array(f"{D}/none".encode(), object)}, error="NOT_FOUND", message="No such file or directory")
op("ReadFile", {"filename": np.array(b"nofs://x", object)}, error="UNIMPLEMENTED",
   message=r"File system scheme 'nofs' not implemented \(file: 'nofs://x'\)")
op("ReadFile", {"filename": np.array(D.encode(), object)}, error="FAILED_PRECONDITION")


def write():
    path = feed(np.array(f"{tempfile.mkdtemp()}/new/deep/x".encode(), object))
    w = tf.raw_ops.WriteFile(filename=path, contents=feed(np.array(b"hello\0there", object)))
    return [[w], [tf.raw_ops.ReadFile(filename=path)], [w]]


graph("WriteFile", write)
