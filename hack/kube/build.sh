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
key=$({ go env GOVERSION GOOS GOARCH; cat go.mod go.sum ./*.go coredns/*.go build.sh; } | sha256sum | cut -c1-16)
bin=$cache/kube/$version-$key

if [[ -x $bin/kube ]]; then
  echo "$bin"
  exit 0
elif [[ ${1:-} == --cached ]]; then
  exit 1
fi

# Two makes at once must not compile at once; the second waits and finds it done.
mkdir -p "$cache/kube"
exec 9>"$cache/kube/lock"
flock 9
if [[ -x $bin/kube ]]; then
  echo "$bin"
  exit 0
fi

work=$(mktemp -d "$cache/kube/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"

echo "hack/kube: building Kubernetes $version, etcd and CoreDNS (once; about 8 minutes on 2 cores)" >&2
CGO_ENABLED=0 go build -v -trimpath -buildvcs=false \
  -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" \
  -o "$work/bin/" . ./coredns >"$work/log" 2>&1 9>&- &
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

for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do
  ln -s kube "$work/bin/$name"
done
mv "$work/bin" "$bin"
echo "hack/kube: built in $((SECONDS - start)) s: $bin" >&2
echo "$bin"
