#!/bin/sh
# Runs the tests of the kernels that are chosen at run time once for every variant: matrix products, vector loops, CRC.
#   tools/kernels.sh BUILD_DIR [EMULATOR]
# SHOAL_CPU (src/base/cpu.h) makes a machine pretend to have less. What it lacks is emulated where qemu-user has it, and
# named where not. Clones of a function for several instruction sets (VECTOR_CLONES) are chosen by the linker, before
# anybody reads SHOAL_CPU; for these a processor is emulated that has no more than the variant.
# EMULATOR, of a build for another architecture (tools/cross_check.sh): a command that takes qemu's -cpu.
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
emulator=${2:-}
tests="gemm_test vector_math_test broadcast_test optimizer_test gradient_test base_test word2vec_test gpu_layers_test"
# Without the one that takes minutes, and has no clones.
emulated="gemm_test broadcast_test optimizer_test gradient_test base_test word2vec_test gpu_layers_test"
failed= lacking=

# try VARIANT KERNEL COMMAND...: runs the tests by the command; KERNEL is what matrix products must be able to use then.
try() {
  variant=$1 kernel=$2
  shift 2
  if ! "$@" "$build/tests/gemm_test" 2>/dev/null | grep -q "^# kernel $kernel"; then
    lacking="$lacking $variant"
    return
  fi
  for t in $tests; do
    if out=$(SHOAL_EMULATOR="$*" "$@" "$build/tests/$t" 2>&1); then
      echo "ok   $variant: $t"
    else
      failed="$failed $variant:$t"
      echo "FAIL $variant: $t"
      echo "$out" | tail -20 | sed 's/^/     /'
    fi
  done
}

# The emulator of this build's own architecture, if there is one.
own() { command -v "qemu-$1-static" || command -v "qemu-$1"; }

case $(od -An -tx2 -j18 -N2 "$build/tests/gemm_test" | tr -d ' ') in
  003e)
    if [ -z "$emulator" ]; then
      try plain "c float" env SHOAL_CPU=plain
      try avx2 "avx2 float" env SHOAL_CPU=sse4.2,avx2
      try avx512 "avx512 float" env SHOAL_CPU=sse4.2,avx2,avx512
      try avx512_bf16 "avx512 bfloat16" env SHOAL_CPU=-amx
      try amx "amx bfloat16" env
      emulator=$(own x86_64)
    fi
    if [ -n "$emulator" ]; then
      tests=$emulated
      # shellcheck disable=SC2086
      {
        try emulated-plain "c float" $emulator -cpu Nehalem
        try emulated-avx2 "avx2 float" $emulator -cpu max
      }
    else
      lacking="$lacking emulated-plain emulated-avx2(qemu-user-static)"
    fi ;;
  00b7)
    if [ -z "$emulator" ]; then
      try neon "neon float" env SHOAL_CPU=plain
      try bf16 "bfmmla" env
      emulator=$(own aarch64)
    fi
    if [ -n "$emulator" ]; then
      tests=$emulated
      # shellcheck disable=SC2086
      {
        try emulated-neon "neon float" $emulator -cpu cortex-a53
        try emulated-bf16 "bfmmla" $emulator -cpu max
      }
    else
      lacking="$lacking emulated-bf16(qemu-user-static)"
    fi ;;
  *) try plain "c float" env ;;
esac
[ -z "$lacking" ] || echo "kernels: not tried, since this machine does not have them:$lacking"
[ -z "$failed" ] && echo "kernels: all is well" && exit 0
echo "kernels: failed:$failed"
exit 1
