"""`shoal word2vec`: what it trains TensorFlow and TensorBoard read, the original program's flags are understood, bad input
and Ctrl-C leave nothing half, and vectors are as good as gensim's, where that is installed ($SHOAL_GENSIM: its Python).

# needs: tensorflow
"""
import gzip
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow.compat.v1 as tf

import shoal
import tap

SHOAL = os.path.join(os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build")), "shoal")
SUBJECTS = [[f"{name}{i}" for i in range(12)] for name in ("sky", "food", "trade", "war", "sea", "law")]


def command(*args, code=0, **more):
    p = subprocess.run([SHOAL, "word2vec", *map(str, args)], capture_output=True, check=False, **more)
    assert p.returncode == code, (args, p.returncode, p.stdout[-500:], p.stderr[-500:])
    return p.stdout.decode(), p.stderr.decode()


def write_subjects(path, lines=4000, length=10):
    """Lines of words of one subject, with a few that are everywhere."""
    rng = random.Random(4)
    with open(path, "w") as f:
        for _ in range(lines):
            subject = rng.choice(SUBJECTS)
            f.write(" ".join("the" if rng.random() < 0.2 else rng.choice(subject) for _ in range(length)) + "\n")


def read_text(path):
    with open(path) as f:
        n, width = map(int, f.readline().split())
        rows = [line.split() for line in f]
    assert len(rows) == n and all(len(r) == width + 1 for r in rows)
    return [r[0] for r in rows], np.array([r[1:] for r in rows], np.float32)


def agreement(words, rows):
    """How often the nearest word is of the same subject."""
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    at = {w: i for i, w in enumerate(words)}
    known = [(w, k) for k, subject in enumerate(SUBJECTS) for w in subject]
    ids = [at[w] for w, _ in known]
    near = rows[ids] @ rows[ids].T - 2 * np.eye(len(ids))
    return np.mean([known[i][1] == known[j][1] for i, j in enumerate(near.argmax(1))])


def in_folder(test):
    def run():
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
    return run


@in_folder
def test_original_flags(folder):
    text, out, vocab = (os.path.join(folder, n) for n in ("text", "vec", "vocab"))
    write_subjects(text)
    for variant in (["-cbow", "1"], ["-cbow", "0"], ["-cbow", "0", "-hs", "1", "-negative", "0"]):
        command("train", "-train", text, "-output", out, "-size", "24", "-window", "4", "-sample", "1e-3", *variant, "-threads",
                "2", "-iter", "8", "-min-count", "3", "-alpha", "0.05", "-save-vocab", vocab, "-binary", "0", "-debug", "0",
                "-classes", "0")
        words, rows = read_text(out)
        assert rows.shape[1] == 24 and words[:2] == ["</s>", "the"], words[:5]
        assert agreement(words, rows) > 0.95, (variant, agreement(words, rows))
    with open(vocab) as f:
        counts = [line.split() for line in f]
    assert [w for w, _ in counts] == words and counts[0][1] == "4000"
    command("train", "-train", text, "-output", out + "2", "-size", "24", "-read-vocab", vocab, "-debug", "0")
    assert read_text(out + "2")[0] == words


@in_folder
def test_one_thread_is_repeatable(folder):
    text, out = os.path.join(folder, "text"), os.path.join(folder, "vec")
    write_subjects(text, 500)
    written = []
    for more in ([], [], ["--seed=2"]):
        command("train", "-train", text, "-output", out, "-threads", 1, "-iter", 2, "-binary", 1, *more)
        with open(out, "rb") as f:
            written.append(f.read())
    assert written[0] == written[1] != written[2]


@in_folder
def test_tensorflow_reads_the_checkpoint(folder):
    text, out, ckpt = (os.path.join(folder, n) for n in ("text", "vec", "ckpt"))
    write_subjects(text, 500)
    with open(text, "ab") as f:
        f.write(b"b\xffad " * 10)
    command("train", text, "-output", out, "-binary", 1, "--checkpoint_dir", ckpt, "-hs", 1, "-size", 10)
    r = tf.train.load_checkpoint(ckpt)
    shapes = r.get_variable_to_shape_map()
    n = shapes["word2vec/words"][0]
    assert shapes == {"word2vec/embeddings": [n, 10], "word2vec/output": [n, 10], "word2vec/nodes": [n, 10],
                      "word2vec/words": [n]}, shapes
    words, rows = r.get_tensor("word2vec/words"), r.get_tensor("word2vec/embeddings")
    with open(out, "rb") as f:
        assert f.readline() == b"%d 10\n" % n
        for word, row in zip(words, rows):
            assert f.read(len(word) + 1) == word + b" "
            assert np.array_equal(np.frombuffer(f.read(40), np.float32), row)
            assert f.read(1) == b"\n"
    with open(os.path.join(ckpt, "metadata.tsv"), encoding="utf-8") as f:
        assert [line[:-1] for line in f] == [w.decode(errors="backslashreplace") for w in words]
    try:
        from google.protobuf import text_format
        from tensorboard.plugins.projector import projector_config_pb2
    except ImportError:
        return
    with open(os.path.join(ckpt, "projector_config.pbtxt")) as f:
        config = text_format.Parse(f.read(), projector_config_pb2.ProjectorConfig())
    assert config.embeddings[0].tensor_name == "word2vec/embeddings"
    assert config.embeddings[0].metadata_path == "metadata.tsv"


@in_folder
def test_classes(folder):
    """As the original has them: lines "WORD CLASS", words of one subject together."""
    text, out = os.path.join(folder, "text"), os.path.join(folder, "out")
    write_subjects(text)
    command("train", "-train", text, "-size", 24, "-window", 5, "-iter", 8, "-min-count", 3, "-alpha", 0.05, "-cbow", 0,
            "-output", out, "-threads", 1, "-classes", 12)
    with open(out) as f:
        lines = [line.split() for line in f]
    assert lines[0][0] == "</s>" and all(0 <= int(c) < 12 for _, c in lines), lines[:5]
    subject_of, of_class = {w: k for k, subject in enumerate(SUBJECTS) for w in subject}, {}
    for word, c in lines:
        if word in subject_of:
            of_class.setdefault(c, []).append(subject_of[word])
    alike = sum(max(map(subjects.count, subjects)) for subjects in of_class.values())
    assert alike > 0.8 * len(subject_of), of_class
    assert "-output, which is missing" in command("train", "-train", text, "-save-vocab", out, "-classes", 3, code=2)[1]


@in_folder
def test_questions(folder):
    vectors = os.path.join(folder, "vec")
    with open(vectors, "w") as f:
        f.write("5 2\nking 1 1\nqueen 0.9 1.1\nman 1 0\nwoman 0.8 0.2\nsea -1 0\n")
    out = command("neighbors", "--vectors", vectors, "--top=2", "king")[0].splitlines()
    assert [line.split()[0] for line in out] == ["queen", "woman"], out
    assert command("analogy", "--vectors", vectors, "man", "king", "woman")[0].startswith("queen 0.9")
    out, err = command("neighbors", "--vectors", vectors, "--top=1", input=b"king\ndog\n\nsea\n", code=1)
    assert out == "queen 0.995037\n\n\nqueen -0.633238\n\n" and '"dog" has no vector' in err, (out, err)
    command("analogy", "--vectors", vectors, "man", "king", code=2)
    with open(vectors, "w") as f:
        f.write("5 2\nking 1 1\n")
    assert "cut short" in command("neighbors", "--vectors", vectors, "king", code=1)[1]


@in_folder
def test_phrases(folder):
    text, out = os.path.join(folder, "text"), os.path.join(folder, "out")
    with open(text, "w") as f:
        f.writelines(f"i{i} new york c{i}\n" for i in range(200))
    assert "200 phrases joined" in command("phrases", "-train", text, "-output", out, "-threshold", "1")[1]
    with open(out) as f:
        assert f.readline() == "i0 new_york c0\n"


@in_folder
def test_bad_input(folder):
    text, out = os.path.join(folder, "text"), os.path.join(folder, "out")
    open(text, "w").close()
    train = ("train", "-train", text, "-output", out)
    assert "no text" in command(*train, code=2)[1]
    with open(text, "w") as f:
        f.write(" \n\n")
    assert "there are no words" in command(*train, "-min-count", "1", code=2)[1]
    with open(text, "w") as f:
        f.write("a b c d e")
    assert "lower -min-count" in command(*train, code=2)[1]
    with open(text, "w") as f:
        f.write("one " * 100)
    assert "one word only" in command(*train)[1]
    os.remove(out)
    for args, code, words in ((["-hs", 0, "-negative", 0], 2, "-hs 1"), (["-classes", 500], 2, "there are 2 words"),
                              (["-alpha", "x"], 2, "-alpha x"), (["-alpha", "0"], 2, "above 0"), (["-window", 0], 2, "window"),
                              (["-size", 1000000, "--memory=1"], 1, "are allowed")):
        assert words in command(*train, *args, code=code)[1], args
        assert not os.path.exists(out), args
    with open(text, "w") as f:
        f.write("one two three four five\n" * 500)
    assert "a smaller -alpha" in command(*train, "-alpha", "1e30", "-threads", "1", code=1)[1]
    assert not os.path.exists(out)
    os.makedirs(os.path.join(folder, "far"))
    os.symlink("far/out", out)
    command(*train, "-size", "4")
    assert os.path.islink(out) and os.listdir(os.path.join(folder, "far")) == ["out"]
    os.remove(out)
    shutil.rmtree(os.path.join(folder, "far"))
    os.symlink("nowhere/out", out)
    assert "there is no folder" in command(*train, code=1)[1]
    os.remove(out)
    assert "--train needs a value" in command("train", "-train", "-output", out, code=2)[1]
    with gzip.open(text + ".gz", "wb") as f:
        f.write(b"one two three\n" * 500)
    assert "is packed by gzip" in command("train", "-train", text + ".gz", "-output", out, code=2)[1]
    os.remove(text + ".gz")
    os.mkfifo(text + "pipe")
    assert "must be a file" in command("train", "-train", text + "pipe", "-output", out, code=2, timeout=60)[1]
    os.remove(text + "pipe")
    assert "No such file" in command("train", "-train", text + "x", "-output", out, code=1)[1]
    assert f"no folder {folder}/nope" in command("train", "-train", text, "-output", f"{folder}/nope/v", code=1)[1]
    assert "--checkpoint_dir: " in command("train", "-train", text, "--checkpoint_dir=/proc/x", code=1)[1]
    assert "-train is missing" in command("train", "-output", out, code=2)[1]
    for flag in ("-output", "-save-vocab"):
        assert f"{flag} is the text itself" in command("train", "-train", text, flag, os.path.relpath(text), code=2)[1]
    assert "are the same file" in command("train", "-train", text, "-output", out, "-save-vocab", out, code=2)[1]
    assert "nothing would be kept" in command("train", "-train", text, code=2)[1]
    assert "-output is the text itself" in command("phrases", "-train", text, "-output", text, code=2)[1]
    words = folder + "/words"
    with open(words, "w") as f:
        f.write("a 9\n")
    assert "-output is -read-vocab's file" in command("train", "-train", text, "-read-vocab", words, "-output", words, code=2)[1]
    os.remove(words)
    for flag in ("-output", "-save-vocab"):
        assert f"{flag} {folder} is a folder" in command("train", "-train", text, flag, folder, code=2)[1]
    assert os.listdir(folder) == ["text"]


@in_folder
def test_more_words_than_memory(folder):
    """Rare words are dropped while they are counted, which is said; those that are frequent have vectors."""
    text, out = os.path.join(folder, "text"), os.path.join(folder, "out")
    with open(text, "w") as f:
        f.writelines(f"u{i} v{i} often\n" for i in range(300000))
    said = command("train", "-train", text, "-output", out, "-iter", 1, "-size", 8, "--memory=4")[1]
    assert "the memory allowed did not do" in said and read_text(out)[0] == ["</s>", "often"], said


@in_folder
def test_a_line_of_a_gigabyte_takes_little_memory(folder):
    text, out = os.path.join(folder, "text"), os.path.join(folder, "out")
    with open(text, "wb") as f:
        f.write(b"x y z " * 100)
        f.truncate(1 << 30)  # a hole: NULs, which are blanks
        f.seek(1 << 30)
        f.write(b"q" * (20 << 20) + b" x y z")  # and a word of 20 MB
    command("train", "-train", text, "-output", out, "-iter", 1, "-size", 8)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 300000
    assert read_text(out)[0] == ["</s>", "x", "y", "z"]


@in_folder
def test_to_a_pipe(folder):
    """What is no file is written to, not replaced by one."""
    text, pipe, out = (os.path.join(folder, n) for n in ("text", "pipe", "out"))
    write_subjects(text, 200)
    os.mkfifo(pipe)
    with open(out, "w") as f, subprocess.Popen(["cat", pipe], stdout=f) as reader:
        command("train", "-train", text, "-output", pipe, "-iter", 1, "-size", 8)
        assert reader.wait(60) == 0
    assert stat.S_ISFIFO(os.stat(pipe).st_mode) and read_text(out)[0][0] == "</s>"


@in_folder
def test_interrupted(folder):
    text, out = os.path.join(folder, "text"), os.path.join(folder, "out")
    write_subjects(text, 2000)
    with subprocess.Popen([SHOAL, "word2vec", "train", "-train", text, "-output", out, "-iter", "1000000", "-debug", "2"],
                          stderr=subprocess.PIPE, text=True) as p:
        while "words/s" not in p.stderr.readline():
            pass
        p.send_signal(signal.SIGINT)
        begun = time.time()
        err = p.stderr.read()
        assert p.wait() == 75 and "no vectors were saved" in err, (p.returncode, err[-300:])
        assert time.time() - begun < 60
    assert os.listdir(folder) == ["text"]


@in_folder
def test_beside_gensim(folder):
    gensim = os.environ.get("SHOAL_GENSIM", sys.executable)
    if subprocess.run([gensim, "-c", "import gensim"], capture_output=True, check=False).returncode:
        raise tap.Skip("there is no gensim ($SHOAL_GENSIM)")
    text, out = os.path.join(folder, "text"), os.path.join(folder, "vec")
    write_subjects(text)
    program = ("import sys; from gensim.models.word2vec import Word2Vec as W; sys.argv[0:1] = []\n"
               "m = W(corpus_file=sys.argv[0], vector_size=24, window=4, min_count=3, sg=int(sys.argv[2]), negative=5, epochs=8,"
               "alpha=0.05, sample=1e-3, workers=1, seed=1); m.wv.save_word2vec_format(sys.argv[1], binary=int(sys.argv[3]))")
    for sg in (0, 1):
        subprocess.run([gensim, "-c", program, text, out, str(sg), "0"], check=True)
        theirs = agreement(*read_text(out))
        command("train", "-train", text, "-output", out, "-size", 24, "-window", 4, "-min-count", 3, "-cbow", 1 - sg, "-iter", 8,
                "-alpha", 0.05)
        ours = agreement(*read_text(out))
        assert ours > theirs - 0.03, (sg, ours, theirs)
    subprocess.run([gensim, "-c", program, text, out, "1", "1"], check=True)
    assert len(command("neighbors", "--vectors", out, "the")[0].splitlines()) == 10  # its binary format
    read = ("import sys; from gensim.models import KeyedVectors as K\n"
            "v = K.load_word2vec_format(sys.argv[1], binary=int(sys.argv[2])); print(len(v), v.vector_size)")
    for binary in (0, 1):
        command("train", "-train", text, "-output", out, "-size", 24, "-iter", 1, "-binary", binary)
        p = subprocess.run([gensim, "-c", read, out, str(binary)], check=True, capture_output=True, text=True)
        assert p.stdout == "74 24\n", p.stdout


def test_usage():
    assert "usage: shoal word2vec" in command(code=2)[1]
    assert 'no action "dog"' in command("dog", code=2)[1]
    for action in ("train", "phrases", "neighbors", "analogy"):
        assert "usage: " in command(action, "--help")[0]
    assert "--vectors is missing" in command("neighbors", "x", code=2)[1]


if __name__ == "__main__":
    tap.main(globals())
