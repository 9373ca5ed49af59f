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

func TestText(t *testing.T) {
	for name, test := range map[string]struct{ got, want string }{
		"as it is":           {line("Wetter für Köln", 15), "Wetter für Köln"},
		"one too long":       {line("Wetter für Köln!", 15), "Wetter für Köl…"},
		"characters, bytes":  {line(strings.Repeat("ö", 256), 256), strings.Repeat("ö", 256)},
		"one character left": {line("ab", 1), "…"},
		"terminal":           {line("a\x1b[31mb\nc\x00", 20), "a [31mb c "},
		"lines stay":         {text("a\n\tb\rc\u2028", 20), "a\n\tb c "},
		"direction":          {line("a\u202eb\u2066c\ufeff", 20), "a\ufffdb\ufffdc\ufffd"},
		"no UTF-8":           {line("a\xff\xfeb", 20), "a\ufffd\ufffdb"},
		"no UTF-8, cut":      {line("\xff\xff\xff\xff", 3), "\ufffd\ufffd…"},
		"joined emoji":       {line("👩‍🔧", 20), "👩‍🔧"},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %q, want %q", name, test.got, test.want)
		}
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
			{Name: "b", Description: "B", Annotations: mcpprobe.Annotations{Title: "Bee", ReadOnlyHint: new(true)}},
			{Name: ""}, {Name: "a", Title: "A"}, {Name: "a", Title: "another"},
		},
		Prompts:           []mcpprobe.Prompt{{Name: "p", Title: "P", Description: "pp"}},
		Resources:         []mcpprobe.Resource{{URI: "file:///a", Name: "a"}},
		ResourceTemplates: []mcpprobe.ResourceTemplate{{URITemplate: "file:///{x}", Name: "x"}},
	}
	want := Summary{
		Digest: "sha256:abc",
		ServerInfo: mcpv1alpha1.ServerInfo{
			Name: "s", Title: "S", Version: "1", ProtocolVersion: "2025-11-25", Instructions: "Do.\nThen do.",
			ProtocolVersions: []string{"2026-07-28", "2025-11-25", "2024-11-05", "zzz"},
			Capabilities: &mcpv1alpha1.Capabilities{
				Tools: &mcpv1alpha1.ListCapability{ListChanged: true}, Prompts: &mcpv1alpha1.ListCapability{},
				Resources: &mcpv1alpha1.ResourcesCapability{Subscribe: true},
				Logging:   true, Tasks: true, Extensions: []string{"a", "io.x/b"},
			},
		},
		Tools: []mcpv1alpha1.Tool{
			{Name: "a", Title: "A"}, {Name: "b", Title: "Bee", Description: "B", ReadOnly: new(true)},
		},
		Prompts:           []mcpv1alpha1.Prompt{{Name: "p", Title: "P", Description: "pp"}},
		Resources:         []mcpv1alpha1.Resource{{URI: "file:///a", Name: "a"}},
		ResourceTemplates: []mcpv1alpha1.ResourceTemplate{{URITemplate: "file:///{x}", Name: "x"}},
		Counts:            mcpv1alpha1.CatalogCounts{Tools: 4, Prompts: 1, Resources: 1, ResourceTemplates: 1},
	}
	if diff := cmp.Diff(want, summarize(catalog)); diff != "" {
		t.Errorf("summary differs (-want +got):\n%s", diff)
	}
	if catalog.Tools[0].Name != "b" {
		t.Error("the catalogue itself was sorted")
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
	return mcpv1alpha1.MCPServerStatus{
		ServerInfo: &s.ServerInfo, Tools: s.Tools, Prompts: s.Prompts, Resources: s.Resources,
		ResourceTemplates: s.ResourceTemplates, Counts: &s.Counts, CatalogDigest: s.Digest,
	}
}

// huge has more than a status takes of everything, from one text.
func huge(words string, count int) *mcpprobe.Catalog {
	self := words
	characters := 0
	for i := range words {
		if characters++; characters > maxURI+1 {
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
			summary := summarize(huge(words, 130))
			if err := valid(statusOf(summary)); err != nil {
				t.Errorf("%.500v", err)
			}
			if got := []int{len(summary.Tools), len(summary.Prompts), len(summary.Resources), len(summary.ResourceTemplates), int(summary.Counts.Tools)}; !cmp.Equal(got, []int{128, 64, 64, 64, 130}) {
				t.Errorf("got lists of %v", got)
			}
			if !utf8.ValidString(summary.Tools[0].Description) {
				t.Error("the description is no text")
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
		if int(summary.Counts.Tools) != len(catalog.Tools) {
			t.Errorf("got %d tools, want %d", summary.Counts.Tools, len(catalog.Tools))
		}
	})
}
