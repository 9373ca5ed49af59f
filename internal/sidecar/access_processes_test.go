package sidecar

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// No process hears two callers whose tokens the adapter has verified, however they connect, unless all
// share one process.
func TestPrincipalsShareNoProcess(t *testing.T) {
	t.Parallel()
	users := []string{"alice", "root"}
	for name, test := range map[string]struct {
		era       string // what is left of the server's; everything if it is empty
		translate bool
		shared    bool
		kinds     []string
		want      bool // a process hears both
	}{
		"both eras":                  {kinds: []string{"session", "stateless"}},
		"2026-07-28 only":            {era: "modern", kinds: []string{"session", "stateless"}},
		"sessions only":              {era: "legacy", translate: true, kinds: []string{"session", "stateless"}},
		"shared":                     {shared: true, kinds: []string{"session", "stateless"}, want: true},
		"shared, and 2026-07-28":     {era: "modern", shared: true, kinds: []string{"session", "stateless"}, want: true},
		"sessions beside each other": {era: "modern", kinds: []string{"session"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, nil)
			heard := t.TempDir()
			command := []string{"/bin/sh", "-c", `at="$1/$$"; shift; tee -a "$at" | "$@"`, "sh", heard, matrixServer}
			if test.era != "" {
				command = slices.Insert(command, 5, eraFilter, test.era)
			}
			_, url := startAdapterOn(t, newListener(t), g.guarded(func(c *config.Config) {
				c.Shared = test.shared
				if test.translate {
					c.StatelessClients = config.Translate
				}
			}), command...)
			for range 2 {
				for _, user := range users {
					for _, kind := range test.kinds {
						s := speakers[kind](g, url, g.token(user, nil))
						if status := s.open(); status != 200 {
							t.Fatalf("%s connects as %s: %d", user, kind, status)
						}
						if got := s.ask("tools/call", `"name":"echo","arguments":{"text":"secret of `+user+`"}`); !strings.Contains(got.message, "secret of "+user) {
							t.Fatalf("%s calls as %s: %s", user, kind, got.message)
						}
					}
				}
			}
			groups := usersHeard(t, heard, users)
			both := slices.ContainsFunc(groups, func(heard []string) bool { return len(heard) > 1 })
			if both != test.want || len(groups) == 0 {
				t.Errorf("processes hear %v", groups)
			}
		})
	}
}

// usersHeard returns the users that each process has heard.
func usersHeard(t *testing.T, directory string, users []string) (all [][]string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(directory, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var heard []string
		for _, user := range users {
			if strings.Contains(string(text), "secret of "+user) {
				heard = append(heard, user)
			}
		}
		if len(heard) > 0 {
			all = append(all, heard)
		}
	}
	return all
}
