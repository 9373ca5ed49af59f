package controller

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/hang"
)

// The cache of ControllerRevisions has a watch of its own, which may lag behind all others.
// A revision that the cache does not show yet must not be rolled back to the one before.
func TestNewTemplateSurvivesALaggingCache(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	revisions := &laggingRevisions{}
	startOperator(t, namespace, func(o *operatorOptions) {
		o.config = rest.CopyConfig(o.config)
		o.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &laggingTransport{next, revisions} })
	})
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")

	release := revisions.hold()
	defer release()
	old := revisions.applied()
	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		s.Spec.Env = append(s.Spec.Env, corev1.EnvVar{Name: "GENERATION", Value: "2"})
	})
	g.Eventually(revisions.applied).WithTimeout(hang.Guard).ShouldNot(Equal(old), "the new template is not applied")
	fresh := slices.Clone(revisions.applied()[len(old):])
	// The controller has to look at the server again while the cache is behind. After a while
	// it asks the API server which revision is the newest.
	asked := revisions.lists()
	change(t, &appsv1.Deployment{ObjectMeta: objectMeta(namespace, server.Name)}, func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(2)) })
	g.Eventually(revisions.lists).WithTimeout(hang.Guard).Should(BeNumerically(">", asked), "the controller has not looked again")
	release()
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")

	for _, template := range revisions.applied()[len(old):] {
		if template != fresh[0] {
			t.Errorf("templates are applied in this order: %q, and then %q", old, revisions.applied()[len(old):])
			break
		}
	}
}

// laggingRevisions holds back what watches say of ControllerRevisions, and knows what was
// applied meanwhile.
type laggingRevisions struct {
	mu        sync.Mutex
	held      chan struct{} // closed when watches go on; nil if they are not held
	templates []string
	listed    int
}

func (l *laggingRevisions) hold() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make(chan struct{})
	l.held = held
	return sync.OnceFunc(func() { close(held) })
}

func (l *laggingRevisions) wait() {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held != nil {
		<-held
	}
}

// applied are the names of the pod templates of Deployments in the order in which they were
// applied.
func (l *laggingRevisions) applied() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.templates)
}

func (l *laggingRevisions) lists() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listed
}

// laggingTransport is the manager's connection to the API server.
type laggingTransport struct {
	http.RoundTripper
	*laggingRevisions
}

func (l *laggingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	switch watch := request.URL.Query().Has("watch"); {
	case strings.HasSuffix(request.URL.Path, "/controllerrevisions") && watch:
		response, err := l.RoundTripper.RoundTrip(request)
		if err == nil {
			response.Body = &laggingBody{response.Body, l.laggingRevisions}
		}
		return response, err
	case strings.HasSuffix(request.URL.Path, "/controllerrevisions") && request.Method == http.MethodGet:
		l.mu.Lock()
		l.listed++
		l.mu.Unlock()
	case strings.Contains(request.URL.Path, "/deployments/") && request.Method == http.MethodPatch:
		if err := l.note(request); err != nil {
			return nil, err
		}
	}
	return l.RoundTripper.RoundTrip(request)
}

// note notes the template of a Deployment that is applied.
func (l *laggingTransport) note(request *http.Request) error {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return err
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	deployment := &appsv1.Deployment{}
	if json.Unmarshal(body, deployment) != nil {
		return nil // another kind of patch
	}
	if name := deployment.Spec.Template.Annotations[mcpv1alpha1.AnnotationTemplate]; name != "" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.templates = append(l.templates, name)
	}
	return nil
}

type laggingBody struct {
	io.ReadCloser
	revisions *laggingRevisions
}

func (b *laggingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.revisions.wait()
	return n, err
}
