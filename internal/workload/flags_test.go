package workload

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
	"github.com/slipway-mcp/slipway/test/servers"
)

// The programs accept the arguments that pods give them. The test appends a wrong argument,
// which a program rejects only if everything before it was fine.
func TestProgramsTakeTheArguments(t *testing.T) {
	dir := t.TempDir()
	if err := servers.BuildAll(t.Context(), dir, "cmd/sidecar", "cmd/launcher"); err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, program string, args []string, want string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, program), args...).CombinedOutput()
		if got := strings.TrimSpace(string(out)); got != want {
			t.Errorf("%s %q: %v\n%s\nwant %s", program, args, err, got, want)
		}
	}
	for _, name := range cases(t) {
		t.Run(name, func(t *testing.T) {
			pod := podOf(t, readInput(t, name))
			adapter, server := pod.InitContainers[0], pod.Containers[0]
			// As Kubernetes does it.
			expand := strings.NewReplacer("$$", "$", "$(POD_UID)", "0a9b8c7d-0000-4000-8000-000000000001", "$(POD_IP)", "192.0.2.1")
			var args []string
			for _, arg := range adapter.Args {
				args = append(args, expand.Replace(arg))
			}
			run(t, "sidecar", append(args, "--verbosity=9"), "adapter: verbosity 9: want 0 to 5\nsee adapter serve --help")
			hook := server.Lifecycle.PreStop.Exec.Command
			run(t, filepath.Base(hook[0]), append(hook[1:], "more"), `launcher: drain takes no arguments, got ["more"]`)
			switch in := readInput(t, name); {
			case isStdio(in.Server):
				run(t, filepath.Base(server.Command[0]), server.Command[1:3], "launcher: no command: put it behind the flags, as in launcher -- node server.js")
			case usesLauncher(in):
				run(t, filepath.Base(server.Command[0]), server.Command[1:3], "launcher: no command: name it, as in launcher run -- node server.js")
			}
		})
	}
}

// A case has every flag that a field sets, so that a golden file shows its value.
func TestCasesHaveAllFlags(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range cases(t) {
		for _, arg := range podOf(t, readInput(t, name)).InitContainers[0].Args {
			flag, _, _ := strings.Cut(arg, "=")
			seen[flag] = true
		}
	}
	for o := range option.All() {
		if want := o.As != option.BySettings; seen[o.Flag] != want {
			t.Errorf("%s of %s is in a case: %t, want %t", o.Flag, o.Field, seen[o.Flag], want)
		}
	}
}

// The adapter is told what the server speaks if the spec pins it. Auto is the adapter's default,
// and an sse server has sessions anyway.
func TestSessionsOfTheServer(t *testing.T) {
	for name, test := range map[string]struct {
		server   string
		sessions mcpv1alpha1.ServerSessions
		want     string // empty if there is no flag
	}{
		"left out":                       {"minimal", "", ""},
		"Auto":                           {"minimal", mcpv1alpha1.ServerSessionsAuto, ""},
		"Stateful":                       {"minimal", mcpv1alpha1.ServerSessionsStateful, "--sessions=Stateful"},
		"Stateless":                      {"minimal", mcpv1alpha1.ServerSessionsStateless, "--sessions=Stateless"},
		"streamable-http that pins none": {"streamable-http", "", ""},
		"streamable-http":                {"streamable-http", mcpv1alpha1.ServerSessionsStateless, "--sessions=Stateless"},
		"sse":                            {"sse", mcpv1alpha1.ServerSessionsStateful, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := readInput(t, test.server)
			in.Server.Spec.Transport.Sessions = test.sessions
			args := slices.DeleteFunc(podOf(t, in).InitContainers[0].Args, func(arg string) bool { return !strings.HasPrefix(arg, "--sessions") })
			if got := strings.Join(args, " "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A start time-out that is left out is the adapter's to choose, so that the field changes no pod.
func TestStartTimeout(t *testing.T) {
	for want, timeout := range map[string]*metav1.Duration{
		"":                       nil,
		"--start-timeout=5m0s":   {Duration: 5 * time.Minute},
		"--start-timeout=1h0m0s": {Duration: time.Hour},
	} {
		in := readInput(t, "minimal")
		in.Server.Spec.Session.StartTimeout = timeout
		args := slices.DeleteFunc(podOf(t, in).InitContainers[0].Args, func(arg string) bool { return !strings.HasPrefix(arg, "--start-timeout") })
		if got := strings.Join(args, " "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The adapter gets the memory limit of its container as a flag, and no flag if there is none.
func TestMemoryOfTheAdapter(t *testing.T) {
	limited := func(memory string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}}
	}
	for name, test := range map[string]struct {
		resources *corev1.ResourceRequirements
		limit     string // of the container
		want      string // empty if there is no flag
	}{
		"left out":           {nil, "256Mi", "--memory-limit=268435456"},
		"given":              {limited("1Gi"), "1Gi", "--memory-limit=1073741824"},
		"decimal":            {limited("300M"), "300M", "--memory-limit=300000000"},
		"more than is taken": {limited("2Ti"), "2Ti", "--memory-limit=1099511627776"},
		"unlimited":          {limited("0"), "0", ""},
		"nothing given":      {&corev1.ResourceRequirements{}, "0", ""},
		"another limit": {
			&corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}, "0", "",
		},
		"requests only": {
			&corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}, "0", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := readInput(t, "minimal")
			in.Server.Spec.Adapter.Resources = test.resources
			adapter := podOf(t, in).InitContainers[0]
			if got := adapter.Resources.Limits.Memory(); got.Cmp(resource.MustParse(test.limit)) != 0 {
				t.Errorf("the container has %s, want %s", got, test.limit)
			}
			args := slices.DeleteFunc(adapter.Args, func(arg string) bool { return !strings.HasPrefix(arg, "--memory-limit") })
			if got := strings.Join(args, " "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// The API server and the adapter have the same opinion of what fits: the rules of the CRD are
// tested against a real API server, with these numbers.
func TestAdapterTakesItsDefaultMemory(t *testing.T) {
	c := config.Defaults()
	c.MemoryLimit = memoryLimit(adapterResources(&parts{}))
	if err := c.Validate(); err != nil {
		t.Errorf("default limits in the default memory: %v", err)
	}
	c.MemoryLimit--
	if err := c.Validate(); err == nil {
		t.Error("one byte less fits, too")
	}
	c.MemoryLimit = mostMemory
	if err := c.Validate(); err != nil {
		t.Errorf("most memory: %v", err)
	}
	c.MemoryLimit++
	if err := c.Validate(); err == nil {
		t.Error("the adapter takes more than the most")
	}
}

// The defaults in the comments of the spec are the defaults of the adapter without
// arguments.
func TestAdapterDefaultsAreThoseOfTheSpec(t *testing.T) {
	session := readInput(t, "minimal").Server.Spec.Session
	got := config.Defaults()
	for name, pair := range map[string][2]any{
		"maxPerPod":         {int(*session.MaxPerPod), got.MaxSessions},
		"idleTimeout":       {session.IdleTimeout.Duration, got.IdleTimeout},
		"maxLifetime":       {session.MaxLifetime.Duration, got.MaxLifetime},
		"callTimeout":       {session.CallTimeout.Duration, got.CallTimeout},
		"startTimeout":      {time.Minute, got.StartTimeout},
		"warm":              {1, got.Warm},
		"body":              {int64(33554432), got.BodyBytes},
		"line":              {67108864, got.LineBytes},
		"replay":            {1048576, got.ReplayBytes},
		"streamsPerSession": {16, got.StreamsPerSession},
		"concurrentStarts":  {4, got.ConcurrentStarts},
		"callsPerSession":   {1024, got.CallsPerSession},
		"answerTimeout":     {10 * time.Minute, got.ParkTimeout},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: promised %v, adapter has %v", name, pair[0], pair[1])
		}
	}
}
