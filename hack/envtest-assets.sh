#!/usr/bin/env bash
# Prints a directory with etcd, kube-apiserver and kubectl for tests, whatever it
# takes on this machine: KUBEBUILDER_ASSETS if it is set, else a build that is
# already there, else a download, else a build from source.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ -n ${KUBEBUILDER_ASSETS:-} ]]; then
  echo "$KUBEBUILDER_ASSETS"
  exit 0
fi
# A build is only ever made where the download failed, so it need not be tried again.
if hack/kube/build.sh --cached; then
  exit 0
fi

cache=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}
series=$(sed -n 's|^\tk8s.io/kubernetes v\([0-9]*\.[0-9]*\)\..*|\1|p' hack/kube/go.mod)
# `go tool -n` compiles the tool and prints where it is, so that the ten seconds
# are the download's alone.
setup_envtest=$(go tool -modfile=hack/tools/go.mod -n setup-envtest)
echo "envtest-assets: trying to download an API server of Kubernetes $series (at most 10 s)" >&2
if assets=$(timeout 10 "$setup_envtest" use "$series.x" --bin-dir "$cache/envtest" --print path 2>/dev/null) && [[ -x $assets/kube-apiserver ]]; then
  echo "$assets"
  exit 0
fi
echo "envtest-assets: no download; building from the Go module proxy instead" >&2
exec hack/kube/build.sh
