#!/bin/sh
# Installs what Shoal needs, on Debian and Ubuntu:
#   packages    the compiler, the libraries and the tools, by apt-get (through sudo when not root)
#   daemons     what a few tests use and a machine may not want: an sshd, Slurm
#   tensorflow  the judge of the interop tests, in a virtual environment outside the clone
#   newest      the newest TensorFlow there is, in another: clusters are tested with it too
#   torch       PyTorch for `make bench`, in another
# --if-missing does nothing, quietly, where all is there already. With SHOAL_DEPS=none in the environment nothing is
# installed: what is needed is there by other ways (tools/gpu_kit.sh).
set -u
[ "${SHOAL_DEPS:-}" = none ] && exit 0
cd "$(dirname "$0")/.." || exit 1
. tools/env.sh

# Needed to build and test. docs/dependencies.md says what each is for.
PACKAGES="build-essential cmake ninja-build pkg-config protobuf-c-compiler libprotobuf-c-dev libnghttp2-dev libssl-dev
  libopenblas-dev zlib1g-dev libpng-dev libjpeg-dev libcjson-dev libcmocka-dev python3 openssl file
  dataset-fashion-mnist"
# Wanted: without one of these something is skipped (fuzzing, linting, the interop tests), or measured worse.
WANTED="ccache clang libclang-rt-dev clang-tidy clang-format cppcheck python3-venv stunnel4 iproute2 nghttp2-client"
# Not installed unless asked for: their packages start services.
DAEMONS="openssh-server slurmctld slurmd slurm-client munge"

say() { echo "deps: $*" >&2; }
installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q ' installed'; }

missing_of() {
  for p in $1; do installed "$p" || printf '%s ' "$p"; done
}

# install_packages NEEDED WANTED
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "this is not a Debian system; install the counterparts of: $1"
    return 0
  fi
  missing=$(missing_of "$1")
  wanted=$(missing_of "$2")
  [ -z "$missing" ] && { [ -n "$if_missing" ] || [ -z "$wanted" ]; } && return 0
  sudo=
  if [ "$(id -u)" != 0 ]; then
    sudo=sudo
    command -v sudo >/dev/null || { say "no root, no sudo: run as root: apt-get install $missing$wanted"; return 1; }
  fi
  $sudo apt-get update -qq || say "apt-get update failed; going on with the lists there are"
  # A wanted package that this release does not have must not stop the others.
  for p in $wanted; do
    [ -n "$(apt-cache madison "$p" 2>/dev/null)" ] && missing="$missing $p"
  done
  [ -z "$missing" ] && return 0
  # shellcheck disable=SC2086
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
}

# A Python from 3.9 up to 3.$1, with the venv module. For 2.15 of TensorFlow 3.11 is the last.
find_python() {
  for p in ${PYTHON:-} python3.11 python3.10 python3.9 python3; do
    path=$(command -v "$p") || continue
    "$path" -c "import sys, venv, ensurepip; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, $1))" 2>/dev/null &&
      { echo "$path"; return 0; }
  done
  return 1
}

# make_env FOLDER LAST_MINOR_OF_PYTHON REQUIREMENT...
# (What is imported is compiled then, and what is not, never.)
make_env() {
  env=$1 last=$2
  shift 2
  [ -e "$env/.ready" ] && return 0
  python=$(find_python "$last") || {
    say "no Python from 3.9 to 3.$last with the venv module, which $* needs;"
    say "install one and say \`make deps PYTHON=/path/to/python3.11\`. Tests that need it are skipped until then."
    return 0
  }
  say "installing $* in $env"
  mkdir -p "$(dirname "$env")" && rm -rf "$env" && "$python" -m venv "$env" &&
    "$env/bin/pip" install -q --no-compile --disable-pip-version-check "$@" && touch "$env/.ready" && return 0
  rm -rf "$env"
  say "could not install $*; tests that need it are skipped"
}

# The client of TensorFlow Serving: without what it depends on, which is there under another name.
add_serving_api() {
  [ -e "$SHOAL_TF_ENV/.ready" ] || return 0
  "$SHOAL_TF_ENV/bin/python" -c \
    'import sys; from importlib.util import find_spec; sys.exit(not find_spec("tensorflow_serving"))' && return 0
  "$SHOAL_TF_ENV/bin/pip" install -q --disable-pip-version-check --no-deps \
    "tensorflow-serving-api==$SHOAL_TF_VERSION" ||
    say "could not install tensorflow-serving-api; tests that need it are skipped"
}

case $(uname -m) in
  x86_64) tensorflow=tensorflow-cpu ;;
  *) tensorflow=tensorflow ;;
esac
if_missing=
for what in "$@"; do
  case $what in
    --if-missing) if_missing=1 ;;
    packages) install_packages "$PACKAGES" "$WANTED" || exit 1 ;;
    daemons) install_packages "" "$DAEMONS" || exit 1 ;;
    tensorflow) { make_env "$SHOAL_TF_ENV" 11 "$tensorflow==$SHOAL_TF_VERSION"; add_serving_api; } & ;;
    newest) make_env "$SHOAL_TF_NEWEST_ENV" 99 "$tensorflow" & ;;
    torch) make_env "$SHOAL_TORCH_ENV" 99 torch "numpy<2" ;;
    *) say "what is '$what'? packages, daemons, tensorflow, newest or torch"; exit 2 ;;
  esac
done
wait # the environments are made side by side
