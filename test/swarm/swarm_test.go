package swarm

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/adapter"
	"github.com/slipway-mcp/slipway/test/hang"
	"github.com/slipway-mcp/slipway/test/servers"
)

var sidecar, echo string

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, map[string]*string{"cmd/sidecar": &sidecar, "test/servers/echo": &echo}))
}

var everything = Mix{Calls: 4, Streams: 1, Cancelled: 1, Questions: 1}

// until runs a swarm until it has seen enough.
func until(t *testing.T, url string, mix Mix, enough func(*Report) bool) *Report {
	t.Helper()
	s := Start(t.Context(), Options{URL: url, Clients: 4, Pause: time.Millisecond, Mix: mix, Patience: hang.Guard, Seed: 1})
	defer s.Stop()
	for deadline := time.Now().Add(hang.Guard); !enough(s.Report()); {
		if time.Now().After(deadline) {
			t.Fatalf("the swarm has not seen enough: %s", s.Report())
		}
		time.Sleep(time.Millisecond)
	}
	return s.Stop()
}

func TestNothingIsWrong(t *testing.T) {
	report := until(t, adapter.Start(t, sidecar, "--", echo), everything, func(r *Report) bool {
		return r.Calls > 100 && r.Streams > 10 && r.Resumed > 5 && r.Cancelled > 10 && r.Questions > 10
	})
	if len(report.Incidents) > 0 {
		t.Errorf("%s: %v", report, report.Incidents)
	}
	if report.Sessions != 4 {
		t.Errorf("%d sessions of 4 clients", report.Sessions)
	}
}

// What a swarm must notice is done by a proxy to the answers and requests of a real adapter.
func TestMischiefIsNoticed(t *testing.T) {
	address := adapter.Start(t, sidecar, "--", echo)
	target, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		mix  Mix
		meet func(r *http.Request, body []byte) // sees each request
		turn func(r *http.Response, body []byte) error
		kind Kind
		want string
	}{
		"a call is executed twice": {
			meet: func(r *http.Request, body []byte) {
				if !bytes.Contains(body, []byte(`"name":"tick"`)) {
					return
				}
				if again, err := http.NewRequestWithContext(r.Context(), http.MethodPost, address, bytes.NewReader(bytes.Replace(body, []byte(`"id":`), []byte(`"id":7`), 1))); err == nil {
					again.Header = r.Header.Clone()
					if response, err := http.DefaultClient.Do(again); err == nil {
						_ = response.Body.Close()
					}
				}
			},
			kind: Wrong, want: ",again",
		},
		"an answer of another call": {
			turn: func(r *http.Response, body []byte) error {
				r.Body = io.NopCloser(bytes.NewReader(bytes.Replace(body, []byte("/2"), []byte("/9"), 1)))
				return nil
			},
			kind: Wrong, want: "tick answered",
		},
		"an answer of another process": {
			turn: func(r *http.Response, body []byte) error {
				words := strings.Split(string(body), " ")
				if len(words) == 4 && strings.Contains(words[3], "/3") {
					words[1] = "another"
				}
				r.Body = io.NopCloser(strings.NewReader(strings.Join(words, " ")))
				return nil
			},
			kind: Wrong, want: "process",
		},
		"an event is lost": {
			mix: Mix{Streams: 1},
			turn: func(r *http.Response, body []byte) error {
				r.Body = io.NopCloser(bytes.NewReader(bytes.Replace(body, []byte(`"notifications/progress"`), []byte(`"notifications/nothing"`), 1)))
				return nil
			},
			kind: Wrong, want: "came in the place of",
		},
		"a session has ended": {
			turn: func(r *http.Response, body []byte) error {
				if strings.Contains(string(body), "/2") {
					r.StatusCode, r.Status = http.StatusNotFound, "404 Not Found"
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				return nil
			},
			kind: Over, want: "404",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			proxy := &httputil.ReverseProxy{
				Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.URL.Path = target.Path },
				ModifyResponse: func(r *http.Response) error {
					if test.turn == nil || r.Request.Method == http.MethodDelete {
						return nil
					}
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return err
					}
					r.Header.Del("Content-Length")
					r.ContentLength = -1
					return test.turn(r, body)
				},
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return // the swarm has ended
				}
				if test.meet != nil {
					test.meet(r, body)
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				proxy.ServeHTTP(w, r)
			}))
			defer server.Close()
			mix := test.mix
			if mix == (Mix{}) {
				mix = Mix{Calls: 1}
			}
			report := until(t, server.URL+"/mcp", mix, func(r *Report) bool { return len(r.Of(test.kind)) > 0 })
			if text := report.Of(test.kind)[0].Text; !strings.Contains(text, test.want) {
				t.Errorf("%s, want %q", text, test.want)
			}
		})
	}
}
