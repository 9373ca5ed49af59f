package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
	"github.com/slipway-mcp/slipway/test/cluster/internal/containerd"
	"github.com/slipway-mcp/slipway/test/cluster/internal/statedir"
)

func TestChoose(t *testing.T) {
	tests := map[string]struct {
		asked, recorded string
		docker          bool
		want, wantErr   string
	}{
		"nothing, no engine":        {want: "local"},
		"nothing, engine":           {docker: true, want: "kind"},
		"asked for local":           {asked: "local", docker: true, want: "local"},
		"asked for kind":            {asked: "kind", want: "kind"},
		"asked for existing":        {asked: "existing", docker: true, want: "existing"},
		"existing beside local":     {asked: "existing", recorded: "local", want: "existing"},
		"local is up, then Docker":  {recorded: "local", docker: true, want: "local"},
		"kind is up, Docker is not": {recorded: "kind", want: "kind"},
		"asked for what is up":      {asked: "kind", recorded: "kind", want: "kind"},
		"asked for another":         {asked: "kind", recorded: "local", wantErr: "take it down first"},
		"unknown":                   {asked: "minikube", wantErr: "want kind, local or existing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := choose("up", test.asked, test.recorded, func() bool { return test.docker })
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("error %v, want one that says %q", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func TestStateDir(t *testing.T) {
	tests := map[string]struct {
		environment map[string]string
		uid         int
		want        string
	}{
		"root":          {environment: map[string]string{"HOME": "/root"}, want: "/var/lib/slipway-cluster"},
		"user":          {environment: map[string]string{"HOME": "/home/u"}, uid: 1000, want: "/home/u/.local/state/slipway-cluster"},
		"user, XDG":     {environment: map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "/s"}, uid: 1000, want: "/s/slipway-cluster"},
		"named":         {environment: map[string]string{"SLIPWAY_CLUSTER_DIR": "/x"}, want: "/x"},
		"user, nowhere": {uid: 1000},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := stateDir(func(key string) string { return test.environment[key] }, test.uid)
			if got != test.want || (err != nil) != (test.want == "") {
				t.Errorf("%q, %v, want %q", got, err, test.want)
			}
		})
	}
}

// recorder stands in for the programs that a provider runs.
type recorder struct {
	clusters string
	lines    []string
	fail     error
}

func (r *recorder) run(_ context.Context, _ string, output io.Writer, name string, args ...string) error {
	r.lines = append(r.lines, strings.Join(append([]string{name}, args...), " "))
	if args[len(args)-1] == "clusters" {
		_, _ = io.WriteString(output, r.clusters)
		return nil
	}
	return r.fail
}

func TestKindCommandLines(t *testing.T) {
	const tool = "go tool -modfile=hack/tools/go.mod kind "
	dir := filepath.Join(t.TempDir(), "state")
	kubeconfig := filepath.Join(dir, "kubeconfig")
	containerID := strings.Repeat("0123456789abcdef", 4)
	hosts, err := containerd.PlainHTTP("172.18.0.1:5000")
	if err != nil {
		t.Fatal(err)
	}
	working, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		clusters string
		run      func(*kind) error
		want     []string
	}{
		"up": {
			clusters: "other\nslipway-2\n",
			run:      func(k *kind) error { return k.Up(t.Context()) },
			want: []string{
				tool + "get clusters",
				tool + "create cluster --name slipway --config test/cluster/kind.yaml --kubeconfig " + kubeconfig + " --wait 3m",
			},
		},
		"load": {
			run: func(k *kind) error { return k.Load(t.Context(), "a.tar", "/b.tar") },
			want: []string{
				tool + "load image-archive " + filepath.Join(working, "a.tar") + " --name slipway",
				tool + "load image-archive /b.tar --name slipway",
			},
		},
		"trust": {
			run: func(k *kind) error { return k.Trust(t.Context(), "172.18.0.1:5000") },
			want: []string{
				`docker exec slipway-control-plane sh -c mkdir -p "$1" && printf %s "$2" >"$1/hosts.toml"` +
					" trust /etc/containerd/certs.d/172.18.0.1:5000 " + hosts,
			},
		},
		"kill": {
			run:  func(k *kind) error { return k.Kill(t.Context(), "containerd://"+containerID) },
			want: []string{"docker exec slipway-control-plane ctr --namespace k8s.io task kill --signal SIGKILL " + containerID},
		},
		"freeze": {
			run:  func(k *kind) error { return k.Freeze(t.Context(), true) },
			want: []string{"docker exec slipway-control-plane pkill --exact --signal STOP kube-apiserver"},
		},
		"thaw": {
			run:  func(k *kind) error { return k.Freeze(t.Context(), false) },
			want: []string{"docker exec slipway-control-plane pkill --exact --signal CONT kube-apiserver"},
		},
		"down": {
			run:  func(k *kind) error { return k.Down(t.Context()) },
			want: []string{tool + "delete cluster --name slipway --kubeconfig " + kubeconfig},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			commands := &recorder{clusters: test.clusters}
			if err := test.run(&kind{repository: "/repo", dir: dir, run: commands.run}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, commands.lines); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKindKeepsTheClusterThatIsUp(t *testing.T) {
	commands := &recorder{clusters: "slipway\n", fail: errors.New("no engine here")}
	err := (&kind{dir: t.TempDir(), run: commands.run}).Up(t.Context())
	if !errors.Is(err, commands.fail) {
		t.Errorf("error %v", err)
	}
	if last := commands.lines[len(commands.lines)-1]; !strings.Contains(last, "export kubeconfig --name slipway") {
		t.Errorf("ran %s", last)
	}
}

func TestKindChecksWhatItPassesOn(t *testing.T) {
	commands := &recorder{}
	k := &kind{run: commands.run}
	if err := k.Trust(t.Context(), "../x:5000"); err == nil || !strings.Contains(err.Error(), "want HOST:PORT") {
		t.Errorf("trust: %v", err)
	}
	if err := k.Kill(t.Context(), "coredns"); err == nil || !strings.Contains(err.Error(), "want the containerID") {
		t.Errorf("kill: %v", err)
	}
	if len(commands.lines) > 0 {
		t.Errorf("ran %v", commands.lines)
	}
}

func TestKindMarksItsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	k := &kind{dir: dir, run: (&recorder{}).run}
	if err := k.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := statedir.Provider(dir); got != "kind" {
		t.Errorf("provider %q", got)
	}
	if err := k.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory is still there")
	}
	if err := k.Down(t.Context()); err != nil {
		t.Errorf("down again: %v", err)
	}
}

func TestKindConfig(t *testing.T) {
	content, err := os.ReadFile("kind.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name: " + kindName + "\n", "image: kindest/node:v1.", "@sha256:", `config_path = "` + kindCerts + `"`} {
		if !strings.Contains(string(content), want) {
			t.Errorf("kind.yaml lacks %q", want)
		}
	}
}

// A user who has loaded an image is told by which name pods find it.
func TestNamesOfLoadedImages(t *testing.T) {
	image, err := imagebuild.Image(imagebuild.Spec{Platform: v1.Platform{OS: "linux", Architecture: "amd64"}, Entrypoint: []string{"/x"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	named, broken := filepath.Join(dir, "named.tar"), filepath.Join(dir, "broken.tar")
	if err := errors.Join(imagebuild.WriteTar(named, "registry.example/mcp/echo:1.4", image), os.WriteFile(broken, []byte("no tar"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	printImages(&out, []string{broken, named})
	if got := out.String(); !strings.HasSuffix(got, "\nimage registry.example/mcp/echo:1.4\n") || !strings.HasPrefix(got, "read names of images in "+broken) {
		t.Errorf("printed %q", got)
	}
}

func TestExisting(t *testing.T) {
	var out strings.Builder
	cluster := &existing{out: &out}
	if err := cluster.Down(t.Context()); err != nil || !strings.Contains(out.String(), "stays as it is") {
		t.Errorf("down: %v, %q", err, out.String())
	}
	if err := cluster.Load(t.Context(), "a.tar"); err == nil || !strings.Contains(err.Error(), "push them to a registry") {
		t.Errorf("load: %v", err)
	}
	if err := cluster.Trust(t.Context(), "registry.test:5000"); err == nil || !strings.Contains(err.Error(), "whoever runs them") {
		t.Errorf("trust: %v", err)
	}
	if err := cluster.Kill(t.Context(), "containerd://1"); err == nil || !strings.Contains(err.Error(), "whoever runs them") {
		t.Errorf("kill: %v", err)
	}
	if err := cluster.Freeze(t.Context(), true); err == nil || !strings.Contains(err.Error(), "whoever runs it") {
		t.Errorf("freeze: %v", err)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	if err := cluster.Up(t.Context()); err == nil {
		t.Error("up without a cluster: no error")
	}
}

func TestKubeconfigOfNoCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	cluster := &kind{dir: filepath.Dir(path)}
	for _, name := range []string{providerLocal, providerKind} {
		if err := execute(t.Context(), name, cluster, []string{"kubeconfig"}); err == nil || !strings.Contains(err.Error(), "there is no cluster") {
			t.Errorf("%s: error %v, want one that says so", name, err)
		}
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{providerLocal: path, providerKind: path, providerExisting: "one:two"} {
		var out strings.Builder
		if err := printKubeconfig(name, path, &out); err != nil || out.String() != path+"\n" {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
	}
}

func TestUsage(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"none":                   {nil, "one command is needed"},
		"load without archive":   {[]string{"load"}, "load needs archives"},
		"trust without registry": {[]string{"trust"}, "trust needs one HOST:PORT"},
		"trust of two":           {[]string{"trust", "a:1", "b:1"}, "trust needs one HOST:PORT"},
		"kill without container": {[]string{"kill"}, "kill needs one container's id"},
		"kill of two":            {[]string{"kill", "a", "b"}, "kill needs one container's id"},
		"two commands":           {[]string{"up", "down"}, "up takes no arguments"},
	} {
		if err := run(t.Context(), test.args); err == nil || err.Error() != test.want {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
}
