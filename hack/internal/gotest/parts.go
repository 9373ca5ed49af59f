package gotest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Tests whose name begins with TestLong prove something that takes long. They are not
// part of make test.
var (
	ShortFlags = []string{"-skip", "^TestLong"}
	LongFlags  = []string{"-run", "^TestLong"}
)

const integration = "/test/integration"

// LongPackages are those that have long tests: to link all others would take longer than
// the tests.
func LongPackages(ctx context.Context) ([]string, error) {
	files, err := list(ctx, "{{$p := .}}{{range .TestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}\n{{end}}{{range .XTestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}\n{{end}}")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, file := range files {
		path, name, _ := strings.Cut(file, " ")
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("look for long tests: %w", err)
		}
		if bytes.Contains(content, []byte("\nfunc TestLong")) && !slices.Contains(found, path) {
			found = append(found, path)
		}
	}
	return found, nil
}

// AllPackages are those of the module in the working directory that have tests.
func AllPackages(ctx context.Context) ([]string, error) {
	return list(ctx, "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}")
}

// list has go list write something of each package, and returns its lines.
func list(ctx context.Context, format string) ([]string, error) {
	command := exec.CommandContext(ctx, "go", "list", "-f", format, "./...")
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	return strings.FieldsFunc(string(output), func(r rune) bool { return r == '\n' }), nil
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
	slices.SortStableFunc(wanted, func(a, b string) int { return place(a) - place(b) })
	return wanted, nil
}

// slowest are the packages whose tests take minutes. go test runs packages in the order in which they are named, so these
// begin first: otherwise the last one would run alone.
var slowest = []string{"/internal/sidecar", "/test/integration/controller", "/internal/prober"}

// place is the place of a package in the order of tests.
func place(path string) int {
	if i := slices.IndexFunc(slowest, func(slow string) bool { return strings.HasSuffix(path, slow) }); i >= 0 {
		return i
	}
	return len(slowest)
}

const assets = "KUBEBUILDER_ASSETS"

// Kubernetes is the environment of tests that run an API server. It builds Kubernetes if
// the cache has no build.
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
