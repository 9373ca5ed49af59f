#!/usr/bin/env bash
# Builds a node image for kind from Go modules and Debian packages, for machines that reach no registry, and prints
# the path of its root file system: a tar for `docker import`. Everything is kept outside the checkout under keys of
# its sources, like hack/kube.
#
#   build.sh            build if needed, print the path
#   build.sh --cached   print the path if it is built already, else fail
#   build.sh --tools    print the directory with Debian's Docker engine and mmdebstrap, unpacked
#
# KUBE_VERSION=v1.36 makes a node of that version, see hack/kube/build.sh.
#
# docs/cluster.md says how the result differs from the image that kind publishes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}/kindnode
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export CGO_ENABLED=0 GOFLAGS=-trimpath GOWORK=off

# say TEXT SECONDS LATER... tells every ten seconds what this script does, and how long the image takes until it is done:
# the SECONDS of this step on 2 cores, and those of the LATER ones.
say() {
  local text=$1 left=0 seconds
  shift
  for seconds in "$@"; do left=$((left + seconds)); done
  hush
  (
    while kill -0 $$ 2>/dev/null; do
      if ((left >= 90)); then echo "progress: kind node image: $text, about $(((left + 30) / 60)) min left"; else echo "progress: kind node image: $text, about $left s left"; fi
      sleep 10 >/dev/null 2>&1 9>&- # it may live on, and must keep neither a pipe open nor the lock
      left=$((left > 20 ? left - 10 : 10))
    done
  ) >&2 &
  teller=$!
}
teller=''
hush() {
  [[ -n $teller ]] || return 0
  kill "$teller" 2>/dev/null || true
  wait "$teller" 2>/dev/null || true
  teller=''
}
fail() { echo "hack/kindnode: $*" >&2; exit 1; }
key() { sha256sum | cut -c1-16; }

# The node gets the versions that kind itself builds.
kind=$(cd "$root/hack/tools" && go mod download sigs.k8s.io/kind && go list -m -f '{{.Dir}}' sigs.k8s.io/kind)
pinned() { sed -n "s/^ARG $1=\"\(.*\)\"/\1/p" "$kind/images/base/Dockerfile"; }
containerd=$(pinned CONTAINERD_VERSION) runc=$(pinned RUNC_VERSION) plugins=$(pinned CNI_PLUGINS_VERSION)

# Debian 12 and its systemd 252: later ones do not start on a machine with version 1 of cgroups.
suite=bookworm
packages=systemd,conntrack,iptables,nftables,iproute2,ethtool,util-linux,mount,kmod,libseccomp2,pigz,e2fsprogs,bash,ca-certificates,jq,procps,hostname,libc-bin,socat

toolset=$cache/tools-1
runtime=$cache/runtime-$(echo "$containerd $runc $plugins $(go env GOVERSION GOARCH)" | key)
rootfs=$cache/rootfs-$(echo "$suite $packages" | key).tar

version=$("$root/hack/kube/build.sh" --version)
sources() {
  "$root/hack/kube/build.sh" --key
  echo "$kind" "$runtime" "$rootfs"
  cat "$here"/*.sh "$here"/*.go "$here"/kindnetd/*.go "$root"/test/cluster/pause/*.go "$root"/internal/imagebuild/*.go "$root/go.sum"
}
node=$cache/$version-$(sources | key)

if [[ ${1:-} == --tools && -d $toolset ]]; then
  echo "$toolset"
  exit 0
elif [[ ${1:-} != --tools && -f $node/node.tar ]]; then
  echo "$node/node.tar"
  exit 0
elif [[ ${1:-} == --cached ]]; then
  exit 1
fi

[[ $EUID == 0 ]] || fail "building a node image needs root: it makes a root file system with device files"
command -v apt-get >/dev/null || fail "a node image can be built on Debian only: there is no apt-get"

# Two commands at once must not build at once; the second waits and finds it done.
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
rm -rf "$cache"/build.* # what others left unfinished
if [[ ${1:-} != --tools && -f $node/node.tar ]]; then
  echo "$node/node.tar"
  exit 0
fi
work=$(mktemp -d "$cache/build.XXXXXX")
trap 'hush; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# fetch unpacks Debian packages and installs none: an installation would start services.
fetch() {
  local into=$1
  shift
  mkdir -p "$work/debs"
  (cd "$work/debs" && { apt-get -qq download "$@" || { apt-get -qq update && apt-get -qq download "$@"; }; } >&2)
  for package in "$@"; do
    dpkg-deb -x "$work"/debs/"${package}"_*.deb "$into"
  done
}

# What the steps take on 2 cores, and 0 for those that are done.
takes_runtime=$([[ -d $runtime ]] && echo 0 || echo 240)
takes_rootfs=$([[ -f $rootfs ]] && echo 0 || echo 90)
takes_node=90

need_tools() {
  [[ -d $toolset ]] && return
  say "fetch Debian's Docker engine and mmdebstrap" 10
  fetch "$work/tools" docker.io mmdebstrap
  mv "$work/tools" "$toolset"
}

need_runtime() {
  [[ -d $runtime ]] && return
  local out=$work/runtime
  mkdir -p "$out/bin" "$out/cni"
  say "build containerd $containerd, runc $runc and CNI plugins $plugins" "$takes_runtime" "$takes_rootfs" "$takes_node"
  GOBIN=$out/bin go install -tags "no_aufs no_zfs no_btrfs no_devmapper" -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=$containerd" \
    github.com/containerd/containerd/v2/cmd/{containerd,ctr,containerd-shim-runc-v2}@"$containerd" >&2
  GOBIN=$out/cni go install -ldflags "-s -w" github.com/containernetworking/plugins/plugins/{ipam/host-local,main/loopback,main/ptp,meta/portmap}@"$plugins" >&2
  # runc filters system calls with libseccomp, a library in C.
  fetch "$work/seccomp" libseccomp-dev libseccomp2
  local library=$work/seccomp/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || gcc -print-multiarch)
  PKG_CONFIG_PATH=$library/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/seccomp CGO_CFLAGS="-I$work/seccomp/usr/include" CGO_LDFLAGS="-L$library" CGO_ENABLED=1 GOBIN=$out/bin \
    go install -tags seccomp -ldflags "-s -w -X main.version=${runc#v}" github.com/opencontainers/runc@"$runc" >&2
  mv "$out" "$runtime"
}

need_rootfs() {
  [[ -f $rootfs ]] && return
  say "make a root file system of Debian packages" "$takes_rootfs" "$takes_node"
  PATH=$toolset/usr/bin:$PATH DEBIAN_FRONTEND=noninteractive unshare --mount perl "$toolset/usr/bin/mmdebstrap" --quiet --mode=root --variant=minbase --include="$packages" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --aptopt='Apt::Install-Recommends "false"' "$suite" "$work/rootfs.tar" >&2
  mv "$work/rootfs.tar" "$rootfs"
}

need_tools
if [[ ${1:-} == --tools ]]; then
  echo "$toolset"
  exit 0
fi
hush
kube=$("$root/hack/kube/build.sh") # which tells about itself
need_runtime
need_rootfs
say "put the node together" "$takes_node"
(cd "$root" && go build -buildvcs=false -ldflags "-s -w" -o "$work/bin/" ./hack/kindnode ./hack/kindnode/kindnetd ./test/cluster/pause)
"$here/assemble.sh" "$work" "$kind" "$kube" "$version" "$runtime" "$rootfs" >&2
mkdir -p "$node"
mv "$work/node.tar" "$node/node.tar"
echo "$node/node.tar"
