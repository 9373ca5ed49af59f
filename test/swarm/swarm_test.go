package swarm

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
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

// goMakes are those that need nothing but Go.
var goMakes = map[Make]Clients{Raw: {Raw: 4}, GoSDK: {GoSDK: 4}}

// until runs a swarm until it has seen enough.
func until(t *testing.T, options Options, enough func(*Report) bool) *Report {
	t.Helper()
	options.Pause, options.Patience, options.Seed = time.Millisecond, hang.Guard, 1
	s, err := Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	for deadline := time.Now().Add(hang.Guard); !enough(s.Report()); {
		if time.Now().After(deadline) {
			t.Fatalf("the swarm has not seen enough: %s: %v", s.Report(), s.Report().Incidents)
		}
		time.Sleep(time.Millisecond)
	}
	return s.Stop()
}

// replicas are adapters of one server, of which each connection reaches the next.
func replicas(t *testing.T, number int) (address string, dial func(context.Context, string, string) (net.Conn, error)) {
	t.Helper()
	var addresses []string
	for _, one := range adapter.Replicas(t, sidecar, number, "--", echo) {
		at, err := url.Parse(one.URL)
		if err != nil {
			t.Fatal(err)
		}
		address, addresses = one.URL, append(addresses, at.Host)
	}
	var next atomic.Uint64
	return address, func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addresses[next.Add(1)%uint64(number)])
	}
}

// Every make finds nothing wrong at three replicas.
func expectNothingWrong(t *testing.T, options Options) {
	t.Helper()
	options.URL, options.Dial = replicas(t, 3)
	options.Mix = everything
	report := until(t, options, func(r *Report) bool {
		return r.Calls > 100 && r.Streams > 10 && r.Resumed > 5 && r.Cancelled > 10 && r.Questions > 10
	})
	if len(report.Incidents) > 0 {
		t.Errorf("%s: %v", report, report.Incidents)
	}
	if report.Sessions != options.Clients.Number() {
		t.Errorf("%d sessions of %d clients", report.Sessions, options.Clients.Number())
	}
	t.Log(report)
}

func TestNothingIsWrong(t *testing.T) {
	for name, clients := range goMakes {
		t.Run(string(name), func(t *testing.T) { expectNothingWrong(t, Options{Clients: clients}) })
	}
}

func TestMischiefIsNoticed(t *testing.T) {
	for name, clients := range goMakes {
		t.Run(string(name), func(t *testing.T) { expectNoticed(t, Options{Clients: clients}) })
	}
}

func TestLostAnswers(t *testing.T) {
	for name, clients := range goMakes {
		t.Run(string(name), func(t *testing.T) { expectUnknownFates(t, Options{Clients: clients}) })
	}
}

// A client whose call has an unknown fate goes on in its session, whether the call was executed or not.
func expectUnknownFates(t *testing.T, options Options) {
	t.Helper()
	var asked, answered atomic.Int64
	options.URL = meddler{
		meet: func(_ *http.Request, body []byte) {
			if bytes.Contains(body, []byte(`"name":"tick"`)) && asked.Add(1)%8 == 0 {
				panic(http.ErrAbortHandler) // before the server is asked
			}
		},
		turn: func(_ *http.Response, body []byte) ([]byte, error) {
			if tick.Match(body) && answered.Add(1)%5 == 0 {
				return nil, io.ErrUnexpectedEOF // after it has answered
			}
			return body, nil
		},
		fail: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}.start(t)
	report := until(t, options, func(r *Report) bool { return r.Calls > 100 && len(r.Of(Broken)) > 10 })
	if other := report.Of(Wrong, Over, Refused, Abandoned, Unasked); len(other) > 0 {
		t.Errorf("%s: %v", report, other)
	}
}
