package registry

import (
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// Policy says which registries are asked. The zero value asks all of them.
//
// The author of an MCPServer names the registry, and the status reports the result of the
// request. So without a list of hosts, authors can find out what listens where in the manager's
// network. The policy is about the registry that an image names: token servers and storage
// that an allowed registry leads to are asked as well.
type Policy struct {
	// Disabled asks no registry at all.
	Disabled bool
	// Hosts are the only registries that are asked, as images name them: with their port, if
	// they have one. *.example.com is every name below example.com. None means all.
	Hosts []string
}

// Forbids says why the registry of an image is not asked; empty if it is.
func (p Policy) Forbids(reference string) string {
	if p.Disabled {
		return "the manager asks no registries: registry.mode is Disabled in its configuration"
	}
	host := strings.ToLower(Host(reference))
	if host == name.DefaultRegistry {
		host = "docker.io"
	}
	if len(p.Hosts) == 0 || slices.ContainsFunc(p.Hosts, func(pattern string) bool { return allows(pattern, host) }) {
		return ""
	}
	return "the manager does not ask registry " + shortened(host) + ": registry.allowedHosts in its configuration does not have it"
}

func allows(pattern, host string) bool {
	pattern = strings.ToLower(pattern)
	if parent, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(host, parent) && len(host) > len(parent)
	}
	return pattern == host || pattern == name.DefaultRegistry && host == "docker.io"
}
