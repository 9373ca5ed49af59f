package sidecar

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/front/sse"
)

// speaker is a client of one kind. Its requests all have the id 7.
type speaker interface {
	// open connects. It returns the status that the server refuses the client with, or 200.
	open() int
	ask(method, params string) shown
	close()
}

// speakers make the clients of every kind, for a server at the URL.
var speakers = map[string]func(g *guard, url, token string) speaker{
	"session": func(g *guard, url, token string) speaker {
		return &sessionSpeaker{guard: g, url: url, token: token, revision: "2025-11-25"}
	},
	"batch": func(g *guard, url, token string) speaker {
		return &sessionSpeaker{guard: g, url: url, token: token, revision: "2025-03-26", batch: true}
	},
	"sse": func(g *guard, url, token string) speaker {
		return &sseSpeaker{guard: g, url: strings.TrimSuffix(url, Path), token: token}
	},
	"stateless": func(g *guard, url, token string) speaker { return &statelessSpeaker{g, url, token} },
}

func requestText(method, params string) string {
	if method == "ping" {
		return `{"jsonrpc":"2.0","id":7,"method":"ping"}`
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s}}`, method, params)
}

// sessionSpeaker is a client with a session of Streamable HTTP.
type sessionSpeaker struct {
	guard                     *guard
	url, token, revision, key string
	batch                     bool
}

func (s *sessionSpeaker) headers() []string {
	return []string{sessionHeader, s.key, "Mcp-Protocol-Version", s.revision}
}

func (s *sessionSpeaker) open() int {
	s.guard.t.Helper()
	got := s.guard.ask(http.MethodPost, s.url, s.token, strings.ReplaceAll(initializeMessage, "2025-11-25", s.revision))
	if s.key = got.header.Get(sessionHeader); got.status == http.StatusOK && s.key == "" {
		s.guard.t.Fatalf("there is no session: %s", got.message)
	}
	if got.status == http.StatusOK {
		s.guard.ask(http.MethodPost, s.url, s.token, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, s.headers()...)
	}
	return got.status
}

func (s *sessionSpeaker) ask(method, params string) shown {
	s.guard.t.Helper()
	text := requestText(method, params)
	if s.batch {
		text = "[" + text + "]"
	}
	return s.guard.ask(http.MethodPost, s.url, s.token, text, s.headers()...)
}

func (s *sessionSpeaker) close() {
	s.guard.t.Helper()
	if got := s.guard.ask(http.MethodDelete, s.url, s.token, "", s.headers()...); got.status != http.StatusNoContent {
		s.guard.t.Errorf("the session does not end: %d %s", got.status, got.message)
	}
}

// sseSpeaker is a client of the transport of 2024-11-05.
type sseSpeaker struct {
	guard            *guard
	url, token, post string
	stream           *http.Response
	events           *bufio.Reader
}

func (s *sseSpeaker) open() int {
	t := s.guard.t
	t.Helper()
	s.stream = s.guard.request(http.MethodGet, s.url+sse.StreamPath, s.token, "")
	if s.stream.StatusCode != http.StatusOK {
		_ = s.stream.Body.Close()
		return s.stream.StatusCode
	}
	s.events = bufio.NewReader(s.stream.Body)
	for {
		line, err := s.events.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream has no endpoint: %v", err)
		}
		if endpoint, ok := strings.CutPrefix(line, "data: "); ok {
			s.post = s.url + strings.TrimSpace(endpoint)
			break
		}
	}
	s.send(t, strings.ReplaceAll(initializeMessage, "2025-11-25", "2024-11-05"))
	s.guard.ask(http.MethodPost, s.post, s.token, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return http.StatusOK
}

func (s *sseSpeaker) send(t *testing.T, text string) shown {
	t.Helper()
	got := s.guard.ask(http.MethodPost, s.post, s.token, text)
	if got.status == http.StatusAccepted {
		got.status, got.message = http.StatusOK, s.guard.nextAnswer(s.events)
	}
	return got
}

func (s *sseSpeaker) ask(method, params string) shown {
	s.guard.t.Helper()
	return s.send(s.guard.t, requestText(method, params))
}

func (s *sseSpeaker) close() { _ = s.stream.Body.Close() }

// statelessSpeaker is a client of 2026-07-28.
type statelessSpeaker struct {
	guard      *guard
	url, token string
}

func (s *statelessSpeaker) open() int {
	s.guard.t.Helper()
	return s.ask("server/discover", "").status
}

func (s *statelessSpeaker) ask(method, params string) shown {
	s.guard.t.Helper()
	return s.askNamed(nameIn(params), method, params)
}

// nameIn returns the first member of params, which is the name of what a request is about.
func nameIn(params string) string {
	for _, start := range []string{`"name":"`, `"uri":"`} {
		if rest, ok := strings.CutPrefix(params, start); ok {
			name, _, _ := strings.Cut(rest, `"`)
			return name
		}
	}
	return ""
}

// askNamed says another name in the header.
func (s *statelessSpeaker) askNamed(name, method, params string) shown {
	s.guard.t.Helper()
	if params != "" {
		params += ","
	}
	text := requestText(method, params+modernMeta)
	return s.guard.ask(http.MethodPost, s.url, s.token, text, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name)
}

func (*statelessSpeaker) close() {}
