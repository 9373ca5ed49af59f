// Package local runs a one-node Kubernetes cluster from plain processes: no
// container engine, no registry, no virtual machine. Everything that it makes is
// below one directory, or named after the cluster and taken away again by Down.
package local

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/slipway-mcp/slipway/test/cluster/internal/proc"
)

const (
	// NodeName is the name of the only node.
	NodeName = "slipway"
	// Bridge is the network interface that pods are plugged into.
	Bridge = "slipway0"
	// Cgroup is the control group below which all containers run.
	Cgroup = "slipway"

	// provider is how the state directory is marked.
	provider      = "local"
	clusterDomain = "cluster.local"
)

// Ports, none of which is a default of Kubernetes, so that another cluster on
// the machine is not in the way. Outside the range of outgoing connections.
const (
	portAPI         = 21443
	portEtcdClient  = 21379
	portEtcdPeer    = 21380
	portKubelet     = 21250
	portKubeletLive = 21248
	portProxyMetric = 21249
	portProxyLive   = 21256
	portControllers = 21257
	portScheduler   = 21259
)

const loopback = "127.0.0.1"

// maxDir keeps the longest Unix socket below the directory within the 107 bytes
// that the kernel allows.
const maxDir = 60

// Cluster is the cluster in one state directory.
type Cluster struct {
	// Dir is the state directory.
	Dir string
	// Repository is the root of the checkout.
	Repository string

	// root is what paths outside the state directory are relative to; a test's
	// stands in for the machine.
	root     string
	bootID   func() (string, error)
	progress progress
	bin      string
	cni      string
	network  network
}

type network struct {
	Pods     netip.Prefix `json:"pods"`
	Services netip.Prefix `json:"services"`
}

// node is the machine's address on the bridge: the API server's and the kubelet's.
func (n network) node() netip.Addr { return n.Pods.Addr().Next() }

// api is the address of the Service kubernetes, by convention the first.
func (n network) api() netip.Addr { return n.Services.Addr().Next() }

func (n network) dns() netip.Addr {
	octets := n.Services.Addr().As4()
	octets[3] = 10
	return netip.AddrFrom4(octets)
}

// New returns the cluster of a state directory, which need not exist.
func New(dir, repository string, out *os.File) (*Cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find state directory: %w", err)
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved // Mount points are listed by their real path.
	}
	if len(dir) > maxDir {
		return nil, fmt.Errorf("state directory %s is longer than %d bytes: socket paths below it would be too long", dir, maxDir)
	}
	return &Cluster{Dir: dir, Repository: repository, root: "/", bootID: proc.BootID, progress: progress{out: out}}, nil
}

// Kubeconfig is the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig") }

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.Dir}, elements...)...)
}

func (c *Cluster) socket() string { return c.path("containerd", "containerd.sock") }

func (c *Cluster) log(component string) string { return c.path("logs", component+".log") }

func (c *Cluster) certificate(name string) string { return c.path("pki", name+".crt") }

func (c *Cluster) key(name string) string { return c.path("pki", name+".key") }

func (c *Cluster) kubeconfigOf(component string) string {
	return c.path("conf", component+".kubeconfig")
}

func (c *Cluster) apiURL() string { return "https://" + address(c.network.node().String(), portAPI) }

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// makeDirs makes the directories that components expect to find.
func (c *Cluster) makeDirs() error {
	var errs []error
	for _, dir := range []string{"conf", "containerd", "cni/conf", "etcd", "images", "kubelet", "logs", "pki", "run"} {
		errs = append(errs, os.MkdirAll(c.path(dir), 0o700))
	}
	return errors.Join(errs...)
}
