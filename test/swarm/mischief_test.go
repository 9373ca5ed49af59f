package swarm

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/test/adapter"
)

// meddler is a proxy that does something to the requests and answers of a real adapter.
type meddler struct {
	meet func(r *http.Request, body []byte) // sees each request
	turn func(r *http.Response, body []byte) ([]byte, error)
	fail func(http.ResponseWriter, *http.Request, error)
	// listen answers those who listen beside their calls, in the place of the adapter.
	listen func(http.ResponseWriter)
}

func isListening(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get(headerLast) == ""
}

// start returns the proxy's URL.
func (m meddler) start(t *testing.T) string {
	t.Helper()
	return m.before(t, adapter.Start(t, sidecar, "--", echo))
}

// before is start for an adapter that runs.
func (m meddler) before(t *testing.T, address string) string {
	t.Helper()
	target, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		ErrorHandler: m.fail,
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.URL.Path = target.Path },
		ModifyResponse: func(r *http.Response) error {
			if m.turn == nil || r.Request.Method == http.MethodDelete || isListening(r.Request) { // which has no end
				return nil
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			r.Header.Del("Content-Length")
			r.ContentLength = -1
			body, err = m.turn(r, body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			return err
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the swarm has ended
		}
		if m.listen != nil && isListening(r) {
			m.listen(w)
			return
		}
		if m.meet != nil {
			m.meet(r, body)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/mcp"
}

// The answer of tick has host, nonce, count and word. The word ends with the number of the call.
var (
	tick   = regexp.MustCompile(`"text":"(\S+) (\S+) (\d+) (\d+/\d+)"`)
	ticked = regexp.MustCompile(`"text":"(\S+) (\S+) (\d+) (\d+/3)"`) // by a third call
	// accepted is a client's answer to a question.
	accepted = regexp.MustCompile(`"action":"accept"`)
)

// expectNoticed has clients use servers that do what they must not.
func expectNoticed(t *testing.T, options Options) {
	t.Helper()
	address := adapter.Start(t, sidecar, "--", echo)
	replace := func(old *regexp.Regexp, by string) func(*http.Response, []byte) ([]byte, error) {
		return func(_ *http.Response, body []byte) ([]byte, error) { return old.ReplaceAll(body, []byte(by)), nil }
	}
	tests := map[string]struct {
		meddler
		mix  Mix
		kind Kind
		want string
	}{
		"a call is executed twice": {
			meddler: meddler{meet: func(r *http.Request, body []byte) {
				if !bytes.Contains(body, []byte(`"name":"tick"`)) {
					return
				}
				if again, err := http.NewRequestWithContext(r.Context(), http.MethodPost, address, bytes.NewReader(bytes.Replace(body, []byte(`"id":`), []byte(`"id":7`), 1))); err == nil {
					again.Header = r.Header.Clone()
					if response, err := http.DefaultClient.Do(again); err == nil {
						_ = response.Body.Close()
					}
				}
			}},
			kind: Wrong, want: ",again",
		},
		"an answer of another call":    {meddler: meddler{turn: replace(regexp.MustCompile(`(\d)/2"`), `$1/9"`)}, kind: Wrong, want: "tick answered"},
		"an answer of another process": {meddler: meddler{turn: replace(ticked, `"text":"$1 another $3 $4"`)}, kind: Wrong, want: "process"},
		"a process has forgotten":      {meddler: meddler{turn: replace(ticked, `"text":"$1 $2 1 $4"`)}, kind: Wrong, want: "has executed 1 calls"},
		"an event is lost": {
			mix: Mix{Streams: 1},
			meddler: meddler{turn: func(_ *http.Response, body []byte) ([]byte, error) {
				return bytes.Replace(body, []byte(`"notifications/progress"`), []byte(`"notifications/nothing"`), 1), nil
			}},
			kind: Wrong, want: "came in the place of",
		},
		"an unknown status": {
			meddler: meddler{turn: func(r *http.Response, body []byte) ([]byte, error) {
				if ticked.Match(body) {
					r.StatusCode, r.Status = http.StatusConflict, "409 Conflict"
				}
				return body, nil
			}},
			kind: Wrong, want: "409",
		},
		"a server that is asked too much": {
			meddler: meddler{turn: func(r *http.Response, body []byte) ([]byte, error) {
				if ticked.Match(body) {
					r.StatusCode, r.Status = http.StatusServiceUnavailable, "503 Service Unavailable"
				}
				return body, nil
			}},
			kind: Refused, want: "503",
		},
		"a session has ended": {
			meddler: meddler{turn: func(r *http.Response, body []byte) ([]byte, error) {
				if strings.Contains(string(body), `/2"`) {
					r.StatusCode, r.Status = http.StatusNotFound, "404 Not Found"
				}
				return body, nil
			}},
			kind: Over, want: "404",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			options := options
			options.URL, options.Mix = test.before(t, address), test.mix
			report := until(t, options, func(r *Report) bool { return len(r.Of(test.kind)) > 0 })
			if text := report.Of(test.kind)[0].Text; !strings.Contains(text, test.want) {
				t.Errorf("%s, want %q", text, test.want)
			}
		})
	}
}
