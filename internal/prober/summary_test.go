package prober

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// Tools and prompts share the room. What does not fit is not listed, and the status says so.
func TestSummaryIsTruncated(t *testing.T) {
	catalog := &mcpprobe.Catalog{Prompts: []mcpprobe.Prompt{{Name: "p"}}}
	for i := range 150 {
		catalog.Tools = append(catalog.Tools, mcpprobe.Tool{Name: fmt.Sprintf("tool-%03d", i), Description: strings.Repeat("d", 120)})
	}
	if got := summarize(catalog).Catalog; len(got.Tools) != 150 || len(got.Prompts) != 1 || got.Truncated {
		t.Errorf("%d tools, %d prompts, truncated: %t", len(got.Tools), len(got.Prompts), got.Truncated)
	}
	for i := range 150 {
		catalog.Tools = append(catalog.Tools, mcpprobe.Tool{Name: fmt.Sprintf("tool-%03d", 150+i), Description: strings.Repeat("d", 120)})
	}
	got := summarize(catalog).Catalog
	encoded, err := json.Marshal(got.Tools)
	if err != nil || len(encoded) > maxListed || len(encoded) < maxListed-200 {
		t.Errorf("%d bytes of tools, %v", len(encoded), err)
	}
	if !got.Truncated || got.Counts.Tools != 300 || got.Counts.Prompts != 1 {
		t.Errorf("%d prompts, truncated: %t, %d tools", len(got.Prompts), got.Truncated, got.Counts.Tools)
	}
}

func TestSummary(t *testing.T) {
	catalog := &mcpprobe.Catalog{
		Digest: "sha256:abc",
		Server: mcpprobe.Server{
			Name: "s", Title: "S", Version: "1", ProtocolVersion: "2025-11-25", Instructions: "Do.\nThen do.",
			ProtocolVersions: []string{"2025-11-25", "zzz", "2026-07-28", "", "2024-11-05"},
		},
		Capabilities: json.RawMessage(`{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true,"listChanged":"yes"},
			"logging":{},"completions":null,"tasks":{"list":{}},"extensions":{"io.x/b":{},"":{}},"experimental":{"a":{},"io.x/b":{},"off":null}}`),
		Tools: []mcpprobe.Tool{
			{Name: "b", Description: "Gets a B.\nIt is slow.", Annotations: mcpprobe.Annotations{Title: "Bee", ReadOnlyHint: new(true)}},
			{Name: ""}, {Name: "a", Title: "A"}, {Name: "a", Title: "another"},
		},
		Prompts:           []mcpprobe.Prompt{{Name: "p", Title: "P", Description: "pp"}},
		Resources:         []mcpprobe.Resource{{URI: "file:///a", Name: "a"}},
		ResourceTemplates: []mcpprobe.ResourceTemplate{{URITemplate: "file:///{x}", Name: "x"}},
	}
	want := Summary{
		ServerInfo: mcpv1alpha1.ServerInfo{
			Name: "s", Title: "S", Version: "1", ProtocolVersion: "2025-11-25", Instructions: "Do.\nThen do.",
			Capabilities: &mcpv1alpha1.Capabilities{
				Tools: &mcpv1alpha1.ListCapability{ListChanged: true}, Prompts: &mcpv1alpha1.ListCapability{},
				Resources: &mcpv1alpha1.ResourcesCapability{Subscribe: true},
				Logging:   true, Tasks: true, Extensions: []string{"a", "io.x/b"},
			},
		},
		ProtocolVersions: []string{"2026-07-28", "2025-11-25", "2024-11-05", "zzz"},
		Catalog: mcpv1alpha1.Catalog{
			Digest:  "sha256:abc",
			Counts:  mcpv1alpha1.CatalogCounts{Tools: 4, Prompts: 1, Resources: 1, ResourceTemplates: 1},
			Tools:   []mcpv1alpha1.CatalogEntry{{Name: "a", Description: "A"}, {Name: "b", Description: "Gets a B."}},
			Prompts: []mcpv1alpha1.CatalogEntry{{Name: "p", Description: "pp"}},
		},
	}
	if diff := cmp.Diff(want, summarize(catalog)); diff != "" {
		t.Errorf("summary differs (-want +got):\n%s", diff)
	}
	if catalog.Tools[0].Name != "b" {
		t.Error("the catalog itself was sorted")
	}
}

func TestSummaryOfAServerThatSaysNothing(t *testing.T) {
	if diff := cmp.Diff(Summary{}, summarize(&mcpprobe.Catalog{})); diff != "" {
		t.Errorf("summary differs (-want +got):\n%s", diff)
	}
}

// statusSchema validates a status as the API server does.
func statusSchema(t testing.TB) func(status any) error {
	t.Helper()
	data, err := os.ReadFile("../../config/crd/bases/mcp.slipway.dev_mcpservers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(data, crd); err != nil {
		t.Fatal(err)
	}
	props := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&props, internal, nil); err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	return func(status any) error {
		encoded, err := json.Marshal(status)
		if err != nil {
			return err
		}
		var object map[string]any
		if err := json.Unmarshal(encoded, &object); err != nil {
			return err
		}
		problems := validation.ValidateCustomResource(field.NewPath("status"), object, validator)
		problems = append(problems, listtype.ValidateListSetsAndMaps(field.NewPath("status"), structural, object)...)
		return problems.ToAggregate()
	}
}

func statusOf(s Summary) mcpv1alpha1.MCPServerStatus {
	return mcpv1alpha1.MCPServerStatus{ServerInfo: &s.ServerInfo, ProtocolVersions: s.ProtocolVersions, Catalog: &s.Catalog}
}

// huge has more than a status takes of everything, from one text.
func huge(words string, count int) *mcpprobe.Catalog {
	self := words
	characters := 0
	for i := range words {
		if characters++; characters > 2048 {
			words = words[:i] // an item has no text that may be longer
			break
		}
	}
	c := &mcpprobe.Catalog{Digest: "sha256:" + strings.Repeat("0", 64), Server: mcpprobe.Server{
		Name: self, Title: self, Version: self, ProtocolVersion: self, Instructions: self,
	}}
	experimental := map[string]any{}
	for i := range count {
		name := fmt.Sprintf("%s%05d", words, i)
		c.Server.ProtocolVersions = append(c.Server.ProtocolVersions, name, strconv.Itoa(i)+words)
		experimental[name], experimental[strconv.Itoa(i)+words] = 1, 1
		c.Tools = append(c.Tools, mcpprobe.Tool{Name: name, Title: words, Description: words, Annotations: mcpprobe.Annotations{ReadOnlyHint: new(true), DestructiveHint: new(false)}})
		c.Prompts = append(c.Prompts, mcpprobe.Prompt{Name: name, Title: words, Description: words})
		c.Resources = append(c.Resources, mcpprobe.Resource{URI: name, Name: words})
		c.ResourceTemplates = append(c.ResourceTemplates, mcpprobe.ResourceTemplate{URITemplate: name, Name: words})
	}
	c.Capabilities, _ = json.Marshal(map[string]any{"tools": true, "prompts": []int{1}, "resources": 1, "extensions": experimental})
	return c
}

func TestSummaryAlwaysFitsAStatus(t *testing.T) {
	valid := statusSchema(t)
	for name, words := range map[string]string{
		"short": "a", "empty": "", "long": strings.Repeat("a", 5000), "wide": strings.Repeat("語", 5000),
		"far": strings.Repeat("😀", 5000), "broken": strings.Repeat("\xff", 5000), "control": strings.Repeat("\x00", 5000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			summary := summarize(huge(words, 3000))
			if err := valid(statusOf(summary)); err != nil {
				t.Errorf("%.500v", err)
			}
			catalog := &summary.Catalog
			if len(catalog.Tools) == 0 || !catalog.Truncated || catalog.Counts.Tools != 3000 {
				t.Errorf("%d of %d tools, truncated: %t", len(catalog.Tools), catalog.Counts.Tools, catalog.Truncated)
			}
			if !utf8.ValidString(catalog.Tools[0].Description) {
				t.Error("the description is no text")
			}
			encoded, err := json.Marshal(statusOf(summary))
			if err != nil || len(encoded) > 42<<10 {
				t.Errorf("%d bytes, %v", len(encoded), err)
			}
		})
	}
	// The validation itself can fail.
	if err := valid(mcpv1alpha1.MCPServerStatus{ServerInfo: &mcpv1alpha1.ServerInfo{Name: strings.Repeat("語", maxName+1)}}); err == nil {
		t.Error("the schema takes a name that is too long")
	}
	if err := valid(mcpv1alpha1.MCPServerStatus{ServerInfo: &mcpv1alpha1.ServerInfo{Name: strings.Repeat("語", maxName)}}); err != nil {
		t.Error("the schema counts bytes:", err)
	}
}

func FuzzSummary(f *testing.F) {
	valid := statusSchema(f)
	f.Add("name", "text", `{"tools":{}}`, 3)
	f.Add("\xff\x00\u202e", strings.Repeat("語", 4097), `{"extensions":{"a":1,"a…":2}}`, 224)
	f.Fuzz(func(t *testing.T, name, words, declared string, count int) {
		// Lists that are cut short are slow to validate. One length in 32 is enough for them, the others look at odd values.
		if count%32 != 0 {
			count = int(uint(count) % 8)
		}
		catalog := huge(words, min(max(count, 0), 200))
		catalog.Tools = append(catalog.Tools, mcpprobe.Tool{Name: name}, mcpprobe.Tool{Name: name, Title: words})
		catalog.Server.Name = name
		catalog.Capabilities = json.RawMessage(declared)
		summary := summarize(catalog)
		if err := valid(statusOf(summary)); err != nil {
			t.Errorf("%.1000v", err)
		}
		if int(summary.Catalog.Counts.Tools) != len(catalog.Tools) {
			t.Errorf("got %d tools, want %d", summary.Catalog.Counts.Tools, len(catalog.Tools))
		}
	})
}
