#!/bin/sh
# Builds for the other architecture, with gcc and with clang, and runs the unit tests under qemu-user; then the kernels
# that are chosen at run time (tools/kernels.sh). x86_64 builds for aarch64 and the other way round.
#   tools/cross_check.sh [gcc|clang]...      default: gcc clang
# Needs root. Compilers, libraries of both architectures and qemu are Debian's, in a system of its own
# ($SHOAL_CACHE/chroot/cross), which is kept; remove it to have it made anew.
cd "$(dirname "$0")/.." || exit 1
. tools/env.sh
. tools/chroot.sh

case $(uname -m) in
  x86_64) arch=arm64 machine=aarch64 gnu=aarch64-linux-gnu ;;
  aarch64) arch=amd64 machine=x86_64 gnu=x86_64-linux-gnu ;;
  *) echo "cross_check: what is the other architecture of $(uname -m)?" >&2; exit 1 ;;
esac
qemu=/usr/bin/qemu-$machine-static

if [ ! -e "$CHROOTS/cross/.ready" ]; then
  libraries=$(sed -n '/^PACKAGES="/,/"/p' tools/deps.sh | tr -s ' "' '\n\n' | grep -E '^(lib|zlib).*-dev$')
  chroot_new cross && chroot_run cross dpkg --add-architecture $arch && chroot_run cross apt-get update -qq &&
    chroot_run cross apt-get install -y -qq --no-install-recommends cmake ninja-build ccache pkg-config python3 clang \
      lld qemu-user-static protobuf-c-compiler "gcc-$(echo $gnu | tr _ -)" "libc6-dev-$arch-cross" \
      $(for l in $libraries; do echo "$l:$arch"; done) || exit 1
  touch "$CHROOTS/cross/.ready"
fi

chroot_tree cross || exit 1
cat >"$CHROOTS/cross/tmp/toolchain.cmake" <<END
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $machine)
set(CMAKE_LIBRARY_ARCHITECTURE $gnu)
set(CMAKE_C_COMPILER_TARGET $gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR $qemu)
set(PKG_CONFIG_EXECUTABLE $gnu-pkg-config)
END

failed=
for compiler in ${*:-gcc clang}; do
  case $compiler in
    gcc) command=$gnu-gcc ;;
    clang) command=clang ;;
    *) echo "cross_check: what is '$compiler'? gcc or clang" >&2; exit 2 ;;
  esac
  build=build-cross-$compiler
  echo "cross_check: $compiler for $machine"
  chroot_run cross sh -ec "cd '$PWD'
    cmake -S . -G Ninja -B $build -DCMAKE_TOOLCHAIN_FILE=/tmp/toolchain.cmake -DCMAKE_C_COMPILER=$command \
      -DCMAKE_C_COMPILER_LAUNCHER=ccache >/dev/null
    ninja -C $build --quiet
    python3 tests/run.py --build $build --emulator $qemu --patience 20 unit
    tools/kernels.sh $build $qemu" || failed="$failed $compiler"
done
[ -z "$failed" ] && echo "cross_check: all is well" && exit 0
echo "cross_check: failed:$failed"
exit 1
