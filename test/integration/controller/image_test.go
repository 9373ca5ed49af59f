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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/hang"
)

// testRegistry is a registry that can be down.
type testRegistry struct {
	host    string
	down    atomic.Bool
	asked   atomic.Int64 // times that it was asked for anything
	refused atomic.Int64 // times that it was asked for an image that it does not have
}

func startRegistry(t *testing.T) *testRegistry {
	t.Helper()
	r := &testRegistry{}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.asked.Add(1)
		if r.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		answer := &statusRecorder{ResponseWriter: w}
		handler.ServeHTTP(answer, request)
		if answer.status == http.StatusNotFound && strings.Contains(request.URL.Path, "/manifests/") {
			r.refused.Add(1)
		}
	}))
	t.Cleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	return r
}

// statusRecorder knows what was answered.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (s *statusRecorder) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
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
	g.Expect(got).To(Equal(&mcpv1alpha1.ResolvedImage{
		Resolution: mcpv1alpha1.ImageResolved, Digest: digest, Command: []string{echoServer}, User: "4711",
	}))
	container := templateOf(t, server).Spec.Containers[0]
	g.Expect(container.Image).To(Equal(images.host + "/mcp/echo@" + digest))
	g.Expect(container.SecurityContext.RunAsUser).To(BeNil(), "the image's user is kept")

	// The tag moves: nothing changes until the spec changes.
	other := images.push(t, hostileServer, "4712")
	images.down.Store(true)
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Args = []string{"--page", "3"} })
	g.Eventually(func() []string { return templateOf(t, server).Spec.Containers[0].Command }).WithTimeout(hang.Guard).Should(ContainElement("--page"))
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	g.Expect(status(t, server).Image.Digest).To(Equal(digest), "the registry is down, and the last answer stands")

	images.down.Store(false)
	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		s.Spec.Args = []string{"tools", "2"}
		s.Annotations = map[string]string{mcpv1alpha1.AnnotationRefresh: "1"}
	})
	g.Eventually(func() string { return status(t, server).Image.Digest }).WithTimeout(hang.Guard).Should(Equal(other))
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	g.Eventually(func() int32 { return status(t, server).Catalog.Counts.Tools }).WithTimeout(hang.Guard).Should(BeEquivalentTo(2))
}

// A server that names its command never waits for a registry. Which user it runs as does
// not depend on whether a registry answers.
func TestCommandNeedsNoRegistry(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	images := startRegistry(t)
	images.push(t, echoServer, "4711")
	asked := images.asked.Load()
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Image = images.image()
	create(t, server)
	eventually(t, server, "Ready", "True Ready")
	g.Expect(images.asked.Load()).To(Equal(asked), "the registry was asked")
	container := templateOf(t, server).Spec.Containers[0]
	g.Expect(*container.SecurityContext.RunAsUser).To(BeEquivalentTo(1000))
	g.Expect(container.Image).To(Equal(server.Spec.Image), "what the user wrote")
	g.Expect(status(t, server).Image).To(Equal(&mcpv1alpha1.ResolvedImage{Resolution: mcpv1alpha1.ImageNotAsked, Command: []string{echoServer}}))
}

// An image that is not there, and no command: the first time the registry says so it may
// be a mishap, the second time the user has to act. A push mends it.
func TestImageThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
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
	eventually(t, server, "Accepted", "False ImageUnresolved", "Reconciling", "absent", "Stalled", "True ImageUnresolved")
	g.Eventually(eventReasons).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(HaveKeyWithValue("Warning ImageUnresolved", 1))
	stalled := meta.FindStatusCondition(status(t, server).Conditions, mcpv1alpha1.ConditionStalled)
	g.Expect(stalled.Message).To(And(ContainSubstring("it has no such image"), Not(ContainSubstring("spec.command"))))
	// Before, during and after the next attempt, what is wrong stays told.
	asked := images.refused.Load()
	g.Eventually(func() int64 {
		if got := says(t, server, "Stalled"); got != "True ImageUnresolved" {
			t.Fatalf("Stalled %s: %s", got, describe(status(t, server)))
		}
		return images.refused.Load()
	}).WithTimeout(hang.Guard).Should(BeNumerically(">", asked))
	images.push(t, echoServer, "")
	eventually(t, server, "Ready", "True Ready", "Stalled", "absent", "Reconciling", "absent")
	if got := templateOf(t, server).Spec.Containers[0].SecurityContext.RunAsUser; got == nil || *got != 1000 {
		t.Errorf("an image without a user runs as %v", got)
	}
}

// A spec whose image does not exist changes nothing of what runs, in the status either, and
// is accepted once it does.
func TestImageThatIsGone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	images := startRegistry(t)
	images.push(t, echoServer, "4711")
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Image, server.Spec.Command = images.image(), nil
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	template, pods, image := templateOf(t, server), podNames(t, namespace), status(t, server).Image
	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		s.Spec.Image, s.Spec.Args = images.host+"/mcp/none:1", []string{"--page", "3"}
	})
	for _, want := range []string{"absent", "True ImageUnresolved"} {
		eventually(t, server, "Stalled", want, "Available", "True Available")
		g.Expect(templateOf(t, server)).To(Equal(template))
		g.Expect(podNames(t, namespace)).To(Equal(pods))
		g.Expect(status(t, server).Image).To(Equal(image), "the status mixes the new spec with the old image")
	}
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Image = images.image() })
	eventually(t, server, "Ready", "True Ready", "Stalled", "absent", "Reconciling", "absent")
	g.Expect(templateOf(t, server).Spec.Containers[0].Command).To(ContainElement("--page"))
}

// A registry that the manager may not ask is not asked. The user is told to name the
// command, and why.
func TestForbiddenRegistry(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	images := startRegistry(t)
	images.push(t, echoServer, "4711")
	asked := images.asked.Load()
	startOperator(t, namespace, func(o *operatorOptions) { o.registries.Hosts = []string{"docker.io"} })
	server := newServer(namespace, "echo")
	server.Spec.Image, server.Spec.Command = images.image(), nil
	overHTTP := server.DeepCopy()
	overHTTP.Name = "http"
	overHTTP.Spec.Transport = mcpv1alpha1.Transport{Type: mcpv1alpha1.TransportStreamableHTTP, StreamableHTTP: &mcpv1alpha1.StreamableHTTPTransport{Port: 3000}}
	create(t, server, overHTTP)
	eventually(t, server, "Accepted", "False CommandUnknown", "Stalled", "True CommandUnknown")
	stalled := meta.FindStatusCondition(status(t, server).Conditions, mcpv1alpha1.ConditionStalled)
	g.Expect(stalled.Message).To(And(ContainSubstring("registry.allowedHosts"), ContainSubstring("set spec.command")))
	eventually(t, overHTTP, "Accepted", "True Accepted")
	g.Expect(status(t, overHTTP).Image.Resolution).To(Equal(mcpv1alpha1.ImageNotAsked))
	g.Expect(images.asked.Load()).To(Equal(asked), "the registry was asked")
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Command = []string{echoServer} })
	eventually(t, server, "Ready", "True Ready", "Stalled", "absent")
}

// A server over HTTP whose registry does not answer runs as user 1000. When the registry is
// back, that is known, and shown, and not changed: until the user changes something.
func TestRegistryThatAnswersLate(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	images := startRegistry(t)
	images.push(t, echoServer, "4711")
	images.down.Store(true)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Image, server.Spec.Command = images.image(), nil
	server.Spec.Transport = mcpv1alpha1.Transport{Type: mcpv1alpha1.TransportStreamableHTTP, StreamableHTTP: &mcpv1alpha1.StreamableHTTPTransport{Port: 3000}}
	create(t, server)
	user := func() *int64 { return templateOf(t, server).Spec.Containers[0].SecurityContext.RunAsUser }
	eventually(t, server, "Accepted", "True Accepted")
	g.Expect(user()).To(HaveValue(BeEquivalentTo(1000)))
	g.Expect(status(t, server).Image).To(Equal(&mcpv1alpha1.ResolvedImage{Resolution: mcpv1alpha1.ImageUnresolved}))
	template := templateOf(t, server)

	images.down.Store(false)
	g.Eventually(func() bool { return status(t, server).Template.Outdated }).WithTimeout(hang.Guard).Should(BeTrue())
	g.Eventually(eventReasons).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(HaveKeyWithValue("Warning ImageLate", 1))
	g.Expect(templateOf(t, server)).To(Equal(template), "the registry decides when pods are restarted")
	g.Expect(status(t, server).Image.Resolution).To(Equal(mcpv1alpha1.ImageUnresolved))

	// The registry is away again when the user changes something else.
	images.down.Store(true)
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Args = []string{"--page", "3"} })
	g.Eventually(user).WithTimeout(hang.Guard).Should(BeNil(), "the image's user")
	g.Eventually(func() mcpv1alpha1.ImageResolution { return status(t, server).Image.Resolution }).WithTimeout(hang.Guard).Should(Equal(mcpv1alpha1.ImageResolved))
	g.Expect(status(t, server).Image.User).To(Equal("4711"))
	g.Expect(status(t, server).Template.Outdated).To(BeFalse())
}

// An answer that changes nothing of the pods is noted without a restart.
func TestRegistryThatAnswersTheSame(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	images := startRegistry(t)
	digest := images.push(t, echoServer, "")
	images.down.Store(true)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Image, server.Spec.Command = images.image(), nil
	server.Spec.Transport = mcpv1alpha1.Transport{Type: mcpv1alpha1.TransportSSE, SSE: &mcpv1alpha1.SSETransport{Port: 3000}}
	server.Spec.ImagePullPolicy = corev1.PullNever // so that the launcher does not start the image's command
	create(t, server)
	eventually(t, server, "Accepted", "True Accepted")
	template := templateOf(t, server)
	images.down.Store(false)
	g.Eventually(func() *mcpv1alpha1.ResolvedImage { return status(t, server).Image }).WithTimeout(hang.Guard).
		Should(Equal(&mcpv1alpha1.ResolvedImage{Resolution: mcpv1alpha1.ImageResolved, Digest: digest, Command: []string{echoServer}}))
	g.Expect(templateOf(t, server)).To(Equal(template))
	g.Expect(status(t, server).Template.Outdated).To(BeFalse())
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
			now := status(t, server)
			if saidBy(now, "Accepted") == "False NameConflict" {
				t.Fatal(describe(now))
			}
			return saidBy(now, "Ready")
		}).WithTimeout(hang.Guard).WithPolling(20 * time.Millisecond).Should(Equal("True Ready"))
		g.Expect(shared.client.Delete(t.Context(), server)).To(Succeed())
	}
}

// Pods of an earlier server of the same name run on for a moment. They say nothing about the new one.
func TestPodsOfAnEarlierServerDoNotCount(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	before := newServer(namespace, "echo")
	create(t, before)
	eventually(t, before, "Ready", "True Ready")
	g.Expect(shared.client.Delete(t.Context(), before)).To(Succeed())
	server := newServer(namespace, "echo")
	server.Spec.Command = []string{hostileServer, "exit"}
	create(t, server)
	g.Eventually(func() string {
		now := status(t, server)
		if saidBy(now, "Available") == "True Available" {
			t.Fatal(describe(now))
		}
		return saidBy(now, "Available")
	}).WithTimeout(hang.Guard).WithPolling(10 * time.Millisecond).Should(Equal("False ServerExits"))
}
