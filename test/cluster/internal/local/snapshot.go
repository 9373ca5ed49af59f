package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"github.com/slipway-mcp/slipway/test/cluster/internal/machine"
)

// snapshot is how the machine was before the cluster, and what was chosen for
// it. It is written before anything is changed; while it exists, what bears the
// cluster's names is the cluster's.
type snapshot struct {
	BootID  string              `json:"bootID"`
	Network network             `json:"network"`
	Sysctls map[string]string   `json:"sysctls"`
	Tables  map[string][]string `json:"tables"`
	// PassedOn are the cgroup controllers that were enabled; null on cgroup v1.
	PassedOn []string `json:"passedOn"`
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

// isCurrent tells whether the snapshot was taken since the machine booted. Of what
// an older one speaks of, only directories are still there.
func (c *Cluster) isCurrent(s *snapshot) (bool, error) {
	boot, err := c.bootID()
	return err == nil && s.BootID == boot, err
}

// currentSnapshot returns the snapshot if it is current.
func (c *Cluster) currentSnapshot() (*snapshot, error) {
	s, err := c.readSnapshot()
	if s == nil || err != nil {
		return nil, err
	}
	if current, err := c.isCurrent(s); !current {
		return nil, err
	}
	return s, nil
}

// takeSnapshot refuses a machine on which the cluster would fight with another.
func (c *Cluster) takeSnapshot(ctx context.Context) (*snapshot, error) {
	if err := refuseOthers(ctx); err != nil {
		return nil, err
	}
	boot, err := c.bootID()
	if err != nil {
		return nil, err
	}
	before, err := c.readSnapshot()
	if err != nil {
		return nil, err
	}
	s := &snapshot{BootID: boot, AbsentDirs: c.absentDirs(before)}
	if s.Network, err = chooseNetwork(ctx, before); err != nil {
		return nil, err
	}
	if s.Sysctls, err = machine.Sysctls(); err != nil {
		return nil, err
	}
	if s.Tables, err = machine.Tables(ctx); err != nil {
		return nil, err
	}
	if s.PassedOn, err = machine.PassedOn(); err != nil {
		return nil, err
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
			"if nothing uses it: ip link delete %s", Bridge, Bridge)
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
func chooseNetwork(ctx context.Context, before *snapshot) (network, error) {
	routes, err := machine.Routes(ctx)
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
	if err := machine.EnsureBridge(ctx, Bridge, address, c.network.Services); err != nil {
		return err
	}
	if err := machine.SetSysctl("net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	return machine.CreateCgroup(Cgroup)
}

// restoreMachine undoes prepareMachine and what components did beside it. All
// processes have ended. A reboot has undone everything but what is on disk.
func (c *Cluster) restoreMachine(ctx context.Context) error {
	s, err := c.readSnapshot()
	if s == nil || err != nil {
		return err
	}
	current, err := c.isCurrent(s)
	if err != nil {
		return err
	}
	if !current {
		return c.cleanSharedDirs(ctx, s.keptByReboot())
	}
	if err := machine.RestorePassedOn(s.PassedOn); err != nil {
		c.progress.printf("cluster: left as it is: %v", err)
	}
	return errors.Join(
		machine.DeleteBridge(ctx, Bridge),
		machine.RemoveClusterChains(ctx, s.Tables),
		machine.RestoreSysctls(s.Sysctls),
		c.cleanSharedDirs(ctx, s.AbsentDirs),
	)
}
