package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/hang"
)

// What a user sees who wrote only what must be written.
func TestDefaultsThatUsersSee(t *testing.T) {
	server := mcpServer(t, "defaults", `{image: x, transport: {type: streamable-http, streamableHTTP: {port: 3000}}}`)
	if err := dryRun(t.Context(), server); err != nil {
		t.Fatalf("create: %v", err)
	}
	want := map[string]any{
		"image":     "x",
		"replicas":  int64(1),
		"transport": map[string]any{"type": "streamable-http", "streamableHTTP": map[string]any{"port": int64(3000), "path": "/mcp"}},
		"session": map[string]any{
			"maxPerPod":   int64(20),
			"idleTimeout": "30m",
			"maxLifetime": "24h",
			"callTimeout": "10m",
		},
	}
	if diff := cmp.Diff(want, server.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestKubectlExplainReadsLikeDocumentation(t *testing.T) {
	// The API server publishes a new CRD's documentation a moment after the CRD.
	var text string
	gomega.NewWithT(t).Eventually(func() (err error) {
		text, err = runKubectl(t, "explain", "mcpserver.spec.transport", "--recursive")
		return err
	}).WithTimeout(hang.Guard).Should(gomega.Succeed())
	for _, want := range []string{
		"transport says how the server in the image speaks MCP:",
		"type\t<string> -required-",
		"enum: stdio, streamable-http, sse",
		"port\t<integer> -required-",
		"framing\t<string>",
		"enum: Newline, ContentLength",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("kubectl explain does not say %q; it says:\n%s", want, text)
		}
	}
}

// Names, columns, scale and selectable fields, as kubectl has them.
func TestKubectl(t *testing.T) {
	server := mcpServer(t, "kubectl", `{image: x, transport: {type: stdio}}`)
	if err := apiServer.Create(t.Context(), server); err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() {
		// The test's own context is already over when clean-up runs.
		if err := apiServer.Delete(context.WithoutCancel(t.Context()), server); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete: %v", err)
		}
	})

	status := client.MergeFrom(server.DeepCopy())
	server.Object["status"] = map[string]any{
		"conditions": []any{map[string]any{
			"type": v1alpha1.ConditionReady, "status": "True", "reason": v1alpha1.ReasonReady,
			"message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
		}},
		"catalog":    map[string]any{"counts": map[string]any{"tools": int64(7), "prompts": int64(0), "resources": int64(0), "resourceTemplates": int64(0)}},
		"sessions":   int64(3),
		"replicas":   int64(2),
		"draining":   map[string]any{"replicas": int64(4), "sessions": int64(14)},
		"serverInfo": map[string]any{"protocolVersion": "2025-11-25"},
		"address":    map[string]any{"url": "http://kubectl.default.svc/mcp"},
		"template":   map[string]any{"adapterVersion": "v0.1.0", "outdated": true},
	}
	if err := apiServer.Status().Patch(t.Context(), server, status); err != nil {
		t.Fatalf("patch status: %v", err)
	}

	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"short name":   {[]string{"get", "mcpsrv"}, []string{"NAME READY REASON TOOLS SESSIONS REPLICAS URL AGE", "kubectl True Ready 7 3 2 http://kubectl.default.svc/mcp"}},
		"wide":         {[]string{"get", "mcpservers", "-o", "wide"}, []string{"URL AGE DRAINING", "DRAINING SESSIONS TRANSPORT PROTOCOL IMAGE ADAPTER", "4 14 stdio 2025-11-25 x v0.1.0"}},
		"category":     {[]string{"get", "slipway", "-o", "name"}, []string{"mcpserver.mcp.slipway.dev/kubectl"}},
		"by transport": {[]string{"get", "mcpserver", "--field-selector", "spec.transport.type=stdio", "-o", "name"}, []string{"mcpserver.mcp.slipway.dev/kubectl"}},
		"by image":     {[]string{"get", "mcpserver", "--field-selector", "spec.image=x", "-o", "name"}, []string{"mcpserver.mcp.slipway.dev/kubectl"}},
		"outdated":     {[]string{"get", "mcpserver", "--field-selector", "status.template.outdated=true", "-o", "name"}, []string{"mcpserver.mcp.slipway.dev/kubectl"}},
		"wait":         {[]string{"wait", "--for=condition=Ready", "mcpserver/kubectl", "--timeout=" + hang.Guard.String()}, []string{"condition met"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(strings.Fields(kubectl(t, test.args...)), " ")
			for _, want := range test.want {
				if !strings.Contains(got, want) {
					t.Errorf("kubectl %s: got %q, want %q in it", strings.Join(test.args, " "), got, want)
				}
			}
		})
	}

	t.Run("scale", func(t *testing.T) {
		kubectl(t, "scale", "mcpserver/kubectl", "--replicas=3")
		var scaled v1alpha1.MCPServer
		if err := json.Unmarshal([]byte(kubectl(t, "get", "mcpserver/kubectl", "-o", "json")), &scaled); err != nil {
			t.Fatalf("decode MCPServer: %v", err)
		}
		if scaled.Spec.Replicas == nil || *scaled.Spec.Replicas != 3 {
			t.Errorf("spec.replicas: got %v, want 3", scaled.Spec.Replicas)
		}
	})
}

// People read kubectl describe on a terminal: a server with 60 tools stays below 250 lines.
func TestDescribe(t *testing.T) {
	server := mcpServer(t, "describe", `{image: registry.example/team/tickets:1.4, command: [node, dist/index.js], transport: {type: stdio}, replicas: 3}`)
	if err := apiServer.Create(t.Context(), server); err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() {
		if err := apiServer.Delete(context.WithoutCancel(t.Context()), server); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete: %v", err)
		}
	})
	described := v1alpha1.MCPServerStatus{
		ObservedGeneration: 1, Replicas: 3, ReadyReplicas: 3, Sessions: new(int32(12)), Selector: "mcp.slipway.dev/server=describe",
		Address:          &v1alpha1.Address{URL: "http://describe.default.svc/mcp"},
		Addresses:        []v1alpha1.NamedAddress{{Name: v1alpha1.AddressCluster, URL: "http://describe.default.svc/mcp"}},
		ProtocolVersions: []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"},
		ServerInfo: &v1alpha1.ServerInfo{
			Name: "tickets", Title: "Tickets", Version: "1.4.0", ProtocolVersion: "2025-11-25", Instructions: "Search before you create.",
			Capabilities: &v1alpha1.Capabilities{Tools: &v1alpha1.ListCapability{ListChanged: true}, Logging: true},
		},
		Image:    &v1alpha1.ResolvedImage{Resolution: v1alpha1.ImageNotAsked, Command: []string{"node", "dist/index.js"}},
		Template: &v1alpha1.TemplateStatus{AdapterVersion: "v0.1.0"},
		Catalog: &v1alpha1.Catalog{
			Digest: "sha256:" + strings.Repeat("0", 64), ConfigMapName: "describe-catalog", Counts: v1alpha1.CatalogCounts{Tools: 60},
		},
	}
	for i := range 60 {
		described.Catalog.Tools = append(described.Catalog.Tools, v1alpha1.CatalogEntry{Name: fmt.Sprintf("tool-%02d", i), Description: "Does one of sixty things."})
	}
	for i := range 3 {
		described.Instances = append(described.Instances, v1alpha1.Instance{
			Pod: fmt.Sprintf("describe-5d8f7c9b6-%d", i), State: v1alpha1.InstanceReady, Verification: v1alpha1.InstanceVerified, CatalogDigest: described.Catalog.Digest,
		})
	}
	for _, condition := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionAvailable, v1alpha1.ConditionAccepted, v1alpha1.ConditionVerified, v1alpha1.ConditionReconciling} {
		described.Conditions = append(described.Conditions, metav1.Condition{
			Type: condition, Status: metav1.ConditionTrue, Reason: "Reason", Message: "60 tools; 3 of 3 pods ready", LastTransitionTime: metav1.Now(), ObservedGeneration: 1,
		})
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&described)
	if err != nil {
		t.Fatal(err)
	}
	status := client.MergeFrom(server.DeepCopy())
	server.Object["status"] = content
	if err := apiServer.Status().Patch(t.Context(), server, status); err != nil {
		t.Fatalf("patch status: %v", err)
	}
	for i := range 10 {
		event := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": "CatalogChanged", "message": "what the server offers has changed", "count": int64(1),
			"metadata":       map[string]any{"namespace": server.GetNamespace(), "name": fmt.Sprintf("describe-%d", i)},
			"involvedObject": map[string]any{"apiVersion": server.GetAPIVersion(), "kind": "MCPServer", "namespace": server.GetNamespace(), "name": server.GetName(), "uid": string(server.GetUID())},
		}}
		if err := apiServer.Create(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	text := kubectl(t, "describe", "mcpserver/describe")
	if lines := strings.Count(text, "\n"); lines >= 250 || !strings.Contains(text, "tool-59") || !strings.Contains(text, "CatalogChanged") {
		t.Errorf("kubectl describe has %d lines:\n%s", lines, text)
	}
}

// The CRD fits into the annotation in which a client-side apply keeps it.
func TestClientSideApplyOfTheCRD(t *testing.T) {
	kubectl(t, "apply", "--dry-run=server", "-f", crdFile)
}

func TestFieldsThatDoNotExistAreRefused(t *testing.T) {
	err := dryRun(t.Context(), mcpServer(t, "typo", `{image: x, transport: {type: stdio}, sesion: {warm: 1}}`))
	if err == nil || !strings.Contains(err.Error(), `unknown field "spec.sesion"`) {
		t.Errorf("create: got %v, want an error that names spec.sesion", err)
	}
}

// Durations that the schema lets through must be ones that Go can decode, since one
// object that cannot be decoded stops the watch of all, and whose Go spelling the
// schema lets through again, or no typed client could update the object.
func TestDurationsSurviveARoundTrip(t *testing.T) {
	for _, duration := range []string{"1s", "8760h", "1h30m5s10ms", "00001s", "1500ms", "2.5s", "99m59s999ms", "1s1s1s1s"} {
		t.Run(duration, func(t *testing.T) {
			before := mcpServer(t, "durations", `{image: x, transport: {type: stdio}, session: {idleTimeout: `+duration+`}}`)
			if err := dryRun(t.Context(), before); err != nil {
				t.Fatalf("create: %v", err)
			}
			var typed v1alpha1.MCPServer
			encoded, err := json.Marshal(before)
			if err != nil {
				t.Fatalf("encode: %v", err)
			}
			if err := json.Unmarshal(encoded, &typed); err != nil {
				t.Fatalf("decode: %v", err)
			}
			typed.ObjectMeta = metav1.ObjectMeta{Name: "durations", Namespace: "default"}
			if err := dryRun(t.Context(), &typed); err != nil {
				t.Errorf("write back as %s: %v", typed.Spec.Session.IdleTimeout.Duration, err)
			}
		})
	}
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := runKubectl(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func runKubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(assets, "kubectl"), append([]string{"--kubeconfig", kubeconfig, "--cache-dir", kubeCache}, args...)...)
	out, err := command.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("run kubectl %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
