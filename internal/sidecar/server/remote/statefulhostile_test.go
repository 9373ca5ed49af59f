package remote

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// puppet is a server with a session, whose answers to anything but the beginning are the
// test's.
type puppet struct {
	post    func(w http.ResponseWriter, r *http.Request, body string)
	get     func(w http.ResponseWriter, r *http.Request)
	mu      sync.Mutex
	gets    []string // their Last-Event-ID
	deleted int
}

func (p *puppet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.Method == http.MethodDelete:
		p.mu.Lock()
		p.deleted++
		p.mu.Unlock()
	case r.Method == http.MethodGet:
		p.mu.Lock()
		p.gets = append(p.gets, r.Header.Get("Last-Event-Id"))
		p.mu.Unlock()
		if p.get == nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		p.get(w, r)
	case strings.Contains(string(body), `"initialize"`):
		w.Header().Set(headerSession, "puppet")
		w.Header().Set("Content-Type", typeJSON)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
	case strings.Contains(string(body), `"notifications/initialized"`):
		w.WriteHeader(http.StatusAccepted)
	default:
		p.post(w, r, string(body))
	}
}

func (p *puppet) seen() (gets []string, deleted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.gets...), p.deleted
}

// say writes a part of an event stream.
func say(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", typeEvents)
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

const pong = `{"jsonrpc":"2.0","id":1,"result":{}}`

// Whatever a server answers, the request has one answer, and the connection goes on.
func TestStatefulAnswers(t *testing.T) {
	status := func(status int, contentType, body string) func(http.ResponseWriter, *http.Request, string) {
		return func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, test := range map[string]struct {
		post func(http.ResponseWriter, *http.Request, string)
		want string
		junk uint64
	}{
		"JSON":                   {status(200, typeJSON, pong), `"result":{}`, 0},
		"stream":                 {status(200, typeEvents, "data: "+pong+"\n\n"), `"result":{}`, 0},
		"no content type":        {status(200, "", pong), `"result":{}`, 0},
		"J-07 several in one":    {status(200, typeEvents, `data: [{"jsonrpc":"2.0","method":"notifications/x"},`+pong+"]\n\n"), `"result":{}`, 0},
		"J-05 wrong id":          {status(200, typeJSON, strings.Replace(pong, "1", "2", 1)), "no answer to the request", 1},
		"J-02 id as a string":    {status(200, typeJSON, strings.Replace(pong, `"id":1`, `"id":"1"`, 1)), "no answer to the request", 1},
		"wrong id, then right":   {status(200, typeEvents, "data: "+strings.Replace(pong, "1", "2", 1)+"\n\ndata: "+pong+"\n\n"), `"result":{}`, 1},
		"junk, then right":       {status(200, typeEvents, "event: other\ndata: {}\n\ndata: not JSON\n\ndata: [\n\ndata: "+pong+"\n\n"), `"result":{}`, 3},
		"two answers":            {status(200, typeEvents, "data: "+pong+"\n\ndata: "+strings.Replace(pong, "{}", `{"second":1}`, 1)+"\n\n"), `"result":{}`, 0},
		"R44 invalid UTF-8":      {status(200, typeJSON, `{"jsonrpc":"2.0","id":1,"result":{"a":"`+"\xff"+`"}}`), "\ufffd", 0},
		"HTML":                   {status(200, "text/html", "<html>"), "status 200", 1},
		"202":                    {status(202, "", ""), "status 202", 1},
		"stream without answer":  {status(200, typeEvents, ": hello\n\n"), "without an answer", 0},
		"stream breaks in event": {status(200, typeEvents, "data: "+pong+"\n"), "without an answer", 0},
		"error with the id":      {status(400, typeJSON, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no","data":[1]}}`), `"id":1,"error":{"code":-32602,"message":"no","data":[1]}`, 0},
		"error without id":       {status(400, typeJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no"}}`), `"id":1,"error":{"code":-32602`, 0},
		"error with another id":  {status(400, typeJSON, `{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no"}}`), `"code":-32603,"message":"the server answers with status 400`, 0},
		"text":                   {status(500, "text/plain", "it\nhurts"), "status 500: it hurts", 0},
		"result with an error":   {status(500, typeJSON, pong), "status 500", 0},
		"M-20 404, no method":    {status(404, typeJSON, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`), "-32601", 0},
		"T-24 400":               {status(400, "", ""), "status 400", 0},
		"redirect": {func(w http.ResponseWriter, r *http.Request, _ string) {
			http.Redirect(w, r, "http://evil.example/", http.StatusTemporaryRedirect)
		}, "redirection", 0},
		"too large":       {status(200, typeJSON, strings.Repeat(" ", 4<<20)+pong), "larger than the limit", 0},
		"event too large": {status(200, typeEvents, "id: 1\ndata: x\n\ndata: "+strings.Repeat("x", 5<<20)), "larger than the limit", 1},
		"R44 breaks off":  {func(http.ResponseWriter, *http.Request, string) { panic(http.ErrAbortHandler) }, "did not answer", 0},
		"body breaks off": {func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("Content-Length", "99")
			_, _ = io.WriteString(w, "{")
		}, "read the server's answer", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dialed := pipeStateful(t, &puppet{post: test.post})
				c := converse(t, dialed)
				c.open()
				got := c.ask(ping)
				if !strings.Contains(got, test.want) || !strings.Contains(got, `"id":1`) {
					t.Errorf("got %s, want %q", got, test.want)
				}
				synctest.Wait()
				if len(c.answers) != 0 || len(c.ended) != 0 {
					t.Errorf("%d more answers, %d ends", len(c.answers), len(c.ended))
				}
				if got := dialed.server.Junk.Value(); got != test.junk {
					t.Errorf("%d are junk, want %d", got, test.junk)
				}
			})
		})
	}
}

// T-21, T-22: the stream of a call breaks off, and goes on where it was.
func TestStatefulResume(t *testing.T) {
	for name, test := range map[string]struct {
		first string
		get   func(n int, w http.ResponseWriter)
		want  string
		asked []string // Last-Event-ID of each GET
		after time.Duration
	}{
		"primed": {"id: a\nretry: 3000\ndata: \n\n", func(_ int, w http.ResponseWriter) { say(w, "id: b\ndata: "+pong+"\n\n") }, "result", []string{"a"}, 3 * time.Second},
		"polled": {"id: a\n\n", func(n int, w http.ResponseWriter) {
			say(w, []string{"id: b\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n", "", "data: " + pong + "\n\n"}[n])
		}, "result", []string{"a", "b", "b"}, 2*pace.First + 2*pace.First},
		"no ids":           {": hello\n\n", nil, "without an answer", nil, 0},
		"id of half event": {"id: a\ndata: x\n", nil, "without an answer", nil, 0},
		"id is no header":  {"id: a\x01b\n\n", nil, "without an answer", nil, 0},
		"refused":          {"id: a\n\n", func(_ int, w http.ResponseWriter) { w.WriteHeader(405) }, "without an answer", []string{"a"}, pace.First},
		"answers others": {"id: a\n\n", func(n int, w http.ResponseWriter) {
			say(w, "data: "+strings.Replace(pong, "1", []string{"2", "1"}[n], 1)+"\n\n")
		}, "result", []string{"a", "a"}, 2 * pace.First},
		"always fails":   {"id: a\n\n", func(_ int, w http.ResponseWriter) { w.WriteHeader(503) }, "without an answer", []string{"a", "a", "a", "a", "a"}, (1 + 2 + 4 + 8 + 16) * pace.First},
		"retry too long": {"id: a\nretry: 2000000000\n\n", func(_ int, w http.ResponseWriter) { say(w, "data: "+pong+"\n\n") }, "result", []string{"a"}, longestPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				p := &puppet{post: func(w http.ResponseWriter, _ *http.Request, _ string) { say(w, test.first) }}
				p.get = func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Last-Event-Id") == "" {
						w.WriteHeader(http.StatusMethodNotAllowed)
						return
					}
					n++
					test.get(n-1, w)
				}
				c := converse(t, pipeStateful(t, p))
				c.open()
				synctest.Wait()
				began := time.Now()
				c.send(ping)
				got := <-c.answers
				if !strings.Contains(got, test.want) || !strings.Contains(got, `"id":1`) {
					t.Errorf("got %s, want %q", got, test.want)
				}
				gets, _ := p.seen()
				if strings.Join(gets[1:], " ") != strings.Join(test.asked, " ") {
					t.Errorf("asked to go on after %q, want %q", gets[1:], test.asked)
				}
				if took := time.Since(began); took != test.after {
					t.Errorf("took %v, want %v", took, test.after)
				}
			})
		})
	}
}

// T-10, T-11, R35: the stream that belongs to no call.
func TestStatefulListen(t *testing.T) {
	const news = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n"
	status := func(status int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.WriteHeader(status) }
	}
	streams := func(text string) func(http.ResponseWriter) { return func(w http.ResponseWriter) { say(w, text) } }
	for name, test := range map[string]struct {
		gets  []func(http.ResponseWriter) // the last one for all that follow
		asked string                      // Last-Event-ID of each GET within an hour, at least
		times int                         // how many there are then, at most
		news  int
		ended bool
	}{
		"405":               {[]func(http.ResponseWriter){status(405)}, "", 1, 0, false},
		"R35 404":           {[]func(http.ResponseWriter){status(404)}, "", 1, 0, false},
		"not a stream":      {[]func(http.ResponseWriter){status(200)}, "", 1, 0, false},
		"goes on":           {[]func(http.ResponseWriter){streams("id: 1\n" + news), streams("id: 2\n" + news), status(405)}, ",1,2,", 4, 2, false},
		"place is unknown":  {[]func(http.ResponseWriter){streams("id: 1\n" + news), status(400), streams(news), status(405)}, ",1,,", 4, 2, false},
		"R16 409":           {[]func(http.ResponseWriter){status(409), status(503), streams(news), status(405)}, ",,,", 4, 1, false},
		"answers are none":  {[]func(http.ResponseWriter){streams("data: " + pong + "\n\n"), status(405)}, ",", 2, 0, false},
		"T-17 session gone": {[]func(http.ResponseWriter){streams(news), status(404)}, ",", 2, 1, true},
		"too large":         {[]func(http.ResponseWriter){streams("id: 1\n" + news + "data: " + strings.Repeat("x", 5<<20)), status(405)}, ",", 2, 1, false},
		"ends at once":      {[]func(http.ResponseWriter){streams(": hi\n\n")}, ",,,,", 150, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				p := &puppet{}
				p.get = func(w http.ResponseWriter, _ *http.Request) {
					n++
					test.gets[min(n, len(test.gets))-1](w)
				}
				dialed := pipeStateful(t, p)
				c := converse(t, dialed)
				c.open()
				time.Sleep(time.Hour) // of the test's own time
				gets, _ := p.seen()
				if asked := strings.Join(gets, ","); !strings.HasPrefix(asked, test.asked) || len(gets) > test.times {
					t.Errorf("asked %d times, after %q, want %q", len(gets), asked, test.asked)
				}
				if len(c.others) != test.news || len(c.answers) != 0 {
					t.Errorf("%d news, %d answers", len(c.others), len(c.answers))
				}
				if ended := len(c.ended) == 1; ended != test.ended {
					t.Errorf("ended: %v", ended)
				}
			})
		})
	}
}

// T-17: a server that does not know the session any more ends the connection, and is not
// told of its end.
func TestStatefulSessionGone(t *testing.T) {
	for name, message := range map[string]string{
		"request": ping, "notification": `{"jsonrpc":"2.0","method":"notifications/x"}`, "answer": pong,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &puppet{post: func(w http.ResponseWriter, _ *http.Request, _ string) { w.WriteHeader(http.StatusNotFound) }}
				dialed := pipeStateful(t, p)
				c := converse(t, dialed)
				c.open()
				err := dialed.Send(t.Context(), session.Message{Bytes: []byte(message)})
				if name != "request" && !errors.Is(err, session.ErrEnded) {
					t.Errorf("send: %v", err)
				}
				if err := <-c.ended; !errors.Is(err, errNoSession) {
					t.Errorf("ended by %v", err)
				}
				dialed.Close()
				synctest.Wait()
				if _, deleted := p.seen(); deleted != 0 || len(c.ended) != 0 || len(c.answers) != 0 {
					t.Errorf("%d DELETE, %d more ends, %d answers", deleted, len(c.ended), len(c.answers))
				}
				if err := dialed.Send(t.Context(), session.Message{Bytes: []byte(ping)}); err == nil {
					t.Error("a message can be sent afterwards")
				}
			})
		})
	}
}

// A server that was away and then says 400 has forgotten the session; one that was not,
// or names the call, has something against the message.
func TestStatefulSessionLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, body := true, ""
		p := &puppet{post: func(w http.ResponseWriter, _ *http.Request, _ string) {
			if broken {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, body)
		}}
		c := converse(t, pipeStateful(t, p))
		c.open()
		if got := c.ask(ping); !strings.Contains(got, "did not answer") {
			t.Errorf("got %s", got)
		}
		broken, body = false, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`
		if got := c.ask(ping); !strings.Contains(got, "-32602") {
			t.Errorf("got %s", got)
		}
		body = `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}`
		c.send(strings.Replace(ping, "1", "2", 1))
		if err := <-c.ended; !errors.Is(err, errNoSession) {
			t.Errorf("ended by %v", err)
		}
	})
}

// U-02: a server need not answer a canceled call. The adapter closes the stream of that call after a while.
func TestStatefulCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan time.Time, 1)
		p := &puppet{post: func(w http.ResponseWriter, r *http.Request, body string) {
			if strings.Contains(body, "cancelled") {
				w.WriteHeader(http.StatusAccepted)
				return
			}
			say(w, ": hello\n\n")
			<-r.Context().Done()
			left <- time.Now()
		}}
		dialed := pipeStateful(t, p)
		c := converse(t, dialed)
		c.open()
		c.send(ping)
		began := time.Now()
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if took := (<-left).Sub(began); took != cancelGrace {
			t.Errorf("the stream ended after %v, want %v", took, cancelGrace)
		}
		synctest.Wait()
		if len(c.answers) != 0 || len(dialed.calls) != 0 {
			t.Errorf("%d answers", len(c.answers))
		}
	})
}

// A server that accepts messages and never ends its answers does not use up the places of others.
func TestStatefulEndlessBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialed := pipeStateful(t, &puppet{post: func(w http.ResponseWriter, r *http.Request, _ string) {
			w.WriteHeader(http.StatusAccepted)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}})
		c := converse(t, dialed)
		c.open()
		for range 2 * dialed.server.Calls {
			c.send(`{"jsonrpc":"2.0","method":"notifications/progress"}`)
		}
	})
}

// T-15: the connection is closed while the server opens a session.
func TestStatefulCloseDuringInitialize(t *testing.T) {
	for name, test := range map[string]struct {
		after   time.Duration // the server answers then
		deleted int
	}{"in time": {endTimeout / 2, 1}, "too late": {endTimeout * 2, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &puppet{}
				dialed := pipeStateful(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost {
						time.Sleep(test.after)
					}
					p.ServeHTTP(w, r)
				}))
				c := converse(t, dialed)
				c.send(initializeBody)
				dialed.Close()
				if err := <-c.ended; !errors.Is(err, session.ErrEnded) {
					t.Errorf("ended by %v", err)
				}
				time.Sleep(time.Minute) // of the test's own time
				if _, deleted := p.seen(); deleted != test.deleted || len(c.answers) != 0 {
					t.Errorf("%d DELETE, %d answers", deleted, len(c.answers))
				}
			})
		})
	}
}

// Every number has its limit, and a server that does not read has its time.
func TestStatefulLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{post: func(_ http.ResponseWriter, r *http.Request, _ string) { <-r.Context().Done() }}
		dialed := pipeStateful(t, p)
		c := converse(t, dialed)
		c.open()
		synctest.Wait() // until nothing of the opening takes a place any more
		for i := range dialed.server.Calls {
			c.send(strings.Replace(ping, "1", string(rune('1'+i)), 1))
		}
		if err := dialed.Send(t.Context(), session.Message{Bytes: []byte(strings.Replace(ping, "1", "99", 1))}); !errors.Is(err, session.ErrTooManyCalls) {
			t.Errorf("one more: %v", err)
		}
		dialed.Close()
		synctest.Wait()
		if dialed.Send(t.Context(), session.Message{Bytes: []byte(ping)}) == nil || len(c.answers) != 0 {
			t.Errorf("after the end: sent, or %d answers", len(c.answers))
		}
	})
}
