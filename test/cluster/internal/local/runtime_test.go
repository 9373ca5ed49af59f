package local

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/test/cluster/internal/proc"
)

const (
	testRegistry  = "10.213.0.1:5000"
	testContainer = "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// pretend lets this process pass for a component.
func (c *Cluster) pretend(t *testing.T, component string) {
	t.Helper()
	self, err := proc.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(record{Identity: self})
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFile(c.recordPath(component), content); err != nil {
		t.Fatal(err)
	}
}

func TestTrustWritesWhereContainerdLooks(t *testing.T) {
	c := configured(t)
	c.pretend(t, "containerd")
	for range 2 { // Again is fine.
		if err := c.Trust(t.Context(), testRegistry); err != nil {
			t.Fatal(err)
		}
	}
	hosts, err := os.ReadFile(c.path("containerd", "certs.d", testRegistry, "hosts.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(hosts), `server = "http://`+testRegistry+`"`) {
		t.Errorf("hosts.toml: %s", hosts)
	}
	config, err := os.ReadFile(c.path("containerd", "config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if want := `config_path = "` + c.path("containerd", "certs.d") + `"`; !strings.Contains(string(config), want) {
		t.Errorf("containerd's configuration lacks %s", want)
	}
}

func TestMirrorComesAndGoes(t *testing.T) {
	c := configured(t)
	if err := c.Mirror(t.Context(), "docker.io", testRegistry); err == nil || !strings.Contains(err.Error(), "take the cluster up first") {
		t.Errorf("mirror without a cluster: %v", err)
	}
	c.pretend(t, "containerd")
	if err := c.Mirror(t.Context(), "docker.io", testRegistry); err != nil {
		t.Fatal(err)
	}
	file := c.path("containerd", "certs.d", "docker.io", "hosts.toml")
	hosts, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(hosts), `[host."http://`+testRegistry+`"]`) {
		t.Errorf("hosts.toml: %s", hosts)
	}
	for range 2 { // Again is fine.
		if err := c.Mirror(t.Context(), "docker.io", "none"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the mirror is still there: %v", err)
	}
}

func TestTrustAndKillCheckFirst(t *testing.T) {
	c := newCluster(t)
	check := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that says %q", what, err, want)
		}
	}
	check("trust without a cluster", c.Trust(t.Context(), testRegistry), "take the cluster up first")
	check("kill without a cluster", c.Kill(t.Context(), testContainer), "take the cluster up first")
	c.pretend(t, "containerd")
	check("trust of a path", c.Trust(t.Context(), "../"+testRegistry), "want HOST:PORT")
	check("kill of a name", c.Kill(t.Context(), "coredns"), "want the containerID")
	if _, err := os.Stat(c.certsDir()); err == nil {
		t.Error("something was written")
	}
}
