package sidecar

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// An HTTP server may work on a request for long, or keep a stream open. A list that comes then shows what the
// caller may see at that moment.
func TestRulesNarrowWhileAnHTTPServerWorks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ method, body, contentType, text string }{
		"stream":         {http.MethodGet, "", typeEvents, "data: " + answerOf("7", secretList) + "\n\n"},
		"list":           {http.MethodPost, requestText("tools/list", ""), typeJSON, answerOf("7", secretList)},
		"list in events": {http.MethodPost, requestText("tools/list", ""), typeEvents, "data: " + answerOf("7", secretList) + "\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began, goOn := make(chan struct{}), make(chan struct{})
			server := &scripted{sessionsOnly: true, odd: map[string]func(http.ResponseWriter, *http.Request, string){
				"waits": func(w http.ResponseWriter, _ *http.Request, id string) {
					w.Header().Set("Content-Type", test.contentType)
					if test.contentType == typeEvents {
						w.WriteHeader(http.StatusOK)
						_ = http.NewResponseController(w).Flush() // never fails here
					}
					close(began)
					<-goOn
					_, _ = io.WriteString(w, strings.ReplaceAll(test.text, "ID", id)) // the client may have gone
				},
			}}
			g := newGuard(t, everythingForAll)
			url := startScripted(t, g, server, config.StreamableHTTP)
			s := &sessionSpeaker{guard: g, url: url, token: g.token("alice", nil), revision: "2025-11-25"}
			if status := s.open(); status != http.StatusOK {
				t.Fatalf("alice connects: %d", status)
			}
			go func() {
				<-began
				g.take(func(a *adapterapi.Access) { a.Rules[0].Tools = []string{"echo"} })
				close(goOn)
			}()
			response := g.request(test.method, url, s.token, test.body, append(s.headers(), "X-Odd", "waits")...)
			all, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if text := string(all); err != nil || !strings.Contains(text, `"echo"`) || strings.Contains(text, "secret") {
				t.Errorf("alice reads %d %s, %v", response.StatusCode, text, err)
			}
		})
	}
}
