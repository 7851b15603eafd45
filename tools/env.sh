# Where things outside the clone are; sourced by the scripts here and by the Makefile.
SHOAL_CACHE=${SHOAL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/shoal}
SHOAL_TF_VERSION=2.15.1
SHOAL_TF_ENV=${SHOAL_TF_ENV:-$SHOAL_CACHE/tf-$SHOAL_TF_VERSION}
SHOAL_TF_NEWEST_ENV=${SHOAL_TF_NEWEST_ENV:-$SHOAL_CACHE/tf-newest}
SHOAL_TORCH_ENV=${SHOAL_TORCH_ENV:-$SHOAL_CACHE/torch}
SHOAL_LAUNCHER=$(command -v ccache || true)
