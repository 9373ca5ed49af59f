#!/usr/bin/env bash
# Builds etcd, Kubernetes, kubectl and CoreDNS from the Go module proxy and prints
# the directory that holds them. The result is kept outside the checkout under a
# key of its sources, so the same sources are never compiled twice; a line every
# ten seconds shows that the first time (about 8 minutes on 2 cores) is not a hang.
#
#   build.sh            build if needed, print the directory
#   build.sh --cached   print the directory if it is built already, else fail
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

cache=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}
version=$(sed -n 's|^\tk8s.io/kubernetes \(v[0-9.]*\)$|\1|p' go.mod)
programs=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl)
compile=(env CGO_ENABLED=0 go build -v -trimpath -buildvcs=false
  -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version")

# Of this script only what changes the result: a comment must not cost 8 minutes.
key=$({
  go env GOVERSION GOOS GOARCH
  cat go.mod go.sum ./*.go coredns/*.go
  echo "${compile[@]}" "${programs[@]}"
} | sha256sum | cut -c1-16)
bin=$cache/kube/$version-$key

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
# behind. All their files are in the work directory, so nobody need be polite.
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
set -m
GOTMPDIR=$work "${compile[@]}" -o "$work/bin/" . ./coredns </dev/null >"$work/log" 2>&1 &
set +m
build=$!
start=$SECONDS
while kill -0 "$build" 2>/dev/null; do
  for _ in {1..20}; do
    kill -0 "$build" 2>/dev/null || break
    sleep 0.5
  done
  echo "hack/kube: $((SECONDS - start)) s, $(grep -vc '^go: ' "$work/log" || true) packages compiled" >&2
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
