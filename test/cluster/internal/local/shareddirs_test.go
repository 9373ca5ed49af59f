package local

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fill writes files below the root that stands in for the machine's.
func fill(t *testing.T, c *Cluster, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(c.root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// link makes a link in a directory that exists.
func link(t *testing.T, c *Cluster, name, target string) {
	t.Helper()
	if err := os.Symlink(target, filepath.Join(c.root, name)); err != nil {
		t.Fatal(err)
	}
}

func writeSnapshot(t *testing.T, c *Cluster, s snapshot) {
	t.Helper()
	content, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFile(c.path("machine.json"), content); err != nil {
		t.Fatal(err)
	}
}

// left lists the files and empty directories below the root.
func left(t *testing.T, c *Cluster) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(c.root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
				return err
			}
		}
		paths = append(paths, path[len(c.root):])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestRebootKeepsWhatDownHasToClean(t *testing.T) {
	c := newCluster(t)
	fill(t, c, map[string]string{
		"/var/lib/cni/results/ours":                                     `{"netns":"` + c.Dir + `/netns/1"}`,
		"/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint":   "",
		"/run/containerd/io.containerd.runtime.v2.task/another/address": "",
	})
	for _, dir := range []string{"/run/containerd/s", "/var/log/containers"} {
		if err := os.MkdirAll(filepath.Join(c.root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link(t, c, "/var/log/containers/ours.log", c.path("pods", "0.log"))
	writeSnapshot(t, c, snapshot{BootID: "an earlier boot", AbsentDirs: sharedDirs})
	if err := c.restoreMachine(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What is in /run was made since the reboot, by others, even what is empty.
	want := []string{"/run/containerd/io.containerd.runtime.v2.task/another/address", "/run/containerd/s", "/var/lib", "/var/log"}
	if diff := cmp.Diff(want, left(t, c)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestOthersFilesStay(t *testing.T) {
	c := newCluster(t)
	files := map[string]string{
		"/var/lib/cni/results/another":                                `{"netns":"/run/netns/1"}`,
		"/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": "",
		"/var/log/containers/another.txt":                             "",
	}
	fill(t, c, files)
	link(t, c, "/var/log/containers/another.log", "/var/log/pods/0.log")
	before := left(t, c)
	// They were all there before us.
	if err := c.cleanSharedDirs(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, left(t, c)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestAnotherKubeletKeepsItsPlugins(t *testing.T) {
	c := newCluster(t)
	// Short, for the sake of the socket.
	root, err := os.MkdirTemp("/tmp", "slipway") //nolint:usetesting // TempDir's path is too long for a socket.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	c.root = root
	checkpoint := "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
	fill(t, c, map[string]string{checkpoint: ""})
	socket := filepath.Join(root, "/var/lib/kubelet/device-plugins/kubelet.sock")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if err := c.cleanSharedDirs(t.Context(), sharedDirs); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, checkpoint)); err != nil {
		t.Error(err)
	}
}

func TestRebootCarriesAbsentDirsOver(t *testing.T) {
	all := map[string]string{
		"/run/containerd/x": "", "/var/lib/cni/x": "", "/var/lib/kubelet/x": "", "/var/log/containers/x": "",
	}
	tests := map[string]struct {
		before *snapshot
		files  map[string]string
		want   []string
	}{
		"first up, all absent":  {nil, nil, sharedDirs},
		"first up, all present": {nil, all, nil},
		"up after a reboot, ours present": {
			&snapshot{AbsentDirs: sharedDirs}, all, []string{"/var/lib/cni", "/var/lib/kubelet", "/var/log/containers"},
		},
		"up after a reboot, one was another's": {
			&snapshot{AbsentDirs: []string{"/run/containerd", "/var/lib/cni"}}, all, []string{"/var/lib/cni"},
		},
		"up after a reboot, another's is gone": {
			&snapshot{AbsentDirs: []string{"/var/lib/cni"}},
			map[string]string{"/run/containerd/x": "", "/var/lib/cni/x": "", "/var/lib/kubelet/x": ""},
			[]string{"/var/lib/cni", "/var/log/containers"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			fill(t, c, test.files)
			if diff := cmp.Diff(test.want, c.absentDirs(test.before)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSnapshotIsOfOneBoot(t *testing.T) {
	c := newCluster(t)
	for boot, want := range map[string]bool{"this boot": true, "an earlier boot": false} {
		writeSnapshot(t, c, snapshot{BootID: boot})
		if s, err := c.currentSnapshot(); err != nil || (s != nil) != want {
			t.Errorf("%s: %v, %v", boot, s, err)
		}
	}
}
