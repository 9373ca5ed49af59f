package gotest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Tests whose name begins with TestLong prove something that takes long. They are not
// part of make test.
var (
	ShortFlags = []string{"-skip", "^TestLong"}
	LongFlags  = []string{"-run", "^TestLong"}
)

const integration = "/test/integration"

// AllPackages are those of the module in the working directory that have tests.
func AllPackages(ctx context.Context) ([]string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "./...")
	list.Stderr = os.Stderr
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	return strings.Fields(string(output)), nil
}

// UnitPackages need nothing but Go.
func UnitPackages(ctx context.Context) ([]string, error) {
	return packages(ctx, func(path string) bool { return !strings.Contains(path, integration) })
}

// IntegrationPackages need Kubernetes.
func IntegrationPackages(ctx context.Context) ([]string, error) {
	return packages(ctx, func(path string) bool { return strings.Contains(path, integration) })
}

func packages(ctx context.Context, want func(path string) bool) ([]string, error) {
	all, err := AllPackages(ctx)
	if err != nil {
		return nil, err
	}
	var wanted []string
	for _, path := range all {
		if want(path) {
			wanted = append(wanted, path)
		}
	}
	return wanted, nil
}

const assets = "KUBEBUILDER_ASSETS"

// Kubernetes is the environment of tests that run an API server. It builds Kubernetes if
// nobody has yet.
func Kubernetes(ctx context.Context) (env []string, err error) {
	if os.Getenv(assets) != "" {
		return nil, nil
	}
	build := exec.CommandContext(ctx, "hack/kube/build.sh")
	build.Stderr = os.Stderr // it says that this takes minutes
	output, err := build.Output()
	if err != nil {
		return nil, fmt.Errorf("build Kubernetes: %w", err)
	}
	return []string{assets + "=" + strings.TrimSpace(string(output))}, nil
}
