package prober

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/sidecar"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/test/hang"
)

// refusing is a launcher without room for a process.
type refusing struct{}

func (refusing) Spawn(context.Context, string) (*launcher.Process, error) {
	return nil, &launcher.RefusedError{Reason: launcher.ReasonMemory, Message: "31 of 32 MiB in use"}
}

// run starts a pod with a real adapter.
func (p *pods) adapter(name string, starter child.Starter, change func(*config.Config)) Instance {
	p.t.Helper()
	i := p.add(name, nil, nil)
	var listeners []net.Listener
	for _, port := range []int{p.clientPort, p.adminPort} {
		listener, err := net.Listen("tcp", address(i.IP, port))
		if err != nil {
			p.t.Fatal(err)
		}
		listeners = append(listeners, listener)
	}
	c := config.Defaults()
	c.Log, c.DrainTimeout = discard, 0
	held, err := keys.New(adapterapi.Keyring{Current: key}, podUID)
	if err != nil {
		p.t.Fatal(err)
	}
	c.Keys = held
	change(&c)
	adapter := sidecar.New(starter, c)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- adapter.Serve(ctx, sidecar.Ports{Clients: listeners[0], Admin: listeners[1]}) }()
	p.t.Cleanup(func() {
		adapter.Hurry()
		stop()
		if err := <-served; err != nil {
			p.t.Errorf("serve: %v", err)
		}
	})
	return i
}

// A server that has no memory for a process, or whose processes all die, is not full: the cause is
// told, and the processes are counted.
func TestServerWhoseProcessesDie(t *testing.T) {
	killed, err := launcher.NewDirect(launcher.Options{Command: []string{"sh", "-c", "kill -KILL $$"}, Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = killed.Close() })
	perSession, shared := func(*config.Config) {}, func(c *config.Config) { c.Shared = true }
	for name, test := range map[string]struct {
		starter child.Starter
		change  func(*config.Config)
		words   string
		cause   string
	}{
		"refused":         {refusing{}, perSession, "31 of 32 MiB in use", "no memory for another process"},
		"refused, shared": {refusing{}, shared, "31 of 32 MiB in use", "no memory for another process"},
		"killed":          {killed, perSession, "signal 9", "signal 9"},
		"killed, shared":  {killed, shared, "signal 9", "signal 9"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPods(t)
			p.t = t
			i := p.adapter(name, test.starter, test.change)
			// The client port alone.
			ask := newAsker(Options{ClientPort: p.clientPort, AdminPort: p.adminPort}.withDefaults())
			defer ask.close()
			ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
			defer cancel()
			if outcome, words := outcomeOf(ask.verify(ctx, i), i); outcome != Failed || !strings.Contains(words, test.words) {
				t.Errorf("the client port: got %s %q, want Failed %q", outcome, words, test.words)
			}
			// Both ports.
			var mu sync.Mutex
			outcomes := map[Outcome]bool{}
			var prober *Prober
			started := make(chan struct{})
			prober, _ = p.run(Options{Log: discard, Notify: func(server types.NamespacedName) {
				<-started
				mu.Lock()
				defer mu.Unlock()
				for _, result := range prober.Results(server) {
					outcomes[result.Outcome] = true
				}
			}})
			close(started)
			prober.Watch(serverName(name), []Instance{i})
			result := eventually(t, prober, name, "failed twice", func(r Result) bool {
				return r.Report != nil && r.Report.Failures >= 2 && r.Processes.Failed() >= 2
			})
			if result.Outcome != Failed || !strings.Contains(result.Message, test.words) || result.Processes.Cause != test.cause {
				t.Errorf("got %s %q, %+v", result.Outcome, result.Message, result.Processes)
			}
			mu.Lock()
			defer mu.Unlock()
			if outcomes[Full] {
				t.Error("it was called full")
			}
		})
	}
}
