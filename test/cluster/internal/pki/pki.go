// Package pki makes the certificates of a local cluster.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	validity = 365 * 24 * time.Hour
	// renewal is how long before its end a certificate is renewed: longer
	// than a test cluster runs.
	renewal = 30 * 24 * time.Hour
)

// Certificate is a certificate to have in a directory as Name.crt and Name.key.
type Certificate struct {
	Name string
	// CA is the Name of the authority that signs it; an authority has none.
	CA           string
	CommonName   string
	Organization string
	// Addresses are DNS names and IP addresses. A certificate with any is for a
	// server; each is for a client too.
	Addresses []string
}

// Ensure makes those certificates that are missing, near their end, signed by
// an authority that is no more, or for another subject or other addresses.
// Authorities must come before what they sign.
func Ensure(dir string, now time.Time, certificates ...Certificate) error {
	authorities := map[string]*pair{}
	for _, want := range certificates {
		issuer, known := authorities[want.CA]
		if want.CA != "" && !known {
			return fmt.Errorf("make certificate %s: authority %s comes later or never", want.Name, want.CA)
		}
		got, err := load(dir, want.Name)
		if err != nil {
			return fmt.Errorf("read certificate %s: %w", want.Name, err)
		}
		if got == nil || !got.fits(want, issuer, now) {
			if got, err = create(want, issuer, now); err != nil {
				return fmt.Errorf("make certificate %s: %w", want.Name, err)
			}
			if err := got.save(dir, want.Name); err != nil {
				return fmt.Errorf("write certificate %s: %w", want.Name, err)
			}
		}
		if want.CA == "" {
			authorities[want.Name] = got
		}
	}
	return nil
}

// EnsureKey makes a private key as name.key and its public part as name.pub,
// unless they are there.
func EnsureKey(dir, name string) error {
	keyPath := filepath.Join(dir, name+".key")
	if _, err := os.Stat(keyPath); err == nil {
		if _, err := os.Stat(filepath.Join(dir, name+".pub")); err == nil {
			return nil
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key %s: %w", name, err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode key %s: %w", name, err)
	}
	if err := writePEM(filepath.Join(dir, name+".pub"), "PUBLIC KEY", public); err != nil {
		return err
	}
	return writeKey(keyPath, key)
}

type pair struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// load returns nil without an error if there is no usable pair. The caller then makes a new one.
func load(dir, name string) (*pair, error) {
	certificate, err := readPEM(filepath.Join(dir, name+".crt"))
	if err != nil || certificate == nil {
		return nil, err
	}
	key, err := readPEM(filepath.Join(dir, name+".key"))
	if err != nil || key == nil {
		return nil, err
	}
	parsed, certificateErr := x509.ParseCertificate(certificate)
	private, keyErr := x509.ParseECPrivateKey(key)
	if certificateErr != nil || keyErr != nil || !private.PublicKey.Equal(parsed.PublicKey) {
		return nil, nil //nolint:nilerr // Half written by a crash: as good as missing.
	}
	return &pair{parsed, private}, nil
}

func (p *pair) fits(want Certificate, issuer *pair, now time.Time) bool {
	certificate := p.certificate
	if now.Before(certificate.NotBefore) || now.Add(renewal).After(certificate.NotAfter) {
		return false
	}
	if certificate.IsCA != (want.CA == "") || issuer != nil && certificate.CheckSignatureFrom(issuer.certificate) != nil {
		return false
	}
	template := template(want, now)
	return certificate.Subject.String() == template.Subject.String() &&
		slices.Equal(certificate.DNSNames, template.DNSNames) &&
		slices.EqualFunc(certificate.IPAddresses, template.IPAddresses, net.IP.Equal)
}

func template(want Certificate, now time.Time) *x509.Certificate {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: want.CommonName},
		NotBefore:             now.Add(-time.Minute), // Clocks differ.
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if want.Organization != "" {
		template.Subject.Organization = []string{want.Organization}
	}
	if want.CA == "" {
		template.IsCA = true
		template.KeyUsage |= x509.KeyUsageCertSign
		template.ExtKeyUsage = nil
	}
	if len(want.Addresses) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, address := range want.Addresses {
		if ip := net.ParseIP(address); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, address)
		}
	}
	return template
}

func create(want Certificate, issuer *pair, now time.Time) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := template(want, now)
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	parent, signer := template, crypto.Signer(key)
	if issuer != nil {
		parent, signer = issuer.certificate, issuer.key
	}
	encoded, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(encoded)
	if err != nil {
		return nil, err
	}
	return &pair{certificate, key}, nil
}

func (p *pair) save(dir, name string) error {
	if err := writeKey(filepath.Join(dir, name+".key"), p.key); err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", p.certificate.Raw)
}

func readPEM(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, nil
	}
	return block.Bytes, nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", encoded)
}

func writePEM(path, kind string, content []byte) error {
	var encoded bytes.Buffer
	if err := pem.Encode(&encoded, &pem.Block{Type: kind, Bytes: content}); err != nil {
		return err
	}
	return os.WriteFile(path, encoded.Bytes(), 0o600)
}
