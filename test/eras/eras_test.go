//go:build conformance

package eras

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/test/npm"
	"github.com/slipway-mcp/slipway/test/servers"
)

// programs are those of this module that the test runs, by their name.
var programs = map[string]*string{"sidecar": new(string), "matrix": new(string), "era": new(string)}

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, map[string]*string{
		"cmd/sidecar": programs["sidecar"], "test/servers/matrix": programs["matrix"], "test/servers/era": programs["era"],
	}))
}

// report is what a client found out.
type report struct {
	Connection string            `json:"connection"` // what went wrong outside of any feature
	Served     string            `json:"served"`     // the revision that the server believes to speak
	Features   map[string]string `json:"features"`
}

// of is what the client has to say of one feature.
func (r report) of(feature string) string {
	switch got, tried := r.Features[feature]; {
	case tried:
		return got
	case r.Connection != "":
		return r.Connection
	}
	return "the client did not try"
}

// A client uses every feature of a server under a key of its own.
type client struct {
	name string
	// refused is what it says where it is told to use 2026-07-28 and there are sessions only.
	refused string
	use     func(t *testing.T, at address, revision, key string) report
}

// Every client uses every feature of every server, and finds what is expected.
func TestMatrix(t *testing.T) {
	modules, err := npm.Install(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	clients := []client{
		{name: "go", use: useGo, refused: "agreed on 2025-11-25, want 2026-07-28"}, // it falls back
		{name: "typescript-v1", use: node(modules, "v1.mjs")},
		{name: "typescript-v2", use: node(modules, "v2.mjs"), refused: "the server did not offer pinned protocol version 2026-07-28"}, // in words of its own
	}
	for _, s := range columns {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			visit(t, s, clients, append(slices.Clone(revisions), anyRevision))
		})
		if slices.Contains(s.ways, fallsBack) {
			t.Run(s.name+", translated", func(t *testing.T) {
				t.Parallel()
				visit(t, s.withTranslation(), clients, []string{modern, anyRevision})
			})
		}
	}
}

// visit has all clients use a server.
func visit(t *testing.T, s server, clients []client, revisions []string) {
	t.Helper()
	at := s.start(t)
	for _, revision := range revisions {
		for _, c := range clients {
			if c.name == "typescript-v1" && revision >= modern {
				continue // It has sessions only.
			}
			t.Run(revision+" "+c.name, func(t *testing.T) {
				got := c.use(t, at, revision, c.name+"-"+revision)
				if s.way(revision) == fallsBack { // with anyRevision the client uses what it gets
					if !strings.Contains(got.Connection, c.refused) {
						t.Errorf("the client says %q, want %s in it", got.Connection, c.refused)
					}
					return
				}
				if revision == anyRevision && slices.Contains(s.ways, fallsBack) && got.Served >= modern {
					t.Errorf("the client has no session of its own: the server spoke %s", got.Served)
				}
				check(t, s, revision, got)
			})
		}
	}
}

func check(t *testing.T, s server, revision string, got report) {
	t.Helper()
	w := s.way(revision)
	if w != notYet {
		if got.Connection != "" {
			t.Errorf("connection: %s", got.Connection)
		}
		if wrong := w.judgeServed(revision, got.Served); wrong != "" {
			t.Error(wrong)
		}
	}
	for _, feature := range features {
		t.Run(feature, func(t *testing.T) {
			wrong, skip := expect(w, revision, s.name, feature).judge(got.of(feature))
			switch {
			case wrong != "":
				t.Error(wrong)
			case skip != "":
				t.Skip(skip)
			}
		})
	}
}
