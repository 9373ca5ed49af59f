package operator

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-mcp/slipway/internal/config"
	"github.com/slipway-mcp/slipway/internal/version"
)

// The metrics endpoint asks the API server who calls and what the caller may do.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

func metricsOptions(metrics config.Metrics) (metricsserver.Options, error) {
	options := metricsserver.Options{
		BindAddress:   metrics.BindAddress,
		SecureServing: metrics.Protocol == config.ProtocolHTTPS,
		CertDir:       metrics.CertificateDirectory,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			// A scrape gains nothing from HTTP/2. Without HTTP/2, callers that are not
			// authenticated yet have one way less to make the server work.
			c.NextProtos = []string{"http/1.1"}
		}},
	}
	if metrics.Authentication == config.AuthenticationKubernetes {
		options.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	if metrics.CertificateDirectory != "" {
		// Without this check controller-runtime would use a self-signed certificate in
		// place of the configured one, and log nothing.
		for _, name := range []string{"tls.crt", "tls.key"} {
			if _, err := os.Stat(filepath.Join(metrics.CertificateDirectory, name)); err != nil {
				return options, fmt.Errorf("find metrics certificate: %w", err)
			}
		}
	}
	return options, nil
}

// buildInfo is always 1. Its labels name the version.
func buildInfo(build version.Info) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "slipway_build_info",
		Help:        "Version, commit and Go version of the manager, as labels. The value is always 1.",
		ConstLabels: prometheus.Labels{"version": build.Version, "commit": build.Commit, "go_version": build.GoVersion},
	}, func() float64 { return 1 })
}
