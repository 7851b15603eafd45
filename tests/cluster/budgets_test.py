"""What one client may make a server hold, and for how long: each budget and time-out of the transport is met by a client
that wants more, and an innocent one is served all the same. Frames by hand, no TensorFlow.

Nothing here is measured by the clock: what must happen is waited for.
"""
# not on the soft device: frames by hand, no op runs
import gzip
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from cluster import ROOT, SHOAL, Cluster, report, sanitized
from http2_test import (CALM, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW, RST, WAIT, WINDOW,
                        Client, field, session, setting)

MB = 1 << 20


def one(*flags):
    return Cluster(flags, ps=["shoal"])


def address(c):
    return c.spec["ps"]["0"]


def serves(c, source=None):
    client = Client(address(c), source=source).greet()
    assert b"/device:CPU:0" in client.answer(client.call("MasterService/ListDevices", b""))
    assert c.tasks["ps", 0].process.poll() is None
    client.s.close()


def memory(c, which="VmRSS"):
    with open(f"/proc/{c.tasks['ps', 0].process.pid}/status") as f:
        return int(re.search(which + r":\s+(\d+)", f.read()).group(1)) // 1024


def eventually(fn):
    """What fn returns when it gets through; it may be hung up on before."""
    end = time.time() + WAIT
    while True:
        try:
            return fn()
        except (EOFError, ConnectionError):
            assert time.time() < end
            time.sleep(0.1)


def prefix(n, compressed=0):
    return bytes([compressed]) + struct.pack(">I", n)


def begin(client, n, some, method="MasterService/CreateSession", compressed=0):
    """Opens a call with a message of n bytes, and sends no more than these of it."""
    stream = client.headers(method)
    client.upload({stream: prefix(n, compressed) + some}, end=False)
    return stream


def said(client, stream):
    """The first frame that the server says of a call: headers that end it are an error."""
    f = client.until(lambda f: f[2] == stream and f[0] in (HEADERS, RST))[-1]
    return "error" if f[0] == RST or f[1] & END_STREAM else "answer"


def at_once(jobs):
    """Runs them side by side, and all to their ends."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        for f in [pool.submit(job) for job in jobs]:
            f.result()


def uploads():
    """Sixty requests of 3.9 MB at once, each within the limit, all together far beyond it: who finds no room is held back
    until there is some, and all succeed; on connections of their own, and on one."""
    n = 3900000
    message = field(15, bytes(n))  # a field that nobody knows

    def upload(c):
        client = Client(address(c)).greet()
        assert b"/device:CPU:0" in client.answer(client.call("MasterService/ListDevices", message))
        client.s.close()

    with one(f"--max_held_bytes={20 * MB}", "--room_timeout=1000", "--stall_timeout=1000") as c:
        at_once([lambda: upload(c)] * 60)
        client = Client(address(c)).greet()
        streams = [client.headers("MasterService/ListDevices") for _ in range(60)]
        client.upload({stream: prefix(len(message)) + message for stream in streams})
        assert set(said_of(client, streams).values()) == {"answer"}
        client = Client(address(c)).greet()
        stream = begin(client, 21 * MB, b"")  # never can have room
        assert said(client, stream) == "error"
        serves(c)


def standing_still():
    """Requests that have room and stop in the middle, or come by drops, hold nobody up for long whose turn is next: they
    lose it. Smaller ones go before one that does not fit."""
    with one(f"--max_held_bytes={27 * MB}", "--room_timeout=1000", "--stall_timeout=4") as c:
        still, drips = Client(address(c)).greet(), Client(address(c)).greet()
        large = Client(address(c)).greet()
        streams = [still.headers("MasterService/ListDevices") for _ in range(20)]
        drop = drips.headers("MasterService/ListDevices")
        some = prefix(5 * MB) + bytes(16000)
        drips.upload({drop: some}, end=False)
        still.upload({stream: some for stream in streams}, end=False)
        begin(large, 16 * MB, bytes(16000))
        for each in (still, large):
            each.send(6, 0, 0, b"all read")
            each.until(lambda f: f[0] == 6)
        done = threading.Event()
        dripping = threading.Thread(target=drip, args=(drips, drop, done))
        dripping.start()
        try:
            answer, end = b"", time.time() + WAIT
            while b"/device:CPU:0" not in answer:  # on a machine that is slow it may be found late, too
                assert time.time() < end
                client = Client(address(c)).greet()
                answer = client.answer(client.call("MasterService/ListDevices", field(15, bytes(5 * MB))))
            assert said(still, streams[0]) == "error"
            assert said(drips, drop) == "error"
        finally:
            done.set()
            dripping.join()


def stood_still():
    """A server that is stopped and goes on later does not blame those who had room for the time it was away."""
    message = field(15, bytes(12 * MB))
    data = prefix(len(message)) + message
    for tries in range(5):
        with one(f"--max_held_bytes={20 * MB}", "--room_timeout=1000", "--stall_timeout=6") as c:
            has, waits = Client(address(c)).greet(), Client(address(c)).greet()
            first = has.headers("MasterService/ListDevices")
            has.upload({first: data[:16000]}, end=False)
            has.until(lambda f: f[0] == WINDOW and f[2] == first)  # it has room
            second = waits.headers("MasterService/ListDevices")
            waits.upload({second: data[:16000]}, end=False)
            waits.send(6, 0, 0, b"all read")
            waits.until(lambda f: f[0] == 6)
            before = time.time()
            task = c.tasks["ps", 0]
            task.kill(signal.SIGSTOP)
            time.sleep(8)
            task.kill(signal.SIGCONT)
            on = time.time()
            time.sleep(2.5)  # silent for less than it may be
            has.upload({first: data[16000:]})
            mine = time.time() - on + (on - before - 8)
            if said(has, first) == "answer":
                waits.upload({second: data[16000:]})
                assert said(waits, second) == "answer"
                return
            assert mine > 4.5, mine  # the machine was away, too: once more


def drip(client, stream, done):
    while not done.wait(0.5) and stream not in client.over:
        client.send(DATA, 0, stream, b".")


def idle_requests():
    """Hundreds of requests that begin and say nothing more hold what they have sent, and nobody up."""
    with one(f"--max_request_bytes={4 * MB}") as c:
        client = Client(address(c)).greet()
        for _ in range(800):
            begin(client, 3900000, b"x")
        big = Client(address(c)).greet()
        session(big)  # 300 kB
        serves(c)


def largest_request_bounds_them():
    """Where requests may have 1 MiB, 68 MiB are held (44 for one address, but for what is kept for small ones): thirty
    requests have room side by side; of a hundred some wait, and who has room and is silent loses it."""
    with one(f"--max_request_bytes={MB}", "--room_timeout=1000", "--stall_timeout=1", "--request_timeout=1000") as c:
        for n, lose in ((30, False), (100, True)):
            client = Client(address(c)).greet()
            streams = [begin(client, MB, bytes(16000)) for _ in range(n)]
            while not lose and any(client.windows[stream] < MB - 16384 for stream in streams):
                client.take()
            assert not lose or said(client, streams[0]) == "error"
            client.s.close()
        serves(c)


def bombs():
    """Requests that are small until they are inflated: within the limit of a message, and of all of them together."""
    packed = gzip.compress(bytes(15 * MB), 9)
    fields = (("grpc-encoding", "gzip"),)
    for flags in ((f"--max_request_bytes={4 * MB}",), (f"--max_request_bytes={16 * MB}", f"--max_held_bytes={64 * MB}")):
        with one(*flags) as c:
            before = memory(c, "VmHWM")
            client = Client(address(c)).greet()
            streams = []
            for _ in range(100):
                stream = client.headers("MasterService/CreateSession", more=fields)
                data = prefix(len(packed), 1) + packed
                client.send(DATA, 0, stream, data[:16384])
                client.send(DATA, END_STREAM, stream, data[16384:])
                streams.append(stream)
            left = set(streams)
            while left:
                f = client.until(lambda f: f[0] in (HEADERS, RST))[-1]
                if f[1] & END_STREAM or f[0] == RST:
                    left.discard(f[2])
            # All of them at once would be 1,500 MB; what a sanitizer keeps of memory that was freed is 256 MB.
            assert memory(c, "VmHWM") - before < (900 if sanitized() else 400), memory(c, "VmHWM")
            serves(c)
    # What is not known is skipped, so that all is well with a request that has 15 MB of it, where there is room.
    packed = gzip.compress(b"\x7a\x80\x80\xc0\x07" + bytes(15 * MB), 9)
    for room, fits in ((12 * MB, False), (64 * MB, True)):
        with one(f"--max_request_bytes={16 * MB}", f"--max_held_bytes={room}") as c:
            client = Client(address(c)).greet()
            stream = client.headers("MasterService/ListDevices", more=fields)
            data = prefix(len(packed), 1) + packed
            client.send(DATA, 0, stream, data[:16384])
            client.send(DATA, END_STREAM, stream, data[16384:])
            first = client.until(lambda f: f[2] == stream and f[0] in (HEADERS, RST))[-1]
            assert (first[0] == HEADERS and not first[1] & END_STREAM) == fits, (room, first)
            serves(c)


def fields_from_a_table():
    """A path of 4000 bytes once, then thousands of calls that name it by a number: what is kept is not that path."""
    with one() as c:
        before = memory(c)
        clients = []
        for _ in range(2):
            client = Client(address(c)).greet()
            path = b"/" + b"p" * 3900
            size = b"\x7f" + bytes([(len(path) - 127) & 127 | 128, (len(path) - 127) >> 7])
            block = b"\x83\x86\x44" + size + path + b"\x41\x04here"  # kept as fields 63 and 62
            client.stream += 2
            client.send(HEADERS, END_HEADERS, client.stream, block)
            for _ in range(20):
                frames = b""
                for _ in range(500):
                    client.stream += 2
                    frames += b"\0\0\4\1\4" + struct.pack(">I", client.stream) + b"\x83\x86\xbf\xbe"
                client.s.sendall(frames)
            client.send(6, 0, 0, b"all read")
            client.until(lambda f: f[0] == 6)
            clients.append(client)
        assert memory(c) - before < 70, (before, memory(c))
        # What is answered to an unknown method shows no more than its beginning.
        client = clients[0]
        client.send(DATA, END_STREAM, client.stream, prefix(0))
        f = client.until(lambda f: f[0] == HEADERS)[-1]
        assert f[1] & END_STREAM and len(f[3]) < 500, len(f[3])
        serves(c)


def references_to_fields():
    """Blocks of a few bytes that name large fields of the table again and again: looking at them all is work, and has an
    end."""
    with one() as c:
        client = Client(address(c)).greet()
        value = b"v" * 3900
        size = b"\x7f" + bytes([(len(value) - 127) & 127 | 128, (len(value) - 127) >> 7])
        client.send(HEADERS, END_HEADERS | END_STREAM, 1, b"\x83\x86\x84\x40\1k" + size + value)
        block = b"\x83\x86\x84" + b"\xbe" * 20
        try:
            for i in range(5000):
                client.send(HEADERS, END_HEADERS | END_STREAM, 2 * i + 3, block)
        except ConnectionError:
            pass
        assert client.ended() in (CALM, None)
        serves(c)


def refused_requests():
    """A request that is refused is not run as if it were empty; one that is refused and lost holds nothing, and a server
    that is told to end does."""
    with one(f"--max_request_bytes={MB}") as c:
        client = Client(address(c)).greet()
        streams = []
        for _ in range(50):
            streams.append(client.headers("MasterService/CreateSession"))
            client.send(DATA, END_STREAM, streams[-1], prefix(MB + 1) + b"x")
        assert set(said_of(client, streams).values()) == {"error"}
        serves(c)
        status = subprocess.run([SHOAL, "status", c.target("ps")], capture_output=True, text=True, timeout=WAIT).stdout
        assert "\n0 master sessions" in status, status
        value = b"v" * 3900
        size = b"\x7f" + bytes([(len(value) - 127) & 127 | 128, (len(value) - 127) >> 7])
        for end in (fields_frame(b"\x40\1k" + size + value + b"\xbe" * 5), fields_frame(b"") + half_message):
            client = Client(address(c)).greet()
            client.s.sendall(end + b"\0\0\4\3\0\0\0\0\1\0\0\0\x08")  # RST_STREAM before there is an answer
            client.send(6, 0, 0, b"all read")
            client.until(lambda f: f[0] == 6)
            client.s.close()
        serves(c)
        task = c.tasks["ps", 0]
        task.kill(signal.SIGTERM)
        assert task.process.wait(WAIT) == 0, task.text()


half_message = b"\0\0\6\0\1\0\0\0\1" + prefix(100) + b"x"  # the stream ends in the middle of it


def fields_frame(more):
    block = b"\x83\x86\x44\x23/tensorflow.MasterService/ListDevic" + more
    return struct.pack(">I", len(block))[1:] + bytes([HEADERS, END_HEADERS | bool(more)]) + b"\0\0\0\1" + block


def requests_that_stop():
    """Half a request, half a header block, a connection that says nothing, a request that is all there and has no end:
    each is given up after its time."""
    with one("--request_timeout=8", "--greeting_timeout=8") as c:
        half, block = Client(address(c)).greet(), Client(address(c)).greet()
        stream = begin(half, 1000, bytes(10))
        endless = begin(half, 10, bytes(10))
        block.headers("MasterService/ListDevices", 0)
        mutes = []
        for start in (b"", b"PRI * HTTP/2.0\r\n"):
            mutes.append(Client.__new__(Client))
            mutes[-1].connect(address(c))
            mutes[-1].s.sendall(start)
        assert said_of(half, [stream, endless]) == {stream: "error", endless: "error"}
        assert b"/device:CPU:0" in half.answer(half.call("MasterService/ListDevices", b""))  # the connection is fine
        for client in (block, *mutes):
            client.ended()
        serves(c)


def idle_connections():
    with one("--idle_timeout=8") as c:
        client = Client(address(c)).greet()
        assert b"/device:CPU:0" in client.answer(client.call("MasterService/ListDevices", b""))
        assert client.until(lambda f: f[0] == GOAWAY)[-1][3][4:8] == bytes(4)  # NO_ERROR
        client.ended()
        serves(c)


def unread_answers():
    """Answers that nobody reads, on several connections: bounded all together, and in time; given back at the end."""
    with one(f"--max_unread_bytes={4 * MB}") as c:
        handle = session(Client(address(c)).greet())
        clients, results = [], []
        for _ in range(4):
            client = Client(address(c), setting(INITIAL_WINDOW, 0)).greet()
            streams = [client.call("MasterService/RunStep", handle + field(3, b"c:0")) for _ in range(8)]
            # Calls that are refused beyond that many: their streams are reset.
            results += [said_of(client, streams)]
            clients.append(client)
        answered = sum(list(r.values()).count("answer") for r in results)
        assert answered * 300000 <= 4 * MB + 300000, results
        assert answered >= 4 and answered < 32, results
        for client in clients:
            client.s.close()
        end = time.time() + WAIT
        while True:
            client = Client(address(c), setting(INITIAL_WINDOW, 1 << 20)).greet()
            client.send(8, 0, 0, struct.pack(">I", 1 << 20))
            stream = client.call("MasterService/RunStep", handle + field(3, b"c:0"))
            if said(client, stream) == "answer":
                break
            assert time.time() < end
            time.sleep(0.1)
    with one("--unread_timeout=8") as c:
        handle = session(Client(address(c)).greet())
        client = Client(address(c), setting(INITIAL_WINDOW, 0)).greet()
        client.call("MasterService/RunStep", handle + field(3, b"c:0"))
        client.ended()
        serves(c)


def said_of(client, streams):
    out = {}
    while len(out) < len(streams):
        f = client.until(lambda f: f[0] in (HEADERS, RST))[-1]
        out.setdefault(f[2], "error" if f[0] == RST or f[1] & END_STREAM else "answer")
    return out


def waiting_step(client):
    """A session in which a step on d waits for what nobody will put into a queue; its handle's field."""
    types = field(5, field(1, b"component_types") + field(2, field(1, b"\x32\1\1")))
    graph = (field(1, field(1, b"q") + field(2, b"FIFOQueueV2") + types) +
             field(1, field(1, b"d") + field(2, b"QueueDequeueV2") + field(3, b"q") + types))
    answer = client.answer(client.call("MasterService/CreateSession", field(1, graph)))
    return answer[:2 + answer[1]]


def connections():
    """No more than there may be; one that goes, or that has long been idle, makes room for another."""
    with one("--max_connections=5", "--max_address_connections=5", "--greeting_timeout=1000") as c:
        clients = [Client(address(c)).greet() for _ in range(5)]
        handle = waiting_step(clients[0])
        for client in clients:
            client.last = client.call("MasterService/RunStep", handle + field(4, b"d"))  # at work
        clients[0].send(6, 0, 0, b"all read")
        clients[0].until(lambda f: f[0] == 6)
        extra = Client.__new__(Client)
        extra.connect(address(c))
        extra.ended()
        clients.pop().s.close()
        eventually(lambda: serves(c))
        for client in clients:
            client.send(RST, 0, client.last, struct.pack(">I", 8))  # idle from now on
        clients.append(eventually(lambda: Client(address(c)).greet()))
        begin(clients[-1], 1000, b"")
        eventually(lambda: serves(c))
    # So does one that has not begun, or stopped in the middle of its first request: a table full of them is no siege.
    # Who is silent since its request waits for room, for longer than they are, is held back and not idle.
    with one("--max_connections=5", "--max_address_connections=5", "--greeting_timeout=600", "--request_timeout=600",
             f"--max_held_bytes={20 * MB}", "--room_timeout=1000") as c:
        mutes = [Client.__new__(Client) for _ in range(5)]
        for client in mutes:
            client.connect(address(c))
        busy, waits, *halves = [eventually(lambda: Client(address(c)).greet()) for _ in range(5)]
        handle = waiting_step(busy)
        busy.call("MasterService/RunStep", handle + field(4, b"d") + field(15, bytes(12 * MB)))
        begin(waits, 12 * MB, bytes(16000))
        for client in halves:
            begin(client, 1000, b"")
        eventually(lambda: serves(c))
        waits.send(6, 0, 0, b"still on")
        waits.until(lambda f: f[0] == 6)


def addresses():
    """One address has its share, three quarters of the connections, all of them at work: what it wants beyond that is not
    taken, and who comes from another is served. The share is given back; idle ones of the own address make room first."""
    with one("--max_connections=8") as c:
        clients = [Client(address(c)).greet() for _ in range(6)]
        handle = waiting_step(clients[0])
        for client in clients:
            client.last = client.call("MasterService/RunStep", handle + field(4, b"d"))
            client.send(6, 0, 0, b"all read")
            client.until(lambda f: f[0] == 6)
        for _ in range(3):
            extra = Client.__new__(Client)
            extra.connect(address(c))
            extra.ended()
        serves(c, "127.0.0.2")
        other = Client(address(c), source="127.0.0.2").greet()
        eventually(lambda: serves(c, "127.0.0.3"))  # the server may not have seen yet that the one before has gone
        clients.pop().s.close()
        eventually(lambda: serves(c))
        clients.append(eventually(lambda: Client(address(c)).greet()))
        clients[-1].last = clients[-1].call("MasterService/RunStep", handle + field(4, b"d"))
        clients[0].send(RST, 0, clients[0].last, struct.pack(">I", 8))  # idle from now on
        eventually(lambda: serves(c))
        assert b"/device:CPU:0" in other.answer(other.call("MasterService/ListDevices", b""))
        assert "--max_address_connections=6" in c.tasks["ps", 0].text()


def shares_of_addresses():
    """However many connections it opens, an address has three quarters of sessions, calls and room for requests, and who
    comes from another finds the rest."""
    with one("--max_sessions=8", "--max_calls=100", f"--max_held_bytes={32 * MB}", "--request_timeout=1000",
             "--room_timeout=1000", "--stall_timeout=1000") as c:
        clients = [Client(address(c)).greet() for _ in range(4)]
        other = Client(address(c), source="127.0.0.2").greet()
        for client in clients[:3]:
            session(client), session(client)
        assert said(clients[3], clients[3].call("MasterService/CreateSession", b"")) == "error"
        session(other), session(other)
        for client in clients:
            stream = begin(client, 8 * MB, bytes(16000))
            if client in clients[:2]:  # has room, and the others wait
                client.until(lambda f: f[0] == WINDOW and f[2] == stream)
        message = field(15, bytes(9 * MB))
        assert b"/device:CPU:0" in other.answer(other.call("MasterService/ListDevices", message))
        for client in reversed(clients):
            for _ in range(15 if client is not clients[0] else 26):  # 75 with those above, 11 more than a few
                client.headers("MasterService/ListDevices")
            client.send(6, 0, 0, b"all read")
            assert RST not in [f[0] for f in client.until(lambda f: f[0] == 6)]
        assert said(clients[0], clients[0].headers("MasterService/ListDevices")) == "error"
        streams = [other.headers("MasterService/ListDevices") for _ in range(24)]
        other.send(DATA, END_STREAM, streams[-1], prefix(0))
        assert said_of(other, streams[-1:]) == {streams[-1]: "answer"}


def calls():
    """More calls at once than there may be are refused, on a connection and in all; a few (16) each client may have."""
    with one("--max_calls=48", "--max_connection_calls=35", "--request_timeout=1000") as c:
        first = Client(address(c)).greet()
        for _ in range(35):
            begin(first, 1000, b"")
        first.send(6, 0, 0, b"all read")
        first.until(lambda f: f[0] == 6)
        second = Client(address(c), source="127.0.0.2").greet()
        streams = [second.headers("MasterService/ListDevices") for _ in range(21)]
        refused = set()
        while len(refused) < 5:
            refused.add(second.until(lambda f: f[0] == RST)[-1][2])
        assert refused == set(streams[16:]), (refused, streams)
        first.s.close()
        end = time.time() + WAIT
        while True:
            stream = second.call("MasterService/ListDevices", b"")
            if said(second, stream) == "answer":
                break
            assert time.time() < end
            time.sleep(0.05)
    with one("--max_connection_calls=35", "--request_timeout=1000") as c:
        greedy = Client(address(c)).greet()  # knows how many it may have
        for _ in range(36):
            greedy.headers("MasterService/ListDevices")
        greedy.ended()


def framing():
    """HTTP/2's own tables count, too: who opens calls until they are too large loses its connection, and nobody else."""
    with one("--max_connection_framing_bytes=1000000", "--request_timeout=1000") as c:
        other, greedy = Client(address(c)).greet(), Client(address(c)).greet()
        try:
            for _ in range(10000):
                greedy.headers("MasterService/ListDevices")
        except ConnectionError:
            pass
        greedy.ended()
        assert said(other, other.call("MasterService/ListDevices", b"")) == "answer"


def table():
    """docs/security.md has the flags that --help has, with the same words and defaults."""
    text = subprocess.run([SHOAL, "server", "--help"], capture_output=True, text=True, timeout=WAIT).stdout
    with open(f"{ROOT}/docs/security.md") as f:
        rows = re.findall(r"^\| `--(\w+)` \| (.*?) \|$", f.read(), re.M)
    documented = {name: " ".join(words.split()) for name, words in rows}
    with open(f"{ROOT}/src/rpc/limits.c") as f:
        flags = re.findall(r'\{"(\w+)",', f.read())
    assert len(flags) >= 15
    for name in flags:
        shown = re.search(rf"--{name}=\w+\s+(.*(?:\n {{10,}}.*)*)", text)
        assert shown, name
        assert documented.get(name) == " ".join(shown.group(1).split()), (name, documented.get(name), shown.group(1))


TESTS = [(fn.__name__.replace("_", " "), fn) for fn in (
    uploads, standing_still, stood_still, idle_requests, largest_request_bounds_them, bombs, fields_from_a_table, references_to_fields,
    refused_requests, requests_that_stop, idle_connections, unread_answers, connections, addresses,
    shares_of_addresses, calls, framing, table)]

if __name__ == "__main__":
    sys.exit(report(TESTS))
