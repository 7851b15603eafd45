#!/usr/bin/env python3
"""Makes a wheel: the command `shoal`, the libraries it needs inside, and the module shoal.in_place.

    packaging/wheel.py BUILD_DIR [OUTPUT_DIR]      default: BUILD_DIR/packages

A wheel is a zip file whose folders pip lays out: NAME.data/scripts goes to the environment's bin, NAME.data/data to its
root, the rest to site-packages. So the command lands beside python and the libraries in lib/shoal, where the command's
RPATH (CMakeLists.txt) looks first: nothing is set in the environment, which programs that `shoal launch` starts would
inherit, and TensorFlow's own libraries never meet these. The C library itself comes from the system; its version is in
the wheel's name, so that pip refuses where it is older.
"""
import base64
import glob
import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Of the C library and the compiler, which every system has.
SYSTEM = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s))\.so\.\d+$")
MODULE = {
    "__init__.py": '"""Shoal: distributed training in C, compatible with TensorFlow. `python -m shoal.in_place` runs\n'
                   'a TensorFlow program with `shoal server` in the place of its servers."""\n'
                   '__version__ = "{version}"\n',
    "__main__.py": '"""`python -m shoal` is the command."""\nimport os\nimport sys\n\n'
                   'from shoal.in_place import shoal\n\n'
                   'command = shoal()\nos.execvp(command, [command, *sys.argv[1:]])\n',
}
DESCRIPTION = """Metadata-Version: 2.1
Name: shoal
Version: {version}
Summary: Distributed training in C, compatible with TensorFlow
License: MIT
Requires-Python: >=3.9
"""


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def libraries(path):
    """(name, file) of all that a library is linked to and a system may lack."""
    found = re.findall(r"^\s*(\S+) => (/\S+)", run("ldd", path), re.M)
    return [(name, file) for name, file in found if not SYSTEM.match(name)]


def licence(file):
    """Debian's word on what a library may be used for; none where the system is not Debian."""
    for path in (os.path.realpath(file), file):
        p = subprocess.run(["dpkg", "-S", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                           check=False)
        package = p.stdout.split(":")[0]
        found = f"/usr/share/doc/{package}/copyright"
        if p.returncode == 0 and os.path.exists(found):
            return package, found
    return None, None


class Wheel:
    def __init__(self, path):
        self.zip, self.record = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6), []

    def add(self, name, data, mode=0o644):
        info = zipfile.ZipInfo(name)  # of 1980: the same input makes the same wheel
        info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}\n")

    def add_file(self, name, path, mode=0o644):
        with open(path, "rb") as f:
            self.add(name, f.read(), mode)

    def end(self, name):
        self.zip.writestr(name, "".join(self.record) + f"{name},,\n")
        self.zip.close()


def main():
    build = os.path.abspath(sys.argv[1])
    out = sys.argv[2] if len(sys.argv) > 2 else os.path.join(build, "packages")
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for component in ("lib", "command"):
            run("cmake", "--install", build, "--prefix", folder, "--component", component, "--strip")
        shared = glob.glob(f"{folder}/**/libshoal.so.*.*", recursive=True)[0]
        version = re.search(r"\.so\.(.*)", shared).group(1)
        tag = f"py3-none-manylinux_{platform.libc_ver()[1].replace('.', '_')}_{platform.machine()}"
        for old in glob.glob(os.path.join(out, "shoal-*.whl")):  # one of another version: *.whl would be both
            os.remove(old)
        name = os.path.join(out, f"shoal-{version}-{tag}.whl")
        wheel, data, info = Wheel(name), f"shoal-{version}.data", f"shoal-{version}.dist-info"
        wheel.add_file(f"{data}/scripts/shoal", f"{folder}/bin/shoal", 0o755)
        inside = [(f"libshoal.so.{version.split('.')[0]}", shared), *libraries(shared)]
        for library, file in inside:
            wheel.add_file(f"{data}/data/lib/shoal/{library}", file, 0o755)
        for package, file in sorted({licence(file) for _, file in inside[1:]} - {(None, None)}):
            wheel.add_file(f"{info}/licenses/{package}", file)
        wheel.add_file(f"{info}/licenses/LICENSE", os.path.join(ROOT, "LICENSE"))
        for module, text in MODULE.items():
            wheel.add(f"shoal/{module}", text.format(version=version).encode())
        wheel.add_file("shoal/in_place.py", os.path.join(ROOT, "tools", "in_place.py"))
        wheel.add(f"{info}/METADATA", DESCRIPTION.format(version=version).encode())
        wheel.add(f"{info}/WHEEL",
                  f"Wheel-Version: 1.0\nGenerator: shoal\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
        wheel.end(f"{info}/RECORD")
        print(f"{os.path.relpath(name)}: {os.path.getsize(name) / 1e6:.1f} MB, with {', '.join(n for n, _ in inside)}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main()
