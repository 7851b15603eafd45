#!/usr/bin/env python3
"""Finds calls that rest on the order in which their arguments are evaluated.

  tools/order.py [FILE...]     default: every C and C++ file of the tree

C leaves that order open: gcc goes from the right on x86_64 and from the left on aarch64. So

    expect(s, run(s, &v), v == 2)

reads v before or after run() has set it. gcc's own -Wsequence-point sees `v++` and `v = 1`, but not what a function
does through an address. This looks at the text: where one argument holds a call that is handed `&v`, no other argument
of the same call may read v. Lists in braces are held to the same. Handing `&v` itself to the outer call is harmless,
and so are sizeof v and a parameter that this tree declares as a pointer to const.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ["src", "include", "tests", "examples", "bench", "tools"]
BLANKED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
NO_CALL = {"if", "while", "for", "switch", "return", "sizeof", "typeof", "__attribute__", "_Static_assert", "defined",
           "alignof", "_Alignof", "offsetof", "case"}
ADDRESS = re.compile(r"\s*&\s*(?!&)([A-Za-z_]\w*(?:(?:\.|->)\w+|\[[^\]]*\])*)\s*$")
PROTOTYPE = re.compile(r"\b([A-Za-z_]\w*)\s*\(((?:[^();{}]|\([^()]*\))*)\)\s*[;{]")
HARMLESS = re.compile(r"\bsizeof\s*(?:\([^()]*\)|[\w.\->]+)")


def blank(text):
    """The text with comments and strings made blank, line by line where it was; so are the lines of the preprocessor
    other than macros' bodies."""
    text = BLANKED.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    return re.sub(r"^[ \t]*#[ \t]*(?!define)\w+[^\n]*", lambda m: " " * len(m.group()), text, flags=re.M)


def groups(text):
    """(start, end) of what is inside each pair of () and {}."""
    open_, found = [], []
    for i, c in enumerate(text):
        if c in "({[":
            open_.append((c, i))
        elif c in ")}]" and open_:
            kind, start = open_.pop()
            if kind in "({":
                found.append((start + 1, i))
    return found


def parts(text, start, end):
    """Cuts at the commas of the outermost level."""
    depth, begin = 0, start
    for i in range(start, end):
        c = text[i]
        if c in "({[":
            depth += 1
        elif c in ")}]":
            depth -= 1
        elif c == "," and not depth:
            yield begin, i
            begin = i + 1
    yield begin, end


def word_before(text, at):
    m = re.search(r"([A-Za-z_]\w*)\s*$", text[max(0, at - 80):at])
    return m.group(1) if m else ""


def prototypes(texts):
    """By function, for each parameter whether it points to const; a name that is declared in two ways is left out."""
    found, twice = {}, set()
    for text in texts:
        for name, parameters in PROTOTYPE.findall(text):
            consts = ["const" in text_ and text_.count("*") == 1 for text_ in parameters.split(",")]
            if "*" not in parameters or name in NO_CALL:
                continue
            if found.setdefault(name, consts) != consts:
                twice.add(name)
    return {name: consts for name, consts in found.items() if name not in twice}


def handed_on(arg, known):
    """The variables whose addresses are handed to calls inside this argument."""
    names = set()
    for start, end in groups(arg):
        called = word_before(arg, start - 1)
        if arg[start - 1] != "(" or called in NO_CALL | {""}:
            continue
        consts = known.get(called, [])
        for i, (b, e) in enumerate(parts(arg, start, end)):
            m = ADDRESS.match(arg[b:e])
            if m and not (i < len(consts) and consts[i]):
                names.add(m.group(1))
    return names


def reads(arg, name):
    """Is it named there, other than after & and in sizeof?"""
    arg = HARMLESS.sub("", arg)
    return any(not re.search(r"(?<!&)&\s*$|(?:\.|->)\s*$", arg[:m.start()])
               for m in re.finditer(rf"\b{re.escape(name)}(?!\w|\s*\()", arg))


def check(text, known):
    for start, end in groups(text):
        called = word_before(text, start - 1)
        body = text[start:end]
        if ";" in body or "&" not in body or (text[start - 1] == "(" and called in NO_CALL | {""}):
            continue
        args = [text[b:e] for b, e in parts(text, start, end)]
        for i, arg in enumerate(args):
            for name in handed_on(arg, known):
                if any(j != i and reads(other, name) for j, other in enumerate(args)):
                    yield text.count("\n", 0, start) + 1, called, name


def main():
    files = sorted(os.path.join(folder, name) for top in FOLDERS
                   for folder, _, names in os.walk(os.path.join(ROOT, top)) for name in names
                   if name.endswith((".c", ".h", ".inc", ".cc")))
    wanted = [os.path.abspath(p) for p in sys.argv[1:]]
    texts = {}
    for path in dict.fromkeys(files + wanted):
        with open(path, encoding="utf-8", errors="replace") as f:
            texts[path] = blank(f.read())
    known, found = prototypes(texts.values()), 0
    for path in wanted or files:
        for line, called, name in sorted(set(check(texts[path], {**known, **prototypes([texts[path]])}))):
            found += 1
            print(f"{os.path.relpath(path, ROOT)}:{line}: {called or 'a list'}: {name} is set by one argument and read "
                  "by another; their order is open")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
