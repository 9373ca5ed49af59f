// Package integration runs the manager's binary against a real API server, with
// no more rights than the generated roles give it.
package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-mcp/slipway/test/integration/loopback"
)

const (
	root = "../.."

	testVersion = "v0.0.0-test"

	// What config/default names them.
	systemNamespace = "slipway-system"
	managerAccount  = "slipway-manager"
	managerRole     = "slipway-manager-role"
	metricsReader   = "slipway-metrics-reader"
	leaseName       = "slipway-manager.mcp.slipway.dev"
)

// Shared by the tests of this package, which run one after the other: there is
// one Lease.
var (
	managerBinary string
	installer     []object
	shared        *cluster
	network       *loopback.Network // of the managers
)

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	gomega.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	os.Exit(runTests(m))
}

func runTests(m *testing.M) (code int) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "KUBEBUILDER_ASSETS is not set, so there is no API server to test against: run `make test-integration`.")
		return 1
	}
	dir, err := os.MkdirTemp("", "slipway-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := errors.Join(shared.stop(), os.RemoveAll(dir), network.Close()); err != nil {
			fmt.Fprintln(os.Stderr, "clean up:", err)
			code = 1
		}
	}()
	if err := setUp(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, "set up:", err)
		return 1
	}
	return m.Run()
}

// setUp starts the API server while the linker works.
func setUp(ctx context.Context, dir string) error {
	var parts sync.WaitGroup
	var problems [4]error
	parts.Go(func() { shared, problems[0] = startCluster(filepath.Join(dir, "shared")) })
	parts.Go(func() { managerBinary, problems[1] = buildManager(ctx, dir) })
	parts.Go(func() {
		installer, problems[2] = renderInstaller(ctx, filepath.Join(dir, "install.yaml"), "registry.example:5000/slipway", testVersion)
	})
	network, problems[3] = loopback.Claim(ctx)
	parts.Wait()
	if err := errors.Join(problems[:]...); err != nil {
		return err
	}
	return shared.install(ctx, installer)
}

func buildManager(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "manager")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "-ldflags",
		"-w -X github.com/slipway-mcp/slipway/internal/version.version="+testVersion, "./cmd/manager")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build manager: %w\n%s", err, output)
	}
	return binary, nil
}
