package workload

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/yaml"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/registry"
)

func TestCommand(t *testing.T) {
	image := &registry.Image{Reference: testDigest, Entrypoint: []string{"entry", "$(A)"}, Cmd: []string{"cmd", "$$"}}
	for name, test := range map[string]struct {
		command, args []string
		image         *registry.Image
		want          []string // nil: unknown
		wantLaunched  []string
		wantImage     string
	}{
		"all of the image":            {nil, nil, image, []string{"entry", "$(A)", "cmd", "$$"}, []string{"entry", "$$(A)", "cmd", "$$$$"}, testDigest},
		"arguments":                   {nil, []string{"$(B)"}, image, []string{"entry", "$(A)", "$(B)"}, []string{"entry", "$$(A)", "$(B)"}, testDigest},
		"command":                     {[]string{"$(C)"}, nil, image, []string{"$(C)"}, []string{"$(C)"}, "registry.example/echo:1.4"},
		"command and arguments":       {[]string{"c"}, []string{"b"}, nil, []string{"c", "b"}, []string{"c", "b"}, "registry.example/echo:1.4"},
		"no entrypoint":               {nil, nil, &registry.Image{Cmd: []string{"cmd"}}, []string{"cmd"}, []string{"cmd"}, "registry.example/echo:1.4"},
		"no entrypoint, arguments":    {nil, []string{"b"}, &registry.Image{Cmd: []string{"cmd"}}, []string{"b"}, []string{"b"}, "registry.example/echo:1.4"},
		"unresolved":                  {nil, nil, nil, nil, nil, ""},
		"unresolved, arguments":       {nil, []string{"b"}, nil, nil, nil, ""},
		"image that names no program": {nil, nil, &registry.Image{}, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := readInput(t, "minimal")
			in.Server.Spec.Command, in.Server.Spec.Args, in.Image = test.command, test.args, test.image
			if got := Command(in.Server, in.Image); !cmp.Equal(got, test.want) {
				t.Errorf("command %q, want %q", got, test.want)
			}
			if needs := NeedsImage(in.Server); needs != (test.command == nil) {
				t.Errorf("needs the image: %t", needs)
			}
			if test.want == nil {
				_, err := PodTemplate(in)
				unknown, ok := errors.AsType[*CommandUnknownError](err)
				if !ok || unknown.Resolved != (test.image != nil) || !strings.Contains(unknown.Error(), "set spec.command") {
					t.Errorf("got %v", err)
				}
				return
			}
			container := podOf(t, in).Containers[0]
			want := append([]string{"/slipway/launcher", "--socket=/slipway/adapter.sock", "--"}, test.wantLaunched...)
			if diff := cmp.Diff(want, container.Command); diff != "" || container.Args != nil {
				t.Errorf("launched (-want +got):\n%s\nwith arguments %q", diff, container.Args)
			}
			if container.Image != test.wantImage {
				t.Errorf("runs %s, want %s", container.Image, test.wantImage)
			}
		})
	}
}

// The launcher starts a server that speaks HTTP if the command is known. A server whose
// command is not known still runs.
func TestCommandOfHTTPServer(t *testing.T) {
	image := &registry.Image{Reference: testDigest, Entrypoint: []string{"entry", "$HOME"}, Cmd: []string{"cmd"}}
	const tag = "registry.example/echo:1.4"
	for name, test := range map[string]struct {
		spec        string // merged over the case's
		image       *registry.Image
		wantCommand []string
		wantArgs    []string
		wantImage   string
	}{
		"nothing known":             {"{}", nil, nil, []string{"--port=3000"}, tag},
		"command":                   {"{command: [serve, $(PORT)]}", nil, []string{"/slipway/launcher", "run", "--", "serve", "$(PORT)", "--port=3000"}, nil, tag},
		"image":                     {"{}", image, []string{"/slipway/launcher", "run", "--", "entry", "$$HOME", "--port=3000"}, nil, testDigest},
		"image with its arguments":  {"{args: null}", image, []string{"/slipway/launcher", "run", "--", "entry", "$$HOME", "cmd"}, nil, testDigest},
		"image without a program":   {"{args: null}", &registry.Image{Reference: testDigest}, nil, nil, tag},
		"image that is not pulled":  {"{imagePullPolicy: Never}", image, nil, []string{"--port=3000"}, tag},
		"command of such an image":  {"{imagePullPolicy: Never, command: [serve]}", image, []string{"/slipway/launcher", "run", "--", "serve", "--port=3000"}, nil, tag},
		"command that is an init":   {"{command: [/usr/bin/tini, --, serve]}", nil, []string{"/usr/bin/tini", "--", "serve"}, []string{"--port=3000"}, tag},
		"image whose entry is init": {"{}", &registry.Image{Reference: testDigest, Entrypoint: []string{"/init"}}, nil, []string{"--port=3000"}, tag},
	} {
		t.Run(name, func(t *testing.T) {
			in := readInput(t, "streamable-http")
			if err := yaml.UnmarshalStrict([]byte(test.spec), &in.Server.Spec); err != nil {
				t.Fatal(err)
			}
			in.Image = test.image
			if NeedsImage(in.Server) {
				t.Error("needs the image")
			}
			container := podOf(t, in).Containers[0]
			got := []any{container.Command, container.Args, container.Image}
			if diff := cmp.Diff([]any{test.wantCommand, test.wantArgs, test.wantImage}, got); diff != "" {
				t.Errorf("command, arguments and image (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUpstream(t *testing.T) {
	for path, want := range map[string]string{
		"":          "http://127.0.0.1:3000/mcp",
		"/":         "http://127.0.0.1:3000/",
		"/a%20b/ü":  "http://127.0.0.1:3000/a%20b/%C3%BC",
		"/100%":     "http://127.0.0.1:3000/100%25",
		"//x/y":     "http://127.0.0.1:3000//x/y",
		"/a:80@b/c": "http://127.0.0.1:3000/a:80@b/c",
	} {
		server := readInput(t, "streamable-http").Server
		server.Spec.Transport.StreamableHTTP.Path = mcpv1alpha1.URLPath(path)
		if got := upstream(server); got != want {
			t.Errorf("path %q: %s, want %s", path, got, want)
		}
	}
	server := readInput(t, "sse").Server
	server.Spec.Transport.SSE.Path = ""
	if got, want := upstream(server), "http://127.0.0.1:3000/sse"; got != want {
		t.Errorf("sse: %s, want %s", got, want)
	}
}

func TestURL(t *testing.T) {
	server := readInput(t, "minimal").Server
	for port, want := range map[*int32]string{
		nil:             "http://echo.team.svc/mcp",
		new(int32(80)):  "http://echo.team.svc/mcp",
		new(int32(443)): "http://echo.team.svc:443/mcp",
	} {
		server.Spec.Service.Port = port
		if got := URL(server); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got, want := Selector(server), "mcp.slipway.dev/server=echo"; got != want {
		t.Errorf("selector %s, want %s", got, want)
	}
}

// Only what was left out gets a default: an object that was stored before a default
// was in the schema has none.
func TestWithoutSchemaDefaults(t *testing.T) {
	server := readInput(t, "user-unresolved").Server
	server.Spec.Session, server.Spec.Service, server.Spec.Replicas = mcpv1alpha1.Session{}, mcpv1alpha1.Service{}, nil
	if hosts := Settings(server, "").AllowedHosts; !slices.Contains(hosts, "echo.team.svc.cluster.local") {
		t.Errorf("hosts %q", hosts)
	}
	if got := *Deployment(server, corev1ac.PodTemplateSpec(), Replicas(server)).Spec.Replicas; got != 1 {
		t.Errorf("%d replicas", got)
	}
	if service := Service(server); *service.Spec.Type != corev1.ServiceTypeClusterIP || *service.Spec.Ports[0].Port != 80 {
		t.Errorf("service %s", encode(t, service))
	}
}

// The cluster autoscaler waits 10 minutes for a pod. A server that speaks HTTP may take all of the grace period.
func TestDrainTimeout(t *testing.T) {
	for name, test := range map[string]struct {
		input, flag, hook string
		given             *metav1.Duration
		grace             int64
	}{
		"stdio":        {"minimal", "9m0s", "9m10s", nil, 560},
		"HTTP":         {"streamable-http", "1m0s", "1m10s", nil, 80},
		"SSE":          {"sse", "1m0s", "1m10s", nil, 80},
		"stdio, given": {"minimal", "1m0s", "1m10s", &metav1.Duration{Duration: time.Minute}, 80},
		"HTTP, given":  {"streamable-http", "2h0m0s", "2h0m10s", &metav1.Duration{Duration: 2 * time.Hour}, 7220},
		"none":         {"minimal", "0s", "10s", &metav1.Duration{}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			in := readInput(t, test.input)
			if test.given != nil {
				in.Server.Spec.Session.DrainTimeout = test.given
			}
			pod := podOf(t, in)
			if got := *pod.TerminationGracePeriodSeconds; got != test.grace {
				t.Errorf("grace period %d, want %d", got, test.grace)
			}
			if got := argument(pod.InitContainers[0].Args, "drain-timeout"); got != test.flag {
				t.Errorf("drain timeout %s, want %s", got, test.flag)
			}
			if got := argument(pod.Containers[0].Lifecycle.PreStop.Exec.Command, "deadline"); got != test.hook {
				t.Errorf("deadline of the hook %s, want %s", got, test.hook)
			}
		})
	}
}

// The session affinity of a Service is left to users, however many replicas there are.
func TestSessionAffinity(t *testing.T) {
	server := readInput(t, "minimal").Server
	for _, replicas := range []int32{0, 1, 2} {
		server.Spec.Replicas = &replicas
		if affinity := Service(server).Spec.SessionAffinity; affinity != nil {
			t.Errorf("%d replicas: %s is applied, so it cannot be left to others", replicas, *affinity)
		}
	}
}

func TestPodDisruptionBudget(t *testing.T) {
	server := readInput(t, "minimal").Server
	for replicas, want := range map[int32]bool{0: false, 1: false, 2: true} {
		server.Spec.Replicas = &replicas
		if got := PodDisruptionBudget(server) != nil; got != want {
			t.Errorf("%d replicas: %t, want %t", replicas, got, want)
		}
	}
}

// Everything that podTemplate offers reaches the pod: it is decoded into a PodSpec,
// by name and type, but for what is dealt with by hand.
func TestPodTemplateFieldsAreThoseOfPods(t *testing.T) {
	byHand := map[string]bool{"metadata": true}
	known := map[string]bool{}
	for field := range reflect.TypeFor[corev1ac.PodSpecApplyConfiguration]().Fields() {
		known[jsonName(field)] = true
	}
	for field := range reflect.TypeFor[mcpv1alpha1.PodTemplate]().Fields() {
		if name := jsonName(field); known[name] == byHand[name] {
			t.Errorf("podTemplate.%s: in a PodSpec %t, dealt with by hand %t", name, known[name], byHand[name])
		}
	}
}

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// The names of revisions depend on their content and their number.
func TestRevisionName(t *testing.T) {
	server := readInput(t, "minimal").Server
	name := func(rendered Rendered, number int64) string {
		rendered.Template = []byte("{}")
		revision, err := Revision(server, rendered, number, "")
		if err != nil {
			t.Fatal(err)
		}
		return revision.Name
	}
	first := name(Rendered{}, 1)
	if again := name(Rendered{}, 1); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	if name(Rendered{}, 2) == first || name(Rendered{AdapterVersion: "v2"}, 1) == first {
		t.Error("different revisions have one name")
	}
	if _, err := Revision(server, Rendered{Template: []byte("{")}, 1, ""); err == nil {
		t.Error("a template that is no JSON was taken")
	}
}

// A smaller number of pods can wait. Users who stop a server do not.
func TestAtLeast(t *testing.T) {
	owned := AllOwned()
	deployment := owned[slices.IndexFunc(owned, func(o Owned) bool { return o.ID == ObjectDeployment })]
	for name, test := range map[string]struct{ spec, atLeast, want int32 }{
		"as the spec says": {3, 0, 3},
		"fewer, not yet":   {3, 5, 5},
		"more":             {3, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			server := &mcpv1alpha1.MCPServer{Spec: mcpv1alpha1.MCPServerSpec{Replicas: &test.spec}}
			built := deployment.Build(Parts{Server: server, Template: corev1ac.PodTemplateSpec(), AtLeast: test.atLeast})
			if got := *built.(*appsv1ac.DeploymentApplyConfiguration).Spec.Replicas; got != test.want {
				t.Errorf("%d replicas, want %d", got, test.want)
			}
		})
	}
}
