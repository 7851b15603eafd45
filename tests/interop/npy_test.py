"""Strings in NumPy's files (src/data/npy_objects.c), through a model that gives back what it gets: arrays of objects as
np.save and saved_model_cli write them, of every protocol; what Python would make of others is refused by name."""
# needs: tensorflow
import contextlib
import glob
import io
import os
import pickle
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import numpy as np
import tensorflow as tf

import shoal
import tap

SHOAL = os.path.join(os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build")), "shoal")
ODD = [b"a\0", b"", b"b", b"\0\0", b"x" * 300, b"\xff\xfe", b"b", b"y" * 70000]


def in_model(test):
    def body():
        v1 = tf.compat.v1
        with tempfile.TemporaryDirectory() as folder:
            with v1.Graph().as_default(), v1.Session() as s:
                x = v1.placeholder(tf.string, None)
                v1.saved_model.simple_save(s, os.path.join(folder, "same"), {"x": x}, {"y": tf.identity(x)})
            test(folder)
    return body


def run(folder, file, refused=False):
    p = subprocess.run([SHOAL, "saved_model", "run", f"--dir={folder}/same", f"--inputs=x={file}", "--overwrite",
                        f"--outdir={folder}/out"], capture_output=True, text=True, check=False)
    assert p.returncode in ((1, 2) if refused else (0,)), (p.returncode, p.stderr[-999:])
    return p.stderr if refused else np.load(f"{folder}/out/y.npy", allow_pickle=True)


def header(shape, fortran=False):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": fortran, "shape": shape})
    return file.getvalue()


def put(folder, data):
    with open(f"{folder}/x.npy", "wb") as f:
        f.write(data)
    return f"{folder}/x.npy"


def as_bytes(a):
    return np.array([s.encode() if isinstance(s, str) else s for s in a.ravel()] + [None], object)[:-1].reshape(a.shape)


def same(got, want):
    assert got.dtype == object and got.shape == want.shape and got.tolist() == want.tolist(), (got, want)


VALUES = [np.array(ODD, object), np.array([["\u00fc", "a"], ["a", "\U0001f41f\0"]], object), np.zeros((0, 2), object),
          np.array(["one"], object), np.array([b"w%d" % (i % 1500) for i in range(4001)], object),
          np.array(ODD, object).reshape(2, 1, 2, 2), np.asfortranarray(np.array([[b"1", "2"], [b"3", b"4"]], object))]


@in_model
def test_objects(folder):
    for value in VALUES:
        np.save(f"{folder}/x.npy", value)
        same(run(folder, f"{folder}/x.npy"), as_bytes(value))
        np.savez_compressed(f"{folder}/x.npz", value)
        same(run(folder, f"{folder}/x.npz"), as_bytes(value))
        same(run(folder, f"{folder}/out/y.npy"), as_bytes(value))  # our own
        for protocol in 3, 4, 5:
            for dumps in pickle.dumps, pickle._dumps:
                file = put(folder, header(value.shape, not value.flags.c_contiguous) + dumps(value, protocol))
                same(run(folder, file), as_bytes(value))


@in_model
def test_one_string(folder):
    """Alone it is of fixed size, as np.save has it, unless that loses a zero."""
    for value in b"", b"one", b"a\0b", b"x" * 999:
        got = run(folder, put(folder, header(()) + pickle.dumps(np.array(value, object), 3)))
        assert got.dtype.kind == "S" and got.shape == () and got[()] == value, got
    for value in b"a\0", b"\0":
        got = run(folder, put(folder, header(()) + pickle.dumps(np.array(value, object), 3)))
        assert got.dtype == object and got.shape == () and got[()] == value, got


@in_model
def test_as_theirs(folder):
    """What saved_model_cli writes of the same, and reads of ours."""
    from tensorflow.python.tools import saved_model_cli
    value = np.array(ODD, object).reshape(2, 4)
    np.save(f"{folder}/x.npy", value)
    got = run(folder, f"{folder}/x.npy")
    inputs = saved_model_cli.load_inputs_from_input_arg_string(f"x={folder}/out/y.npy", "", "")
    with contextlib.redirect_stdout(io.StringIO()):
        saved_model_cli.run_saved_model_with_feed_dict(f"{folder}/same", "serve", "serving_default", inputs,
                                                       f"{folder}/theirs", True)
    theirs = np.load(f"{folder}/theirs/y.npy", allow_pickle=True)
    same(got, theirs)
    assert theirs.dtype == got.dtype


class Told:
    """Python would run this."""

    def __reduce__(self):
        return os.system, ("touch told",)


@in_model
def test_refused(folder):
    for value in ([None], [1], ["a", 1.5], [b"a", [b"b"]], [{}], [Told()], [np.str_("a")], [bytearray(b"a")]):
        array = np.empty(len(value), object)
        array[:] = value
        np.save(f"{folder}/x.npy", array)
        assert "Python's objects other than bytes and str" in run(folder, f"{folder}/x.npy", True), value
    assert not glob.glob("told")
    for data in (pickle.dumps(Told()), pickle.dumps([b"a"]), pickle.dumps(np.arange(3)),
                 pickle.dumps(np.array(["a"], object), 2), b"", b"\x80", b"\x80\x03.", b"abc"):
        run(folder, put(folder, header((1,)) + data), True)
    lone = np.array(["\ud800"], object)
    assert "element 0 is no UTF-8" in run(folder, put(folder, header((1,)) + pickle.dumps(lone, 3)), True)


@in_model
def test_hostile(folder):
    """Cut short anywhere, of another shape, more or fewer than said, and a few bytes that ask for many."""
    words = np.array([b"one", "two", b"one"], object)
    whole = pickle.dumps(words, 3)
    for n in range(len(whole)):
        run(folder, put(folder, header((3,)) + whole[:n]), True)
    for shape in (2,), (4,), (1, 3), (), (1 << 40,), (1 << 62, 4):
        run(folder, put(folder, header(shape) + whole), True)
    long = bytes(1 << 20)
    many = np.array([long] * 100000, object)
    assert "more than once" in run(folder, put(folder, header(many.shape) + pickle.dumps(many, 3)), True)


if __name__ == "__main__":
    tap.main(globals())
