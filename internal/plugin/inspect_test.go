package plugin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/plugin/node"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
	"github.com/slipway-mcp/slipway/test/hang"
)

// toServer has every request answered by a handler.
type toServer struct{ http.Handler }

func (s toServer) RoundTrip(request *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, request)
	return recorder.Result(), nil
}

// Without Node.js, the endpoint serves all the same, and the user learns how to start an Inspector that
// connects to it.
func TestInspectElsewhere(t *testing.T) {
	e, _, errOut := typed("", table.Screen{})
	out, in := io.Pipe()
	e.Out = in
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	local, err := listen(ctx, toServer{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer local.close()
	ended := make(chan error, 1)
	go func() {
		ended <- e.inspectElsewhere(ctx, local, &node.UnfitError{Reason: "there is no npx on your PATH"})
	}()
	line := make([]byte, 1<<10)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	link, err := url.Parse(strings.TrimSpace(string(line[:n])))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if link.Host != "localhost:6274" || link.Query().Get("serverUrl") != local.url {
		t.Errorf("link %s", link)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, link.Query().Get("serverUrl"), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Timeout: hang.Guard}).Do(request)
	if err != nil || response.StatusCode != http.StatusTeapot {
		t.Fatalf("the endpoint answers %v, %v", response, err)
	}
	_ = response.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	token := link.Query().Get("autoConnect")
	want := "The Inspector does not start here: there is no npx on your PATH.\nStart it yourself, where " + local.url + " leads to this machine:\n" +
		"  MCP_INSPECTOR_API_TOKEN=" + token + " npx -y @modelcontextprotocol/inspector@2.12.0\nThen open this link:\n"
	if diff := cmp.Diff(want, errOut.String()); token == "" || diff != "" {
		t.Errorf("token %q (-want +got):\n%s", token, diff)
	}
}

// A Node.js that is broken is no reason to start an Inspector elsewhere.
func TestInspectWithBrokenNode(t *testing.T) {
	e, out, _ := typed("", table.Screen{})
	broken := errors.New("run node --version: exit status 1")
	if err := e.inspectElsewhere(t.Context(), nil, broken); !errors.Is(err, broken) || out.Len() != 0 {
		t.Errorf("got %v and %q", err, out)
	}
}
