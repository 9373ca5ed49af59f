package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// documentedManifests says how many manifests of each kind the pages have at least. A page that loses its
// manifests, or their form, fails the test.
var documentedManifests = map[string]map[string]int{
	"docs/quick-start.md":                 {"MCPServer": 1},
	"docs/first-hour.md":                  {"MCPServer": 2},
	"docs/mcpserver.md":                   {"MCPServer": 10},
	"docs/scaling.md":                     {"MCPServer": 1, "HorizontalPodAutoscaler": 1},
	"docs/install.md":                     {"MCPServer": 1, "NetworkPolicy": 2},
	"docs/monitoring.md":                  {"ClusterRoleBinding": 1},
	"docs/security.md":                    {"MCPServer": 1},
	"docs/how-to/auth-serviceaccounts.md": {"MCPServer": 1, "ServiceAccount": 1, "Pod": 1},
	"docs/how-to/auth-keycloak.md":        {"MCPServer": 1},
	"docs/how-to/auth-entra.md":           {"MCPServer": 1},
	"docs/how-to/auth-dex.md":             {"MCPServer": 1},
	"docs/connect.md":                     {"MCPServer": 1},
	"docs/how-to/python.md":               {"MCPServer": 3},
	"docs/how-to/expose.md":               {"MCPServer": 1, "Ingress": 1, "Gateway": 1, "HTTPRoute": 1, "NetworkPolicy": 1},
}

// The API server takes the manifests of the documentation, by strict validation.
func TestDocumentedManifests(t *testing.T) {
	installGatewayAPI(t)
	for page, want := range documentedManifests {
		t.Run(page, func(t *testing.T) {
			found := map[string]int{}
			for _, manifest := range manifestsOf(t, page) {
				found[manifest.GetKind()]++
				manifest.SetNamespace("default")
				if err := dryRun(t.Context(), manifest); err != nil {
					t.Errorf("create %s %s: %v", manifest.GetKind(), manifest.GetName(), err)
				}
			}
			for kind, least := range want {
				if found[kind] < least {
					t.Errorf("%d manifests of %s, want at least %d", found[kind], kind, least)
				}
			}
		})
	}
	pages, err := filepath.Glob(filepath.Join(repository, "docs", "how-to", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range pages {
		if page := "docs/how-to/" + filepath.Base(file); documentedManifests[page] == nil {
			t.Errorf("the test does not know %s", page)
		}
	}
}

// manifestsOf are the Kubernetes objects in the YAML of a page. A spec alone is a part of an MCPServer.
func manifestsOf(t *testing.T, page string) (manifests []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, page))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range yamlBlock.FindAllSubmatch(text, -1) {
		for document := range bytes.SplitSeq(block[1], []byte("\n---\n")) {
			var object map[string]any
			if err := yaml.UnmarshalStrict(document, &object); err != nil {
				t.Errorf("decode %q: %v", document, err)
				continue
			}
			if spec, ok := object["spec"].(map[string]any); ok && len(object) == 1 {
				object = wholeServer(spec)
			}
			// kustomize reads its own files, and puts them together with patches.
			if manifest := (&unstructured.Unstructured{Object: object}); manifest.GetKind() != "" && manifest.GetName() != "" {
				manifests = append(manifests, manifest)
			}
		}
	}
	return manifests
}

// wholeServer adds to a part of a spec what every MCPServer needs.
func wholeServer(spec map[string]any) map[string]any {
	for name, value := range map[string]any{"image": "registry.example/mcp/echo:1.4", "transport": map[string]any{"type": "stdio"}} {
		if _, has := spec[name]; !has {
			spec[name] = value
		}
	}
	return map[string]any{"apiVersion": "mcp.slipway.dev/v1alpha1", "kind": "MCPServer", "metadata": map[string]any{"name": "part"}, "spec": spec}
}

// The Gateway API as a Go module. It is no dependency of the program, so go.mod does not have it.
const (
	gatewayModule = "sigs.k8s.io/gateway-api@v1.6.3"
	gatewaySum    = "h1:lKpJa5bGlraC/QeACvCpsHLdmO6y0iKfzVl6gzaFEYc="
	gatewayFiles  = "config/crd/standard/gateway.networking.k8s.io_*.yaml"
)

// gatewayKinds are those of the Gateway API that the documentation uses.
var gatewayKinds = []string{"gateways", "httproutes"}

// installGatewayAPI has the API server know Gateways and HTTPRoutes, from the published definitions.
func installGatewayAPI(t *testing.T) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", gatewayModule)
	command.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
	output, err := command.Output()
	var module struct{ Dir, Sum, Error string }
	if decoded := json.Unmarshal(output, &module); err != nil || decoded != nil {
		t.Fatalf("download %s: %v %s", gatewayModule, err, module.Error)
	}
	if module.Sum != gatewaySum {
		t.Fatalf("%s has the sum %s, want %s", gatewayModule, module.Sum, gatewaySum)
	}
	definitions := make([]*apiextensionsv1.CustomResourceDefinition, len(gatewayKinds))
	for i, kind := range gatewayKinds {
		definitions[i] = &apiextensionsv1.CustomResourceDefinition{}
		readYAML(t, filepath.Join(module.Dir, filepath.FromSlash(strings.Replace(gatewayFiles, "*", kind, 1))), definitions[i])
	}
	if _, err := envtest.InstallCRDs(restConfig, envtest.CRDInstallOptions{CRDs: definitions}); err != nil {
		t.Fatalf("install the Gateway API: %v", err)
	}
}

// What the how-to says of wrong manifests is worth something only if the API server notices them.
func TestWrongManifestsAreRefused(t *testing.T) {
	installGatewayAPI(t)
	tests := map[string]struct {
		page, kind string
		spoil      func(spec map[string]any)
		want       string
	}{
		"misspelled field of an HTTPRoute": {"docs/how-to/expose.md", "HTTPRoute", func(spec map[string]any) { spec["hostname"] = "x" }, "unknown field"},
		"hostname that is none":            {"docs/how-to/expose.md", "HTTPRoute", func(spec map[string]any) { spec["hostnames"] = []any{"not a name"} }, "hostnames"},
		"misspelled field of a Gateway":    {"docs/how-to/expose.md", "Gateway", func(spec map[string]any) { spec["listener"] = "x" }, "unknown field"},
		"Gateway without a class":          {"docs/how-to/expose.md", "Gateway", func(spec map[string]any) { delete(spec, "gatewayClassName") }, "gatewayClassName"},
		"misspelled field of an Ingress":   {"docs/how-to/expose.md", "Ingress", func(spec map[string]any) { spec["rule"] = "x" }, "unknown field"},
		"misspelled field of an MCPServer": {"docs/how-to/expose.md", "MCPServer", func(spec map[string]any) { spec["acces"] = "x" }, "unknown field"},
		"auth without rules":               {"docs/how-to/auth-dex.md", "MCPServer", func(spec map[string]any) { delete(spec, "access") }, "add a rule that authorizes callers"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, manifest := range manifestsOf(t, test.page) {
				if manifest.GetKind() != test.kind {
					continue
				}
				manifest.SetNamespace("default")
				test.spoil(manifest.Object["spec"].(map[string]any))
				err := dryRun(t.Context(), client.Object(manifest))
				if !strings.Contains(fmt.Sprint(err), test.want) {
					t.Errorf("create: %v, want an error with %q", err, test.want)
				}
				return
			}
			t.Errorf("%s has no %s", test.page, test.kind)
		})
	}
}
