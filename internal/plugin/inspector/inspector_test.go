package inspector

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLink(t *testing.T) {
	link, err := url.Parse(Link(DefaultPage, "secret&more", "http://127.0.0.1:16270/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	if got := link.Scheme + "://" + link.Host + link.Path; got != DefaultPage+"/" {
		t.Errorf("page %s", got)
	}
	want := url.Values{"MCP_INSPECTOR_API_TOKEN": {"secret&more"}, "autoConnect": {"secret&more"}, "serverUrl": {"http://127.0.0.1:16270/mcp"}, "transport": {"http"}}
	if diff := cmp.Diff(want, link.Query()); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
}

// An Inspector that does not start is an error, with what it says, and leaves no files behind.
func TestNotStarted(t *testing.T) {
	programs, temporary := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "npx"), []byte("#!/bin/sh\necho 404 Not Found >&2\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs)
	t.Setenv("TMPDIR", temporary)
	var output bytes.Buffer
	_, err := Start(t.Context(), "http://127.0.0.1:1/mcp", &output)
	if err == nil || !strings.Contains(err.Error(), "the Inspector ended with exit code 7 before it served its page") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(output.String(), "404 Not Found") {
		t.Errorf("output %q", &output)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
