package mcpprobe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// status answers one method with a status and leaves the others to the script.
func status(method string, code int, header http.Header, reached map[string]*atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		for name, count := range reached {
			if strings.Contains(string(data), `"`+name+`"`) {
				count.Add(1)
			}
		}
		if strings.Contains(string(data), `"`+method+`"`) {
			maps.Copy(w.Header(), header)
			w.WriteHeader(code)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(data)))
		script{}.ServeHTTP(w, r)
	})
}

func TestStatusIsClassified(t *testing.T) {
	for code, want := range map[int]Class{
		401: Unauthorized, 403: Unauthorized, 429: Busy, 500: Busy, 502: Busy, 503: Busy, 504: Busy,
		400: Rejected, 404: Rejected, 405: Rejected, 307: Protocol,
	} {
		for _, method := range []string{methodDiscover, methodInitialize, methodTools} {
			t.Run(fmt.Sprintf("P-01 %d on %s", code, method), func(t *testing.T) {
				t.Parallel()
				initialize := &atomic.Int64{}
				header := http.Header{"Location": {"/elsewhere"}, "Retry-After": {"7"}}
				url := serve(t, status(method, code, header, map[string]*atomic.Int64{methodInitialize: initialize}))
				catalog, err := Probe(withPatience(t), HTTP(url, nil), Options{})
				if method == methodDiscover && (want == Rejected || want == Protocol) {
					// The server does not know the request, so it is of the older era.
					if err != nil || toolNames(catalog) != "a" {
						t.Fatalf("got %v, %v, want the fallback", catalog, err)
					}
					return
				}
				checkStatus(t, err, want, code)
				if method == methodDiscover && initialize.Load() != 0 {
					t.Error("initialize was tried after a failure that says nothing of the era")
				}
			})
		}
	}
}

func checkStatus(t *testing.T, err error, want Class, code int) {
	t.Helper()
	wantClass(t, err, want)
	e := ours(t, err)
	if e.Status != code {
		t.Errorf("got status %d, want %d", e.Status, code)
	}
	if want == Busy && e.RetryAfter != 7*time.Second {
		t.Errorf("got retry after %v", e.RetryAfter)
	}
}

// The SDK gives the connection up for some of these statuses, on a goroutine of its own.
// Here it has done so before the call returns.
func TestStatusIsTheReasonAfterTheSDKGaveUp(t *testing.T) {
	for code, want := range map[int]Class{400: Rejected, 401: Unauthorized, 403: Unauthorized, 404: Rejected, 405: Rejected} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			t.Parallel()
			session, err := Connect(withPatience(t), HTTP(serve(t, status(methodTools, code, nil, nil)), nil), Options{})
			if err != nil {
				t.Fatalf("Connect: %v", err)
			}
			defer session.Close()
			patient := withPatience(t)
			err = session.call(patient, methodTools, func(ctx context.Context) error {
				_, err := session.client.ListTools(ctx, nil)
				select {
				case <-session.Done(): // which ends ctx as well
				case <-patient.Done():
					t.Error("the SDK keeps the connection")
				}
				return err
			})
			checkStatus(t, err, want, code)
		})
	}
}

// The time of a call may run out between the status and the end of the call.
func TestStatusIsTheReasonAfterTheDeadline(t *testing.T) {
	session, err := Connect(withPatience(t), HTTP(serve(t, status(methodTools, 401, nil, nil)), nil), Options{})
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	defer session.Close()
	ctx := &expiring{t.Context(), make(chan struct{})}
	err = session.call(ctx, methodTools, func(inner context.Context) error {
		_, err := session.client.ListTools(inner, nil)
		close(ctx.done)
		return err
	})
	checkStatus(t, err, Unauthorized, 401)
}

// A call in flight when a status ends the connection fails for that reason, too: its caller
// did not cancel it.
func TestStatusIsTheReasonForOtherCalls(t *testing.T) {
	waits := make(chan struct{})
	rejecting := status(methodTools, 401, nil, nil)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		if strings.Contains(string(data), `"`+methodPrompts+`"`) {
			close(waits)
			<-r.Context().Done()
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(data)))
		rejecting.ServeHTTP(w, r)
	}))
	session, err := Connect(withPatience(t), HTTP(url, nil), Options{})
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	defer session.Close()
	other := make(chan error, 1)
	go func() {
		other <- session.call(withPatience(t), methodPrompts, func(ctx context.Context) error {
			_, err := session.client.ListPrompts(ctx, nil)
			return err
		})
	}()
	<-waits
	if _, err := session.Catalog(withPatience(t)); ours(t, err).Class != Unauthorized {
		t.Errorf("the call that got the status: %v", err)
	}
	checkStatus(t, <-other, Unauthorized, 401)
	checkStatus(t, session.Err(), Unauthorized, 401)
}

func TestP03StatusOfAStreamIsClassified(t *testing.T) {
	for code, want := range map[int]Class{401: Unauthorized, 403: Unauthorized, 429: Busy, 503: Busy, 404: Rejected, 302: Protocol} {
		url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		_, err := Probe(withPatience(t), SSE(url, nil), Options{})
		wantClass(t, err, want)
		if ours(t, err).Status != code {
			t.Errorf("got %v, want status %d", err, code)
		}
	}
}

func TestP01ErrorsOfTheNewerEraAreNoReasonToFallBack(t *testing.T) {
	for code, want := range map[int]bool{-32020: false, -32021: false, -32022: true, -32601: true, -32000: true} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			for name, target := range map[string]Target{
				"HTTP":    HTTP(serve(t, script{methodDiscover: func(c call) string { return c.fail(code) }}), nil),
				"process": process(t, script{methodDiscover: func(c call) string { return c.fail(code) }}.run),
			} {
				_, err := Probe(withPatience(t), target, Options{})
				if want && err != nil {
					t.Errorf("%s: %v, want the fallback", name, err)
				}
				if want {
					continue
				}
				wantClass(t, err, Rejected)
				if ours(t, err).Code != code {
					t.Errorf("%s: got %v, want code %d", name, err, code)
				}
			}
		})
	}
}

func TestP01AnEmptyResultAndAPageOfHTMLAreLegacy(t *testing.T) {
	html := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		if strings.Contains(string(data), methodDiscover) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>")
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(data)))
		script{}.ServeHTTP(w, r)
	})
	for name, handler := range map[string]http.Handler{
		"empty result": script{methodDiscover: func(c call) string { return c.result(`{}`) }},
		"HTML":         html,
	} {
		if _, err := Probe(withPatience(t), HTTP(serve(t, handler), nil), Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A wrong path or port is a mistake that users make, so the error says what was asked. A
// query may be secret, and so may the address that a server of SSE names for messages.
func TestStatusNamesTheRequest(t *testing.T) {
	nothing := serve(t, http.NotFoundHandler())
	messages := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, "event: endpoint\ndata: /messages/secret\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	for name, test := range map[string]struct {
		target Target
		want   string
	}{
		"streamable-http":    {HTTP(nothing+"/mcp?key=secret", nil), "probe connect: Rejected (POST " + nothing + "/mcp: HTTP 404)"},
		"sse":                {SSE(nothing+"/sse?key=secret", nil), "probe connect: Rejected (GET " + nothing + "/sse: HTTP 404)"},
		"messages of an sse": {SSE(messages+"/sse", nil), "probe connect: Rejected (POST to the address that the server named: HTTP 404)"},
	} {
		_, err := Probe(withPatience(t), test.target, Options{})
		if err == nil || !strings.HasPrefix(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
}

func TestX09RedirectsAndOtherHosts(t *testing.T) {
	var hits atomic.Int64
	elsewhere := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	redirect := serve(t, http.RedirectHandler(elsewhere, http.StatusTemporaryRedirect))
	endpoint := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "event: endpoint\ndata: %s/steal\n\n", elsewhere)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Setenv("HTTP_PROXY", elsewhere)
	header := http.Header{"Authorization": {"Bearer secret"}}
	for name, target := range map[string]Target{
		"redirect":                  HTTP(redirect, header),
		"redirect of a stream":      SSE(redirect, header),
		"endpoint on another host":  SSE(endpoint, header),
		"user in the URL":           HTTP(strings.Replace(redirect, "://", "://u:p@", 1), nil),
		"scheme that is not HTTP":   HTTP("file:///etc/passwd", nil),
		"URL that cannot be read":   HTTP("http://%zz/?token=secret", nil),
		"no target":                 {},
		"proxy of the surroundings": HTTP("http://127.0.0.1:1/", header),
	} {
		_, err := Probe(withPatience(t), target, Options{})
		if err == nil {
			t.Errorf("%s: got no error", name)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), elsewhere) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: the error holds what is not to be shown: %v", name, err)
		}
	}
	if hits.Load() != 0 {
		t.Errorf("another host was asked %d times", hits.Load())
	}
}

func TestNothingListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + listener.Addr().String()
	_ = listener.Close()
	for name, target := range map[string]Target{"HTTP": HTTP(refused, nil), "SSE": SSE(refused, nil)} {
		t.Run(name, func(t *testing.T) {
			_, err := Probe(withPatience(t), target, Options{})
			wantClass(t, err, Unreachable)
		})
	}
	t.Run("no answer to the dialing", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := Probe(ctx, HTTP("http://192.0.2.1", nil), Options{}) // an address for documentation, which no host has
		wantClass(t, err, Unreachable)
	})
}

func TestDeadlineOverHTTP(t *testing.T) {
	for _, method := range []string{methodDiscover, methodInitialize, methodTools} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(withPatience(t))
			url := serve(t, script{method: func(c call) string {
				cancel() // the server hangs from here on
				<-c.gone
				return ""
			}})
			_, err := Probe(ctx, HTTP(url, nil), Options{})
			wantClass(t, err, Canceled)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want it to wrap the context's error", err)
			}
		})
	}
	t.Run("Timeout", func(t *testing.T) {
		ctx := &expiring{t.Context(), make(chan struct{})}
		_, err := Probe(ctx, HTTP(serve(t, script{methodInitialize: func(c call) string {
			close(ctx.done)
			<-c.gone
			return ""
		}}), nil), Options{})
		wantClass(t, err, Timeout)
	})
}

// expiring is a context whose deadline passes when the test says so.
type expiring struct {
	context.Context
	done chan struct{}
}

func (e *expiring) Done() <-chan struct{} { return e.done }

func (e *expiring) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// The SDK waits for the header of this stream without a deadline.
func TestAStreamThatSendsNoHeaderDoesNotHoldUpConnect(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			<-r.Context().Done()
		}
		script{}.ServeHTTP(w, r)
	}))
	session, err := Connect(withPatience(t), HTTP(url, nil), Options{})
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	defer session.Close()
	if _, err := session.Catalog(withPatience(t)); err != nil {
		t.Errorf("Catalog: %v", err)
	}
}

// events answers as a stream, with something before the answer.
func events(before string, answer func(call) string) http.Handler {
	return script{methodTools: func(c call) string { return before + "event: message\ndata: " + answer(c) + "\n\n" }}.asEvents()
}

func (s script) asEvents() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(data)))
		if strings.Contains(string(data), methodTools) {
			w = &eventWriter{ResponseWriter: w}
		}
		s.ServeHTTP(w, r)
	})
}

// eventWriter claims to be a stream.
type eventWriter struct{ http.ResponseWriter }

func (w *eventWriter) Write(p []byte) (int, error) {
	w.Header().Set("Content-Type", "text/event-stream")
	return w.ResponseWriter.Write(p)
}

func TestRepliesThatCannotBeUnderstood(t *testing.T) {
	tools := func(answer string) script { return script{methodTools: func(call) string { return answer }} }
	for name, test := range map[string]struct {
		handler http.Handler
		want    Class
	}{
		"broken JSON":             {tools(`{"jsonrpc":"2.0","id":`), Protocol},
		"not JSON":                {tools(`hello`), Protocol},
		"J-05 wrong id":           {tools(`{"jsonrpc":"2.0","id":999,"result":{"tools":[]}}`), Protocol},
		"J-02 id of another type": {script{methodTools: func(c call) string { return strings.Replace(c.result(`{"tools":[]}`), `:3,`, `:"3",`, 1) }}, Protocol},
		"a request, no answer":    {tools(`{"jsonrpc":"2.0","id":3,"method":"ping"}`), Protocol},
		"list is an object":       {script{methodTools: func(c call) string { return c.result(`{"tools":{}}`) }}, Protocol},
		"result is a text":        {script{methodTools: func(c call) string { return c.result(`"x"`) }}, Protocol},
		"J-15 other result type":  {script{methodTools: func(c call) string { return c.result(`{"resultType":"input_required"}`) }}, Protocol},
		"opening is a text":       {script{methodInitialize: func(c call) string { return c.result(`"x"`) }}, Protocol},
		"L-03 unknown version":    {script{methodInitialize: func(c call) string { return c.result(`{"protocolVersion":"1999-01-01","capabilities":{}}`) }}, Protocol},
		"opening is refused":      {script{methodInitialize: func(c call) string { return c.fail(-32602) }}, Rejected},
		"tools are refused":       {script{methodTools: func(c call) string { return c.fail(-32603) }}, Rejected},
		"event that is no JSON":   {events("", func(call) string { return "{oops" }), Protocol},
		"stream without answer":   {events("", func(call) string { return `{"jsonrpc":"2.0","method":"notifications/message"}` }), Closed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Probe(withPatience(t), HTTP(serve(t, test.handler), nil), Options{})
			wantClass(t, err, test.want)
		})
	}
}

func TestOddButGoodReplies(t *testing.T) {
	answer := func(c call) string { return c.result(`{"tools":[{"name":"odd"}]}`) }
	for name, handler := range map[string]http.Handler{
		"P-06 -32601 is empty":       script{methodTools: func(c call) string { return c.fail(-32601) }},
		"null instead of a list":     script{methodTools: func(c call) string { return c.result(`{"tools":null}`) }},
		"P-05 legacy empty cursor":   script{methodTools: func(c call) string { return c.result(`{"tools":[],"nextCursor":""}`) }},
		"no server info":             script{methodInitialize: func(c call) string { return c.result(`{"protocolVersion":"2025-06-18"}`) }},
		"comments and other events":  events(": hello\r\n\r\nevent: ping\ndata: {}\n\nretry: 10\n\n", answer),
		"T-22 priming":               events("id: 1\ndata:\n\n", answer),
		"data over several lines":    events("", func(c call) string { return strings.ReplaceAll(answer(c), ",", ",\ndata: ") }),
		"junk behind the answer":     events("", func(c call) string { return answer(c) + "\n\ndata: {oops" }),
		"notifications on the way":   events("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\n\n", answer),
		"P-06 not declared, not ask": script{methodPrompts: func(call) string { panic("prompts were not declared") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			catalog, err := Probe(withPatience(t), HTTP(serve(t, handler), nil), Options{})
			if err != nil {
				t.Fatalf("Probe: %v", err)
			}
			if len(catalog.Tools) > 1 {
				t.Errorf("got %v", catalog.Tools)
			}
		})
	}
}

func TestServerDiesWhileItIsProbed(t *testing.T) {
	url := serve(t, script{methodTools: func(call) string { panic(http.ErrAbortHandler) }})
	_, err := Probe(withPatience(t), HTTP(url, nil), Options{})
	wantClass(t, err, Closed)
}
