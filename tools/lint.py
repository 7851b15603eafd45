#!/usr/bin/env python3
"""Linters over every C file and header of the tree: the order of layers and lengths, fields of messages, the order
of arguments, cppcheck, clang-tidy.

  tools/lint.py BUILD_DIR [FILE...]     (the build folder has compile_commands.json and the generated headers)

The two linters look at one file at a time, as many at once as there are cores. A file that was clean is remembered in
BUILD_DIR/lint by a hash of all that the verdict hangs on: the tool and its version, its settings, the file, and what
the file includes from this tree. So the first run takes minutes, the next one seconds, and one that was stopped goes on
where it was. Findings are not remembered. clang-tidy looks at headers by themselves too: each must stand alone.
What is silenced, and why, is in .clang-tidy and tools/cppcheck.supp.
"""
import concurrent.futures
import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ["src", "include", "tests", "examples", "bench", "tools"]
FOREIGN = os.path.join(ROOT, "bench", "mpi", "")  # wants headers that are not this project's: not compiled here
# Also by `#define LOOPS "FILE"`, as src/tensor/each_type.h has it.
INCLUDE = re.compile(rb'^\s*#\s*(?:include|define LOOPS)\s+["<]([^">]+)[">]', re.M)


class Tool:
    """A linter: its command for a file, and what its verdicts hang on beside the sources."""

    def __init__(self, name, endings, settings, flags_of, compiles=False):
        self.name, self.endings, self.flags_of, self.compiles = name, endings, flags_of, compiles
        version = subprocess.run([name, "--version"], capture_output=True, check=True).stdout
        self.seed = version + b"".join(read(os.path.join(ROOT, s)) for s in settings)

    def command(self, path):
        return [self.name, *self.flags_of(path)]


def read(path):
    with open(path, "rb") as f:
        return f.read()


class Sources:
    """The files, and for each the hash of its text and of all it includes from this tree."""

    def __init__(self, build):
        self.folders = [os.path.join(ROOT, "include"), os.path.join(ROOT, "src"), os.path.join(build, "gen"),
                        os.path.join(build, "gen", "include")]
        self.read = {}  # path -> (hash, paths included)

    def look(self, path):
        if path not in self.read:
            text, found = read(path), []
            for name in INCLUDE.findall(text):
                name = name.decode()
                places = [os.path.join(f, name) for f in [os.path.dirname(path), *self.folders]]
                found += [os.path.normpath(p) for p in places if os.path.isfile(p)][:1]
            self.read[path] = hashlib.sha256(text).digest(), found
        return self.read[path]

    def hash(self, path):
        seen, todo = set(), [path]
        while todo:
            p = todo.pop()
            if p not in seen:
                seen.add(p)
                todo += self.look(p)[1]
        return b"".join(self.look(p)[0] for p in sorted(seen))


def all_files():
    found = []
    for top in FOLDERS:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            found += [os.path.join(folder, n) for n in names if n.endswith((".c", ".h"))]
    return sorted(found)


def tools(build):
    with open(os.path.join(build, "compile_commands.json")) as f:
        compiled = {c["file"]: shlex.split(c["command"]) for c in json.load(f)}
    include = [f"-I{os.path.relpath(p, ROOT)}" for p in (f"{ROOT}/include", f"{ROOT}/src", f"{build}/gen")]
    plain = ["-x", "c", "-std=gnu17", "-D_GNU_SOURCE", *include, f"-I{os.path.relpath(build, ROOT)}/gen/include"]
    own = lambda path: [a for a in compiled.get(path, []) if a.startswith(("-march", "-D"))]
    # cppcheck is told what machine this is, or it would go over every file once more for each that is named in it. The
    # wrappers of the ops (gen/include) are left out of its sight: 30 times the time, for prototypes.
    machine = ["-D__GNUC__=12", f"-D__{platform.machine()}__=1"]
    return [
        Tool("clang-tidy", (".c", ".h"), [".clang-tidy"], lambda path: [
            "--quiet", path, "--", *plain, "-Wall", "-Wextra", "-Wno-unused-parameter",
            "-Wno-missing-field-initializers", *own(path)], compiles=True),
        Tool("cppcheck", (".c",), ["tools/cppcheck.supp"], lambda path: [
            "-q", "--std=c11", "--language=c", "--error-exitcode=1", "--enable=warning,portability", "--inline-suppr",
            "--suppressions-list=tools/cppcheck.supp", *machine, *include, os.path.relpath(path, ROOT)]),
    ]


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
    paths = [os.path.abspath(p) for p in sys.argv[2:]] or all_files()
    failed = any([subprocess.run([sys.executable, os.path.join(ROOT, "tools", script)], check=False).returncode
                  for script in ("layers.py", "schema.py", "order.py")])
    try:
        linters = tools(build)
    except FileNotFoundError as e:
        sys.exit(f"lint: there is no {e.filename} (make, make deps)")
    clean = os.path.join(build, "lint")
    os.makedirs(clean, exist_ok=True)
    sources, jobs, known = Sources(build), [], 0
    for tool in linters:
        for path in [p for p in paths if p.endswith(tool.endings) and not (tool.compiles and p.startswith(FOREIGN))]:
            mark = os.path.join(clean, hashlib.sha256(
                tool.seed + " ".join(tool.command(path)).encode() + sources.hash(path)).hexdigest())
            if os.path.exists(mark):
                os.utime(mark)
                known += 1
            else:
                jobs.append((tool, path, mark))

    def check(job):
        tool, path, mark = job
        p = subprocess.run(tool.command(path), cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
        if p.returncode == 0:
            open(mark, "w").close()
            return None
        # clang-tidy counts on standard error the warnings it was told not to show.
        return (p.stdout if tool.name == "clang-tidy" and p.stdout else p.stdout + p.stderr).strip()

    start, found, live = time.time(), {t.name: 0 for t in linters}, sys.stdout.isatty()
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        running = {pool.submit(check, j): j for j in jobs}
        for n, f in enumerate(concurrent.futures.as_completed(running), 1):
            tool, path, _ = running[f]
            if live:
                print(f"\r\033[K[{n}/{len(jobs)}] {tool.name} {os.path.relpath(path, ROOT)}", end="", flush=True)
            elif n % 100 == 0:
                print(f"lint: {n} of {len(jobs)} ({time.time() - start:.0f} s)", flush=True)
            if f.result() is not None:
                found[tool.name] += 1
                print(("\r\033[K" if live else "") + f.result(), flush=True)
    if live and jobs:
        print("\r\033[K", end="")
    for name in os.listdir(clean):  # what no run has asked for in a month
        if time.time() - os.stat(os.path.join(clean, name)).st_mtime > 30 * 86400:
            os.unlink(os.path.join(clean, name))
    verdict = ", ".join(f"{name} {'in %d files' % n if n else 'clean'}" for name, n in found.items())
    print(f"lint: {len(paths)} files: {verdict} ({len(jobs)} looked at in {time.time() - start:.0f} s, {known} known)")
    sys.exit(1 if failed or any(found.values()) else 0)


if __name__ == "__main__":
    main()
