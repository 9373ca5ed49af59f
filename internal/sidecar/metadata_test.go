package sidecar

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/proxy"
)

const (
	resourceURL = "https://mcp.example.com/mcp" // as clients know the server
	metadataURL = "https://mcp.example.com" + proxy.MetadataPath + "/mcp"
)

// guardedServer checks tokens itself and publishes its metadata for the path that it has.
func guardedServer(path string, endpoint http.Handler) http.Handler {
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		if token != "good" {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{UserID: "u", Expiration: time.Now().Add(time.Hour)}, nil
	}
	mux := http.NewServeMux()
	mux.Handle(path, auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{ResourceMetadataURL: metadataURL})(endpoint))
	mux.Handle(proxy.MetadataPath+path, auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: resourceURL, AuthorizationServers: []string{"https://issuer.example.com"},
	}))
	return mux
}

// A client finds out, with nothing but the adapter's URL, where to get a token for a
// server that checks tokens itself, and is served with one.
func TestServerPublishesMetadata(t *testing.T) {
	t.Parallel()
	always := func(*http.Request) *mcp.Server { return countingServer() }
	for name, test := range map[string]struct {
		transport config.Transport
		path      string
		endpoint  http.Handler
	}{
		"streamable-http": {config.StreamableHTTP, "/api/v1/mcp", mcp.NewStreamableHTTPHandler(always, nil)},
		"sse":             {config.SSE, "/events", mcp.NewSSEHandler(always, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := serveHTTP(t, guardedServer(test.path, test.endpoint))
			at.Path = test.path
			_, url := startAdapter(t, func(c *config.Config) { c.Transport, c.UpstreamURL = test.transport, at })
			if test.transport == config.StreamableHTTP {
				checkChallenges(t, url)
			}
			var got oauthex.ProtectedResourceMetadata
			status, body := getPath(t, url, proxy.MetadataPath+Path)
			if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 || got.Resource != resourceURL || len(got.AuthorizationServers) != 1 {
				t.Errorf("metadata of the path: %d %s, %v", status, body, err)
			}
			if status, body := getPath(t, url, proxy.MetadataPath); status != 404 || !strings.Contains(body, "publishes no metadata here") {
				t.Errorf("metadata of the host, which the server has not: %d %s", status, body)
			}
			for _, path := range []string{proxy.MetadataPath + "/", proxy.MetadataPath + test.path, "/.well-known/oauth-authorization-server"} {
				if status, body := getPath(t, url, path); status != 404 || !strings.HasPrefix(body, "there is nothing at ") {
					t.Errorf("%s: %d %s", path, status, body)
				}
			}
		})
	}
}

// checkChallenges checks that the server's own challenge arrives with every refusal, and
// that a token opens the door.
func checkChallenges(t *testing.T, url string) {
	t.Helper()
	for name, message := range map[string]string{
		"initialize": initializeMessage,
		"no session": `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		"2026-07-28": `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
	} {
		c := &client{url: url, http: http.DefaultClient}
		if name == "2026-07-28" {
			c.headers = map[string]string{"Mcp-Protocol-Version": name, "Mcp-Method": "server/discover"}
		}
		response, err := c.post(t.Context(), message)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := response.Header.Get("WWW-Authenticate"); response.StatusCode != 401 || got != `Bearer resource_metadata="`+metadataURL+`"` {
			t.Errorf("%s: %s, challenge %q", name, response.Status, got)
		}
	}
	c := &client{url: url, http: http.DefaultClient, headers: map[string]string{"Authorization": "Bearer good"}}
	if err := c.initialize(t.Context()); err != nil {
		t.Errorf("with a token: %v", err)
	}
}

func getPath(t *testing.T, url, path string) (status int, body string) {
	t.Helper()
	response, err := http.Get(strings.TrimSuffix(url, Path) + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(read)
}

// A process has nowhere to publish anything, and what the adapter's own endpoint says
// stays as it is.
func TestProcessesPublishNoMetadata(t *testing.T) {
	t.Parallel()
	_, url := startAdapter(t, nil)
	for _, path := range []string{proxy.MetadataPath, proxy.MetadataPath + Path} {
		if status, body := getPath(t, url, path); status != 404 || !strings.HasPrefix(body, "there is nothing at "+path+": ") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}
