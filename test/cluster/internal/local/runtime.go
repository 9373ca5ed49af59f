package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slipway-mcp/slipway/test/cluster/internal/containerd"
)

// certsDir has a directory for each registry that needs special treatment.
func (c *Cluster) certsDir() string { return c.path("containerd", "certs.d") }

// Trust lets containerd pull from a registry that has no TLS. containerd looks
// for the file at every pull, so it need not be started anew.
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
