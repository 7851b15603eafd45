"""Workers on hosts far from each other: network namespaces with a cable between them that this test plays, frame by frame,
with a delay, with losses, and cut. A strategy's workers (tests/programs/strategy_trainer.c) have the bits of one process;
a host that nothing comes from is named by the others, and goes on with them when its cable is whole again."""
import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

from cluster import Skip, report, until
from strategy_test import Worker, alone

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000
DELAY = 0.005


class Cable:
    """A switch: what comes from one host goes, later and not always, to those it is for."""

    def __init__(self, hosts, loss):
        self.prefix, self.loss, self.cut, self.going = f"f{os.getpid()}-", loss, set(), True
        self.names = [f"{self.prefix}{i}" for i in range(hosts)]
        self.taps, self.at, self.lost, self.carried = [], {}, 0, 0

    def ip(self, *args):
        subprocess.run(["ip", *args], check=True, capture_output=True, text=True)

    def __enter__(self):
        if os.geteuid() or not shutil.which("ip") or not shutil.which("unshare"):
            raise Skip("network namespaces need root, and iproute2")
        try:
            for i, name in enumerate(self.names):
                self.add(i, name)
        except (OSError, subprocess.CalledProcessError) as e:
            self.__exit__()
            raise Skip(f"no network of our own can be had here: {e}") from e
        self.thread = threading.Thread(target=self.carry)
        self.thread.start()
        return self

    def add(self, i, name):
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        self.taps.append(tap)
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
        self.ip("netns", "add", name)
        self.ip("link", "set", name, "netns", name)
        self.ip("-n", name, "addr", "add", f"10.98.0.{i + 1}/24", "dev", name)
        for device in (name, "lo"):
            self.ip("-n", name, "link", "set", device, "up")

    def __exit__(self, *_):
        self.going = False
        if hasattr(self, "thread"):
            self.thread.join()
        for tap in self.taps:
            os.close(tap)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def carry(self):
        chance, late = random.Random(1), []
        while self.going:
            wait = min(0.1, max(0, late[0][0] - time.monotonic())) if late else 0.1
            for tap in select.select(self.taps, [], [], wait)[0]:
                self.take(tap, late, chance)
            while late and late[0][0] <= time.monotonic():
                _, _, frame, to = heapq.heappop(late)
                try:
                    os.write(self.taps[to], frame)
                except OSError:
                    pass  # it is not up yet

    def take(self, tap, late, chance):
        host = self.taps.index(tap)
        try:
            frame = os.read(tap, 65536)
        except OSError:
            return
        self.at[frame[6:12]] = host
        known = self.at.get(frame[:6])
        for to in [known] if known is not None else [i for i in range(len(self.taps)) if i != host]:
            self.carried += 1
            if host in self.cut or to in self.cut or chance.random() < self.loss:
                self.lost += 1
                continue
            heapq.heappush(late, (time.monotonic() + DELAY, self.carried, frame, to))


class Far(Worker):
    """A worker on a host of its own."""

    def __init__(self, cable, i, cluster, *flags):
        self.host = cable.names[i]
        super().__init__(cluster, "worker", i, *flags)

    def start(self):
        """Who has processes of its own has no memory that others could map."""
        apart = ["ip", "netns", "exec", self.host, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self.process = subprocess.Popen([*apart, *self.command, "open=1"], stdout=self.out, stderr=subprocess.STDOUT,
                                        env=self.env)


def workers_on(cable, steps, *flags):
    cluster = {"worker": [f"10.98.0.{i + 1}:2222" for i in range(len(cable.names))]}
    return [Far(cable, i, cluster, steps, *flags) for i in range(len(cable.names))]


def with_delay_and_loss():
    want = alone("mirrored", 30, "devices=3")
    with Cable(3, 0.01) as cable:
        for w in workers_on(cable, 30):
            assert w.ends() == want, (w.text(), want)
        assert cable.lost > 0 and cable.carried > 30 * 6, (cable.lost, cable.carried)


def with_a_cable_that_is_cut():
    want = alone("mirrored", 50, "devices=3")
    with Cable(3, 0.001) as cable, tempfile.TemporaryDirectory() as folder:
        workers = workers_on(cable, 50, f"dir={folder}/run", "save=5", "slow=200")
        workers[2].passes(8)
        cable.cut = {2}
        for w in workers[:2]:
            until(lambda w=w: "a task was lost" in w.text(), what=w.text)
            assert "/job:worker/replica:0/task:2" in w.text(), w.text()
        cable.cut = set()
        for w in workers:
            losses, weights = w.ends()
            assert weights == want[1] and losses.items() <= want[0].items(), (w.text(), want)


if __name__ == "__main__":
    sys.exit(report([(f.__name__.replace("_", " "), f) for f in (with_delay_and_loss, with_a_cable_that_is_cut)]))
