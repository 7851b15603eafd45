#!/bin/sh
# Linters over src: the order of layers and lengths, cppcheck, clang-tidy. Each must be silent.
#   tools/lint.sh BUILD_DIR     (for compile_commands.json and the generated headers)
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
rc=0
jobs=$(nproc)

tools/layers.py || rc=1

if command -v cppcheck >/dev/null; then
  # Macros that expand to several statements are beyond its parser, and so are the vector types of philox.c; what it
  # cannot see it must not guess. (It also takes a literal that is handed to a callee for one that is returned.)
  cppcheck -q -j "$jobs" --std=c11 --error-exitcode=1 --enable=warning,portability --inline-suppr \
    --suppress=nullPointerRedundantCheck --suppress=unknownMacro --suppress=syntaxError --suppress=internalAstError \
    --suppress=ctunullpointer --suppress=returnDanglingLifetime --suppress=preprocessorErrorDirective \
    --suppress=uninitvar:src/base/philox.c \
    -I include -I src -I "$build/gen" -I "$build/gen/include" src tools examples || rc=1
else
  echo "lint: no cppcheck (make deps)"
fi

if command -v clang-tidy >/dev/null; then
  git ls-files 'src/*.c' | xargs -P "$jobs" -n 8 clang-tidy -p "$build" --quiet 2>/dev/null || rc=1
else
  echo "lint: no clang-tidy (make deps)"
fi
exit $rc
