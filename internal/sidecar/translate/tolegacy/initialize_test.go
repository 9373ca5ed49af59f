package tolegacy

import (
	"errors"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// L-02, L-08, B-05: initialize is answered by what server/discover says, in a revision that
// has it.
func TestInitialize(t *testing.T) {
	const (
		begins = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":`
		full   = `"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"tasks":{"list":{}},"extensions":{"io.modelcontextprotocol/tasks":{},"x/y":{"n":1.0}}},` +
			`"instructions":"do \u00e9","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"2","title":"S"}}}`
		fullTold = `"capabilities":{"tools":{"listChanged":true},"extensions":{"x/y":{"n":1.0}}},"serverInfo":{"name":"s","version":"2","title":"S"},"instructions":"do \u00e9"}}`
		least    = `"capabilities":{},"serverInfo":{"name":"unknown","version":"unknown"}}}`
	)
	for name, test := range map[string]struct{ requested, discovered, want string }{
		"L-02 2024-11-05":          {r24, full, begins + `"2024-11-05",` + fullTold},
		"L-02 2025-03-26":          {r03, full, begins + `"2025-03-26",` + fullTold},
		"L-02 2025-06-18":          {r06, full, begins + `"2025-06-18",` + fullTold},
		"L-02 2025-11-25":          {r11, full, begins + `"2025-11-25",` + fullTold},
		"L-02 the modern one":      {"2026-07-28", full, begins + `"2025-11-25",` + fullTold},
		"L-02 nonsense":            {"x", full, begins + `"2025-11-25",` + fullTold},
		"L-08 nothing is said":     {r11, `"result":{}`, begins + `"2025-11-25",` + least},
		"L-08 no version":          {r11, `"result":{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}`, begins + `"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"unknown"}}}`},
		"members of other types":   {r11, `"result":{"capabilities":[],"instructions":7,"_meta":{"io.modelcontextprotocol/serverInfo":"s"}}`, begins + `"2025-11-25",` + least},
		"an error":                 {r11, `"error":{"code":-32603,"message":"no","data":[1.0]}`, `{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"no","data":[1.0]}}`},
		"another version's error":  {r11, `"error":{"code":-32022,"message":"no","data":{"supported":["2027-01-01"]}}`, `{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"the server does not serve protocol revision 2026-07-28 any more"}}`},
		"a result that is none":    {r11, `"result":[]`, `{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"the server's answer to server/discover cannot be understood"}}`},
		"only the tasks extension": {r11, `"result":{"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}},"logging":{}}}`, begins + `"2025-11-25","capabilities":{"extensions":{},"logging":{}},"serverInfo":{"name":"unknown","version":"unknown"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(s *stage) {
				s.send(initialize(test.requested, `{}`))
				discover := s.next()
				s.equal("asked", discover.request, `{"jsonrpc":"2.0","id":"slipway","method":"server/discover","params":{"_meta":{`+envelope(`{}`)+`}}}`)
				s.want()
				discover.answer(test.discovered)
				s.want(test.want)
			})
		})
	}
}

// L-01: what comes before initialize, and what comes twice.
func TestOrderOfMessages(t *testing.T) {
	staged(t, func(s *stage) {
		s.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		s.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"initialize comes first"}}`)
		s.send(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		s.want(`{"jsonrpc":"2.0","id":"p","result":{}}`)
		s.send(initialized) // goes nowhere
		s.send(`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}`)
		s.wantIn([]string{`"id":2`, `-32602`})

		s.send(initialize(r11, `{}`))
		discover := s.next()
		s.send(strings.Replace(initialize(r11, `{}`), `"id":0`, `"id":3`, 1))
		s.wantIn([]string{`"id":3`, `-32600`})
		discover.answer(`"error":{"code":-32603,"message":"not now"}`)
		s.wantIn([]string{`"id":0,"error"`})
		s.send(`{"jsonrpc":"2.0","id":4,"method":"tools/list"}`)
		s.wantIn([]string{`"id":4`, `-32600`})

		s.meet(r11, `{}`, discovered)
		s.send(initialize(r11, `{}`))
		s.want(`{"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"the session is initialized already"}}`)
		s.wantIdle()
	})
}

// A server that cannot be asked at all is for the front end to report.
func TestInitializeNotTaken(t *testing.T) {
	staged(t, func(s *stage) {
		s.modern.refuse(errors.New("no process"))
		err := s.server.Send(s.t.Context(), session.Message{Bytes: []byte(initialize(r11, `{}`))})
		if err == nil || !strings.Contains(err.Error(), "no process") {
			t.Errorf("got %v", err)
		}
		s.modern.refuse(nil)
		s.meet(r11, `{}`, discovered)
		s.modern.refuse(errors.New("no process"))
		if err := s.server.Send(s.t.Context(), session.Message{Bytes: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)}); err == nil || !strings.Contains(err.Error(), "no process") {
			t.Errorf("got %v", err)
		}
		s.modern.refuse(nil)
		s.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`) // its id is free
		s.next().answer(`"result":{}`)
		s.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

// B-05: what a client declares reaches the server as far as its revision has it.
func TestClientCapabilities(t *testing.T) {
	const all = `{"roots":{"listChanged":true},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"tasks":{"list":{}},"experimental":{"x":1.50},"extensions":{"io.modelcontextprotocol/tasks":{},"a/b":{}}}`
	for name, test := range map[string]struct{ revision, declared, want string }{
		"2024-11-05":                    {r24, all, `{"roots":{},"sampling":{"tools":{}},"experimental":{"x":1.50},"extensions":{"a/b":{}}}`},
		"2025-03-26":                    {r03, all, `{"roots":{},"sampling":{"tools":{}},"experimental":{"x":1.50},"extensions":{"a/b":{}}}`},
		"2025-06-18":                    {r06, all, `{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{}},"experimental":{"x":1.50},"extensions":{"a/b":{}}}`},
		"2025-11-25":                    {r11, all, `{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"experimental":{"x":1.50},"extensions":{"a/b":{}}}`},
		"2025-06-18 elicitation, empty": {r06, `{"elicitation":{}}`, `{"elicitation":{"form":{}}}`},
		"2025-11-25 elicitation, empty": {r11, `{"elicitation":{}}`, `{"elicitation":{}}`},
		"2024-11-05 nothing else":       {r24, `{"elicitation":{}}`, `{}`},
		"only tasks":                    {r11, `{ "tasks" : {} }`, `{  }`},
		"the first and the last":        {r11, `{"tasks":{},"sampling":{},"tasks":{}}`, `{"sampling":{}}`},
		"none":                          {r11, `{}`, `{}`},
		"roots with more than that":     {r11, `{"roots":{"a":1,"listChanged":false,"b":2}}`, `{"roots":{"a":1,"b":2}}`},
		"values that are none":          {r11, `{"sampling":true,"roots":null,"elicitation":1,"extensions":[]}`, `{}`},
		"no object":                     {r11, `7`, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(s *stage) {
				s.meet(test.revision, test.declared, discovered)
				s.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
				s.equal("asked", s.next().request, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{`+envelope(test.want)+`}}}`)
			})
		})
	}
}

// U-06, B-05: a log level goes with every request that follows.
func TestSetLevel(t *testing.T) {
	staged(t, func(s *stage) {
		s.meet(r06, `{}`, discovered)
		for _, params := range []string{``, `,"params":{}`, `,"params":{"level":"loud"}`, `,"params":{"level":1}`} {
			s.send(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel"` + params + `}`)
			s.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"unknown log level"}}`)
		}
		for _, level := range rpc.LogLevels {
			s.send(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"` + level + `"}}`)
			s.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
			s.wantIdle()
			s.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}`)
			x := s.next()
			s.equal("asked", x.request, `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{`+envelope(`{}`)+`,"io.modelcontextprotocol/logLevel":"`+level+`"}}}`)
			x.answer(`"result":{}`)
			s.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		}
	})
}

// Methods that are not for the modern server.
func TestOtherMethods(t *testing.T) {
	staged(t, func(s *stage) {
		s.meetAll()
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update", "server/discover", "subscriptions/listen"} {
			s.send(`{"jsonrpc":"2.0","id":"x","method":"` + method + `"}`)
			s.wantIn([]string{`"id":"x","error":{"code":-32601`})
		}
		for _, method := range []string{"roots/list_changed", "cancelled", "progress", "elicitation/complete"} {
			s.send(`{"jsonrpc":"2.0","method":"notifications/` + method + `","params":{"requestId":9}}`)
		}
		s.send(`{"jsonrpc":"2.0","id":"slipway-e1","result":{}}`)
		s.send(`{"jsonrpc":"2.0","id":"` + strings.Repeat("i", nameBytes) + `","method":"tools/list"}`)
		s.wantIn([]string{`-32600`, "8192 bytes"})
		s.wantIdle()
		if err := s.server.Send(s.t.Context(), session.Message{Bytes: []byte(`{`)}); err == nil {
			t.Error("what is not a message is taken")
		}
	})
}

// Close ends everything at once, and says so once.
func TestClose(t *testing.T) {
	staged(t, func(s *stage) {
		s.meet(r11, `{"elicitation":{}}`, strings.Replace(discovered, `"tools":{}`, `"tools":{"listChanged":true}`, 1))
		s.send(initialized)
		listen := s.next()
		listen.agree(`{"toolsListChanged":true}`)
		s.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}`)
		slow := s.next()
		s.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask"}}`)
		s.next().answer(`"result":{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}}}`)
		s.wantIn([]string{rpc.MethodElicit})
		s.server.Close()
		s.server.Close()
		s.heard()
		if ended := s.endedBy(); len(ended) != 1 || !errors.Is(ended[0], session.ErrEnded) {
			t.Errorf("ended %v", ended)
		}
		if !listen.cancelled() || !slow.cancelled() {
			t.Error("the modern server works on")
		}
		for _, message := range []string{`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":4,"method":"ping"}`} {
			if err := s.server.Send(s.t.Context(), session.Message{Bytes: []byte(message)}); !errors.Is(err, session.ErrEnded) {
				t.Errorf("got %v", err)
			}
		}
		s.want()
	})
}
