package registry

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TrustFile returns a TLS configuration that trusts the certificates of a PEM file besides
// what the system trusts.
func TrustFile(path string) (*tls.Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read what the system trusts: %w", err)
	}
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM format", path)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}
