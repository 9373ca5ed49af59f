#!/usr/bin/env bash
# Records the terminal sessions of docs/pictures on the cluster that is up, or with "check" compares
# the recorded pictures with what the commands print now. Brings no cluster up.
#
#   hack/pictures.sh record|check IMG_PREFIX VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=$1
prefix=$2
version=$3
namespace=slipway-pictures
pictures=$PWD/docs/pictures

work=$(mktemp -d)
# A namespace with pods that have minutes to drain would stay for minutes: Kubernetes looks again after half of that time.
delete_namespace() {
  kubectl get namespace "$namespace" >/dev/null 2>&1 || return 0
  if kubectl get crd mcpservers.mcp.slipway.dev >/dev/null 2>&1; then kubectl delete mcpservers --all; fi
  kubectl wait --for=delete pods --all --timeout=120s
  kubectl delete namespace "$namespace" --timeout=120s
}
clean_up() {
  if [[ -s $work/kubeconfig ]]; then delete_namespace >/dev/null || true; fi
  rm -rf "$work"
}
trap clean_up EXIT

PATH=$work:$(hack/kube/build.sh):$PATH
config=$(go run ./test/cluster kubeconfig)
if ! kubectl --kubeconfig "$config" get --raw /readyz >/dev/null 2>&1; then
  echo "pictures: no cluster answers; run 'make demo' or 'make cluster-up' first" >&2
  exit 1
fi
# A copy, with a namespace: the commands of the pictures do without -n.
kubectl --kubeconfig "$config" config view --raw --flatten >"$work/kubeconfig"
export KUBECONFIG=$work/kubeconfig
kubectl config set-context --current --namespace="$namespace" >/dev/null

go run ./hack/images --prefix "$prefix" --version "$version"
go run ./hack/images --demo --prefix "$prefix" --version "$version"
go run ./test/cluster load dist/images/manager.tar dist/images/adapter.tar dist/images/demo.tar
hack/installer.sh "$prefix" "$version"
go build -o "$work/kubectl-mcp" ./cmd/kubectl-mcp
go build -o "$work/record" ./hack/record

kubectl apply --server-side --force-conflicts -f dist/install.yaml
kubectl -n slipway-system rollout status deployment slipway-manager --timeout=120s

delete_namespace
kubectl create namespace "$namespace"
kubectl label namespace "$namespace" pod-security.kubernetes.io/enforce=restricted

session=$work/session
mkdir "$session"
cat >"$session/greeter.yaml" <<YAML
apiVersion: mcp.slipway.dev/v1alpha1
kind: MCPServer
metadata:
  name: greeter
spec:
  image: $prefix/demo:$version
  command: [/greeter]
  transport:
    type: stdio
YAML
cat >"$session/tickets.yaml" <<YAML
apiVersion: mcp.slipway.dev/v1alpha1
kind: MCPServer
metadata:
  name: tickets
spec:
  image: $prefix/demo:$version
  command: [/greeter]
  env:
  - name: TOKEN
    valueFrom:
      secretKeyRef: {name: tickets, key: token}
  resources:
    limits: {memory: 256Mi}
  transport:
    type: stdio
YAML
for client in triage-agent notebook; do
  printf '%s\n%s\n' \
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"'$client'","version":"1.0"}}}' \
    '{"jsonrpc":"2.0","method":"notifications/initialized"}' >"$session/initialize-$client.json"
done

flags=()
if [[ $mode == check ]]; then flags=(-check); fi
"$work/record" "${flags[@]}" -dir "$session" "$pictures"/*.term
