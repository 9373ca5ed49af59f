package prober

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// What a status takes, as its types declare it. A test holds these against the CRD.
const (
	maxTools             = 128
	maxPrompts           = 64
	maxResources         = 64
	maxResourceTemplates = 64
	maxProtocolVersions  = 16
	maxExtensions        = 32

	maxName         = 256 // and of a title
	maxURI          = 2048
	maxDescription  = 512
	maxInstructions = 4096
	maxVersion      = 128
	maxProtocol     = 32
)

// summarize makes of a catalogue what a status has of it. It takes whatever the
// server wrote, and what it returns is always valid in a status.
func summarize(catalog *mcpprobe.Catalog) Summary {
	counts := catalog.Counts()
	return Summary{
		Digest:     catalog.Digest,
		ServerInfo: serverInfo(catalog),
		Tools: pick(catalog.Tools, maxTools, func(t mcpprobe.Tool) string { return t.Name },
			func(t mcpprobe.Tool) mcpv1alpha1.Tool {
				return mcpv1alpha1.Tool{
					Name: line(t.Name, maxName), Title: line(cmp.Or(t.Title, t.Annotations.Title), maxName),
					Description: text(t.Description, maxDescription),
					ReadOnly:    clone(t.Annotations.ReadOnlyHint), Destructive: clone(t.Annotations.DestructiveHint),
				}
			}),
		Prompts: pick(catalog.Prompts, maxPrompts, func(p mcpprobe.Prompt) string { return p.Name },
			func(p mcpprobe.Prompt) mcpv1alpha1.Prompt {
				return mcpv1alpha1.Prompt{
					Name: line(p.Name, maxName), Title: line(p.Title, maxName), Description: text(p.Description, maxDescription),
				}
			}),
		Resources: pick(catalog.Resources, maxResources, func(r mcpprobe.Resource) string { return r.URI },
			func(r mcpprobe.Resource) mcpv1alpha1.Resource {
				return mcpv1alpha1.Resource{URI: line(r.URI, maxURI), Name: line(r.Name, maxName)}
			}),
		ResourceTemplates: pick(catalog.ResourceTemplates, maxResourceTemplates, func(r mcpprobe.ResourceTemplate) string { return r.URITemplate },
			func(r mcpprobe.ResourceTemplate) mcpv1alpha1.ResourceTemplate {
				return mcpv1alpha1.ResourceTemplate{URITemplate: line(r.URITemplate, maxURI), Name: line(r.Name, maxName)}
			}),
		Counts: mcpv1alpha1.CatalogCounts{
			Tools: clamp(counts.Tools), Prompts: clamp(counts.Prompts),
			Resources: clamp(counts.Resources), ResourceTemplates: clamp(counts.ResourceTemplates),
		},
	}
}

// pick shows the first of a list in the order of their names. What has no name, or
// one that was there before, is counted but not shown.
func pick[From, To any](list []From, limit int, name func(From) string, show func(From) To) []To {
	sorted := list
	byName := func(a, b From) int { return cmp.Compare(name(a), name(b)) }
	if !slices.IsSortedFunc(list, byName) {
		sorted = slices.Clone(list)
		slices.SortStableFunc(sorted, byName)
	}
	var shown []To
	last := ""
	for _, item := range sorted {
		if len(shown) == limit {
			break
		}
		if name(item) == last {
			continue // the empty name comes first
		}
		last = name(item)
		shown = append(shown, show(item))
	}
	return slices.Clip(shown)
}

func clone(hint *bool) *bool {
	if hint == nil {
		return nil
	}
	return new(*hint)
}

func clamp(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

func serverInfo(catalog *mcpprobe.Catalog) mcpv1alpha1.ServerInfo {
	server := catalog.Server
	return mcpv1alpha1.ServerInfo{
		Name: line(server.Name, maxName), Title: line(server.Title, maxName), Version: line(server.Version, maxVersion),
		ProtocolVersion:  line(server.ProtocolVersion, maxProtocol),
		ProtocolVersions: protocolVersions(server),
		Instructions:     text(server.Instructions, maxInstructions),
		Capabilities:     capabilities(catalog.Capabilities),
	}
}

// protocolVersions are those that the adapter says clients can use, and the one that it
// agreed on with the server, newest first. A revision is named by its date; other names
// come after those.
func protocolVersions(server mcpprobe.Server) []string {
	var versions []string
	seen := map[string]bool{}
	for _, version := range append([]string{server.ProtocolVersion}, server.ProtocolVersions...) {
		if shown := line(version, maxProtocol); version != "" && !seen[shown] {
			seen[shown] = true
			versions = append(versions, shown)
		}
	}
	slices.SortFunc(versions, func(a, b string) int {
		if isDate(a) != isDate(b) {
			if isDate(a) {
				return -1
			}
			return 1
		}
		return cmp.Compare(b, a)
	})
	return slices.Clip(versions[:min(len(versions), maxProtocolVersions)])
}

func isDate(version string) bool {
	_, err := time.Parse(time.DateOnly, version)
	return err == nil
}

// capabilities reads what the server declared. A part of the wrong shape is there all
// the same, with none of its options.
func capabilities(raw json.RawMessage) *mcpv1alpha1.Capabilities {
	declared := members(raw)
	if declared == nil {
		return nil
	}
	c := &mcpv1alpha1.Capabilities{
		Logging: has(declared, "logging"), Completions: has(declared, "completions"), Tasks: has(declared, "tasks"),
		Extensions: extensions(declared),
	}
	if has(declared, "tools") {
		c.Tools = &mcpv1alpha1.ListCapability{ListChanged: isTrue(declared["tools"], "listChanged")}
	}
	if has(declared, "prompts") {
		c.Prompts = &mcpv1alpha1.ListCapability{ListChanged: isTrue(declared["prompts"], "listChanged")}
	}
	if has(declared, "resources") {
		c.Resources = &mcpv1alpha1.ResourcesCapability{
			ListChanged: isTrue(declared["resources"], "listChanged"), Subscribe: isTrue(declared["resources"], "subscribe"),
		}
	}
	return c
}

// members are those of an object; nil if it is none.
func members(raw json.RawMessage) map[string]json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return nil
	}
	return object
}

func has(object map[string]json.RawMessage, name string) bool {
	value, ok := object[name]
	return ok && string(value) != "null" && string(value) != "false"
}

func isTrue(raw json.RawMessage, name string) bool {
	return string(members(raw)[name]) == "true"
}

// extensions are the names of extensions and experimental capabilities. They are a
// set, also after they were cut.
func extensions(declared map[string]json.RawMessage) []string {
	names := map[string]bool{}
	for _, part := range []string{"extensions", "experimental"} {
		object := members(declared[part])
		for name := range object {
			if name != "" && has(object, name) {
				names[line(name, maxName)] = true
			}
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	return slices.Clip(sorted[:min(len(sorted), maxExtensions)])
}
