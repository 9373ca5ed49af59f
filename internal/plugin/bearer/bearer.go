// Package bearer gets the token that a server wants of its callers, and adds it to requests. It never
// writes a token anywhere else.
package bearer

import (
	"context"
	"fmt"
	"net/http"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// Variable is the environment variable with a token of the user.
const Variable = "SLIPWAY_TOKEN"

// Source is where tokens come from.
type Source interface {
	// Token returns a token for a request that is made now.
	Token(ctx context.Context) (string, error)
	// Refused tells the source that the server does not accept a token.
	Refused(token string)
	// String says whose tokens they are. It has nothing secret.
	String() string
}

// Audiences returns what a server accepts as the audience of ServiceAccount tokens. It returns nothing
// if that is the address of a server that has none yet.
func Audiences(server *mcpv1alpha1.MCPServer) []string {
	auth := server.Spec.Auth
	if auth != nil && auth.Kubernetes != nil && len(auth.Kubernetes.Audiences) > 0 {
		return words(auth.Kubernetes.Audiences)
	}
	return Resources(server)
}

// Resources returns the URLs at which clients know a server. They are the audience of tokens, unless an
// issuer has audiences of its own.
func Resources(server *mcpv1alpha1.MCPServer) []string {
	if auth := server.Spec.Auth; auth != nil && len(auth.Resources) > 0 {
		return words(auth.Resources)
	}
	if server.Status.Address == nil || server.Status.Address.URL == "" {
		return nil
	}
	return []string{server.Status.Address.URL}
}

func words[T ~string](values []T) []string {
	all := make([]string, len(values))
	for i, value := range values {
		all[i] = string(value)
	}
	return all
}

// Transport sends requests with a token. A token of the client that made the request stays here.
type Transport struct {
	http.RoundTripper
	Source Source
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	token, err := t.Source.Token(request.Context())
	if err != nil {
		if body := request.Body; body != nil { //nolint:forbidigo // Every RoundTripper must close it.
			_ = body.Close()
		}
		return nil, fmt.Errorf("get the token of %s: %w", t.Source, err)
	}
	request = request.Clone(request.Context()) // a RoundTripper must not change the caller's
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		t.Source.Refused(token)
	}
	return response, err
}

// CloseIdleConnections closes those of the transport below, for http.Client.
func (t *Transport) CloseIdleConnections() {
	if closer, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}
