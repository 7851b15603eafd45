"""Examples, sequence examples, CSV, JSON, serialized tensors."""
from cases import *

S = lambda *words: np.array([w if isinstance(w, bytes) else w.encode() for w in words], object)
ONE = lambda w: np.array(w if isinstance(w, bytes) else w.encode(), object)


def value(v):
    if isinstance(v[0] if v else None, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=v))
    if isinstance(v[0] if v else None, float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=v))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=v)) if v else tf.train.Feature()


def features(**kw):
    return tf.train.Features(feature={k: value(v) for k, v in kw.items()})


def example(**kw):
    return tf.train.Example(features=features(**kw)).SerializeToString()


EXAMPLES = S(example(f=[1.5, 2.5], i=[-3], s=[b"a", b"bc"], v=[1, 2, 3, 4], r=[7]),
             example(f=[0.5, -1.0], i=[2**60], s=[], v=[], other=[b"x"]),
             example(f=[3.0, 4.0], i=[0], s=[b""], v=[9, 8], r=[1, 2, 3]))
DENSE = {"f": (tf.float32, [2], []), "i": (tf.int64, [], []), "s1": (tf.string, [], b"dflt"), "v": (tf.int64, [None, 2], -1)}


def parse(serialized, sparse=(("s", tf.string), ("r", tf.int64)), dense=("f", "i", "s1", "v"), ragged=(("r2", tf.int64, tf.int32),), names=()):
    dense_defs = [DENSE[k] for k in dense]
    out = tf.raw_ops.ParseExampleV2(
        serialized=serialized, names=list(names), sparse_keys=[k for k, _ in sparse], dense_keys=list(dense),
        ragged_keys=[k for k, _, _ in ragged],
        dense_defaults=[tf.constant(d if d != [] else np.zeros([0], t.as_numpy_dtype), t) for t, _, d in dense_defs],
        num_sparse=len(sparse), sparse_types=[t for _, t in sparse], ragged_value_types=[t for _, t, _ in ragged],
        ragged_split_types=[t for _, _, t in ragged], dense_shapes=[s for _, s, _ in dense_defs])
    return [t for part in out for t in part]


graph("ParseExampleV2", lambda: parse(feed(EXAMPLES)))
graph("ParseExampleV2 scalar", lambda: parse(feed(EXAMPLES[0])))
graph("ParseExampleV2 ragged", lambda: parse(feed(EXAMPLES), sparse=(), dense=(), ragged=(
    ("s", tf.string, tf.int64), ("v", tf.int64, tf.int32), ("f", tf.float32, tf.int64))))
graph("ParseExampleV2 none", lambda: parse(feed(S())))
graph("ParseExampleV2 many", lambda: parse(feed(np.tile(EXAMPLES, 300))))
graph("ParseExampleV2 last of equal keys", lambda: parse(feed(S(example(f=[1.0, 1.0], i=[5], r=[1]) + example(f=[2.0, 3.0], r=[4, 5])))))
graph("ParseExampleV2 unpacked", lambda: parse(feed(S(b"\n\x0d\n\x0b\n\x01i\x12\x06\x1a\x04\x08\x05\x08\x06")), dense=(), sparse=(("i", tf.int64),)))
graph("ParseExample", lambda: [t for part in tf.raw_ops.ParseExample(
    serialized=feed(EXAMPLES), names=["a", "b", "c"], sparse_keys=["s", "nope"], dense_keys=["f", "i"],
    dense_defaults=[tf.zeros([0]), tf.constant(5, tf.int64)], sparse_types=[tf.string, tf.float32],
    dense_shapes=[[2], []]) for t in part])
graph("ParseSingleExample", lambda: [t for part in tf.raw_ops.ParseSingleExample(
    serialized=feed(EXAMPLES[2]), num_sparse=2, sparse_keys=["s", "nope"], dense_keys=["f", "i", "v"],
    dense_defaults=[tf.zeros([0]), tf.constant(5, tf.int64), tf.constant(-1, tf.int64)],
    sparse_types=[tf.string, tf.float32], dense_shapes=[[2], [], [None, 2]]) for t in part])
for name, bad, text in (("missing", example(i=[1]), "is required but could not be found"),
                        ("wrong type", example(f=[1, 2], i=[1]), "Data types don't match"),
                        ("wrong count", example(f=[1.0], i=[1]), "values != expected"),
                        ("stride", example(f=[1.0, 2.0], i=[1], v=[1, 2, 3]), "is not a multiple of stride length"),
                        ("wrong sparse type", example(f=[1.0, 2.0], i=[1], s=[1.0]), "Data types don't match"),
                        ("garbage", b"\x0a\x7f", "Could not parse example input")):
    graph(f"ParseExampleV2 {name}", lambda dtype, b=bad: parse(feed(S(EXAMPLES[0], b)), names=("n0", "n1")),
          error="INVALID_ARGUMENT", message=text)
    graph(f"ParseExampleV2 scalar {name}", lambda dtype, b=bad: parse(feed(ONE(b))), error="INVALID_ARGUMENT")


# ---- sequence examples ----
def sequence(context, **lists):
    return tf.train.SequenceExample(context=features(**context), feature_lists=tf.train.FeatureLists(
        feature_list={k: tf.train.FeatureList(feature=[value(v) for v in vs]) for k, vs in lists.items()})).SerializeToString()


SEQUENCES = S(sequence({"a": [1], "s": [b"x", b"y"]}, d=[[1.0, 2.0], [3.0, 4.0]], p=[[1], [], [2, 3]], e=[[b"q"]]),
              sequence({"a": [2]}, d=[[5.0, 6.0]], p=[], e=[]),
              sequence({"a": [3], "s": [b"z"]}, d=[], p=[[9, 9, 9, 9]]))
TYPES = dict(context_sparse_types=[tf.string], Tcontext_dense=[tf.int64], feature_list_dense_types=[tf.float32, tf.string],
             context_dense_shapes=[[]], feature_list_sparse_types=[tf.int64], feature_list_dense_shapes=[[2], []])


def sequences(serialized, empty=("e",)):
    attrs = {k: v for k, v in TYPES.items() if k != "Tcontext_dense"}
    out = tf.raw_ops.ParseSequenceExample(
        serialized=serialized, debug_name=[], context_dense_defaults=[tf.zeros([0], tf.int64)],
        feature_list_dense_missing_assumed_empty=list(empty), context_sparse_keys=["s"], context_dense_keys=["a"],
        feature_list_sparse_keys=["p"], feature_list_dense_keys=["d", "e"], Ncontext_sparse=1, Ncontext_dense=1,
        Nfeature_list_sparse=1, Nfeature_list_dense=2, **attrs)
    return [t for part in out for t in part]


def sequences_v2(serialized, empty=(False, True)):
    attrs = {k: v for k, v in TYPES.items() if k != "Tcontext_dense"}
    out = tf.raw_ops.ParseSequenceExampleV2(
        serialized=serialized, debug_name=[], context_sparse_keys=["s"], context_dense_keys=["a"], context_ragged_keys=["s2"],
        feature_list_sparse_keys=["p"], feature_list_dense_keys=["d", "e"], feature_list_ragged_keys=["p2"],
        feature_list_dense_missing_assumed_empty=list(empty), context_dense_defaults=[tf.zeros([0], tf.int64)],
        Ncontext_sparse=1, Nfeature_list_sparse=1, Nfeature_list_dense=2, context_ragged_value_types=[tf.string],
        context_ragged_split_types=[tf.int64], feature_list_ragged_value_types=[tf.int64],
        feature_list_ragged_split_types=[tf.int32], **attrs)
    return [t for part in out for t in part]


def single(serialized, empty=("e",)):
    attrs = {k: v for k, v in TYPES.items() if k != "Tcontext_dense"}
    out = tf.raw_ops.ParseSingleSequenceExample(
        serialized=serialized, feature_list_dense_missing_assumed_empty=list(empty), context_sparse_keys=["s"],
        context_dense_keys=["a"], feature_list_sparse_keys=["p"], feature_list_dense_keys=["d", "e"],
        context_dense_defaults=[tf.zeros([0], tf.int64)], debug_name="n", **attrs)
    return [t for part in out for t in part]


graph("ParseSequenceExample", lambda: sequences(feed(SEQUENCES)))
graph("ParseSequenceExample required", lambda: sequences(feed(SEQUENCES), ()), error="INVALID_ARGUMENT")
graph("ParseSequenceExampleV2", lambda: sequences_v2(feed(SEQUENCES)))
for i in range(3):
    graph(f"ParseSingleSequenceExample {i}", lambda dtype, i=i: single(feed(SEQUENCES[i])))
graph("ParseSingleSequenceExample required", lambda: single(feed(SEQUENCES[2]), ()), error="INVALID_ARGUMENT",
      message="is required but could not be found.  Did you mean to include it")
graph("ParseSingleSequenceExample context", lambda: single(feed(ONE(sequence({}, d=[])))), error="INVALID_ARGUMENT")
graph("ParseSingleSequenceExample garbage", lambda: single(feed(ONE(b"\x0a\x7f"))), error="INVALID_ARGUMENT")


# ---- CSV ----
def csv(records, defaults, **attrs):
    return tf.raw_ops.DecodeCSV(records=feed(records), record_defaults=[tf.constant(d, t) for d, t in defaults], **attrs)


FIVE = [([0.5], tf.float32), ([1], tf.int32), ([], tf.int64), ([b"x"], tf.string), ([2.5], tf.float64)]
graph("DecodeCSV", lambda: csv(S("1.5,2,3,abc,4", ",,7,,", '" 2 ",3,4,"a,b ""q""",5', "1e3, 2 ,3,,"), FIVE))
graph("DecodeCSV scalar", lambda: csv(ONE("1.5,2,3,abc,4"), FIVE))
graph("DecodeCSV delim", lambda: csv(S("1;2", "3;4"), [([0], tf.int32)] * 2, field_delim=";"))
graph("DecodeCSV no quotes", lambda: csv(S('"a",b"'), [([b""], tf.string)] * 2, use_quote_delim=False))
graph("DecodeCSV select", lambda: csv(S("a,b,c,d", "e,f,g,h"), [([b""], tf.string)] * 2, select_cols=[1, 3]))
graph("DecodeCSV na", lambda: csv(S("NA,2", "1,NA"), [([7], tf.int32)] * 2, na_value="NA"))
for name, record in (("few", "1,2,3"), ("many", "1,2,3,4,5,6"), ("number", "x,2,3,4,5"), ("required", "1,2,,4,5"), ("int", "1,2.5,3,4,5"),
                     ("quote", '1,2,3,a"b,5'), ("open quote", '1,2,3,"ab,5'), ("bad quote", '1,2,3,"a"b",5'), ("empty", "")):
    graph(f"DecodeCSV {name}", lambda dtype, r=record: csv(S(r), FIVE), error="INVALID_ARGUMENT")

# ---- JSON, tensors ----
graph("DecodeJSONExample", lambda: parse(tf.raw_ops.DecodeJSONExample(json_examples=feed(S(
    '{"features":{"feature":{"f":{"floatList":{"value":[1,2.5]}},"i":{"int64List":{"value":["5"]}},'
    '"s":{"bytesList":{"value":["aGk="]}}}}}')))))
op("DecodeJSONExample", {"json_examples": S("{")}, error="INVALID_ARGUMENT", message="Error while parsing JSON")
for shape in ((), (3,), (2, 0), (2, 3)):
    op("SerializeTensor", {"tensor": R(*shape)}, dtypes=ALL)
    graph(f"ParseTensor{shape}", lambda dtype, s=shape: [tf.raw_ops.ParseTensor(
        serialized=tf.raw_ops.SerializeTensor(tensor=feed(R(*s, dtype=dtype))), out_type=dtype)], dtypes=ALL)
op("ParseTensor", {"serialized": ONE(b"\xff")}, {"out_type": tf.float32}, error="INVALID_ARGUMENT")
op("ParseTensor", {"serialized": ONE(tf.make_tensor_proto([1, 2]).SerializeToString())}, {"out_type": tf.float32},
   error="INVALID_ARGUMENT", message=r"Type mismatch between parsed tensor \(int32\) and dtype \(float\)")

for names, serialized, error in (("a", EXAMPLES[0], None), (["a"], EXAMPLES[0], "INVALID_ARGUMENT"), ("a", S(EXAMPLES[0]), "INVALID_ARGUMENT")):
    graph(f"ParseExampleV2 names {names}", lambda dtype, n=names, x=serialized: [tf.raw_ops.ParseExampleV2(
        serialized=feed(x), names=n, sparse_keys=[], dense_keys=["zz"], ragged_keys=[], dense_defaults=[[1.0]], num_sparse=0, sparse_types=[],
        ragged_value_types=[], ragged_split_types=[], dense_shapes=[[1]])], error=error, message="same shape as serialized" if error else None)
