package edge

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
)

// stages notes which stages a request comes to, and refuses it at one of them.
type stages struct {
	seen   []string
	refuse string
	body   *countedBody
}

func (s *stages) at(stage string) bool {
	if s.body.read > 0 {
		stage += " after the body"
	}
	s.seen = append(s.seen, stage)
	return !strings.HasPrefix(stage, s.refuse) || s.refuse == ""
}

func (s *stages) refusal(stage string) *Refusal {
	if s.at(stage) {
		return nil
	}
	return &Refusal{Status: http.StatusTeapot, Code: rpc.CodeInvalidRequest, Text: stage, Header: http.Header{"X-Stage": {stage}}}
}

func (s *stages) answer(w http.ResponseWriter, stage string) bool {
	refused := s.refusal(stage)
	if refused != nil {
		refused.write(w, nil)
	}
	return refused == nil
}

func (s *stages) Admit(w http.ResponseWriter, _ *http.Request, _ string) bool {
	return s.answer(w, "admit")
}

func (s *stages) Authenticate(*http.Request) (caller.Caller, *Refusal) {
	return caller.Caller{Principal: "p", Address: "a"}, s.refusal("authenticate")
}

func (s *stages) BySession(w http.ResponseWriter, _ *Request, id string) bool {
	return s.answer(w, "session "+id)
}

func (s *stages) ByState(w http.ResponseWriter, _ *Request) bool { return s.answer(w, "state") }

func (s *stages) ByGroup(w http.ResponseWriter, r *Request, of func(*Request) string) bool {
	return s.answer(w, "group "+of(r))
}

func (s *stages) Authorize(*Request) (func(), *Refusal) { return nothing, s.refusal("authorize") }

type countedBody struct {
	io.Reader
	read int
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

// Every request comes to the stages in the same order, and to none after one that refuses
// it. The body is not read before a caller is known and has a budget.
func TestOrderOfStages(t *testing.T) {
	order := []string{"admit", "authenticate", "session missing", "check", "state after the body", "group of ping after the body", "authorize after the body", "serve after the body"}
	for _, refuse := range []string{"", "admit", "authenticate", "check", "session", "state", "group", "authorize"} {
		t.Run("refused by "+refuse, func(t *testing.T) {
			s := &stages{refuse: refuse, body: &countedBody{Reader: strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)}}
			var records []Record
			memory := bodies(BodyLimits{BodyBytes: 1 << 10})
			door := New(Options{
				Admit: s, Authenticate: s, Locate: s, Budget: memory, Authorize: s,
				Routes: map[string]Route{"/mcp": {
					Missing: func(*Request) string { return "missing" },
					Group:   func(r *Request) string { return "of " + string(r.Messages[0].Envelope.Method) },
					Check:   func(w http.ResponseWriter, _ *Request) bool { return s.answer(w, "check") },
					Serve: func(w http.ResponseWriter, _ *Request) {
						s.at("serve")
						if memory.bytes.Used() == 0 {
							t.Error("the body takes no room")
						}
						w.WriteHeader(http.StatusNoContent)
					},
				}},
				Closed: func(r Record) { records = append(records, r) },
			})
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", s.body)
			r.Header.Set("Content-Type", front.TypeJSON)
			w := httptest.NewRecorder()
			door.ServeHTTP(w, r)
			var want []string
			for _, stage := range order {
				want = append(want, stage)
				if refuse != "" && strings.HasPrefix(stage, refuse) {
					break
				}
			}
			if left := memory.bytes.Used(); left != 0 {
				t.Errorf("the request has ended, and %d bytes of its body take room", left)
			}
			if diff := cmp.Diff(want, s.seen); diff != "" {
				t.Errorf("stages (-want +got):\n%s", diff)
			}
			status, how := http.StatusNoContent, Succeeded
			if refuse != "" {
				status, how = http.StatusTeapot, "-32600"
			}
			if len(records) != 1 || records[0].Status != status || records[0].Error != how || w.Code != status {
				t.Errorf("answered %d, records %+v", w.Code, records)
			}
		})
	}
}

// The Door reads no byte of a body that has no room.
func TestNoRoomToRead(t *testing.T) {
	s := &stages{body: &countedBody{Reader: strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)}}
	door := New(Options{
		Admit: s, Authenticate: s, Locate: s, Authorize: s, Budget: NewMemory(BodyLimits{BodyBytes: 1 << 10}, budget.New(0, 1)),
		Routes: map[string]Route{"/mcp": {
			Missing: func(*Request) string { return "missing" },
			Serve:   func(http.ResponseWriter, *Request) { s.at("serve") },
		}},
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", s.body)
	r.Header.Set("Content-Type", front.TypeJSON)
	w := httptest.NewRecorder()
	door.ServeHTTP(w, r)
	if diff := cmp.Diff([]string{"admit", "authenticate", "session missing"}, s.seen); diff != "" || s.body.read > 0 {
		t.Errorf("%d bytes are read, stages (-want +got):\n%s", s.body.read, diff)
	}
	header := w.Header()
	if w.Code != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || header.Get("Connection") != "close" {
		t.Errorf("answered %d with %v", w.Code, header)
	}
}

// The Door reads no byte of a body whose Content-Length exceeds the limit.
func TestTooLargeToRead(t *testing.T) {
	body := &countedBody{Reader: strings.NewReader("123456789")}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
	r.Header.Set("Content-Type", front.TypeJSON)
	r.ContentLength = 9
	if _, refused := readBody(httptest.NewRecorder(), r, BodyLimits{BodyBytes: 8}); refused == nil || !refused.Close || body.read > 0 {
		t.Errorf("got %+v after %d bytes", refused, body.read)
	}
}

// A refusal names the request that it answers once the request is known.
func TestRefusalNamesItsRequest(t *testing.T) {
	for refuse, want := range map[string]string{"authenticate": `{"jsonrpc":"2.0","error"`, "authorize": `{"jsonrpc":"2.0","id":7,"error"`} {
		s := &stages{refuse: refuse, body: &countedBody{Reader: strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)}}
		door := New(Options{Admit: s, Authenticate: s, Budget: bodies(BodyLimits{BodyBytes: 1 << 10}), Authorize: s, Routes: map[string]Route{"/": {}}})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", s.body)
		r.Header.Set("Content-Type", front.TypeJSON)
		w := httptest.NewRecorder()
		door.ServeHTTP(w, r)
		if !strings.HasPrefix(w.Body.String(), want) || w.Header().Get("X-Stage") != refuse {
			t.Errorf("%s: got %s %v", refuse, w.Body, w.Header())
		}
	}
}

// Only paths that there are have a front end, exactly as they are.
func TestPaths(t *testing.T) {
	var served []string
	door := New(Options{
		Admit: &Origins{Policy: func() *origin.Policy { return &origin.Policy{} }}, Budget: bodies(BodyLimits{}),
		Routes: map[string]Route{"/mcp": {Serve: func(_ http.ResponseWriter, r *Request) {
			served = append(served, r.URL.Path)
		}}},
		Elsewhere: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) },
	})
	for path, want := range map[string]int{"/mcp": 200, "/mcp/": 410, "/MCP": 410, "/": 410, "//mcp": 410} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.URL.Path = path
		door.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
	if len(served) != 1 {
		t.Errorf("served %q", served)
	}
}

func bearer(claims string) string {
	return "Bearer e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// A principal survives that its token is refreshed, and tokens that say nothing
// are some token.
func TestPrincipals(t *testing.T) {
	const anna = caller.Principal(`jwt "https://idp" "anna"`)
	for name, test := range map[string]struct {
		shown []string
		want  caller.Principal
	}{
		"nothing":           {nil, caller.Anonymous},
		"a JWT":             {[]string{bearer(`{"iss":"https://idp","sub":"anna","exp":1}`)}, anna},
		"refreshed":         {[]string{bearer(`{"sub":"anna","iss":"https://idp","exp":2,"jti":"x"}`)}, anna},
		"another subject":   {[]string{bearer(`{"iss":"https://idp","sub":"bert"}`)}, `jwt "https://idp" "bert"`},
		"another issuer":    {[]string{bearer(`{"iss":"https://other","sub":"anna"}`)}, `jwt "https://other" "anna"`},
		"quotes in a claim": {[]string{bearer(`{"iss":"https://idp\" \"anna","sub":"x"}`)}, `jwt "https://idp\" \"anna" "x"`},
		"no subject":        {[]string{bearer(`{"iss":"https://idp"}`)}, caller.SomeToken},
		"no issuer":         {[]string{bearer(`{"sub":"anna"}`)}, caller.SomeToken},
		"a subject of two":  {[]string{bearer(`{"iss":"https://idp","sub":["anna"]}`)}, caller.SomeToken},
		"opaque":            {[]string{"Bearer ghp_123"}, caller.SomeToken},
		"opaque with dots":  {[]string{"Bearer a.b.c"}, caller.SomeToken},
		"five parts":        {[]string{bearer(`{"iss":"i","sub":"s"}`) + ".x.y"}, caller.SomeToken},
		"no scheme":         {[]string{"secret"}, caller.SomeToken},
		"Basic":             {[]string{"Basic dTpw"}, caller.SomeToken},
		"two headers":       {[]string{bearer(`{"iss":"i","sub":"s"}`), "Bearer x"}, caller.SomeToken},
		"a long subject":    {[]string{bearer(`{"iss":"i","sub":"` + strings.Repeat("s", 513) + `"}`)}, caller.SomeToken},
		"a huge one":        {[]string{bearer(`{"iss":"i","sub":"` + strings.Repeat("s", 20<<10) + `"}`)}, caller.SomeToken},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header["Authorization"] = test.shown
		got, refused := Unverified{}.Authenticate(r)
		if refused != nil || got.Principal != test.want || got.Address != "192.0.2.1" || got.Probe {
			t.Errorf("%s: got %+v, %v; want principal %q", name, got, refused, test.want)
		}
	}
	probe, _ := Unverified{IsProbe: func(*http.Request) bool { return true }}.Authenticate(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if !probe.Probe {
		t.Error("the manager's probe is not known")
	}
}

// What a front end does not say of the outcome is known from the answer.
func TestOutcomes(t *testing.T) {
	for name, test := range map[string]struct {
		serve  func(w http.ResponseWriter, r *Request)
		status int
		how    ErrorType
	}{
		"said by who writes": {func(w http.ResponseWriter, r *Request) { w.WriteHeader(200); r.Record.Answered(ToolError) }, 200, ToolError},
		"the first word": {func(w http.ResponseWriter, r *Request) {
			w.WriteHeader(200)
			r.Record.Answered(Timeout)
			r.Record.Answered(Succeeded)
		}, 200, Timeout},
		"accepted":          {func(w http.ResponseWriter, _ *Request) { w.WriteHeader(202) }, 202, Succeeded},
		"refused":           {func(w http.ResponseWriter, _ *Request) { front.Refuse(w, 400, nil, -32602, "no") }, 400, "-32602"},
		"a code of its own": {func(w http.ResponseWriter, _ *Request) { front.Refuse(w, 200, nil, 12345, "no") }, 200, "_OTHER"},
		"a server's status": {func(w http.ResponseWriter, _ *Request) { w.WriteHeader(401) }, 401, "401"},
		"an unknown status": {func(w http.ResponseWriter, _ *Request) { w.WriteHeader(477) }, 477, "_OTHER"},
		"1xx is no answer":  {func(w http.ResponseWriter, _ *Request) { w.WriteHeader(103); w.WriteHeader(404) }, 404, "404"},
		"no answer":         {func(http.ResponseWriter, *Request) {}, 0, Cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			var records []Record
			door := New(Options{
				Admit: &Origins{Policy: func() *origin.Policy { return &origin.Policy{} }}, Budget: bodies(BodyLimits{BodyBytes: 1 << 10}),
				Routes: map[string]Route{"/": {Serve: test.serve}}, Closed: func(r Record) { records = append(records, r) },
			})
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"strange"}`))
			r.Header.Set("Content-Type", front.TypeJSON)
			door.ServeHTTP(httptest.NewRecorder(), r)
			if len(records) != 1 || records[0].Status != test.status || records[0].Error != test.how || records[0].Method != other {
				t.Errorf("got %+v, want status %d, error type %q", records, test.status, test.how)
			}
		})
	}
}

// A record that is handed over is closed once, by its holder or by the door.
func TestHandOver(t *testing.T) {
	for name, test := range map[string]struct {
		serve func(w http.ResponseWriter, h *Handed)
		after func(h *Handed)
		want  []ErrorType
	}{
		"answered later":          {func(w http.ResponseWriter, _ *Handed) { w.WriteHeader(202) }, func(h *Handed) { h.Close(ToolError); h.Close(Succeeded) }, []ErrorType{ToolError}},
		"answered before the 202": {func(w http.ResponseWriter, h *Handed) { h.Close(Succeeded); w.WriteHeader(202) }, func(*Handed) {}, []ErrorType{Succeeded}},
		"refused after all":       {func(w http.ResponseWriter, _ *Handed) { w.WriteHeader(503) }, func(h *Handed) { h.Close(Succeeded) }, []ErrorType{"503"}},
		"closed, then refused":    {func(w http.ResponseWriter, h *Handed) { h.Close(Cancelled); w.WriteHeader(503) }, func(*Handed) {}, []ErrorType{Cancelled}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []ErrorType
			var handed *Handed
			door := New(Options{
				Admit: &Origins{Policy: func() *origin.Policy { return &origin.Policy{} }}, Budget: bodies(BodyLimits{BodyBytes: 1 << 10}),
				Routes: map[string]Route{"/": {Serve: func(w http.ResponseWriter, r *Request) {
					handed = r.HandOver()
					test.serve(w, handed)
				}}},
				Closed: func(r Record) { got = append(got, r.Error) },
			})
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader([]byte(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)))
			r.Header.Set("Content-Type", front.TypeJSON)
			door.ServeHTTP(httptest.NewRecorder(), r)
			test.after(handed)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}
