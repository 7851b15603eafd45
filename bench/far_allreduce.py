"""All-reduce between two servers that share no memory, beside plain TCP that moves the same bytes.

  python bench/far_allreduce.py [--build build] [--sizes 1M 64M] [--algorithm direct] [--rounds 5] [--before BUILD]

The servers are on hosts of their own: network namespaces with a virtual cable between them, which needs root, and half
of the cores each. An all-reduce of N bytes of two ranks by halves sends N bytes each way. Plain TCP is two processes
that send N bytes each way at once, from N bytes of memory to N bytes of memory, in calls as large as they can be: over
the same cable, and over the loopback of one host; "dropped" is what loopback does where nothing is kept of what comes.
Sides take turns, round by round. Of each the best call of all is printed, the median of its rounds' medians and their
range, and how fast it is beside loopback, by best calls and by medians. --before: another build takes turns too.
"""
import argparse
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

CALLS, PORT, PLAIN = 9, 2222, ("tcp", "dropped", "loopback")
PEER = """
import socket, sys, threading, time
rank, host, port, size, calls, room = int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
give, take = bytearray(b"x" * size), bytearray(room)
if rank:
    s = socket.create_server((host, port)).accept()[0]
else:
    for attempt in range(100):
        try:
            s = socket.create_connection((host, port))
            break
        except OSError:
            time.sleep(0.05)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for call in range(-3, calls):
    s.sendall(b".")
    assert s.recv(1) == b"."
    began = time.perf_counter()
    sender = threading.Thread(target=s.sendall, args=(give,))
    sender.start()
    for at in range(0, size, room):
        n = min(room, size - at)
        assert s.recv_into(take, n, socket.MSG_WAITALL) == n
    sender.join()
    if rank == 0 and call >= 0:
        print(time.perf_counter() - began)
"""


class Hosts:
    """Two namespaces and the cable between them."""

    def __init__(self):
        self.names = [f"shoal{os.getpid()}-{i}" for i in range(2)]
        self.addresses = [f"10.97.0.{i + 1}" for i in range(2)]
        cores = sorted(os.sched_getaffinity(0))
        half = len(cores) // 2
        self.cores = [cores[:half], cores[half:]] if half else [cores, cores]

    def __enter__(self):
        for name in self.names:
            self.ip("netns", "add", name)
        ends = [["eth0", "netns", name] for name in self.names]
        self.ip("link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1])
        for name, address in zip(self.names, self.addresses):
            self.ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            self.ip("-n", name, "link", "set", "eth0", "mtu", "65535")
            for device in ("eth0", "lo"):
                self.ip("-n", name, "link", "set", device, "up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    @staticmethod
    def ip(*args):
        subprocess.run(["ip", *args], check=True, capture_output=True, text=True)

    def on(self, cores, *command, host=None):
        """On a host's share of the cores, and, but where another is said, in its network."""
        network = self.names[cores if host is None else host]
        own = ",".join(map(str, self.cores[cores]))
        return ["taskset", "-c", own, "ip", "netns", "exec", network, *command]


def plain(hosts, size, how):
    """how: tcp, over the cable; loopback; dropped: what comes over loopback is written over itself."""
    over = "127.0.0.1" if how != "tcp" else hosts.addresses[1]
    peer = [sys.executable, "-c", PEER]
    rest = [over, str(PORT - 1), str(size), str(CALLS), str(128 << 10 if how == "dropped" else size)]
    other = subprocess.Popen(hosts.on(1, *peer, "1", *rest))
    command = hosts.on(0, *peer, "0", *rest, host=0 if how == "tcp" else 1)
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    other.wait(timeout=60)
    return [float(t) for t in out.split()]


@contextlib.contextmanager
def servers(hosts, build, port):
    cluster = ",".join(f"{a}:{port}" for a in hosts.addresses)
    command = [os.path.join(build, "shoal"), "server", "--job_name=worker", f"--worker_hosts={cluster}",
               "--insecure_bind_all"]
    processes = [subprocess.Popen(hosts.on(i, *command, f"--task_index={i}"), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) for i in range(2)]
    try:
        yield cluster
    finally:
        for p in processes:
            p.kill()
            p.wait()


def reduced(hosts, build, cluster, size, algorithm):
    """Seconds of the best call, and of the median one."""
    out = subprocess.run(hosts.on(0, os.path.join(build, "shoal"), "bench", "allreduce", f"--worker_hosts={cluster}",
                                  f"--sizes={size}", f"--algorithm={algorithm}", f"--iters={CALLS}"),
                         stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.search(rf"^ +{size} +\d+ +\S+ +([\d.]+) +([\d.]+)", out, re.M)
    return [float(found[1]) * 1e-6, float(found[2]) * 1e-6]


def measure(args, hosts, clusters, size):
    took = {name: ([], []) for name in [*clusters, *PLAIN]}
    for _ in range(args.rounds):
        for name, (build, cluster) in clusters.items():
            best, median = reduced(hosts, build, cluster, size, args.algorithm)
            took[name][0].append(best)
            took[name][1].append(median)
        for name in PLAIN:
            calls = plain(hosts, size, name)
            took[name][0].append(min(calls))
            took[name][1].append(statistics.median(calls))
    best, median = [{name: of(t[i]) for name, t in took.items()} for i, of in ((0, min), (1, statistics.median))]
    for name in took:
        spread = f"{min(took[name][1]) * 1e3:.2f} to {max(took[name][1]) * 1e3:.2f}"
        print(f"{size:12}{name:>12}{best[name] * 1e3:12.2f} ms{median[name] * 1e3:12.2f} ms{spread:>20}" +
              (f"{best['loopback'] / best[name] * 100:8.0f} %{median['loopback'] / median[name] * 100:8.0f} %"
               if name != "loopback" else ""), flush=True)


def bytes_of(text):
    unit = "KMG".find(text[-1:].upper()) + 1
    return int(text[:-1] if unit else text) << 10 * unit


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--before")
    parser.add_argument("--sizes", nargs="*", type=bytes_of, default=[1 << 20, 64 << 20])
    parser.add_argument("--algorithm", default="direct")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if os.geteuid() or not shutil.which("ip"):
        print("all-reduce between hosts: network namespaces need root, and iproute2")
        return
    builds = {"shoal": args.build, **({"before": args.before} if args.before else {})}
    with Hosts() as hosts, contextlib.ExitStack() as stack:
        clusters = {name: (build, stack.enter_context(servers(hosts, build, PORT + i)))
                    for i, (name, build) in enumerate(builds.items())}
        time.sleep(0.5)
        print(f"{'bytes':>12}{'side':>12}{'best':>15}{'median':>15}{'rounds':>20}  of loopback: best, median")
        for size in args.sizes:
            measure(args, hosts, clusters, size)


if __name__ == "__main__":
    sys.exit(main())
