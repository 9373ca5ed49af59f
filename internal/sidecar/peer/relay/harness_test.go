package relay

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// authority signs the certificates of one server's pods.
type authority struct {
	cert *x509.Certificate
	key  ed25519.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(100, 0, 0), NotBefore: time.Unix(0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.key = private
	a.pool.AddCert(a.cert)
	return a
}

func podURI(uid [16]byte) *url.URL {
	return &url.URL{Scheme: "slipway", Host: "pod", Path: "/" + hex.EncodeToString(uid[:])}
}

// leaf is the certificate of a pod.
func (a *authority) leaf(t testing.TB, uid [16]byte) tls.Certificate {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().AddDate(100, 0, 0), NotBefore: time.Unix(0, 0),
		URIs:        []*url.URL{podURI(uid)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

// server is the configuration of a pod's port.
func (a *authority) server(t testing.TB, uid [16]byte) *tls.Config {
	t.Helper()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{a.leaf(t, uid)},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool, DynamicRecordSizingDisabled: true,
	}
}

// client returns Options.TLS of a pod.
func (a *authority) client(t testing.TB) func(uid [16]byte) *tls.Config {
	t.Helper()
	own := a.leaf(t, [16]byte{0xee})
	return func(uid [16]byte) *tls.Config {
		return &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own},
			InsecureSkipVerify: true, // VerifyConnection verifies
			VerifyConnection: func(state tls.ConnectionState) error {
				leaf := state.PeerCertificates[0]
				if _, err := leaf.Verify(x509.VerifyOptions{Roots: a.pool}); err != nil {
					return err
				}
				if len(leaf.URIs) != 1 || leaf.URIs[0].String() != podURI(uid).String() {
					return errors.New("another pod")
				}
				return nil
			},
		}
	}
}

var testUID = [16]byte{1, 2, 3}

// owner is a pod that answers.
type owner struct {
	sessionid.Owner
	server *http.Server

	mu    sync.Mutex
	conns map[net.Conn]http.ConnState
	total int // connections so far
}

func addressOf(l net.Listener) netip.AddrPort { return l.Addr().(*net.TCPAddr).AddrPort() }

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func startOwner(t testing.TB, config *tls.Config, handler http.Handler) *owner {
	t.Helper()
	l := listen(t)
	o := &owner{Owner: sessionid.Owner{UID: testUID, Address: addressOf(l)}, conns: map[net.Conn]http.ConnState{}}
	o.server = &http.Server{
		Handler: handler, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(c net.Conn, state http.ConnState) {
			o.mu.Lock()
			defer o.mu.Unlock()
			if state == http.StateNew {
				o.total++
			}
			o.conns[c] = state
		},
	}
	go func() { _ = o.server.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = o.server.Close() })
	return o
}

// closeIdle closes the connections without a request, once there are some.
func (o *owner) closeIdle(t *testing.T) {
	t.Helper()
	eventually(t, "connection becomes idle", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		closed := false
		for c, state := range o.conns {
			if state == http.StateIdle {
				_ = c.Close()
				closed = true
			}
		}
		return closed
	})
}

func (o *owner) accepted() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
}

// entry is a pod that clients send requests to.
type entry struct {
	*httptest.Server
	relay  *Relay
	errors chan error // of Forward
}

func startEntry(t testing.TB, to sessionid.Owner, options Options) *entry {
	t.Helper()
	if options.WriteTimeout == 0 {
		options.WriteTimeout = 30 * time.Second
	}
	options.Limits = patient(options.Limits)
	e := &entry{relay: New(options), errors: make(chan error, 10000)}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := requestOf(r)
		err := e.relay.Forward(r.Context(), w, to, request)
		select {
		case e.errors <- err:
		default: // a benchmark
		}
		answerFor(w, err)
	}))
	e.Config.ErrorLog = log.New(io.Discard, "", 0)
	e.Start()
	t.Cleanup(e.relay.Close)
	t.Cleanup(e.Close)
	return e
}

// patient are limits that do not take a busy machine for a black hole.
func patient(l Limits) Limits {
	l.DialTimeout, l.PingTimeout = time.Minute, time.Minute
	return l
}

// requestOf reads the beginning of the body, as entries do.
func requestOf(r *http.Request) *Request {
	request := &Request{Method: r.Method, Target: r.URL.RequestURI(), Host: r.Host, Header: r.Header, ContentLength: r.ContentLength}
	if r.ContentLength == 0 {
		return request
	}
	var head bytes.Buffer
	n, _ := io.CopyN(&head, r.Body, 64<<10)
	request.Body = head.Bytes()
	if n == 64<<10 && n != r.ContentLength {
		request.Rest = r.Body
	}
	return request
}

func answerFor(w http.ResponseWriter, err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrCut), errors.Is(err, ErrClient):
		panic(http.ErrAbortHandler)
	default:
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// forwarded is the error of the next Forward.
func (e *entry) forwarded(t *testing.T) error {
	t.Helper()
	select {
	case err := <-e.errors:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("Forward does not return")
		return nil
	}
}

// pair starts an owner and an entry that trust each other.
func pair(t testing.TB, handler http.HandlerFunc) (*owner, *entry) {
	t.Helper()
	ca := newAuthority(t)
	o := startOwner(t, ca.server(t, testUID), handler)
	return o, startEntry(t, o.Owner, Options{TLS: ca.client(t)})
}

// do sends a request of a client, and returns status, body and the error of reading the body.
func do(t *testing.T, method, target string, body io.Reader) (*http.Response, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("time is up: " + what)
		}
	}
}

// direct calls Forward without an entry.
func direct(ctx context.Context, r *Relay, to sessionid.Owner, request *Request) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	err := r.Forward(ctx, w, to, request)
	return w, err
}

func wantDialError(t *testing.T, err error, want Outcome) {
	t.Helper()
	var dial *DialError
	if !errors.As(err, &dial) || dial.Outcome != want {
		t.Errorf("error is %v, want DialError %v", err, want)
	}
}
