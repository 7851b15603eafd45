"""docs/ops.md is what `make docs` writes; the installed headers stand alone, in C and in C++; an installed library can be
used through pkg-config and CMake."""
import os
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


def installed(folder):
    prefix = os.path.join(folder, "prefix")
    sh("cmake", "--install", BUILD, "--prefix", prefix)
    return prefix


def test_headers_stand_alone():
    with tempfile.TemporaryDirectory() as folder:
        include = os.path.join(installed(folder), "include")
        for name in sorted(os.listdir(os.path.join(include, "shoal"))):
            for language in ("c", "c++"):
                if language == "c++" and not shutil.which("c++"):
                    continue
                source = f"#include <shoal/{name}>\n#include <shoal/{name}>\nint main(void) {{ return 0; }}\n"
                sh("cc" if language == "c" else "c++", "-x", language, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I",
                   include, "-", input=source)


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
            f.write("cmake_minimum_required(VERSION 3.22)\nproject(user C)\nfind_package(shoal REQUIRED)\n"
                    f"foreach(kind shared static)\nadd_executable(hello_${{kind}} {ROOT}/examples/hello.c)\n"
                    "target_link_libraries(hello_${kind} PRIVATE shoal::${kind})\nendforeach()\n")
        sh("cmake", "-S", folder, "-B", os.path.join(folder, "b"), f"-DCMAKE_PREFIX_PATH={prefix}")
        sh("cmake", "--build", os.path.join(folder, "b"))
        for kind in ("shared", "static"):
            assert sh(os.path.join(folder, "b", f"hello_{kind}")) == "40 + 2 = 42\n"


if __name__ == "__main__":
    tap.main(globals())
