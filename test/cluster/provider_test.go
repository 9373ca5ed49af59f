package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
	"github.com/slipway-mcp/slipway/test/cluster/internal/containerd"
	"github.com/slipway-mcp/slipway/test/cluster/internal/engine"
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
	lines []string
	// answers are what a program prints, by a part of its command line.
	answers map[string]string
	// failures are errors, likewise.
	failures map[string]error
}

func (r *recorder) run(_ context.Context, _ string, output io.Writer, name string, args ...string) error {
	line := strings.Join(append([]string{name}, args...), " ")
	r.lines = append(r.lines, line)
	for part, answer := range r.answers {
		if strings.Contains(line, part) {
			_, _ = io.WriteString(output, answer)
		}
	}
	for part, failure := range r.failures {
		if strings.Contains(line, part) {
			return failure
		}
	}
	return nil
}

func TestKindCommandLines(t *testing.T) {
	const tool = "go tool -modfile=hack/tools/go.mod kind "
	dir := filepath.Join(t.TempDir(), "state")
	containerID := strings.Repeat("0123456789abcdef", 4)
	hosts, err := containerd.PlainHTTP("172.18.0.1:5000")
	if err != nil {
		t.Fatal(err)
	}
	working, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	const mirror = `rm -rf "$1" && if [ -n "$2" ]; then mkdir -p "$1" && printf %s "$2" >"$1/hosts.toml"; fi`
	const kill = " ctr --namespace k8s.io task kill --signal SIGKILL "
	tests := map[string]struct {
		run  func(*kind) error
		want []string
	}{
		"load": {
			run: func(k *kind) error { return k.Load(t.Context(), "a.tar", "/b.tar") },
			want: []string{
				tool + "load image-archive " + filepath.Join(working, "a.tar") + " --name slipway",
				tool + "load image-archive /b.tar --name slipway",
			},
		},
		"trust on every node": {
			run: func(k *kind) error { return k.Trust(t.Context(), "172.18.0.1:5000") },
			want: []string{
				tool + "get nodes --name slipway",
				`docker exec slipway-control-plane sh -c mkdir -p "$1" && printf %s "$2" >"$1/hosts.toml" trust /etc/containerd/certs.d/172.18.0.1:5000 ` + hosts,
				`docker exec slipway-worker sh -c mkdir -p "$1" && printf %s "$2" >"$1/hosts.toml" trust /etc/containerd/certs.d/172.18.0.1:5000 ` + hosts,
			},
		},
		"mirror on every node": {
			run: func(k *kind) error { return k.Mirror(t.Context(), "docker.io", "172.18.0.1:5000") },
			want: []string{
				tool + "get nodes --name slipway",
				`docker exec slipway-control-plane sh -c ` + mirror + ` mirror /etc/containerd/certs.d/docker.io ` + hosts,
				`docker exec slipway-worker sh -c ` + mirror + ` mirror /etc/containerd/certs.d/docker.io ` + hosts,
			},
		},
		"kill on the node that has it": {
			run: func(k *kind) error { return k.Kill(t.Context(), "containerd://"+containerID) },
			want: []string{
				tool + "get nodes --name slipway",
				"docker exec slipway-control-plane" + kill + containerID,
				"docker exec slipway-worker" + kill + containerID,
			},
		},
		"pin": {
			run:  func(k *kind) error { return k.Pin(t.Context(), "slipway-worker", "10.244.1.7") },
			want: []string{`docker exec slipway-worker sh -c cd "$1" && printf %s "$2" >last_reserved_ip.0 pin /run/cni-ipam-state/kindnet 10.244.1.6`},
		},
		"freeze": {
			run:  func(k *kind) error { return k.Freeze(t.Context(), true) },
			want: []string{"docker exec slipway-control-plane pkill --exact --signal STOP kube-apiserver"},
		},
		"thaw": {
			run:  func(k *kind) error { return k.Freeze(t.Context(), false) },
			want: []string{"docker exec slipway-control-plane pkill --exact --signal CONT kube-apiserver"},
		},
		"stop a node": {
			run:  func(k *kind) error { return k.SetNode(t.Context(), "slipway-worker", false) },
			want: []string{tool + "get nodes --name slipway", "docker kill slipway-worker"},
		},
		"start a node": {
			run:  func(k *kind) error { return k.SetNode(t.Context(), "slipway-worker", true) },
			want: []string{tool + "get nodes --name slipway", "docker start slipway-worker"},
		},
		"down without a cluster": {
			run: func(k *kind) error { return k.Down(t.Context()) },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			commands := &recorder{
				answers:  map[string]string{"get nodes": "slipway-control-plane\nslipway-worker\n"},
				failures: map[string]error{"control-plane" + kill: errors.New("no such task")},
			}
			if err := test.run(&kind{repository: "/repo", dir: dir, run: commands.run}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, commands.lines); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
		})
	}
}

// The published image is taken where it can be had, then our own, and then the command says that there is none.
func TestKindImage(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	config, err := readConfig(root)
	if err != nil {
		t.Fatal(err)
	}
	published := config.image()
	refused := errors.New("no route to host")
	absent := errors.New("no such image")
	const build, inspect = "kindnode/build.sh", "docker image inspect"
	tests := map[string]struct {
		answers  map[string]string
		failures map[string]error
		asked    kindOptions
		want     string
		wantErr  error
	}{
		"it is there":          {failures: map[string]error{"docker pull": refused}, want: published},
		"it can be pulled":     {failures: map[string]error{inspect: absent}, want: published},
		"no registry":          {answers: map[string]string{build: "/cache/v1.37.0-key/node.tar\n"}, failures: map[string]error{inspect: absent, "docker pull": refused}, want: "slipway-kind-node:v1.37.0-key"},
		"neither":              {failures: map[string]error{inspect: absent, "docker pull": refused, build: errors.New("needs root")}, wantErr: errNoImage},
		"the user names one":   {asked: kindOptions{image: "mine:1"}, failures: map[string]error{inspect: absent, "docker pull": refused}, want: "mine:1"},
		"another version":      {asked: kindOptions{version: "v1.36"}, answers: map[string]string{"--version": "v1.36.3\n"}, want: otherImages[0]},
		"another patch level":  {asked: kindOptions{version: "v1.36.3"}, answers: map[string]string{"--version": "v1.36.3\n", build: "/cache/v1.36.3-key/node.tar\n"}, want: "slipway-kind-node:v1.36.3-key"},
		"no such version":      {asked: kindOptions{version: "v1.3"}, answers: map[string]string{"--version": "v1.3.6\n", build: "/cache/v1.3.6-key/node.tar\n"}, want: "slipway-kind-node:v1.3.6-key"},
		"another, no registry": {asked: kindOptions{version: "v1.36"}, answers: map[string]string{"--version": "v1.36.3\n", build: "/cache/v1.36.3-key/node.tar\n"}, failures: map[string]error{inspect: absent, "docker pull": refused}, want: "slipway-kind-node:v1.36.3-key"},
		"cgroup v1":            {answers: map[string]string{"docker info": "1\n", build: "/cache/v1.37.0-key/node.tar\n"}, want: "slipway-kind-node:v1.37.0-key"},
		"cgroup v2":            {answers: map[string]string{"docker info": "2\n"}, want: published},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			commands := &recorder{answers: map[string]string{"--version": "v1.37.0\n"}, failures: test.failures}
			maps.Copy(commands.answers, test.answers)
			k := &kind{repository: root, dir: t.TempDir(), run: commands.run, options: test.asked}
			got, err := k.image(t.Context())
			if got != test.want || !errors.Is(err, test.wantErr) {
				t.Errorf("image %q, %v; want %q, %v; ran:\n%s", got, err, test.want, test.wantErr, strings.Join(commands.lines, "\n"))
			}
			if test.wantErr != nil && !errors.Is(err, refused) {
				t.Errorf("error %v does not say why the image cannot be pulled", err)
			}
		})
	}
}

func TestKindCreates(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "state")
	commands := &recorder{answers: map[string]string{"get clusters": "other\nslipway-2\n", "--version": "v1.36.3\n"}}
	k := &kind{repository: root, dir: dir, run: commands.run, options: kindOptions{nodes: 2, version: "v1.36"}}
	commands.failures = map[string]error{"create cluster": errors.New("no kubeadm here")}
	if err := k.Up(t.Context()); !errors.Is(err, commands.failures["create cluster"]) {
		t.Fatalf("error %v", err)
	}
	deleted := commands.lines[len(commands.lines)-1]
	commands.lines = commands.lines[:len(commands.lines)-1]
	if !strings.Contains(deleted, "kind delete cluster --name slipway") {
		t.Errorf("what is left of a cluster that failed: ran %s", deleted)
	}
	want := "go tool -modfile=hack/tools/go.mod kind create cluster --name slipway --image " + otherImages[0] + " --config " + filepath.Join(dir, "kind.yaml") +
		" --kubeconfig " + filepath.Join(dir, "kubeconfig") + " --wait 3m"
	if last := commands.lines[len(commands.lines)-1]; last != want {
		t.Errorf("ran  %s\nwant %s", last, want)
	}
	text, err := os.ReadFile(filepath.Join(dir, "kind.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name: " + kindName + "\n", "role: worker", "taints: []", `config_path = "` + kindCerts + `"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the configuration lacks %q:\n%s", want, text)
		}
	}
	if got := statedir.Provider(dir); got != "kind" {
		t.Errorf("provider %q", got)
	}
	if err := k.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last := commands.lines[len(commands.lines)-1]; !strings.Contains(last, "kind delete cluster --name slipway") {
		t.Errorf("down ran %s", last)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory is still there")
	}
	if err := k.Down(t.Context()); err != nil {
		t.Errorf("down again: %v", err)
	}
}

// Without an image, the directory stays free for the local cluster.
func TestKindWithoutImageClaimsNothing(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "state")
	refused := errors.New("no")
	commands := &recorder{failures: map[string]error{"docker image inspect": refused, "docker pull": refused, "kindnode/build.sh": refused}, answers: map[string]string{"--version": "v1.37.0\n"}}
	if err := (&kind{repository: root, dir: dir, run: commands.run}).Up(t.Context()); !errors.Is(err, errNoImage) {
		t.Errorf("error %v", err)
	}
	if got := statedir.Provider(dir); got != "" {
		t.Errorf("provider %q", got)
	}
}

// imageless is a provider that has no image for its nodes.
type imageless struct{ provider }

func (imageless) Up(context.Context) error { return fmt.Errorf("%w: no registry answers", errNoImage) }

// upOnly is a provider that can be taken up.
type upOnly struct{ provider }

func (upOnly) Up(context.Context) error { return nil }
func (upOnly) Kubeconfig() string       { return "/kubeconfig" }

// A user who has not asked for kind gets a local cluster where kind has no image, and is told why in one sentence.
func TestLocalInsteadOfKind(t *testing.T) {
	for asked, wantNotes := range map[string]int{"": 1, providerKind: 0} {
		t.Run("CLUSTER="+asked, func(t *testing.T) {
			var out strings.Builder
			var used []string
			c := &choice{dir: t.TempDir(), asked: asked, out: &out, newProvider: func(name, _ string) (provider, error) {
				used = append(used, name)
				return map[string]provider{providerKind: imageless{}, providerLocal: upOnly{}}[name], nil
			}}
			err := c.execute(t.Context(), providerKind, []string{"up"})
			if fellBack := err == nil && len(used) == 2 && used[1] == providerLocal; fellBack != (wantNotes == 1) || err != nil && !errors.Is(err, errNoImage) {
				t.Errorf("used %v, and then %v", used, err)
			}
			if got := strings.Count(out.String(), "note: "); got != wantNotes || wantNotes == 1 && !strings.Contains(out.String(), "no registry answers") {
				t.Errorf("printed %q", &out)
			}
		})
	}
}

// The reason for another provider is in the error of the program that failed.
func TestErrorHasTheLastLine(t *testing.T) {
	err := runCommand(t.Context(), "", io.Discard, "sh", "-c", "echo first >&2; echo the reason >&2; exit 3")
	if err == nil || err.Error() != "exit status 3: the reason" {
		t.Errorf("%v", err)
	}
}

// An engine that cannot be started leaves the directory to another provider.
func TestKindWithoutEngineClaimsNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	k := &kind{dir: dir, engine: &engine.Engine{Dir: filepath.Join(dir, "engine"), Repository: t.TempDir()}}
	t.Setenv("PATH", t.TempDir()) // no docker, and nothing that could start one
	t.Setenv("DOCKER_HOST", "")
	if err := k.Up(t.Context()); err == nil {
		t.Fatal("no error")
	}
	if got := statedir.Provider(dir); got != "" {
		t.Errorf("provider %q", got)
	}
}

func TestKindKeepsTheClusterThatIsUp(t *testing.T) {
	failed := errors.New("no engine here")
	commands := &recorder{answers: map[string]string{"get clusters": "slipway\n"}, failures: map[string]error{"export kubeconfig --name slipway": failed}}
	if err := (&kind{dir: t.TempDir(), run: commands.run}).Up(t.Context()); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
}

func TestKindOptions(t *testing.T) {
	for text, want := range map[string]int{"": 0, "1": 1, "2": 2, "3": -1, "0": -1, "two": -1} {
		options, err := kindOptionsOf(func(name string) string { return map[string]string{"NODES": text}[name] })
		if (err == nil) != (want >= 0) || err == nil && options.nodes != want {
			t.Errorf("NODES=%s: %d, %v", text, options.nodes, err)
		}
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
	if err := cluster.Trust(t.Context(), "registry.test:5000"); err == nil || !strings.Contains(err.Error(), "their operators") {
		t.Errorf("trust: %v", err)
	}
	if err := cluster.Mirror(t.Context(), "docker.io", "registry.test:5000"); err == nil || !strings.Contains(err.Error(), "their operators") {
		t.Errorf("mirror: %v", err)
	}
	if err := cluster.Kill(t.Context(), "containerd://1"); err == nil || !strings.Contains(err.Error(), "their operators") {
		t.Errorf("kill: %v", err)
	}
	if err := cluster.Freeze(t.Context(), true); err == nil || !strings.Contains(err.Error(), "its operators") {
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
		"mirror of nothing":      {[]string{"mirror", "docker.io"}, "mirror needs the name of one registry and one HOST:PORT"},
		"kill without container": {[]string{"kill"}, "kill needs one container's id"},
		"kill of two":            {[]string{"kill", "a", "b"}, "kill needs one container's id"},
		"pin without address":    {[]string{"pin", "node"}, "pin needs the name of one node and one address"},
		"stop no node":           {[]string{"stop-node"}, "stop-node needs the name of one node"},
		"two commands":           {[]string{"up", "down"}, "up takes no arguments"},
	} {
		if err := run(t.Context(), test.args); err == nil || err.Error() != test.want {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
}
