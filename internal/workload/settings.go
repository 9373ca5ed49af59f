package workload

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

const defaultClusterDomain = "cluster.local"

// SettingsName names the ConfigMap with the settings and the access document of the server's adapters.
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

// withoutSettings is a spec without what Settings and Access take from it.
func withoutSettings(spec mcpv1alpha1.MCPServerSpec) mcpv1alpha1.MCPServerSpec {
	spec.Adapter.AllowedHosts, spec.Adapter.AllowedOrigins, spec.Adapter.Verbosity = nil, nil, nil
	spec.Auth, spec.Access, spec.Audit = nil, nil, nil
	return spec
}

// allowedHosts are the names of the Service, those by which clients know the server, and what else the user
// allows.
func allowedHosts(server *mcpv1alpha1.MCPServer, clusterDomain string) []string {
	inNamespace := server.Name + "." + server.Namespace
	hosts := []string{
		server.Name, inNamespace, inNamespace + ".svc",
		inNamespace + ".svc." + cmp.Or(clusterDomain, defaultClusterDomain),
	}
	for _, host := range append(resourceHosts(server.Spec.Auth), stringsOf(server.Spec.Adapter.AllowedHosts)...) {
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// resourceHosts are the host names in auth.resources: a client that has a token for a URL asks for its host.
// The entry * would allow every host, so it is no name here. Adapters allow addresses anyway.
func resourceHosts(auth *mcpv1alpha1.Auth) []string {
	if auth == nil {
		return nil
	}
	var hosts []string
	for _, resource := range auth.Resources {
		parsed, err := url.Parse(string(resource))
		if err != nil {
			continue
		}
		name := strings.ToLower(parsed.Hostname())
		if _, err := netip.ParseAddr(name); err != nil && name != "" && !strings.ContainsAny(name, "*/?#@ ") {
			hosts = append(hosts, name)
		}
	}
	return hosts
}

// SettingsConfigMap holds both documents for adapters that start. Those that run are sent
// them, too: the kubelet takes its time.
func SettingsConfigMap(server *mcpv1alpha1.MCPServer, settings, access adapterapi.Document) *corev1ac.ConfigMapApplyConfiguration {
	return corev1ac.ConfigMap(SettingsName(server), server.Namespace).
		WithLabels(labels(server)).
		WithOwnerReferences(owner(server)).
		WithData(map[string]string{adapterapi.SettingsFile: settings.Text, adapterapi.AccessFile: access.Text})
}
