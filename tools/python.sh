#!/bin/sh
# Runs a Python program with TensorFlow's virtual environment where there is one, else with the system's Python; the
# test runner then counts what needs TensorFlow as skipped.
. "$(dirname "$0")/env.sh"
export SHOAL_TORCH_ENV SHOAL_TF_NEWEST_ENV
if [ -x "$SHOAL_TF_ENV/bin/python" ]; then exec "$SHOAL_TF_ENV/bin/python" "$@"; fi
python3 -c 'import sys; from importlib.util import find_spec; sys.exit(not find_spec("tensorflow"))' ||
  echo "python.sh: there is no TensorFlow here: \`make deps\` installs it" >&2
exec python3 "$@"
