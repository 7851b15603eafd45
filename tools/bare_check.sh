#!/bin/sh
# The front door as a new user finds it: in a Debian 12 with nothing but git and make, a clone of this tree's HEAD has
# `make demo` and `make test` done to the end; then once more with everything optional installed.
#   tools/bare_check.sh [bare|full]... [-- TARGET...]      default: bare full -- demo test
# Needs root. The systems stay in $SHOAL_CACHE/chroot/{bare,full}, to look at; the next run makes them anew.
cd "$(dirname "$0")/.." || exit 1
. tools/env.sh
. tools/chroot.sh

systems=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in bare | full) systems="$systems $1" ;; *) echo "bare_check: what is '$1'? bare or full" >&2; exit 2 ;; esac
  shift
done
[ $# -gt 0 ] && shift
targets=${*:-demo test}

failed=
for system in ${systems:-bare full}; do
  chroot_new "$system" && chroot_tree "$system" || exit 1
  [ "$system" = full ] && targets="deps-all $targets"
  for target in $targets; do
    echo "bare_check: $system: make $target"
    chroot_run "$system" make -C "$PWD" --no-print-directory "$target" ||
      { failed="$failed $system:$target"; echo "bare_check: $system: make $target: failed"; }
  done
done
[ -z "$failed" ] && echo "bare_check: all is well" && exit 0
echo "bare_check: failed:$failed"
exit 1
