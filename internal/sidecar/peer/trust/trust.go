// Package trust lets the pods of one server recognize each other by TLS, with certificates that each
// makes itself from the server's keys.
//
// Every key of the server has a CA, whose private key each pod derives from it. A pod shows a
// certificate that the CA of the current key has signed and that names the pod's UID. It accepts the
// certificates of the CAs of all keys in the ring, so that pods which have not read the same keys yet
// still connect. Nothing expires and no clock counts: what ends a certificate is that its key
// leaves the ring.
package trust

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// ErrStranger says that the other side answers, but is not the pod that it must be: it does not
// speak TLS, is no pod of this server, or is another pod of it. No error of the network is an
// ErrStranger, and neither is a connection that the other side closes without an answer, as a pod
// with too many handshakes does.
var ErrStranger = errors.New("not the expected pod of this server")

// errNoKey says that there is no key to make a certificate with. Without this error the CA would
// have a private key that any stranger can derive.
var errNoKey = errors.New("the server has no key")

// largeRecords has both sides send full records from the first one on. By default, Go sends the first
// records of a connection small, so that browsers can begin to draw. Here they would only be many.
const largeRecords = true

// Trust is how one pod recognizes the others, and they recognize it.
type Trust struct {
	ring func() adapterapi.Keyring
	uid  [16]byte
	key  ed25519.PrivateKey // of the pod's own certificates

	last atomic.Pointer[credentials]
}

// credentials are what a pod shows and accepts as long as the ring stays the same.
type credentials struct {
	ring adapterapi.Keyring
	leaf *tls.Certificate
	cas  *x509.CertPool
}

// New returns the Trust of the pod with the UID. It calls ring in each handshake, so that a changed
// ring counts from the next one on.
func New(ring func() adapterapi.Keyring, uid [16]byte) *Trust {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic("make key of pod: " + err.Error()) // rand.Reader never fails
	}
	return &Trust{ring: ring, uid: uid, key: key}
}

// credentials returns those for the ring as it is now.
func (t *Trust) credentials() (*credentials, error) {
	ring := t.ring()
	if last := t.last.Load(); last != nil && last.ring.Equal(ring) {
		return last, nil
	}
	next, err := newCredentials(ring, t.uid, t.key)
	if err != nil {
		return nil, err
	}
	t.last.Store(next)
	return next, nil
}

// server returns the configuration for the peer port. A client must show a certificate of any pod of
// this server. Sessions cannot be resumed, so that each connection is checked against the ring.
func (t *Trust) server() *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		ClientAuth:                  tls.RequireAnyClientCert, // VerifyConnection verifies it
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: largeRecords,
		GetCertificate:              func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return t.leaf() },
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := t.verify(&state)
			return err
		},
	}
}

// client returns the configuration to dial the pod with the UID.
func (t *Trust) client(uid [16]byte) *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		InsecureSkipVerify:          true, //nolint:gosec // VerifyConnection verifies pods, which have no host names
		DynamicRecordSizingDisabled: largeRecords,
		GetClientCertificate:        func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.leaf() },
		VerifyConnection: func(state tls.ConnectionState) error {
			switch got, err := t.verify(&state); {
			case err != nil:
				return err
			case got != uid:
				return fmt.Errorf("%w: it is pod %s", ErrStranger, formatUID(got))
			}
			return nil
		},
	}
}

func (t *Trust) leaf() (*tls.Certificate, error) {
	c, err := t.credentials()
	if err != nil {
		return nil, err
	}
	return c.leaf, nil
}

// verify returns the pod that the other side names. It has no side effects: crypto/tls calls it
// before the other side has proved that it has the key of its certificate.
func (t *Trust) verify(state *tls.ConnectionState) ([16]byte, error) {
	c, err := t.credentials()
	if err != nil {
		return [16]byte{}, err
	}
	uid, err := c.verify(state.PeerCertificates)
	if err != nil {
		return [16]byte{}, fmt.Errorf("%w: %w", ErrStranger, err)
	}
	return uid, nil
}

// Handshake makes the connection one with the pod that has the UID, or closes it. The error is an
// ErrStranger only if that pod is certainly not there.
//
// When Handshake returns, the pod has proved who it is, but it may still refuse this pod, if it does
// not know the key yet or any more. Then it reads nothing of what was written, and the next read
// fails.
func (t *Trust) Handshake(ctx context.Context, raw net.Conn, uid [16]byte) (*tls.Conn, error) {
	conn := tls.Client(raw, t.client(uid))
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("shake hands with pod %s: %w", formatUID(uid), judge(err))
	}
	return conn, nil
}

// judge makes the error of a client's handshake an ErrStranger, if the other side has caused it by
// what it said.
func judge(err error) error {
	if errors.Is(err, ErrStranger) || errors.Is(err, errNoKey) || isNetwork(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrStranger, err)
}

// isNetwork reports whether an error of crypto/tls comes from the connection or the context, and
// not from what the other side said.
func isNetwork(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op != "remote error" && op.Op != "local error" // alerts that crypto/tls has got or sent
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	for _, network := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, context.Canceled} {
		if errors.Is(err, network) {
			return true
		}
	}
	return false
}
