package controller

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What is watched is not asked for: to find that a server is as it should be, the
// operator needs nobody.
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
	// What was applied last may not have been heard of yet.
	g.Eventually(reads.quiet).WithTimeout(soon).Should(BeNumerically(">", time.Second))
	reads.forget()
	// Each time the operator sets this back, it has looked at everything.
	deployment := &appsv1.Deployment{ObjectMeta: objectMeta(namespace, server.Name)}
	for range 3 {
		change(t, deployment, func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(2)) })
		g.Eventually(func() (int32, error) {
			err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment)
			return *deployment.Spec.Replicas, err
		}).WithTimeout(soon).Should(BeEquivalentTo(1))
	}
	for _, path := range reads.paths() {
		if !strings.Contains(path, "/deployments/") { // whose fields may be somebody else's
			t.Errorf("the API server was asked for %s", path)
		}
	}
}

// reads are the paths of what was read, but for watches.
type reads struct {
	mu   sync.Mutex
	seen []string
	last time.Time
}

// quiet is for how long nothing has been read.
func (r *reads) quiet() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.last)
}

func (r *reads) add(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen, r.last = append(r.seen, path), time.Now()
}

func (r *reads) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = nil
}

func (r *reads) paths() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
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
