package trust

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// Two pods of one server connect, and each sees which pod the other is.
func TestPodsSeeEachOther(t *testing.T) {
	t.Parallel()
	ring := ringOf(adapterapi.NewKey())
	there := open(t, New(ring, red))
	for range 2 { // the second time both have their certificates
		if err := greet(t, New(ring, blue), there, red); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(greeting{blue, hello}, <-there.got); diff != "" {
			t.Errorf("the port has got (-want +got):\n%s", diff)
		}
	}
}

// A pod that restarts its adapter has a new key, and the same UID.
func TestPodAfterRestart(t *testing.T) {
	t.Parallel()
	ring := ringOf(adapterapi.NewKey())
	dialer := New(ring, blue)
	for range 2 {
		if err := greet(t, dialer, open(t, New(ring, red)), red); err != nil {
			t.Error(err)
		}
	}
}

// While a key is rotated, pods that are one step apart connect both ways. They use the configuration
// that they had before the first step.
func TestRotation(t *testing.T) {
	t.Parallel()
	before, after := adapterapi.NewKey(), adapterapi.NewKey()
	steps := []struct {
		name string
		ring adapterapi.Keyring
	}{
		{"before", adapterapi.Keyring{Current: before}},
		{"added", adapterapi.Keyring{Current: before, Accepted: []adapterapi.Key{after}}},
		{"switched", adapterapi.Keyring{Current: after, Accepted: []adapterapi.Key{before}}},
		{"dropped", adapterapi.Keyring{Current: after}},
	}
	var here, there atomic.Int32 // the steps of the two pods
	pod := func(step *atomic.Int32, uid [16]byte) *Trust {
		return New(func() adapterapi.Keyring { return steps[step.Load()].ring }, uid)
	}
	dialer, acceptor := pod(&here, blue), open(t, pod(&there, red))
	for i := range steps {
		for j := range steps {
			here.Store(int32(i))
			there.Store(int32(j))
			err := greet(t, dialer, acceptor, red)
			if near := i-j <= 1 && j-i <= 1; near && err != nil {
				t.Errorf("%s dials %s: %v", steps[i].name, steps[j].name, err)
			}
			if i+j == 3 && (i == 0 || j == 0) && !errors.Is(err, ErrStranger) {
				t.Errorf("%s dials %s, which has no key of it: %v", steps[i].name, steps[j].name, err)
			}
		}
	}
}

// An acceptor that does not know the dialer's key is no stranger: it proves who it is, and refuses.
func TestAcceptorWithoutDiallersKey(t *testing.T) {
	t.Parallel()
	shared, own := adapterapi.NewKey(), adapterapi.NewKey()
	there := open(t, New(ringOf(shared), red))
	if err := greet(t, New(ringOf(own, shared), blue), there, red); err == nil || errors.Is(err, ErrStranger) {
		t.Errorf("got %v, want an error that is no ErrStranger", err)
	}
	there.closeEmpty(t)
}

// A connection is never one that was resumed: it is checked against the ring as it is.
func TestNothingIsResumed(t *testing.T) {
	t.Parallel()
	ring := ringOf(adapterapi.NewKey())
	there := open(t, New(ring, red))
	config := New(ring, blue).client(red)
	config.ServerName, config.ClientSessionCache = "peer", tls.NewLRUClientSessionCache(8)
	for range 2 {
		conn := tls.Client(dial(t, there), config)
		if err := exchange(conn); err != nil {
			t.Fatal(err)
		}
		if conn.ConnectionState().DidResume {
			t.Error("the second connection resumes the first")
		}
	}
}

// Pods connect whatever the clock of their machine says, now and when they made their certificates.
func TestClocksDoNotCount(t *testing.T) {
	t.Parallel()
	ring := ringOf(adapterapi.NewKey())
	now := New(ring, blue)
	leafOf(t, now)
	synctest.Test(t, func(t *testing.T) { // which begins in the year 2000
		early := New(ring, blue)
		leafOf(t, early)
		time.Sleep(60 * 365 * 24 * time.Hour)
		port := newPipes()
		there := Listen(port, New(ring, red), logr.Discard())
		defer func() { _ = there.Close() }()
		for name, pod := range map[string]*Trust{"now": now, "2000": early, "2060": New(ring, blue)} {
			conn, err := pod.Handshake(t.Context(), port.dial(), red)
			if err != nil {
				t.Errorf("a pod whose certificate is of %s dials: %v", name, err)
				continue
			}
			if other, err := there.Accept(); err != nil || other.(*tls.Conn).NetConn().Close() != nil {
				t.Errorf("a pod whose certificate is of %s is accepted: %v", name, err)
			}
			_ = conn.NetConn().Close()
		}
	})
	for _, year := range []int{1, 1980, 2050, 12000} { // also when crypto/tls asks for the time
		clock := func() time.Time { return time.Date(year, time.June, 1, 0, 0, 0, 0, time.UTC) }
		client, server := New(ring, blue).client(red), New(ring, red).server()
		client.Time, server.Time = clock, clock
		a, b := net.Pipe()
		served := make(chan error, 1)
		go func() { served <- tls.Server(b, server).HandshakeContext(t.Context()) }()
		if err := errors.Join(tls.Client(a, client).HandshakeContext(t.Context()), <-served); err != nil {
			t.Errorf("in the year %d: %v", year, err)
		}
	}
}

// Only the fixed time counts: a certificate that is valid then, and long expired by the clock, is good.
func TestCertificatesAreVerifiedAtOneTime(t *testing.T) {
	t.Parallel()
	key := adapterapi.NewKey()
	pod := New(ringOf(key), red)
	ca, caKey, err := newCA(key)
	if err != nil {
		t.Fatal(err)
	}
	template := *leafOf(t, pod).Leaf
	template.NotBefore, template.NotAfter = verifyAt.AddDate(-1, 0, 0), verifyAt.AddDate(1, 0, 0)
	leaf, err := sign(&template, ca, pod.key.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := pod.credentials()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := credentials.verify([]*x509.Certificate{leaf}); err != nil || got != red {
		t.Errorf("got pod %x, %v", got, err)
	}
}

// Pods of different versions must agree on the CA of a key.
func TestCAIsStable(t *testing.T) {
	t.Parallel()
	key, err := adapterapi.ParseKey("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")
	if err != nil {
		t.Fatal(err)
	}
	ca, _, err := newCA(key)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{
		"public key": hex.EncodeToString(ca.PublicKey.(ed25519.PublicKey)),
		"key id":     hex.EncodeToString(ca.SubjectKeyId),
		"subject":    ca.Subject.String(),
	}
	want := map[string]string{
		"public key": "40bc5b05987426a547ad21799b708ed7a23380461383b48f823cd472dee7e145",
		"key id":     "d8567bb96c61881570cf840f8b520df780c8b3ff",
		"subject":    "CN=slipway peers",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CA (-want +got):\n%s", diff)
	}
	if again, _, err := newCA(key); err != nil || !slices.Equal(ca.Raw, again.Raw) {
		t.Errorf("the CA of the same key is another one: %v", err)
	}
}

// A pod makes a new certificate only when the ring changes.
func TestCertificateIsKept(t *testing.T) {
	t.Parallel()
	var ring atomic.Pointer[adapterapi.Keyring]
	ring.Store(&adapterapi.Keyring{Current: adapterapi.NewKey()})
	pod := New(func() adapterapi.Keyring { return *ring.Load() }, red)
	first := leafOf(t, pod)
	ring.Store(&adapterapi.Keyring{Current: ring.Load().Current})
	if leafOf(t, pod) != first {
		t.Error("the pod has another certificate for the same ring")
	}
	ring.Store(&adapterapi.Keyring{Current: adapterapi.NewKey()})
	if leafOf(t, pod) == first {
		t.Error("the pod has the same certificate for another ring")
	}
}

// Both sides send full records from the first one on.
func TestLargeRecords(t *testing.T) {
	t.Parallel()
	ring := ringOf(adapterapi.NewKey())
	a, b := net.Pipe()
	near, far := &counted{Conn: a}, &counted{Conn: b}
	accepted := make(chan *tls.Conn, 1)
	go func() {
		conn := tls.Server(far, New(ring, red).server())
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Error(err)
		}
		accepted <- conn
	}()
	dialed, err := New(ring, blue).Handshake(t.Context(), near, red)
	if err != nil {
		t.Fatal(err)
	}
	record := make([]byte, 16<<10) // the largest that TLS has
	send := func(name string, from, to *tls.Conn, raw *counted) {
		raw.writes.Store(0)
		go func() { _, _ = from.Write(record) }()
		if _, err := io.ReadFull(to, make([]byte, len(record))); err != nil {
			t.Error(err)
		}
		if n := raw.writes.Load(); n != 1 {
			t.Errorf("the %s sends %d records, want 1", name, n)
		}
	}
	acceptor := <-accepted
	send("dialer", dialed, acceptor, near)
	send("acceptor", acceptor, dialed, far)
}

// counted counts its writes, which are one for each record after the handshake.
type counted struct {
	net.Conn
	writes atomic.Int32
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// BenchmarkHandshake is one connection between two pods, the work of both.
func BenchmarkHandshake(b *testing.B) {
	ring := ringOf(adapterapi.NewKey())
	client, server := New(ring, blue), New(ring, red).server()
	b.ReportAllocs()
	for b.Loop() {
		here, there := net.Pipe()
		served := make(chan error, 1)
		go func() { served <- tls.Server(there, server).HandshakeContext(b.Context()) }()
		_, err := client.Handshake(b.Context(), here, red)
		if err := errors.Join(err, <-served); err != nil {
			b.Fatal(err)
		}
	}
}
