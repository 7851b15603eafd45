"""Files travel both ways: checkpoints of both formats, event files and records, between TensorFlow and Shoal."""
import glob
import os
import sys
import tempfile
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shoal
from cases import np, tf

RNG = np.random.default_rng(1)
VALUES = {
    "f": RNG.normal(size=(3, 4)).astype(np.float32), "d": RNG.normal(size=2), "i": np.int32(7), "l": np.arange(5),
    "s": np.array([b"ab", b"", b"x" * 300, b"\0"], object), "b": np.array([True, False]), "e": np.zeros((0, 3), np.float32),
    "h": RNG.normal(size=3).astype(np.float16), "c": np.array([1 + 2j], np.complex64), "u16": np.array([70], np.uint16),
    "big": RNG.normal(size=(300, 1000)).astype(np.float32), "many/" + "x" * 200: np.float32(3),
}
PART = RNG.normal(size=(11, 4)).astype(np.float32)
PARTS = (("11 4 0,4:-", PART[:4]), ("11 4 4,4:0,4", PART[4:8]), ("11 4 8,3:0,4", PART[8:]))


def run_tf(g, fetches, targets):
    with tf.Session(graph=g) as s:
        return s.run([fetches, targets])[0]


def run_shoal(g, fetches, targets):
    with shoal.Session(shoal.Graph(g.as_graph_def().SerializeToString())) as s:
        return s.run([t.name for t in fetches], {}, [t.name for t in targets])


RUN = {"tensorflow": run_tf, "shoal": run_shoal}


def run(who, build):
    g = tf.Graph()
    with g.as_default():
        fetches, targets = build()
    return RUN[who](g, fetches, targets)


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype.kind == b.dtype.kind or "O" in (a.dtype.kind, b.dtype.kind), (a.dtype, b.dtype)
    assert a.shape == b.shape, (a.shape, b.shape)
    assert (a == b).all(), (a, b)


def bundle(writer, reader, d):
    names = list(VALUES) + ["p"] * 3
    specs = [""] * len(VALUES) + [p[0] for p in PARTS]
    run(writer, lambda: ([], [tf.raw_ops.SaveV2(
        prefix=f"{d}/ck", tensor_names=names, shape_and_slices=specs,
        tensors=[tf.constant(v) for v in list(VALUES.values()) + [p[1] for p in PARTS]])]))
    restored = run(reader, lambda: (list(tf.raw_ops.RestoreV2(
        prefix=f"{d}/ck", tensor_names=list(VALUES) + ["p", "p", "f"],
        shape_and_slices=[""] * len(VALUES) + ["", "11 4 3,6:1,2", "3 4 1,2:-"],
        dtypes=[tf.constant(v).dtype for v in VALUES.values()] + [tf.float32] * 3)), []))
    for got, want in zip(restored, list(VALUES.values()) + [PART, PART[3:9, 1:3], VALUES["f"][1:]]):
        same(got, want)


def bundle_bytes(writer, reader, d):
    for who in (writer, reader):
        run(who, lambda: ([], [tf.raw_ops.SaveV2(
            prefix=f"{d}/{who}", tensor_names=list(VALUES), shape_and_slices=[""] * len(VALUES),
            tensors=[tf.constant(v) for v in VALUES.values()])]))
    for suffix in (".index", ".data-00000-of-00001"):
        assert open(f"{d}/{writer}{suffix}", "rb").read() == open(f"{d}/{reader}{suffix}", "rb").read(), suffix


def merge(writer, reader, d):
    parts = [f"{d}/m_temp/part-{i:05d}-of-00003" for i in range(3)]
    for i, p in enumerate(parts):
        run((writer, reader, writer)[i], lambda: ([], [tf.raw_ops.SaveV2(
            prefix=p, tensor_names=[f"x{i}", "p"], shape_and_slices=["", PARTS[i][0]],
            tensors=[tf.constant(float(i)), tf.constant(PARTS[i][1])])]))
    run(writer, lambda: ([], [tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=f"{d}/m")]))
    assert sorted(os.listdir(d)) == ["m.data-0000%d-of-00003" % i for i in range(3)] + ["m.index"], os.listdir(d)
    p, x = run(reader, lambda: (list(tf.raw_ops.RestoreV2(
        prefix=f"{d}/m", tensor_names=["p", "x2"], shape_and_slices=["", ""], dtypes=[tf.float32] * 2)), []))
    same(p, PART)
    same(x, np.float32(2))


def first_format(writer, reader, d):
    names = list(VALUES) + ["p"] * 3
    run(writer, lambda: ([], [tf.raw_ops.SaveSlices(
        filename=f"{d}/v1", tensor_names=names, shapes_and_slices=[""] * len(VALUES) + [p[0] for p in PARTS],
        data=[tf.constant(v) for v in list(VALUES.values()) + [p[1] for p in PARTS]])]))
    restored = run(reader, lambda: (
        [tf.raw_ops.Restore(file_pattern=f"{d}/v1", tensor_name=k, dt=tf.constant(v).dtype) for k, v in VALUES.items()] +
        [tf.raw_ops.RestoreSlice(file_pattern=f"{d}/v?", tensor_name="p", shape_and_slice="11 4 3,6:1,2", dt=tf.float32)] +
        tf.raw_ops.RestoreV2(prefix=f"{d}/v1", tensor_names=["p"], shape_and_slices=[""], dtypes=[tf.float32]), []))
    for got, want in zip(restored, list(VALUES.values()) + [PART[3:9, 1:3], PART]):
        same(got, want)


def errors(who, d):
    def fails(code, text, build):
        try:
            run(who, build)
        except (tf.errors.OpError, shoal.Error) as e:
            got = e.error_code if isinstance(e, tf.errors.OpError) else e.code
            assert text in str(e) and getattr(tf.errors, code) == got, f"{code} expected, {got}: {e}"
            return
        raise AssertionError(f"no error, but {code} expected")

    run("tensorflow", lambda: ([], [tf.raw_ops.SaveV2(prefix=f"{d}/ck", tensor_names=["x"], shape_and_slices=[""],
                                                      tensors=[tf.constant([1.0, 2, 3])])]))
    restore = lambda **k: lambda: ([tf.raw_ops.RestoreV2(**{**dict(prefix=f"{d}/ck", tensor_names=["x"], shape_and_slices=[""],
                                                                   dtypes=[tf.float32]), **k})[0]], [])
    fails("NOT_FOUND", "Failed to find any matching files for", restore(prefix=f"{d}/none"))
    fails("NOT_FOUND", "Key y not found in checkpoint", restore(tensor_names=["y"]))
    fails("INVALID_ARGUMENT", "expected dtype", restore(dtypes=[tf.int32]))
    fails("INVALID_ARGUMENT", "does not match the shape stored in checkpoint", restore(shape_and_slices=["4 0,2"]))
    data = f"{d}/ck.data-00000-of-00001"
    content = bytearray(open(data, "rb").read())
    content[5] ^= 1
    open(data, "wb").write(content)
    fails("DATA_LOSS", "Checksum does not match", restore())
    open(data, "wb").write(content[:7])
    fails("OUT_OF_RANGE", "", restore())
    index = open(f"{d}/ck.index", "rb").read()
    open(f"{d}/ck.index", "wb").write(index[:-1])
    fails("DATA_LOSS", "", restore())


def events(d):
    def build():
        w = tf.raw_ops.SummaryWriter(shared_name="w")
        open_ = tf.raw_ops.CreateSummaryFileWriter(writer=w, logdir=f"{d}/log/deep", max_queue=10, flush_millis=100000,
                                                   filename_suffix=".v2")
        with tf.control_dependencies([open_]):
            step = tf.constant(5, tf.int64)
            writes = [
                tf.raw_ops.WriteScalarSummary(writer=w, step=step, tag="a", value=tf.constant(1.5)),
                tf.raw_ops.WriteHistogramSummary(writer=w, step=step, tag="h", values=tf.constant([1.0, 2])),
                tf.raw_ops.WriteImageSummary(writer=w, step=step, tag="i", tensor=tf.ones([1, 2, 2, 3]),
                                             bad_color=tf.constant([255, 0, 0, 255], tf.uint8)),
                tf.raw_ops.WriteSummary(writer=w, step=step, tag="t", tensor=tf.constant([1, 2]),
                                        summary_metadata=b"\n\x06\n\x04name"),
                tf.raw_ops.WriteRawProtoSummary(writer=w, step=step, tensor=tf.summary.scalar("raw", 2.5)),
                tf.raw_ops.WriteGraphSummary(writer=w, step=step, tensor=tf.Graph().as_graph_def().SerializeToString()),
            ]
        with tf.control_dependencies(writes):
            return [], [tf.raw_ops.CloseSummaryWriter(writer=w)]

    run("shoal", build)
    files = glob.glob(f"{d}/log/deep/events.out.tfevents.*.v2")
    assert len(files) == 1, os.listdir(d)
    seen = list(tf.train.summary_iterator(files[0]))
    assert seen[0].file_version == "brain.Event:2", seen[0]
    values = {v.tag: v for e in seen for v in e.summary.value}
    assert set(values) == {"a", "h", "i/image/0", "t", "raw"}, values
    assert values["a"].simple_value == 1.5 and values["raw"].simple_value == 2.5
    assert values["h"].histo.num == 2 and values["t"].metadata.plugin_data.plugin_name == "name"
    assert all(e.step == 5 for e in seen[1:]) and sum(e.HasField("graph_def") for e in seen) == 1


def main():
    failed = 0
    tests = [(f"{t.__name__}: {w} writes, {r} reads", lambda d, t=t, w=w, r=r: t(w, r, d))
             for t in (bundle, merge, first_format) for w, r in (("shoal", "tensorflow"), ("tensorflow", "shoal"), ("shoal", "shoal"))]
    tests.append(("bundle: the same bytes", lambda d: bundle_bytes("shoal", "tensorflow", d)))
    tests += [(f"errors: {w}", lambda d, w=w: errors(w, d)) for w in ("tensorflow", "shoal")]
    tests.append(("events: shoal writes, tensorflow reads", events))
    for name, test in tests:
        with tempfile.TemporaryDirectory() as d:
            try:
                test(d)
                print(f"ok - files: {name}")
            except Exception:
                failed += 1
                print(f"not ok - files: {name}\n" + "".join(f"# {x}\n" for x in traceback.format_exc().splitlines()))
    sys.exit(failed > 0)


main()
