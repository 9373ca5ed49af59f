package trust

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/test/hang"
)

// A dialer that finds another pod says nothing to it: neither a word nor its own certificate.
func TestOtherPod(t *testing.T) {
	t.Parallel()
	key := adapterapi.NewKey()
	for name, there := range map[string]*Trust{
		"another pod of this server":                  New(ringOf(key), blue),
		"a pod of another server":                     New(ringOf(adapterapi.NewKey()), red),
		"a pod of another server that knows this one": New(ringOf(adapterapi.NewKey(), key), red),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			there := open(t, there)
			if err := greet(t, New(ringOf(key), blue), there, red); !errors.Is(err, ErrStranger) {
				t.Errorf("got %v, want ErrStranger", err)
			}
			there.closeEmpty(t)
		})
	}
}

// What is at the address of a pod can be anything. Only what it says makes it a stranger.
func TestWhatIsAtTheAddress(t *testing.T) {
	t.Parallel()
	key := adapterapi.NewKey()
	for name, c := range map[string]struct {
		serve    func(net.Conn)
		stranger bool
		is       error // besides
	}{
		"a plain HTTP server":   {serve: says("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"), stranger: true},
		"an SSH server":         {serve: says("SSH-2.0-OpenSSH_10.0\r\n"), stranger: true},
		"an alert that is none": {serve: says("\x15\x03\x03\x00\x01\x02"), stranger: true},
		"a TLS alert":           {serve: says("\x15\x03\x03\x00\x02\x02\x28"), stranger: true}, // fatal: handshake failure
		"nonsense in a record":  {serve: says("\x16\x03\x03\x00\x04\x00\x00\x00\x00"), stranger: true},
		"TLS 1.2": {serve: speaks(func() *tls.Config {
			config := New(ringOf(key), red).server()
			config.MinVersion, config.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
			return config
		}), stranger: true},
		"a pod that closes the connection": {serve: func(conn net.Conn) { _, _ = conn.Read(make([]byte, 16<<10)) }},
		"a pod that dies as it answers":    {serve: says("\x16\x03\x03\x10\x00\x02"), is: io.ErrUnexpectedEOF},
		"a pod that resets the connection": {serve: func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.(*net.TCPConn).SetLinger(0)
		}, is: syscall.ECONNRESET},
		"a pod that does not answer": {serve: func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }, is: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listen(t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if conn, err := l.Accept(); err == nil {
					defer func() { _ = conn.Close() }()
					c.serve(conn)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), patience(c.is))
			defer cancel()
			_, err := New(ringOf(key), blue).Handshake(ctx, dial(t, l), red)
			if err == nil || errors.Is(err, ErrStranger) != c.stranger || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v; want a stranger: %t, and %v", err, c.stranger, c.is)
			}
			<-done
		})
	}
}

// patience is long, except in the case that waits for its end.
func patience(expected error) time.Duration {
	if errors.Is(expected, context.DeadlineExceeded) {
		return 50 * time.Millisecond
	}
	return hang.Guard
}

// says answers the first bytes with a text, and hangs up when the client does.
func says(text string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 16<<10))
		_, _ = io.WriteString(conn, text)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	}
}

func speaks(config func() *tls.Config) func(net.Conn) {
	return func(conn net.Conn) { _ = tls.Server(conn, config()).HandshakeContext(context.Background()) }
}

// The servers of the standard library are strangers, too.
func TestHTTPServersAreStrangers(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(http.Handler) *httptest.Server{"HTTP": httptest.NewServer, "HTTPS": httptest.NewTLSServer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start(http.NotFoundHandler())
			defer server.Close()
			_, err := New(ringOf(adapterapi.NewKey()), blue).Handshake(t.Context(), dial(t, server.Listener), red)
			if !errors.Is(err, ErrStranger) {
				t.Errorf("got %v, want ErrStranger", err)
			}
		})
	}
}

// forge has a change in what a pod shows.
func forge(t *testing.T, change func(*tls.Certificate)) func(config *tls.Config) {
	return func(config *tls.Config) {
		t.Helper()
		get := config.GetCertificate
		if get == nil {
			get = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return config.GetClientCertificate(nil) }
		}
		real, err := get(nil)
		if err != nil {
			t.Fatal(err)
		}
		forged := *real
		change(&forged)
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &forged, nil }
		if config.GetClientCertificate != nil {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &forged, nil }
		}
	}
}

// Neither side takes a certificate for one of the server's that is not, in either direction.
func TestForgeries(t *testing.T) {
	t.Parallel()
	key := adapterapi.NewKey()
	ca, caKey, err := newCA(key)
	if err != nil {
		t.Fatal(err)
	}
	_, own, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// signed makes a certificate that the key's CA has signed.
	signed := func(names ...string) func(*tls.Certificate) {
		return func(c *tls.Certificate) {
			template := &x509.Certificate{NotBefore: validFrom, NotAfter: validUntil}
			for _, name := range names {
				uri, err := url.Parse(name)
				if err != nil {
					t.Error(err)
				}
				template.URIs = append(template.URIs, uri)
			}
			leaf, err := sign(template, ca, own.Public(), caKey)
			if err != nil {
				t.Error(err)
				return
			}
			*c = tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: own}
		}
	}
	by := func(key adapterapi.Key) func(*tls.Certificate) {
		return func(c *tls.Certificate) {
			ca, caKey, err := newCA(key)
			if err != nil {
				t.Error(err)
				return
			}
			leaf, err := newLeaf(ca, caKey, podPrefix+formatUID(red), own)
			if err != nil {
				t.Error(err)
				return
			}
			*c = *leaf
		}
	}
	name := podPrefix + formatUID(red)
	for name, change := range map[string]func(*tls.Certificate){
		"another pod's certificate without its key": func(c *tls.Certificate) { c.PrivateKey = own },
		"a CA that looks the same":                  by(adapterapi.NewKey()),
		"the CA of a key that is none":              by(adapterapi.Key{}),
		"a chain that ends at the CA": func(c *tls.Certificate) {
			middle := *c
			by(adapterapi.NewKey())(c)
			c.Certificate = append(c.Certificate, middle.Certificate[0], ca.Raw)
		},
		"the CA itself":            func(c *tls.Certificate) { *c = tls.Certificate{Certificate: [][]byte{ca.Raw}, PrivateKey: caKey} },
		"a key of another kind":    ofECDSA(t, ca, caKey),
		"no name":                  signed(),
		"two names":                signed(name, name),
		"a name without the UID":   signed(podPrefix),
		"a name in capitals":       signed(podPrefix + "11111111-2222-3333-4444-55555555555A"),
		"a name without dashes":    signed(podPrefix + "11111111222233334444555555555555"),
		"a name of something else": signed("slipway://server/" + formatUID(red)),
		"a name with more":         signed(name + "?x"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ring := ringOf(key, adapterapi.Key{}) // an entry that is no key counts for nothing
			server := New(ring, red).server()
			forge(t, change)(server)
			l := listen(t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if conn, err := l.Accept(); err == nil {
					speaks(func() *tls.Config { return server })(conn)
					_ = conn.Close()
				}
			}()
			if _, err := New(ring, blue).Handshake(t.Context(), dial(t, l), red); !errors.Is(err, ErrStranger) {
				t.Errorf("a dialer gets %v, want ErrStranger", err)
			}
			<-done

			there := open(t, New(ring, blue))
			client := New(ring, red).client(blue)
			forge(t, change)(client)
			if err := exchange(tls.Client(dial(t, there), client)); err == nil {
				t.Error("an acceptor answers")
			}
			there.closeEmpty(t)
		})
	}
}

// ofECDSA makes a certificate that the CA has signed for a key that no pod has.
func ofECDSA(t *testing.T, ca *x509.Certificate, caKey ed25519.PrivateKey) func(*tls.Certificate) {
	return func(c *tls.Certificate) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Error(err)
			return
		}
		template := &x509.Certificate{
			NotBefore: validFrom, NotAfter: validUntil,
			URIs: []*url.URL{{Scheme: "slipway", Host: "pod", Path: "/" + formatUID(red)}},
		}
		leaf, err := sign(template, ca, key.Public(), caKey)
		if err != nil {
			t.Error(err)
			return
		}
		*c = tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}
	}
}

// The port takes no client that shows no certificate, or speaks an older TLS.
func TestClientsThatAreNoPods(t *testing.T) {
	t.Parallel()
	ring := ringOf(adapterapi.NewKey())
	for name, change := range map[string]func(*tls.Config){
		"without a certificate": func(c *tls.Config) { c.GetClientCertificate = nil },
		"with TLS 1.2":          func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			there := open(t, New(ring, red))
			config := New(ring, blue).client(red)
			change(config)
			if err := exchange(tls.Client(dial(t, there), config)); err == nil {
				t.Error("the port answers")
			}
			there.closeEmpty(t)
		})
	}
}

// A pod without a key trusts none, and does not call others strangers.
func TestPodWithoutKey(t *testing.T) {
	t.Parallel()
	ring := ringOf(adapterapi.NewKey())
	without := New(func() adapterapi.Keyring { return adapterapi.Keyring{} }, blue)
	there := open(t, New(ring, red))
	if err := greet(t, without, there, red); !errors.Is(err, errNoKey) || errors.Is(err, ErrStranger) {
		t.Errorf("a dialer without a key gets %v", err)
	}
	there.closeEmpty(t)
	there = open(t, without)
	if err := greet(t, New(ring, red), there, blue); err == nil {
		t.Error("an acceptor without a key answers")
	}
	there.closeEmpty(t)
}
