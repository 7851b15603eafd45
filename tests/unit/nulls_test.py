"""An array, a string, a callback or a place for a result that is NULL ends no program (docs/api.md): every function of the
public headers is called with NULL for all that it takes by a pointer, but for the object that it is of. The calls are
one C program, made from the prototypes; a process goes on from the one that ended another. Outputs are constants at first,
then datasets, then none at all."""
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "interop"), os.path.join(ROOT, "tools")]
import abi
import tap

BUILD = os.environ.get("SHOAL_BUILD", os.path.join(ROOT, "build"))
# What is made for the object that a function is of; functions of others are not called.
OBJECTS = {"shoal_graph": "g", "shoal_session": "session(g)", "shoal_tensor": "tensor()",
           "shoal_builder": 'shoal_build(g, "Identity", NULL)', "shoal_function": "function(g)",
           "shoal_columns": "shoal_columns_new()", "shoal_coordinator": "shoal_coordinator_new()",
           "shoal_saver": "saver(g)", "shoal_op": "shoal_group(g, NULL, 0, NULL)", "shoal_cluster": "cluster()",
           "shoal_strategy": "strategy()", "shoal_batches": "batches()"}
HEAD = """#include <shoal/shoal.h>
#include <shoal/op.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
static int round_;
static shoal_session *session(shoal_graph *g) {
  shoal_session *s = NULL;
  if (shoal_session_open(g, NULL, &s)) _exit(3);
  return s;
}
static shoal_tensor *tensor(void) {
  shoal_tensor *t = NULL;
  if (shoal_tensor_new(SHOAL_FLOAT32, 1, (const int64_t[]){3}, &t)) _exit(3);
  return t;
}
static shoal_function *function(shoal_graph *g) {
  shoal_graph *f = shoal_function_begin(g, "f");
  shoal_function_output(f, shoal_function_input(f, SHOAL_FLOAT32, SHOAL_SCALAR, "x"), "y");
  return shoal_function_end(f);
}
static shoal_saver *saver(shoal_graph *g) {
  shoal_variable(g, "v", shoal_constant_of(g, SHOAL_FLOAT32, 1));
  return shoal_saver_new(g, NULL);
}
static shoal_cluster *cluster(void) {
  shoal_cluster *c = NULL;
  if (shoal_cluster_from_hosts("localhost:1", "localhost:2", "worker", 0, &c)) _exit(3);
  return c;
}
static shoal_strategy *strategy(void) {
  shoal_strategy *s = NULL;
  if (shoal_strategy_new_mirrored(NULL, 2, NULL, &s)) _exit(3);
  return s;
}
static shoal_batches *batches(void) {
  shoal_batches *b = NULL;
  if (shoal_batches_new(10, 2, 1, 0, 1, &b)) _exit(3);
  return b;
}
static shoal_out out(shoal_graph *g) {
  if (round_ == 2) return (shoal_out){0};
  return round_ ? shoal_dataset_range(g, 0, 5, 1) : shoal_constant_of(g, SHOAL_FLOAT32, 2);
}
"""
TAIL = """
enum { CALLS = sizeof calls / sizeof *calls };
static void from_here_on(volatile int *at) {
  struct rlimit none = {0};
  setrlimit(RLIMIT_CORE, &none);
  if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(3);
  for (; *at < 3 * CALLS; ++*at) {
    alarm(60);
    round_ = *at / CALLS;
    calls[*at % CALLS].fn(shoal_graph_new());
  }
  _exit(0);
}
int main(void) {
  volatile int *at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int status; *at < 3 * CALLS; ++*at) {
    pid_t child = fork();
    if (!child) from_here_on(at);
    waitpid(child, &status, 0);
    if (*at == 3 * CALLS && !status) return 0;
    printf("%s, round %d: status 0x%x\\n", calls[*at % CALLS].name, *at / CALLS, status);
    fflush(stdout);
  }
}
"""


def functions(text):
    """(name, parameters) of all that was declared by hand."""
    by_hand = set()
    for path in glob.glob(os.path.join(ROOT, "include", "shoal", "*.h")):
        with open(path) as f:
            by_hand |= set(re.findall(r"\b(shoal_\w+)\(", f.read()))
    for statement in re.sub(r"\{(?:[^{}]|\{[^{}]*\})*\}", ";", text).split(";"):
        m = re.match(r"(?!typedef|static)[\w\s*]*?\b(shoal_\w+)\s*\((.*)\)$", statement.strip(), re.S)
        if m and m[1] in by_hand:
            yield m[1], [" ".join(p.split()) for p in re.split(r",(?![^()]*\))", m[2]) if p.strip() != "void"]


def argument(p, first, opaque, callbacks):
    """The C text of it; None: the function is not to be called."""
    object_ = re.match(r"(?:const )?(shoal_\w+) \*\w*$", p)
    if first and object_ and object_[1] in opaque:
        return OBJECTS.get(object_[1])
    if "*" in p or "[" in p or p.split()[0] in callbacks:
        return "NULL"
    if re.match(r"(const )?shoal_out\b", p):
        return "out(g)"
    if p == "..." or "va_list" in p:
        return None
    by_value = re.match(r"(?:const )?(shoal_\w+)\b", p)
    return f"({by_value[1]}){{0}}" if by_value else "1"


def test_null_for_all_that_is_pointed_to():
    if abi.cached(BUILD, "SHOAL_SANITIZE"):
        raise tap.Skip("a program that has no sanitizer cannot load a library that has one")
    _, flags, text = abi.preprocessed(BUILD)
    callbacks = set(re.findall(r"typedef [^;{}()]*?\b(shoal_\w+)\(", text))
    opaque = set(re.findall(r"typedef struct \w+ (shoal_\w+)\s*;", text))
    calls = []
    for name, parameters in functions(text):
        arguments = [argument(p, i == 0, opaque, callbacks) for i, p in enumerate(parameters)]
        if None not in arguments:
            calls.append((name, ", ".join(arguments)))
    assert len(calls) > 350, len(calls)
    program = HEAD + "".join(f"static void f{i}(shoal_graph *g) {{ (void){name}({a}); }}\n"
                             for i, (name, a) in enumerate(calls))
    program += "static const struct { const char *name; void (*fn)(shoal_graph *); } calls[] = {"
    program += "".join(f'{{"{name}", f{i}}},' for i, (name, _) in enumerate(calls)) + "};" + TAIL
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "nulls")
        abi.run("cc", "-w", *flags, "-x", "c", "-", "-o", path, "-L", BUILD, "-lshoal", f"-Wl,-rpath,{BUILD}", input=program)
        p = subprocess.run([path], capture_output=True, text=True, timeout=240, cwd=folder, check=False)
        assert p.returncode == 0 and not p.stdout, p.stdout + p.stderr


if __name__ == "__main__":
    tap.main(globals())
