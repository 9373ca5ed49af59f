//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/reason"
)

// brokenServer is a mistake of a new user: what doctor says about it, and the repair that it asks for.
type brokenServer struct {
	name   string
	spec   func(*spec)
	before func(ctx context.Context, namespace string)
	cause  string // a part of what doctor says
	fix    string // all of what doctor says to do
	// The repair is a change of the spec, or of something else.
	repairSpec func(*spec)
	repair     func(ctx context.Context, namespace string)
}

// brokenServers are ten mistakes. The API server refuses others with a sentence of its own.
func brokenServers() []brokenServer {
	wantsToken := func(s *spec) {
		s.Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "token"}, Key: "value"},
		}}}
	}
	wantsOther := func(s *spec) { wantsToken(s); s.Env[0].ValueFrom.SecretKeyRef.Name = "other" }
	secret := func(namespace, name, key string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: map[string]string{key: "x"}}
	}
	echo := func(s *spec) { s.Command = []string{"/echo"} }
	serveHTTP := func(s *spec) { s.Command, s.Args = []string{"/everything-server"}, []string{"-http", "127.0.0.1:3000"} }
	return []brokenServer{
		{
			name: "missing-secret", spec: wantsToken, cause: "Secret token, which env TOKEN refers to, does not exist", fix: "Create the missing object or key, or mark the reference optional.",
			repair: func(ctx context.Context, namespace string) {
				Expect(cluster.Create(ctx, secret(namespace, "token", "value"))).To(Succeed())
			},
		},
		{
			name: "missing-key", spec: wantsOther, cause: "Secret other", fix: "Create the missing object or key, or mark the reference optional.",
			before: func(ctx context.Context, namespace string) {
				Expect(cluster.Create(ctx, secret(namespace, "other", "password"))).To(Succeed())
			},
			repair: func(ctx context.Context, namespace string) {
				Expect(cluster.Update(ctx, secret(namespace, "other", "value"))).To(Succeed())
			},
		},
		{
			name: "wrong-image", spec: func(s *spec) { s.Image, s.Command = gate.registry+"/nobody/has:this", nil }, cause: "no such image", fix: reason.PushImage.Sentence(),
			repairSpec: func(s *spec) { s.Image = images.servers(context.Background()) },
		},
		{
			name: "wrong-command", spec: func(s *spec) { s.Command = []string{"/no/such/program"} }, cause: "/no/such/program", fix: reason.CheckCommand.Sentence(),
			repairSpec: echo,
		},
		{
			name: "exits", spec: func(s *spec) { s.Command = []string{"/hostile", "exit"} }, cause: "I will not serve", fix: reason.CorrectServer.Sentence(),
			repairSpec: echo,
		},
		{
			name: "prints", spec: func(s *spec) { s.Command = []string{"/hostile", "junk"} }, cause: "Have a nice day", fix: reason.CheckTransport.Sentence(),
			repairSpec: echo,
		},
		{
			name: "wrong-port", spec: func(s *spec) {
				serveHTTP(s)
				overHTTP(3001)(s)
				s.Session.StartTimeout = &metav1.Duration{Duration: 5 * time.Second} // until then it is starting
			}, cause: "127.0.0.1:3001", fix: reason.CheckPort.Sentence(),
			repairSpec: overHTTP(3000),
		},
		{
			name: "wrong-transport", spec: func(s *spec) { serveHTTP(s); overSSE(3000)(s) }, cause: "the server responds, but not with valid MCP", fix: reason.CheckEndpoint.Sentence(),
			repairSpec: overHTTP(3000),
		},
		{
			name: "taken-name", cause: "Service taken-name exists", fix: reason.DeleteOther.Sentence(),
			before: func(ctx context.Context, namespace string) {
				Expect(cluster.Create(ctx, &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "taken-name"},
					Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
				})).To(Succeed())
			},
			repair: func(ctx context.Context, namespace string) {
				Expect(cluster.Delete(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "taken-name"}})).To(Succeed())
			},
		},
		{
			name: "too-large", spec: func(s *spec) {
				s.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Ti")}
			}, cause: "no node takes it", fix: "Add nodes, lower the requests, or set tolerations.",
			repairSpec: func(s *spec) { s.Resources.Requests = nil },
		},
	}
}

var _ = Describe("kubectl mcp doctor", Label("sessions"), func() {
	It("leads from each of ten broken servers to its repair", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		all := brokenServers()
		Expect(all).To(HaveLen(10))
		servers := map[string]*mcpv1alpha1.MCPServer{}
		for _, broken := range all {
			if broken.before != nil {
				broken.before(ctx, namespace)
			}
			server := stdioServer(ctx, namespace)
			server.Name = broken.name
			if broken.spec != nil {
				broken.spec(&server.Spec)
			}
			Expect(cluster.Create(ctx, server)).To(Succeed())
			servers[broken.name] = server
		}
		for _, broken := range all {
			By("asking about " + broken.name)
			Eventually(func() string { return kubectlMCP(ctx, namespace, "doctor", broken.name).Out }).WithContext(ctx).WithTimeout(2 * takesToEnd).
				Should(And(ContainSubstring(broken.cause), ContainSubstring("fix: "+broken.fix+"\n")))
		}
		for _, broken := range all {
			By("repairing " + broken.name)
			if broken.repairSpec != nil {
				change(ctx, servers[broken.name], broken.repairSpec)
			} else {
				broken.repair(ctx, namespace)
			}
		}
		for _, broken := range all {
			By("waiting for " + broken.name)
			awaitReady(ctx, servers[broken.name])
		}
		healthy := kubectlMCP(ctx, namespace, "doctor", "--deep")
		Expect(healthy.Code).To(Equal(0), healthy.Out+healthy.ErrOut)
		Expect(healthy.Out).NotTo(ContainSubstring("fail"))
	})
})
