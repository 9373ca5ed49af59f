//go:build docs

package docs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// certify makes a certificate authority, and a certificate for names that it has signed. All is in PEM.
func certify(t *testing.T, names []string) (ca, certificate, key []byte) {
	t.Helper()
	authority, own := newKey(t), newKey(t)
	valid := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	root, leaf := valid, valid
	root.Subject = pkix.Name{CommonName: "slipway docs"}
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	leaf.SerialNumber, leaf.DNSNames = big.NewInt(2), names
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	text, err := x509.MarshalPKCS8PrivateKey(own)
	must(t, err)
	return sign(t, &root, &root, authority, authority), sign(t, &leaf, &root, own, authority), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

func sign(t *testing.T, certificate, authority *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, certificate, authority, key.Public(), by)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
