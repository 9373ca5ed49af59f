package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/test/cluster/internal/machine"
	"github.com/slipway-mcp/slipway/test/cluster/internal/proc"
)

// sharedDirs are outside the state directory, and are filled all the same by
// components that cannot be told to use another.
var sharedDirs = []string{"/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers"}

// snapshot is how the machine was before the cluster, and what was chosen for
// it. It is written before anything is changed; while it exists, what bears the
// cluster's names is the cluster's.
type snapshot struct {
	BootID  string              `json:"bootID"`
	Network network             `json:"network"`
	Sysctls map[string]string   `json:"sysctls"`
	Tables  map[string][]string `json:"tables"`
	// AbsentDirs are those of the shared directories that were not there.
	AbsentDirs []string `json:"absentDirs"`
}

func (c *Cluster) readSnapshot() (*snapshot, error) {
	content, err := os.ReadFile(c.path("machine.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read snapshot of the machine: %w", err)
	}
	var s snapshot
	if err := json.Unmarshal(content, &s); err != nil {
		return nil, fmt.Errorf("read snapshot of the machine: %w", err)
	}
	return &s, nil
}

// currentSnapshot returns the snapshot if it was taken since the machine booted. What
// an older one speaks of is gone.
func (c *Cluster) currentSnapshot() (*snapshot, error) {
	s, err := c.readSnapshot()
	if s == nil || err != nil {
		return nil, err
	}
	boot, err := proc.BootID()
	if err != nil || s.BootID != boot {
		return nil, err
	}
	return s, nil
}

// takeSnapshot refuses a machine on which the cluster would fight with another.
func (c *Cluster) takeSnapshot(ctx context.Context) (*snapshot, error) {
	if err := refuseOthers(ctx); err != nil {
		return nil, err
	}
	boot, err := proc.BootID()
	if err != nil {
		return nil, err
	}
	s := &snapshot{BootID: boot}
	if s.Network, err = c.chooseNetwork(ctx); err != nil {
		return nil, err
	}
	if s.Sysctls, err = machine.Sysctls(); err != nil {
		return nil, err
	}
	if s.Tables, err = machine.Tables(ctx); err != nil {
		return nil, err
	}
	for _, dir := range sharedDirs {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			s.AbsentDirs = append(s.AbsentDirs, dir)
		}
	}
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode snapshot of the machine: %w", err)
	}
	return s, writeFile(c.path("machine.json"), content)
}

// refuseOthers returns an error if something on the machine bears the names
// that by now would mean: ours.
func refuseOthers(ctx context.Context) error {
	chains, err := machine.ClusterChains(ctx)
	if err != nil {
		return err
	}
	if len(chains) > 0 {
		return fmt.Errorf("the packet filter has chains of another cluster (%s and %d more): "+
			"two kube-proxies on one machine would fight; use CLUSTER=kind or CLUSTER=existing", chains[0], len(chains)-1)
	}
	if machine.BridgeExists(Bridge) {
		return fmt.Errorf("network interface %s exists already, from another cluster or an incomplete clean-up; "+
			"if it is nobody's: ip link delete %s", Bridge, Bridge)
	}
	groups, err := machine.CgroupDirs(Cgroup)
	if err != nil {
		return err
	}
	if len(groups) > 0 {
		return fmt.Errorf("cgroups exist already, from another cluster or an incomplete clean-up: %s", strings.Join(groups, " "))
	}
	return nil
}

// chooseNetwork keeps the subnets of before a reboot if they are still free:
// they are in the cluster's objects.
func (c *Cluster) chooseNetwork(ctx context.Context) (network, error) {
	routes, err := machine.Routes(ctx)
	if err != nil {
		return network{}, err
	}
	before, err := c.readSnapshot()
	if err != nil {
		return network{}, err
	}
	if before != nil {
		for _, prefix := range []netip.Prefix{before.Network.Pods, before.Network.Services} {
			if machine.Overlaps(prefix, routes) {
				return network{}, fmt.Errorf("the cluster's subnet %s now collides with a route of the machine: "+
					"take the cluster down and up again", prefix)
			}
		}
		return before.Network, nil
	}
	pods, services, err := machine.FreeSubnets(routes)
	return network{Pods: pods, Services: services}, err
}

// prepareMachine makes what components expect to find.
func (c *Cluster) prepareMachine(ctx context.Context) error {
	s, err := c.currentSnapshot()
	if err != nil {
		return err
	}
	if s == nil {
		if s, err = c.takeSnapshot(ctx); err != nil {
			return err
		}
	}
	c.network = s.Network
	address := netip.PrefixFrom(c.network.node(), c.network.Pods.Bits())
	if err := machine.EnsureBridge(ctx, Bridge, address); err != nil {
		return err
	}
	if err := machine.SetSysctl("net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	return machine.CreateCgroup(Cgroup)
}

// restoreMachine undoes prepareMachine and what components did beside it. All
// processes have ended.
func (c *Cluster) restoreMachine(ctx context.Context) error {
	s, err := c.currentSnapshot()
	if s == nil || err != nil {
		return err
	}
	return errors.Join(
		machine.DeleteBridge(ctx, Bridge),
		machine.RemoveClusterChains(ctx, s.Tables),
		machine.RestoreSysctls(s.Sysctls),
		c.cleanSharedDirs(ctx, s),
	)
}

// cleanSharedDirs removes our files from the directories that we share, and
// those of the directories that were not there before and are empty now.
func (c *Cluster) cleanSharedDirs(ctx context.Context, s *snapshot) error {
	var errs []error
	// The CNI library's cache of results, which name the pod's namespace.
	cached, _ := filepath.Glob("/var/lib/cni/results/*") // The pattern is well-formed.
	for _, path := range cached {
		content, err := os.ReadFile(path)
		if err == nil && bytes.Contains(content, []byte(c.Dir+"/")) {
			err = os.Remove(path)
		}
		errs = append(errs, err)
	}
	links, _ := filepath.Glob("/var/log/containers/*.log")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && under(target, c.Dir) {
			errs = append(errs, os.Remove(link))
		}
	}
	errs = append(errs, c.removeShimSockets(ctx, slices.Contains(s.AbsentDirs, "/run/containerd")))
	if slices.Contains(s.AbsentDirs, "/var/lib/kubelet") {
		// The socket for device plugins, the one that does not follow --root-dir.
		errs = append(errs, os.RemoveAll("/var/lib/kubelet/device-plugins"))
	}
	for _, dir := range s.AbsentDirs {
		errs = append(errs, removeEmpty(dir))
	}
	return errors.Join(errs...)
}

// removeShimSockets removes the sockets of our shims, all of which have ended.
// Each bundle notes which is its own. A bundle may be gone before its socket,
// when a shim was killed; if nobody else was there before us, a socket that
// nobody listens on is ours as well.
func (c *Cluster) removeShimSockets(ctx context.Context, alone bool) error {
	const dir = "/run/containerd/s"
	var errs []error
	ours := map[string]bool{}
	bundles, _ := filepath.Glob(c.path("containerd", "state", "io.containerd.runtime.v2.task", "*", "*", "address"))
	for _, path := range bundles {
		content, err := os.ReadFile(path)
		errs = append(errs, err)
		ours[strings.TrimPrefix(strings.TrimSpace(string(content)), "unix://")] = true
	}
	sockets, _ := filepath.Glob(dir + "/*")
	for _, socket := range sockets {
		if ours[socket] || alone && nobodyListens(ctx, socket) {
			errs = append(errs, os.Remove(socket))
		}
	}
	return errors.Join(errs...)
}

func nobodyListens(ctx context.Context, socket string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return errors.Is(dial(ctx, "unix", socket), syscall.ECONNREFUSED)
}

// removeEmpty removes the directories at and below dir that hold no files.
func removeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeEmpty(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	if entries, err = os.ReadDir(dir); err != nil || len(entries) > 0 {
		return err
	}
	return os.Remove(dir)
}
