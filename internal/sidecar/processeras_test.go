package sidecar

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
)

// A client that comes while a slow server without sessions starts is not sent to it.
func TestSlowModernServer(t *testing.T) {
	_, url := startAdapterOn(t, newListener(t), nil, "sh", "-c", "sleep 5; exec "+eraFilter+" modern "+bothServer)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := &client{url: url, http: http.DefaultClient}
	response, err := c.post(ctx, initializeMessage)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	if !bytes.Contains(body, []byte(`"serverInfo"`)) {
		t.Errorf("a client that came at the start: %s %s", response.Status, body)
	}
}

// A process of both eras that could not initialize once, for a reason of its own, has
// sessions all the same.
func TestOneRefusalOfAProcessIsNotForEver(t *testing.T) {
	first := t.TempDir() + "/first"
	script := `if mkdir ` + first + ` 2>/dev/null; then read l; id=$(printf %s "$l" | sed 's/.*"id":\([0-9]*\).*/\1/');` +
		`printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"licence server not reached"}}\n' "$id"; cat >/dev/null; else exec ` + bothServer + `; fi`
	adapter, _ := startAdapterOn(t, newListener(t), func(c *Config) { c.Warm = 0 }, "sh", "-c", script)
	gomega.NewWithT(t).Eventually(func() bool { state, _ := adapter.keeper.State(); return state.Ready }).WithTimeout(20 * time.Second).Should(gomega.BeTrue())
	gomega.NewWithT(t).Eventually(func() bool { state, _ := adapter.keeper.State(); return state.Stateless }).WithTimeout(10 * time.Second).Should(gomega.BeFalse())
}

// A client that makes more calls than a session may have is refused the last; those before
// it go on.
func TestTooManyCallsEndNoOthers(t *testing.T) {
	_, url := startAdapterOn(t, newListener(t), func(c *Config) { c.Era, c.Shared, c.CallsPerSession = stateless.Legacy, true, 3 }, bothServer)
	one, hears := sdkClient(t, url, "")
	type end struct {
		token string
		err   error
	}
	over := make(chan end, 8)
	wait := func(token string) {
		params := &mcp.CallToolParams{Name: "wait"}
		params.SetProgressToken(token)
		_, err := one.CallTool(t.Context(), params)
		over <- end{token, err}
	}
	for _, token := range []string{"a", "b"} {
		go wait(token)
		expectChange(t, hears, "progress")
	}
	for _, token := range []string{"c", "d", "e"} {
		go wait(token)
	}
	for range 2 { // there is room for one of the three
		select {
		case call := <-over:
			if call.token < "c" || call.err == nil || !strings.Contains(call.err.Error(), "Service Unavailable") {
				t.Errorf("call %s ended by %v", call.token, call.err)
			}
		case <-time.After(2 * leaseTimeout):
			t.Fatal("a call too many is not refused")
		}
	}
	other, _ := sdkClient(t, url, "2025-11-25")
	if got := callTool(t, other, "cancelled"); got != "0" {
		t.Errorf("%s calls were cancelled", got)
	}
}

// A client of a server that never says anything is told so in time.
func TestClientOfASilentServer(t *testing.T) {
	_, url := startAdapterOn(t, newListener(t), func(c *Config) { c.OpenTimeout = 2 * time.Second }, "sleep", "1000")
	began := time.Now()
	response, err := (&client{url: url, http: http.DefaultClient}).post(t.Context(), initializeMessage)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	if took := time.Since(began); !bytes.Contains(body, []byte(`"error"`)) || took > 4*time.Second {
		t.Errorf("%s %s after %s", response.Status, body, took)
	}
}
