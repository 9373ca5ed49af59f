package workload

import (
	"cmp"
	"slices"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

const defaultClusterDomain = "cluster.local"

// SettingsName names the ConfigMap with the settings of the server's adapters.
func SettingsName(server *mcpv1alpha1.MCPServer) string { return server.Name + "-adapter" }

// Settings are what the server's adapters take over while they run. What is in here has
// no place in the pod template, nor in its inputs: see withoutSettings.
func Settings(server *mcpv1alpha1.MCPServer, clusterDomain string) adapterapi.Settings {
	settings := adapterapi.Settings{
		Version: adapterapi.SettingsVersion, Generation: server.Generation,
		AllowedHosts: allowedHosts(server, clusterDomain),
	}
	for _, origin := range server.Spec.Adapter.AllowedOrigins {
		settings.AllowedOrigins = append(settings.AllowedOrigins, string(origin))
	}
	if verbosity := server.Spec.Adapter.Verbosity; verbosity != nil {
		settings.Verbosity = int(*verbosity)
	}
	return settings
}

// withoutSettings is a spec without what Settings takes from it.
func withoutSettings(spec mcpv1alpha1.MCPServerSpec) mcpv1alpha1.MCPServerSpec {
	spec.Adapter.AllowedHosts, spec.Adapter.AllowedOrigins, spec.Adapter.Verbosity = nil, nil, nil
	return spec
}

// allowedHosts are the names of the Service, and what else the user allows.
func allowedHosts(server *mcpv1alpha1.MCPServer, clusterDomain string) []string {
	inNamespace := server.Name + "." + server.Namespace
	hosts := []string{
		server.Name, inNamespace, inNamespace + ".svc",
		inNamespace + ".svc." + cmp.Or(clusterDomain, defaultClusterDomain),
	}
	for _, host := range server.Spec.Adapter.AllowedHosts {
		if !slices.Contains(hosts, string(host)) {
			hosts = append(hosts, string(host))
		}
	}
	return hosts
}

// SettingsConfigMap holds the document for adapters that start. Those that run are sent
// it, too: the kubelet takes its time.
func SettingsConfigMap(server *mcpv1alpha1.MCPServer, document adapterapi.Document) *corev1ac.ConfigMapApplyConfiguration {
	return corev1ac.ConfigMap(SettingsName(server), server.Namespace).
		WithLabels(labels(server)).
		WithOwnerReferences(owner(server)).
		WithData(map[string]string{adapterapi.SettingsFile: document.Text})
}
