package sidecar

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// A caller who sees all of one list does not see more of another one if the server answers both in the same
// place.
func TestOtherListsInTheAnswerToAList(t *testing.T) {
	t.Parallel()
	const (
		tools     = `"tools":[{"name":"echo"}]`
		resources = `"resources":[{"uri":"matrix://plain","name":"p"},{"uri":"matrix://hidden","name":"h"}]`
	)
	server := &scripted{sessionsOnly: true, odd: map[string]func(http.ResponseWriter, *http.Request, string){
		"another event":   says(200, typeEvents, "data: "+answerOf("3", "{"+resources+"}")+"\n\ndata: "+answerOf("ID", "{"+tools+"}")+"\n\n"),
		"the same event":  says(200, typeEvents, "data: "+answerOf("ID", "{"+tools+","+resources+"}")+"\n\n"),
		"the same answer": says(200, typeJSON, answerOf("ID", "{"+tools+","+resources+"}")),
	}}
	g := newGuard(t, func(a *adapterapi.Access) {
		a.Rules = []adapterapi.AccessRule{{
			Subjects: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectUser, Name: "corp:alice"}},
			Tools:    []string{"*"}, Resources: []string{"matrix://plain"},
		}}
		a.Hidden = nil
	})
	url := startScripted(t, g, server, config.StreamableHTTP)
	s := &sessionSpeaker{guard: g, url: url, token: g.token("alice", nil), revision: "2025-11-25"}
	if status := s.open(); status != 200 {
		t.Fatalf("alice connects: %d", status)
	}
	for name := range server.odd {
		response := g.request(http.MethodPost, url, s.token, requestText("tools/list", ""), append(s.headers(), "X-Odd", name)...)
		all, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if text := string(all); err != nil || !strings.Contains(text, `"echo"`) || !strings.Contains(text, "matrix://plain") || strings.Contains(text, "hidden") {
			t.Errorf("resources in %s: alice reads %d %s, %v", name, response.StatusCode, text, err)
		}
	}
}
