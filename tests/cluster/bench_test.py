"""`shoal bench allreduce`: a table of what was measured, by every algorithm, and no process left; bad values are told."""
# not on the soft device: host memory is what it measures
import re
import resource
import shutil
import subprocess
import sys

from cluster import SHOAL, Cluster, Skip, report


def bench(*flags, timeout=300):
    p = subprocess.run([SHOAL, "bench", *flags], capture_output=True, text=True, timeout=timeout, check=False)
    return p.returncode, p.stdout, p.stderr


def rows(out):
    return re.findall(r"^ +(\d+) +(\d+)  (\w+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", out, re.M)


def every_algorithm():
    """Sizes by which values travel in every way: in frames, in shared memory, by reading the sender's."""
    algorithms = ["auto", "central", "direct", "tree", "halving", "ring", "hierarchical"]
    sizes = {"1": 4, "4K": 4096, "68K": 69632, "1M": 1 << 20}
    code, out, err = bench("allreduce", "--servers", "--ranks=3", "--sizes=" + ",".join(sizes), "--iters=2",
                           "--algorithm=" + ",".join(algorithms))
    assert code == 0, (code, out, err)
    got = rows(out)
    assert [(int(r[0]), r[2]) for r in got] == [(s, a) for s in sizes.values() for a in algorithms], out
    for r in got:
        assert int(r[1]) * 4 == int(r[0]) and 0 < float(r[3]) <= float(r[4]), r


def types_and_ranks():
    for dtype, size in (("float64", 8), ("bfloat16", 2), ("int32", 4)):
        for how in ((), ("--servers",)):
            code, out, err = bench("allreduce", "--ranks=2", "--sizes=1000", "--iters=1", f"--dtype={dtype}", *how)
            assert code == 0 and rows(out)[0][:2] == ("1000", str(1000 // size)), (code, out, err)
    for ranks in (1, 3, 8):
        code, out, err = bench("allreduce", f"--ranks={ranks}", "--sizes=1,1000,1M", "--iters=1")
        assert code == 0 and len(rows(out)) == 3, (code, out, err)
        assert f"among {ranks} process{'es' if ranks > 1 else ''} of this host, float32, 1 time each" in out, out
    # Each is a group of its own, whose ranks find each other in any order.
    code, out, err = bench("allreduce", "--ranks=3", "--sizes=" + ",".join(["4"] * 20), "--iters=1")
    assert code == 0 and len(rows(out)) == 20, (code, out, err)


def over_a_cluster():
    """On servers that are there, twice: the second finds what the first has left."""
    with Cluster(worker=["shoal"] * 2) as c:
        hosts = ",".join(c.lists()["worker"])
        for sizes in ("4K,64K", "1000"):
            code, out, err = bench("allreduce", f"--worker_hosts={hosts}", f"--sizes={sizes}", "--iters=2", "--algorithm=auto,tree")
            assert code == 0 and "among 2 servers," in out and len(rows(out)) == 2 * len(sizes.split(",")), (code, out, err)


def nonsense_is_told():
    for flags, told in ((["allreduce", "--ranks=0"], "--ranks=0: expected a number from 1 to"),
                        (["allreduce", "--ranks=65"], "expected a number from 1 to 64"),
                        (["allreduce", "--sizes=4Q"], '"4Q" is no number of bytes'),
                        (["allreduce", "--sizes=0"], '"0" is no number of bytes to measure, 1 or more'),
                        (["allreduce", "--sizes=4K,,1M"], '"" is no number of bytes'),
                        (["allreduce", "--sizes=9999999G"], "is no number of bytes"),
                        (["allreduce", "--sizes=" + ",".join(["1"] * 65)], "at most 64"),
                        (["allreduce", "--algorithm=rnig"], 'there is no "rnig"; there are auto, central'),
                        (["allreduce", "--algorithm=tasks"], 'there is no "tasks"'),
                        (["allreduce", "--algorithm=ring"], "is chosen with --servers"),
                        (["allreduce", "--transport=carrier"], "there are memory and mpi"),
                        (["allreduce", "--transport=mpi", "--servers"], "goes with neither"),
                        (["allreduce", "--simulate=0"], "expected RANKS or RANKS,HOSTS"),
                        (["allreduce", "--simulate=4,"], "expected RANKS or RANKS,HOSTS"),
                        (["allreduce", "--simulate=10,4"], "as many on each host"),
                        (["allreduce", "--simulate=9999"], "up to 4096 ranks"),
                        (["allreduce", "--simulate=4", "--link=1,2"], "--link=1,2: expected three numbers"),
                        (["allreduce", "--simulate=4", "--inside=1,2,0"], "--inside=1,2,0: expected three numbers"),
                        (["allreduce", "--link=1,2,3"], "are of --simulate"),
                        (["allreduce", "--simulate=4", "--servers"], "one of them"),
                        (["allreduce", "--simulate=4", "--algorithm=bf16"], "messages of bfloat16 are of --servers"),
                        (["allreduce", "--dtype=string"], "expected float32, float64"),
                        (["allreduce", "--iters=0"], "expected a number from 1"),
                        (["allreduce", "--worker_hosts=,a:1"], "expected 1 to 64 of HOST:PORT"),
                        (["allreduce", "2"], 'what is "2"?'),
                        (["gather"], 'there is no "gather"'), ([], "usage: shoal bench WHAT")):
        code, out, err = bench(*flags)
        assert code == 2 and told in err and not out, (flags, code, out, err)
    for flags in (["--help"], ["allreduce", "--help"]):
        code, out, err = bench(*flags)
        assert code == 0 and "usage: shoal bench" in out and not err, (flags, code, out, err)


def simulated():
    """As many ranks as no test has machines for: times grow with ranks and bytes as the formulas say."""
    code, out, err = bench("allreduce", "--simulate=1024", "--sizes=4K,64M", "--algorithm=auto,tree,halving")
    table = re.findall(r"^ +(\d+) +\d+  (\w+) +([\d.]+) +([\d.]+) ", out, re.M)
    assert code == 0 and [(r[0], r[1]) for r in table] == [(n, a) for n in ("4096", "67108864") for a in ("halving", "tree", "halving")], (out, err)
    assert all(abs(float(us) / float(by_formula) - 1) < 0.02 for _, _, us, by_formula in table), out
    assert "1208.6" == table[0][2], out  # 20 messages of 60 us one after another, and 8 KB at 1 GB/s
    code, out, err = bench("allreduce", "--simulate=64,8", "--sizes=1M", "--algorithm=auto,ring", "--link=10,1,12.5", "--inside=1,1,20",
                           "--cores=4")
    assert code == 0 and re.findall(r"^ +1048576 +262144  (\w+) +[\d.]+ +- ", out, re.M) == ["hierarchical", "ring"], (out, err)
    # What leaves a host goes through one port: two ranks of a host take as long as one with twice the bytes.
    one, two = (float(re.search(r"central +([\d.]+)", bench("allreduce", f"--simulate={n}", "--sizes=1M", "--algorithm=central",
                                                           "--link=0,0,1", "--inside=0,0,1000")[1])[1]) for n in ("4", "4,2"))
    assert 0.6 < two / one < 0.75, (one, two)


def by_mpi():
    """Our programs over OpenMPI's messages, under mpirun; without either it is said."""
    mpirun = shutil.which("mpirun") or shutil.which("mpirun.openmpi")
    code, out, err = bench("allreduce", "--transport=mpi")
    assert code == 1 and not out and ("OpenMPI is not installed" in err or "not started by mpirun" in err or
                                      "is not OpenMPI" in err), (code, out, err)
    if not mpirun or "not started by mpirun" not in err:
        raise Skip("there is no OpenMPI")
    for ranks in (1, 2, 3, 5):
        algorithms = ["auto", "central", "direct", "tree", "halving", "ring", "hierarchical"][: 7 if ranks > 1 else 1]
        p = subprocess.run([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), SHOAL, "bench", "allreduce", "--transport=mpi",
                            "--sizes=1,4K,68K,3M", "--iters=1", "--algorithm=" + ",".join(algorithms)],
                           capture_output=True, text=True, timeout=300, check=False)
        assert p.returncode == 0 and [r[2] for r in rows(p.stdout)] == algorithms * 4, (ranks, p.stdout, p.stderr)


def no_memory():
    """A size that the machine has no memory for is an error that says so."""
    for how, told in (((), "OOM: no memory for 68719476736 bytes"), (("--servers",), "OOM when allocating a tensor")):
        p = subprocess.run([SHOAL, "bench", "allreduce", "--sizes=64G", *how], capture_output=True, text=True, timeout=300,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)), check=False)
        assert p.returncode == 1 and "RESOURCE_EXHAUSTED: " in p.stderr and told in p.stderr, p


if __name__ == "__main__":
    sys.exit(report([(f.__name__.replace("_", " "), f) for f in (every_algorithm, types_and_ranks, over_a_cluster, simulated, by_mpi, no_memory, nonsense_is_told)]))
