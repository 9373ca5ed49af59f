package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

var clientURL = regexp.MustCompile(`"url":"([^"]+)"`)

func post(t *testing.T, url, session, body string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		request.Header.Set("Mcp-Session-Id", session)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// A second signal ends the sidecar without waiting for calls in flight.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p, admin := startSidecar(t, "--drain-timeout", "1h", "--", echoServer)
	url := clientURL.FindStringSubmatch(p.written())[1]
	opened := post(t, url, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	_ = opened.Body.Close()
	// It is answered by a stream after a second, so it is in flight from then on.
	calling := post(t, url, opened.Header.Get("Mcp-Session-Id"), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":600000}}}`)
	defer func() { _ = calling.Body.Close() }()

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, calling.Body)
	}()
	g := gomega.NewWithT(t)
	_ = p.Process.Signal(syscall.SIGTERM)
	g.Eventually(p.written).WithTimeout(hang.Guard).Should(gomega.ContainSubstring("Draining; a second SIGINT or SIGTERM ends at once"))
	for range 3 { // it still serves, and the call goes on
		g.Expect(status(t, admin+"/livez")).To(gomega.Equal(http.StatusOK))
		g.Expect(ended).NotTo(gomega.BeClosed())
	}
	_ = p.Process.Signal(syscall.SIGINT)
	g.Eventually(ended).WithTimeout(hang.Guard).Should(gomega.BeClosed())
	g.Eventually(func() (string, error) { // the cleanup looks at how it ended
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
		return string(text), err
	}).WithTimeout(hang.Guard).Should(gomega.ContainSubstring(") Z "))
}
