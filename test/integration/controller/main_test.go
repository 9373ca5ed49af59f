// Package controller runs the whole operator against a real API server and a real
// kube-controller-manager, with no more rights than its generated roles give it. There
// is no kubelet: a stand-in runs the adapter and the launcher of each pod, with the
// pod's own arguments, as processes on a loopback address of its own. What the operator
// probes is real.
package controller

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-mcp/slipway/test/servers"
)

// The programs that the tests run.
var sidecarProgram, launcherProgram, echoServer, hostileServer, bothServer, eraFilter string

// shared is the cluster of all tests; each has a namespace of its own.
var shared *cluster

var showLogs = flag.Bool("show-logs", false, "show what the operator and the adapters log")

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	os.Exit(servers.Run(runner{m}, map[string]*string{
		"cmd/sidecar": &sidecarProgram, "cmd/launcher": &launcherProgram,
		"test/servers/echo": &echoServer, "test/servers/hostile": &hostileServer,
		"test/servers/both": &bothServer, "test/servers/era": &eraFilter,
	}))
}

// runner brings the cluster up and down around the tests.
type runner struct{ m *testing.M }

func (r runner) Run() (code int) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "KUBEBUILDER_ASSETS is not set, so there is no API server to test against: run `make test-integration`.")
		return 1
	}
	dir, err := os.MkdirTemp("", "slipway-controller-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := errors.Join(shared.stop(), os.RemoveAll(dir)); err != nil {
			fmt.Fprintln(os.Stderr, "clean up:", err)
			code = 1
		}
	}()
	if shared, err = startCluster(context.Background(), filepath.Join(dir, "cluster")); err != nil {
		fmt.Fprintln(os.Stderr, "set up:", err)
		return 1
	}
	return r.m.Run()
}
