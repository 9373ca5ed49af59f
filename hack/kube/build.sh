#!/usr/bin/env bash
# Builds etcd, Kubernetes, kubectl and CoreDNS from the Go module proxy and prints
# the directory that holds them. The result is kept outside the checkout under a
# key of its sources, so the same sources are never compiled twice; a line every
# ten seconds says how far the first time (about 8 minutes on 2 cores) is.
#
#   build.sh            build if needed, print the directory
#   build.sh --cached   print the directory if it is built already, else fail
#   build.sh --version  print the version of Kubernetes
#   build.sh --key      print the key of the sources
#
# KUBE_VERSION=v1.36 takes the modules of v1.36.mod instead of those of go.mod.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

cache=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}
version_in() { sed -n 's|^\tk8s.io/kubernetes \(v[0-9.]*\)$|\1|p' "$1"; }
modules=go.mod
version=$(version_in $modules)
if [[ -n ${KUBE_VERSION:-} && $version != "$KUBE_VERSION" && $version != "$KUBE_VERSION".* ]]; then
  modules=$KUBE_VERSION.mod
  if [[ ! -f $modules ]]; then
    echo "hack/kube: KUBE_VERSION=$KUBE_VERSION: there are ${version%.*} and $(echo v*.mod | sed 's/\.mod//g')" >&2
    exit 2
  fi
  version=$(version_in "$modules")
fi
if [[ ${1:-} == --version ]]; then
  echo "$version"
  exit 0
fi

programs=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl kubeadm)
IFS=. read -r major minor _ <<<"${version#v}"
base=k8s.io/component-base/version
# kubeadm compares the minor version with that of the cluster it makes.
compile=(env CGO_ENABLED=0 go build -v -trimpath -buildvcs=false -modfile="$modules"
  -ldflags "-s -w -X $base.gitVersion=$version -X $base.gitMajor=$major -X $base.gitMinor=$minor")

# Of this script only what changes the result: a comment must not cost 8 minutes.
key=$({
  go env GOVERSION GOOS GOARCH
  cat "$modules" "${modules%.mod}.sum" ./*.go coredns/*.go
  echo "${compile[@]}" "${programs[@]}"
} | sha256sum | cut -c1-16)
bin=$cache/kube/$version-$key
if [[ ${1:-} == --key ]]; then
  echo "$key"
  exit 0
fi

if [[ -x $bin/kube ]]; then
  echo "$bin"
  exit 0
elif [[ ${1:-} == --cached ]]; then
  exit 1
fi

# Two makes at once must not compile at once; the second waits and finds it done.
# The compiler inherits the lock: even if this script is killed it lasts as long
# as anything compiles, so who holds it may remove what others left unfinished.
mkdir -p "$cache/kube"
exec 9>"$cache/kube/lock"
flock 9 >/dev/null
rm -rf "$cache"/kube/build.*
if [[ -x $bin/kube ]]; then
  echo "$bin"
  exit 0
fi

# The compiler is a process group of its own: go alone would leave its linker
# behind. All their files are in the work directory, so the script can kill them without waiting.
finish() {
  trap '' HUP INT TERM
  kill -TERM %1 2>/dev/null || true
  wait
  rm -rf "$cache"/kube/build.*
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
work=$(mktemp -d "$cache/kube/build.XXXXXX")
mkdir "$work/bin"

echo "hack/kube: building Kubernetes $version, etcd and CoreDNS (once; about 8 minutes on 2 cores)" >&2
# Finding what the Go build cache lacks takes seconds, and downloads the modules. The programs
# themselves are in no cache of Go.
build_all() {
  trap 'exit 143' TERM # not before go has ended
  GOTMPDIR=$work "${compile[@]/#build/list}" -deps -f '{{if and .Stale (ne .Name "main")}}{{.ImportPath}}{{end}}' . ./coredns >"$work/list" &&
    mv "$work/list" "$work/missing" &&
    GOTMPDIR=$work exec "${compile[@]}" -o "$work/bin/" . ./coredns
}
set -m
build_all </dev/null >"$work/log" 2>&1 &
set +m
build=$!
start=$SECONDS

# progress prints how far the build is, in the form that hack/demo.sh shows. It takes the time
# per package from those compiled so far. Linking takes as long as 100 packages; it comes last.
progress() {
  local elapsed=$((SECONDS - start)) all compiled began last left text
  if [[ ! -e $work/missing ]]; then
    echo "progress: $elapsed s, $(grep -c '^go: downloading ' "$work/log" || true) modules downloaded"
    return
  fi
  all=$(grep -c . "$work/missing" || true)
  compiled=$(grep -vc '^go: ' "$work/log" || true)
  text="$compiled of $all packages compiled"
  ((compiled < all)) || text='linking the programs'
  began=$(date -r "$work/missing" +%s)
  last=$(date -r "$work/log" +%s) # the compiler began with a package, or with the last one
  left=$((compiled < 50 ? 0 : (last - began) * (all + 100 - compiled) / compiled - EPOCHSECONDS + last))
  if ((left >= 60)); then
    text+=", about $(((left + 30) / 60)) min left"
  elif ((left > 0)); then
    text+=', less than a minute left'
  fi
  echo "progress: $elapsed s, $text"
}
while kill -0 "$build" 2>/dev/null; do
  for _ in {1..20}; do
    kill -0 "$build" 2>/dev/null || break
    sleep 0.5
  done
  progress >&2
done
if ! wait "$build"; then
  echo "hack/kube: the build failed; its last lines:" >&2
  tail -n 20 "$work/log" >&2
  exit 1
fi

for name in "${programs[@]}"; do
  ln -s kube "$work/bin/$name"
done
mv "$work/bin" "$bin"
echo "hack/kube: built in $((SECONDS - start)) s: $bin" >&2
echo "$bin"
