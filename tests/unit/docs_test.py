"""docs/ops.md is what `make docs` writes; documents name files and packages that there are; the installed headers stand
alone, in C and in C++; their macros work in C++, and so does what README shows; an installed library can be used through
pkg-config and CMake."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "interop"))
import tap

BUILD = os.environ.get("SHOAL_BUILD", os.path.join(ROOT, "build"))


def sh(*command, **options):
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    assert p.returncode == 0, f"{' '.join(command)}\n{p.stdout}"
    return p.stdout


def test_table_of_ops_is_current():
    with open(os.path.join(ROOT, "docs", "ops.md")) as f:
        kept = f.read()
    made = sh(os.path.join(BUILD, "gen_ops"), "--docs")
    assert kept == made, "docs/ops.md is not what the op rows say: make docs"


def alternatives(text):
    """What a shell makes of a{b,c}d."""
    m = re.search(r"\{([^{}]*)\}", text)
    return [text] if not m else [t for a in m[1].split(",") for t in alternatives(text[:m.start()] + a + text[m.end():])]


def test_invariants_and_locks_are_those_stated():
    """Every invariant that docs/design.md numbers is asserted, and no other; the order of locks names locks there are, and
    all that takes a lock or waits with one is checked."""
    with open(os.path.join(ROOT, "docs", "design.md")) as f:
        section = f.read().split("## Invariants of a step\n")[1].split("\n## ")[0]
    stated, asserted = set(re.findall(r"^(\d+)\. ", section, re.M)), set()
    sources = {}
    for path in glob.glob(os.path.join(ROOT, "src", "**", "*.[ch]"), recursive=True):
        with open(path) as f:
            sources[os.path.relpath(path, os.path.join(ROOT, "src"))] = text = f.read()
        asserted |= set(re.findall(r"\bINVARIANT\((\d+),", text))
    assert stated and stated == asserted, (stated, asserted)
    listed = re.findall(r'^ *\{"([^"]+)", "([^"]+)"', sources["base/lock_check.c"], re.M)
    unknown = [(path, name) for path, name in listed if name not in sources.get(path, "")]
    assert len(listed) > 10 and not unknown, unknown
    taken = {name for text in sources.values() for name in
             re.findall(r"\b(pthread_(?:mutex|rwlock|spin)_(?:\w*lock|init|destroy)|pthread_cond_\w*wait)\(", text)}
    checked = set(re.findall(r"^#define (pthread_\w+)\(", sources["base/lock_check.h"], re.M))
    assert taken == checked, taken ^ checked


def test_documents_name_what_is_there():
    """Links, and files and folders that are named; packages are those that `make deps` installs."""
    folders = tuple(f + "/" for f in os.listdir(ROOT) if os.path.isdir(os.path.join(ROOT, f)))
    pages = [os.path.join(ROOT, "README.md"), os.path.join(ROOT, "CONTRIBUTING.md"),
             *glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)]
    for page in pages:
        with open(page) as f:
            text = f.read()
        links = [t for t in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in t]
        wrong = [t for t in links if not os.path.exists(os.path.join(os.path.dirname(page), t))]
        named = [w.rstrip(".,:;") for code in re.findall(r"`([^`\n]+)`", text) for w in code.split()]
        paths = [t for w in named if w.startswith(folders) and not re.search("[A-Z]{3}", w) for t in alternatives(w)]
        wrong += [t for t in paths if not t.startswith("build") and not glob.glob(os.path.join(ROOT, t))]
        assert not wrong, (page, wrong)
    with open(os.path.join(ROOT, "tools", "deps.sh")) as f:
        lists = dict(re.findall(r'^(PACKAGES|WANTED|DAEMONS)="([^"]*)"', f.read(), re.M))
    with open(os.path.join(ROOT, "docs", "dependencies.md")) as f:
        text = f.read()
    rows = {name.strip() for row in re.findall(r"^\| ([^|]*) \|", text, re.M)[1:] for name in row.split(",")}
    assert rows == {*lists["PACKAGES"].split(), *lists["WANTED"].split()}, rows
    assert all(name in text for name in lists["DAEMONS"].split())


def test_libraries_are_those_named():
    """What the library is linked to and what `make deps` installs to build it are the same: nothing is left over."""
    need_plain_build()
    linked = set(re.findall(r"NEEDED.*\[lib([a-z-]+)[\d.]*\.so", sh("readelf", "-d", os.path.join(BUILD, "libshoal.so"))))
    with open(os.path.join(ROOT, "tools", "deps.sh")) as f:
        packages, = re.findall(r'^PACKAGES="([^"]*)"', f.read(), re.M)
    named = {re.sub(r"^lib|(1g|\d+)?-dev$", "", p) for p in packages.split() if p.endswith("-dev") and "cmocka" not in p}
    others = {"zlib": ["z"], "ssl": ["ssl", "crypto"]}
    assert linked - {"m", "c"} == {name for p in named for name in others.get(p, [p])}, (linked, named)


def test_the_tree_is_shown_as_it_is():
    """README's table has every public header, its and docs/design.md's every folder, and that one's every room."""
    with open(os.path.join(ROOT, "README.md")) as f:
        readme = f.read().split("## The tree")[1].split("\n## ")[0]
    with open(os.path.join(ROOT, "docs", "design.md")) as f:
        layers = f.read().split("## Layers")[1].split("\n## ")[0]
    headers = os.listdir(os.path.join(ROOT, "include", "shoal"))
    hidden = [h for h in headers if h not in readme and h != "shoal.h"]
    src = os.path.join(ROOT, "src")
    folders = [f for f in os.listdir(src) if os.path.isdir(os.path.join(src, f))]
    hidden += [f for f in folders if f"(src/{f}/)" not in readme or f"`src/{f}/`" not in layers]
    rooms = dict(re.findall(r"^\| `(\w+)/` \| ([^|]*) \|", layers, re.M))
    assert not hidden and set(rooms) == set(os.listdir(os.path.join(src, "ops"))), (hidden, rooms.keys())
    for room, sentence in rooms.items():
        with open(min(glob.glob(os.path.join(src, "ops", room, "*.c")))) as f:
            said = f.readline()
        assert said == f"/* ops/{room}: {sentence}. */\n", said


def installed(folder):
    prefix = os.path.join(folder, "prefix")
    sh("cmake", "--install", BUILD, "--prefix", prefix)
    return prefix


def compilers():
    """The C++ compilers there are."""
    found = [c for c in ("g++", "clang++") if shutil.which(c)]
    if not found:
        raise tap.Skip("there is no C++ compiler")
    return found


def test_both_compilers():
    """Whichever is there is used by the tests below; which is not is told."""
    missing = [c for c in ("g++", "clang++") if c not in compilers()]
    if missing:
        raise tap.Skip(f"there is no {missing[0]}: headers, macros and examples are tried with the other compiler alone")


STRICT = ("-Wall", "-Wextra", "-pedantic", "-Werror")


def check_headers(*compiler):
    with tempfile.TemporaryDirectory() as folder:
        include = os.path.join(installed(folder), "include")
        for name in sorted(os.listdir(os.path.join(include, "shoal"))):
            source = f"#include <shoal/{name}>\n#include <shoal/{name}>\nint main(void) {{ return 0; }}\n"
            sh(*compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", include, "-", input=source)


def test_headers_stand_alone():
    check_headers("cc", "-x", "c")


def test_headers_in_cpp11():
    for compiler in compilers():
        check_headers(compiler, "-x", "c++", "-std=c++11", "-pedantic")


def test_macros_in_cpp20():
    need_plain_build()
    flags = ["-std=c++20", *STRICT, f"-I{ROOT}/include", f"-I{BUILD}/gen/include", f"-L{BUILD}", "-lshoal",
             f"-Wl,-rpath,{BUILD}"]
    with tempfile.TemporaryDirectory() as folder:
        for compiler in compilers():
            program = os.path.join(folder, compiler)
            sh(compiler, os.path.join(ROOT, "tests", "unit", "macros.cc"), "-o", program, *flags)
            assert "not ok" not in sh(program)


def test_examples_in_cpp20():
    for program in sorted(glob.glob(os.path.join(ROOT, "examples", "*.c"))):
        for compiler in compilers():
            sh(compiler, "-x", "c++", "-std=c++20", "-fsyntax-only", f"-I{ROOT}/include", f"-I{BUILD}/gen/include", program)


def snippets(name):
    """The C that a document shows, as whole files: what is no program is put into one."""
    with open(os.path.join(ROOT, name)) as f:
        for text in re.findall(r"```c\n(#include.*?)```", f.read(), re.S):
            includes = "".join(re.findall(r"^#include.*\n", text, re.M))
            rest = re.sub(r"^#include.*\n", "", text, flags=re.M)
            yield text if "int main" in text else f"{includes}int main(void) {{\n{rest}\nreturn 0;\n}}\n"


def test_what_readme_shows():
    for text in snippets("README.md"):
        for command in [("cc", "-x", "c", "-std=c17")] + [(c, "-x", "c++", "-std=c++20") for c in compilers()]:
            sh(*command, *STRICT, "-Wno-unused-variable", "-Wno-unused-but-set-variable", "-fsyntax-only",
               f"-I{ROOT}/include", f"-I{BUILD}/gen/include", "-", input=text)


# What the pieces of programs in the guides stand in.
AROUND = """#include <shoal/shoal.h>
const char *device_of(int task);
shoal_out tower(shoal_graph *g, const shoal_var *vars, shoal_out x, shoal_out y);
shoal_out make_dataset(shoal_graph *g);
shoal_op *step(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg);
%s
void shown(shoal_graph *g, shoal_out loss_, int task, bool is_chief, int towers, int n, const shoal_var *vars,
           shoal_var step_, const shoal_out *values, const shoal_out *xs, const shoal_out *ys, shoal_out *losses,
           shoal_gradient *grads, shoal_gradient *mean, shoal_status error, shoal_strategy *strategy, shoal_out x,
           shoal_out y, shoal_out *in, shoal_tensor *images, shoal_tensor *labels, shoal_cluster *cluster,
           shoal_server *server) {
%s
}
"""


def test_pieces_that_the_guides_show():
    for name, count in (("docs/training.md", 3), ("docs/strategies.md", 4)):
        with open(os.path.join(ROOT, name)) as f:
            pieces = [t for t in re.findall(r"```c\n(.*?)```", f.read(), re.S) if "int main" not in t]
        assert len(pieces) == count, (name, len(pieces))
        for text in pieces:
            whole = text.startswith("static")  # a function
            if not whole and "shoal_out loss " not in text:
                text = "shoal_out loss = loss_;\n" + text
            if "step)" in text and "strategy" not in text:
                text = "shoal_var step = step_;\n" + text
            text = AROUND % ((text.replace("static ", "", 1), "") if whole else ("", text))
            for command in [("cc", "-x", "c", "-std=c17")] + [(c, "-x", "c++", "-std=c++20") for c in compilers()]:
                sh(*command, "-Wall", "-Wno-unused-variable", "-Wno-unused-but-set-variable", "-Werror", "-fsyntax-only",
                   f"-I{ROOT}/include", f"-I{BUILD}/gen/include", "-", input=text)


DATASETS = """#include <shoal/shoal.h>
shoal_out split(shoal_graph *g, shoal_out lines, int64_t columns);
shoal_out model(shoal_graph *g, shoal_out x, shoal_out y);
%s
void shown(shoal_graph *g, shoal_out file, const shoal_out *columns, shoal_out d, int task) {
  {
%s
  }
}
"""


def test_pieces_about_datasets():
    with open(os.path.join(ROOT, "docs", "datasets.md")) as f:
        pieces = re.findall(r"```c\n(.*?)```", f.read(), re.S)
    assert len(pieces) == 5, len(pieces)
    for text in pieces:
        text = DATASETS % ((text.replace("static ", "", 1), "") if text.startswith("static") else ("", text))
        sh("cc", "-x", "c", "-std=c17", "-Wall", "-Wno-unused-variable", "-Wno-unused-but-set-variable", "-Werror",
           "-fsyntax-only", f"-I{ROOT}/include", f"-I{BUILD}/gen/include", "-", input=text)


def test_python_of_the_tree_stays_where_it_is():
    """tools/python.sh runs a program of the folder one is in."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "here.py"), "w") as f:
            f.write("print('found')\n")
        assert "found" in sh(os.path.join(ROOT, "tools", "python.sh"), "here.py", cwd=folder)


def test_in_place_says_what_it_wants():
    """A Python without TensorFlow, a program that is not there: a line each, no traceback."""
    with tempfile.TemporaryDirectory() as folder:
        open(os.path.join(folder, "here.py"), "w").close()
        for program, text in (("here.py", "has no TensorFlow"), ("nowhere.py", "there is no program nowhere.py")):
            p = subprocess.run([sys.executable, "-S", os.path.join(ROOT, "tools", "in_place.py"), program], cwd=folder,
                               capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})
            assert p.returncode == 1 and text in p.stderr and "Traceback" not in p.stderr, p


def need_plain_build():
    with open(os.path.join(BUILD, "CMakeCache.txt")) as f:
        if any(line.startswith("SHOAL_SANITIZE:") and line.strip().split("=", 1)[1] for line in f):
            raise tap.Skip("a sanitized library is not for other programs")


def find(folder, name):
    return next(os.path.join(d, name) for d, _, files in os.walk(folder) if name in files)


def test_pkg_config():
    need_plain_build()
    with tempfile.TemporaryDirectory() as folder:
        prefix = installed(folder)
        env = {**os.environ, "PKG_CONFIG_PATH": os.path.dirname(find(prefix, "shoal.pc"))}
        flags = sh("pkg-config", "--cflags", "--libs", "shoal", env=env).split()
        program = os.path.join(folder, "hello")
        sh("cc", os.path.join(ROOT, "examples", "hello.c"), "-o", program, *flags)
        lib = os.path.dirname(find(prefix, "libshoal.so"))
        assert sh(program, env={**os.environ, "LD_LIBRARY_PATH": lib}) == "40 + 2 = 42\n"


def test_cmake_package():
    need_plain_build()
    with tempfile.TemporaryDirectory() as folder:
        prefix = installed(folder)
        with open(os.path.join(folder, "CMakeLists.txt"), "w") as f:
            f.write("cmake_minimum_required(VERSION 3.22)\nproject(user C)\nfind_package(shoal 0.1 REQUIRED)\n"
                    f"foreach(kind shared static)\nadd_executable(hello_${{kind}} {ROOT}/examples/hello.c)\n"
                    "target_link_libraries(hello_${kind} PRIVATE shoal::${kind})\nendforeach()\n")
        sh("cmake", "-S", folder, "-B", os.path.join(folder, "b"), f"-DCMAKE_PREFIX_PATH={prefix}")
        sh("cmake", "--build", os.path.join(folder, "b"))
        for kind in ("shared", "static"):
            assert sh(os.path.join(folder, "b", f"hello_{kind}")) == "40 + 2 = 42\n"


if __name__ == "__main__":
    tap.main(globals())
