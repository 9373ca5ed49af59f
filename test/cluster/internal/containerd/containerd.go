// Package containerd knows what the container runtime of every provider's node
// understands.
package containerd

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Namespace is where the kubelet's containers and images are.
const Namespace = "k8s.io"

// HostsFile is the file, in a registry's own directory, that says how to reach it.
const HostsFile = "hosts.toml"

var (
	host = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z.-]*[0-9A-Za-z])?$`)
	id   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// PlainHTTP returns the content of the hosts file for a registry without TLS. The
// registry becomes the name of a directory: one that was not checked here must not.
func PlainHTTP(registry string) (string, error) {
	name, port, err := net.SplitHostPort(registry)
	if err != nil {
		return "", fmt.Errorf("registry %q: want HOST:PORT: %w", registry, err)
	}
	if !host.MatchString(name) {
		return "", fmt.Errorf("registry %q: want HOST:PORT, without scheme or path, whose host is a name or an IPv4 address", registry)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return "", fmt.Errorf("registry %q: want a port from 1 to 65535", registry)
	}
	// Without server, containerd would try HTTPS when the first host fails, and
	// report the failure of that.
	return fmt.Sprintf(`server = "http://%[1]s"

[host."http://%[1]s"]
  capabilities = ["pull", "resolve"]
`, registry), nil
}

// NoMirror is the address of a mirror that is taken away.
const NoMirror = "none"

// Mirror returns the content of the hosts file by which images of a registry come from another one, which has no TLS
// and to which containerd says the registry's name (?ns=NAME). There is no way back to the registry itself: an image that the
// mirror lacks does not exist. The content is empty for NoMirror. The registry becomes the name of a directory, as above.
func Mirror(registry, mirror string) (string, error) {
	if !host.MatchString(registry) {
		return "", fmt.Errorf("registry %q: want a name without scheme, port or path, such as docker.io", registry)
	}
	if mirror == NoMirror {
		return "", nil
	}
	return PlainHTTP(mirror)
}

// Everything is the address of all that is outside of a pod.
const Everything = "everything"

// cut changes the rules of a pod's network by those of a node. The arguments are the container, which packets that come and
// which that go are meant, and what becomes of the rules; the variable is how to call ctr.
const cut = `pid=$($CTR --namespace ` + Namespace + ` task ls | awk -v id="$1" '$1 == id { print $2 }')
[ -n "$pid" ] || { echo "container $1 does not run here" >&2; exit 1; }
nsenter --target "$pid" --net iptables -w "$4" INPUT $2 -j DROP
nsenter --target "$pid" --net iptables -w "$4" OUTPUT $3 -j DROP`

// Cut is a command for a node that has a container. It drops every packet between the container's pod and an address, or
// Everything, or lets them pass again. The variable CTR must be how to call ctr there.
func Cut(container, address string, isCut bool) ([]string, error) {
	name := strings.TrimPrefix(container, "containerd://")
	if !id.MatchString(name) {
		return nil, errID(container)
	}
	incoming, outgoing := "--source "+address, "--destination "+address
	if address == Everything { // the pod's containers still reach each other
		incoming, outgoing = "! --in-interface lo", "! --out-interface lo"
	} else if _, err := netip.ParseAddr(address); err != nil {
		return nil, fmt.Errorf("address %q: want that of a pod, or %q: %w", address, Everything, err)
	}
	change := "--delete"
	if isCut {
		change = "--insert"
	}
	return []string{"sh", "-ec", cut, "cut", name, incoming, outgoing, change}, nil
}

func errID(container string) error {
	return fmt.Errorf("container %q: want the containerID of a pod's status, which is containerd:// and 64 hexadecimal digits", container)
}

// KillArgs are ctr's arguments to kill the first process of a container, whose id
// may be as a pod's status has it.
func KillArgs(container string) ([]string, error) {
	name := strings.TrimPrefix(container, "containerd://")
	if !id.MatchString(name) {
		return nil, errID(container)
	}
	return []string{"task", "kill", "--signal", "SIGKILL", name}, nil
}
