"""A client that speaks HTTP/2 by hand, and badly: what a server's connection makes of it, and that the server lives on.

No TensorFlow, and no library for HTTP/2: every frame here is written out. (tests/fuzz/http2_fuzz.c looks for more.)
"""
# not on the soft device: frames by hand, no op runs
import socket
import struct
import sys

from cluster import PATIENCE, Cluster, report

DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
STREAMS, INITIAL_WINDOW = 3, 4
CALM = 11  # ENHANCE_YOUR_CALM
WAIT = PATIENCE


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def call_fields(method, more=()):
    """The header fields of a call, as literals."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", "/tensorflow." + method), (":authority", "here"),
              ("te", "trailers"), ("content-type", "application/grpc"), *more]
    return b"".join(b"\0" + bytes([len(k)]) + k.encode() + bytes([len(v)]) + v.encode() for k, v in fields)


def setting(key, value):
    return struct.pack(">HI", key, value)


class Client:
    def __init__(self, address, settings=b"", source=None):
        self.connect(address, source)
        self.s.sendall(PREFACE)
        self.send(SETTINGS, 0, 0, settings)

    def connect(self, address, source=None):
        """source: the client's own address."""
        host, port = address.rsplit(":", 1)
        self.s = socket.create_connection((host, int(port)), WAIT, (source, 0) if source else None)
        self.have, self.stream = b"", -1
        self.windows, self.initial = {0: 65535}, 65535  # by stream, 0: the connection's; of a stream that begins
        self.over = set()  # streams of which the server has said all
        self.unread = []  # frames that came while something was sent

    def send(self, kind, flags, stream, payload=b""):
        self.s.sendall(frame(kind, flags, stream, payload))

    def greet(self):
        """Takes the server's settings: its windows are open from then on."""
        self.until(lambda f: f[0] == SETTINGS and not f[1] & ACK)
        return self

    def read(self, n):
        while len(self.have) < n:
            more = self.s.recv(1 << 16)
            if not more:
                raise EOFError
            self.have += more
        out, self.have = self.have[:n], self.have[n:]
        return out

    def take(self):
        head = self.read(9)
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        payload = self.read(int.from_bytes(head[:3], "big"))
        if kind == WINDOW:
            self.windows[stream] = self.windows.get(stream, self.initial) + struct.unpack(">I", payload)[0]
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack(">HI", payload[at:at + 6])
                if key != INITIAL_WINDOW:
                    continue
                for s in self.windows:
                    self.windows[s] += value - self.initial if s else 0
                self.initial = value
        if kind == RST or kind == HEADERS and flags & END_STREAM:
            self.over.add(stream)
        return kind, flags, stream, payload

    def frame(self):
        """(kind, flags, stream, payload) of the next frame."""
        return self.unread.pop(0) if self.unread else self.take()

    def headers(self, method, flags=END_HEADERS, more=()):
        self.stream += 2
        self.send(HEADERS, flags, self.stream, call_fields(method, more))
        return self.stream

    def upload(self, parts, end=True):
        """Sends data on streams ({stream: bytes}), in turns, as their windows allow; of those that end, no more."""
        left = {stream: memoryview(data) for stream, data in parts.items()}
        while left:
            moved = False
            for stream in list(left):
                data, window = left[stream], self.windows.setdefault(stream, self.initial)
                n = min(len(data), window, self.windows[0], 16384)
                if n > 0:
                    self.send(DATA, END_STREAM if end and n == len(data) else 0, stream, bytes(data[:n]))
                    self.windows[stream] -= n
                    self.windows[0] -= n
                    left[stream] = data[n:]
                    moved = True
                if stream in self.over or not left[stream]:
                    del left[stream]
            if left and not moved:
                self.unread.append(self.take())

    def call(self, method, message):
        stream = self.headers(method)
        self.upload({stream: b"\0" + struct.pack(">I", len(message)) + message})
        return stream

    def until(self, wanted):
        """Frames up to one that wanted(frame); pings and settings are answered."""
        frames = []
        while True:
            kind, flags, stream, payload = f = self.frame()
            frames.append(f)
            if kind in (PING, SETTINGS) and not flags & ACK:
                self.send(kind, ACK, 0, payload if kind == PING else b"")
            if wanted(f):
                return frames

    def answer(self, stream):
        """The message of a call's answer."""
        frames = self.until(lambda f: f[2] == stream and f[1] & END_STREAM and f[0] in (DATA, HEADERS))
        return b"".join(f[3] for f in frames if f[0] == DATA and f[2] == stream)[5:]

    def ended(self):
        """The server closes the connection; the code of its GOAWAY, if it sent one."""
        code = None
        try:
            while True:
                kind, _, _, payload = self.frame()
                if kind == GOAWAY:
                    code = struct.unpack(">I", payload[4:8])[0]
        except (EOFError, ConnectionError):
            return code


def field(number, value):
    n, size = len(value), b""
    while n > 127:
        size += bytes([n & 127 | 128])
        n >>= 7
    return bytes([number << 3 | 2]) + size + bytes([n]) + value


BYTES = 300000


def session(c):
    """A session on a graph of one constant of so many bytes; its handle's field."""
    tensor = b"\x08\x04" + field(2, field(2, b"\x08\xe0\xa7\x12")) + field(4, bytes(i % 251 for i in range(BYTES)))
    attrs = field(5, field(1, b"dtype") + field(2, b"\x30\x04")) + field(5, field(1, b"value") + field(2, field(8, tensor)))
    graph = field(1, field(1, b"c") + field(2, b"Const") + attrs)
    answer = c.answer(c.call("MasterService/CreateSession", field(1, graph)))
    return answer[:2 + answer[1]]


def windows_that_shrink(address):
    """What the peer has taken back is not used: not a byte is sent until its windows are open again."""
    c = Client(address, setting(INITIAL_WINDOW, 1 << 20)).greet()
    handle = session(c)
    c.send(WINDOW, 0, 0, struct.pack(">I", 1 << 20))
    c.send(PING, 0, 0, b"settled.")
    before = c.until(lambda f: f[0] == PING and f[1] & ACK)
    assert before
    stream = c.call("MasterService/RunStep", handle + field(3, b"c:0"))
    assert BYTES < len(c.answer(stream)) < BYTES + 1000
    # Again, with the connection's window used up in the middle: what is left waits for it, in line.
    c = Client(address, setting(INITIAL_WINDOW, 1 << 20)).greet()
    handle = session(c)
    stream = c.call("MasterService/RunStep", handle + field(3, b"c:0"))
    got = 0
    while got < 60000:
        kind, _, at, payload = c.frame()
        got += len(payload) if kind == DATA and at == stream else 0
    c.send(SETTINGS, 0, 0, setting(INITIAL_WINDOW, 0))
    c.send(WINDOW, 0, 0, struct.pack(">I", 1 << 20))
    c.send(PING, 0, 0, b"as told.")
    late = [f for f in c.until(lambda f: f[0] == PING and f[1] & ACK) if f[0] == DATA]
    allowed = 65535 - got
    assert sum(len(f[3]) for f in late) <= max(allowed, 0), [len(f[3]) for f in late]
    c.send(WINDOW, 0, stream, struct.pack(">I", 1 << 20))
    rest = c.answer(stream)
    assert got + sum(len(f[3]) for f in late) + len(rest) + 5 > BYTES


def settings_without_end(address):
    """Thousands of windows in one frame; thousands of frames that move the windows of a thousand streams."""
    c = Client(address).greet()
    c.send(SETTINGS, 0, 0, b"".join(setting(INITIAL_WINDOW, 1000 + i % 2) for i in range(2000)))
    assert c.ended() in (None, CALM)
    c = Client(address).greet()
    for _ in range(1000):
        c.headers("MasterService/ListDevices")
    some = b"".join(b"\0\0\6\4\0\0\0\0\0" + setting(INITIAL_WINDOW, 1000 + k % 2) for k in range(100))
    seen = []

    def acknowledged(f):
        seen.append(f[0] == SETTINGS and f[1] & ACK)
        return sum(map(bool, seen)) == 100
    try:
        for _ in range(400):  # all are answered, and the answers read: it is what they cost that ends it
            seen.clear()
            c.s.sendall(some)
            c.until(acknowledged)
    except (EOFError, ConnectionError):
        pass
    else:
        raise AssertionError("40000 frames that move a thousand windows each are borne")


def refused(address):
    """Each of these ends the connection it comes on, with a reason."""
    one = struct.pack(">I", 1)
    bad = [
        ("data on a stream that was never open", [(DATA, 0, 5, b"x")], 1),
        ("headers on an even stream", [(HEADERS, END_HEADERS, 2, b"\x83")], 1),
        ("a window of no bytes", [(WINDOW, 0, 0, b"\0\0\0\0")], 1),
        ("a window too large", [(WINDOW, 0, 0, struct.pack(">I", (1 << 31) - 1))], 3),
        ("a ping of three bytes", [(PING, 0, 0, b"abc")], 6),
        ("a ping on a stream", [(PING, 0, 1, b"12345678")], 1),
        ("settings of an odd size", [(SETTINGS, 0, 0, b"1234567")], 6),
        ("a block that cannot be read", [(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff")], 9),
        ("a block that is interrupted", [(HEADERS, 0, 1, b"\x83"), (PING, 0, 0, b"12345678")], 1),
        ("a continuation of nothing", [(CONTINUATION, END_HEADERS, 1, b"\x83")], 1),
        ("a push", [(5, END_HEADERS, 1, one + b"\x83")], 1),
    ]
    for name, frames, code in bad:
        c = Client(address)
        for f in frames:
            c.send(*f)
        got = c.ended()
        assert got == code, (name, got)


def reset_before_open(address):
    """gRPC resets a stream whose headers have not left yet: nobody else on the connection is to suffer."""
    c = Client(address)
    stream = c.call("MasterService/ListDevices", b"")
    c.send(RST, 0, 9, struct.pack(">I", 8))
    assert b"/device:CPU:0" in c.answer(stream)
    c.stream = 9
    assert b"/device:CPU:0" in c.answer(c.call("MasterService/ListDevices", b""))


def what_floods(address):
    """Pings whose answers are not read, headers without end, streams reset as soon as they are open."""
    c = Client(address)
    try:
        for _ in range(2000):
            c.s.sendall((b"\0\0\x08\x06\0\0\0\0\0" + b"12345678") * 500)
    except ConnectionError:
        pass
    c.ended()
    c = Client(address)
    c.headers("MasterService/ListDevices", 0)
    try:
        for _ in range(200):
            c.send(CONTINUATION, 0, 1, b"\0\1x\x7f" + bytes(127) * 1)
            c.send(CONTINUATION, 0, 1, (b"\0\1x\x01y") * 3000)
    except (ConnectionError, TimeoutError):
        pass
    c.ended()
    c = Client(address)
    for _ in range(20000):  # a client may cancel all that it has asked for
        c.send(RST, 0, c.headers("MasterService/ListDevices"), struct.pack(">I", 8))
    assert b"/device:CPU:0" in c.answer(c.call("MasterService/ListDevices", b""))
    try:
        for _ in range(100):  # but not without end
            c.s.sendall(b"".join(b"\0\0\1\1\4" + struct.pack(">I", c.stream + 2 * i) + b"\x83" +
                                 b"\0\0\4\3\0" + struct.pack(">II", c.stream + 2 * i, 8) for i in range(1, 1001)))
            c.stream += 2000
    except (ConnectionError, TimeoutError):
        pass


def main():
    with Cluster(ps=["shoal"]) as cluster:
        address = cluster.spec["ps"]["0"]

        def lives():
            c = Client(address)
            assert b"/device:CPU:0" in c.answer(c.call("MasterService/ListDevices", b""))
            assert cluster.tasks["ps", 0].process.poll() is None
        tests = [(f.__name__.replace("_", " "), lambda f=f: (f(address), lives()))
                 for f in (windows_that_shrink, settings_without_end, refused, reset_before_open, what_floods)]
        return report(tests)


if __name__ == "__main__":
    sys.exit(main())
