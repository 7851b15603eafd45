"""All-reduce among processes of this host: Shoal's shared memory, OpenMPI, gloo through PyTorch, TensorFlow's ring.

  python bench/allreduce.py [--build build] [--ranks 2 4] [--sizes 4096 65536 ...] [--rounds 3] [--markdown]

Sides take turns, size by size and round by round, so that a busy moment of the machine falls on all of them. Every side
sums floats in place. Printed: the median of the rounds, of which each is a median of calls, and how many times faster
Shoal is. A side that is not installed (mpicc and mpirun; the environment of `tools/deps.sh torch`; TensorFlow in the
Python that runs this, which is that of `tools/python.sh`) has a dash. TensorFlow's are servers, by gRPC, and a graph
with several of them one after another, so that a step's own cost is shared by many.
"""
import argparse
import importlib.util
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = [4 << 10, 64 << 10, 1 << 20, 64 << 20, 256 << 20]
GLOO = """
import os, statistics, sys, time, torch, torch.distributed as dist
ranks, size, rank = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[4], rank=rank, world_size=ranks)
data, batch, took = torch.zeros(size // 4), max(1, min(200, (4 << 20) // size)), []
for i in range(-2, 5):
    began = time.perf_counter()
    for _ in range(batch):
        dist.all_reduce(data)
    if i >= 0:
        took.append((time.perf_counter() - began) / batch)
if rank == 0:
    print(size, statistics.median(took))
dist.barrier()
"""


TENSORFLOW = """
import os, statistics, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
v1, (ranks, size, rank), hosts = tf.compat.v1, map(int, sys.argv[1:4]), sys.argv[4].split(",")
v1.disable_eager_execution()
config = v1.ConfigProto(intra_op_parallelism_threads=1)
config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
server = v1.train.Server({"worker": hosts}, "worker", rank, config=config)
if rank:
    server.join()
chain, ends, took = max(1, min(20, (4 << 20) // size)), [], []
for r in range(ranks):
    with tf.device(f"/job:worker/task:{r}/cpu:0"):
        x = v1.get_variable(f"x{r}", [size // 4], initializer=v1.zeros_initializer())
        for i in range(chain):
            x = tf.raw_ops.CollectiveReduce(input=x, group_size=ranks, group_key=1, instance_key=i + 1, merge_op="Add",
                                            final_op="Id", subdiv_offsets=[0], communication_hint="ring")
        ends.append(x.op)
with v1.Session(server.target, config=config) as s:
    s.run(v1.global_variables_initializer())
    for i in range(-2, 5):
        began = time.perf_counter()
        s.run(ends)
        if i >= 0:
            took.append((time.perf_counter() - began) / chain)
print(size, statistics.median(took), flush=True)
os._exit(0)
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def output_of(command):
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=600, check=False)
    return p.stdout if p.returncode == 0 else ""


def shoal(args, ranks, size, folder):
    out = output_of([os.path.join(args.build, "shoal"), "bench", "allreduce", f"--ranks={ranks}", f"--sizes={size}",
                     "--iters=5"])
    found = re.search(rf"^ +{size} +\d+ +auto +[\d.]+ +([\d.]+)", out, re.M)
    return float(found[1]) * 1e-6 if found else None


def openmpi(args, ranks, size, folder):
    program = os.path.join(folder, "allreduce")
    if not os.path.exists(program):
        if not shutil.which("mpicc") or not shutil.which("mpirun"):
            return None
        subprocess.run(["mpicc", "-O2", os.path.join(HERE, "mpi", "allreduce.c"), "-o", program], check=True)
    out = output_of(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), program, str(size)]).split()
    return float(out[1]) if len(out) == 2 else None


def gloo(args, ranks, size, folder):
    python = os.path.join(os.environ.get("SHOAL_TORCH_ENV", ""), "bin", "python")
    if not os.path.exists(python):
        return None
    gloo.met = getattr(gloo, "met", 0) + 1
    meeting = os.path.join(folder, f"gloo{gloo.met}")
    command = [python, "-c", GLOO, str(ranks), str(size)]
    others = [subprocess.Popen(command + [str(r), meeting], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
              for r in range(1, ranks)]
    out = output_of(command + ["0", meeting]).split()
    for p in others:
        p.wait(timeout=60)
    return float(out[1]) if len(out) == 2 else None


def tensorflow(args, ranks, size, folder):
    if not importlib.util.find_spec("tensorflow"):
        return None
    hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(ranks))
    command = [sys.executable, "-c", TENSORFLOW, str(ranks), str(size)]
    others = [subprocess.Popen(command + [str(r), hosts], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
              for r in range(1, ranks)]
    out = output_of(command + ["0", hosts]).split()
    for p in others:
        p.kill()
        p.wait()
    return float(out[1]) if len(out) == 2 else None


SIDES = {"shoal": shoal, "openmpi": openmpi, "gloo": gloo, "tensorflow": tensorflow}


def show(seconds):
    return "-" if seconds is None else f"{seconds * 1e6:,.1f} us"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    row = (lambda cells: print("| " + " | ".join(cells) + " |", flush=True)) if args.markdown else (
        lambda cells: print("".join(c.rjust(16) for c in cells), flush=True))
    others = [name for name in SIDES if name != "shoal"]
    row(["processes", "bytes", *SIDES, *(f"vs {name}" for name in others)])
    if args.markdown:
        row(["---"] * (2 + len(SIDES) + len(others)))
    with tempfile.TemporaryDirectory() as folder:
        for ranks in args.ranks:
            for size in args.sizes:
                rounds = [{name: side(args, ranks, size, folder) for name, side in SIDES.items()}
                          for _ in range(args.rounds)]
                took = {}
                for name in SIDES:
                    values = [r[name] for r in rounds if r[name] is not None]
                    took[name] = statistics.median(values) if values else None
                row([str(ranks), str(size), *(show(took[n]) for n in SIDES),
                     *("-" if not took[n] or not took["shoal"] else f"{took[n] / took['shoal']:.2f}x"
                       for n in others)])


if __name__ == "__main__":
    sys.exit(main())
