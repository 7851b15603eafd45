"""`shoal word2vec` beside gensim and the original program, taking turns: words a second from text to vectors, the
vocabulary included, and how good the vectors are.

  bench/word2vec.py [--build DIR] [--text FILE] [--gensim PYTHON] [--original PROGRAM] [--threads N] [--rounds N]
                    [--only REGEX]

Without --text it is Debian's dict-gcide (apt install dict-gcide). Of that dictionary the paragraphs of synonyms and
every fiftieth line are kept out of the training, and quality is measured by them: how often a word is nearer to its
synonym ("synonyms"), or to a word beside it in those lines ("beside"), than to one drawn by frequency. 0.5 is chance, 1
is best. A peer that is not there is left out, and that is said. Last come two processes of one thread, by `shoal
launch`, beside one, with so many passes (--process_passes) that one of them is at work for a minute or so."""
import argparse
import collections
import gzip
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GCIDE = "/usr/share/dictd/gcide.dict.dz"
GENSIM = """
import sys, time
from gensim.models.word2vec import Word2Vec
text, out, threads, passes, sg, size = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
rate = 0.025 if sg else 0.05
m = Word2Vec(vector_size=size, window=5, min_count=5, workers=threads, sg=sg, negative=5, sample=1e-3, alpha=rate,
             min_alpha=rate * 1e-4, seed=1)
begun, used = time.time(), time.process_time()
m.build_vocab(corpus_file=text)
m.train(corpus_file=text, total_examples=m.corpus_count, total_words=m.corpus_total_words, epochs=passes)
print(time.time() - begun, time.process_time() - used)
m.wv.save_word2vec_format(out)
"""


def words_of(text):
    return re.findall("[a-z]+", text.lower())


def read_gcide(path):
    """Lines to train on, lines held out, pairs of synonyms."""
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as f:
        paragraphs = re.split(r"\n\s*\n", f.read())
    lines, held, pairs, head = [], [], [], None
    for p in paragraphs:
        entry = re.match(r"([A-Za-z]+) \\", p)
        head = entry[1].lower() if entry else head
        synonyms = re.search(r"Syn[.:]\s*(?:--)?(.*)", p, re.S)
        if synonyms:
            first = re.split(r"[.\[]", synonyms[1])[0]
            alone = [w[0] for w in map(words_of, re.split("[;,]", first)) if len(w) == 1]
            pairs += [(head, w) for w in alone if head and w != head]
            continue
        w = words_of(re.sub(r"\[[^\]]*\]", " ", p))
        if len(w) > 2:
            (held if len(lines) % 50 == 49 and len(held) < len(lines) // 49 else lines).append(w)
    return lines, held, pairs


def split_text(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        lines = [line.split() for line in f]
    return [w for i, w in enumerate(lines) if i % 50 != 49], lines[49::50], []


def pairs_beside(held, counts):
    """Pairs of words, not too frequent, at most 3 apart."""
    most = sum(counts.values()) / 2000
    rare = lambda w: 20 <= counts.get(w, 0) < most
    found = [(a, b) for line in held for i, a in enumerate(line) for b in line[i + 1:i + 4]
             if a != b and rare(a) and rare(b)]
    return random.Random(3).sample(found, min(len(found), 20000))


def read_vectors(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        f.readline()
        rows = [line.split(" ") for line in f]
    m = np.array([r[1:-1] if r[-1].strip() == "" else r[1:] for r in rows], np.float32)
    m /= np.maximum(np.linalg.norm(m, axis=1, keepdims=True), 1e-9)
    return {r[0]: i for i, r in enumerate(rows)}, m


def quality(path, pairs, counts):
    """How often a pair is nearer than its first word and one drawn."""
    at, m = read_vectors(path)
    known = [(a, b) for a, b in pairs if counts.get(a, 0) >= 20 and counts.get(b, 0) >= 20]
    if not known:
        return float("nan")
    rng = np.random.default_rng(5)
    names = [w for w in sorted(counts) if w in at and counts[w] >= 20]
    weights = np.array([counts[w] for w in names], np.float64) ** 0.75
    drawn = rng.choice(len(names), (len(known), 20), p=weights / weights.sum())
    ids = np.array([at[w] for w in names])[drawn]
    a, b = (m[[at[p[i]] for p in known]] for i in (0, 1))
    near, far = (a * b).sum(1)[:, None], np.einsum("nd,nkd->nk", a, m[ids])
    return float((near > far).mean())


def timed(command):
    """Seconds by the clock, and of processors; what it printed."""
    begun, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    p = subprocess.run(command, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (time.time() - begun, used), p.stdout


def peers(o):
    def flags(cbow, text, out):
        given = {"train": text, "output": out, "size": o.size, "window": 5, "negative": 5, "sample": 1e-3, "cbow": cbow,
                 "threads": o.threads, "iter": o.passes, "min-count": 5, "binary": 0}
        return [word for name, value in given.items() for word in ("-" + name, str(value))]

    def gensim(cbow, text, out):
        args = map(str, (o.threads, o.passes, 1 - cbow, o.size))
        return tuple(map(float, timed([o.gensim, "-c", GENSIM, text, out, *args])[1].split()[-2:]))

    found = {"shoal": lambda *a: timed([os.path.join(o.build, "shoal"), "word2vec", "train", *flags(*a)])[0]}
    if subprocess.run([o.gensim, "-c", "import gensim"], capture_output=True, check=False).returncode == 0:
        found["gensim"] = gensim
    else:
        print("there is no gensim: left out (--gensim=PYTHON)")
    if o.original:
        found["original"] = lambda *a: timed([o.original, *flags(*a), "-debug", "0"])[0]
    else:
        print("the original program is left out (--original=PROGRAM)")
    return found


def compare(o, cbow, text, words, tests, counts, folder):
    seconds, found = collections.defaultdict(list), peers(o)
    for _ in range(o.rounds):
        for name, run in found.items():
            seconds[name].append(run(cbow, text, os.path.join(folder, name)))
    print(f"\n{'CBOW' if cbow else 'skip-gram'}, {o.size} numbers, {o.threads} threads, {o.passes} passes, "
          f"{o.rounds} rounds")
    middle = {name: [statistics.median(t[i] for t in times) for i in (0, 1)] for name, times in seconds.items()}
    for name, times in seconds.items():
        made, spread = os.path.join(folder, name), sorted(t[0] for t in times)
        marks = "".join(f"  {test} {quality(made, pairs, counts):.3f}" for test, pairs in tests.items())
        clock, used = middle[name]
        print(f"  {name:9}{words * o.passes / clock:12,.0f} words/s  ({spread[0]:.2f} to {spread[-1]:.2f} s)"
              f"{words * o.passes / used:12,.0f} a second of a processor"
              f"  shoal is {clock / middle['shoal'][0]:5.2f}x, {used / middle['shoal'][1]:5.2f}x{marks}", flush=True)


def processes(o, text, tests, counts, folder):
    """One process of one thread, and two that meet."""
    shoal, out = os.path.join(o.build, "shoal"), os.path.join(folder, "processes")
    train = [shoal, "word2vec", "train", "-train", text, "-output", out, "-size", str(o.size), "-cbow", "0",
             "-threads", "1", "-iter", str(o.process_passes)]
    shares = {"one process": 1, "two processes": 2}
    sides = {"one process": train, "two processes": [shoal, "launch", "--ps=0", "--workers=2", "--", *train]}
    seconds, marks = collections.defaultdict(list), {}
    for _ in range(o.rounds):
        for name, command in sides.items():
            seconds[name].append(timed(command)[0])
            marks[name] = "".join(f"  {test} {quality(out, pairs, counts):.3f}" for test, pairs in tests.items())
    middle = {name: [statistics.median(t[i] for t in times) for i in (0, 1)] for name, times in seconds.items()}
    print(f"\nskip-gram, {o.size} numbers, processes of one thread, {o.process_passes} passes, {o.rounds} rounds")
    for name, (clock, used) in middle.items():
        one = middle["one process"]
        print(f"  {name:14}{clock:8.1f} s  {one[0] / clock:.2f}x  ({used:.1f} s of processors, "
              f"{one[1] / used * shares[name]:.2f}x if none waited){marks[name]}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    p.add_argument("--text")
    p.add_argument("--gcide", default=GCIDE)
    p.add_argument("--gensim", default=os.environ.get("SHOAL_GENSIM", sys.executable))
    p.add_argument("--original")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--passes", type=int, default=5)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--process_passes", type=int, default=10)
    p.add_argument("--size", type=int, default=100)
    p.add_argument("--only", default="", help="REGEX of skip-gram, CBOW, processes")
    o = p.parse_args()
    if not o.text and not os.path.exists(o.gcide):
        print("word2vec: left out, there is no text: --text=FILE, or apt install dict-gcide")
        return
    lines, held, synonyms = split_text(o.text) if o.text else read_gcide(o.gcide)
    counts = collections.Counter(w for line in lines for w in line)
    tests = {"beside": pairs_beside(held, counts)}
    if synonyms:
        tests["synonyms"] = synonyms
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text")
        with open(text, "w", encoding="utf-8") as f:
            f.writelines(" ".join(line) + "\n" for line in lines)
        print(f"{sum(counts.values()):,} words, {len(counts):,} different ones; " +
              ", ".join(f"{len(p)} pairs {t}" for t, p in tests.items()), flush=True)
        for cbow, name in enumerate(("skip-gram", "CBOW")):
            if re.search(o.only, name):
                compare(o, cbow, text, sum(counts.values()), tests, counts, folder)
        if re.search(o.only, "processes"):
            processes(o, text, tests, counts, folder)


if __name__ == "__main__":
    main()
