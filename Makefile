# Slipway. `make help` lists the targets; README.md says which two matter first.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

# What images and install.yaml are called. A tag of the checkout, or its commit; with changes
# also a digest of these, so that no cluster takes an image for one that it has. Found out
# once: the checkout may change while make runs.
VERSION := $(or $(VERSION),$(shell git describe --tags --always --abbrev=12 2>/dev/null || echo unknown)$(shell [ -z "$$(git status --porcelain 2>/dev/null)" ] || \
  echo "-dirty-$$({ git diff HEAD; git ls-files --others --exclude-standard -z | xargs -0r cat; } | sha256sum | cut -c1-8)"))
IMG_PREFIX ?= localhost/slipway
PLATFORMS ?= linux/$(shell go env GOARCH)

TOOL := go tool -modfile=hack/tools/go.mod

# The race detector needs a C compiler and its headers; a bare machine has none.
RACE := $(shell [ "$$(go env CGO_ENABLED)" = 1 ] && echo 'int main(void) { return 0; }' | $$(go env CC) -include stdlib.h -x c -o /dev/null - 2>/dev/null && echo -race)
TEST_FLAGS ?=

# Without the checkout's path in them, compiled packages serve every clone.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

##@ Start here

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Bring up a cluster and show an MCP server at work (needs root where there is no Docker).
	@hack/demo.sh "$(IMG_PREFIX)" "$(VERSION)"

# make verify has go vet, so the tests need not run it once more.
TEST := go run ./hack/test
# Without the tables that debuggers need, linking takes a quarter less time.
GO_TEST_FLAGS = $(RACE) -vet=off -ldflags=-w $(TEST_FLAGS)

.PHONY: test
test: race-note ## Run all tests that need no cluster (14 minutes on 2 cores; the first time builds Kubernetes).
	@$(TEST) unit integration -- $(GO_TEST_FLAGS)

##@ Test

.PHONY: race-note
race-note:
	@$(if $(RACE),,echo "note: no C compiler here, so tests run without the race detector" >&2)

.PHONY: test-unit
test-unit: race-note ## Run the tests that need nothing but Go.
	@$(TEST) unit -- $(GO_TEST_FLAGS)

.PHONY: test-integration
test-integration: race-note ## Run the tests against a real API server and kube-controller-manager (built on first use).
	@$(TEST) integration -- $(GO_TEST_FLAGS)

.PHONY: test-long
test-long: race-note ## Run the tests that take too long for make test and for CI.
	@$(TEST) long -- $(GO_TEST_FLAGS)

# value keeps make from expanding the dollars of the regular expression.
.PHONY: test-one
test-one: race-note ## Run one test and see all of its output: PKG=./internal/prober RUN=TestBudget.
	@[[ -n "$(PKG)" ]] || { echo "test-one: name the package and the test, such as: make test-one PKG=./internal/prober RUN=TestBudget" >&2; exit 2; }
	$(if $(findstring test/integration,$(PKG)),KUBEBUILDER_ASSETS=$${KUBEBUILDER_ASSETS:-$$(hack/kube/build.sh)} && export KUBEBUILDER_ASSETS && )go test $(RACE) -count=1 -v -run '$(value RUN)' $(PKG) $(TEST_FLAGS)

STRESS_FLAGS ?=

.PHONY: stress
stress: ## Repeat all tests, also beside busy loops, to find flaky ones; takes hours, and resumes where it stopped.
	go run ./hack/stress $(STRESS_FLAGS)

LEAK_SESSIONS ?= 10000

# Such as -only 'calls-8/(L3|adapter)$$' or -rounds 3; see go run ./bench -help.
BENCH_FLAGS ?=

.PHONY: test-leaks
test-leaks: ## Open and abandon LEAK_SESSIONS sessions in every way and look for what is left; make test opens 80.
	go test -count=1 -v -timeout 10m -run TestNothingIsLeftBehind $(TEST_FLAGS) ./internal/sidecar -args -leak-sessions $(LEAK_SESSIONS)

.PHONY: test-hostile
test-hostile: ## Attack the adapter in five ways beside eight well-behaved sessions (4 minutes, and more where the hypervisor takes CPUs away; needs a machine that does nothing else, or TEST_FLAGS=-times=false).
	go test -count=1 -v -tags hostile -timeout 40m ./test/hostile $(TEST_FLAGS)

.PHONY: bench
bench: ## Compare the adapter with a bare bridge and with its peers, into dist/bench (15 minutes on 2 cores; needs npm). Fails if it misses a goal that docs/performance.md calls met.
	go run ./bench -out dist/bench -gate docs/performance.md $(BENCH_FLAGS)

.PHONY: bench-quick
bench-quick: ## A short version of make bench, with one round and fewer cases, to check that it works (1 minute; needs npm).
	go run ./bench -quick -out dist/bench-quick $(BENCH_FLAGS)

.PHONY: bench-docs
bench-docs: ## Write what make bench measured last into docs/performance.md.
	go run ./bench -from dist/bench/results.json -docs docs/performance.md

.PHONY: bench-controller
bench-controller: ## Measure the controller with SERVERS MCPServers beside FOREIGN Secrets and ConfigMaps on the test API server; docs/performance.md has results.
	KUBEBUILDER_ASSETS=$${KUBEBUILDER_ASSETS:-$$(hack/kube/build.sh)} && export KUBEBUILDER_ASSETS && \
	  go test -count=1 -v -tags bench -timeout 120m -run TestManyServers $(TEST_FLAGS) ./test/integration/controller -audit -servers $(or $(SERVERS),1000) -foreign $(or $(FOREIGN),0)

.PHONY: test-chart
test-chart: ## Test the Helm chart and the alerts (the first time builds Helm and Prometheus).
	cd test/chart && go test -vet=off $(TEST_FLAGS) ./...

# How many MCPServers at a time, and in how many rounds; see go run ./bench/cluster -help.
PLAN ?= 1x10,10x5,100x1

.PHONY: bench-cluster
bench-cluster: images build-installer cluster-up cluster-load ## Measure from create to Ready, stage by stage, with 1, 10 and 100 MCPServers on the cluster, into dist/bench-cluster (needs root).
	KUBECONFIG=$$(go run ./test/cluster kubeconfig) && export KUBECONFIG && PATH=$$(hack/kube/build.sh):$$PATH && \
	  kubectl apply --server-side --force-conflicts -f dist/install.yaml && \
	  kubectl -n slipway-system rollout status deployment/slipway-manager --timeout=120s && \
	  go run ./bench/cluster -plan $(PLAN) -out dist/bench-cluster

.PHONY: test-cluster
test-cluster: ## Bring the local cluster up and down and check that nothing is left (needs root).
	SLIPWAY_TEST_CLUSTER=1 go test -count=1 -v -timeout 40m -run TestLifecycle $(TEST_FLAGS) ./test/cluster/...

# Which of the suite's labels: smoke, sessions, disruptive, slow, firstuse, nodes, replicas, chaos, helm; several are joined by commas.
LABEL ?=

.PHONY: test-e2e
test-e2e: images build-installer cluster-up cluster-load ## Run the end-to-end tests on the cluster (LABEL=smoke for some; needs root and npm).
	KUBECONFIG=$$(go run ./test/cluster kubeconfig) && export KUBECONFIG && PATH=$$(hack/kube/build.sh):$$PATH \
	  INSTALLER=$(CURDIR)/dist/install.yaml IMG_PREFIX=$(IMG_PREFIX) SLIPWAY_BUILD=$(VERSION) \
	  go test -count=1 -v -tags e2e -timeout 150m ./test/e2e $(TEST_FLAGS) -ginkgo.v -ginkgo.no-color -ginkgo.fail-on-empty -ginkgo.label-filter='$(LABEL)'

.PHONY: pictures
pictures: ## Record the terminal sessions of docs/pictures on the cluster that is up (make demo brings one up).
	hack/pictures.sh record "$(IMG_PREFIX)" "$(VERSION)"

.PHONY: pictures-check
pictures-check: ## Run the commands of these sessions again, and check that they print what the pictures show.
	hack/pictures.sh check "$(IMG_PREFIX)" "$(VERSION)"

.PHONY: test-docs
test-docs: build-installer cluster-up ## Run every command of README, quick start and first hour on the cluster, as it stands there (needs root and npm). Takes Slipway away from the cluster.
	KUBECONFIG=$$(go run ./test/cluster kubeconfig) && export KUBECONFIG && PATH=$$(hack/kube/build.sh):$$PATH \
	  go test -count=1 -v -tags docs -timeout 60m -run TestPagesRun $(TEST_FLAGS) ./test/docs

.PHONY: conformance
conformance: ## Run the official suite, a server from npm, clients of every revision, their logins and swarms of them against the adapter (needs npm).
	go test -count=1 -v -tags conformance -timeout 10m $(TEST_FLAGS) ./test/conformance/... ./test/everything/... ./test/eras/... ./test/flows/... ./test/swarm/...

# A count, not a duration: with a duration, Go before 1.27 reports its own deadline as a failure on a busy machine (golang/go#75804).
FUZZ_RUNS ?= 15000x

# Two targets with a worker each leave no CPU idle while one of them links. The pattern finds targets without linking the tests of every package.
FUZZ_ONE = echo "fuzz $$1 of $$0"; output=$$(go test -run '^$$' -fuzz "^$$1\$$" -fuzztime $(FUZZ_RUNS) -fuzzminimizetime 100x -parallel 1 "$$0" 2>&1) || { echo "$$output"; exit 255; }
export FUZZ_ONE

.PHONY: fuzz
fuzz: ## Run each fuzz target FUZZ_RUNS times.
	@grep -ro --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' internal | sed 's|^\(.*\)/[^/]*:func |./\1 |' | sort | \
	  xargs -P "$$(nproc)" -L 1 bash -c "$$FUZZ_ONE"

##@ Develop

.PHONY: build
build: ## Compile everything.
	go build -buildvcs=false ./...

.PHONY: generate
generate: ## Write the generated files: deep copies, apply configurations, CRD, roles, and their copies in the Helm chart.
	$(TOOL) controller-gen object applyconfiguration crd paths=./api/... output:crd:dir=config/crd/bases
	go run ./hack/crdfit config/crd/bases/*.yaml
	$(TOOL) controller-gen rbac:roleName=manager-role paths=./cmd/... paths=./internal/... output:rbac:dir=config/rbac
	go run ./hack/chart

.PHONY: fmt
fmt: ## Format the Go code.
	$(TOOL) golangci-lint fmt

.PHONY: lint
lint: ## Look for mistakes in the Go code.
	$(TOOL) golangci-lint run
	cd hack/kube && go tool -modfile=../tools/go.mod golangci-lint run --config ../../.golangci.yml --fast-only # types would take it through all of Kubernetes
	cd test/idp && go tool -modfile=../../hack/tools/go.mod golangci-lint run --config ../../.golangci.yml --fast-only # or of dex
	cd test/idp && CGO_ENABLED=0 go vet . # with the compiled packages that test/dex builds it of
	cd test/chart && go tool -modfile=../../hack/tools/go.mod golangci-lint run --config ../../.golangci.yml --fast-only # or of Helm and Prometheus

.PHONY: tidy
tidy: ## Bring every go.mod in line with the imports.
	go mod tidy
	cd hack/tools && go mod tidy
	cd hack/kube && go mod tidy && for modules in v*.mod; do go mod tidy -modfile="$$modules"; done
	cd internal/rpc/testdata/segmentio && go mod tidy
	cd test/idp && go mod tidy
	cd hack/release/krew && go mod tidy
	cd test/chart && go mod tidy

.PHONY: verify
verify: verify-tree lint ## Check generated files, formatting, modules, lint and the API; fails on a dirty tree.
	@echo "verify: everything is as it should be"

.PHONY: verify-tree
verify-tree: generate fmt tidy crd-compat ## Check all of that but lint, which CI runs beside other steps because it changes no file.
	@changes=$$(git status --porcelain); if [[ -n $$changes ]]; then \
	  echo "verify: the tree is not clean; commit these changes, or run 'make generate fmt tidy' and commit the result:" >&2; \
	  git status --short >&2; git --no-pager diff >&2; exit 1; \
	fi

CRD := config/crd/bases/mcp.slipway.dev_mcpservers.yaml

# The baseline is the CRD of the last release. Until there is one, it is the API as it is to stay.
.PHONY: crd-compat
crd-compat: ## Check that the CRD breaks no object and no client of the last release.
	go run ./hack/crdcompat hack/crdcompat/baseline.yaml $(CRD)

# What kubectl mcp is built for.
PLUGIN_PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64

.PHONY: plugin-builds
plugin-builds: ## Check that kubectl mcp compiles for Linux, macOS and Windows (the first time takes minutes).
	@for platform in $(PLUGIN_PLATFORMS); do \
	  CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} go build -o /dev/null ./cmd/kubectl-mcp || { echo "plugin-builds: kubectl mcp does not compile for $$platform" >&2; exit 1; }; \
	done

.PHONY: kube
kube: ## Build etcd, Kubernetes and CoreDNS into the cache and print where they are.
	@hack/kube/build.sh

##@ Cluster

.PHONY: cluster-up
cluster-up: ## Bring up a cluster: kind where Docker runs, else local processes (CLUSTER=kind|local|existing).
	@go run ./test/cluster up

.PHONY: cluster-down
cluster-down: ## Take the cluster down and leave nothing behind.
	@go run ./test/cluster down

.PHONY: cluster-status
cluster-status: ## Print which parts of the cluster run.
	@go run ./test/cluster status

.PHONY: cluster-load
cluster-load: ## Import image tars into the cluster (TARS="a.tar b.tar"; default: what make images wrote).
	@go run ./test/cluster load $(or $(TARS),$(wildcard dist/images/*.tar))

##@ Release

.PHONY: images
images: ## Write the images as OCI tars to dist/images; no container engine needed.
	go run ./hack/images --prefix $(IMG_PREFIX) --version $(VERSION) --platforms $(PLATFORMS)

.PHONY: push
push: ## Build the images and push them (IMG_PREFIX=registry/path).
	go run ./hack/images --prefix $(IMG_PREFIX) --version $(VERSION) --platforms $(PLATFORMS) --push

.PHONY: build-installer
build-installer: ## Write dist/install.yaml, which installs the operator.
	hack/installer.sh "$(IMG_PREFIX)" "$(VERSION)"

RELEASE_IMG_PREFIX ?= ghcr.io/slipway-mcp/slipway

.PHONY: release-dry-run
release-dry-run: ## Write everything that a release publishes to dist/release and upload nothing: VERSION=v0.1.0 (compiles kubectl mcp for five platforms, which takes minutes).
	rm -rf dist/release
	go run ./hack/release --version "$(VERSION)" --prefix "$(RELEASE_IMG_PREFIX)" --platforms "$(PLUGIN_PLATFORMS)"

.PHONY: helm
helm: ## Build the Helm CLI that the tests use, as dist/helm.
	cd test/chart && CGO_ENABLED=0 go build -o ../../dist/helm helm.sh/helm/v4/cmd/helm

.PHONY: clean
clean: ## Remove what the build wrote into the checkout.
	rm -rf dist
