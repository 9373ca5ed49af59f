#!/usr/bin/env bash
# Writes one file with everything that `kubectl apply --server-side -f` needs to
# install Slipway. Nothing that git tracks is touched: the image's name is set in
# an overlay that lives only as long as this script.
#
#   hack/installer.sh [IMG_PREFIX [VERSION [FILE]]]
#
# What is left out, or empty, is what hack/images builds by default, localhost/slipway
# and dev, and dist/install.yaml.
set -euo pipefail

prefix=${1:-localhost/slipway}
version=${2:-dev}
output=${3:+$(realpath -m "$3")} # Before the cd: the caller's path.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
output=${output:-$PWD/dist/install.yaml}

if [[ ! $version =~ ^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$ ]]; then
  echo "installer: VERSION must be usable as an image tag and as a label, such as v0.1.0; it is '$version'" >&2
  exit 1
fi
if [[ ! $prefix =~ ^[a-z0-9][a-z0-9._:/-]*[a-z0-9]$ ]]; then
  echo "installer: IMG_PREFIX must be a registry and a path, such as registry.example/slipway; it is '$prefix'" >&2
  exit 1
fi

# Below the repository, because kustomize takes only relative paths.
mkdir -p dist "$(dirname "$output")"
overlay=$(mktemp -d dist/.installer.XXXXXX)
trap 'rm -rf "$overlay"' EXIT
cat >"$overlay/kustomization.yaml" <<YAML
resources:
- ../../config/default
images:
- name: localhost/slipway/manager
  newName: "$prefix/manager"
  newTag: "$version"
patches:
- patch: |
    apiVersion: apps/v1
    kind: Deployment
    metadata:
      name: slipway-manager
      namespace: slipway-system
    spec:
      template:
        spec:
          containers:
          - name: manager
            env:
            - name: SLIPWAY_ADAPTER_IMAGE
              value: "$prefix/adapter:$version"
labels:
- pairs:
    app.kubernetes.io/version: "$version"
  includeTemplates: true
YAML

# Moved into place when complete, so that a failure leaves no half a file.
go tool -modfile=hack/tools/go.mod kustomize build "$overlay" >"$overlay/install.yaml"
mv "$overlay/install.yaml" "$output"
echo "$output"
