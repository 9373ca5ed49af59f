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
	"github.com/slipway-mcp/slipway/internal/text"
)

// What a status takes, as its types declare it. A test holds these against the CRD.
const (
	maxEntries          = 1024 // of tools, and of prompts
	maxProtocolVersions = 16
	maxExtensions       = 8

	maxName         = 256 // and of a title
	maxSentence     = 120
	maxInstructions = 1024
	maxVersion      = 128
	maxProtocol     = 32
	maxExtension    = 64
)

// maxListed bounds tools and prompts together, as JSON, so that an MCPServer stays below 48 KiB:
// every client that watches MCPServers gets all of it with every change of a status.
const maxListed = 28 << 10

// summarize makes of a catalog what a status has of it. It takes whatever the
// server wrote, and what it returns is always valid in a status.
func summarize(catalog *mcpprobe.Catalog) Summary {
	counts := catalog.Counts()
	listed := listing{room: maxListed}
	tools := take(&listed, catalog.Tools, func(t mcpprobe.Tool) (name, description string) {
		return t.Name, cmp.Or(t.Description, t.Title, t.Annotations.Title)
	})
	prompts := take(&listed, catalog.Prompts, func(p mcpprobe.Prompt) (name, description string) {
		return p.Name, cmp.Or(p.Description, p.Title)
	})
	return Summary{
		ServerInfo:       serverInfo(catalog),
		ProtocolVersions: protocolVersions(catalog.Server),
		Catalog: mcpv1alpha1.Catalog{
			Digest: catalog.Digest,
			Counts: mcpv1alpha1.CatalogCounts{
				Tools: clamp(counts.Tools), Prompts: clamp(counts.Prompts),
				Resources: clamp(counts.Resources), ResourceTemplates: clamp(counts.ResourceTemplates),
			},
			Tools: tools, Prompts: prompts, Truncated: listed.truncated,
		},
	}
}

// listing is what is listed of a catalog.
type listing struct {
	room      int // in bytes
	truncated bool
}

// take lists things in the order of their names, as long as there is room. What has no name,
// or one that was there before, is counted but not listed.
func take[T any](l *listing, things []T, of func(T) (name, description string)) []mcpv1alpha1.CatalogEntry {
	nameOf := func(thing T) string { name, _ := of(thing); return name }
	sorted := slices.SortedStableFunc(slices.Values(things), func(a, b T) int { return cmp.Compare(nameOf(a), nameOf(b)) })
	var entries []mcpv1alpha1.CatalogEntry
	last := ""
	for _, thing := range sorted {
		name, description := of(thing)
		if name == last {
			continue // the empty name comes first
		}
		last = name
		entry := mcpv1alpha1.CatalogEntry{Name: text.Line(name, maxName), Description: text.FirstSentence(description, maxSentence)}
		encoded, err := json.Marshal(entry)
		if err != nil || len(encoded)+len(",") > l.room || len(entries) == maxEntries {
			l.truncated = true
			break
		}
		l.room -= len(encoded) + len(",")
		entries = append(entries, entry)
	}
	return slices.Clip(entries)
}

func clamp(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

func serverInfo(catalog *mcpprobe.Catalog) mcpv1alpha1.ServerInfo {
	server := catalog.Server
	return mcpv1alpha1.ServerInfo{
		Name: text.Line(server.Name, maxName), Title: text.Line(server.Title, maxName), Version: text.Line(server.Version, maxVersion),
		ProtocolVersion: text.Line(server.ProtocolVersion, maxProtocol),
		Instructions:    text.Fit(server.Instructions, maxInstructions),
		Capabilities:    capabilities(catalog.Capabilities),
	}
}

// protocolVersions are those that the adapter says clients can use, and the one that it
// agreed on with the server, newest first. A revision is named by its date; other names
// come after those.
func protocolVersions(server mcpprobe.Server) []string {
	var versions []string
	seen := map[string]bool{}
	for _, version := range append([]string{server.ProtocolVersion}, server.ProtocolVersions...) {
		if shown := text.Line(version, maxProtocol); version != "" && !seen[shown] {
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
				names[text.Line(name, maxExtension)] = true
			}
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	return slices.Clip(sorted[:min(len(sorted), maxExtensions)])
}
