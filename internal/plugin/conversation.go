package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/link"
	"github.com/slipway-mcp/slipway/internal/version"
)

// conversation is an MCP session with a server, through the API server.
type conversation struct {
	*mcp.ClientSession
	pod    *link.Pod
	status atomic.Int64 // of the last answer that refused a request
}

// converse opens a session with a server, with the caller's own rights.
func (e *environment) converse(ctx context.Context, api client.Client, server *mcpv1alpha1.MCPServer) (*conversation, error) {
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	pod, err := e.openPod(ctx, api, config, server)
	if err != nil {
		return nil, err
	}
	c := &conversation{pod: pod}
	transport := pod.Client(mcpv1alpha1.AdapterPort)
	transport.Transport = &watched{transport.Transport, &c.status}
	options := &mcp.ClientOptions{
		Capabilities:                &mcp.ClientCapabilities{}, // no roots
		ProgressNotificationHandler: e.showProgress,
	}
	if e.isInteractive() {
		options.ElicitationHandler = e.elicit
	}
	c.ClientSession, err = mcp.NewClient(&mcp.Implementation{Name: "kubectl-mcp", Version: version.Get().Version}, options).
		Connect(ctx, &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: transport, DisableStandaloneSSE: true}, nil)
	if err != nil {
		_ = pod.Close()
		return nil, c.explain(fmt.Errorf("open a session with MCPServer %s: %w", server.Name, err), server)
	}
	return c, nil
}

// end ends the session.
func (c *conversation) end() {
	_ = c.Close()
	_ = c.pod.Close()
}

// explain gives an error of the session its exit code.
func (c *conversation) explain(err error, server *mcpv1alpha1.MCPServer) error {
	switch c.status.Load() {
	case http.StatusUnauthorized, http.StatusForbidden:
		return &failure{exitCredentials, err, "The server wants credentials that kubectl mcp does not send."}
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return &failure{exitUnreachable, err, "A limit is reached. Try again later, or raise spec.session.maxPerPod or spec.replicas."}
	}
	next := "See why: kubectl mcp list"
	if problem := problemOf(server); problem != "" {
		next = problem
	}
	return &failure{exitUnreachable, err, next}
}

// watched notes the status of answers that refuse a request.
type watched struct {
	http.RoundTripper
	status *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (w *watched) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.RoundTripper.RoundTrip(request)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		w.status.Store(int64(response.StatusCode))
	}
	return response, err
}

// openPod connects to a pod that serves.
func (e *environment) openPod(ctx context.Context, api client.Client, config *rest.Config, server *mcpv1alpha1.MCPServer) (*link.Pod, error) {
	serving, err := e.servingPods(ctx, api, server)
	if err != nil {
		return nil, err
	}
	pod := slices.MinFunc(serving, func(a, b corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) }) // the youngest lives longest
	return e.openLink(ctx, api, config, &pod)
}

// servingPods are the pods of a server that serve. There is at least one.
func (e *environment) servingPods(ctx context.Context, api client.Client, server *mcpv1alpha1.MCPServer) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(server.Namespace), client.MatchingLabels{mcpv1alpha1.LabelServer: server.Name}); err != nil {
		return nil, fmt.Errorf("list pods of MCPServer %s: %w", server.Name, err)
	}
	serving := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !isServing(&pod) })
	if len(serving) == 0 {
		return nil, fail(exitUnreachable, cmp.Or(problemOf(server), "See why: kubectl mcp list"), "no pod of MCPServer %s is ready", server.Name)
	}
	return serving, nil
}

// openLink connects to a pod.
func (e *environment) openLink(ctx context.Context, api client.Client, config *rest.Config, pod *corev1.Pod) (*link.Pod, error) {
	opened, err := link.Open(config, client.ObjectKeyFromObject(pod))
	if err != nil {
		return nil, errors.Join(e.missingRight(ctx, api, pod.Namespace, err), err)
	}
	return opened, nil
}

// isServing says whether a pod is ready and stays.
func isServing(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp.IsZero() && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// missingRight says that the caller may not connect to pods, if that is so.
func (e *environment) missingRight(ctx context.Context, api client.Client, namespace string, cause error) error {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods", Subresource: "portforward"},
	}}
	if err := api.Create(ctx, review); err != nil || review.Status.Allowed {
		return &failure{exitUnreachable, cause, ""}
	}
	return fail(exitCredentials, "Ask for the role edit there, which has it.", "you may not create pods/portforward in namespace %s", namespace)
}
