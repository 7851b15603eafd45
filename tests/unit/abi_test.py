"""Programs compiled with the last release run with this library: packaging/abi.txt. The comparison sees each kind of
change that would break one, names it, and lets additions pass."""
import glob
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "interop"), os.path.join(ROOT, "tools")]
import abi
import tap

BUILD = os.environ.get("SHOAL_BUILD", os.path.join(ROOT, "build"))


def need(program):
    if not shutil.which(program):
        raise tap.Skip(f"there is no {program}")


def test_last_release():
    need("nm")
    p = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "abi.py"), BUILD], capture_output=True, text=True,
                       check=False)
    assert p.returncode == 0, p.stdout + p.stderr


def kept():
    with open(abi.KEPT) as f:
        return f.read().splitlines()


def changed(pattern, by):
    """What is said when lines of the release are changed so."""
    lines = [re.sub(pattern, by, line) for line in kept()]
    assert lines != kept(), pattern
    return "\n".join(abi.differences(kept(), [line for line in lines if line]))


def test_what_is_there():
    text = "\n".join(kept())
    for line in ("symbol shoal_session_open@SHOAL_0.1 shoal_status (shoal_graph *, const shoal_session_options *, "
                 "shoal_session **)", "field shoal_session_options.size offset 0 size 8", "struct shoal_out size 16",
                 "constant SHOAL_FLOAT32 1", "constant SHOAL_MAX_RANK 16",
                 "field shoal_run_options.timeout_ms offset 8 size 8 int64_t",
                 "field shoal_hook.begin offset 8 size 8 shoal_status (*)(void *, shoal_graph *)",
                 "type shoal_log_fn void (void *, const shoal_log_line *)", "symbol shoal_version@SHOAL_0.1 const char * (void)"):
        assert line in text, line
    assert "@Base" not in text and not re.search(r"symbol (?!shoal_)", text)


def test_what_breaks_programs():
    for pattern, by, said in (
            (r"^symbol shoal_session_run@.*", "", "symbol shoal_session_run@SHOAL_0.1 is gone"),
            (r"shoal_tensor_rank@SHOAL_0.1", "shoal_tensor_rank@SHOAL_0.2", "shoal_tensor_rank@SHOAL_0.1 is gone"),
            (r"^(symbol shoal_tensor_dim@.*), int\)", r"\1, int64_t)", "symbol shoal_tensor_dim@SHOAL_0.1: was"),
            (r"shoal_run_options.trace_level offset \d+", "shoal_run_options.trace_level offset 4", "is offset 4"),
            (r"^struct shoal_hook size \d+", "struct shoal_hook size 800", "struct shoal_hook: was size"),
            (r"^constant SHOAL_ABORTED 10", "constant SHOAL_ABORTED 11", "constant SHOAL_ABORTED: was 10, is 11"),
            (r"^constant SHOAL_MAX_RANK 16", "constant SHOAL_MAX_RANK 99", "constant SHOAL_MAX_RANK: was 16, is 99"),
            (r"^type shoal_log_fn void \(void \*, ", "type shoal_log_fn void (", "type shoal_log_fn: was void (void *, const"),
            (r"(shoal_run_options.timeout_ms .*) int64_t", r"\1 double", "field shoal_run_options.timeout_ms: was offset")):
        text = changed(pattern, by)
        assert said in text, (pattern, text)


def test_types_of_fields():
    body = "size_t size; const char *in, *out; const char *const *names; int64_t dims[16]; bool (*more)(void *arg, int n);" \
           "shoal_op *(*make)(shoal_graph *g, const shoal_var *vars); enum { A, B } kind; struct shoal_node *node;"
    assert list(abi.fields(body)) == [
        ("size", "size_t"), ("in", "const char *"), ("out", "const char *"), ("names", "const char *const *"),
        ("dims", "int64_t [16]"), ("more", "bool (*)(void *, int)"),
        ("make", "shoal_op *(*)(shoal_graph *, const shoal_var *)"), ("kind", "enum e"), ("node", "struct shoal_node *")]
    there = list(abi.macros())
    assert {"SHOAL_MAX_RANK", "SHOAL_AUTO", "SHOAL_ANY_SEED", "SHOAL_IN_ORDER", "SHOAL_EXIT_RETRY"} <= set(there), there
    assert not [name for name in there if "VERSION" in name]


def test_growing():
    size = int(next(line for line in kept() if line.startswith("struct shoal_run_options ")).split()[-1])
    struct = f"struct shoal_run_options size {size}"

    def grown(offset, bytes_, name="shoal_run_options", more=()):
        lines = [line if line != struct else f"struct shoal_run_options size {size + 8}" for line in kept()]
        lines += [f"field {name}.more offset {offset} size {bytes_}", *more]
        return "\n".join(abi.differences(kept(), lines))

    assert grown(size, 8) == "", grown(size, 8)
    assert "not after all" in grown(size - 4, 4)
    assert "leaves padding" in grown(size, 1)
    assert "cannot grow" in grown(16, 8, "shoal_out") and "cannot grow" in grown(64, 8, "shoal_hook")
    assert "cannot grow" in grown(24, 8, "shoal_pipeline_stage")
    said = "field shoal_pipeline.stage_size offset 40 size 8"  # the struct that has an array of them says how large they are
    assert grown(24, 8, "shoal_pipeline_stage", [said]) == "", grown(24, 8, "shoal_pipeline_stage", [said])
    assert not abi.differences(kept(), [*kept(), "symbol shoal_new@SHOAL_0.9 void (void)"])
    assert "released without it" in "".join(abi.differences(kept(), [*kept(), "symbol shoal_new@SHOAL_0.1 void (void)"]))


def last_fields(lines):
    """Of each struct, its last field."""
    last = {}
    for struct, field, offset in re.findall(r"^field (\w+)\.(\S+) offset (\d+)", "\n".join(lines), re.M):
        last[struct] = max(last.get(struct, (-1, "")), (int(offset), field))
    return {struct: field for struct, (_, field) in last.items()}


def test_zero_filled_options():
    """A struct of size 0 is taken to be what it was when it came: to the last field that its release has, and whole where
    none has it yet (base/options.h)."""
    came = {**last_fields(abi.layouts(*abi.preprocessed(BUILD))), **last_fields(kept())}
    taken = []
    for path in glob.glob(os.path.join(ROOT, "src", "**", "*.c"), recursive=True):
        with open(path) as f:
            taken += [(path, *found) for found in re.findall(r"OPTIONS_TAKE(?:_ARRAY)?\((\w+), (\w+),", f.read())]
    assert len(taken) > 50, len(taken)
    wrong = [(path, struct, last, came.get(struct)) for path, struct, last in taken if came.get(struct) != last]
    assert not wrong, wrong


def declarations():
    """(header, comment before it, declaration) of every function of the public headers that were written by hand."""
    for path in sorted(glob.glob(os.path.join(ROOT, "include", "shoal", "*.h"))):
        with open(path) as f:
            text = f.read()
        for comment, group in re.findall(r"/\*((?:[^*]|\*(?!/))*)\*/\n((?:SHOAL_API[^;]*;[^\n]*\n)+)", text):
            for one in re.findall(r"SHOAL_API([^;]*);([^\n]*)", group):
                yield os.path.basename(path), " ".join((comment + one[1]).split()), " ".join(one[0].split())


def test_who_frees_what():
    """The rule at the head of shoal.h: what is made can be ended; statuses and bytes that are not the caller's say so."""
    every = list(declarations())
    assert len(every) > 200, len(every)
    names = " ".join(d for _, _, d in every)
    for header, comment, d in every:
        made = re.search(r"\b(shoal_\w+?)_(new|open|start)\(", d)
        if made and re.search(made[1] + r" \*{1,2}(\w+\)|shoal_)", d):
            assert re.search(made[1] + r"_(free|close|stop|unref)\(", names), (header, d)
        if re.match(r"(shoal_status|shoal_bytes) shoal_", d) and not re.match("shoal_status shoal_placed", d):
            assert "keeps it" in comment or re.search("frees it|the caller|copy", comment), (header, d)
        if re.match(r"char \*", d):
            assert "free" in comment, (header, d)


if __name__ == "__main__":
    tap.main(globals())
