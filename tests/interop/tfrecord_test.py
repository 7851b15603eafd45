"""`shoal tfrecord`: what TensorFlow wrote it prints, counts and checks; what it makes TensorFlow reads. Damaged files are
told of by name and offset, and passed over when asked.

# needs: tensorflow
"""
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import tensorflow.compat.v1 as tf
from google.protobuf import text_format

import shoal
import tap

SHOAL = os.path.join(os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build")), "shoal")
PACKINGS = ("", "GZIP", "ZLIB")
RECORDS = [b"one", b"", b"\x00\xff\n", b"x" * 70000, "gr\u00fcn".encode()]


def command(*args, code=0, **more):
    p = subprocess.run([SHOAL, "tfrecord", *args], capture_output=True, check=False, **more)
    assert p.returncode == code, (args, p.returncode, p.stdout[-500:], p.stderr[-500:])
    return p.stdout.decode(), p.stderr.decode()


def write(path, records, packing=""):
    with tf.python_io.TFRecordWriter(path, tf.io.TFRecordOptions(compression_type=packing)) as w:
        for r in records:
            w.write(r)


def read(path, packing=""):
    return list(tf.python_io.tf_record_iterator(path, tf.io.TFRecordOptions(compression_type=packing)))


def in_folder(test):
    def run():
        with tempfile.TemporaryDirectory() as folder:
            test(os.path.join(folder, "records"))
    return run


@in_folder
def test_count_and_verify(path):
    for packing in PACKINGS:
        for records in (RECORDS, []):
            write(path, records, packing)
            assert command("count", path)[0] == f"{len(records)} {path}\n"
            size = sum(map(len, records))
            assert command("verify", path)[0] == f"{path}: {len(records)} records, {size} bytes\n"
            assert command("verify", f"--compression={packing.lower() or 'none'}", path)[0].endswith(f" {size} bytes\n")


@in_folder
def test_cat_bytes(path):
    write(path, RECORDS)
    lines = command("cat", path)[0].split("\n")
    assert lines == ["one", "", r"\x00\xff\x0a", "x" * 70000, "gr\u00fcn", ""], [line[:40] for line in lines]
    assert command("cat", "--limit=1", path)[0] == "one\n"


@in_folder
def test_cat_examples(path):
    examples = []
    for i in range(3):
        e = tf.train.Example()
        e.features.feature["label"].int64_list.value.extend([i, -i, 1 << 60])
        e.features.feature["pixels"].float_list.value.extend([0.1, 1e-30, float(i)])
        e.features.feature["text"].bytes_list.value.extend([b"a\"b\n\x80", b""])
        examples.append(e)
    sequence = tf.train.SequenceExample()
    sequence.context.feature["n"].int64_list.value.append(1)
    sequence.feature_lists.feature_list["s"].feature.add().bytes_list.value.append(b"z")
    write(path, [e.SerializeToString() for e in (*examples, sequence)], "GZIP")
    parts = command("cat", path)[0].split(f"# {path}: record ")[1:]
    assert len(parts) == 4 and parts[1].startswith("1 at "), parts
    for text, e in zip(parts, (*examples, sequence)):
        assert text_format.Parse(text.split("\n", 1)[1], type(e)()) == e, text


@in_folder
def test_make(path):
    lines, other = path + ".txt", path + ".bin"
    with open(lines, "wb") as f:
        f.write(b"first\n\nlast \xff without an end")
    with open(other, "wb") as f:
        f.write(bytes(range(256)))
    for packing in PACKINGS:
        flags = [f"--output={path}", f"--compression={packing.lower() or 'none'}"]
        command("make", *flags, lines)
        assert read(path, packing) == [b"first", b"", b"last \xff without an end"]
        command("make", *flags, "--files", lines, other)
        assert [len(r) for r in read(path, packing)] == [os.path.getsize(lines), 256]
    command("make", f"--output={path}", "-", input=b"a\nb\n")
    assert read(path) == [b"a", b"b"]
    command("make", f"--output={path}", "--feature=line", lines)
    e = tf.train.Example.FromString(read(path)[2])
    assert dict(e.features.feature).keys() == {"line"}
    assert e.features.feature["line"].bytes_list.value[:] == [b"last \xff without an end"]
    before = read(path)
    command("make", f"--output={path}", lines, path + ".none", code=1)
    assert read(path) == before  # nothing came of it
    command("make", f"--output={lines}", lines)
    assert read(lines) == [b"first", b"", b"last \xff without an end"]
    p = subprocess.run([SHOAL, "tfrecord", "make", "--output=/dev/stdout", path], stdout=subprocess.PIPE, check=True)
    assert len(p.stdout) > os.path.getsize(path)  # no file, but a pipe
    empty = path + ".empty"
    open(empty, "wb").close()
    command("make", f"--output={path}", empty)
    assert read(path) == [] and command("count", path)[0] == f"0 {path}\n"


def damaged(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 0x40]))


@in_folder
def test_damage(path):
    """Records of 4 bytes lie 20 bytes apart. Where one's data is damaged, or its length, the others are still read."""
    records = [b"%04d" % i for i in range(6)]
    for at, offset in ((20 + 13, 20), (20 + 17, 20), (40 + 1, 40), (40 + 9, 40), (0, 0), (100 + 8, 100)):
        write(path, records)
        damaged(path, at)
        for action in ("count", "verify", "cat"):
            out, err = command(action, path, code=1)
            assert f"DATA_LOSS: {path}: corrupted record at {offset}\n" in err, err
        left = "".join(f"{i:04d}\n" for i in range(6) if i != offset // 20)
        out, err = command("cat", "--skip_corrupt", path)
        assert out == left and err == f"shoal: {path}: 1 damaged record skipped\n", (at, out, err)
        assert command("count", "--skip_corrupt", path)[0] == f"5 {path}\n"
    write(path, records)
    damaged(path, 13), damaged(path, 73)
    assert command("cat", "--skip_corrupt", path)[1] == f"shoal: {path}: 2 damaged records skipped\n"
    out, err = command("verify", path, code=1)  # names them all, and says what is sound
    assert out == f"{path}: 4 records, 16 bytes\n", out
    told = [f"shoal: DATA_LOSS: {path}: corrupted record at {at}" for at in (0, 60)]
    assert err.splitlines() == [*told, f"shoal: {path}: 2 damaged records"], err
    write(path, [b"%04d" % i for i in range(200)])
    for i in range(100):
        damaged(path, 40 * i + 13)
    out, err = command("verify", path, code=1)
    assert out == f"{path}: 100 records, 400 bytes\n" and len(err.splitlines()) == 21, (out, err)
    assert err.endswith(f"shoal: {path}: 100 damaged records\n"), err
    write(path, records)
    os.truncate(path, 20 * 6 - 3)
    assert f"{path}: truncated record at 100" in command("verify", path, code=1)[1]
    assert command("count", "--skip_corrupt", path) == (f"5 {path}\n", f"shoal: {path}: 1 damaged record skipped\n")


@in_folder
def test_damage_in_packed_files(path):
    for packing in PACKINGS[1:]:
        write(path, [os.urandom(1000) for _ in range(100)], packing)
        damaged(path, os.path.getsize(path) // 2)
        assert path in command("verify", f"--compression={packing.lower()}", path, code=1)[1]
        out, err = command("count", "--skip_corrupt", path, code=1)  # nothing behind can be unpacked
        assert err.count(path) == 1 and "bytes of records" in err, err
        os.truncate(path, os.path.getsize(path) // 3)
        assert f"{path}: truncated record at" in command("verify", path, code=1)[1]
        write(path, RECORDS, packing)  # all of them are there, but not the end of the packed stream
        os.truncate(path, os.path.getsize(path) - 3)
        assert command("count", path)[0] == f"5 {path}\n"
        assert f"DATA_LOSS: {path}: the packed stream is cut off" in command("verify", path, code=1)[1]


@in_folder
def test_two_files_and_one_bad(path):
    write(path, RECORDS)
    write(path + "2", RECORDS)
    damaged(path, 1)
    out, err = command("count", path, path + "2", path + "3", code=1)
    assert out == f"5 {path}2\n" and "corrupted record at 0" in err and f"{path}3" in err, (out, err)


def test_usage():
    for args, words in (((), "usage: shoal tfrecord"), (("dog",), 'no action "dog"'), (("cat",), "name a file"),
                        (("make", "x"), "--output is missing"), (("make", "--output=/tmp/x"), "name what to read"),
                        (("count", "--compression=rar", "x"), "--compression=rar: expected")):
        assert words in command(*args, code=2)[1], args
    for args in (("--help",), ("cat", "--help"), ("make", "--help")):
        assert "usage: " in command(*args)[0]
    assert "No such file" in command("cat", "/there/is/none", code=1)[1]
    assert "/there/is/none" in command("make", "--output=/there/is/none/x", "/dev/null", code=1)[1]


if __name__ == "__main__":
    tap.main(globals())
