package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/document"
	"github.com/slipway-mcp/slipway/test/hang"
)

const (
	openToAll  = `{"version":1,"generation":1,"server":{"namespace":"","name":""},"mode":"None","audit":{"level":"None","whenFull":"Drop"}}`
	openToNone = `{"version":1,"generation":1,"server":{"namespace":"","name":""},"mode":"Required","resources":["https://a.example/mcp"],` +
		`"issuers":[{"name":"corp","issuer":"https://i.example","audiences":["a"],"maxLifetimeSeconds":60,"claims":{"user":"sub"}}],` +
		`"rules":[{"subjects":[{"kind":"User","name":"corp:a"}],"tools":["*"]}],"audit":{"level":"None","whenFull":"Drop"}}`
)

// Without a manager, the document is a file that its user edits.
func TestAccessFile(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	file := filepath.Join(writeFiles(t, map[string]string{"a.json": openToAll}), "a.json")
	p, _ := startSidecar(t, "--access-file", file, "--", echoServer)
	url := clientURL.FindStringSubmatch(p.written())[1]
	g.Expect(openAs(t, url, "localhost")).To(gomega.Equal(200))
	g.Expect(os.WriteFile(file, []byte(openToNone), 0o600)).To(gomega.Succeed())
	g.Eventually(func() int { return openAs(t, url, "localhost") }).WithTimeout(document.ReadInterval + hang.Guard).WithPolling(100 * time.Millisecond).Should(gomega.Equal(401))
	g.Expect(os.WriteFile(file, []byte(`{}`), 0o600)).To(gomega.Succeed())
	g.Eventually(p.written).WithTimeout(document.ReadInterval + hang.Guard).Should(gomega.ContainSubstring("Keep the access document in effect"))
	g.Expect(openAs(t, url, "localhost")).To(gomega.Equal(401), "a broken document changes nothing")
}

// An adapter that was told to go by a document does not start without it.
func TestAccessFileThatIsNone(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{"broken.json": `{"version":1}`})
	for _, name := range []string{"missing.json", "broken.json"} {
		command := exec.CommandContext(t.Context(), sidecarProgram, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--access-file", filepath.Join(dir, name), "--", echoServer)
		output, err := command.CombinedOutput()
		if err == nil || !strings.Contains(string(output), "--access-file: the adapter has no access document yet") {
			t.Errorf("%s: %v: %s", name, err, output)
		}
	}
}
