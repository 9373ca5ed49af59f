package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/test/cluster/internal/machine"
	"github.com/slipway-mcp/slipway/test/cluster/internal/proc"
	"github.com/slipway-mcp/slipway/test/cluster/internal/statedir"
)

// Down ends the cluster and leaves the machine as Up found it. It relies on no
// step of Up having been completed, nor on any process being alive.
func (c *Cluster) Down(ctx context.Context) error {
	if _, err := os.Stat(c.Dir); errors.Is(err, fs.ErrNotExist) {
		c.progress.printf("cluster: there is none in %s", c.Dir)
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("taking a local cluster down needs root")
	}
	if err := c.checkDir(); err != nil {
		return err
	}
	release, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	begin := time.Now()
	// A clean-up that is interrupted half-way would have to be done again anyway.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"stop node", c.stop("kubelet", "kube-proxy", "kube-scheduler", "kube-controller-manager", "containerd")},
		{"kill containers", c.killContainers},
		// Only now: it waits a minute for clients that watch, as CoreDNS does.
		{"stop kube-apiserver", c.stop("kube-apiserver")},
		{"stop etcd", c.stop("etcd")},
		{"unmount", func(context.Context) error { return machine.UnmountUnder(c.Dir) }},
		{"restore bridge, packet filter, parameters", c.restoreMachine},
		{"remove " + c.Dir, func(context.Context) error { return c.removeDir() }},
	} {
		if err := c.progress.step(step.name, func() error { return step.run(ctx) }); err != nil {
			return err
		}
	}
	c.progress.printf("cluster: down in %.1f s", time.Since(begin).Seconds())
	return nil
}

// stop ends the recorded processes of components, and those that a dying Up did
// not come to record.
func (c *Cluster) stop(names ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		processes, err := proc.Find(c.isComponent(names...))
		if err != nil {
			return err
		}
		for _, name := range names {
			recorded, err := c.record(name)
			if err != nil {
				return err
			}
			if recorded.Alive() && !slices.Contains(processes, recorded.Identity) {
				processes = append(processes, recorded.Identity)
			}
		}
		return proc.Stop(ctx, grace, processes...)
	}
}

// killContainers ends the shims of our containerd, then everything in the
// cgroups of our kubelet. In this order a shim has no time to start a hook.
func (c *Cluster) killContainers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	shims, err := proc.Find(c.isShim)
	if err != nil {
		return err
	}
	if err := proc.Stop(ctx, 0, shims...); err != nil {
		return fmt.Errorf("stop shims: %w", err)
	}
	s, err := c.currentSnapshot()
	if s == nil || err != nil {
		return err // No snapshot, no cgroup of ours.
	}
	return machine.RemoveCgroup(ctx, Cgroup)
}

// isShim recognizes a shim by the socket of the containerd it reports to.
func (c *Cluster) isShim(argv []string) bool {
	return filepath.Base(argv[0]) == "containerd-shim-runc-v2" && slices.Contains(argv, c.socket())
}

// removeDir refuses to descend into what is mounted below the directory: it
// would delete what is not the cluster's.
func (c *Cluster) removeDir() error {
	mounted, err := machine.MountsUnder(c.Dir)
	if err != nil {
		return err
	}
	if len(mounted) > 0 {
		return fmt.Errorf("%s is still mounted, and %d more", mounted[0], len(mounted)-1)
	}
	return statedir.Remove(c.Dir)
}
