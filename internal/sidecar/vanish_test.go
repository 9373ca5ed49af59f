package sidecar

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/test/hang"
)

// inside says that the test runs in a network of its own already.
const inside = "SLIPWAY_TEST_OWN_NETWORK"

// inOwnNetwork runs the test again in a network namespace, where it may drop packets
// and nothing has to be cleaned up. It says whether this is there.
func inOwnNetwork(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		command(t, "ip", "link", "set", "lo", "up")
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("packets can be dropped by root only")
	}
	for _, tool := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("packets cannot be dropped: %v", err)
		}
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	again.Env = append(os.Environ(), inside+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := again.CombinedOutput()
	t.Logf("in a network of its own:\n%s", out)
	if err != nil && strings.Contains(err.Error(), "operation not permitted") {
		t.Skipf("no network namespace can be had: %v", err)
	}
	if err != nil {
		t.Errorf("in a network of its own: %v", err)
	}
	return false
}

func command(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
}

// vanish has no packet of the port arrive any more, in either direction.
func vanish(t *testing.T, port int) {
	t.Helper()
	for _, end := range []string{"--sport", "--dport"} {
		command(t, "iptables", "-w", "-A", "INPUT", "-p", "tcp", end, strconv.Itoa(port), "-j", "DROP")
	}
}

// openStream opens an event stream on a connection of its own and returns its port. It
// returns no response when the session is gone.
func openStream(t *testing.T, url, session string) (response *http.Response, port int) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: false}, KeepAlive: -1}).DialContext(ctx, network, address)
		if err == nil {
			port = connection.LocalAddr().(*net.TCPAddr).Port
		}
		return connection, err
	}}
	c := &client{url: url, session: session, http: &http.Client{Transport: transport}}
	response, err := c.do(t.Context(), http.MethodGet, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	switch response.StatusCode {
	case http.StatusOK:
		return response, port
	case http.StatusNotFound:
		return nil, 0
	}
	t.Fatalf("open stream: %s", response.Status)
	return nil, 0
}

// R04: a client's machine loses power or network without sending another packet.
// The adapter stops counting its stream as use of the session.
func TestR04DeadStreamHoldsNoSession(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	t.Run("nothing on its way", func(t *testing.T) {
		listener, err := listener.ListenWith(t.Context(), "127.0.0.1:0", time.Second, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		adapter, url := startAdapterOn(t, listener, func(c *config.Config) { c.IdleTimeout = time.Second }, echoServer)
		g := gomega.NewWithT(t)
		for attempt := range 3 { // the machine may be too busy to see in time what the kernel did
			var stream *http.Response
			var port int
			began := time.Now()
			for stream == nil { // a session that was idle before the client opens its stream again
				stream, port = openStream(t, url, mustOpen(t, url).session)
			}
			if attempt == 0 { // as long as the peer is there, its silence is none: the kernel asks
				g.Consistently(adapter.env.Sessions.Len).WithTimeout(3 * time.Second).ShouldNot(gomega.BeZero())
			}
			vanish(t, port)
			g.Eventually(adapter.env.Sessions.Len).WithTimeout(hang.Guard).Should(gomega.BeZero())
			if time.Since(began) < front.KeepAliveInterval { // before the adapter has written anything
				return
			}
		}
		t.Error("a client that has vanished is not noticed before the adapter writes something")
	})
	t.Run("something on its way", func(t *testing.T) {
		listener, err := listener.ListenWith(t.Context(), "127.0.0.1:0", time.Hour, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		adapter, url := startAdapterOn(t, listener, func(c *config.Config) { c.LegacySSE = true }, echoServer)
		base := strings.TrimSuffix(url, Path)
		stream, port := openStream(t, base+"/sse", "")
		if stream == nil {
			t.Fatal("there is no stream")
		}
		first := make([]byte, 4096)
		n, err := stream.Body.Read(first)
		if err != nil {
			t.Fatal(err)
		}
		_, postTo, _ := strings.Cut(strings.TrimSpace(string(first[:n])), "data: ")
		vanish(t, port)
		c := &client{url: base + postTo, http: &http.Client{}}
		response, err := c.post(t.Context(), call(1, "echo", `"text":"anybody?"`))
		if err != nil || response.StatusCode != http.StatusAccepted {
			t.Fatalf("post: %v, %v", response, err)
		}
		_ = response.Body.Close()
		gomega.NewWithT(t).Eventually(adapter.env.Sessions.Len).WithTimeout(hang.Guard).Should(gomega.BeZero())
	})
}
