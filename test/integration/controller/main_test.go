// Package controller runs the whole manager against a real API server and a real
// kube-controller-manager, with no more rights than its generated roles give it. There
// is no kubelet: a stand-in runs the adapter and the launcher of each pod, with the
// pod's own arguments, as processes on a loopback address of its own. What the manager
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
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-mcp/slipway/test/servers"
)

// The programs that the tests run.
var sidecarProgram, launcherProgram, echoServer, hostileServer, bothServer, eraFilter string

// shared is the cluster of all tests; each has a namespace of its own.
var shared *cluster

var showLogs = flag.Bool("show-logs", false, "show what the operator and the adapters log")

// parallelTests is how many run at a time unless the user says. They wait for most of
// their time, so that the number of cores, which is the default, is too small.
const parallelTests = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	// The default asks the API server a hundred times a second for each test that waits.
	gomega.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	if !isSet("test.parallel") {
		if err := flag.Set("test.parallel", parallelTests); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(run(m))
}

// isSet says whether the user has set a flag.
func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

func run(m *testing.M) (code int) {
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
	// The cluster starts while the programs are linked.
	started := make(chan error, 1)
	go func() {
		var err error
		shared, err = startCluster(context.Background(), filepath.Join(dir, "cluster"))
		started <- err
	}()
	tests := &runner{m, started}
	defer func() { _ = tests.wait() }() // also if the programs could not be built
	return servers.Run(tests, map[string]*string{
		"cmd/sidecar": &sidecarProgram, "cmd/launcher": &launcherProgram,
		"test/servers/echo": &echoServer, "test/servers/hostile": &hostileServer,
		"test/servers/both": &bothServer, "test/servers/era": &eraFilter,
	})
}

// runner runs the tests as soon as the cluster has started.
type runner struct {
	m       *testing.M
	started <-chan error
}

func (r *runner) Run() int {
	if err := r.wait(); err != nil {
		fmt.Fprintln(os.Stderr, "set up:", err)
		return 1
	}
	return r.m.Run()
}

// wait returns why the cluster has not started, the first time that it is called.
func (r *runner) wait() error {
	if r.started == nil {
		return nil
	}
	err := <-r.started
	r.started = nil
	return err
}
