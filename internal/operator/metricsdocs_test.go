package operator

import (
	"context"
	"flag"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/config"
	"github.com/slipway-mcp/slipway/test/doctable"
)

var update = flag.Bool("update", false, "write the table of metrics into the documentation")

// The reference has each metric of Slipway that a manager registers.
func TestMetricsInTheDocumentation(t *testing.T) {
	registry := prometheus.NewRegistry()
	_, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, Options{
		Config: config.Default(), Metrics: sampling{registry},
		Adjust: func(o *manager.Options) {
			o.LeaderElection, o.Metrics.BindAddress, o.HealthProbeBindAddress = false, "0", "0"
			o.NewCache = func(*rest.Config, cache.Options) (cache.Cache, error) { return cacheWithServer(t), nil }
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	table := "\n" + doctable.Metrics(doctable.MetricsOf(t, registry)) + "\n"
	doctable.Check(t, "../../docs/reference/metrics.md", "metrics of the manager", table, "go test ./internal/operator -update", *update)
}

// sampling gives each histogram a sample: without one, a registry does not know its type.
type sampling struct{ prometheus.Registerer }

func (s sampling) MustRegister(collectors ...prometheus.Collector) {
	for _, collector := range collectors {
		if histogram, ok := collector.(*prometheus.HistogramVec); ok {
			histogram.WithLabelValues("verify")
		}
	}
	s.Registerer.MustRegister(collectors...)
}

// serverCache is a cache that never starts and holds one MCPServer.
type serverCache struct {
	*informertest.FakeInformers
	reader client.Reader
}

func (c serverCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.reader.List(ctx, list, options...)
}

func cacheWithServer(t *testing.T) cache.Cache {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := mcpv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	server := &mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"}}
	return serverCache{&informertest.FakeInformers{}, fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(server).Build()}
}
