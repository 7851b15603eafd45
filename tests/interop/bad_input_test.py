"""What programs do with input that is none: empty files, a text of one word, bytes that are no UTF-8, a line of a
gigabyte, damaged records, columns that are missing. Each ends by itself, and says which file it was and why, or trains in little
memory. (word2vec_test.py and tfrecord_test.py have more of it for their commands.)"""
# needs: tensorflow
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(os.path.dirname(HERE)), "bench")]
import tap
import input_wait
import shoal

BUILD = os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build"))
SMALL = ["--layers=1", "--heads=1", "--width=8", "--context=8", "--batch=2", "--steps=3", "--log_steps=1"]


def example(name, *flags):
    p = subprocess.run([os.path.join(BUILD, "examples", name), *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       timeout=280, check=False)
    return p.returncode, p.stdout.decode(errors="replace")


def put(folder, name, data):
    with open(f"{folder}/{name}", "wb") as f:
        f.write(data)
    return f"{folder}/{name}"


def test_texts():
    with tempfile.TemporaryDirectory() as folder:
        code, text = example("gpt", f"--data={put(folder, 'empty', b'')}", *SMALL)
        assert code == 1 and "empty" in text and f"{folder}/empty" in text, (code, text)
        code, text = example("gpt", f"--data={put(folder, 'one', b'word')}", *SMALL)
        assert code == 1 and "fewer tokens than one example" in text, (code, text)
        for name, data in (("same", b"word " * 40), ("bytes", bytes(range(128, 256)) * 3 + b"\xff\xfe\xc0\x00")):
            code, text = example("gpt", f"--data={put(folder, name, data)}", *SMALL, "--sample=9")
            assert code == 0 and "step 3/3" in text, (name, code, text)


def test_a_line_of_a_gigabyte():
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/line", "wb") as f:
            f.truncate(1 << 30)  # a hole
        code, text = example("gpt", f"--data={folder}/line", *SMALL, "--context=256")
        memory = int(re.search(r"memory (\d+) MB", text).group(1))
        assert code == 0 and memory < 300, (code, text)  # of which 33 MB say which example comes when


def test_records():
    with tempfile.TemporaryDirectory() as folder:
        def run(name):
            return example("mnist_records", f"--records={folder}/{name}", "--steps=3", "--batch=4", "--log_steps=1")
        put(folder, "empty", b"")
        code, text = run("empty")  # an input that ends at once, also when it is repeated for ever
        assert code == 0 and "loss" not in text, (code, text)
        input_wait.write_records(f"{folder}/good", 40)
        code, text = run("good")
        assert code == 0 and "step 3/3  loss" in text, (code, text)
        with open(f"{folder}/good", "rb") as f:
            data = bytearray(f.read())
        size = len(data) // 40
        data[size * 7 + 100] ^= 1  # in the eighth record
        put(folder, "damaged", data)
        code, text = run("damaged")
        assert code == 1 and re.search(rf"damaged.*{size * 7}|{size * 7}.*damaged", text, re.S), (size * 7, code, text)
        put(folder, "cut", data[:size * 5 + 30])
        code, text = run("cut")
        assert code == 1 and "cut" in text and re.search(r"truncated|ends", text), (code, text)
        put(folder, "noise", os.urandom(3000))
        code, text = run("noise")
        assert code == 1 and "noise" in text, (code, text)


def test_pipes_and_devices():
    """What has no size is not taken for empty, nor waited for; and nothing is written over what is read."""
    tool = os.path.join(BUILD, "shoal")
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(f"{folder}/pipe.csv")
        for path in (f"{folder}/pipe.csv", "/dev/urandom"):
            p = subprocess.run([tool, "tfrecord", "count", path], capture_output=True, text=True, timeout=60, check=False)
            assert p.returncode == 2 and f"{path} is not an ordinary file" in p.stderr, p
        code, text = example("feed", f"--data_dir={folder}")
        assert code == 1 and "pipe.csv is not an ordinary file" in text, (code, text)
        lines, words = put(folder, "lines", b"one two\n" * 9), put(folder, "words", b"one 9\ntwo 9\n")
        for output, why in ((lines, "is a file that is read"), (words, "is a file that is read"), (folder, "is a folder"),
                            (f"{folder}/no/vectors", "its folder is not there")):
            code, text = example("word2vec", f"--text={lines}", f"--vocab={words}", f"--output={output}")
            assert code == 2 and why in text, (code, text)
        with open(lines, "rb") as f:
            assert f.read() == b"one two\n" * 9


def test_columns():
    with tempfile.TemporaryDirectory() as folder:
        put(folder, "a.csv", b"")
        code, text = example("feed", f"--data_dir={folder}")
        assert code == 0 and "no line was left" in text, (code, text)
        put(folder, "b.csv", b"1,2,3\n4,5\n")
        code, text = example("feed", f"--data_dir={folder}")
        assert code == 1 and "b.csv, line 2: Expect 3 fields but have 2" in text, (code, text)
        put(folder, "b.csv", b"1,2,3\n4,\xff\xfe,6\n")
        code, text = example("feed", f"--data_dir={folder}")
        assert code == 1 and re.search("b.csv, line 2: .*not a valid float", text), (code, text)
        put(folder, "b.csv", b'1,2,"3"\r\n"4",5,6\n7\n')
        code, text = example("feed", f"--data_dir={folder}")
        assert code == 1 and "b.csv, line 3: Expect 3 fields but have 1" in text, (code, text)


def test_more_epochs_of_a_run():
    """It goes on with more of them; with other files, or fewer, it says so and changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        flags = [f"--data_dir={folder}", f"--checkpoint_dir={folder}/run"]
        put(folder, "a.csv", b"1,2,3\n" * 64)
        for epochs, steps in ((1, 2), (3, 4)):
            code, text = example("feed", *flags, f"--epochs={epochs}")
            assert code == 0 and f"{steps} batches" in text, (code, text)
        code, text = example("feed", *flags, "--epochs=2")
        assert code == 1 and "has 3 items already" in text, (code, text)
        put(folder, "0.csv", b"1,2,3\n")
        code, text = example("feed", *flags, "--epochs=4")
        assert code == 1 and "begun with other files" in text, (code, text)
        os.remove(f"{folder}/0.csv")
        code, text = example("feed", *flags, "--epochs=4")
        assert code == 0 and "2 batches" in text, (code, text)


def test_flags_left_out():
    code, text = example("wide_deep")
    assert code == 2 and text.startswith("wide_deep: --model_dir=DIR is missing"), (code, text)


if __name__ == "__main__":
    tap.main(globals())
