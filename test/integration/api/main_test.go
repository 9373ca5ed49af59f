// Package api tests what a user of the MCPServer API sees: which manifests a real
// API server takes, which it refuses, and in which words.
package api

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/hang"
)

var (
	repository = filepath.Join("..", "..", "..")
	crdFile    = filepath.Join(repository, "config", "crd", "bases", "mcp.slipway.dev_mcpservers.yaml")

	// apiServer is what the tests talk to; TestMain starts it.
	apiServer  client.Client
	restConfig *rest.Config
	kubeconfig string
	kubeCache  string // what kubectl keeps of another API server at this address is not for this one
	assets     = os.Getenv("KUBEBUILDER_ASSETS")

	// tellsKinds says that the API server tells the kind of a value that a rule refuses, and not the value: it is older than 1.35.
	tellsKinds bool
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if assets == "" {
		return 1, errors.New("KUBEBUILDER_ASSETS is not set: run `make test-integration`, which finds or builds an API server")
	}
	env := &envtest.Environment{CRDDirectoryPaths: []string{crdFile}, ErrorIfCRDPathMissing: true, ControlPlaneStartTimeout: hang.Guard}
	// Also when it starts only half: a CRD that is refused leaves etcd running.
	defer func() { err = errors.Join(err, env.Stop()) }()
	config, err := env.Start()
	if err != nil {
		return 1, fmt.Errorf("start API server: %w", err)
	}
	restConfig = config
	if tellsKinds, err = isOlderThan(config, 35); err != nil {
		return 1, err
	}

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return 1, fmt.Errorf("register API types: %w", err)
	}
	apiServer, err = client.New(config, client.Options{
		Scheme: scheme,
		// What kubectl does too: a field that does not exist is an error.
		FieldValidation: metav1.FieldValidationStrict,
	})
	if err != nil {
		return 1, fmt.Errorf("make client: %w", err)
	}

	dir, err := os.MkdirTemp("", "slipway-api-test")
	if err != nil {
		return 1, fmt.Errorf("make directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	kubeconfig, kubeCache = filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "cache")
	if err := os.WriteFile(kubeconfig, env.KubeConfig, 0o600); err != nil {
		return 1, fmt.Errorf("write kubeconfig: %w", err)
	}
	return m.Run(), nil
}

// isOlderThan compares the API server with version 1.minor.
func isOlderThan(config *rest.Config, minor int) (bool, error) {
	discovered, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return false, fmt.Errorf("make discovery client: %w", err)
	}
	version, err := discovered.ServerVersion()
	if err != nil {
		return false, fmt.Errorf("get version of API server: %w", err)
	}
	has, err := strconv.Atoi(version.Minor)
	if err != nil {
		return false, fmt.Errorf("read version %s of API server: %w", version, err)
	}
	return has < minor, nil
}

// dryRun asks the API server whether it would create the object.
func dryRun(ctx context.Context, object client.Object) error {
	return apiServer.Create(ctx, object, client.DryRunAll)
}
