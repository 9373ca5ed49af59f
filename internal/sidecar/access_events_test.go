package sidecar

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// eventID reads a stream to its end, and returns the id of its last event.
func eventID(t *testing.T, response *http.Response) string {
	t.Helper()
	all, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	_, last, ok := strings.Cut(string(all), "id: ")
	if !ok {
		t.Fatalf("no event has an id: %d %s", response.StatusCode, all)
	}
	id, _, _ := strings.Cut(last, "\n")
	return id
}

// A server may find an event in the streams of all sessions, or have no sessions at all. No caller
// resumes the stream of another one there.
func TestEventsOfHTTPServersBelongToTheirUser(t *testing.T) {
	t.Parallel()
	server := &scripted{sessionsOnly: true, odd: map[string]func(http.ResponseWriter, *http.Request, string){
		"primes":   says(200, typeEvents, "id: p1\nretry: 250\ndata:\n\n"),
		"messages": says(200, typeEvents, "id: p1\ndata: "+answerOf("ID", "{}")+"\n\n"),
	}}
	g := newGuard(t, echoForAll)
	url := startScripted(t, g, server, config.StreamableHTTP)
	connect := func(user string) *sessionSpeaker {
		s := &sessionSpeaker{guard: g, url: url, token: g.token(user, nil), revision: "2025-11-25"}
		if status := s.open(); status != http.StatusOK {
			t.Fatalf("%s connects: %d", user, status)
		}
		return s
	}
	alice, bob := connect("alice"), connect("bob")
	for odd := range server.odd {
		id := eventID(t, g.request(http.MethodPost, url, alice.token, requestText("ping", ""), append(alice.headers(), "X-Odd", odd)...))
		server.take()
		for name, test := range map[string]struct {
			token, after string
			headers      []string
			want         int
		}{
			"bob in his session":  {bob.token, id, bob.headers(), http.StatusBadRequest},
			"bob in no session":   {bob.token, id, nil, http.StatusBadRequest},
			"the server's own id": {alice.token, "p1", alice.headers(), http.StatusBadRequest},
			"alice":               {alice.token, id, alice.headers(), http.StatusOK},
			"alice, no session":   {alice.token, id, nil, http.StatusOK},
		} {
			response := g.request(http.MethodGet, url, test.token, "", append(test.headers, "Last-Event-Id", test.after, "X-Odd", odd)...)
			_ = response.Body.Close()
			got := server.take()
			if response.StatusCode != test.want || len(got) != 0 && (test.want != http.StatusOK || got[0].header.Get("Last-Event-Id") != "p1") || len(got) == 0 && test.want == http.StatusOK {
				t.Errorf("%s: %s resumes: %d, and the server gets %v", odd, name, response.StatusCode, got)
			}
		}
	}
}
