package operator

import (
	"fmt"

	"github.com/slipway-mcp/slipway/internal/config"
	"github.com/slipway-mcp/slipway/internal/registry"
)

// newResolver returns what asks registries.
func newResolver(cfg config.Registry) (*registry.Resolver, error) {
	if cfg.CertificateAuthorityFile == "" {
		return registry.New(registry.Options{}), nil
	}
	trusted, err := registry.TrustFile(cfg.CertificateAuthorityFile)
	if err != nil {
		return nil, fmt.Errorf("read registry.certificateAuthorityFile: %w", err)
	}
	return registry.New(registry.Options{TLS: trusted}), nil
}
