"""A client of a master and a worker, message by message: requests that TensorFlow's own client would never send. Messages
are lists of (field number, value); numbers as in TensorFlow's master.proto and worker.proto."""
import grpc
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.protobuf import config_pb2

from cluster import PATIENCE

CODES = {c.value[0]: c.name for c in grpc.StatusCode}


def varint(n):
    out, n = b"", n & (1 << 64) - 1
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def message(*fields):
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(int(value))
            continue
        if hasattr(value, "SerializeToString"):
            value = value.SerializeToString()
        value = value.encode() if isinstance(value, str) else value
        out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def each_field(data):
    """(number, value) of each field; of numbers and bytes, which is all that answers are asked for."""
    def number():
        nonlocal at
        n = shift = 0
        while True:
            n |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return n
    at = 0
    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, number()
        elif tag & 7 == 2:
            n = number()
            at += n
            yield tag >> 3, data[at - n:at]
        else:
            at += {1: 8, 5: 4}[tag & 7]


def fields_of(data):
    """The last value of each field."""
    return dict(each_field(data))


class Wrong(Exception):
    """An error of a server: its code and text."""

    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text


class Client:
    def __init__(self, target):
        self.channel = grpc.insecure_channel(target.removeprefix("grpc://"))

    def call(self, method, *request, service="Master", code_field=0):
        """The answer's fields. code_field: where an error may be in it; its message is in the next."""
        stub = self.channel.unary_unary(f"/tensorflow.{service}Service/{method}")
        try:
            answer = fields_of(stub(message(*request), timeout=PATIENCE, wait_for_ready=True))
        except grpc.RpcError as e:
            raise Wrong(e.code().name, e.details()) from None
        if code_field and answer.get(code_field):
            raise Wrong(CODES[answer[code_field]], answer.get(code_field + 1, b"").decode())
        return answer

    def worker(self, method, *request, code_field=0):
        return self.call(method, *request, service="Worker", code_field=code_field)

    def create(self, graph, **config):
        answer = self.call("CreateSession", (1, graph), (2, config_pb2.ConfigProto(**config)))
        return Session(self, answer[1].decode(), answer.get(2, 0))


class Session:
    def __init__(self, client, handle, version=0):
        self.client, self.handle, self.version = client, handle, version

    def run(self, fetch=(), feed=(), target=(), partial="", **options):
        feeds = [(2, message((1, name), (2, proto(value))))
                 for name, value in (feed.items() if isinstance(feed, dict) else feed)]
        return self.client.call("RunStep", (1, self.handle), *feeds, *names(3, fetch), *names(4, target),
                                (5, config_pb2.RunOptions(**options)), (6, partial), (7, 1), code_field=3)

    def extend(self, graph, version=None):
        answer = self.client.call("ExtendSession", (1, self.handle), (2, graph),
                                  (3, self.version if version is None else version))
        self.version = answer.get(4, 0)

    def close(self):
        self.client.call("CloseSession", (1, self.handle))

    def setup(self, feed=(), fetch=(), target=()):
        return self.client.call("PartialRunSetup", (1, self.handle), *names(2, feed), *names(3, fetch),
                                *names(4, target)).get(1, b"").decode()

    def make(self, feed=(), fetch=(), target=()):
        options = message(*names(1, feed), *names(2, fetch), *names(3, target))
        return self.client.call("MakeCallable", (1, self.handle), (2, options)).get(1, 0)

    def called(self, handle, *feeds):
        return self.client.call("RunCallable", (1, self.handle), (2, handle), *[(3, proto(f)) for f in feeds])

    def release(self, handle):
        self.client.call("ReleaseCallable", (1, self.handle), (2, handle))


def names(field, x):
    return [(field, name) for name in ([x] if isinstance(x, str) else x)]


def proto(value):
    return value if isinstance(value, TensorProto) else tf.make_tensor_proto(value)


# ---- graphs, node by node ----

def graph_def(make):
    with tf.Graph().as_default() as g:
        make()
        return g.as_graph_def()


def node(name, op, inputs=(), device="", **attrs):
    n = tf.NodeDef(name=name, op=op, input=list(inputs), device=device)
    for key, value in attrs.items():
        if isinstance(value, tf.AttrValue):
            n.attr[key].CopyFrom(value)
        elif isinstance(value, str):
            n.attr[key].s = value.encode()
        else:
            n.attr[key].type = value
    return n


def raw(*nodes):
    g = graph_pb2.GraphDef(node=nodes)
    g.versions.producer = 1645
    return g


def const(name, value):
    t = tf.make_tensor_proto(np.float32(value) if isinstance(value, float) else value)
    return node(name, "Const", dtype=t.dtype, value=tf.AttrValue(tensor=t))
