package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// What the manager's probe stores is read back as it is, also where the manager has cut it so that it
// matches its digest no more.
func TestParse(t *testing.T) {
	stored := mcpprobe.Catalog{
		Digest: "sha256:of-the-whole",
		Tools: []mcpprobe.Tool{{
			Name: "close", Title: "Close", Description: "Closes.", InputSchema: json.RawMessage(`{"type":"object"}`), OutputSchema: json.RawMessage(`{}`),
			Annotations: mcpprobe.Annotations{Title: "t", IdempotentHint: new(true)},
			Raw:         json.RawMessage(`{"annotations":{"idempotentHint":true,"title":"t"},"description":"Closes.","inputSchema":{"type":"object"},"name":"close","outputSchema":{},"title":"Close","x":1}`),
		}},
	}
	text, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(&corev1.ConfigMap{Data: map[string]string{mcpv1alpha1.CatalogKey: string(text), mcpv1alpha1.CatalogTrimmedKey: "prompts"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Catalog{Tools: stored.Tools, Trimmed: "prompts"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, broken := range []string{"", "{", `{"tools":{}}`, `{"tools":[7]}`, `{"tools":[{}]}`} {
		if got, err := parse(&corev1.ConfigMap{Data: map[string]string{mcpv1alpha1.CatalogKey: broken}}); err == nil {
			t.Errorf("%q is %v", broken, got)
		}
	}
}

// The manager is found by labels that its manifest has.
func TestManagerLabels(t *testing.T) {
	content, err := os.ReadFile("../../../config/manager/manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(content), "\n---\n")
	var manager metav1.PartialObjectMetadata
	if err := yaml.Unmarshal([]byte(first), &manager); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string(ManagerLabels()), manager.Labels); manager.Kind != "Deployment" || diff != "" {
		t.Errorf("%s (-want +got):\n%s", manager.Kind, diff)
	}
}

// pages is a cluster with some servers, of which it sends as many at a time as it is asked for.
type pages struct {
	client.Reader
	servers int
	fails   bool
}

// List implements client.Reader.
func (p pages) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	first, _ := strconv.Atoi(asked.Continue) // which is 0 for the first page
	if p.fails && first > 0 {
		return errors.New("too late")
	}
	end := min(first+int(asked.Limit), p.servers)
	if end < p.servers {
		into.SetContinue(strconv.Itoa(end))
	}
	var items []runtime.Object
	for i := first; i < end; i++ {
		name := metav1.ObjectMeta{Namespace: asked.Namespace, Name: fmt.Sprintf("server-%d", i), ManagedFields: []metav1.ManagedFieldsEntry{{}}}
		if _, isMetadata := into.(*metav1.PartialObjectMetadataList); isMetadata {
			items = append(items, &metav1.PartialObjectMetadata{ObjectMeta: name})
		} else {
			items = append(items, &mcpv1alpha1.MCPServer{ObjectMeta: name})
		}
	}
	return meta.SetList(into, items)
}

// All pages of a list are read, each bounded.
func TestPages(t *testing.T) {
	for name, count := range map[string]func(api client.Reader) (int, string, error){
		"Servers": func(api client.Reader) (int, string, error) {
			list, err := Servers(t.Context(), api, "a")
			if err != nil {
				return 0, "", err
			}
			last := list.Items[len(list.Items)-1]
			if last.ManagedFields != nil {
				t.Error("managed fields stay")
			}
			return len(list.Items), last.Name, nil
		},
		"ServerKeys": func(api client.Reader) (int, string, error) {
			keys, err := ServerKeys(t.Context(), api, "a")
			if err != nil {
				return 0, "", err
			}
			return len(keys), keys[len(keys)-1].Name, nil
		},
		"ServerNames": func(api client.Reader) (int, string, error) {
			names, err := ServerNames(t.Context(), api, "a")
			if err != nil {
				return 0, "", err
			}
			return len(names), names[len(names)-1], nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got, last, err := count(pages{servers: 1001}); got != 1001 || last != "server-1000" || err != nil {
				t.Errorf("got %d, the last is %s, %v", got, last, err)
			}
			if _, _, err := count(pages{servers: 1001, fails: true}); err == nil || err.Error() != "list MCPServers: too late" {
				t.Errorf("got error %v", err)
			}
		})
	}
}
