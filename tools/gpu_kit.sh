#!/bin/sh
# What a bare x86_64 machine with an NVIDIA card lacks to build and run us, in one archive: our sources, and the Debian
# packages of the libraries they need, to be unpacked beside the system there. The machine needs gcc, cmake, ninja,
# nvcc, make and python3, no network and no root.
#   tools/gpu_kit.sh OUT.tar.gz          on a Debian or Ubuntu machine of either architecture
# There:
#   tar -xzf gpu-kit.tar.gz && cd gpu-kit && ./build.sh && ./with_kit make -C shoal BUILD=../build test-gpu
set -eu
cd "$(dirname "$0")/.."
out=$(realpath -m "$1")
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
kit=$work/gpu-kit
mkdir -p "$kit/debs" "$kit/shoal" "$(dirname "$out")"
git archive HEAD | tar -x -C "$kit/shoal"

# A state of apt of its own, for amd64, with this machine's sources.
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" && : >"$work/state/status"
cat >"$work/apt.conf" <<C
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Sandbox::User "root";
Dir::State "$work/state";
Dir::State::status "$work/state/status";
Dir::Cache "$work/cache";
C
export APT_CONFIG="$work/apt.conf"
apt-get update -qq
wanted="libprotobuf-c-dev protobuf-c-compiler libnghttp2-dev libssl-dev libopenblas-pthread-dev zlib1g-dev libpng-dev
  libjpeg-dev libcjson-dev libcmocka-dev pkgconf"
# What these need, but for what every such machine has: the C library, the compiler's own, tools.
everywhere='libc6.*|libc-.*|libcrypt.*|linux-libc-dev|libnsl.*|libtirpc.*|rpcsvc-proto|gcc-.*|libgcc-.*|libstdc[+][+].*'
everywhere="$everywhere|debconf.*|cdebconf|dpkg.*|tar|perl.*|libdb.*|install-info|.*-udeb"
# shellcheck disable=SC2086
needed=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
  --no-enhances $wanted | grep '^[a-z]' | sort -u |
  grep -Ev "^($everywhere)\$")
# shellcheck disable=SC2086
(cd "$kit/debs" && apt-get download -qq $needed)

cat >"$kit/build.sh" <<'B'
#!/bin/sh
# Unpacks the packages beside the system and builds; see tools/gpu_kit.sh of the sources.
set -eu
kit=$(cd "$(dirname "$0")" && pwd) root=$kit/root lib=$kit/root/usr/lib/x86_64-linux-gnu
mkdir -p "$root"
for d in "$kit"/debs/*.deb; do dpkg -x "$d" "$root"; done
# Some have their libraries in /lib; links from one folder to the other lead nowhere here.
[ -L "$root/lib" ] || { [ -d "$root/lib/x86_64-linux-gnu" ] && cp -a "$root/lib/x86_64-linux-gnu/." "$lib/"; }
ln -sfn libz.so.1 "$lib/libz.so"
blas=$(find "$lib" -name 'libopenblas.so.0' | head -1)
cat >"$kit/with_kit" <<W
#!/bin/sh
# Runs a command with the libraries of the kit; nothing is installed.
export SHOAL_DEPS=none PKG_CONFIG="$kit/pkgconf" PKG_CONFIG_SYSROOT_DIR="$root"
export PKG_CONFIG_LIBDIR="$lib/pkgconfig:$root/usr/share/pkgconfig"
LD_LIBRARY_PATH="$lib:$(dirname "$blas")\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" exec "\$@"
W
for tool in protoc-c pkgconf; do
  printf '#!/bin/sh\nexec "%s/with_kit" "%s/usr/bin/%s" "$@"\n' "$kit" "$root" "$tool" >"$kit/$tool"
done
chmod +x "$kit/with_kit" "$kit/protoc-c" "$kit/pkgconf"
"$kit/with_kit" cmake -S "$kit/shoal" -B "$kit/build" -G Ninja -DCMAKE_PREFIX_PATH="$root/usr" \
  -DPROTOC_C="$kit/protoc-c" \
  -DOPENBLAS="$blas" -DCMAKE_C_FLAGS="-isystem $root/usr/include -isystem $root/usr/include/x86_64-linux-gnu"
"$kit/with_kit" ninja -C "$kit/build"
echo "built: $kit/build; programs want the kit's libraries: ./with_kit build/shoal devices"
B
chmod +x "$kit/build.sh"
tar -C "$work" -czf "$out" gpu-kit
echo "$out: $(du -h "$out" | cut -f1), $(ls "$kit/debs" | wc -l) packages"
