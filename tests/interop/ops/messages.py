"""DecodeProtoV2 and EncodeProto: types from a FileDescriptorSet, and those that are linked in."""
import tempfile

from cases import *
from google.protobuf import descriptor_pb2 as D

T = D.FieldDescriptorProto
KINDS = {"double": tf.float64, "float": tf.float32, "int64": tf.int64, "uint64": tf.uint64, "int32": tf.int32, "fixed64": tf.uint64,
         "fixed32": tf.uint32, "bool": tf.bool, "string": tf.string, "bytes": tf.string, "uint32": tf.uint32, "sfixed32": tf.int32,
         "sfixed64": tf.int64, "sint32": tf.int32, "sint64": tf.int64}
WIDE = {"float": tf.float64, "int32": tf.int64, "sfixed32": tf.int64, "sint32": tf.int64, "fixed32": tf.uint64, "uint32": tf.uint64}
DEFAULTS = {"double": "-2.5", "float": "inf", "int64": "-7", "uint64": "200", "int32": "-9", "fixed64": "3", "fixed32": "4", "bool": "true",
            "string": "some\ttext", "bytes": "a\\001\\x41\\n", "uint32": "300", "sfixed32": "-1", "sfixed64": "-2", "sint32": "-3", "sint64": "-4"}
VALUES = {"double": [1.5, -2.0], "float": [0.5, 3.0], "int64": [-5, 2**40], "uint64": [5, 2**63], "int32": [-6, 7], "fixed64": [8, 2**60],
          "fixed32": [9, 2**32 - 1], "bool": [True, False], "string": [b"one", b""], "bytes": [b"\x00\xff", b"two"], "uint32": [3, 2**32 - 1],
          "sfixed32": [-8, 8], "sfixed64": [-2**40, 1], "sint32": [-9, 2**31 - 1], "sint64": [-2**63, 4]}


def type_of(kind):
    return getattr(T, "TYPE_" + kind.upper())


def make_set():
    """p.M: for each kind an optional field KIND, one with a default KIND_d, repeated ones KIND_r and (packed) KIND_p; messages, a group, enums,
    a oneof, a required field in Strict; the same in proto3 as q.M."""
    s = D.FileDescriptorSet()
    for package, syntax in (("p", "proto2"), ("q", "proto3")):
        f = s.file.add(name=package + ".proto", package=package, syntax=syntax)
        m = f.message_type.add(name="M")
        number = 1

        def add(name, kind, label=T.LABEL_OPTIONAL, **more):
            nonlocal number
            x = m.field.add(name=name, number=number, type=type_of(kind), label=label, **more)
            number += 1
            return x
        for kind in KINDS:
            add(kind, kind)
            if package == "p":
                add(kind + "_d", kind, default_value=DEFAULTS[kind])
            add(kind + "_r", kind, T.LABEL_REPEATED)
            if KINDS[kind] != tf.string:
                add(kind + "_p", kind, T.LABEL_REPEATED).options.packed = True
        e = m.enum_type.add(name="E")
        for name, v in (("ZERO", 0), ("A", 3), ("B", -1)) if package == "q" else (("A", 3), ("B", -1)):
            e.value.add(name=name, number=v)
        add("e", "enum", type_name=f".{package}.M.E")
        add("es", "enum", T.LABEL_REPEATED, type_name="E")
        add("m", "message", type_name=f".{package}.M")
        add("ms", "message", T.LABEL_REPEATED, type_name="M")
        m.oneof_decl.add(name="o")
        add("oa", "int32", oneof_index=0)
        add("ob", "string", oneof_index=0)
        if package == "p":
            add("e_d", "enum", type_name=".p.M.E", default_value="B")
            g = m.nested_type.add(name="G")
            g.field.add(name="x", number=1, type=T.TYPE_INT32, label=T.LABEL_OPTIONAL)
            add("g", "group", type_name=".p.M.G")
            m.extension_range.add(start=1000, end=2000)
            f.extension.add(name="ext", number=1000, type=T.TYPE_INT32, label=T.LABEL_OPTIONAL, extendee=".p.M")
            strict = f.message_type.add(name="Strict")
            strict.field.add(name="x", number=2, type=T.TYPE_INT32, label=T.LABEL_REQUIRED)
            strict.field.add(name="y", number=1, type=T.TYPE_INT32, label=T.LABEL_OPTIONAL)
    return s


SET = make_set()
SOURCE = b"bytes://" + SET.SerializeToString()
BAD, LOST = dict(error="INVALID_ARGUMENT"), dict(error="DATA_LOSS")


def messages(values):
    a = np.empty(np.shape(np.array(values, object)), object)
    a[...] = np.array(values, object)
    return a


def decode(name, values, fields, types, kind="p.M", source=SOURCE, format="binary", sanitize=False, **options):
    graph(f"DecodeProtoV2 {name}", lambda: (lambda r: [r.sizes, *r.values])(tf.raw_ops.DecodeProtoV2(
        bytes=feed(messages(values)), message_type=kind, field_names=fields, output_types=types, descriptor_source=source,
        message_format=format, sanitize=sanitize)), **options)


def encode(name, sizes, values, fields, kind="p.M", source=SOURCE, **options):
    graph(f"EncodeProto {name}", lambda: [tf.raw_ops.EncodeProto(sizes=feed(np.array(sizes, np.int32)), values=[feed(v) for v in values],
                                                                 field_names=fields, message_type=kind, descriptor_source=source)], **options)


def varint(v):
    out = b""
    while v > 127:
        out, v = out + bytes([v & 127 | 128]), v >> 7
    return out + bytes([v])


NUMBERS_OF = {(f.package, x.name): x.number for f in SET.file for x in f.message_type[0].field}


def tag(field, wire, package="p"):
    return varint(NUMBERS_OF[package, field] << 3 | wire)


def array(kind, shape_of_one, dtype=None):
    t = dtype or KINDS[kind]
    values = VALUES[kind]
    return messages([values] * shape_of_one) if t == tf.string else np.array([values] * shape_of_one, t.as_numpy_dtype)


def there_and_back(names, kind, t, message):
    """Decoded both as it is and sanitized."""
    def build():
        sizes = np.array([[1, 2, 2][:len(names)], [0, 1, 0][:len(names)]], np.int32)
        coded = tf.raw_ops.EncodeProto(sizes=feed(sizes), values=[feed(array(kind, 2, t)) for _ in names], field_names=names,
                                       message_type=message, descriptor_source=SOURCE)
        both = [tf.raw_ops.DecodeProtoV2(bytes=coded, message_type=message, field_names=names, output_types=[t] * len(names),
                                         descriptor_source=SOURCE, sanitize=sanitize) for sanitize in (False, True)]
        return [x for r in both for x in (r.sizes, *r.values)]
    return build


# ---- every kind, there and back ----
for package in ("p", "q"):
    for kind, dtype in KINDS.items():
        names = [kind, kind + "_r"] + ([kind + "_p"] if dtype != tf.string else [])
        for t in {dtype, WIDE.get(kind, dtype)}:
            encode(f"{package} {kind} {t.name}", [[1, 2, 2][:len(names)], [0, 1, 0][:len(names)]], [array(kind, 2, t) for _ in names], names, package + ".M")
            graph(f"EncodeProto and DecodeProtoV2 {package} {kind} {t.name}", there_and_back(names, kind, t, package + ".M"))
decode("defaults", [b""], [k + "_d" for k in KINDS] + ["e_d", "e", "m", "oa"], list(KINDS.values()) + [tf.int32, tf.int32, tf.string, tf.int32])
decode("defaults, wide", [b""], [k + "_d" for k in WIDE], list(WIDE.values()))
decode("no values of proto3", [b""], list(KINDS), list(KINDS.values()), "q.M")

# ---- shapes, orders, odd bytes ----
I, IR, IP = tag("int32", 0), tag("int32_r", 0), tag("int32_p", 2)
decode("a matrix of messages", [[I + b"\5", IR + b"\1" + IR + b"\2"], [b"", IP + b"\3\1\2\3"]], ["int32_p", "int32", "int32_r"], [tf.int32] * 3)
decode("a scalar", I + b"\5", ["int32"], [tf.int32])
decode("unknown fields, out of order", [b"\xf8\xff\x07\x05" + IR + b"\1" + I + b"\2" + I + b"\7"], ["int32", "int32_r"], [tf.int32] * 2)
decode("another wire type", [varint(NUMBERS_OF["p", "int32"] << 3 | 5) + b"abcd" + IR + b"\1"], ["int32", "int32_r"], [tf.int32] * 2)
decode("packed and not", [IR + b"\1" + tag("int32_r", 2) + b"\2\2\3" + IP + b"\1\4" + tag("int32_p", 0) + b"\5"], ["int32_r", "int32_p"], [tf.int32] * 2)
decode("negative packed as int64", [IP + b"\x0a" + b"\xff" * 9 + b"\1", I + b"\xff" * 9 + b"\1"], ["int32", "int32_p"], [tf.int64] * 2)
decode("packed, not repeated", [tag("int32_d", 2) + b"\2\5\6"], ["int32_d"], [tf.int32])
decode("packed, after a value", [tag("int32_d", 0) + b"\2" + tag("int32_d", 2) + b"\2\5\6"], ["int32_d"], [tf.int32], **LOST)
decode("an empty list behind values", [IR + b"\5" + tag("int32_r", 2) + b"\0"], ["int32_r"], [tf.int32], **LOST)
decode("a group", [tag("g", 3) + b"\x08\x05" + tag("g", 4)], ["g"], [tf.string])
decode("a group, sanitized", [tag("g", 3) + b"\x08\x05\x08\x06" + tag("g", 4)], ["g"], [tf.string], sanitize=True)
decode("an unknown group", [b"\x83\x7d\x08\x05\x84\x7d" + I + b"\1"], ["int32"], [tf.int32])
decode("an extension", [varint(1000 << 3) + b"\5"], ["p.ext"], [tf.int32])
decode("no fields", [b"\x08\x01", b""], ["int32"], [tf.int32])
for name, value in (("a tag of zero", b"\0"), ("an end of no group", tag("g", 4)), ("a cut number", I), ("a cut length", tag("string", 2) + b"\5abc"),
                    ("a group without an end", b"\x83\x7d\x08\x05"), ("a group that ends as another", b"\x83\x7d\x84\x7e"), ("a cut list", IP + b"\2\x80\x80"),
                    ("a list of odd length", tag("fixed32_p", 2) + b"\3abc"), ("a long varint", I + b"\xff" * 11), ("wire type 7", b"\x0f"),
                    ("groups too deep", b"\x83\x7d" * 200 + b"\x84\x7d" * 200)):
    for sanitize in (False, True):
        decode(f"{name} {sanitize}", [value], ["int32", "int32_p", "fixed32_p", "string"], [tf.int32, tf.int32, tf.uint32, tf.string], sanitize=sanitize, **LOST)
decode("no message", np.zeros((0,), object), ["int32"], [tf.int32], **BAD)

# ---- sanitized: written anew within messages ----
for package in ("p", "q"):
    inner = b"".join((tag("string", 2, package), b"\1s", tag("int32", 0, package), b"\1", tag("int32", 0, package), b"\0", tag("int32_r", 0, package), b"\x81\x80\0",
                      tag("int32_p", 0, package), b"\7", tag("bool", 0, package), b"\5", b"\xf8\xff\x07\x05", tag("oa", 0, package), b"\1",
                      tag("ob", 2, package), b"\2ab", tag("double_r", 1, package), b"12345678", tag("double_r", 2, package), b"\x08abcdefgh"))
    body = tag("m", 2, package) + varint(len(inner)) + inner
    decode(f"sanitized {package}", [body, body + tag("m", 2, package) + b"\0" + tag("ms", 2, package) + b"\0"], ["m", "ms"], [tf.string] * 2, package + ".M", sanitize=True)
    decode(f"merged {package}", [body + tag("m", 2, package) + varint(len(tag("int32", 0, package)) + 1) + tag("int32", 0, package) + b"\x2a"], ["m"], [tf.string],
           package + ".M", sanitize=True)
deep = b""
for _ in range(120):
    deep = tag("m", 2) + varint(len(deep)) + deep
decode("messages too deep", [deep], ["m"], [tf.string], sanitize=True, **LOST)
decode("messages too deep, as they are", [deep], ["m"], [tf.string])
empty = tag("int32_p", 2) + b"\0" + tag("int32", 0) + b"\5"
decode("an empty list, sanitized", [tag("m", 2) + varint(len(empty)) + empty], ["m"], [tf.string], sanitize=True)
decode("a value that the enum lacks, sanitized", [tag("e", 0) + b"\x63"], ["e"], [tf.int32], sanitize=True)
decode("a required field", [b"\x10\5"], ["x"], [tf.int32], "p.Strict", sanitize=True)
decode("without a required field", [b"\x08\5"], ["y"], [tf.int32], "p.Strict", sanitize=True, **LOST)
decode("without a required field, as it is", [b"\x08\5"], ["y"], [tf.int32], "p.Strict")

# ---- text ----
TEXT = b'''int32: -5 int32_r: [1, 2, 0x10] int32_r: 4 string: "a\\n" 'b' bool: true e: B es: [A, -1] # a comment
m { string: "in" int32: 1 ms <float: 1.5>; ms: {double: nan} } uint64: 18446744073709551615, float_p: -inf fixed32_p: [] sint32_p: [-1, 7] oa: 3'''
decode("text", [TEXT, b""], ["int32", "int32_r", "string", "bool", "e", "es", "m", "uint64", "float_p", "sint32_p", "oa"],
       [tf.int32, tf.int32, tf.string, tf.bool, tf.int32, tf.int32, tf.string, tf.uint64, tf.float32, tf.int32, tf.int32], format="text")
decode("text of proto3", [b'ms { int32_r: [1, 2] double_r: 1 int32: 0 string: "" string_r: "" oa: 0 } es: 77'], ["ms", "es"], [tf.string, tf.int32], "q.M", format="text")
decode("text with a group and an extension", [b"G { x: 5 } [p.ext]: 7"], ["g", "p.ext"], [tf.string, tf.int32], format="text")
for i, bad in enumerate((b"int32: 1 int32: 2", b"int32: x", b"int32 5", b"nothing: 1", b"g { x: 5 }", b"m {", b"m { int32: 1 int32: 2 }", b"int32: 3000000000",
                         b"e: C", b"e: 99", b'string: "a', b"oa: 1 ob: 'x'", b"[p.none]: 1", b"int32: 1 }", b"bool: 2")):
    decode(f"text {i}", [bad], ["int32"], [tf.int32], format="text", **LOST)
decode("text without a required field", [b"y: 1"], ["y"], [tf.int32], "p.Strict", format="text", **LOST)

# ---- what is asked for ----
decode("an unknown field", [b""], ["none"], [tf.int32], **BAD)
decode("a wrong type", [b""], ["int32"], [tf.string], **BAD)
decode("a narrow type", [b""], ["int64"], [tf.int32], **BAD)
decode("types that are too many", [b""], ["int32"], [tf.int32, tf.int32], **BAD)
decode("a format", [b""], ["int32"], [tf.int32], format="json", **BAD)
decode("an unknown message", [b""], ["int32"], [tf.int32], "p.None", message="p.None", **BAD)
FILE = tempfile.NamedTemporaryFile()
FILE.write(SET.SerializeToString())
FILE.flush()
decode("a file", [I + b"\5"], ["int32"], [tf.int32], source=FILE.name)
decode("no such file", [b""], ["int32"], [tf.int32], source="/nonexistent/descriptors", **BAD)
ONE = [np.array([[1, 2]], np.int32)]
encode("nothing", [[0]], ONE, ["int32_r"])
encode("a negative count", [[-1]], ONE, ["int32_r"])
encode("in order of number", [[1, 2]], [np.array([[1]], np.int32), np.array([[5, 6]], np.int32)], ["int32_r", "int32"])
encode("deeper", [[[1]], [[2]]], [np.array([[[1, 2]], [[3, 4]]], np.int32)], ["int32_p"])
encode("a group", [[1]], [messages([[b"\x08\x05"]])], ["g"])
for name, sizes, values, fields in (("too many", [[3]], ONE, ["int32_r"]), ("a vector", [1], [np.array([1], np.int32)], ["int32_r"]),
                                    ("a wrong type", [[1]], [np.array([[1.5]])], ["int32_r"]), ("sizes of another shape", [[1], [1]], ONE, ["int32_r"]),
                                    ("values of other shapes", [[1, 1]], [np.array([[1]], np.int32), np.array([[1], [2]], np.int32)], ["int32_r", "int32"]),
                                    ("an unknown field", [[1]], ONE, ["none"]), ("an extension", [[1]], ONE, ["p.ext"])):
    encode(name, sizes, values, fields, known=False, **BAD)

# ---- linked in ----
FEATURE = tf.train.Example(features=tf.train.Features(feature={"a": tf.train.Feature(int64_list=tf.train.Int64List(value=[1, -2, 3]))}))
LIST = FEATURE.features.feature["a"].int64_list.SerializeToString()
decode("tensorflow.Example", [FEATURE.SerializeToString()], ["features"], [tf.string], "tensorflow.Example", "local://")
decode("tensorflow.Int64List", [LIST, b""], ["value"], [tf.int64], "tensorflow.Int64List", "")
decode("tensorflow.Example as text", [b"features { feature { key: 'a' value { int64_list { value: [1, 2] } } } }"], ["features"], [tf.string],
       "tensorflow.Example", "local://", "text")
encode("tensorflow.Int64List", [[2]], [np.array([[5, 6]], np.int64)], ["value"], "tensorflow.Int64List", "local://")
decode("what is not linked in", [b""], ["x"], [tf.int32], "no.Such", "local://", message="no.Such", **BAD)


# ---- hostile descriptors ----
def changed(change):
    s = D.FileDescriptorSet()
    s.CopyFrom(SET)
    change(s)
    return b"bytes://" + s.SerializeToString()


def first(s):
    return s.file[0].message_type[0].field[0]


for name, change in (("a type that is not there", lambda s: s.file[0].message_type[0].field.add(name="z", number=500, type=T.TYPE_MESSAGE, label=1, type_name=".p.None")),
                     ("a number twice", lambda s: s.file[0].message_type[0].field.add(name="z", number=1, type=T.TYPE_INT32, label=1)),
                     ("a name twice", lambda s: s.file[0].message_type[0].field.add(name="double", number=500, type=T.TYPE_INT32, label=1)),
                     ("number 0", lambda s: setattr(first(s), "number", 0)), ("number 2^29", lambda s: setattr(first(s), "number", 1 << 29)),
                     ("a default that is none", lambda s: setattr(first(s), "default_value", "x1")), ("a name with a dot", lambda s: setattr(first(s), "name", "a.b")),
                     ("a message twice", lambda s: s.file[0].message_type.add(name="M")), ("an import that is not there", lambda s: s.file[0].dependency.append("z")),
                     ("a file twice", lambda s: s.file.add(name="p.proto")), ("a oneof that is not there", lambda s: setattr(first(s), "oneof_index", 7)),
                     ("an empty enum", lambda s: s.file[0].enum_type.add(name="Z"))):
    decode(f"descriptors: {name}", [b""], ["int32"], [tf.int32], source=changed(change), **BAD)
