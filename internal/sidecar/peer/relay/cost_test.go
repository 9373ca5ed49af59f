package relay

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/trust"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// cannedOwner answers every request in the same way, and allocates nothing for it.
func cannedOwner(t testing.TB) sessionid.Owner {
	t.Helper()
	l := trust.Listen(listen(t), newPod(testUID, testKey), logr.Discard())
	body := strings.Repeat("x", 200)
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Sun, 01 Jan 2023 00:00:00 GMT\r\nContent-Length: 200\r\n\r\n" + body)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				buffer := make([]byte, 8192)
				for {
					if _, err := c.Read(buffer); err != nil { // requests are one record
						return
					}
					if _, err := c.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return sessionid.Owner{UID: testUID, Address: addressOf(l)}
}

// call is like what a client of the adapter sends.
func call() *Request {
	return &Request{
		Method: "POST", Target: "/mcp", Host: "server.example.com", Body: bytes.Repeat([]byte("x"), 200),
		Header: http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "User-Agent": {"test"},
			"Mcp-Session-Id": {strings.Repeat("x", 110)}, "Mcp-Protocol-Version": {"2025-06-18"}, "Slipway-Peer-Client": {"10.0.0.1"},
		},
	}
}

// discard is the client's end.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// TestAllocations: http.ReadResponse has most of them.
func TestAllocations(t *testing.T) {
	to := cannedOwner(t)
	r := New(Options{Handshake: handshake, Limits: patient(Limits{})})
	t.Cleanup(r.Close)
	request, w := call(), &discard{http.Header{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := testing.AllocsPerRun(1000, func() {
		if err := r.Forward(ctx, w, to, request); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%v allocations", got)
	if got > 30 {
		t.Errorf("%v allocations for a call, want 30 at most", got)
	}
	if n := r.Dials(Connected); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// BenchmarkStale is what it costs to know that the owner has not closed an idle connection.
func BenchmarkStale(b *testing.B) {
	to := cannedOwner(b)
	r := New(Options{Handshake: handshake})
	b.Cleanup(r.Close)
	if err := r.Forward(b.Context(), &discard{http.Header{}}, to, call()); err != nil {
		b.Fatal(err)
	}
	c := r.pods[to].idle[0]
	b.ReportAllocs()
	begin := cpuTime()
	for b.Loop() {
		if c.isStale() {
			b.Fatal("stale")
		}
	}
	reportCPU(b, begin)
}

// BenchmarkHop compares the relay with a bare httputil.ReverseProxy, and both with no hop.
func BenchmarkHop(b *testing.B) {
	small, large := bytes.Repeat([]byte("x"), 200), make([]byte, 1<<20)
	o := startOwner(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		body := small
		if r.URL.Path == "/large" {
			body = large
			w.Header().Set("Content-Length", "1048576")
		}
		_, _ = w.Write(body)
	})
	direct := httptest.NewServer(o.server.Handler)
	b.Cleanup(direct.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		raw, err := dialTCP(ctx, o.Address)
		if err != nil {
			return nil, err
		}
		return handshake(ctx, raw, testUID)
	}}
	target, _ := url.Parse("https://" + o.Address.String())
	bare := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without this, Transport may read the body once more after net/http has closed it, and then
		// closes its connection under the answer.
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		bare.ServeHTTP(w, r)
	}))
	b.Cleanup(proxy.Close)
	b.Cleanup(transport.CloseIdleConnections)
	e := startEntry(b, o.Owner, Options{Handshake: handshake})
	for _, path := range []string{"/small", "/large"} {
		for _, way := range []struct{ name, url string }{{"direct", direct.URL}, {"relay", e.URL}, {"ReverseProxy", proxy.URL}} {
			b.Run(path[1:]+"/"+way.name, func(b *testing.B) { benchmarkCalls(b, way.url+path) })
		}
	}
}

func benchmarkCalls(b *testing.B, target string) {
	b.Helper()
	body := strings.Repeat("x", 200)
	b.ReportAllocs()
	begin := cpuTime()
	for b.Loop() {
		response, err := http.Post(target, "application/json", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			b.Fatal(response.StatusCode, err)
		}
	}
	reportCPU(b, begin)
}

// cpuTime is what the process has used so far. Unlike the time on the clock, it says something on a busy
// machine.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func reportCPU(b *testing.B, begin time.Duration) {
	b.Helper()
	b.ReportMetric(float64(cpuTime()-begin)/float64(b.N), "cpu-ns/op")
}
