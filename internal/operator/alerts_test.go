package operator

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/controller"
	"github.com/slipway-mcp/slipway/test/alerts"
)

const alertsFile = "../../config/prometheus/alerts.yaml"

// The alerts name metrics that a manager exports, with the labels that it gives them.
func TestAlertsNameMetricsOfManagers(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := mcpv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	broken := &mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"}}
	broken.Status.Conditions = []metav1.Condition{{Type: mcpv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: mcpv1alpha1.ReasonServerExits}}
	registry := prometheus.NewRegistry()
	registry.MustRegister(controller.NewServerMetrics(fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(broken).Build()))
	waitForLease(t)
	exported := map[string]*dto.Metric{}
	for _, from := range []prometheus.Gatherer{registry, metrics.Registry} {
		families, err := from.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			exported[family.GetName()] = family.GetMetric()[0]
		}
	}
	for _, metric := range alerts.Metrics(t, alertsFile, alerts.OfManagers) {
		if exported[metric] == nil {
			t.Errorf("managers have no %s", metric)
		}
	}
	for metric, want := range map[string]string{
		"slipway_servers":               `ready="False"`,
		"leader_election_master_status": `name="` + leaseName + `"`,
	} {
		found := false
		for _, label := range exported[metric].GetLabel() {
			found = found || label.GetName()+`="`+label.GetValue()+`"` == want
		}
		if !found || exported[metric].GetGauge().GetValue() != map[string]float64{"slipway_servers": 1}[metric] {
			t.Errorf("%s is %v, want %s", metric, exported[metric], want)
		}
	}
	content, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), `leader_election_master_status{name="`+leaseName+`"}`) {
		t.Errorf("no alert is about the lease %s", leaseName)
	}
}

// waitForLease makes an elector as a manager does, which has not got the lease yet.
func waitForLease(t *testing.T) {
	t.Helper()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "n", leaseName, nil, fake.NewClientset().CoordinationV1(), resourcelock.ResourceLockConfig{Identity: "me"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: leaseName, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	if err != nil {
		t.Fatal(err)
	}
}
