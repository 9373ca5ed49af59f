package news

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/trust"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
	"github.com/slipway-mcp/slipway/test/hang"
)

// crowd is a Hub whose clients and processes a test plays.
type crowd struct {
	mu       sync.Mutex
	wants    []subscription.Want
	changed  chan struct{}
	heard    chan string // of the clients
	observed map[subscription.Observer][]subscription.Want
	runs     bool   // there is a process
	settling func() // waits for the processes, once; nil if they know at once
	leaving  bool
}

func newCrowd() *crowd {
	return &crowd{changed: make(chan struct{}), heard: make(chan string, 4096), observed: map[subscription.Observer][]subscription.Want{}}
}

// want has clients of no principal listen to resources.
func (c *crowd) want(uris ...string) {
	c.set(subscription.Want{Filter: subscription.Filter{URIs: uris}})
}

func (c *crowd) set(wants ...subscription.Want) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wants = wants
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *crowd) Wanted() ([]subscription.Want, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.wants), c.changed
}

func (c *crowd) Tell(principal string, changed subscription.Filter) {
	c.heard <- principal + " changed " + changed.String()
}

func (c *crowd) TellMissed(principal string, missed subscription.Filter) {
	c.heard <- principal + " missed " + missed.String()
}

// settle has the next call of Observe wait.
func (c *crowd) settle(wait func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settling = wait
}

func (c *crowd) Observe(_ context.Context, wants []subscription.Want, o subscription.Observer) ([]bool, func(), error) {
	c.mu.Lock()
	wait := c.settling
	c.settling = nil
	c.mu.Unlock()
	if wait != nil {
		wait()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving {
		return nil, nil, fault.ErrDraining
	}
	c.observed[o] = wants
	return slices.Repeat([]bool{c.runs}, len(wants)), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.observed, o)
	}, nil
}

// leave has the crowd refuse further observers.
func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true
}

// observers are those of other pods.
func (c *crowd) observers() (all []subscription.Observer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := range c.observed {
		all = append(all, o)
	}
	return all
}

// hears checks what clients are told next.
func (c *crowd) hears(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-c.heard:
		if got != want {
			t.Errorf("clients hear: %s, want %s", got, want)
		}
	case <-time.After(hang.Guard):
		t.Fatalf("clients hear of nothing, want %s", want)
	}
}

// pod is one with News, and a port for other pods.
type pod struct {
	sessionid.Owner
	*crowd
	news  *News
	relay *relay.Relay
	dials *dials
	stop  func()
}

// dials are the connections to other pods, in the order in which they were made. A test can have one stall.
type dials struct {
	mu  sync.Mutex
	all []*stalling
}

func (d *dials) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	c := &stalling{Conn: raw}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, c)
	return c, nil
}

// stallAll has all connections so far stall, and returns them.
func (d *dials) stallAll() []*stalling {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.all {
		c.gate.Lock()
	}
	return slices.Clone(d.all)
}

// stalling is a connection from which nothing is read while its gate is locked, and nothing any more once it is closed.
type stalling struct {
	net.Conn
	gate   sync.Mutex
	closed atomic.Bool
}

// Read implements net.Conn.
func (c *stalling) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.gate.Lock()
	defer c.gate.Unlock()
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	return n, err
}

// Close implements net.Conn.
func (c *stalling) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

var testKey = adapterapi.NewKey()

// listed are the pods of a server, as their lists have them.
type listed struct {
	mu   sync.Mutex
	pods []sessionid.Owner
	next chan struct{}
}

func (l *listed) others(self [16]byte) (others []sessionid.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, pod := range l.pods {
		if pod.UID != self {
			others = append(others, pod)
		}
	}
	return others
}

func (l *listed) nextList() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

func (l *listed) set(pods ...sessionid.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pods = pods
	close(l.next)
	l.next = make(chan struct{})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// startPod starts a pod. next answers other requests than those for news.
func startPod(t *testing.T, uid byte, list *listed, handle func(*News) http.Handler) *pod {
	t.Helper()
	l := listen(t)
	p := &pod{Owner: sessionid.Owner{UID: [16]byte{uid}, Address: l.Addr().(*net.TCPAddr).AddrPort()}, crowd: newCrowd(), dials: &dials{}}
	trusts := trust.New(func() adapterapi.Keyring { return adapterapi.Keyring{Current: testKey} }, p.UID)
	p.relay = relay.New(relay.Options{Handshake: trusts.Handshake, WriteTimeout: hang.Guard, Limits: Limits(), Dial: p.dials.dial})
	p.news = New(Options{
		Hub: p.crowd, Others: func() []sessionid.Owner { return list.others(p.UID) }, Next: list.nextList, Relay: p.relay, Log: logr.Discard(),
	})
	server := &http.Server{Handler: handle(p.news), ReadHeaderTimeout: hang.Guard}
	go func() { _ = server.Serve(trust.Listen(l, trusts, logr.Discard())) }()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.news.Run(ctx)
	}()
	p.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		_ = server.Close()
		p.relay.Close()
	})
	t.Cleanup(p.stop)
	return p
}

// tells is the handler of a pod with news.
func tells(n *News) http.Handler { return n.Handler(http.HandlerFunc(answerPing)) }

func answerPing(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == relay.PingPath {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.WriteHeader(http.StatusNotFound)
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(hang.Guard); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
