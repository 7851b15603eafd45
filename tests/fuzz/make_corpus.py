"""Writes seeds for the fuzz targets into tests/fuzz/corpus, from real TensorFlow: small graphs, tensors and checkpoints.

The seeds are kept in the tree; this says where they came from, and makes new ones when the targets change.
"""
import gzip
import io
import os
import pickle
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def put(target, name, data):
    folder = os.path.join(ROOT, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)


def graphs():
    def plain():
        x = tf.placeholder(tf.float32, [None, 3], "x")
        w = tf.get_variable("w", [3, 2], initializer=tf.zeros_initializer())
        return tf.reduce_sum(tf.nn.relu(tf.matmul(x, w)))

    def loop():
        return tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0), [0, 1.0])

    def function():
        tf.enable_control_flow_v2()
        out = tf.cond(tf.placeholder(tf.bool, []), lambda: tf.constant(1.0), lambda: tf.constant(2.0))
        tf.disable_control_flow_v2()
        return out

    def queue():
        q = tf.FIFOQueue(2, [tf.float32, tf.string], [[2], []])
        return q.enqueue([[1.0, 2.0], "a"])

    for build in (plain, loop, function, queue):
        with tf.Graph().as_default() as g:
            build()
            put("graph_fuzz", build.__name__, b"\0" + g.as_graph_def().SerializeToString())
            put("graph_fuzz", build.__name__ + "_text", b"\1" + str(g.as_graph_def()).encode())


def functions():
    """Graphs for lowering: only ops that carry no attributes worth mutating, so that the structure is what varies."""
    x = lambda dtype=tf.float32: tf.placeholder(dtype, [])

    def branch():
        a = x()
        y = tf.cond(x(tf.bool), lambda: tf.identity(a), lambda: tf.zeros_like(a))
        return tf.while_loop(lambda i: x(tf.bool), lambda i: [tf.identity(i)], [y])

    def nested():
        a, p = x(), x(tf.bool)
        inner = lambda b: tf.while_loop(lambda i: p, lambda i: [tf.identity(i)], [b])
        return tf.while_loop(lambda i: p, lambda i: [tf.cond(p, lambda: inner(i), lambda: tf.identity(a))], [a])

    def choice():
        a = x()
        return tf.switch_case(x(tf.int32), [lambda: tf.identity(a), lambda: tf.zeros_like(a), lambda: tf.ones_like(a)])

    def call():
        f = tf.function(lambda a: tf.identity(a), autograph=False)
        return tf.function(lambda a: (f(a), f(tf.identity(a))), autograph=False)(x())

    for build in (branch, nested, choice, call):
        for functional in (False, True):
            (tf.enable_control_flow_v2 if functional else tf.disable_control_flow_v2)()
            with tf.Graph().as_default() as g:
                build()
                put("lower_fuzz", build.__name__ + ("_functional" if functional else ""), g.as_graph_def().SerializeToString())
    tf.disable_control_flow_v2()


def tensors():
    values = {"float": np.arange(6, dtype=np.float32).reshape(2, 3), "int64": np.int64(7), "bool": np.array([True, False]),
              "string": np.array([b"a", b"", b"long enough to leave the inline part"], object),
              "complex": np.array([1 + 2j], np.complex64), "half": np.array([1, 2], np.float16), "empty": np.zeros((0, 4))}
    for name, v in values.items():
        put("tensor_fuzz", name, tf.make_tensor_proto(v).SerializeToString())
    repeated = tf.make_tensor_proto(1.0, shape=[100])
    put("tensor_fuzz", "repeated", repeated.SerializeToString())


def bundles():
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default(), tf.Session() as s:
        prefix = os.path.join(folder, "m")
        s.run(tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["a", "b", "s"], shape_and_slices=["", "4 2 0,2:-", ""],
                                tensors=[np.arange(4, dtype=np.float32), np.ones((2, 2), np.int64), np.array(["x", "yz"])]))
        with open(prefix + ".index", "rb") as i, open(prefix + ".data-00000-of-00001", "rb") as d:
            index = i.read()
            put("bundle_fuzz", "three", struct.pack("<H", len(index)) + index + d.read())


def examples():
    feature = lambda **k: tf.train.Feature(**k)
    values = {"a": feature(int64_list=tf.train.Int64List(value=[1, -2, 3])), "b": feature(float_list=tf.train.FloatList(value=[1.5])),
              "c": feature(bytes_list=tf.train.BytesList(value=[b"x", b"yz"]))}
    features = tf.train.Features(feature=values)
    put("example_fuzz", "example", tf.train.Example(features=features).SerializeToString())
    lists = tf.train.FeatureLists(feature_list={k: tf.train.FeatureList(feature=[v, v]) for k, v in values.items()})
    put("example_fuzz", "sequence", tf.train.SequenceExample(context=features, feature_lists=lists).SerializeToString())


def images():
    image = tf.constant(np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3))
    with tf.Session() as s:
        png, jpeg = s.run([tf.raw_ops.EncodePng(image=image), tf.raw_ops.EncodeJpeg(image=image)])
    put("image_fuzz", "png", b"\0" + png)
    put("image_fuzz", "jpeg", b"\1" + jpeg)
    put("image_fuzz", "gif", b"\2GIF89a" + struct.pack("<HHBBB", 2, 2, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff" +
        b"," + struct.pack("<HHHHB", 0, 0, 2, 2, 0) + b"\x02\x03\x44\x02\x05\0;")
    put("image_fuzz", "bmp", b"\3BM" + struct.pack("<IHHI", 70, 0, 0, 54) +
        struct.pack("<IiiHHIIiiII", 40, 2, 2, 1, 24, 0, 16, 0, 0, 0, 0) + bytes(range(16)))


def patterns():
    for i, (p, t) in enumerate((("(a|b)*c", "ababc"), ("^[^x-z]+\\d{2,3}?$", "abc12"), ("(?i)\\bfoo\\b|[[:alpha:]]", "a Foo b"))):
        put("regex_fuzz", str(i), p.encode() + b"\0" + t.encode())


def message(*fields):
    """Protocol buffer bytes from (number, value) pairs: an int is a varint, anything else bytes."""
    def varint(n):
        out = b""
        while n > 127:
            out += bytes([n & 127 | 128])
            n >>= 7
        return out + bytes([n])
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
            continue
        value = value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else value.SerializeToString()
        out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def requests():
    """Calls of a server, each a method's place in its table, a length and a message; see request_fuzz.c. TensorFlow's
    Python has no classes for them, so their fields are given by number."""
    with open(os.path.join(ROOT, "../../../src/cluster/server.c"), encoding="utf-8") as f:
        methods = [m.rsplit("/", 1)[-1] for m in re.findall(r'^    \{(?:[CMW] )?"([^"]+)"', f.read(), re.M)]
    session, graph_handle = (1, "$SESSION$SESSION$SESSION$SESSION"), (1, "$GRAPH$GRAPH$GRA")
    device = "/job:w/replica:0/task:0/device:CPU:0"

    def call(method, *fields):
        data = message(*fields)
        return struct.pack("<BH", methods.index(method), len(data)) + data

    with tf.Graph().as_default() as g:
        x = tf.placeholder(tf.float32, [], "x")
        v = tf.get_variable("v", [], initializer=tf.ones_initializer(), use_resource=True)
        tf.add(x, v, "y")
        tf.FIFOQueue(1, [tf.float32], shapes=[[]], name="q").dequeue(name="never")
        definition = g.as_graph_def()
    with tf.Graph().as_default() as g:
        tf.constant([1.0, 2.0], name="late")
        extension = g.as_graph_def()
    one, text = tf.make_tensor_proto(1.0), tf.make_tensor_proto("s")
    feed = (2, message((1, "x:0"), (2, one)))
    create = call("CreateSession", (1, definition), (3, "grpc://127.0.0.1:1"))
    start = create + call("RunStep", session, (4, "v/Assign"))
    close = call("CloseSession", session)
    seeds = {
        "create": create + call("ListDevices", session) + close,
        "extend": create + call("ExtendSession", session, (2, extension)) + call("RunStep", session, (3, "late:0")),
        "step": start + call("RunStep", session, feed, (3, "y:0")) +
                call("RunStep", session, feed, (3, "y:0"), (5, message((1, 3), (2, 1000)))),
        "wrong_step": start + call("RunStep", session, (3, "y:0")) + call("RunStep", session, (3, "nothing:0")) +
                      call("RunStep", session, (2, message((1, "x:0"), (2, text))), (3, "y:0")),
        "blocked": create + call("RunStep", session, (3, "never:0")) + close,
        "partial": start + call("PartialRunSetup", session, (2, "x:0"), (3, "y:0")) +
                   call("RunStep", session, feed, (3, "y:0"), (6, "0")),
        "callable": start + call("MakeCallable", session, (2, message((1, "x:0"), (2, "y:0")))) +
                    call("RunCallable", session, (2, 0), (3, one)) + call("ReleaseCallable", session, (2, 0)),
        "reset": start + call("Reset", (1, "a"), (2, "/job:w")) + call("CleanupAll", (1, "a"), (1, "")),
    }

    key = lambda name: f"{device};0000000000000001;{device};{name};0:0"
    with tf.Graph().as_default() as g:
        tf.constant(2.0, name="c")
        part = g.as_graph_def()
    for op, name in (("_Recv", "edge_1_x"), ("_Send", "edge_2_c")):
        n = part.node.add(name=op, op=op)
        n.attr["tensor_name"].s = name.encode()
        n.attr["send_device"].s = n.attr["recv_device"].s = device.encode()
        n.attr["send_device_incarnation"].i = 1
        n.attr["client_terminated"].b = True
        n.attr["tensor_type" if op == "_Recv" else "T"].type = 1
    part.node[-1].input.append("c")
    for n in part.node:
        n.device = device
    register = (call("CreateWorkerSession", (1, "a"), (3, 1), (5, "/job:w/replica:0/task:0"), (6, 3)) +
                call("RegisterGraph", (1, "a"), (2, part), (6, 1)))
    step = lambda i, *more: call("RunGraph", graph_handle, (2, i), (3, message((1, key("edge_1_x")), (2, one))),
                                 (8, "a"), (10, 1), *more)
    member = lambda i: call("CompleteGroup", (1, 5), (2, 2), (3, "CPU"), (5, 1),
                            (6, message((1, device[:-1] + str(i)), (2, "CPU"))))
    instance = lambda i: call("CompleteInstance", (1, "c"), (2, 1), (3, 1), (4, message((2, message((1, 2))))), (5, 5), (6, 2),
                              (7, 6), (8, "CPU"), (10, device[:-1] + str(i)), (11, 1 - i), (12, 7))
    seeds.update({
        "worker": register + step(7, (4, key("edge_2_c")), (5, message((3, 1)))) + call("CleanupGraph", (1, 7)) +
                  call("DeregisterGraph", graph_handle, (2, "a"), (3, 1)) + call("DeleteWorkerSession", (1, "a")),
        "worker_partial": register + step(8, (4, key("edge_2_c")), (6, 1)) + step(8, (6, 1), (7, 1)),
        "recv": call("RecvTensor", (1, 7), (2, key("edge_1_x")), (3, 1), (7, 5)) + call("CleanupGraph", (1, 7)),
        "collective": member(0) + member(1) + instance(0) + instance(1) + call("GetStepSequence", (1, 3), (1, 4)) +
                      call("RecvBuf", (1, 7), (2, "0:0:0"), (3, 8), (8, device), (9, device), (10, 9)),
        "others": call("GetStatus") + call("Logging", (1, 1), (3, 7)) + call("Tracing", (1, b"")) +
                  call("MarkRecvFinished", (1, 5)) + call("RecvBuf") + call("CompleteGroup") + call("Status"),
    })

    task = lambda i: message((1, "worker"), (2, i))
    join = lambda i: call("RegisterTask", (5, task(i))) + call("Heartbeat", (4, task(i)))
    devices = message((1, message((1, "type.googleapis.com/tensorflow.DeviceAttributes"), (2, b"d"))))
    gather = lambda i: call("WaitForAllTasks", (5, task(i)), (6, devices))
    entry = lambda key, value: call("InsertKeyValue", (1, message((1, key), (2, value))))
    meet = lambda i, *more: call("Barrier", (1, "b"), (2, 1000), *more, (4, task(i)))
    error = ((1, 13), (2, "it broke"))
    seeds.update({
        "gathering": join(1) + join(2) + gather(1) + gather(2) + call("GetTaskState", (1, task(0)), (1, task(1))),
        "failing": call("RegisterTask", (5, task(1))) + gather(1) + call("ReportErrorToService", *error, (5, task(1))) +
                   call("GetTaskState", (1, task(1))) + call("ResetTask", (1, task(1))) + call("Heartbeat", (4, task(1))) +
                   call("ReportErrorToTask", *error, (5, message((3, 1), (4, task(2))))) + call("ShutdownTask", (1, task(0))),
        "values": call("GetKeyValue", (1, "a/b")) + entry("/a//b/", "v") + entry("a/b/c", "w") + call("TryGetKeyValue", (1, "a/b/c")) +
                  call("GetKeyValueDir", (1, "a")) + entry("a/b", "v") + call("DeleteKeyValue", (1, "a/b")) +
                  call("GetKeyValueDir", (1, "a")),
        "barriers": join(1) + join(2) + meet(1, (3, task(1)), (3, task(2))) + meet(2, (3, task(2)), (3, task(1))) +
                    meet(1) + meet(0),
        "cancelled": meet(1) + meet(2, (3, task(9))) + call("CancelBarrier", (1, "b"), (2, task(1))) + meet(0) +
                     call("RegisterTask", (5, task(1))) + call("ShutdownTask", (1, task(1))),
    })
    for name, data in seeds.items():
        put("request_fuzz", name, data)


def clusters():
    from tensorflow.core.protobuf import cluster_pb2
    put("cluster_fuzz", "json", b'\0"ps": ["a:1", "b:2"], "worker": {"3": "c:4"}}')
    put("cluster_fuzz", "tf_config", b'\1"cluster": {"chief": ["h:1"], "ps": ["h:2"]}, "task": {"type": "ps", "index": 0}}')
    proto = cluster_pb2.ClusterDef(job=[dict(name="ps", tasks={0: "a:1", 2: "b:2"}), dict(name="w", tasks={0: "[::1]:3"})])
    put("cluster_fuzz", "proto", b"\2" + proto.SerializeToString())
    put("cluster_fuzz", "hosts", b"\3a:1,b:2,[::1]:3")


def frames():
    """Frames of the fast path (fast.h), to a server and to a client; see fast_fuzz.c."""
    frame = lambda kind, head=b"", body=b"", flags=0, dtype=1, rank=0, size=None, number=1: struct.pack(
        "<BBBBIQQ", kind, flags, dtype, rank, len(head), number, len(body) if size is None else size) + head + body
    dims = struct.pack("<qq", 2, 3)
    to_server, to_client = b"\0\1", b"\1"
    put("fast_fuzz", "ask", to_server + frame(1, b"key;0:0", size=7) + frame(1, b"large", size=8, number=2) + frame(6, number=2))
    put("fast_fuzz", "cancel", to_server + frame(1, b"wait", size=7) + frame(5) + frame(1, b"error", size=7, number=2))
    put("fast_fuzz", "resend", to_server + frame(1, b"large", size=8) + frame(7) + frame(7))
    put("fast_fuzz", "call", to_server + frame(8, b"call") + frame(8, b"odd", number=2))
    put("fast_fuzz", "stranger", b"\0\0" + frame(1, b"key"))
    put("fast_fuzz", "value", to_client + frame(2, dims, bytes(24), rank=2) + frame(9, body=b"result", number=2))
    put("fast_fuzz", "remote", to_client + frame(3, dims + struct.pack("<qq", 1, 4096), rank=2, size=24))
    put("fast_fuzz", "shared", to_client + frame(10, dims + struct.pack("<QQQQQ", 1, 0, 1, 8 << 20, 64), rank=2, size=24))
    put("fast_fuzz", "error", to_client + frame(4, b"no", dtype=3, flags=4) + frame(4, b"gone", dtype=14, number=2))


# ---- connections; see http2_fuzz.c ----

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END, END_HEADERS, PADDED = 1, 4, 8


def http2(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def fields(**pairs):
    """A header block of literals."""
    out = b""
    for name, value in pairs.items():
        name = name.replace("P_", ":").replace("_", "-").encode()
        out += b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value.encode()
    return out


def grpc_message(body):
    return b"\0" + struct.pack(">I", len(body)) + body


def call_of(path):
    return fields(P_method="POST", P_scheme="http", P_path=path, P_authority="a", te="trailers",
                  content_type="application/grpc", grpc_timeout="5S")


def grpc_bytes():
    """What a real gRPC client says to a server, and a real server to a client."""
    from concurrent import futures
    import grpc
    listening = socket.create_server(("127.0.0.1", 0))
    channel = grpc.insecure_channel("127.0.0.1:%d" % listening.getsockname()[1])
    call = channel.unary_unary("/f/Echo").future(b"hello" * 10, timeout=5)
    conn, _ = listening.accept()
    conn.sendall(http2(SETTINGS, 0, 0))
    time.sleep(1.0)
    said = conn.recv(1 << 16)
    call.cancel()
    channel.close()

    class Echo(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(PREFACE + http2(SETTINGS, 0, 0) + http2(HEADERS, END_HEADERS, 1, call_of("/f/Echo")) +
                  http2(DATA, END, 1, grpc_message(b"hello" * 10)))
        time.sleep(1.0)
        answered = s.recv(1 << 16)
    server.stop(None)
    return said, answered


def connections():
    head = lambda stream, path: http2(HEADERS, END_HEADERS, stream, call_of(path))
    echo = head(1, "/f/Echo") + http2(DATA, END, 1, grpc_message(b"hello"))
    cut = call_of("/f/Echo")
    said, answered = grpc_bytes()
    to_server = {
        "echo": echo,
        "unknown": head(1, "/f/None") + http2(DATA, END, 1, grpc_message(b"")),
        "two": head(1, "/f/Wait") + http2(DATA, END, 1, grpc_message(b"x")) + head(3, "/f/Echo") +
               http2(DATA, 0, 3, b"\0\0\0") + http2(DATA, END, 3, b"\0\2ab") + http2(RESET, 0, 1, b"\0\0\0\x08"),
        "settings": http2(SETTINGS, 0, 0, struct.pack(">HIHIHI", 4, 1, 5, 16384, 3, 1)) + echo +
                    http2(WINDOW, 0, 1, b"\0\0\0\1") + http2(SETTINGS, 0, 0, struct.pack(">HI", 4, 99)),
        "ping": http2(PING, 0, 0, b"12345678") + http2(WINDOW, 0, 0, b"\0\1\0\0") + http2(GOAWAY, 0, 0, b"\0" * 8),
        "continued": http2(HEADERS, 0, 1, cut[:9]) + http2(CONTINUATION, 0, 1, cut[9:30]) +
                     http2(CONTINUATION, END_HEADERS, 1, cut[30:]) + http2(DATA, END, 1, grpc_message(b"a")),
        "padded": http2(HEADERS, END_HEADERS | PADDED, 1, b"\3" + cut + b"\0\0\0") +
                  http2(DATA, END | PADDED, 1, b"\2" + grpc_message(b"abc") + b"\0\0"),
        "large": head(1, "/f/Echo") + http2(DATA, 0, 1, b"\0\x7f\xff\xff\xff" + b"a" * 50),
        "compressed": http2(HEADERS, END_HEADERS, 1, cut + fields(grpc_encoding="gzip")) +
                      http2(DATA, END, 1, b"\1" + grpc_message(gzip.compress(b"hello" * 20, mtime=0))[1:]),
    }
    to_client = {
        "answer": http2(HEADERS, END_HEADERS, 1, fields(P_status="200", content_type="application/grpc")) +
                  http2(DATA, 0, 1, grpc_message(b"hello")) + http2(HEADERS, END_HEADERS | END, 1, fields(grpc_status="0")),
        "error": http2(HEADERS, END_HEADERS | END, 1, fields(P_status="200", grpc_status="14", grpc_message="a%20b",
                                                             grpc_status_details_bin="CgwKCg")),
        "http": http2(HEADERS, END_HEADERS | END, 1, fields(P_status="503")),
        "reset": http2(RESET, 0, 1, b"\0\0\0\7") + http2(GOAWAY, 0, 0, b"\0" * 8),
    }
    for name, data in to_server.items():
        put("http2_fuzz", name, b"\2" + data)
        put("http2_fuzz", name + "_in_pieces", b"\x86" + data)
    for name, data in to_client.items():
        put("http2_fuzz", name, b"\3" + data)
    put("http2_fuzz", "grpc_client", b"\0" + said)
    put("http2_fuzz", "grpc_server", b"\1" + answered)


def message_types():
    """A set of all kinds of fields in both syntaxes, with messages of it as bytes and as text."""
    from google.protobuf import descriptor_pb2
    t = descriptor_pb2.FieldDescriptorProto
    for syntax in ("proto2", "proto3"):
        s = descriptor_pb2.FileDescriptorSet()
        f = s.file.add(name="a", package="p", syntax=syntax)
        m = f.message_type.add(name="M")
        m.oneof_decl.add(name="o")
        e = f.enum_type.add(name="E")
        e.value.add(name="A", number=0)
        e.value.add(name="B", number=2)
        for kind in range(1, 19):
            types = {t.TYPE_MESSAGE: ".p.M", t.TYPE_GROUP: "M", t.TYPE_ENUM: ".p.E"}
            more = {"type_name": types[kind]} if kind in types else {}
            m.field.add(name=f"a{kind}", number=kind, type=kind, label=t.LABEL_OPTIONAL, **more)
            m.field.add(name=f"r{kind}", number=kind + 20, type=kind, label=t.LABEL_REPEATED, **more)
        for i in (1, 2):
            m.field.add(name=f"o{i}", number=50 + i, type=t.TYPE_INT32, label=t.LABEL_OPTIONAL, oneof_index=0)
        if syntax == "proto2":
            m.field[0].default_value = "-1.5"
            m.field.add(name="d", number=60, type=t.TYPE_BYTES, label=t.LABEL_OPTIONAL, default_value="\\001a")
            m.extension_range.add(start=100, end=200)
            f.extension.add(name="x", number=100, type=t.TYPE_INT32, label=t.LABEL_REPEATED, extendee=".p.M")
        data = struct.pack("<H", s.ByteSize()) + s.SerializeToString()
        inner = b"\x28\x05\x98\x03\x01\xa0\x03\x02\xa2\x01\x02\x01\x02\x4a\x01s"
        put("message_fuzz", syntax, data + b"\x5a" + bytes([len(inner)]) + inner + b"\x53\x28\x01\x54\xf0\x02\x05\xca\x02\x02\x02\x03")
        put("message_fuzz", syntax + "_text", data + b'a5: -1 r5: [1, 2] a9: "x" a11 { a1: 1.5 r14: [A, B] } r11 < o1: 2 > [p.x]: 3')


def records():
    """The first byte: how packed; 4: to be guessed."""
    for number, packing in enumerate(("", "GZIP", "ZLIB")):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "r")
            with tf.python_io.TFRecordWriter(path, tf.io.TFRecordOptions(compression_type=packing)) as w:
                for r in (b"one", b"", b"x" * 40):
                    w.write(r)
            with open(path, "rb") as f:
                data = f.read()
            put("record_fuzz", packing or "plain", bytes([number]) + data)
            put("record_fuzz", (packing or "plain") + "_guessed", b"\4" + data)
            if not packing:  # one with damaged data, one with a damaged length
                put("record_fuzz", "damaged", b"\0" + data[:13] + b"?" + data[14:])
                put("record_fuzz", "lost", b"\0" + data[:20] + b"?" + data[21:])


def texts():
    rows = b'1,2.5,word,3\n,,,4\r\nNA,NA,"a ""quoted"", field\nof two lines",-9\n1,x,y\n5,6,7,8,9\n"",1e9,,'
    for number in range(4):
        put("csv_fuzz", f"rows{number}", bytes([number]) + (gzip.compress(rows, mtime=0) if number & 2 else rows))
    put("csv_fuzz", "row", b'\1"12",.5,"a""b",99999999999')


def vectors():
    put("vectors_fuzz", "text", b"3 2\n</s> 0.5 -0.25 \none 1 2 \ntwo 3e-1 4 \n")
    put("vectors_fuzz", "binary", b"2 2\n</s> " + struct.pack("<2f", 0.5, 1) + b"\none " + struct.pack("<2f", -1, 2) + b"\n")
    put("vectors_fuzz", "words", b"</s> 3\none 7\ntwo 5\n")


def images_idx():
    head = {"bytes": (8, "u1"), "shorts": (11, ">i2"), "ints": (12, ">i4"), "floats": (13, ">f4"), "doubles": (14, ">f8")}
    for name, (code, kind) in head.items():
        data = bytes([0, 0, code, 2]) + struct.pack(">II", 2, 3) + np.arange(6).astype(kind).tobytes()
        put("idx_fuzz", name, data)
    put("idx_fuzz", "packed", gzip.compress(data, mtime=0))


def arrays():
    for name, value in {"floats": np.arange(6, dtype=np.float32).reshape(2, 3), "turned": np.asfortranarray(np.ones((2, 2))),
                        "swapped": np.array([1, 2], ">i4"), "bytes": np.array([b"a", b"bc"]), "words": np.array(["\u00fc", "x"]),
                        "one": np.int64(7), "complex": np.array([1j], np.complex64), "none": np.zeros((0, 3), bool)}.items():
        file = io.BytesIO()
        np.save(file, value)
        put("npy_fuzz", name, b"\0" + file.getvalue())
    words = np.array([["\u00fc", b"a\0"], [b"a\0", b"x" * 300]], object)
    file = io.BytesIO()
    np.save(file, words)
    put("npy_fuzz", "objects", b"\0" + file.getvalue())
    put("npy_fuzz", "objects_4", b"\0" + file.getvalue()[:128] + pickle.dumps(words, 4))
    put("npy_fuzz", "type_cut_off", b"\0\x93NUMPY\1\0\x0b\0{'descr': '")
    for name, save in {"stored": np.savez, "packed": np.savez_compressed}.items():
        file = io.BytesIO()
        save(file, x=np.arange(5))
        put("npy_fuzz", name, b"\1" + file.getvalue())


def slices():
    with tf.Graph().as_default(), tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "v1")
        part = np.arange(12, dtype=np.float32).reshape(3, 4)
        save = tf.raw_ops.SaveSlices(
            filename=path, tensor_names=["part", "part", "s", "i"], shapes_and_slices=["3 4 0,2:-", "3 4 2,1:-", "", ""],
            data=[part[:2], part[2:], np.array([b"ab", b""], object), np.int64(7)])
        with tf.Session() as s:
            s.run(save)
        with open(path, "rb") as f:
            put("slices_v1_fuzz", "four", f.read())


def rest():
    put("rest_fuzz", "head", b"POST /v1/models/a%20b:predict?x HTTP/1.1\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")
    put("rest_fuzz", "chunks", b"3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n")
    put("rest_fuzz", "json", b'{"instances": [[1.5e3, -2, NaN], ["a\\u00e9\\n", {"b64": "AAA="}], true, null]}')


def saved_models():
    with tf.Graph().as_default(), tempfile.TemporaryDirectory() as d, tf.Session() as s:
        x = tf.placeholder(tf.float32, [None, 2], "x")
        y = x * tf.Variable(2.0)
        s.run(tf.global_variables_initializer())
        for text in False, True:
            path = os.path.join(d, str(text))
            b = tf.saved_model.Builder(path)
            b.add_meta_graph_and_variables(s, ["serve"], {
                "serving_default": tf.saved_model.predict_signature_def({"x": x}, {"y": y})}, strip_default_attrs=True)
            with open(b.save(as_text=text), "rb") as f:
                put("saved_model_fuzz", "text" if text else "binary", b"t" * text + f.read())


def models():
    """A whole folder as one input: the file, the index, the data (model_fuzz.c)."""
    def put_model(name, path):
        parts = []
        for part in "saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001":
            with open(os.path.join(path, part), "rb") as f:
                parts.append(f.read())
        file, index, data = parts
        put("model_fuzz", name, struct.pack("<I", len(file)) + file + struct.pack("<I", len(index)) + index + data)

    def first(d):
        with tf.Graph().as_default(), tf.Session() as s:
            x, words = tf.placeholder(tf.float32, [None, 2], "x"), tf.placeholder(tf.string, [None], "words")
            w = tf.get_variable("w", initializer=[[1., 2.], [3., 4.]], use_resource=True)
            y = tf.nn.relu(tf.matmul(x, w))
            pairs = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2], tf.string, tf.int64)
            n = tf.lookup.StaticHashTable(pairs, 0).lookup(words)
            s.run([tf.global_variables_initializer(), tf.tables_initializer()])
            b = tf.saved_model.Builder(d)
            b.add_meta_graph_and_variables(s, ["serve"], {
                "serving_default": tf.saved_model.predict_signature_def({"x": x}, {"y": y}),
                "words": tf.saved_model.predict_signature_def({"words": words}, {"n": n})},
                strip_default_attrs=True, main_op=tf.tables_initializer())
            b.save()

    def second(d):
        """By a process of its own: in this one TensorFlow 2 is off."""
        subprocess.run([sys.executable, "-c", SECOND, d], check=True)

    for make_model in first, second:
        with tempfile.TemporaryDirectory() as d:
            make_model(os.path.join(d, "m"))
            put_model(make_model.__name__, os.path.join(d, "m"))


SECOND = """
import sys
import tensorflow as tf

class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable([[1., 2.], [3., 4.]], name="w")

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def ask(self, x):
        return {"y": tf.nn.relu(self.inner(x) + 1.)}

    @tf.function
    def inner(self, x, scale=2.0, how=("a", [None, True])):
        return tf.matmul(x, self.w) * scale

m = Model()
m.inner(tf.constant([[1., 2.]]), 0.5, {"d": (1, tf.constant(2))})
tf.saved_model.save(m, sys.argv[1], signatures=m.ask, options=tf.saved_model.SaveOptions(save_debug_info=False))
"""


for make in (graphs, functions, tensors, bundles, examples, images, patterns, requests, clusters, frames,
             connections, message_types, records, texts, images_idx, vectors, arrays, slices, rest,
             saved_models, models):
    if len(sys.argv) < 2 or sys.argv[1] == make.__name__:
        make()
