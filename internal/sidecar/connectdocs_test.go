package sidecar

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The curl commands of the page on clients open a session, list the tools, and leave no session behind.
func TestDocumentedCurl(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the page needs %s: %v", program, err)
		}
	}
	page, err := os.ReadFile("../../docs/connect.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```sh\nURL=[^\n]*\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/connect.md has no block of commands that begins with URL=")
	}
	adapter, url := startAdapter(t, nil)
	command := exec.CommandContext(t.Context(), "bash", "-e", "-o", "pipefail")
	command.Stdin = strings.NewReader("URL=" + url + "\n" + string(block[1]))
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), `"tools":[{`) {
		t.Fatalf("%v:\n%s", err, output)
	}
	if list, text := sessionsOf(t, adapter); len(list.Sessions) > 0 {
		t.Errorf("sessions are left: %s", text)
	}
}
