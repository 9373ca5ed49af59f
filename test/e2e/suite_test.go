//go:build e2e

// Package e2e proves on a real cluster, with real kubelets, clients and servers, what
// Slipway promises. Everything that users run stands in namespaces that enforce Pod
// Security "restricted".
//
// Labels say what a spec is about and what it costs: smoke (a server works), sessions
// (who shares what, and what happens when something dies), disruptive (rollouts,
// broken servers, and changes of the manager itself), slow (minutes), firstuse (servers
// from npm that people run first, slow starts and failing processes), nodes (what needs two
// nodes: they are drained and lost), replicas (many clients of several pods, which are replaced,
// scaled and killed), chaos (all of that by chance, for ten minutes or SLIPWAY_CHAOS), helm (the manager is
// installed, upgraded and uninstalled with Helm, which is built for that).
package e2e

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// The environment that `make test-e2e` sets.
var (
	installer = os.Getenv("INSTALLER")     // what make build-installer wrote
	prefix    = os.Getenv("IMG_PREFIX")    // what the manager's images are called
	version   = os.Getenv("SLIPWAY_BUILD") // and their version
)

// patience is for what happens soon, and for which no time is promised.
const patience = 30 * time.Second

func TestEndToEnd(t *testing.T) {
	if installer == "" || prefix == "" || version == "" || os.Getenv("KUBECONFIG") == "" {
		t.Fatal("the environment lacks what the suite needs: run `make test-e2e`")
	}
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	SetDefaultConsistentlyPollingInterval(200 * time.Millisecond)
	RegisterFailHandler(Fail)
	suite, reporter := GinkgoConfiguration()
	if deadline, ok := t.Deadline(); ok {
		suite.Timeout = time.Until(deadline) - 5*time.Minute // before go test ends everything without a word
	}
	suite.PollProgressAfter = time.Minute // of one spec: say what it waits for
	RunSpecs(t, "Slipway end to end", suite, reporter)
}

// What the specs use; BeforeSuite makes it.
var (
	cluster *connection
	gate    *wayIn
	images  *imageSet
)

var _ = BeforeSuite(func(ctx context.Context) {
	done := false
	defer func() {
		if !done && cluster != nil {
			dump(operatorNamespace, gateNamespace)
		}
	}()
	cluster = connectToCluster(ctx)
	By("building the servers' programs")
	images = buildPrograms(ctx)
	By("putting a gate into the cluster")
	gate = openGate(ctx)
	By("installing the operator")
	installOperator(ctx, installer)
	done = true
})

var _ = AfterSuite(func(ctx context.Context) {
	if cluster == nil {
		return
	}
	// The manager stays, because the owner of the cluster may use it.
	cluster.deleteNamespaces(ctx)
})
