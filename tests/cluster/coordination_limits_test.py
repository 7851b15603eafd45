"""The coordination service and a task that means no good: what others are told by it can be read, nothing it says outlives
the leader, what it leaves behind is given back, what it asks for is bounded; with certificates it speaks for itself alone."""
# needs: tensorflow
# not on the soft device: requests of the coordination service, no op runs
import os
import sys
import tempfile

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc
from google.protobuf.internal import encoder

from certificates import Authority, flags
from cluster import Cluster, report, sanitized, until

MB = 1 << 20
SERVICE = "/tensorflow.CoordinationService/"
ALONE = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))
INVALID, EXHAUSTED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED
DENIED = grpc.StatusCode.PERMISSION_DENIED


def field(number, value):
    if isinstance(value, int):
        return encoder.TagBytes(number, 0) + encoder._VarintBytes(value)
    return encoder.TagBytes(number, 2) + encoder._VarintBytes(len(value)) + value


def task(index, job=b"worker"):
    return field(1, job) + field(2, index)


def register(index, incarnation):
    return encoder.TagBytes(3, 1) + incarnation.to_bytes(8, "little") + field(5, task(index))


def insert(key, value=b""):
    return field(1, field(1, key) + field(2, value))


def barrier(name, index, milliseconds=1 << 40):
    return field(1, name) + field(2, milliseconds) + field(4, task(index))


class Leader:
    """Task 0 of some, of which the others are ours to play; calls over a connection of their own."""

    def __init__(self, *more, tasks=2):
        self.cluster = Cluster(["--coordination_service", *more], worker=["shoal"] * tasks)
        self.task = self.cluster.tasks["worker", 0]

    def __enter__(self):
        self.task.start().wait()
        self.channel = grpc.insecure_channel(self.task.address, options=ALONE)
        return self

    def __exit__(self, *_):
        self.channel.close()
        assert self.task.end() == 0, self.task.text()

    def start(self, method, request=b"", seconds=120):
        return self.channel.unary_unary(SERVICE + method).future(request, timeout=seconds)

    def call(self, method, request=b""):
        return self.start(method, request).result()

    def refuses(self, method, request, code, *texts):
        error = self.start(method, request).exception()
        assert error and error.code() == code and all(t in error.details() for t in texts), (method, error)

    def resident(self):
        """In MB, at most so far."""
        with open(f"/proc/{self.task.process.pid}/status") as f:
            return [int(line.split()[1]) // 1024 for line in f if line.startswith("VmHWM")][0]


def odd_names():
    """TensorFlow's tasks throw away answers with strings that are no UTF-8, and devices that do not parse."""
    with Leader() as l:
        for key in (b"d/\xff", b"a\0b", b"\xc0\x80", b"k" * 4097):
            l.refuses("InsertKeyValue", insert(key, b"v"), INVALID, "a key")
            for method in ("GetKeyValue", "TryGetKeyValue", "GetKeyValueDir", "DeleteKeyValue"):
                l.refuses(method, field(1, key), INVALID, "a key")
            l.refuses("Barrier", field(1, key) + field(4, task(1)), INVALID, "a key")
            l.refuses("RegisterTask", field(5, task(1, key)), INVALID, "the name of a job")
            l.refuses("Barrier", field(1, b"b") + field(3, task(1, key)) + field(4, task(1)), INVALID, "the name of a job")
        l.call("InsertKeyValue", insert("d/\u00fc".encode(), b"v") + field(9, b"unknown"))
        l.call("InsertKeyValue", insert(b"k" * 4096, b"v"))
        assert l.call("GetKeyValueDir", field(1, b"d")) == field(1, b"d") + field(
            2, field(1, "d/\u00fc".encode()) + field(2, b"v"))
        l.call("RegisterTask", register(1, 1))
        for devices in (b"\xff\xff\xff", field(1, b"\xff"), field(1, field(1, b"\xff"))):
            l.refuses("WaitForAllTasks", field(5, task(1)) + field(6, devices), INVALID, "device")
        assert b"CPU:0" in l.call("WaitForAllTasks", field(5, task(1)) + field(6, field(1, field(1, b"a device"))))


def the_leader_stays():
    """Who speaks in the leader's name cannot make it leave, fail, or have other devices: it would never come again."""
    with Leader() as l:
        l.refuses("ShutdownTask", field(1, task(0)), INVALID, "Unexpected")
        l.refuses("ResetTask", field(1, task(0)), INVALID, "Unexpected")
        l.refuses("ReportErrorToService", field(1, 13) + field(2, b"boo") + field(5, task(0)), INVALID, "Unexpected")
        l.refuses("RegisterTask", register(0, 5), INVALID, "Unexpected")
        l.refuses("WaitForAllTasks", field(5, task(0)) + field(6, b""), INVALID, "must be registered")
        l.call("RegisterTask", register(1, 1))
        assert b"CPU:0" in l.call("WaitForAllTasks", field(5, task(1)))


def words_of_others():
    """What a task says of its error is shown in the log, and neither steers a terminal nor passes for another line."""
    evil = b"x\x1b]0;owned\x07\nE 00:00:00.000] forged\r\x1b[2J"
    with Leader() as l:
        l.call("RegisterTask", register(1, 1))
        l.call("ReportErrorToService", field(1, 13) + field(2, evil) + field(5, task(1)))
        l.call("ReportErrorToTask", field(1, 13) + field(2, evil) + field(5, field(4, task(1, b"job\n" + evil))))
        text = l.task.text()
        assert text.count("forged") == 2, text
        for i in range(200):  # there is an end to such lines
            l.call("RegisterTask", register(1, 2 + i))
            l.call("ReportErrorToTask", field(1, 13) + field(2, b"again"))
        text = l.task.text()
    assert len(text.splitlines()) < 100, text
    for line in text.splitlines():
        assert line.isprintable() and not line.startswith("E "), (line, text)


def long_words():
    """A text of any length is cut before anybody keeps it."""
    with Leader() as l:
        before = l.resident()
        l.call("RegisterTask", register(1, 1))
        l.call("ReportErrorToService", field(1, 13) + field(2, b"e" * 32 * MB) + field(5, task(1)))
        assert len(l.call("GetTaskState", field(1, task(1)))) < 8192
        assert l.resident() - before < 96, l.resident()
        l.refuses("GetTaskState", field(1, task(1)) * 3, INVALID, "more tasks than the 2")


def directories():
    """What is listed takes what it is: room for that is asked for before it is made."""
    with Leader(f"--max_held_bytes={16 * MB}") as l:
        for i in range(20):
            l.call("InsertKeyValue", insert(b"large/%d" % i, b"v" * MB))
        l.refuses("GetKeyValueDir", field(1, b"large"), EXHAUSTED, "--max_held_bytes")
        l.call("DeleteKeyValue", field(1, b"large"))
        many = [l.start("InsertKeyValue", insert(b"small/%d" % i)) for i in range(5000)]
        assert not any(f.exception() for f in many)
        before = l.resident()
        asked = [l.start("GetKeyValueDir", field(1, b"small")) for _ in range(60)]
        answers = [f.result() for f in asked if not f.exception()]
        assert answers and all(a.count(b"small/") == 5000 for a in answers)
        if not sanitized():  # each took 5 MB when every value was a piece of its own
            assert l.resident() - before < 64, l.resident() - before


def left_behind():
    """Barriers whose callers have gone, and devices of tasks that have, are given back."""
    with Leader("--max_coordination_bytes=40000") as l:
        whole = insert(b"whole", b"v" * 29000)  # three quarters are what an address has
        waiting = [l.start("Barrier", barrier(b"b%d" % i, 1)) for i in range(1000)]
        until(lambda: any(f.done() for f in waiting))
        until(lambda: l.start("InsertKeyValue", whole).exception())
        for f in waiting:
            f.cancel()

        def fits():
            return not l.start("InsertKeyValue", whole).exception()
        until(fits)
        l.call("DeleteKeyValue", field(1, b"whole"))
        l.call("RegisterTask", register(1, 1))
        gathering = Leader.start(l, "WaitForAllTasks", field(5, task(1)) + field(6, field(7, b"d" * 29000)))
        assert gathering.result()
        l.refuses("InsertKeyValue", whole, EXHAUSTED, "--max_coordination_bytes")
        l.call("ShutdownTask", field(1, task(1)))
        assert fits()


def with_certificates():
    """A task registers, leaves, fails and waits for itself, and tells no other of errors: the leader does."""
    folder = tempfile.TemporaryDirectory(prefix="shoal_coordination_")
    authority = Authority(folder.name)
    pairs = [authority.sign(f"w{i}", f"DNS:{i}.worker.shoal", "IP:127.0.0.1") for i in range(3)]
    client = authority.sign("client", "DNS:client.example")
    c = Cluster(["--coordination_service"], worker=["shoal"] * 3)

    def read(path):
        with open(path, "rb") as f:
            return f.read()

    def says(pair, index, method, request):
        credentials = grpc.ssl_channel_credentials(read(authority.ca), read(pair[1]), read(pair[0]))
        with grpc.secure_channel(c.spec["worker"][str(index)], credentials, ALONE) as channel:
            path = method if method.startswith("/") else SERVICE + method
            return channel.unary_unary(path).future(request, timeout=120).exception()

    def denied(pair, index, method, request, text):
        error = says(pair, index, method, request)
        assert error and error.code() == DENIED and text in error.details(), (method, error)

    error = field(1, 13) + field(2, b"boo")
    tasks = [c.tasks["worker", i] for i in (0, 1)]  # task 2 is the one that means no good
    try:
        for t, pair in zip(tasks, pairs):
            t.flags += flags(pair, authority.ca)
            t.start()
        for t in tasks:
            t.wait()
        for method, request in (("RegisterTask", register(1, 7)), ("Heartbeat", field(4, task(1))),
                                ("WaitForAllTasks", field(5, task(1))), ("ShutdownTask", field(1, task(1))),
                                ("ResetTask", field(1, task(1))), ("Barrier", barrier(b"b", 1)),
                                ("CancelBarrier", field(1, b"b") + field(2, task(1))),
                                ("ReportErrorToService", error + field(5, task(1)))):
            denied(pairs[2], 0, method, request, "calls itself /job:worker/replica:0/task:1")
        denied(pairs[2], 1, "ReportErrorToTask", error + field(5, field(4, task(0))), "calls itself")
        assert not says(pairs[0], 1, "ReportErrorToTask", error + field(5, field(4, task(2))))
        # Nor is it a member of collectives by another's devices.
        device = b"/job:worker/replica:0/task:1/device:CPU:0"
        for method, request in (("CompleteGroup", field(1, 5) + field(2, 2) + field(3, b"CPU") + field(6, field(1, device))),
                                ("CompleteInstance", field(2, 1) + field(3, 1) + field(10, device))):
            denied(pairs[2], 0, "/tensorflow.WorkerService/" + method, request, "calls itself " + device.decode())
        for method in ("InsertKeyValue", "GetKeyValue", "GetTaskState", "ReportErrorToTask", "RegisterTask"):
            denied(client, 0, method, b"", "names no task of this cluster")
        assert not says(pairs[2], 0, "RegisterTask", register(2, 7))
        assert not says(pairs[2], 0, "WaitForAllTasks", field(5, task(2)))  # task 1 has registered all along
    finally:
        ends = [t.end() for t in tasks]
    assert ends == [0, 0], [t.text() for t in tasks]


if __name__ == "__main__":
    sys.exit(report([("names and devices that others could not read", odd_names),
                     ("the leader's task stays", the_leader_stays),
                     ("what others say is shown as what it is", words_of_others),
                     ("long words are cut", long_words),
                     ("directories take what they are", directories),
                     ("what is left behind is given back", left_behind),
                     ("a task speaks for itself alone", with_certificates)]))
