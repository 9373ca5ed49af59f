package local

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// sharedDirs are outside the state directory. Components that have no setting for
// the directory write to them anyway.
var sharedDirs = []string{"/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers"}

// absentDirs lists the shared directories that are not there, or that were not
// there before the cluster came up for the first time: a reboot leaves them.
func (c *Cluster) absentDirs(before *snapshot) []string {
	var absent []string
	for _, dir := range sharedDirs {
		_, err := os.Lstat(filepath.Join(c.root, dir))
		if errors.Is(err, fs.ErrNotExist) || before != nil && slices.Contains(before.keptByReboot(), dir) {
			absent = append(absent, dir)
		}
	}
	return absent
}

// keptByReboot are the absent directories about which a snapshot of an earlier
// boot still says something: what is in /run now, was made since.
func (s *snapshot) keptByReboot() []string {
	return slices.DeleteFunc(slices.Clone(s.AbsentDirs), func(dir string) bool { return under(dir, "/run") })
}

// cleanSharedDirs removes our files from the directories that we share, and
// those of the directories that were not there before and are empty now.
func (c *Cluster) cleanSharedDirs(ctx context.Context, absent []string) error {
	var errs []error
	// The CNI library's cache of results, which name the pod's namespace.
	cached, _ := filepath.Glob(filepath.Join(c.root, "/var/lib/cni/results/*")) // The pattern is well-formed.
	for _, path := range cached {
		content, err := os.ReadFile(path)
		if err == nil && bytes.Contains(content, []byte(c.Dir+"/")) {
			err = os.Remove(path)
		}
		errs = append(errs, err)
	}
	links, _ := filepath.Glob(filepath.Join(c.root, "/var/log/containers/*.log"))
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && under(target, c.Dir) {
			errs = append(errs, os.Remove(link))
		}
	}
	errs = append(errs, c.removeShimSockets(ctx, slices.Contains(absent, "/run/containerd")))
	// The socket for device plugins, the one that does not follow --root-dir. Ours
	// is dead: if it answers, another kubelet has moved in since.
	plugins := filepath.Join(c.root, "/var/lib/kubelet/device-plugins")
	if slices.Contains(absent, "/var/lib/kubelet") && dial(ctx, "unix", filepath.Join(plugins, "kubelet.sock")) != nil {
		errs = append(errs, os.RemoveAll(plugins))
	}
	for _, dir := range absent {
		errs = append(errs, removeEmpty(filepath.Join(c.root, dir)))
	}
	return errors.Join(errs...)
}

// removeShimSockets removes the sockets of our shims, all of which have ended.
// Each bundle records its own socket. If a shim was killed, its bundle may be
// gone before its socket. If no other cluster was there before, a socket
// without a listener is ours as well.
func (c *Cluster) removeShimSockets(ctx context.Context, alone bool) error {
	var errs []error
	ours := map[string]bool{}
	bundles, _ := filepath.Glob(c.path("containerd", "state", "io.containerd.runtime.v2.task", "*", "*", "address"))
	for _, path := range bundles {
		content, err := os.ReadFile(path)
		errs = append(errs, err)
		ours[strings.TrimPrefix(strings.TrimSpace(string(content)), "unix://")] = true
	}
	sockets, _ := filepath.Glob(filepath.Join(c.root, "/run/containerd/s/*"))
	for _, socket := range sockets {
		if ours[socket] || alone && isAbandoned(ctx, socket) {
			errs = append(errs, os.Remove(socket))
		}
	}
	return errors.Join(errs...)
}

func isAbandoned(ctx context.Context, socket string) bool {
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
