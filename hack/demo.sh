#!/usr/bin/env bash
# The main job of Slipway, from a bare machine to a tool's answer: brings up a cluster,
# installs Slipway, applies an MCPServer, waits until it is Ready and calls one of
# its tools, with kubectl mcp and from a pod. What is there already is used, so a second run is quick.
#
#   hack/demo.sh IMG_PREFIX VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

prefix=$1
version=$2
namespace=slipway-demo
started=$SECONDS
. hack/step.sh
trap end_steps EXIT

# explain shows what the cluster knows of a failure.
explain() {
  [[ -n ${KUBECONFIG:-} ]] || return 0
  printf '\nThe MCPServer and its pods:\n'
  kubectl -n "$namespace" get mcpservers,pods -o wide
  kubectl -n "$namespace" get mcpservers -o jsonpath='{range .items[*].status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}'
  printf '\nEvents:\n'
  kubectl -n "$namespace" get events --sort-by=.lastTimestamp | tail -n 15
  printf '\nThe end of the manager'"'"'s log:\n'
  kubectl -n slipway-system logs deployment/slipway-manager --tail=15
  printf '\nThe end of the logs of the server'"'"'s pods:\n'
  kubectl -n "$namespace" logs --selector=mcp.slipway.dev/server=greeter --all-containers --prefix --tail=15
}

echo "Slipway demo: an MCP server on a Kubernetes cluster of its own."
echo "  The first run takes about 14 minutes on 2 cores: it builds Kubernetes from source. Later runs take less than a minute."
step "build etcd and Kubernetes (once)" hack/kube/build.sh
binaries=$(hack/kube/build.sh)
find_kubectl='' # a line for those who have none
command -v kubectl >/dev/null || find_kubectl=$'\n  export PATH=$PATH:'$binaries
PATH=$binaries:$PATH
step "bring up the cluster" go run ./test/cluster up
KUBECONFIG=$(go run ./test/cluster kubeconfig)
export KUBECONFIG
step "build the images" go run ./hack/images --prefix "$prefix" --version "$version"
step "build the image of the MCP server" go run ./hack/images --demo --prefix "$prefix" --version "$version"
step "load the images into the cluster" go run ./test/cluster load dist/images/manager.tar dist/images/adapter.tar dist/images/demo.tar
step "build kubectl mcp" go build -o dist/kubectl-mcp ./cmd/kubectl-mcp
PATH=$PWD/dist:$PATH
step "write dist/install.yaml" hack/installer.sh "$prefix" "$version"
step "install Slipway" kubectl apply --server-side --force-conflicts -f dist/install.yaml
step "wait for the manager" kubectl -n slipway-system rollout status deployment/slipway-manager --timeout=120s

manifest() {
  cat <<YAML
apiVersion: v1
kind: Namespace
metadata:
  name: $namespace
  labels:
    pod-security.kubernetes.io/enforce: restricted
---
apiVersion: mcp.slipway.dev/v1alpha1
kind: MCPServer
metadata:
  name: greeter
  namespace: $namespace
spec:
  image: $prefix/demo:$version
  command: [/greeter]
  transport:
    type: stdio
YAML
}
apply() { manifest | kubectl apply -f -; }
step "apply the MCPServer" apply
step "wait until it is Ready" kubectl -n "$namespace" wait --for=condition=Ready mcpserver/greeter --timeout=120s

# show runs a command as a user would type it.
show() {
  printf '\n$ %s\n' "$*"
  "$@"
}
show kubectl mcp list -n "$namespace"
show kubectl mcp tools greeter -n "$namespace"
show kubectl mcp call greeter greet name=newcomer -n "$namespace"

url=$(kubectl -n "$namespace" get mcpserver greeter -o jsonpath='{.status.address.url}')
call() {
  kubectl -n "$namespace" delete pod client --ignore-not-found --wait
  kubectl -n "$namespace" apply -f - <<YAML
apiVersion: v1
kind: Pod
metadata:
  name: client
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext:
    runAsNonRoot: true
    runAsUser: 1000
    seccompProfile: {type: RuntimeDefault}
  containers:
  - name: client
    image: $prefix/demo:$version
    imagePullPolicy: IfNotPresent
    command: [/client, "$url", greet, '{"name":"newcomer"}']
    securityContext:
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
YAML
  kubectl -n "$namespace" wait --for=jsonpath='{.status.phase}'=Succeeded pod/client --timeout=60s ||
    { kubectl -n "$namespace" logs client; return 1; }
}
printf '\n'
step "call greet through $url from a pod" call
printf '\nThe answer:\n\n  %s\n\n' "$(kubectl -n "$namespace" logs client)"

cat <<TEXT
That took $((SECONDS - started)) s. To go on:

  export KUBECONFIG=$KUBECONFIG$find_kubectl
  export PATH=\$PATH:$PWD/dist                                  # for kubectl mcp
  kubectl mcp doctor -n $namespace                             # finds what is wrong, and says what to do
  kubectl mcp connect greeter -n $namespace                    # for clients on this machine
  kubectl -n $namespace describe mcpserver greeter             # conditions, tools, events
  kubectl -n $namespace scale mcpserver greeter --replicas=0   # stops it: get shows why it is not Ready
  kubectl -n $namespace scale mcpserver greeter --replicas=1   # and back
  kubectl explain mcpserver.spec

To run a server of your own here, see docs/first-hour.md.
docs/mcpserver.md describes the fields and the status of an MCPServer, docs/kubectl-mcp.md the commands of kubectl mcp. The pod "client" made the call.
To clean up: make cluster-down
TEXT
