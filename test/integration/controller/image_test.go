package controller

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/gomega"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// testRegistry is a registry that can be slow, or down.
type testRegistry struct {
	host  string
	down  atomic.Bool
	delay atomic.Int64
}

func startRegistry(t *testing.T) *testRegistry {
	t.Helper()
	r := &testRegistry{}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if r.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		<-time.After(time.Duration(r.delay.Load())) // a registry that is far away
		handler.ServeHTTP(w, request)
	}))
	t.Cleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	return r
}

// image is what its only image is called.
func (r *testRegistry) image() string { return r.host + "/mcp/echo:1" }

// push pushes an image that runs this program as this user, and returns its digest.
func (r *testRegistry) push(t *testing.T, program, user string) string {
	t.Helper()
	config := v1.Config{User: user}
	if program != "" {
		config.Entrypoint = []string{program}
	}
	image, err := mutate.Config(empty.Image, config)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(r.image())
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// Without a command, the image's own is run, by digest and as the image's user; and a
// registry that is down later changes nothing.
func TestImageIsResolved(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	images := startRegistry(t)
	digest := images.push(t, echoServer, "4711")
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Image, server.Spec.Command = images.image(), nil
	create(t, server)
	eventually(t, server, "Ready", "True Ready")
	got := status(t, server).Image
	g.Expect(got).To(Equal(&mcpv1alpha1.ResolvedImage{Digest: digest, Command: []string{echoServer}, User: "4711"}))
	container := templateOf(t, server).Spec.Containers[0]
	g.Expect(container.Image).To(Equal(images.host + "/mcp/echo@" + digest))
	g.Expect(container.SecurityContext.RunAsUser).To(BeNil(), "the image's user is kept")

	// The tag moves: nothing changes until somebody asks.
	other := images.push(t, hostileServer, "4712")
	images.down.Store(true)
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Args = []string{"--page", "3"} })
	g.Eventually(func() []string { return templateOf(t, server).Spec.Containers[0].Command }).WithTimeout(soon).Should(ContainElement("--page"))
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	g.Expect(status(t, server).Image.Digest).To(Equal(digest), "the registry is down, and the last answer stands")

	images.down.Store(false)
	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		s.Spec.Args = []string{"tools", "2"}
		s.Annotations = map[string]string{mcpv1alpha1.AnnotationRefresh: "1"}
	})
	g.Eventually(func() string { return status(t, server).Image.Digest }).WithTimeout(soon).Should(Equal(other))
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	g.Expect(status(t, server).Counts.Tools).To(BeEquivalentTo(2))
}

// How far away a registry is does not decide which user a server runs as.
func TestSlowRegistry(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	images := startRegistry(t)
	digest := images.push(t, echoServer, "4711")
	images.delay.Store(int64(700 * time.Millisecond)) // for each of several requests
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo") // with a command of its own
	server.Spec.Image = images.image()
	create(t, server)
	eventually(t, server, "Ready", "True Ready")
	g.Expect(status(t, server).Image.Digest).To(Equal(digest))
	container := templateOf(t, server).Spec.Containers[0]
	g.Expect(container.SecurityContext.RunAsUser).To(BeNil(), "the image's user is kept")
	g.Expect(container.Image).To(Equal(server.Spec.Image), "what the user wrote")
}

// An image that is not there, and no command: that is told, and mended by a push.
func TestImageThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	images := startRegistry(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Image, server.Spec.Command = images.image(), nil
	bad := newServer(namespace, "bad")
	bad.Spec.Image = "not/AN/image:1"
	create(t, server, bad)
	eventually(t, server, "Ready", "False ImageUnresolved", "Reconciling", "True ImageUnresolved", "Stalled", "absent")
	eventually(t, bad, "Accepted", "False InvalidImage", "Stalled", "True InvalidImage")
	// Over the first attempts, after 5 s and 10 s more, what is wrong stays told.
	NewWithT(t).Consistently(func() string { return says(t, server, "Reconciling") }).WithTimeout(17 * time.Second).WithPolling(100 * time.Millisecond).
		Should(Equal("True ImageUnresolved"))
	images.push(t, echoServer, "")
	eventually(t, server, "Ready", "True Ready")
	if got := templateOf(t, server).Spec.Containers[0].SecurityContext.RunAsUser; got == nil || *got != 1000 {
		t.Errorf("an image without a user runs as %v", got)
	}
}

// A server that is deleted and made again at once is not taken for a conflict.
func TestRecreate(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	for range 3 {
		server := newServer(namespace, "echo")
		create(t, server)
		g.Eventually(func() string {
			if got := says(t, server, "Stalled"); got != "absent" {
				t.Fatalf("Stalled %s: %s", got, describe(status(t, server)))
			}
			return says(t, server, "Ready")
		}).WithTimeout(soon).WithPolling(20 * time.Millisecond).Should(Equal("True Ready"))
		g.Expect(shared.client.Delete(t.Context(), server)).To(Succeed())
	}
}
