"""The cases of h2spec (HTTP/2 and HPACK, RFC 9113 and 7541) against a server, without the tool: every frame by hand.

A case is what is sent after the greeting, and what must come of it: an error of the connection or of the stream with
one of some codes, an answer, a ping's echo. As in h2spec a connection that closes counts as an error of it; where a
GOAWAY or RST_STREAM came, its code must be one of those asked for.
"""
# not on the soft device: frames by hand, no op runs
import struct
import sys

from cluster import Cluster, report
from http2_test import (ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW, PING, RST,
                        SETTINGS, WINDOW, Client, setting)

PRIORITY, PUSH, PADDED, WITH_PRIORITY = 2, 5, 8, 32
NO_ERROR, PROTOCOL, INTERNAL, FLOW, _, CLOSED, SIZE, REFUSED, CANCEL, COMPRESSION = range(10)
CALM = 11
PATH = "/tensorflow.MasterService/ListDevices"
MAX = (1 << 31) - 1


def literal(name, value):
    out = b"\0"
    for s in (name, value):
        s = s if isinstance(s, bytes) else s.encode()
        assert len(s) < 127
        out += bytes([len(s)]) + s
    return out


BASE = [(":method", "POST"), (":scheme", "http"), (":path", PATH), (":authority", "here")]


def block(*more, base=BASE):
    return b"".join(literal(*f) for f in (*base, *more))


def u32(n):
    return struct.pack(">I", n)


def opened(*more, end=True, stream=1, flags=END_HEADERS, base=BASE):
    return (HEADERS, flags | (END_STREAM if end else 0), stream, block(*more, base=base))


def priority(depends, weight=255):
    return u32(depends) + bytes([weight])


DUMMY = literal("x-dummy", "y" * 100)
TEST = b"\0\0\0\0\0"  # an empty message of gRPC's


def connection(*codes):
    return "connection", codes


def stream(*codes):
    return "stream", codes


PONG, ANSWER = ("pong", ()), ("answer", ())

# section: (name, frames or bytes to send, what must come)
CASES = {
    "3 and 4: the beginning, frames": [
        ("an unknown type", [(0x16, 0, 0, bytes(8))], PONG),
        ("an undefined flag", [(PING, 0x16, 0, bytes(8))], ("ping", ())),
        ("the reserved bit", [b"\0\0\x08\x06\x16\x80\0\0\0" + bytes(8)], ("ping", ())),
        ("DATA of 2^14 bytes", [opened(end=False), (DATA, END_STREAM, 1, b"\0" + u32(16379) + bytes(16379))], ANSWER),
        ("DATA larger than may be", [opened(end=False), b"\x10\0\x01" + b"\0\x01" + u32(1) + bytes(1 << 16)],
         stream(SIZE)),
        ("HEADERS larger than may be", [b"\x10\0\x01" + b"\x01\x05" + u32(1) + bytes(1 << 16)], connection(SIZE, CALM)),
        ("a block that cannot be read", [b"\0\0\x01\x01\x05\0\0\0\x01\x40"], connection(COMPRESSION)),
        ("PRIORITY inside a block", [opened(flags=0, end=False), (PRIORITY, 0, 1, priority(0)),
                                     (CONTINUATION, END_HEADERS, 1, DUMMY)], connection(PROTOCOL)),
        ("another's HEADERS inside a block", [opened(flags=0, end=False), opened(stream=3),
                                              (CONTINUATION, END_HEADERS, 1, DUMMY)], connection(PROTOCOL)),
    ],
    "5.1: states of a stream": [
        ("idle: DATA", [(DATA, END_STREAM, 1, b"test")], stream(PROTOCOL, CLOSED)),
        ("idle: RST_STREAM", [(RST, 0, 1, u32(CANCEL))], connection(PROTOCOL)),
        ("idle: WINDOW_UPDATE", [(WINDOW, 0, 1, u32(100))], connection(PROTOCOL)),
        ("idle: CONTINUATION", [(CONTINUATION, END_HEADERS, 1, block())], connection(PROTOCOL)),
        ("half closed: DATA", [opened(), (DATA, END_STREAM, 1, b"test")], stream(CLOSED)),
        ("half closed: HEADERS", [opened(), opened()], stream(CLOSED)),
        ("half closed: CONTINUATION", [opened(), (CONTINUATION, END_HEADERS, 1, block())], stream(CLOSED, PROTOCOL)),
        ("reset: DATA", [opened(end=False), (RST, 0, 1, u32(CANCEL)), (DATA, END_STREAM, 1, b"test")], stream(CLOSED)),
        ("reset: HEADERS", [opened(end=False), (RST, 0, 1, u32(CANCEL)), opened()], stream(CLOSED)),
        ("reset: CONTINUATION", [opened(end=False), (RST, 0, 1, u32(CANCEL)), (CONTINUATION, END_HEADERS, 1, DUMMY)],
         stream(CLOSED, PROTOCOL)),
        ("closed: DATA", [opened(), "answer", (DATA, END_STREAM, 1, b"test")], stream(CLOSED)),
        ("closed: HEADERS", [opened(), "answer", opened()], connection(CLOSED)),
        ("closed: CONTINUATION", [opened(), "answer", (CONTINUATION, END_HEADERS, 1, DUMMY)],
         connection(CLOSED, PROTOCOL)),
        ("closed: PRIORITY", [opened(), "answer", (PRIORITY, 0, 1, priority(0))], PONG),
        ("idle: PRIORITY", [(PRIORITY, 0, 1, priority(0))], PONG),
        ("half closed: RST_STREAM", [opened(), (RST, 0, 1, u32(CANCEL))], PONG),
        ("half closed: WINDOW_UPDATE", [(SETTINGS, 0, 0, setting(INITIAL_WINDOW, 0)), opened(),
                                        (WINDOW, 0, 1, u32(1))], ("data", 1)),
        ("half closed: PRIORITY", [(SETTINGS, 0, 0, setting(INITIAL_WINDOW, 0)), opened(),
                                   (PRIORITY, 0, 1, priority(0)), (WINDOW, 0, 1, u32(1))], ("data", 1)),
    ],
    "5: numbers, priorities, errors": [
        ("an even number", [opened(stream=2)], connection(PROTOCOL)),
        ("a lower number", [opened(stream=5), opened(stream=3)], connection(PROTOCOL)),
        ("HEADERS that depend on themselves", [(HEADERS, END_HEADERS | END_STREAM | WITH_PRIORITY, 1,
                                                priority(1) + block())], stream(PROTOCOL)),
        ("PRIORITY that depends on itself", [(PRIORITY, 0, 1, priority(1))], stream(PROTOCOL)),
        ("a ping on a stream", [(PING, 0, 3, bytes(8))], connection(PROTOCOL)),
        ("an extension's frame", [(0x16, 0, 0, bytes(8))], PONG),
        ("an extension's frame inside a block", [opened(flags=0), (0x16, 0, 0, bytes(8))], connection(PROTOCOL)),
    ],
    "6.1 to 6.3: DATA, HEADERS, PRIORITY": [
        ("DATA", [opened(end=False), (DATA, END_STREAM, 1, TEST)], ANSWER),
        ("DATA in pieces", [opened(end=False), (DATA, 0, 1, TEST[:2]), (DATA, END_STREAM, 1, TEST[2:])], ANSWER),
        ("DATA with padding", [opened(end=False), (DATA, END_STREAM | PADDED, 1, b"\x05" + TEST + bytes(5))], ANSWER),
        ("DATA on stream 0", [(DATA, END_STREAM, 0, b"test")], connection(PROTOCOL)),
        ("DATA with too much padding", [opened(("content-length", "4"), end=False),
                                        (DATA, END_STREAM | PADDED, 1, b"\x06test")], connection(PROTOCOL)),
        ("HEADERS with padding", [(HEADERS, END_HEADERS | END_STREAM | PADDED, 1, b"\x08" + block() + bytes(8))], ANSWER),
        ("HEADERS with a priority", [(HEADERS, END_HEADERS | END_STREAM | WITH_PRIORITY, 1, priority(0) + block())],
         ANSWER),
        ("HEADERS on stream 0", [opened(stream=0)], connection(PROTOCOL)),
        ("HEADERS with too much padding", [(HEADERS, END_HEADERS | END_STREAM | PADDED, 1,
                                            bytes([len(block()) + 2]) + block())], stream(PROTOCOL)),
        ("PRIORITY of 1", [(PRIORITY, 0, 1, priority(0, 0)), opened()], ANSWER),
        ("PRIORITY of 256", [(PRIORITY, 0, 1, priority(0, 255)), opened()], ANSWER),
        ("PRIORITY with a dependency", [(PRIORITY, 0, 3, priority(1, 0)), opened()], ANSWER),
        ("PRIORITY, exclusive", [(PRIORITY, 0, 1, priority(1 << 31, 0)), opened()], ANSWER),
        ("PRIORITY of an idle stream", [(PRIORITY, 0, 5, priority(3, 0)), opened()], ANSWER),
        ("PRIORITY on stream 0", [(PRIORITY, 0, 0, priority(0))], connection(PROTOCOL)),
        ("PRIORITY of four bytes", [opened(), (PRIORITY, 0, 1, u32(1))], stream(SIZE)),
    ],
    "6.4 and 6.5: RST_STREAM, SETTINGS": [
        ("RST_STREAM", [opened(end=False), (RST, 0, 1, u32(CANCEL))], PONG),
        ("RST_STREAM on stream 0", [(RST, 0, 0, u32(CANCEL))], connection(PROTOCOL)),
        ("RST_STREAM of three bytes", [opened(), (RST, 0, 1, b"\0\0\0")], stream(SIZE)),
        ("SETTINGS", [(SETTINGS, 0, 0, setting(3, 100))], ("settings", ())),
        ("SETTINGS, an ACK with a payload", [(SETTINGS, ACK, 0, b"\0")], connection(SIZE)),
        ("SETTINGS on a stream", [(SETTINGS, 0, 1, setting(3, 100))], connection(PROTOCOL)),
        ("SETTINGS of three bytes", [(SETTINGS, 0, 0, b"\0\x03\0")], connection(PROTOCOL, SIZE)),
        ("ENABLE_PUSH of 2", [(SETTINGS, 0, 0, setting(2, 2))], connection(PROTOCOL)),
        ("INITIAL_WINDOW_SIZE too large", [(SETTINGS, 0, 0, setting(4, 1 << 31))], connection(FLOW)),
        ("MAX_FRAME_SIZE too small", [(SETTINGS, 0, 0, setting(5, 16383))], connection(PROTOCOL)),
        ("MAX_FRAME_SIZE too large", [(SETTINGS, 0, 0, setting(5, 1 << 24))], connection(PROTOCOL)),
        ("an unknown setting", [(SETTINGS, 0, 0, setting(0xff, 1))], PONG),
        ("the last of two values counts", [(SETTINGS, 0, 0, setting(4, 100) + setting(4, 1)), opened()], ("data", 1)),
    ],
    "6.7 to 6.10: PING, GOAWAY, WINDOW_UPDATE, CONTINUATION": [
        ("PING", [], PONG),
        ("PING, an ACK", [(PING, ACK, 0, b"nobody's")], PONG),
        ("PING on a stream", [(PING, 0, 1, bytes(8))], connection(PROTOCOL)),
        ("PING of six bytes", [(PING, 0, 0, bytes(6))], connection(SIZE)),
        ("GOAWAY", [(GOAWAY, 0, 0, u32(0) + u32(0))], ("pong or end", ())),
        ("GOAWAY on a stream", [(GOAWAY, 0, 1, u32(0) + u32(0))], connection(PROTOCOL)),
        ("GOAWAY with an unknown code", [(GOAWAY, 0, 0, u32(0) + u32(0xff))], ("pong or end", ())),
        ("RST_STREAM with an unknown code", [opened(end=False), (RST, 0, 1, u32(0xff))], ("pong or end", ())),
        ("WINDOW_UPDATE of 0", [(WINDOW, 0, 0, u32(0))], connection(PROTOCOL)),
        ("WINDOW_UPDATE of 0 on a stream", [opened(end=False), (WINDOW, 0, 1, u32(0))], stream(PROTOCOL)),
        ("WINDOW_UPDATE of three bytes", [(WINDOW, 0, 0, b"\0\0\x01")], connection(SIZE)),
        ("WINDOW_UPDATE past 2^31-1", [(WINDOW, 0, 0, u32(MAX)), (WINDOW, 0, 0, u32(MAX))], connection(FLOW)),
        ("WINDOW_UPDATE past 2^31-1 on a stream", [opened(end=False), (WINDOW, 0, 1, u32(MAX)),
                                                   (WINDOW, 0, 1, u32(MAX))], stream(FLOW)),
        ("SETTINGS that lift a stream's window past 2^31-1", [
            opened(end=False), (WINDOW, 0, 1, u32(MAX - 65535)), (SETTINGS, 0, 0, setting(4, 65536))],
         connection(FLOW)),
        ("a window of 1", [(SETTINGS, 0, 0, setting(4, 1)), opened()], ("data", 1)),
        ("a window of 0, then 1", [(SETTINGS, 0, 0, setting(4, 0)), opened(), (SETTINGS, 0, 0, setting(4, 1))],
         ("data", 1)),
        ("a window below 0", [(SETTINGS, 0, 0, setting(4, 3)), opened(), "data", (SETTINGS, 0, 0, setting(4, 2)),
                              (WINDOW, 0, 1, u32(2))], ("data", 1)),
        ("CONTINUATION", [(HEADERS, END_STREAM, 1, block()[:5]), (CONTINUATION, END_HEADERS, 1, block()[5:])], ANSWER),
        ("CONTINUATION, several", [(HEADERS, END_STREAM, 1, block()[:5]), (CONTINUATION, 0, 1, block()[5:9]),
                                   (CONTINUATION, END_HEADERS, 1, block()[9:])], ANSWER),
        ("CONTINUATION, then DATA", [opened(flags=0, end=False), (CONTINUATION, 0, 1, DUMMY),
                                     (DATA, END_STREAM, 1, b"test")], connection(PROTOCOL)),
        ("CONTINUATION on stream 0", [opened(flags=0), (CONTINUATION, END_HEADERS, 0, DUMMY)], connection(PROTOCOL)),
        ("CONTINUATION after END_HEADERS", [opened(), (CONTINUATION, END_HEADERS, 1, DUMMY)], connection(PROTOCOL)),
        ("CONTINUATION after its own END_HEADERS", [opened(flags=0), (CONTINUATION, END_HEADERS, 1, DUMMY),
                                                    (CONTINUATION, END_HEADERS, 1, DUMMY)], connection(PROTOCOL)),
        ("CONTINUATION after DATA", [opened(flags=0, end=False), (DATA, END_STREAM, 1, b"test"),
                                     (CONTINUATION, 0, 1, DUMMY)], connection(PROTOCOL)),
    ],
    "8: requests": [
        ("a name in capitals", [opened(("X-TEST", "ok"))], stream(PROTOCOL)),
        ("an unknown pseudo-header", [opened((":test", "ok"))], stream(PROTOCOL)),
        ("an answer's pseudo-header", [opened((":status", "200"))], stream(PROTOCOL)),
        ("a pseudo-header in trailers", [opened(end=False), (DATA, 0, 1, TEST),
                                         (HEADERS, END_HEADERS | END_STREAM, 1, literal(":method", "POST"))],
         stream(PROTOCOL)),
        ("a pseudo-header after others", [(HEADERS, END_HEADERS | END_STREAM, 1, literal("x-test", "ok") + block())],
         stream(PROTOCOL)),
        ("a connection's header", [opened(("connection", "keep-alive"))], stream(PROTOCOL)),
        ("te other than trailers", [opened(("trailers", "test"), ("te", "trailers, deflate"))], stream(PROTOCOL)),
        ("an empty path", [opened(base=[*BASE[:2], (":path", ""), BASE[3]])], stream(PROTOCOL)),
        ("no method", [opened(base=BASE[1:])], stream(PROTOCOL)),
        ("no scheme", [opened(base=[BASE[0], *BASE[2:]])], stream(PROTOCOL)),
        ("no path", [opened(base=[*BASE[:2], BASE[3]])], stream(PROTOCOL)),
        ("two methods", [opened((":method", "POST"))], stream(PROTOCOL)),
        ("two schemes", [opened((":scheme", "http"))], stream(PROTOCOL)),
        ("two paths", [opened((":path", PATH))], stream(PROTOCOL)),
        ("a path with a NUL", [opened(base=[*BASE[:2], (":path", PATH.encode() + b"\0x"), BASE[3]])], stream(PROTOCOL)),
        ("content-length that is wrong", [opened(("content-length", "1"), end=False), (DATA, END_STREAM, 1, TEST)],
         stream(PROTOCOL)),
        ("content-length that is wrong, in pieces", [opened(("content-length", "1"), end=False), (DATA, 0, 1, TEST[:3]),
                                                     (DATA, END_STREAM, 1, TEST[3:])], stream(PROTOCOL)),
        ("a second HEADERS that does not end", [opened(end=False), (DATA, 0, 1, TEST),
                                                (HEADERS, END_HEADERS, 1, literal("x-test", "ok"))], stream(PROTOCOL)),
        ("a push", [(PUSH, END_HEADERS, 1, u32(3) + block())], connection(PROTOCOL)),
    ],
    "HPACK": [
        ("an index that is not there", [(HEADERS, END_HEADERS | END_STREAM, 1, block() + b"\xc6")],
         connection(COMPRESSION)),
        ("a literal with an index that is not there", [(HEADERS, END_HEADERS | END_STREAM, 1, block() + b"\x7f\x07\0")],
         connection(COMPRESSION)),
        ("index 0", [(HEADERS, END_HEADERS | END_STREAM, 1, block() + b"\x80")], connection(COMPRESSION)),
        ("a table's size at the end", [(HEADERS, END_HEADERS | END_STREAM, 1, block() + b"\x21")],
         connection(COMPRESSION)),
        ("a table's size too large", [(HEADERS, END_HEADERS | END_STREAM, 1, b"\x3f\xe2\x1f" + block())],
         connection(COMPRESSION)),
        ("too much padding in Huffman's code", [
            (HEADERS, END_HEADERS | END_STREAM, 1, block() + b"\0\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff")],
         connection(COMPRESSION)),
        ("padding of zeros in Huffman's code", [
            (HEADERS, END_HEADERS | END_STREAM, 1, block() + b"\0\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90")],
         connection(COMPRESSION)),
        ("the end of Huffman's code in it", [
            (HEADERS, END_HEADERS | END_STREAM, 1,
             block() + b"\0\x85\xf2\xb2\x4a\x84\xff\x87\x49\x51\xff\xff\xff\xfa\x7f")], connection(COMPRESSION)),
        ("an indexed field, a literal that is kept, Huffman's code", [
            (HEADERS, END_HEADERS | END_STREAM, 1,
             b"\x83\x86" + b"\x44" + bytes([len(PATH)]) + PATH.encode() + b"\x41\x8c"
             b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff")], ANSWER),
    ],
}


def until(c, wanted):
    """The first frame that is wanted; None: the connection has closed before."""
    try:
        return c.until(wanted)[-1]
    except (EOFError, ConnectionError):
        return None


def send(c, steps):
    for s in steps:
        if s == "answer":
            assert until(c, lambda f: f[2] == 1 and f[0] in (DATA, HEADERS) and f[1] & END_STREAM)
        elif s == "data":
            assert until(c, lambda f: f[0] == DATA)
        elif isinstance(s, bytes):
            c.s.sendall(s)
        else:
            c.send(*s)


def judge(c, kind, codes):
    if kind in ("connection", "stream"):
        f = until(c, lambda f: f[0] == GOAWAY or (kind == "stream" and f[0] == RST))
        code = None if f is None else struct.unpack(">I", f[3][4:8] if f[0] == GOAWAY else f[3])[0]
        assert code is None or code in codes, f"code {code}, not one of {codes}"
    elif kind in ("pong", "pong or end"):
        try:
            c.send(PING, 0, 0, b"still ok")
        except ConnectionError:
            assert kind == "pong or end"
            return
        f = until(c, lambda f: (f[0] == PING and f[1] & ACK and f[3] == b"still ok") or f[0] == GOAWAY)
        assert kind == "pong or end" or (f and f[0] == PING), f
    elif kind == "ping":
        assert until(c, lambda f: f[0] == PING)
    elif kind == "settings":
        assert until(c, lambda f: f[0] == SETTINGS and f[1] & ACK)
    elif kind == "data":
        f = until(c, lambda f: f[0] in (DATA, RST, GOAWAY))
        assert f and f[0] == DATA and len(f[3]) == codes, f
    else:
        f = until(c, lambda f: f[0] in (HEADERS, RST, GOAWAY))
        assert f and f[0] == HEADERS and f[2] == 1, f


def run(address, cases):
    wrong = []
    for name, steps, (kind, codes) in cases:
        c = Client(address)
        try:
            c.until(lambda f: f[0] == SETTINGS and f[1] & ACK)  # both have greeted
            try:
                send(c, steps)
            except ConnectionError:
                pass  # it did not wait for all of it
            judge(c, kind, codes)
        except (AssertionError, TimeoutError) as e:
            wrong.append(f"{name}: {e!r}")
        finally:
            c.s.close()
    assert not wrong, "\n".join(wrong)


def preface(address):
    """What does not begin as HTTP/2 does is hung up on."""
    for junk in (b"INVALID CONNECTION PREFACE\r\n\r\n", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"):
        c = Client.__new__(Client)
        c.connect(address)
        c.s.sendall(junk)
        c.ended()


def main():
    with Cluster(ps=["shoal"]) as cluster:
        address = cluster.spec["ps"]["0"]
        tests = [("3.5: the preface", lambda: preface(address))]
        tests += [(name, lambda cases=cases: run(address, cases)) for name, cases in CASES.items()]

        def concurrency():
            """More streams at once than the server announces: one is refused, or the connection."""
            c = Client(address, setting(INITIAL_WINDOW, 0))
            most = None
            while most is None:
                kind, flags, _, payload = c.frame()
                for at in range(0, len(payload) if kind == SETTINGS and not flags & ACK else 0, 6):
                    if payload[at + 1] == 3:
                        most = struct.unpack(">I", payload[at + 2:at + 6])[0]
            c.send(SETTINGS, ACK, 0)
            one = block()
            frame = struct.pack(">I", len(one))[1:] + bytes([HEADERS, END_HEADERS | END_STREAM])
            try:
                for at in range(0, most + 1, 1024):
                    c.s.sendall(b"".join(frame + u32(2 * i + 1) + one for i in range(at, min(at + 1024, most + 1))))
            except ConnectionError:
                pass
            judge(c, *stream(PROTOCOL, REFUSED))
        tests.append(("5.1.2: streams at once", concurrency))
        return report(tests)


if __name__ == "__main__":
    sys.exit(main())
