# Bare Debian systems in folders, for tools/bare_check.sh, tools/cross_check.sh, tests of packages; sourced.
# Needs root; debootstrap is fetched where it is missing.
#
#   chroot_new NAME             a fresh system: Debian 12 with nothing but git and make
#   chroot_run NAME COMMAND...  runs a command in it, in a namespace of mounts that is gone when it ends
#   chroot_tree NAME            clones this tree's HEAD into it, to the same path
#
# They are in $SHOAL_CACHE/chroot. One system is made once, as "base", and copied. What they take from this machine is
# how one reaches the outside from it: the mirror and the proxies of apt, pip's settings, the certificates it trusts.
SUITE=bookworm
CHROOTS=$SHOAL_CACHE/chroot

chroot_can() {
  [ "$(id -u)" = 0 ] && [ "$(uname -s)" = Linux ] && command -v unshare >/dev/null && unshare --mount true 2>/dev/null
}

chroot_base() {
  [ -d "$CHROOTS/base" ] && return 0
  chroot_can || { echo "a bare system needs root and namespaces of mounts" >&2; return 1; }
  command -v debootstrap >/dev/null ||
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends debootstrap >/dev/null; } || return 1
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $SUITE" 'Origin: Debian' \
    2>/dev/null | head -1)
  mirror=${SHOAL_MIRROR:-${mirror:-http://deb.debian.org/debian}}
  mkdir -p "$CHROOTS" && rm -rf "$CHROOTS/base.part"
  debootstrap --variant=minbase --include=git,make $SUITE "$CHROOTS/base.part" "$mirror" >"$CHROOTS/base.log" 2>&1 ||
    { tail -5 "$CHROOTS/base.log" >&2; return 1; }
  mv "$CHROOTS/base.part" "$CHROOTS/base"
}

chroot_new() {
  chroot_base || return 1
  rm -rf "${CHROOTS:?}/$1" && cp -a --reflink=auto "$CHROOTS/base" "$CHROOTS/$1" || return 1
  apt-config dump 2>/dev/null | grep -E '^Acquire::(http|https|Check-Valid-Until)' \
    >"$CHROOTS/$1/etc/apt/apt.conf.d/90host"
  mkdir -p "$CHROOTS/$1/root/.config/ccache"
  for f in /etc/resolv.conf /etc/hosts /etc/pip.conf /root/.config/ccache/ccache.conf; do
    [ -e $f ] && cp -L $f "$CHROOTS/$1$f"
  done
  [ -e /etc/ssl/certs/ca-certificates.crt ] && cp -L /etc/ssl/certs/ca-certificates.crt "$CHROOTS/$1/etc/host.crt"
  # No service starts because its package was installed.
  printf '#!/bin/sh\nexit 101\n' >"$CHROOTS/$1/usr/sbin/policy-rc.d" && chmod +x "$CHROOTS/$1/usr/sbin/policy-rc.d"
  echo force-unsafe-io >"$CHROOTS/$1/etc/dpkg/dpkg.cfg.d/90fast" # nobody minds a power cut here
  chroot_run "$1" apt-get update -qq
}

# The same path, and the folder of ccache shared: what was compiled here by the same compiler is not compiled again.
chroot_tree() {
  rm -rf "${CHROOTS:?}/$1$PWD" && git clone -q --no-hardlinks . "$CHROOTS/$1$PWD"
}

# The environment is a new user's: nothing of ours but the way out. Packages that were fetched once are kept, pip's too.
chroot_run() {
  root=$CHROOTS/$1
  shift
  trust=
  [ -e "$root/etc/host.crt" ] && trust="PIP_CERT=/etc/host.crt SSL_CERT_FILE=/etc/host.crt"
  kept=$(ccache -k cache_dir 2>/dev/null)
  kept=${kept:-$CHROOTS/ccache}
  mkdir -p "$CHROOTS/archives/partial" "$CHROOTS/pip" "$kept" "$root/root/.cache/ccache" "$root/root/.cache/pip"
  # shellcheck disable=SC2016,SC2086
  unshare --mount --propagation private sh -c '
    root=$1 here=$2 kept=$3; shift 3
    mount --bind "$root" "$root" && # a root that is no mount cannot have namespaces of its own
    mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" &&
    mount -t tmpfs tmpfs "$root/run" && mount --bind "$here/archives" "$root/var/cache/apt/archives" &&
    mount --bind "$here/pip" "$root/root/.cache/pip" &&
    mount --bind "$kept" "$root/root/.cache/ccache" &&
    exec chroot "$root" "$@"' sh "$root" "$CHROOTS" "$kept" \
    env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    TERM="${TERM:-dumb}" DEBIAN_FRONTEND=noninteractive $trust ${http_proxy:+"http_proxy=$http_proxy"} \
    ${https_proxy:+"https_proxy=$https_proxy"} ${no_proxy:+"no_proxy=$no_proxy"} \
    ${PIP_INDEX_URL:+"PIP_INDEX_URL=$PIP_INDEX_URL"} "$@"
}
