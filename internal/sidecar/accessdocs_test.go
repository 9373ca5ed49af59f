package sidecar

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/audit"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// An adapter takes the access document of the documentation, all of its keys included.
func TestDocumentedAccessDocument(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.json")
	if err := os.WriteFile(file, documentedJSON(t, "adapter.md", `"authorizationServers"`), 0o600); err != nil {
		t.Fatal(err)
	}
	gate := access.New(access.Options{File: file, Required: true, Log: logr.Discard()})
	if err := gate.Ready(); err != nil || !gate.Verifies() {
		t.Fatalf("Ready: %v, verifies tokens: %t", err, gate.Verifies())
	}
	if _, ok := gate.Metadata(access.MetadataPath, "127.0.0.1:16270"); !ok {
		t.Error("there is no metadata")
	}
}

// The audit line of the documentation has the members of one that the adapter writes.
func TestDocumentedAuditLine(t *testing.T) {
	var written bytes.Buffer
	log := audit.New(&written, nil)
	log.Add(&audit.Event{
		Received: time.Now(), Completed: time.Now(), Verb: "tools/call", Kind: "tools", Name: "search_tickets", Session: "17", Address: "10.0.3.7", Rule: 0,
		Identity: &identity.Identity{User: "u"},
	})
	if err := log.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(membersOf(t, written.Bytes()), membersOf(t, documentedJSON(t, "security.md", `"kind":"Event"`))); diff != "" {
		t.Errorf("docs/security.md has another line (-written +documented):\n%s", diff)
	}
}

// documentedJSON is the JSON block of a page that contains a text.
func documentedJSON(t *testing.T, page, with string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(text, -1) {
		if bytes.Contains(block[1], []byte(with)) {
			return block[1]
		}
	}
	t.Fatalf("docs/%s has no JSON with %s", page, with)
	return nil
}

// membersOf are the paths of the members of an object, sorted.
func membersOf(t *testing.T, text []byte) []string {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatalf("decode %s: %v", text, err)
	}
	paths := map[string]bool{}
	var walk func(in map[string]any, above string)
	walk = func(in map[string]any, above string) {
		for name, value := range in {
			paths[above+name] = true
			if nested, ok := value.(map[string]any); ok {
				walk(nested, above+name+".")
			}
		}
	}
	walk(object, "")
	return slices.Sorted(maps.Keys(paths))
}
