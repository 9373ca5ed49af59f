package controller

import (
	"net/http"
	"slices"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-mcp/slipway/test/hang"
)

// The manager reads watched objects from its cache: to find that a server needs no change,
// it sends no request.
func TestWhatIsWatchedIsNotAskedFor(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	reads := &reads{}
	startOperator(t, namespace, func(o *operatorOptions) {
		o.config = rest.CopyConfig(o.config)
		o.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return recorded{next, reads} })
	})
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "Verified", "True Verified", "Reconciling", "absent")
	// Each time the manager sets this back, it has looked at everything.
	deployment := &appsv1.Deployment{ObjectMeta: objectMeta(namespace, server.Name)}
	lookThreeTimes := func() []string {
		reads.forget()
		for range 3 {
			change(t, deployment, func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(2)) })
			g.Eventually(func() (int32, error) {
				err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment)
				return *deployment.Spec.Replicas, err
			}).WithTimeout(hang.Guard).Should(BeEquivalentTo(1))
		}
		return reads.paths()
	}
	// The manager may not have heard yet of what it applied last, and asks for that. The
	// fields of a Deployment may be another client's, so that one is asked for always.
	g.Eventually(lookThreeTimes).WithTimeout(hang.Guard).Should(HaveEach(ContainSubstring("/deployments/")))
	g.Expect(lookThreeTimes()).To(HaveEach(ContainSubstring("/deployments/")), "it asks again")
}

// reads are the paths of what was read, but for watches.
type reads struct {
	mu   sync.Mutex
	seen []string
}

func (r *reads) add(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, path)
}

func (r *reads) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = nil
}

func (r *reads) paths() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// recorded is a connection that writes down what is read.
type recorded struct {
	http.RoundTripper
	reads *reads
}

func (r recorded) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet && !request.URL.Query().Has("watch") {
		r.reads.add(request.URL.Path)
	}
	return r.RoundTripper.RoundTrip(request)
}
