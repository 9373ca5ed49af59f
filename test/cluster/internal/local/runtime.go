package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/slipway-mcp/slipway/test/cluster/internal/containerd"
	"github.com/slipway-mcp/slipway/test/cluster/internal/hostlocal"
	"github.com/slipway-mcp/slipway/test/cluster/internal/machine"
)

// certsDir has a directory for each registry that needs special treatment.
func (c *Cluster) certsDir() string { return c.path("containerd", "certs.d") }

// Trust lets containerd pull from a registry that has no TLS. containerd looks
// for the file at every pull, so it needs no restart.
func (c *Cluster) Trust(_ context.Context, registry string) error {
	hosts, err := containerd.PlainHTTP(registry)
	if err != nil {
		return err
	}
	if err := c.needRuntime(); err != nil {
		return err
	}
	return c.progress.step("trust "+registry, func() error {
		dir := filepath.Join(c.certsDir(), registry)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		return writeFile(filepath.Join(dir, containerd.HostsFile), []byte(hosts))
	})
}

// Mirror has containerd pull the images of a registry from another one, until the mirror is containerd.NoMirror.
func (c *Cluster) Mirror(_ context.Context, registry, mirror string) error {
	hosts, err := containerd.Mirror(registry, mirror)
	if err != nil {
		return err
	}
	if err := c.needRuntime(); err != nil {
		return err
	}
	return c.progress.step("mirror "+registry, func() error {
		dir := filepath.Join(c.certsDir(), registry)
		if hosts == "" {
			return os.RemoveAll(dir)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		return writeFile(filepath.Join(dir, containerd.HostsFile), []byte(hosts))
	})
}

// Kill ends the first process of a container as a crash would: neither the
// kubelet nor the process itself has a say in it.
func (c *Cluster) Kill(ctx context.Context, container string) error {
	args, err := containerd.KillArgs(container)
	if err != nil {
		return err
	}
	if err := c.needRuntime(); err != nil {
		return err
	}
	_, err = c.ctr(ctx, args...)
	return err
}

// Cut drops all packets between the pod of a container and an address, or everything, or lets them pass again.
func (c *Cluster) Cut(ctx context.Context, container, address string, isCut bool) error {
	args, err := containerd.Cut(container, address, isCut)
	if err != nil {
		return err
	}
	if err := c.needRuntime(); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Env = []string{"PATH=" + machine.Path, "CTR=ctr --address " + c.socket()}
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("change what passes between container %s and %s: %w: %s", container, address, err, bytes.TrimSpace(out))
	}
	return nil
}

// Pin has the next pod get an address, if the address is free.
func (c *Cluster) Pin(_ context.Context, node, address string) error {
	if node != NodeName {
		return fmt.Errorf("node %q: the cluster has %s", node, NodeName)
	}
	before, err := hostlocal.Before(address)
	if err != nil {
		return err
	}
	if err := c.needRuntime(); err != nil {
		return err
	}
	// The directory is named after the network, as templates/slipway.conflist has it.
	return writeFile(c.path("cni", "ipam", "slipway", hostlocal.LastFile), []byte(before))
}

// needRuntime returns an error unless containerd runs.
func (c *Cluster) needRuntime() error {
	recorded, err := c.record("containerd")
	if err != nil {
		return err
	}
	if !recorded.Alive() {
		return fmt.Errorf("containerd of the cluster in %s does not run: take the cluster up first", c.Dir)
	}
	return nil
}
