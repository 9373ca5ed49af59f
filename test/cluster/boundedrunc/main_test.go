package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestRewrite(t *testing.T) {
	few := bounds{
		capabilities: 1<<0 | 1<<5, // CHOWN, KILL
		oomScoreAdj:  100,
		hardLimit: func(resource int) (uint64, error) {
			if resource == unix.RLIMIT_NOFILE {
				return 1024, nil
			}
			return ^uint64(0), nil
		},
	}
	tests := map[string]struct {
		before, after string
		isContainer   bool
	}{
		"capabilities": {
			before:      `{"ociVersion":"1","process":{"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_ADMIN","CAP_KILL"],"ambient":["CAP_BPF"]}}}`,
			after:       `{"ociVersion":"1","process":{"capabilities":{"bounding":["CAP_CHOWN","CAP_KILL"],"ambient":[]}}}`,
			isContainer: true,
		},
		"a capability of a later kernel": {before: `{"capabilities":{"bounding":["CAP_OF_TOMORROW"]}}`, after: `{"capabilities":{"bounding":["CAP_OF_TOMORROW"]}}`},
		"a score below":                  {before: `{"oomScoreAdj":-999,"cwd":"/"}`, after: `{"cwd":"/"}`},
		"a score above":                  {before: `{"oomScoreAdj":500}`, after: `{"oomScoreAdj":500}`},
		"limits": {
			before: `{"rlimits":[{"type":"RLIMIT_NOFILE","hard":4096,"soft":1},{"type":"RLIMIT_NOFILE","hard":1024,"soft":1},{"type":"RLIMIT_CORE","hard":18446744073709551615,"soft":0}]}`,
			after:  `{"rlimits":[{"type":"RLIMIT_NOFILE","hard":1024,"soft":1},{"type":"RLIMIT_CORE","hard":18446744073709551615,"soft":0}]}`,
		},
		"no process": {before: `{"ociVersion":"1"}`, after: `{"ociVersion":"1"}`, isContainer: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.json")
			if err := os.WriteFile(path, []byte(test.before), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := rewrite(path, test.isContainer, few); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parse(t, test.after), parse(t, string(text))); diff != "" {
				t.Errorf("description (-want +got):\n%s", diff)
			}
		})
	}
}

func parse(t *testing.T, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestDescription(t *testing.T) {
	tests := map[string]struct {
		args        []string
		path        string
		isContainer bool
	}{
		"create":              {[]string{"--root", "/run/x", "create", "--bundle", "/b", "id"}, "/b/config.json", true},
		"create in directory": {[]string{"create", "id"}, "config.json", true},
		"exec":                {[]string{"exec", "--process", "/tmp/p", "id"}, "/tmp/p", false},
		"exec, one word":      {[]string{"exec", "--process=/tmp/p", "id"}, "/tmp/p", false},
		"exec without a file": {[]string{"exec", "id", "sh"}, "", false},
		"kill":                {[]string{"kill", "id"}, "", false},
	}
	for name, test := range tests {
		if path, isContainer := description(test.args); path != test.path || isContainer != test.isContainer {
			t.Errorf("%s: %q, %t", name, path, isContainer)
		}
	}
}

func TestOwnBounds(t *testing.T) {
	b, err := ownBounds()
	if err != nil {
		t.Fatal(err)
	}
	most, err := b.hardLimit(unix.RLIMIT_NOFILE)
	if err != nil || most == 0 {
		t.Errorf("hard limit of open files: %d, %v", most, err)
	}
}
