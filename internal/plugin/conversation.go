package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/bearer"
	"github.com/slipway-mcp/slipway/internal/plugin/link"
	"github.com/slipway-mcp/slipway/internal/text"
	"github.com/slipway-mcp/slipway/internal/version"
)

// conversation is an MCP session with a server, through the API server.
type conversation struct {
	*mcp.ClientSession
	pod     *link.Pod
	tokens  bearer.Source           // nil if requests carry no token
	refusal atomic.Pointer[refusal] // the last one; nil for none
}

// converse opens a session with a server, with the caller's own rights, and the token that the server wants.
func (e *environment) converse(ctx context.Context, api client.Client, server *mcpv1alpha1.MCPServer) (*conversation, error) {
	tokens, err := e.tokens(ctx, api, server)
	if err != nil {
		return nil, err
	}
	return e.converseWith(ctx, api, server, tokens)
}

func (e *environment) converseWith(ctx context.Context, api client.Client, server *mcpv1alpha1.MCPServer, tokens bearer.Source) (*conversation, error) {
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	pod, _, err := e.openPod(ctx, api, config, server)
	if err != nil {
		return nil, err
	}
	c := &conversation{pod: pod, tokens: tokens}
	transport := pod.Client(mcpv1alpha1.AdapterPort)
	transport.Transport = &watched{withTokens(transport.Transport, tokens), &c.refusal}
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
	refused := c.refusal.Load()
	switch {
	case refused.isAboutCaller():
		return refused.explain(err, server, c.tokens)
	case refused != nil && (refused.status == http.StatusServiceUnavailable || refused.status == http.StatusTooManyRequests):
		return &failure{exitUnreachable, refused.inWords(err), "Try again later. If a limit is reached, raise spec.session.maxPerPod or spec.replicas."}
	}
	next := "See why: kubectl mcp doctor " + named(server)
	if problem := problemOf(server); problem != "" {
		next = problem
	}
	return &failure{exitUnreachable, err, next}
}

// watched notes answers that refuse a request.
type watched struct {
	http.RoundTripper
	refusal *atomic.Pointer[refusal]
}

// RoundTrip implements http.RoundTripper.
func (w *watched) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.RoundTripper.RoundTrip(request)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		w.refusal.Store(refusalOf(response))
	}
	return response, err
}

// refusalOf reads an answer that refuses a request, and leaves it as it is.
func refusalOf(response *http.Response) *refusal {
	const mostBytes = 64 << 10
	content, err := io.ReadAll(io.LimitReader(response.Body, mostBytes))
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(content), response.Body), response.Body}
	found := &refusal{status: response.StatusCode, challenge: response.Header.Get("WWW-Authenticate")}
	var answer struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err == nil && json.Unmarshal(content, &answer) == nil {
		found.words = text.Line(answer.Error.Message, errorBytes)
	}
	return found
}
