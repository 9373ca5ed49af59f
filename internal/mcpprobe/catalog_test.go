package mcpprobe

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// offer is what a catalog is built from, as a server would write it.
type offer struct{ capabilities, tools, prompts, resources, templates string }

func standardOffer() offer {
	return offer{
		capabilities: `{"tools":{"listChanged":true},"prompts":{}}`,
		tools: `[{"name":"b","description":"<B> & \u2028"},
			{"name":"a","title":"A","inputSchema":{"type":"object","properties":{"x":{"type":"number","maximum":1e400},"y":{}}},
			 "annotations":{"destructiveHint":false},"vendor":{"k":[1,2]}}]`,
		prompts:   `[{"name":"p"},{"name":"o"}]`,
		resources: `[{"uri":"u:2","name":"two"},{"uri":"u:1","name":"one","annotations":{"priority":0.5}}]`,
		templates: `[{"uriTemplate":"t:{x}","name":"t"}]`,
	}
}

func (o offer) catalog(t *testing.T) *Catalog {
	t.Helper()
	b := newBuilder(Limits{})
	b.catalog.Server = Server{Name: "s", Version: "1", ProtocolVersion: versionLegacy, Instructions: "i"}
	if err := b.setCapabilities([]byte(o.capabilities)); err != nil {
		t.Fatal(err)
	}
	for i, array := range []string{o.tools, o.prompts, o.resources, o.templates} {
		count := 0
		if err := b.add(lists[i].keep, lists[i].method, []byte(array), &count); err != nil {
			t.Fatal(err)
		}
	}
	catalog, err := b.build()
	if err != nil {
		t.Fatal(err)
	}
	return catalog
}

func TestDigestDoesNotDependOnForm(t *testing.T) {
	want := standardOffer().catalog(t)
	if !strings.HasPrefix(want.Digest, "sha256:") || len(want.Digest) != len("sha256:")+64 {
		t.Errorf("got digest %q", want.Digest)
	}
	for name, change := range map[string]func(*offer){
		"order of lists": func(o *offer) {
			o.prompts = `[{"name":"o"},{"name":"p"}]`
			o.resources = `[{"uri":"u:1","name":"one","annotations":{"priority":0.5}},{"uri":"u:2","name":"two"}]`
		},
		"order of members": func(o *offer) {
			o.capabilities = `{"prompts":{},"tools":{"listChanged":true}}`
			o.resources = `[{"name":"two","uri":"u:2"},{"annotations":{"priority":0.5},"name":"one","uri":"u:1"}]`
		},
		"white space": func(o *offer) { o.templates = "[ {\n\"uriTemplate\" : \"t:{x}\",\t\"name\":\"t\" } ]" },
		"escapes":     func(o *offer) { o.prompts = `[{"n\u0061me":"\u0070"},{"name":"o"}]` },
	} {
		t.Run(name, func(t *testing.T) {
			changed := standardOffer()
			change(&changed)
			if diff := cmp.Diff(want, changed.catalog(t)); diff != "" {
				t.Errorf("catalog (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDigestChangesWithContent(t *testing.T) {
	seen := map[string]string{standardOffer().catalog(t).Digest: "unchanged"}
	for name, change := range map[string]func(*offer){
		"capability":         func(o *offer) { o.capabilities = `{"tools":{"listChanged":false},"prompts":{}}` },
		"tool gone":          func(o *offer) { o.tools = `[{"name":"b","description":"<B> & \u2028"}]` },
		"tool twice":         func(o *offer) { o.tools = strings.Replace(o.tools, `[`, `[{"name":"b"},`, 1) },
		"name":               func(o *offer) { o.tools = strings.Replace(o.tools, `"b"`, `"c"`, 1) },
		"description":        func(o *offer) { o.tools = strings.Replace(o.tools, "<B>", "<C>", 1) },
		"schema":             func(o *offer) { o.tools = strings.Replace(o.tools, "1e400", "1e401", 1) },
		"hint":               func(o *offer) { o.tools = strings.Replace(o.tools, "false", "true", 1) },
		"unknown member":     func(o *offer) { o.tools = strings.Replace(o.tools, "[1,2]", "[2,1]", 1) },
		"prompt":             func(o *offer) { o.prompts = `[{"name":"p"},{"name":"o","title":""}]` },
		"resource":           func(o *offer) { o.resources = strings.Replace(o.resources, "0.5", "0.6", 1) },
		"template":           func(o *offer) { o.templates = strings.Replace(o.templates, "t:{x}", "t:{y}", 1) },
		"prompt to resource": func(o *offer) { o.prompts = `[{"name":"p"}]` },
		"item excluded":      func(o *offer) { o.prompts = `[{"name":"p"},{"name":"o"},{}]` },
	} {
		changed := standardOffer()
		change(&changed)
		digest := changed.catalog(t).Digest
		if other, ok := seen[digest]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[digest] = name
	}
	for name, change := range map[string]func(*Server){
		"server name":      func(s *Server) { s.Name = "x" },
		"server title":     func(s *Server) { s.Title = "x" },
		"server version":   func(s *Server) { s.Version = "2" },
		"protocol":         func(s *Server) { s.ProtocolVersion = versionModern },
		"protocol choices": func(s *Server) { s.ProtocolVersions = []string{versionModern} },
		"instructions":     func(s *Server) { s.Instructions = "" },
	} {
		catalog := standardOffer().catalog(t)
		change(&catalog.Server)
		if err := catalog.finish(); err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[catalog.Digest]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[catalog.Digest] = name
	}
}

func TestCatalogRoundTrip(t *testing.T) {
	full := standardOffer()
	full.prompts = `[{"name":"p"},{"title":"no name"},7]`
	for name, want := range map[string]*Catalog{
		"full":  full.catalog(t),
		"empty": offer{}.catalog(t),
	} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			var got Catalog
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatalf("Unmarshal: %v", err)
			}
			if diff := cmp.Diff(want, &got); diff != "" {
				t.Errorf("catalog (-want +got):\n%s", diff)
			}
			again, err := json.Marshal(&got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(data), string(again)); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever is within the limits when it is taken is so when it is read back, though
// json.Marshal makes it longer.
func TestCatalogAtTheLimitsCanBeReadBack(t *testing.T) {
	limits := Limits{ItemBytes: 1000, CatalogBytes: 5000}
	b := newBuilder(limits)
	if err := b.setCapabilities(nil); err != nil {
		t.Fatal(err)
	}
	count := 0
	item := `{"name":"t","description":"` + strings.Repeat("<", 1000-29) + `"}`
	if err := b.add(keepTool, methodTools, []byte(`[`+strings.Repeat(item+",", 4)+strings.Repeat(`{},`, 8)+`{}]`), &count); err != nil {
		t.Fatal(err)
	}
	want, err := b.build()
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeCatalog(data, limits)
	if err != nil {
		t.Fatalf("DecodeCatalog: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("catalog (-want +got):\n%s", diff)
	}
}

func TestDecodeCatalogRefuses(t *testing.T) {
	data, err := json.Marshal(standardOffer().catalog(t))
	if err != nil {
		t.Fatal(err)
	}
	encoded := string(data)
	for name, test := range map[string]struct {
		data   string
		limits Limits
	}{
		"another digest":       {strings.Replace(encoded, `"name":"p"`, `"name":"q"`, 1), Limits{}},
		"an item out of shape": {strings.Replace(encoded, `{"name":"p"}`, `{"name":7}`, 1), Limits{}},
		"a list out of shape":  {strings.Replace(encoded, `"excluded":[]`, `"excluded":{}`, 1), Limits{}},
		"no object":            {`[]`, Limits{}},
		"nothing":              {``, Limits{}},
		"too many items":       {encoded, Limits{Items: 1}},
		"too large an item":    {encoded, Limits{ItemBytes: 20}},
		"too large":            {encoded, Limits{CatalogBytes: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			if catalog, err := DecodeCatalog([]byte(test.data), test.limits); err == nil {
				t.Errorf("got %+v, want an error", catalog)
			}
		})
	}
}

func TestItemsThatNoClientCanUseAreExcluded(t *testing.T) {
	o := offer{
		tools:     `[null,{"name":"ok"},{"name":""},{"name":"odd","description":1},{"name":"hint","annotations":7}]`,
		resources: `[{"name":"no uri"}]`,
		templates: `[{"name":"no template"}]`,
	}
	catalog := o.catalog(t)
	if toolNames(catalog) != "ok" || len(catalog.Resources) != 0 || len(catalog.ResourceTemplates) != 0 {
		t.Errorf("got %+v", catalog)
	}
	want := []Excluded{
		{List: methodTemplates, Name: "no template", Reason: errNoURI.Error()},
		{List: methodResources, Name: "no uri", Reason: errNoURI.Error()},
		{List: methodTools, Reason: errNoName.Error()},
		{List: methodTools, Reason: errNoShape.Error()},
		{List: methodTools, Reason: errNoShape.Error()},
		{List: methodTools, Name: "hint", Reason: errNoShape.Error()},
	}
	// Sorted by the name of the list: resources before templates before tools.
	want[0], want[1] = want[1], want[0]
	if diff := cmp.Diff(want, catalog.Excluded); diff != "" {
		t.Errorf("excluded (-want +got):\n%s", diff)
	}
}

func FuzzDecodeCatalog(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"digest":"","server":{},"capabilities":{},"tools":[{"name":"a"}],"prompts":[],"resources":[],"resourceTemplates":[],"excluded":[]}`))
	f.Add([]byte(`{"tools":[{"name":"a","inputSchema":{"x":1e999}},null,[]]}`))
	f.Add([]byte(`{"tools":{},"excluded":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		// With the digest put right, whatever can be decoded stays as it is.
		b := newBuilder(Limits{})
		var stored map[string]json.RawMessage
		if json.Unmarshal(data, &stored) != nil || json.Unmarshal(stored["server"], &b.catalog.Server) != nil {
			_, _ = DecodeCatalog(data, Limits{})
			return
		}
		count := 0
		if b.setCapabilities(stored["capabilities"]) != nil || b.add(keepTool, methodTools, stored["tools"], &count) != nil {
			return
		}
		want, err := b.build()
		if err != nil {
			t.Fatalf("build: %v", err)
		}
		encoded, err := json.Marshal(want)
		if err != nil {
			t.Fatalf("Marshal: %v", err)
		}
		got, err := DecodeCatalog(encoded, Limits{})
		if err != nil {
			t.Fatalf("DecodeCatalog: %v\n%s", err, encoded)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("catalog (-want +got):\n%s", diff)
		}
	})
}
