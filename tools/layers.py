#!/usr/bin/env python3
"""Checks the order of the layers and the length of files: tools/layers.py [TREE]

A folder of src/ may include from itself and from the folders before it in the table of docs/design.md, but for what
that says it knows nothing of; include/shoal is for all. The runtime stands before the ops: kernels are written against
it, and it reaches them only through the table in the op rows. File formats (checkpoint, data) stand before the ops too,
since the ops that save, restore, read and write are made of them.
A type of device, src/device/TYPE, brings kernels: it stands where the ops do, and uses what these share. Nobody else
knows which types there are: what a type has is included from its own folder alone.
Files of src/ are named from there, "folder/name.h", so that what is included can be seen to be.
A room of src/ops has its row in the table of docs/design.md, and the same words at the top of its first file.
Ops open files through base/file.h alone, which is where --file_root holds them; a thread that runs parts of ops
carries the confinement of whoever started it (base/file_root.h).
Holders of what is shared are counted by base/ref.h, which asserts that whoever takes a reference has one.
The tag of a struct, union or enum is defined in one file: whoever looks for it finds what is meant.
A function of more lines than MAX_MACRO is not inside a macro: it is a .inc file, as src/tensor/each_type.h has it.
A file that a comment sends its reader to ("see NAME.h") is there.
Lines are of at most 120 columns; tables of test cases may be wider.
"""
import os
import re
import sys

MAX_LINES = 1000
MAX_MACRO = 18
OPS = ["checkpoint", "data", "ops"]
FILE_CALL = re.compile(r"\b(fopen|freopen|open|openat|creat|opendir|scandir|glob|nftw|mkdir|rmdir|unlink|remove|rename|"
                       r"stat|lstat|access|realpath|symlink|link|truncate|mkstemp|mkdtemp)\(")

COUNTED = re.compile(r"\batomic_\w+\([^;]*\brefs\b|\batomic_int\b[^;(]*\brefs\b|(\+\+|--)[\w.>-]*\brefs\b|"
                     r"\brefs(\+\+|--)")

TAG = re.compile(r"\b((?:struct|union|enum) \w+) \{")
# A macro of several lines, and the head of a function in one.
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:.*\\\n)+.*", re.M)
FUNCTION = re.compile(r"\b(?:static|void|shoal_status)\b[^;{}()=]*\([^;{}]*\)\s*\\?\s*\{")

SEE = re.compile(r"\bsee ((?:\w+/)*\w+\.(?:h|c|inc|md))\b")

INCLUDE = re.compile(r'\s*#\s*include\s+(["<])([^">]+)[">]')

root = os.path.abspath(sys.argv[1]) if sys.argv[1:] else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The rows of docs/design.md's table: folders in their order, and what each knows nothing of. A word that is no folder's
# (WORDS) is for the reader alone.
WORDS = {"tensors": "tensor", "graphs": "graph", "devices": "device", "ops": "ops", "kernels": "ops",
         "steps": "runtime", "the network": "rpc", "training": "train", "strategies": "strategy"}
ORDER, STRANGERS = [], {}
with open(os.path.join(root, "docs/design.md"), encoding="utf-8") as f:
    design = f.read()
for there, unknown in re.findall(r"^\| (`src/[^|]*) \|[^|]*\| *([^|]*?) *\|$", design, re.M):
    for name in re.findall(r"`src/(\w+)/`", there):
        ORDER.append(name)
        STRANGERS[name] = [WORDS[word] for word in re.split(r", ", unknown) if word in WORDS]


def rooms():
    """What is wrong with the rooms of src/ops, of which the second table says what belongs there."""
    ops = os.path.join(root, "src", "ops")
    table = design.split("| room of `src/ops` |")[1].split("\n\n")[0]
    told = dict(re.findall(r"^\| `(\w+)/` \| ([^|]*?) \|$", table, re.M))
    there = {name for name in os.listdir(ops) if os.path.isdir(os.path.join(ops, name))}
    yield from (f"src/ops/{name} has no row in docs/design.md's table of rooms" for name in there - set(told))
    yield from (f"docs/design.md has a row for src/ops/{name}, which is not there" for name in set(told) - there)
    for name in there & set(told):
        first = min(os.listdir(os.path.join(ops, name)))
        with open(os.path.join(ops, name, first), encoding="utf-8") as f:
            line = f"/* ops/{name}: {told[name]}. */"
            if f.readline().rstrip("\n") != line:
                yield f"src/ops/{name}/{first}: the room's first file begins with {line}"


def included(parts, bracket, name):
    """What is wrong with a line that includes name, in a file of the folder that parts lead to; None: nothing."""
    there, *rest = name.split("/")
    here = "ops" if parts[1] == "device" and parts[2:] else parts[1]
    if ".." in rest or there == "..":
        return f'"{name}": files of src/ are named from there'
    if there not in ORDER or not rest:
        return None
    if bracket == "<":
        return f"<{name}> is ours: \"{name}\""
    if here not in ORDER:
        return f"src/{here} has no place in the order of docs/design.md"
    if there == "device" and rest[1:] and parts[1:3] != ["device", rest[0]]:
        return f"src/device/{rest[0]} is known to itself alone"
    if ORDER.index(there) > ORDER.index(here):
        return f"src/{here} may not include from src/{there}, which stands after it"
    if there in STRANGERS[here]:
        return f"src/{here} knows nothing of src/{there}, by the table in docs/design.md"
    return None


errors = list(rooms())
tags = {}
seen, names = [], set()  # files that comments name, with where; and all there are
for folder, _, files in os.walk(root):
    parts = os.path.relpath(folder, root).split(os.sep)
    if parts[0].startswith(("build", ".")) and parts[0] != ".":
        continue
    names.update(files)
    for name in files:
        if not name.endswith((".c", ".h", ".py", ".sh", ".cu", ".cuh", ".inc")):
            continue
        path = os.path.join(folder, name)
        shown = os.path.relpath(path, root)
        with open(path, encoding="utf-8") as f:
            lines = f.read().split("\n")
        for tag in TAG.findall("\n".join(lines)) if parts[0] == "src" else []:
            tags.setdefault(tag, set()).add(shown)
        seen += [(shown, there) for there in SEE.findall("\n".join(lines))] if parts[0] == "src" else []
        for m in MACRO.finditer("\n".join(lines)) if parts[0] == "src" else []:
            if m.group().count("\n") >= MAX_MACRO and FUNCTION.search(m.group()):
                errors.append(f"{shown}: the macro {m.group(1)} holds a whole function; make it a .inc file")
        if len(lines) > MAX_LINES:
            errors.append(f"{shown}: {len(lines)} lines; look for the seam before {MAX_LINES}")
        by_ops = parts[0] == "src" and parts[1:] and parts[1] in OPS
        if by_ops and any("pthread_create(" in line for line in lines) and "file_roots_use(" not in "\n".join(lines):
            errors.append(f"{shown}: starts a thread that is not confined to --file_root: see base/file_root.h")
        for i, line in enumerate(lines, 1):
            if by_ops and FILE_CALL.search(re.sub(r'"[^"]*"|/\*.*', "", line)):
                errors.append(f"{shown}:{i}: src/{parts[1]} touches files through base/file.h alone")
            if parts[0] == "src" and COUNTED.search(line):
                errors.append(f"{shown}:{i}: references are counted by base/ref.h")
            if len(line) > 120 and parts[0] != "tests":
                errors.append(f"{shown}:{i}: {len(line)} columns")
            m = INCLUDE.match(line)
            wrong = included(parts, *m.groups()) if m and parts[0] == "src" and parts[1:] else None
            if wrong:
                errors.append(f"{shown}:{i}: {wrong}")
errors += [f"{tag} is defined in {', '.join(sorted(where))}" for tag, where in tags.items() if len(where) > 1]
errors += [f"{shown}: a comment says \"see {there}\", and there is no such file" for shown, there in seen
           if os.path.basename(there) not in names]
print("\n".join(sorted(set(errors))) or "layers: in order")
sys.exit(bool(errors))
