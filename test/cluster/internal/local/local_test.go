package local

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

func newCluster(t *testing.T) *Cluster {
	t.Helper()
	c := &Cluster{
		Dir:      t.TempDir(),
		root:     t.TempDir(),
		bootID:   func() (string, error) { return "this boot", nil },
		progress: progress{out: io.Discard},
		bin:      "/bin/kube",
		cni:      "/usr/lib/cni",
		network:  network{Pods: netip.MustParsePrefix("10.213.0.0/24"), Services: netip.MustParsePrefix("10.214.0.0/24")},
	}
	if err := c.makeDirs(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAddresses(t *testing.T) {
	n := newCluster(t).network
	for name, test := range map[string]struct{ got, want string }{
		"node": {n.node().String(), "10.213.0.1"},
		"API":  {n.api().String(), "10.214.0.1"},
		"DNS":  {n.dns().String(), "10.214.0.10"},
	} {
		if test.got != test.want {
			t.Errorf("%s: %s, want %s", name, test.got, test.want)
		}
	}
}

func TestStateDirectoryIsRefusedForItsLength(t *testing.T) {
	_, err := New("/"+strings.Repeat("x", maxDir), "/repo", os.Stdout)
	if err == nil || !strings.Contains(err.Error(), "socket paths") {
		t.Errorf("error %v", err)
	}
}

func configured(t *testing.T) *Cluster {
	t.Helper()
	c := newCluster(t)
	if err := c.writeCertificates(); err != nil {
		t.Fatal(err)
	}
	if err := c.writeConfig(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfigurationIsWellFormed(t *testing.T) {
	c := configured(t)
	for _, name := range []string{"conf/kubelet.yaml", "conf/kube-proxy.yaml", "conf/kubelet.kubeconfig", "kubeconfig"} {
		content, err := os.ReadFile(c.path(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(content, &map[string]any{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	conflist, err := os.ReadFile(c.path("cni", "conf", "10-slipway.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(conflist) {
		t.Errorf("not JSON: %s", conflist)
	}
	info, err := os.Stat(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig has mode %v", info.Mode())
	}
}

func TestFilesOfCommandLinesExist(t *testing.T) {
	c := configured(t)
	components := c.components()
	if len(components) != len(componentNames) {
		t.Fatalf("%d components, want %d", len(components), len(componentNames))
	}
	for _, name := range componentNames {
		component := components[name]
		if component.name != name {
			t.Errorf("no component %s", name)
		}
		for _, arg := range component.args {
			_, path, _ := strings.Cut(arg, "=")
			if !under(path, c.Dir) || strings.HasPrefix(arg, "--cert-dir=") {
				continue
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s %s: %v", name, arg, err)
			}
		}
		if !c.isComponent(name)(append([]string{component.path}, component.args...)) {
			t.Errorf("%s is not recognized by its command line", name)
		}
	}
}

func TestDNSManifestRenders(t *testing.T) {
	c := newCluster(t)
	manifest, err := render("coredns.yaml", c.values())
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		var object struct{ Kind string }
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, object.Kind)
	}
	for _, want := range []string{"Deployment", "Service", "ConfigMap", "ClusterRoleBinding"} {
		if !slices.Contains(kinds, want) {
			t.Errorf("no %s in %v", want, kinds)
		}
	}
	if !strings.Contains(string(manifest), "clusterIP: 10.214.0.10\n") {
		t.Error("the Service has another address than the kubelet gives to pods")
	}
}

func TestIsComponent(t *testing.T) {
	c := newCluster(t)
	tests := map[string]struct {
		argv []string
		want bool
	}{
		"ours":                   {[]string{"/cache/kubelet", "--config=" + c.Dir + "/conf/kubelet.yaml"}, true},
		"ours, separate value":   {[]string{"kubelet", "--config", c.Dir + "/conf/kubelet.yaml"}, true},
		"another's":              {[]string{"/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml"}, false},
		"of a similar directory": {[]string{"kubelet", "--config=" + c.Dir + "-2/conf/kubelet.yaml"}, false},
		"a reader of the log":    {[]string{"less", c.Dir + "/logs/kubelet.log"}, false},
		"no arguments":           {[]string{"kubelet"}, false},
	}
	for name, test := range tests {
		if got := c.isComponent("kubelet")(test.argv); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestIsShim(t *testing.T) {
	c := newCluster(t)
	shim := func(socket string) []string {
		return []string{"/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", "1", "-address", socket}
	}
	if !c.isShim(shim(c.Dir + "/containerd/containerd.sock")) {
		t.Error("our shim is not recognized")
	}
	if c.isShim(shim("/run/containerd/containerd.sock")) {
		t.Error("a shim of the machine's own containerd is taken for ours")
	}
}

func TestFingerprintFollowsFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	fingerprint := func(content string, args ...string) string {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		sum, err := component{name: "x", args: args, files: []string{file}}.fingerprint()
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	base := fingerprint("a", "--b")
	if base != fingerprint("a", "--b") {
		t.Error("the same input has another fingerprint")
	}
	if base == fingerprint("b", "--b") || base == fingerprint("a", "--c") {
		t.Error("other input has the same fingerprint")
	}
}

func TestRecord(t *testing.T) {
	c := newCluster(t)
	if r, err := c.record("etcd"); err != nil || r.Alive() {
		t.Errorf("no record: %v, alive %v", err, r.Alive())
	}
	c.pretend(t, "etcd")
	if r, err := c.record("etcd"); err != nil || !r.Alive() {
		t.Errorf("recorded: %v, alive %v", err, r.Alive())
	}
}

func TestWait(t *testing.T) {
	failure := errors.New("not yet")
	calls := 0
	err := wait(t.Context(), time.Minute, func(context.Context) error {
		if calls++; calls < 3 {
			return failure
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Errorf("%v after %d calls", err, calls)
	}
	err = wait(t.Context(), 10*time.Millisecond, func(context.Context) error { return failure })
	if !errors.Is(err, failure) {
		t.Errorf("at the deadline: %v", err)
	}
	dead := errors.New("dead")
	err = wait(t.Context(), time.Minute, func(context.Context) error { return failure }, func() error { return dead })
	if !errors.Is(err, dead) {
		t.Errorf("dead process: %v", err)
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(strings.Repeat("x\n", 20000)+"a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := tail(path, 2); got != "a\nb" {
		t.Errorf("%q", got)
	}
}

func TestLockIsExclusive(t *testing.T) {
	c := newCluster(t)
	release, err := c.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	if _, err := c.lock(impatient); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second lock: %v", err)
	}
	// Down removes the directory before it lets go: the next must not be content
	// with a lock on a file that is no longer there.
	if err := os.RemoveAll(c.Dir); err != nil {
		t.Fatal(err)
	}
	release()
	again, err := c.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer again()
	if _, err := os.Stat(c.path("lock")); err != nil {
		t.Error(err)
	}
}

func TestRemoveEmpty(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"a/b/c", "d/e"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "d", "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeEmpty(dir); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || filepath.Base(left[0]) != "file" {
		t.Errorf("left: %v", left)
	}
}
