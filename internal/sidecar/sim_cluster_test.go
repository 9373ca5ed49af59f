package sidecar

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/document"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
)

const (
	simClientPort = 8080
	simPeerPort   = 16272
	simAdminPort  = 16271
	// simPoll is how often the manager asks each pod, and so renews its list.
	simPoll = 10 * time.Second
	// simDoubt is after which the manager calls a pod unreachable.
	simDoubt = 3 * time.Second
)

// simPod is a pod with a real adapter.
type simPod struct {
	uid  [16]byte
	host *simHost

	mu          sync.Mutex // guards the rest
	adapter     *Adapter   // nil while its container is down
	container   *simLauncher
	stop        func()
	terminating bool
	gone        bool      // from the API
	vanished    bool      // from its node
	lostSince   time.Time // when the manager last began not to reach it; zero if it does
}

// simCluster is several pods of one server, with the network between them, the kubelet and the manager.
type simCluster struct {
	t       *testing.T
	net     *simNet
	random  *rand.Rand // of the schedule; for the goroutine that makes it
	ledger  *simLedger
	ring    adapterapi.Keyring
	keys    *keys.Keys // that read ids
	manager *simHost
	began   time.Time
	running sync.WaitGroup
	over    context.Context

	mu         sync.Mutex
	pods       []*simPod // that the API has
	all        []*simPod
	free       []netip.Addr // addresses of pods that are gone
	numbers    int
	generation int64
	deaf       time.Duration // how long pushes take
	stopped    bool          // the manager does not run
	log        []string
}

func newSimCluster(ctx context.Context, t *testing.T, random *rand.Rand, pods int) *simCluster {
	t.Helper()
	n := newSimNet(rand.New(rand.NewPCG(random.Uint64(), 1)))
	c := &simCluster{
		t: t, net: n, random: random, ledger: newSimLedger(), ring: adapterapi.Keyring{Current: adapterapi.NewKey()},
		manager: n.attach("manager", netip.MustParseAddr("10.9.0.1")), began: time.Now(), over: ctx,
	}
	held, err := keys.New(c.ring, "")
	if err != nil {
		t.Fatal(err)
	}
	c.keys = held
	for range pods {
		c.addPod()
	}
	c.running.Go(c.poll)
	return c
}

// note writes a line of the schedule.
func (c *simCluster) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, fmt.Sprintf("%7.3f s  ", time.Since(c.began).Seconds())+fmt.Sprintf(format, args...))
}

func (c *simCluster) schedule() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.log, "\n")
}

// addPod starts a pod. It may get the address of one that is gone.
func (c *simCluster) addPod() {
	c.mu.Lock()
	c.numbers++
	address := netip.AddrFrom4([4]byte{10, 0, byte(c.numbers >> 8), byte(c.numbers)})
	if len(c.free) > 0 && c.numbers%2 == 0 {
		address, c.free = c.free[0], c.free[1:]
	}
	p := &simPod{uid: [16]byte{byte(c.numbers >> 8), byte(c.numbers), 0xaa}, host: c.net.attach(fmt.Sprint("pod ", c.numbers), address)}
	c.pods, c.all = append(c.pods, p), append(c.all, p)
	c.mu.Unlock()
	c.start(p)
	c.note("%s starts at %s", p.host.name, address)
	c.push()
}

// start runs the adapter of a pod.
func (c *simCluster) start(p *simPod) {
	cfg := config.Defaults()
	cfg.Log, cfg.Peers, cfg.Warm, cfg.MaxSessions = logr.Discard(), true, 0, 100
	cfg.Owner.UID, cfg.Owner.Address = p.uid, netip.AddrPortFrom(p.host.address, simPeerPort)
	cfg.DrainTimeout = 20 * time.Second
	held, err := keys.New(c.ring, hex.EncodeToString(p.uid[:]))
	if err != nil {
		c.t.Error(err)
		return
	}
	cfg.Keys = held
	cfg.DialPeer = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) { return c.net.dial(ctx, p.host, to) }
	container := &simLauncher{}
	a := newAdapter(container, cfg, newSimBackend(c.ledger, container))
	a.tuneHeap = func(context.Context) {}
	ctx, cancel := context.WithCancel(context.Background())
	ports := Ports{Clients: c.net.listen(p.host, simClientPort), Admin: c.net.listen(p.host, simAdminPort), Peers: c.net.listen(p.host, simPeerPort)}
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx, ports) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.adapter, p.container = a, container
	p.stop = sync.OnceFunc(func() {
		c.net.closeAll(p.host) // as the kernel does for a program that is killed
		a.Hurry()
		cancel()
		_ = a.clients.Close()
		<-served // an error of a port that is closed
		container.setAway(true)
	})
}

// kill ends the adapter of a pod at once, with all of its sessions.
func (c *simCluster) kill(p *simPod) {
	p.mu.Lock()
	stop := p.stop
	p.adapter, p.stop = nil, nil
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// remove takes a pod out of the API, as the kubelet or a deletion by force does.
func (c *simCluster) remove(p *simPod) {
	p.mu.Lock()
	was := p.gone
	p.gone = true
	p.mu.Unlock()
	if was {
		return
	}
	c.mu.Lock()
	c.pods = slices.DeleteFunc(c.pods, func(other *simPod) bool { return other == p })
	c.mu.Unlock()
	c.push()
}

// vanish cuts off the network of a pod and then ends its processes, so that no host notices the end.
func (c *simCluster) vanish(p *simPod) {
	p.mu.Lock()
	was := p.vanished
	p.vanished = true
	p.mu.Unlock()
	if was {
		return
	}
	c.net.detach(p.host)
	c.kill(p)
	c.mu.Lock()
	c.free = append(c.free, p.host.address)
	c.mu.Unlock()
}

// drain is a deletion in good order.
func (c *simCluster) drain(p *simPod) {
	p.mu.Lock()
	a := p.adapter
	p.terminating = true
	p.mu.Unlock()
	c.push()
	if a != nil {
		a.Leave()
		select {
		case <-a.Drained():
		case <-c.over.Done():
		}
	}
	c.kill(p)
	c.vanish(p)
	c.remove(p)
	c.note("%s has drained", p.host.name)
}

// list is the list of pods as the manager has it now.
func (c *simCluster) list() (adapterapi.Document, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	list := adapterapi.Peers{Version: adapterapi.PeersVersion, Generation: c.generation, Pods: []adapterapi.PeerPod{{UID: hex.EncodeToString(make([]byte, 16))}}}
	for _, p := range c.pods {
		p.mu.Lock()
		list.Pods = append(list.Pods, adapterapi.PeerPod{
			UID: hex.EncodeToString(p.uid[:]), Address: netip.AddrPortFrom(p.host.address, simPeerPort).String(), Ready: p.adapter != nil && !p.terminating,
			Verified: true, Newest: true, Terminating: p.terminating, Doubted: !p.lostSince.IsZero() && time.Since(p.lostSince) >= simDoubt, Limit: 100,
		})
		p.mu.Unlock()
	}
	return list.Encode()
}

// push sends the list to all pods. Each push takes its own time, so they may overtake each other.
func (c *simCluster) push() {
	c.mu.Lock()
	stopped, deaf := c.stopped, c.deaf
	c.mu.Unlock()
	if stopped {
		return
	}
	text, err := c.list()
	if err != nil {
		c.t.Error(err)
		return
	}
	for _, p := range c.snapshot() {
		delay := time.Duration(rand.Int64N(int64(200*time.Millisecond + deaf)))
		c.running.Go(func() {
			select {
			case <-time.After(delay):
				c.give(p, []byte(text.Text))
			case <-c.over.Done():
			}
		})
	}
}

// give hands a list to a pod, unless it is lost on the way.
func (c *simCluster) give(p *simPod, text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.adapter == nil || c.net.blocked(c.manager, p.host) {
		return
	}
	if err := p.adapter.peers.roster.Take(text); err != nil && !errors.Is(err, document.ErrOlder) {
		c.t.Error(err)
	}
}

func (c *simCluster) snapshot() []*simPod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.pods)
}

// poll is the manager: every second it looks which pods it reaches, and every ten it renews its list.
func (c *simCluster) poll() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-tick.C:
		case <-c.over.Done():
			return
		}
		c.mu.Lock()
		stopped := c.stopped
		c.mu.Unlock()
		if stopped {
			continue
		}
		changed := false
		for _, p := range c.snapshot() {
			changed = c.look(p) || changed
		}
		if changed || n%int(simPoll/time.Second) == 0 {
			c.push()
		}
	}
}

// look says whether what the manager thinks of a pod has changed.
func (c *simCluster) look(p *simPod) bool {
	reached := !c.net.blocked(c.manager, p.host)
	p.mu.Lock()
	defer p.mu.Unlock()
	before := !p.lostSince.IsZero() && time.Since(p.lostSince) >= simDoubt+time.Second
	switch {
	case reached:
		p.lostSince = time.Time{}
		return before
	case p.lostSince.IsZero():
		p.lostSince = time.Now()
	}
	return !before && time.Since(p.lostSince) >= simDoubt
}

// stranger runs a program that is none of ours at an address.
func (c *simCluster) stranger(address netip.Addr) {
	h := c.net.attach("stranger", address)
	l := c.net.listen(h, simPeerPort)
	c.running.Go(func() {
		<-c.over.Done()
		c.net.closeAll(h)
	})
	c.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.running.Go(func() {
				text := make([]byte, 4<<10)
				n, _ := conn.Read(text)
				if strings.Contains(string(text[:n]), "HTTP/1.1") {
					c.t.Errorf("a stranger has read a request: %q", text[:n])
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
				_ = conn.Close()
			})
		}
	})
}

// close ends everything.
func (c *simCluster) close() {
	for _, p := range c.all {
		c.kill(p)
	}
	c.running.Wait()
	// An adapter that ends leaves to its process what ends by itself soon, such as a look at a pod that does not answer.
	// What is still there after this blocks forever, and synctest reports it.
	time.Sleep(time.Minute)
}
