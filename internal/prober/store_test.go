package prober

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// catalogOf is the catalog of a server that gives these answers.
func catalogOf(t testing.TB, opening string, lists map[string]string) *mcpprobe.Catalog {
	t.Helper()
	server := httptest.NewServer(scripted(opening, lists))
	defer server.Close()
	catalog, err := mcpprobe.Probe(t.Context(), mcpprobe.HTTP(server.URL, nil), mcpprobe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return catalog
}

const allCapabilities = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"scripted","version":"0"}}`

// scripted answers list requests with what it is given.
func scripted(opening string, lists map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&call) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if call.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		result, ok := lists[call.Method]
		switch {
		case call.Method == "initialize":
			result = opening
		case !ok && strings.HasSuffix(call.Method, "/list"):
			result = "{}"
		case !ok:
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, call.ID)
			return
		}
		for _, part := range []string{`{"jsonrpc":"2.0","id":`, string(call.ID), `,"result":`, result, `}`} {
			_, _ = io.WriteString(w, part)
		}
	})
}

func list(member string, count int, item func(i int) string) string {
	items := make([]string, count)
	for i := range items {
		items[i] = item(i)
	}
	return fmt.Sprintf(`{%q:[%s]}`, member, strings.Join(items, ","))
}

func tool(i, input, output, description int) string {
	return fmt.Sprintf(`{"name":"t%05d","description":%q,"inputSchema":{"type":"object","description":%q},"outputSchema":{"type":"object","description":%q}}`,
		i, strings.Repeat("d", description), strings.Repeat("i", input), strings.Repeat("o", output))
}

func TestStoreKeepsASmallCatalogWhole(t *testing.T) {
	catalog := catalogOf(t, allCapabilities, map[string]string{
		"tools/list":   list("tools", 3, func(i int) string { return tool(i, 10, 10, 10) }),
		"prompts/list": `{"prompts":[{"name":"<&>\u2028","n":12345678901234567890123}]}`,
	})
	stored := store(catalog)
	if stored.Trimmed != "" || stored.Digest != catalog.Digest {
		t.Errorf("got digest %s and %q", stored.Digest, stored.Trimmed)
	}
	decoded, err := mcpprobe.DecodeCatalog(stored.JSON, mcpprobe.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(catalog, decoded); diff != "" {
		t.Errorf("what is stored differs (-want +got):\n%s", diff)
	}
}

func TestStoreTrims(t *testing.T) {
	const limit = 20 << 10
	for name, test := range map[string]struct {
		opening string
		lists   map[string]string
		want    string // what is left out
	}{
		"output schemas, largest first": {
			lists: map[string]string{"tools/list": list("tools", 4, func(i int) string { return tool(i, 100, 6000+i, 10) })},
			want:  "1 output schema",
		},
		"then input schemas": {
			lists: map[string]string{"tools/list": list("tools", 4, func(i int) string { return tool(i, 6000, 1000, 10) })},
			want:  "4 output schemas, 1 input schema",
		},
		"then descriptions": {
			lists: map[string]string{
				"tools/list": list("tools", 2, func(i int) string { return tool(i, 10, 10, 6000) }),
				"prompts/list": list("prompts", 2, func(i int) string {
					return fmt.Sprintf(`{"name":"p%d","description":%q}`, i, strings.Repeat("d", 7000))
				}),
			},
			want: "2 output schemas, 2 input schemas, 1 description",
		},
		"then what the server says of itself": {
			opening: fmt.Sprintf(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"experimental":{"a":%q}},"serverInfo":{"name":"s","version":"0"}}`, strings.Repeat("e", 40<<10)),
			lists:   map[string]string{"tools/list": list("tools", 1, func(i int) string { return tool(i, 10, 10, 10) })},
			want:    "1 output schema, 1 input schema, 1 description, part of what the server says of itself",
		},
		"then all but names": {
			lists: map[string]string{"resources/list": list("resources", 4, func(i int) string {
				return fmt.Sprintf(`{"uri":"file:///%d","name":"n","icon":%q}`, i, strings.Repeat("x", 6000))
			})},
			want: "all but the names of 1 items",
		},
		"then the ends of lists": {
			lists: map[string]string{
				"tools/list":   list("tools", 1200, func(i int) string { return tool(i, 1, 1, 1) }),
				"prompts/list": list("prompts", 10, func(i int) string { return fmt.Sprintf(`{"name":"p%d"}`, i) }),
			},
			want: "1200 output schemas, 1200 input schemas, 1200 descriptions, 79 of 1200 tools, 10 of 10 prompts",
		},
		"a name that fills everything": {
			lists: map[string]string{"tools/list": fmt.Sprintf(`{"tools":[{"name":%q}]}`, strings.Repeat("n", 30<<10))},
			want:  "1 of 1 tools",
		},
		"excluded items": {
			lists: map[string]string{"tools/list": list("tools", 600, func(int) string { return `{"title":"no name"}` })},
			want:  "600 excluded items",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.opening == "" {
				test.opening = allCapabilities
			}
			catalog := catalogOf(t, test.opening, test.lists)
			before := encode(catalog)
			stored := storeWithin(catalog, limit)
			if len(stored.JSON) > limit {
				t.Errorf("got %d bytes, want at most %d", len(stored.JSON), limit)
			}
			want := "The catalog is larger than the 20 KiB that are kept of one, so this is left out: " + test.want + "."
			if stored.Trimmed != want {
				t.Errorf("got  %s\nwant %s", stored.Trimmed, want)
			}
			var decoded struct {
				Digest string
				Tools  []struct{ Name string }
			}
			if err := json.Unmarshal(stored.JSON, &decoded); err != nil || decoded.Digest != catalog.Digest {
				t.Errorf("got digest %s and %v", decoded.Digest, err)
			}
			if string(before) != string(encode(catalog)) {
				t.Error("the catalog itself was changed")
			}
			if again := storeWithin(catalog, limit); !cmp.Equal(stored, again) {
				t.Error("the same catalog is stored in another way")
			}
		})
	}
}

// Whatever a server says, what is stored fits a ConfigMap.
func TestStoreAlwaysFits(t *testing.T) {
	words := strings.Repeat("\x01", maxStored/5) // six times as long in JSON
	catalog := huge(words[:10<<10], 12)
	catalog.Server.Instructions = words
	catalog.Excluded = []mcpprobe.Excluded{{List: "tools/list", Name: words[:1000], Reason: words[:1000]}}
	for i := range catalog.Tools {
		catalog.Tools[i].Raw = encode(map[string]string{"name": catalog.Tools[i].Name})
		catalog.Prompts[i].Raw = encode(map[string]string{"name": catalog.Tools[i].Name})
		catalog.Resources[i].Raw = encode(map[string]string{"uri": "x"})
		catalog.ResourceTemplates[i].Raw = encode(map[string]string{"uriTemplate": "x"})
	}
	stored := store(catalog)
	if len(stored.JSON) > maxStored || len(stored.JSON) < maxStored/4 || !json.Valid(stored.JSON) {
		t.Errorf("got %d bytes", len(stored.JSON))
	}
}
