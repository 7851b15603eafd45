"""Connections that mean no good: floods, resets, windows of nothing, bytes that are not HTTP/2. The server holds little,
goes on for others, and ends well."""
# not on the soft device: connections that mean no good, no op runs
import os
import socket
import struct
import subprocess
import sys
import time

from cluster import PATIENCE, SHOAL, Cluster, report, until
from http2_test import (CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RST, SETTINGS, WINDOW,
                        call_fields, frame)

MB = 1 << 20


def call(stream, method="GetStatus", message=b"\0\0\0\0\0"):
    block = call_fields("WorkerService/" + method)
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, message)


def resident(task):
    with open(f"/proc/{task.process.pid}/status") as f:
        return [int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS")][0]


def connect(c):
    host, port = c.spec["worker"]["0"].rsplit(":", 1)
    s = socket.create_connection((host, int(port)))
    s.settimeout(PATIENCE)
    return s


def pour(s, piece, most):
    """Sends, never reads; until the server has had enough, or most bytes are out."""
    s.settimeout(1)
    sent = 0
    try:
        while sent < most:
            sent += s.send(piece)
    except OSError:  # closed, reset, or nothing goes any more
        pass
    return sent


def held(fn, most=48 * MB):
    """fn(cluster), with a server whose memory must not grow by more than most, and which must still answer."""
    with Cluster(["--max_request_bytes=%d" % (16 * MB)], worker=["shoal"]) as c:
        task = c.tasks["worker", 0]
        before = resident(task)
        kept = fn(c)
        grown = resident(task) - before
        assert grown < most, f"{grown / MB:.0f} MB more"
        subprocess.run([SHOAL, "status", c.target("worker")], check=True, capture_output=True, timeout=PATIENCE)
        for s in kept or ():
            s.close()
    assert task.process.returncode == 0, task.text()


def pings(c):
    s = connect(c)
    pour(s, PREFACE + frame(SETTINGS, 0, 0), 1)
    pour(s, frame(PING, 0, 0, b"12345678") * 1000, 64 * MB)
    return [s]


def settings(c):
    s = connect(c)
    pour(s, PREFACE + frame(SETTINGS, 0, 0), 1)
    pour(s, frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)) * 1000, 64 * MB)
    return [s]


def resets(c):
    """Calls that are reset as soon as they are made."""
    s = connect(c)
    s.sendall(PREFACE + frame(SETTINGS, 0, 0))
    for i in range(20000):
        stream = 2 * i + 1
        s.sendall(call(stream) + frame(RST, 0, stream, b"\0\0\0\x08"))
    return [s]


def no_window(c):
    """Answers that can never be sent."""
    s = connect(c)
    s.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
    pour(s, b"".join(call(2 * i + 1) for i in range(20000)), 1)
    return [s]


def unread(c):
    """Errors by the thousand that nobody reads."""
    s = connect(c)
    s.sendall(PREFACE + frame(SETTINGS, 0, 0))
    s.settimeout(1)
    try:
        for i in range(100000):
            s.sendall(call(2 * i + 1, "Nothing" * 10))
    except OSError:
        pass
    return [s]


def promises(c):
    """Messages said to be large, of which little comes."""
    sockets = []
    for _ in range(20):
        s = connect(c)
        s.sendall(PREFACE + frame(SETTINGS, 0, 0))
        for i in range(20):
            head = call(2 * i + 1)
            s.sendall(head[:head.index(b"application/grpc") + 16] +
                      frame(DATA, 0, 2 * i + 1, b"\0" + struct.pack(">I", 15 * MB) + b"x"))
        sockets.append(s)
    time.sleep(0.5)
    return sockets


def headers_without_end(c):
    s = connect(c)
    pour(s, PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, 0, 1, b"\0\1a\1b"), 1)
    pour(s, frame(CONTINUATION, 0, 1, b"\0\1a\1b" * 100) * 100, 64 * MB)
    return [s]


def not_http2(c):
    sockets = []
    for bytes_ in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", os.urandom(1000), PREFACE + b"\xff" * 100, b""):
        s = connect(c)
        s.sendall(bytes_)
        sockets.append(s)
    for s in sockets[:-1]:
        try:
            while s.recv(65536):  # it hangs up
                pass
        except ConnectionResetError:
            pass
    return sockets


def without_descriptors():
    """Whoever says nothing gives way to those who come, also where descriptors run out before the count is full."""
    c = Cluster(["--greeting_timeout=100000", "--log_level=none"], worker=["shoal"])
    c.tasks["worker", 0].prefix = ["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh"]
    with c:
        mute = [connect(c) for _ in range(80)]
        until(lambda: subprocess.run([SHOAL, "status", c.target("worker")], capture_output=True).returncode == 0)
        for s in mute:
            s.close()
    assert c.tasks["worker", 0].process.returncode == 0


def descriptors():
    """A server takes as many descriptors as it may have, whatever its shell thinks."""
    c = Cluster(worker=["shoal"])
    c.tasks["worker", 0].prefix = ["sh", "-c", 'ulimit -S -n 256 && exec "$@"', "sh"]
    with c, open("/proc/%d/limits" % c.tasks["worker", 0].process.pid) as f:
        soft, hard = [line.split()[3:5] for line in f if line.startswith("Max open files")][0]
        assert soft == hard, (soft, hard)


TESTS = [(fn.__name__.replace("_", " "), lambda fn=fn: held(fn)) for fn in (
    pings, settings, resets, no_window, unread, promises, headers_without_end, not_http2)] + [
        (fn.__name__.replace("_", " "), fn) for fn in (without_descriptors, descriptors)]

if __name__ == "__main__":
    sys.exit(report(TESTS))
