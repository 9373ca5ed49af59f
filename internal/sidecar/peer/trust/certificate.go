package trust

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// Certificates are valid at every time that they can name. Pods verify them at one fixed time, so
// that a wrong clock keeps no pod from the others.
var (
	validFrom  = time.Unix(0, 0).UTC()
	validUntil = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
	verifyAt   = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
)

// podPrefix is how the name of a pod in its certificate begins. The UID follows.
const podPrefix = "slipway://pod/"

// newCredentials makes what a pod with this UID and key shows and accepts. It leaves out a key that
// is none.
func newCredentials(ring adapterapi.Keyring, uid [16]byte, key ed25519.PrivateKey) (*credentials, error) {
	if ring.Current == (adapterapi.Key{}) {
		return nil, fmt.Errorf("make certificate of pod: %w", errNoKey)
	}
	c := &credentials{ring: ring, cas: x509.NewCertPool()}
	for _, of := range ring.All() {
		if of == (adapterapi.Key{}) {
			continue
		}
		ca, caKey, err := newCA(of)
		if err != nil {
			return nil, err
		}
		c.cas.AddCert(ca)
		if c.leaf != nil {
			continue
		}
		if c.leaf, err = newLeaf(ca, caKey, podPrefix+formatUID(uid), key); err != nil { // the first is the current one
			return nil, err
		}
	}
	return c, nil
}

// newCA makes the CA of a server's key. Each pod makes the same one: nothing in it is random, and
// the key id does not depend on how a version of Go derives it.
func newCA(of adapterapi.Key) (*x509.Certificate, ed25519.PrivateKey, error) {
	key := ed25519.NewKeyFromSeed(of.Derive(adapterapi.UsePeers))
	public := key.Public().(ed25519.PublicKey)
	id := sha256.Sum256(public)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "slipway peers"},
		SubjectKeyId:          id[:20],
		NotBefore:             validFrom,
		NotAfter:              validUntil,
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	ca, err := sign(template, template, public, key)
	if err != nil {
		return nil, nil, fmt.Errorf("make CA of peers: %w", err)
	}
	return ca, key, nil
}

// newLeaf makes a certificate with the name for the key.
func newLeaf(ca *x509.Certificate, caKey ed25519.PrivateKey, name string, key ed25519.PrivateKey) (*tls.Certificate, error) {
	uri, err := url.Parse(name)
	if err != nil {
		return nil, fmt.Errorf("make certificate of pod: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "slipway pod"},
		NotBefore:             validFrom,
		NotAfter:              validUntil,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{uri},
	}
	leaf, err := sign(template, ca, key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("make certificate of pod: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

func sign(template, by *x509.Certificate, public any, key ed25519.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, by, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// verify returns the pod that the certificates name. Only the first of them counts, because no CA
// signs others. Every key but those that pods have is refused before crypto/x509 looks at it:
// strangers choose what they show, and unusual keys have made it panic before.
func (c *credentials) verify(shown []*x509.Certificate) ([16]byte, error) {
	if len(shown) == 0 {
		return [16]byte{}, errors.New("it shows no certificate")
	}
	leaf := shown[0]
	if leaf.PublicKeyAlgorithm != x509.Ed25519 {
		return [16]byte{}, fmt.Errorf("its certificate has a key for %s", leaf.PublicKeyAlgorithm)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots:       c.cas,
		CurrentTime: verifyAt,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return [16]byte{}, err
	}
	return podIn(leaf)
}

// podIn returns the UID of the pod that a certificate names. A pod has one name, and one way to
// write it.
func podIn(leaf *x509.Certificate) (uid [16]byte, err error) {
	if len(leaf.URIs) != 1 {
		return uid, fmt.Errorf("its certificate has %d names", len(leaf.URIs))
	}
	name := leaf.URIs[0].String()
	text := strings.ReplaceAll(strings.TrimPrefix(name, podPrefix), "-", "")
	if len(text) == hex.EncodedLen(len(uid)) {
		_, err = hex.Decode(uid[:], []byte(text))
	}
	if err != nil || name != podPrefix+formatUID(uid) {
		return [16]byte{}, errors.New("its certificate names no pod")
	}
	return uid, nil
}

// formatUID writes a UID as Kubernetes does.
func formatUID(uid [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", uid[:4], uid[4:6], uid[6:8], uid[8:10], uid[10:])
}
