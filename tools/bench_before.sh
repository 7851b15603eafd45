#!/bin/sh
# bench_before.sh COMMIT BUILD: chains of ops and small variables through servers, and training on parameter servers, of
# this build and of an earlier commit's, in turns. The commit is checked out and built under build-before; jobs are
# started anew three times.
set -e
. "$(dirname "$0")/env.sh"
commit=$(git rev-parse --verify --quiet "$1^{commit}") || {
  echo "bench-before: there is no commit '$1' here; say BEFORE=COMMIT" >&2
  exit 2
}
tree=build-before/tree
mkdir -p "$tree"
if [ "$(cat build-before/commit 2>/dev/null)" != "$commit" ]; then
  rm -rf "$tree" && mkdir "$tree"
  git archive "$commit" | tar x -C "$tree"
  echo "$commit" >build-before/commit
fi
cp bench/train_worker.c "$tree/bench/" # the same jobs, of models that it may not have had
echo "building $(git log -1 --format='%h %s' "$commit") ..."
cmake -S "$tree" -B build-before/build -G Ninja ${SHOAL_LAUNCHER:+-DCMAKE_C_COMPILER_LAUNCHER=$SHOAL_LAUNCHER} \
  >build-before/log
cmake --build build-before/build --target train_worker shoal >>build-before/log
tools/python.sh bench/cluster.py --build "$2" --before build-before/build --only 'chain of adds|200 variables'
exec tools/python.sh bench/training.py --build "$2" --before build-before/build --starts 3 --rounds 5
