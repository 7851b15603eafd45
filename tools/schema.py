#!/usr/bin/env python3
"""Checks that src/proto is the one schema: no field is read or written by a bare number, no message is declared that
nothing uses, and what means something to many is read and written in one file (HOMES).

  tools/schema.py [FILE...]     FILEs are looked at for bare numbers alone; default: all of src/

A message is used when the code has one of its fields by name, or one that holds it; or when a descriptor of it, or of
one that holds it, is looked up (protobuf-c's, of types that DecodeProto knows and of messages as text).
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BARE = [(re.compile(r"\b(wire_(add_\w+|open|find_tag|tag)|message_(int|bytes|string|header|field_size))\("
                    r"(?:[&*\w.>\-]+(?:\([^()]*\))?, )?\(?\d"), "a field by its bare number"),
        (re.compile(r"(\.|->)(number|tag) *(==|!=|<=|>=?|<(?! 1\b)) *\d"), "a field by its bare number"),
        (re.compile(r"\d+ << 3 \| WIRE_"), "a tag put together by hand")]
# Messages with one reader and one writer, in one file: the others ask it.
HOMES = {"src/runtime/session_config.c": ["ConfigProto", "GPUOptions", "GraphOptions", "RewriterConfig"]}
WORD = re.compile(r"(message|enum|oneof) (\w+) *\{|(\})|(?:map<\w+, *([\w.]+)>|(?:repeated )?([\w.]+)) (\w+) = \d")
SWITCH = re.compile(r"switch \([^()]*(?:\.|->)(?:number|tag)\) \{((?:[^{}]|\{[^{}]*\})*)\}")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def messages():
    """{name in C: (file, {field: name of its type})}, of all .proto files; enums have no fields."""
    found = {}
    for path in sorted(glob.glob(os.path.join(ROOT, "src/proto/*.proto"))):
        scope = []
        for word in WORD.finditer(re.sub(r"//.*", "", read(path))):
            kind, name, end, value, one, field = word.groups()
            if kind:
                scope.append(name if kind == "message" else None)
                if kind == "message":
                    found["_".join(s for s in scope if s)] = (os.path.basename(path), {})
            elif end:
                scope.pop()
            elif any(scope):
                found["_".join(s for s in scope if s)][1][field] = (value or one).replace(".", "_")
    return found


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def unused(code):
    known = messages()
    words = set(re.findall(r"\b(?:put_|find_|begin_)?([A-Z]\w*_\w+)", code))
    looked_up = {d.removeprefix("serving__").replace("__", "_")
                 for d in re.findall(r"\btensorflow__(\w+?)__descriptor\b", code)}
    def of_type(t):
        return [k for k in known if k == t or k.endswith("_" + t) or t.endswith("_" + k)]

    todo = [m for m in known if snake(m) in looked_up]  # whose fields are found while running
    used = set()
    while todo:
        m = todo.pop()
        if m in used:
            continue
        used.add(m)
        for t in known[m][1].values():
            todo += of_type(t)
    used |= {m for m in known if any(w.startswith(m + "_") for w in words)}
    words |= {w.removesuffix("_n") for w in words}  # put_M_FIELD_n
    used |= {k for m in known for field, t in known[m][1].items() if f"{m}_{field}" in words for k in of_type(t)}
    holders = {m for m in known for u in used if u.startswith(m + "_")}  # of a nested one
    return [(known[m][0], m) for m in known if m not in used | holders]


def main():
    errors, code = [], []
    for path in sys.argv[1:] or sorted(glob.glob(os.path.join(ROOT, "src/**/*.*"), recursive=True)):
        if path.endswith((".c", ".h", ".inc")):
            text, shown = read(path), os.path.relpath(path, ROOT)
            code.append(text)
            for i, line in enumerate(text.split("\n"), 1):
                errors += [f"{shown}:{i}: {what}: its name is in src/proto" for rule, what in BARE if rule.search(line)]
            for home, names in HOMES.items():
                fields = re.compile(rf"\b(?:(?:put|find|begin)_)?({'|'.join(names)})_\w+")
                for m in fields.finditer(text) if shown != home else []:
                    line = text.count("\n", 0, m.start()) + 1
                    errors.append(f"{shown}:{line}: {m.group(1)} is read and written in {home} alone")
            for m in SWITCH.finditer(text):
                if re.search(r"\bcase \d", m.group(1)):
                    errors.append(f"{shown}:{text.count(chr(10), 0, m.start()) + 1}: fields by their bare numbers")
    if not sys.argv[1:]:
        errors += [f"src/proto/{file}: nothing uses {m}" for file, m in unused("\n".join(code))]
    print("\n".join(sorted(errors)) or "schema: every field by name, every message used")
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
