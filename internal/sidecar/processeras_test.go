package sidecar

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/test/hang"
)

// A client that comes while a slow server without sessions starts is not sent to it, not
// even when the server has been silent for longer than the keeper is patient.
func TestSlowModernServer(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	adapter, url := startAdapterOn(t, newListener(t), func(c *config.Config) { c.StartTimeout = time.Hour },
		"sh", "-c", "echo loading; until test -e "+gate+"; do sleep 0.05; done; exec "+eraFilter+" modern "+bothServer)
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	answered := make(chan string, 1)
	go func() {
		response, err := (&client{url: url, http: http.DefaultClient}).post(ctx, initializeMessage)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer func() { _ = response.Body.Close() }()
		body, _ := io.ReadAll(response.Body)
		answered <- response.Status + " " + string(body)
	}()
	gomega.NewWithT(t).Eventually(func() adapterapi.Reason { state, _ := adapter.env.Keeper.State(); return state.Reason }).WithTimeout(hang.Guard).Should(gomega.Equal(adapterapi.Silent))
	if len(answered) > 0 {
		t.Fatalf("before the server has said anything: %s", <-answered)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := <-answered; !strings.Contains(got, `"serverInfo"`) {
		t.Errorf("a client that came at the start: %s", got)
	}
}

// A process of both eras that fails to initialize once, for a reason of its own, still gets
// sessions.
func TestProcessThatRefusesOnceGetsSessions(t *testing.T) {
	t.Parallel()
	first := t.TempDir() + "/first"
	script := `if mkdir ` + first + ` 2>/dev/null; then read l; id=$(printf %s "$l" | sed 's/.*"id":\([0-9]*\).*/\1/');` +
		`printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"license server not reached"}}\n' "$id"; cat >/dev/null; else exec ` + bothServer + `; fi`
	adapter, _ := startAdapterOn(t, newListener(t), func(c *config.Config) { c.Warm = 0 }, "sh", "-c", script)
	gomega.NewWithT(t).Eventually(func() bool { state, _ := adapter.env.Keeper.State(); return state.Ready }).WithTimeout(hang.Guard).Should(gomega.BeTrue())
	gomega.NewWithT(t).Eventually(func() bool { state, _ := adapter.env.Keeper.State(); return state.Stateless }).WithTimeout(hang.Guard).Should(gomega.BeFalse())
}

// A client that makes more calls than a session may have is refused the last; those before
// it go on.
func TestTooManyCallsEndNoOthers(t *testing.T) {
	t.Parallel()
	_, url := startAdapterOn(t, newListener(t), func(c *config.Config) { c.Era, c.Shared, c.CallsPerSession = sessionless.Legacy, true, 3 }, bothServer)
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
		case <-time.After(hang.Guard):
			t.Fatal("a call too many is not refused")
		}
	}
	other, _ := sdkClient(t, url, "2025-11-25")
	if got := callTool(t, other, "cancelled"); got != "0" {
		t.Errorf("%s calls were cancelled", got)
	}
}

// A client of a server that never says anything is told so.
func TestClientOfASilentServer(t *testing.T) {
	t.Parallel()
	_, url := startAdapterOn(t, newListener(t), func(c *config.Config) { c.StartTimeout = 2 * time.Second }, "sleep", "1000")
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	response, err := (&client{url: url, http: http.DefaultClient}).post(ctx, initializeMessage)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, _ := io.ReadAll(response.Body); !bytes.Contains(body, []byte(`"error"`)) || !bytes.Contains(body, []byte(`within 2s`)) {
		t.Errorf("%s %s", response.Status, body)
	}
}
