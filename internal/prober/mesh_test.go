package prober

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
)

// proxy is a port as a mesh with strict mTLS has it: it accepts a connection, reads what comes and
// closes it, after it has said something or nothing.
func (p *pods) proxy(ip string, port int, reset bool, says string) {
	p.t.Helper()
	listener, err := net.Listen("tcp", address(ip, port))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				if !reset {
					_, _ = conn.Read(make([]byte, 64<<10))
				}
				_, _ = io.WriteString(conn, says)
				if reset {
					_ = conn.(*net.TCPConn).SetLinger(0)
				}
				_ = conn.Close()
			}()
		}
	}()
}

// A mesh that keeps the manager out does not make a server broken, and a broken adapter is not taken
// for a mesh.
func TestMesh(t *testing.T) {
	p := newPods(t)
	prober, stop := p.run(Options{Log: discard})
	defer stop()
	ready, notReady := adapter(keeper.State{Ready: true}), adapter(keeper.State{Reason: "Exited", Err: io.ErrUnexpectedEOF})
	type port struct {
		handler http.Handler // nil if there is none
		closes  bool
		reset   bool
		says    string
	}
	closes, resets := port{closes: true}, port{closes: true, reset: true}
	const advice = "exclude ports 16270 and 16271 from the mesh"
	for name, test := range map[string]struct {
		client, admin port
		want          Outcome
		words         string
	}{
		"both ports close":                      {closes, closes, Unreachable, advice},
		"both ports reset":                      {resets, resets, Unreachable, advice},
		"one closes, one resets":                {closes, resets, Unreachable, advice},
		"the admin port is not in the mesh":     {closes, port{handler: ready}, Unreachable, advice},
		"the same, by reset":                    {resets, port{handler: ready}, Unreachable, advice},
		"the admin port says that it is broken": {closes, port{handler: notReady}, Failed, "unexpected EOF"},
		"no process listens at the admin port":  {closes, port{}, Failed, "Closed"},
		"another server is at the admin port":   {closes, port{handler: http.NotFoundHandler()}, Failed, "Closed"},
		"the admin port is silent":              {closes, port{handler: mute}, Failed, "Closed"},
		"the admin port breaks off":             {closes, port{closes: true, says: "HTTP/1.1 200 OK\r\n"}, Failed, "Closed"},
		"the answer breaks off":                 {port{closes: true, says: "HTTP/1.1 200 OK\r\n"}, closes, Failed, "Closed"},
	} {
		t.Run(name, func(t *testing.T) {
			i := p.add(name, test.client.handler, test.admin.handler)
			i.Timeout = 2 * time.Second // that a silent port takes
			for number, port := range map[int]port{p.clientPort: test.client, p.adminPort: test.admin} {
				if port.closes {
					p.proxy(i.IP, number, port.reset, port.says)
				}
			}
			prober.Watch(serverName(name), []Instance{i})
			eventually(t, prober, name, "an outcome", func(r Result) bool { return r.Outcome != Pending })
			for _, got := range prober.Results(serverName(name)) {
				if got.Outcome != test.want || !strings.Contains(got.Message, test.words) {
					t.Errorf("got %s %q, want %s %q", got.Outcome, got.Message, test.want, test.words)
				}
			}
			prober.Watch(serverName(name), nil)
		})
	}
}
