#!/bin/sh
# Runs a Python program with TensorFlow's virtual environment where there is one, else with the system's Python; the
# test runner then counts what needs TensorFlow as skipped.
cd "$(dirname "$0")/.." || exit 1
. tools/env.sh
export SHOAL_TORCH_ENV SHOAL_TF_NEWEST_ENV
if [ -x "$SHOAL_TF_ENV/bin/python" ]; then exec "$SHOAL_TF_ENV/bin/python" "$@"; fi
exec python3 "$@"
