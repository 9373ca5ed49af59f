package sidecar

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// R41: some clients take no event of more than 1 MiB. A result that comes first is
// one JSON body, of any size, whose length is known.
func TestR41LargeResultIsNoEvent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*config.Config){
		"a process for each session": nil,
		"one process for all":        func(c *config.Config) { c.Shared = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, url := startAdapter(t, change)
			c := mustOpen(t, url)
			for _, size := range []int{1<<20 - 1, 1 << 20, 3 << 20} {
				response, body, err := postPromptly(t, c, call(1, "big", fmt.Sprintf(`"n":%d`, size)))
				if got := response.Header.Get("Content-Type"); got != "application/json" || response.ContentLength != int64(len(body)) {
					t.Errorf("%d bytes: answered as %s of length %d", size, got, response.ContentLength)
				}
				if strings.Count(string(body), "x") < size || !json.Valid(body) || err != nil {
					t.Errorf("%d bytes: got %d, %v", size, len(body), err)
				}
			}
		})
	}
}

// postPromptly makes a call until its answer begins before the adapter would begin a stream
// for it, as it does for a server that takes long. On a busy machine that may be any server.
func postPromptly(t *testing.T, c *client, message string) (response *http.Response, body []byte, err error) {
	t.Helper()
	for giveUp := time.Now().Add(hang.Guard); ; {
		began := time.Now()
		if response, err = c.post(t.Context(), message); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		body, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.Header.Get("Content-Type") == "application/json" || took < session.CommitAfter || time.Now().After(giveUp) {
			return response, body, err
		}
	}
}
