#!/usr/bin/env python3
"""What a compiled program relies on: exported symbols with their versions and prototypes, the types of callbacks, the
layout of public structs and the types of their fields, the values of public constants, those that are macros too.

    tools/abi.py BUILD              compares with packaging/abi.txt, the last release's; says what changed, what to do
    tools/abi.py --write BUILD      writes packaging/abi.txt: when a version is released, after a look at what changed

What is added is no difference: a program of the last release never asks for it. A function that is added is of a later
version than those released (cmake/symbols.cmake). Sizes and offsets come from a C program
that includes the headers, so the compiler is the judge; the two processors that are supported agree in all of them.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEPT = os.path.join(ROOT, "packaging", "abi.txt")
ADVICE = """\
A program that was compiled with the last release would not run with this library, or would run wrong. Either
- leave what is there as it was, and add beside it: a new function, a new field at the end of a struct of options
  (aligned to 8 bytes and filling them, so that nothing lies in what was padding); or
- if it must be: raise the major version in include/shoal/version.h, and run `tools/abi.py --write build`.
What is new belongs to a version that is not released yet: raise the minor one in include/shoal/version.h, once after
each release."""


def cached(build, name):
    """What the build folder was configured with; "": nothing."""
    with open(os.path.join(build, "CMakeCache.txt")) as f:
        found = re.search(rf"^{name}:\w+=(.*)$", f.read(), re.M)
    return found[1] if found else ""


def run(*command, **options):
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if p.returncode:
        raise SystemExit(f"abi: {' '.join(command)}\n{p.stdout}")
    return p.stdout


def preprocessed(build):
    """The public headers as one text without comments and macros."""
    flags = ["-I", os.path.join(ROOT, "include"), "-I", os.path.join(build, "gen", "include"), "-DSHOAL_NO_PLACES"]
    headers = sorted(os.path.basename(h) for h in glob.glob(os.path.join(ROOT, "include", "shoal", "*.h")))
    source = "".join(f"#include <shoal/{h}>\n" for h in headers)
    lines, keep = [], False
    for line in run("cc", *flags, "-E", "-", input=source).splitlines():
        if line.startswith("# "):
            keep = "/shoal/" in line.split('"')[1]
        elif keep:
            lines.append(line)
    text = re.sub(r"\bbool\b", "_Bool", " ".join(lines))  # which of the two a compiler makes of it
    return source, flags, re.sub(r"__attribute__ *\(\((?:[^()]|\([^()]*\))*\)\)", "", text)


def declared_name(text):
    """Of one declarator: `*const *x`, `x[4]`, `(*x)(...)`."""
    m = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", text) or re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", text.strip())
    return m[1]


def without_names(parameters):
    """Types alone, of the text between a function's brackets."""
    types = (re.sub(r"(?<=[\s*])\w+$", "", p.strip()).strip() or p.strip() for p in parameters.split(","))
    return f"({', '.join(types)})"


def fields(body):
    """(name, type) of a struct's fields: declarations end with a semicolon, declarators are set apart by commas outside
    of brackets."""
    body = re.sub(r"enum\s*\{[^}]*\}", "enum e", body)
    for declaration in filter(str.strip, body.split(";")):
        depth, part, parts = 0, "", []
        for c in declaration:
            depth += (c in "([{") - (c in ")]}")
            if c == "," and not depth:
                parts.append(part)
                part = ""
            else:
                part += c
        parts.append(part)
        base = re.split(rf"[*(]|\b{declared_name(parts[0])}\b\s*(?:\[|$)", parts[0].strip())[0]
        for i, p in enumerate(parts):
            name = declared_name(p)
            declarator = p.strip()[0 if i else len(base):]
            called = re.fullmatch(r"(\**)\s*\(\s*\*\s*\w+\s*\)\s*\((.*)\)", declarator.strip(), re.S)
            rest = f"{called[1]}(*){without_names(called[2])}" if called else re.sub(rf"\b{name}\b", "", declarator)
            yield name, " ".join(f"{base} {rest}".split())


def macros():
    """Public constants that are macros: whole numbers, but for the version's."""
    number = r"(?:\d+|INT\d+_M(?:IN|AX))"
    for path in sorted(glob.glob(os.path.join(ROOT, "include", "shoal", "*.h"))):
        with open(path) as f:
            yield from re.findall(rf"^#define (SHOAL_(?!VERSION)\w+) \(?-?{number}(?: [-+] {number})?\)?(?: */\*.*)?$",
                                  f.read(), re.M)


def callbacks(text):
    """Lines "type NAME PROTOTYPE" of functions that programs give."""
    for kind, name, parameters in re.findall(r"typedef ([\w\s*]*?)\b(shoal_\w+)\s*\(([^;{}]*)\)\s*;", text):
        yield re.sub(r"\s+", " ", f"type {name} {kind.strip()} {without_names(parameters)}")


def layouts(source, flags, text):
    """Lines "struct NAME size N", "field NAME.FIELD offset N size N TYPE", "constant NAME N"."""
    program = "#include <stddef.h>\n#include <stdio.h>\n" + source + "int main(void) {\n"
    for body, name in re.findall(r"typedef struct \w+ \{((?:[^{}]|\{[^{}]*\})*)\} *(\w+);", text):
        program += f'printf("struct {name} size %zu\\n", sizeof({name}));\n'
        for field, kind in fields(body):
            program += (f'printf("field {name}.{field} offset %zu size %zu {kind}\\n", offsetof({name}, {field}), '
                        f'sizeof((({name} *)0)->{field}));\n')
    for body in re.findall(r"\benum\b\s*\w*\s*\{([^}]*)\}", text):
        for name in re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", body.strip()):
            program += f'printf("constant {name} %d\\n", (int){name});\n'
    for name in macros():
        program += f'printf("constant {name} %lld\\n", (long long){name});\n'
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "layout")
        run("cc", "-w", *flags, "-x", "c", "-", "-o", path, input=program + "return 0;\n}\n")
        return run(path).splitlines()


def symbols(build, text):
    """Lines "symbol NAME@VERSION PROTOTYPE"."""
    prototypes = {}
    outside = re.sub(r"\{(?:[^{}]|\{[^{}]*\})*\}", ";", text)
    for statement in outside.split(";"):
        m = re.match(r"(?!typedef|static)([\w\s*]*?\b)(shoal_\w+)\s*\((.*)\)$", statement.strip(), re.S)
        if m:
            prototypes[m[2]] = re.sub(r"\s+", " ", f"{m[1].strip()} {without_names(m[3])}")
    listed = run("nm", "-D", "--defined-only", os.path.join(build, "libshoal.so"))
    for name, version in re.findall(r" [TDBRW] (\w+)@@?(\S+)$", listed, re.M):
        yield f"symbol {name}@{version} {prototypes.get(name, '')}".rstrip()


def current(build):
    source, flags, text = preprocessed(build)
    return sorted([*symbols(build, text), *layouts(source, flags, text), *callbacks(text)])


def parts(line):
    """("symbol x@V", "prototype"): what it is, and what of it must stay."""
    kind, name, *rest = line.split(" ", 2)
    return f"{kind} {name}", rest[0] if rest else ""


def differences(kept, now):
    """What a program of then would miss now: a list of sentences, empty when nothing."""
    old, new = dict(map(parts, kept)), dict(map(parts, now))
    owned = {n.split()[1] for n in new if n.startswith("field")}
    sized = {f.split(".")[0] for f in owned if f.endswith(".size")}
    # An array's elements have no size: the struct that has it says how large they are, in FIELD_size.
    told = tuple("_" + f.split(".")[1].removesuffix("_size") for f in owned
                 if f.endswith("_size") and f.split(".")[0] in sized)
    sized |= {f.split(".")[0] for f in owned if f.split(".")[0].endswith(told)}
    wrong = []
    for what, was in old.items():
        kind, name = what.split()
        if what not in new:
            wrong.append(f"{what} is gone")
        elif new[what] != was and not (kind == "struct" and name in sized and int(new[what][5:]) > int(was[5:])):
            wrong.append(f"{what}: was {was}, is {new[what]}")
    released = {what.split("@")[1] for what in old if what.startswith("symbol")}
    for what, layout in new.items():
        if what.startswith("symbol") and what not in old and what.split("@")[1] in released:
            wrong.append(f"{what} is new, of a version that was released without it")
        struct = what.split()[1].split(".")[0]
        if not what.startswith("field") or what in old or f"struct {struct}" not in old:
            continue
        offset, size = int(layout.split()[1]), int(layout.split()[3])
        if struct not in sized:
            wrong.append(f"{what} is new, in a struct that cannot grow: it has no `size`")
        elif offset < int(old[f"struct {struct}"][5:]):
            wrong.append(f"{what} is new at offset {offset}: not after all that the struct had, padding too")
        elif offset % 8 or size % 8:
            wrong.append(f"{what} is new and leaves padding (offset {offset}, size {size}): make it 8 bytes")
    return wrong


def main(arguments):
    write = arguments[:1] == ["--write"]
    if len(arguments) != 1 + write:
        raise SystemExit(__doc__)
    now = current(arguments[-1])
    if write:
        with open(KEPT, "w") as f:
            f.write("\n".join(now) + "\n")
        return
    with open(KEPT) as f:
        kept = f.read().splitlines()
    wrong = differences(kept, now)
    if wrong:
        raise SystemExit("\n".join(["abi: changed since packaging/abi.txt:", *("  " + w for w in wrong), ADVICE]))
    print(f"abi: all {len(kept)} of the last release are as they were, {len(set(now) - set(kept))} are new")


if __name__ == "__main__":
    main(sys.argv[1:])
