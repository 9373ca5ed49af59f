package containerd

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlainHTTP(t *testing.T) {
	got, err := PlainHTTP("10.213.0.1:5000")
	if err != nil {
		t.Fatal(err)
	}
	want := `server = "http://10.213.0.1:5000"

[host."http://10.213.0.1:5000"]
  capabilities = ["pull", "resolve"]
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hosts file (-want +got):\n%s", diff)
	}
}

func TestPlainHTTPChecksTheRegistry(t *testing.T) {
	tests := map[string]struct{ registry, wantErr string }{
		"address":         {registry: "10.213.0.1:5000"},
		"name":            {registry: "registry.example-1.test:80"},
		"one letter":      {registry: "r:1"},
		"nothing":         {"", "want HOST:PORT"},
		"no port":         {"registry.test", "want HOST:PORT"},
		"empty port":      {"registry.test:", "want a port"},
		"port 0":          {"registry.test:0", "want a port"},
		"port too high":   {"registry.test:65536", "want a port"},
		"named port":      {"registry.test:http", "want a port"},
		"path":            {"registry.test:5000/x", "want a port"},
		"no host":         {":5000", "without scheme or path"},
		"scheme":          {"http://registry.test:5000", "want HOST:PORT"},
		"parent":          {"..:5000", "without scheme or path"},
		"way up":          {"../../x:5000", "without scheme or path"},
		"end of a string": {"a\"\nb:5000", "without scheme or path"},
		"option":          {"-x:5000", "without scheme or path"},
		"IPv6":            {"[::1]:5000", "an IPv4 address"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := PlainHTTP(test.registry)
			if (err != nil) != (test.wantErr != "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("error %v, want %q", err, test.wantErr)
			}
		})
	}
}

func TestKillArgs(t *testing.T) {
	digits := strings.Repeat("0123456789abcdef", 4)
	tests := map[string]struct {
		container string
		ok        bool
	}{
		"as in a pod's status": {"containerd://" + digits, true},
		"digits only":          {digits, true},
		"nothing":              {"", false},
		"prefix only":          {"containerd://", false},
		"another runtime":      {"cri-o://" + digits, false},
		"cut short":            {digits[:12], false},
		"a pod's name":         {"coredns-5d4b9c-x2x4z", false},
		"option":               {"--all", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := KillArgs(test.container)
			if !test.ok {
				if err == nil || !strings.Contains(err.Error(), "want the containerID") {
					t.Errorf("%v, error %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"task", "kill", "--signal", "SIGKILL", digits}, got); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCut(t *testing.T) {
	container := "containerd://" + strings.Repeat("0123456789abcdef", 4)
	tests := map[string]struct {
		container, address string
		isCut              bool
		want               string // the last arguments, or nothing for an error
	}{
		"cut":         {container, "10.244.0.7", true, "--source 10.244.0.7 --destination 10.244.0.7 --insert"},
		"heal":        {container, "10.244.0.7", false, "--source 10.244.0.7 --destination 10.244.0.7 --delete"},
		"cut off":     {container, Everything, true, "! --in-interface lo ! --out-interface lo --insert"},
		"a name":      {container, "pod", true, ""},
		"an option":   {container, "-j", true, ""},
		"no address":  {container, "", true, ""},
		"a prefix":    {container, "10.244.0.0/16", true, ""},
		"no id":       {"server", "10.244.0.7", true, ""},
		"a short one": {"containerd://0123", "10.244.0.7", true, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Cut(test.container, test.address, test.isCut)
			if (err != nil) != (test.want == "") || err == nil && strings.Join(got[len(got)-3:], " ") != test.want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestMirror(t *testing.T) {
	same, err := PlainHTTP("10.213.0.1:5000")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ registry, mirror, want, wantErr string }{
		"mirror":          {"docker.io", "10.213.0.1:5000", same, ""},
		"no mirror":       {"docker.io", NoMirror, "", ""},
		"way up":          {"..", "10.213.0.1:5000", "", "want a name"},
		"path":            {"docker.io/mcp", NoMirror, "", "want a name"},
		"port":            {"docker.io:443", NoMirror, "", "want a name"},
		"mirror with TLS": {"docker.io", "https://10.213.0.1:5000", "", "want HOST:PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Mirror(test.registry, test.mirror)
			if (err != nil) != (test.wantErr != "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("error %v, want %q", err, test.wantErr)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("hosts file (-want +got):\n%s", diff)
			}
		})
	}
}
