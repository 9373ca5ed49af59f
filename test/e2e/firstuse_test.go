//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/imagebuild"
	"github.com/slipway-mcp/slipway/test/conformance"
	"github.com/slipway-mcp/slipway/test/npm"
)

const firstUseModules = "/firstuse/node_modules"

// firstUse is an image of Node.js and the servers that people run first.
func (s *imageSet) firstUse(ctx context.Context) string {
	GinkgoHelper()
	return s.image(ctx, "firstuse", func() imagebuild.Spec {
		suite, err := conformance.Install(ctx, filepath.Join("..", "conformance"))
		Expect(err).NotTo(HaveOccurred())
		files := []imagebuild.File{{Path: nodeProgram, Source: suite.Node, Mode: 0o755}}
		files = append(files, libraries(ctx, suite.Node)...)
		files = append(files, tree(firstUseModules, firstUseInstalled(ctx))...)
		return imagebuild.Spec{Files: files, Entrypoint: []string{nodeProgram}, User: "1000"}
	})
}

func firstUseInstalled(ctx context.Context) string {
	GinkgoHelper()
	modules, err := npm.Install(ctx, filepath.Join("..", "firstuse"))
	Expect(err).NotTo(HaveOccurred())
	return modules
}

// script is the path of a package's program in the image.
func script(ctx context.Context, name string) string {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(firstUseInstalled(ctx), name, "package.json"))
	Expect(err).NotTo(HaveOccurred())
	var manifest struct{ Bin any }
	Expect(json.Unmarshal(text, &manifest)).To(Succeed())
	switch bin := manifest.Bin.(type) {
	case string:
		return filepath.Join(firstUseModules, name, bin)
	case map[string]any:
		for _, path := range bin {
			return filepath.Join(firstUseModules, name, path.(string))
		}
	}
	Fail(name + " names no program")
	return ""
}

// goServers are the programs of Go servers that people run first, by the package that go install builds.
var goServers = map[string]string{
	"mcp-grafana": "github.com/grafana/mcp-grafana/cmd/mcp-grafana@v1.6.3",
	"everything":  "github.com/mark3labs/mcp-go/examples/everything@v1.2.1",
}

// firstUseGo is an image of the Go servers. The first build of mcp-grafana takes minutes.
func (s *imageSet) firstUseGo(ctx context.Context) string {
	GinkgoHelper()
	return s.image(ctx, "firstuse-go", func() imagebuild.Spec {
		built := GinkgoT().TempDir()
		spec := imagebuild.Spec{Entrypoint: []string{"/everything"}, User: "1000"}
		for program, from := range goServers {
			run(ctx, "env", "CGO_ENABLED=0", "GOBIN="+built, "go", "install", from)
			spec.Files = append(spec.Files, imagebuild.File{Path: "/" + program, Source: filepath.Join(built, program), Mode: 0o755})
		}
		return spec
	})
}

// spec is short for what an MCPServer of the table below has.
type spec = mcpv1alpha1.MCPServerSpec

func withEnv(name, value string) func(*spec) {
	return func(s *spec) { s.Env = append(s.Env, corev1.EnvVar{Name: name, Value: value}) }
}

func withArgs(args ...string) func(*spec) { return func(s *spec) { s.Args = args } }

func overHTTP(port mcpv1alpha1.ServerPort) func(*spec) {
	return func(s *spec) {
		s.Transport = mcpv1alpha1.Transport{Type: mcpv1alpha1.TransportStreamableHTTP, StreamableHTTP: &mcpv1alpha1.StreamableHTTPTransport{Port: port}}
	}
}

func overSSE(port mcpv1alpha1.ServerPort) func(*spec) {
	return func(s *spec) {
		s.Transport = mcpv1alpha1.Transport{Type: mcpv1alpha1.TransportSSE, SSE: &mcpv1alpha1.SSETransport{Port: port}}
	}
}

// firstUseServers are MCPServers as a newcomer would write them: of Node.js packages, and of Go programs.
func firstUseServers(ctx context.Context, namespace string) []*mcpv1alpha1.MCPServer {
	GinkgoHelper()
	servers := nodeServers(ctx, namespace)
	grafana := withEnv("GRAFANA_URL", "http://localhost:3000") // there is none: its tools fail, and it serves
	for _, server := range []struct {
		name, program string
		changes       []func(*spec)
	}{
		{"mcp-go", "everything", nil},
		{"mcp-go-http", "everything", []func(*spec){withArgs("-t", "http"), overHTTP(8080)}},
		{"grafana", "mcp-grafana", []func(*spec){grafana}},
		{"grafana-http", "mcp-grafana", []func(*spec){grafana, withArgs("-t", "streamable-http", "-address", "localhost:8000"), overHTTP(8000)}},
		{"grafana-sse", "mcp-grafana", []func(*spec){grafana, withArgs("-t", "sse", "-address", "localhost:8000"), overSSE(8000)}},
	} {
		servers = append(servers, newServer(namespace, server.name, images.firstUseGo(ctx), []string{"/" + server.program}, server.changes...))
	}
	return servers
}

func newServer(namespace, name, image string, command []string, changes ...func(*spec)) *mcpv1alpha1.MCPServer {
	server := &mcpv1alpha1.MCPServer{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       spec{Image: image, Command: command, Transport: mcpv1alpha1.Transport{Type: mcpv1alpha1.TransportStdio}},
	}
	for _, change := range changes {
		change(&server.Spec)
	}
	return server
}

func nodeServers(ctx context.Context, namespace string) (servers []*mcpv1alpha1.MCPServer) {
	GinkgoHelper()
	const everything = "@modelcontextprotocol/server-everything"
	for _, server := range []struct {
		name, script string
		changes      []func(*spec)
	}{
		{"everything", everything, []func(*spec){withArgs("stdio")}},
		{"everything-http", everything, []func(*spec){withArgs("streamableHttp"), overHTTP(3001)}},
		{"everything-sse", everything, []func(*spec){withArgs("sse"), overSSE(3001)}},
		{"filesystem", "@modelcontextprotocol/server-filesystem", []func(*spec){withArgs("/tmp")}},
		{"memory", "@modelcontextprotocol/server-memory", []func(*spec){withEnv("MEMORY_FILE_PATH", "/tmp/memory.json")}},
		{"thinking", "@modelcontextprotocol/server-sequential-thinking", nil},
		{"github", "@modelcontextprotocol/server-github", []func(*spec){withEnv("GITHUB_PERSONAL_ACCESS_TOKEN", "none")}},
		{"notion", "@notionhq/notion-mcp-server", []func(*spec){withEnv("NOTION_TOKEN", "none")}},
		{"chart", "@antv/mcp-server-chart", nil},
		{"context7", "@upstash/context7-mcp", nil},
		{"kubernetes", "mcp-server-kubernetes", []func(*spec){func(s *spec) {
			s.PodTemplate = &mcpv1alpha1.PodTemplate{AutomountServiceAccountToken: true}
		}}},
	} {
		servers = append(servers, newServer(namespace, server.name, images.firstUse(ctx), []string{nodeProgram, script(ctx, server.script)}, server.changes...))
	}
	return servers
}

// wantNoAlarm fails for a warning Event on an MCPServer. Each Stalled gives one.
func wantNoAlarm(ctx context.Context, namespace string) {
	GinkgoHelper()
	var list eventsv1.EventList
	Expect(cluster.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
	for i := range list.Items {
		event := &list.Items[i]
		if event.Regarding.Kind == "MCPServer" {
			Expect(event.Type).NotTo(Equal(corev1.EventTypeWarning), event.Regarding.Name+": "+event.Reason+": "+event.Note)
		}
	}
}

// wantNotStalled fails for a server that is stalled now.
func wantNotStalled(server *mcpv1alpha1.MCPServer) {
	GinkgoHelper()
	if stalled := meta.FindStatusCondition(server.Status.Conditions, mcpv1alpha1.ConditionStalled); stalled != nil {
		Fail(server.Name + " is stalled: " + stalled.Message)
	}
}

var _ = Describe("First use", Label("firstuse"), func() {
	It("of many real servers at once raises no alarm", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := firstUseServers(ctx, namespace)
		begin := time.Now()
		for _, server := range servers {
			Expect(cluster.Create(ctx, server)).To(Succeed())
		}
		for _, server := range servers {
			Eventually(func(g Gomega) {
				g.Expect(cluster.Get(ctx, client.ObjectKeyFromObject(server), server)).To(Succeed())
				wantNotStalled(server)
				g.Expect(meta.IsStatusConditionTrue(server.Status.Conditions, mcpv1alpha1.ConditionReady)).To(BeTrue(), server.Name)
			}).WithContext(ctx).WithTimeout(10 * patience).WithPolling(100 * time.Millisecond).Should(Succeed())
			AddReportEntry(server.Name, time.Since(begin).Round(100*time.Millisecond).String())
			Expect(toolNames(server)).NotTo(BeEmpty(), server.Name)
		}
		wantNoAlarm(ctx, namespace)
	}, NodeTimeout(30*time.Minute))

	DescribeTable("of a server that starts slowly raises no alarm",
		func(ctx SpecContext, make func(context.Context, string) *mcpv1alpha1.MCPServer, least time.Duration) {
			namespace := newNamespace(ctx)
			server := make(ctx, namespace)
			begin := time.Now()
			Expect(cluster.Create(ctx, server)).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(cluster.Get(ctx, client.ObjectKeyFromObject(server), server)).To(Succeed())
				wantNotStalled(server)
				g.Expect(meta.IsStatusConditionTrue(server.Status.Conditions, mcpv1alpha1.ConditionReady)).To(BeTrue())
			}).WithContext(ctx).WithTimeout(5 * patience).WithPolling(100 * time.Millisecond).Should(Succeed())
			Expect(time.Since(begin)).To(BeNumerically(">=", least), "it was not slow")
			AddReportEntry("from create to Ready", time.Since(begin).Round(100*time.Millisecond).String())
			wantNoAlarm(ctx, namespace)
		},
		Entry("because it answers after 12 s", func(ctx context.Context, namespace string) *mcpv1alpha1.MCPServer {
			return stdioServer(ctx, namespace, "/hostile", "slow", "12")
		}, 12*time.Second),
		Entry("because its image takes 20 s to pull", func(ctx context.Context, namespace string) *mcpv1alpha1.MCPServer {
			server := stdioServer(ctx, namespace)
			server.Spec.Image = images.variant(ctx, "slow/fat", func(spec *imagebuild.Spec) {
				path := filepath.Join(images.programs, "fat")
				content := make([]byte, 84<<20) // at 4 MiB/s
				_, _ = rand.Read(content)       // so that it cannot be compressed
				Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
				spec.Files = append(spec.Files, imagebuild.File{Path: "/fat", Source: path, Mode: 0o644})
			})
			return server
		}, 20*time.Second),
	)

	DescribeTable("of a server whose processes fail tells the cause within a minute",
		func(ctx SpecContext, make func(context.Context, string) *mcpv1alpha1.MCPServer, cause, remedy string) {
			namespace := newNamespace(ctx)
			server := make(ctx, namespace)
			Expect(cluster.Create(ctx, server)).To(Succeed())
			Eventually(func() string {
				Expect(cluster.Get(ctx, client.ObjectKeyFromObject(server), server)).To(Succeed())
				var text strings.Builder
				for _, condition := range server.Status.Conditions {
					text.WriteString(condition.Message + "\n")
				}
				return text.String()
			}).WithContext(ctx).WithTimeout(time.Minute).Should(And(MatchRegexp(cause), ContainSubstring(remedy)))
			for _, condition := range server.Status.Conditions {
				AddReportEntry(condition.Type+" "+string(condition.Status)+" "+condition.Reason, condition.Message)
				Expect(condition.Message).NotTo(ContainSubstring("maxPerPod"), "the remedy of another problem")
			}
		},
		// A process that runs may be killed, or there is not enough memory to start another one.
		Entry("with 48Mi", limited("48Mi"), "out of memory|no memory for another process", "raise spec.resources.limits.memory"),
		Entry("with 32Mi", limited("32Mi"), "out of memory|no memory for another process", "raise spec.resources.limits.memory"),
		Entry("that exits after 20 s", func(ctx context.Context, namespace string) *mcpv1alpha1.MCPServer {
			return stdioServer(ctx, namespace, "/hostile", "mortal", "20")
		}, "processes ended by themselves in 5 minutes: exit code 3", "see kubectl logs"),
	)
})

// limited is the reference server with too little memory.
func limited(memory string) func(context.Context, string) *mcpv1alpha1.MCPServer {
	return func(ctx context.Context, namespace string) *mcpv1alpha1.MCPServer {
		server := nodeServers(ctx, namespace)[0]
		server.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
		return server
	}
}
