package plugin

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
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
	pod, _, err := e.openPod(ctx, api, config, server)
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
	next := "See why: kubectl mcp doctor " + named(server)
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
