"""The static library shows what the shared one does and nothing else, whatever a program calls its own things; and with
it a program runs. (That nothing is lost in it, kernels or types, is shown by the examples: they are linked to it.)"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "interop"), os.path.join(ROOT, "tools")]
import abi
import tap

BUILD = os.environ.get("SHOAL_BUILD", os.path.join(ROOT, "build"))
LIBRARY = os.path.join(BUILD, "libshoal.a")


def run(*command):
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert p.returncode == 0, (command, p.stdout[-2000:])
    return p.stdout


def need_one_object():
    if abi.cached(BUILD, "SHOAL_SANITIZE"):
        raise tap.Skip("a build with sanitizers keeps its objects apart")
    if not shutil.which("nm"):
        raise tap.Skip("there is no nm")


def shown(*arguments):
    return set(re.findall(r"^[0-9a-f]+ \w ([^@\s]+)", run("nm", "--defined-only", *arguments), re.M))


def test_names():
    need_one_object()
    names, shared = shown("-g", LIBRARY), {n for n in shown("-D", os.path.join(BUILD, "libshoal.so")) if n[0] == "s"}
    assert len(names) > 1000 and all(n.startswith("shoal_") for n in names), [n for n in names if n[:6] != "shoal_"][:20]
    assert shared - names <= {"shoal_main"} and names <= shared, names ^ shared  # the command's is not for programs


def test_program_with_names_of_ours():
    need_one_object()
    inside = shown("-g", os.path.join(BUILD, "libshoal_inside.a"))
    taken = sorted(n for n in inside if re.fullmatch(r"(?!shoal_)[a-z]\w+", n))
    assert "pool_new" in taken and len(taken) > 1000, len(taken)
    with open(os.path.join(BUILD, "shoal.pc")) as f:
        libraries = re.search(r"^Libs.private: (.*)", f.read(), re.M)[1].split()
    with tempfile.TemporaryDirectory() as folder:
        names, program = os.path.join(folder, "names.c"), os.path.join(folder, "program")
        with open(names, "w") as f:
            f.writelines(f"char {n}[64];\n" for n in taken)
        run(abi.cached(BUILD, "CMAKE_C_COMPILER"), "-w", "-fno-builtin", f"-I{ROOT}/include", f"-I{BUILD}/gen/include",
            "-o", program, os.path.join(ROOT, "examples", "hello.c"), names, LIBRARY, *libraries)
        assert "40 + 2 = 42" in run(program)


if __name__ == "__main__":
    tap.main(globals())
