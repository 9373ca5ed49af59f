//go:build docs

package docs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// readings are pages that a reader goes through one after the other, on a cluster without Slipway.
var readings = [][]string{{"README.md"}, {"docs/quick-start.md", "docs/first-hour.md"}}

// patience is for one command. The first build of Slipway's images is among them.
const patience = 20 * time.Minute

// TestPagesRun does what the pages say, in a copy of this checkout. It replaces Slipway on the cluster, and takes it away at the end.
func TestPagesRun(t *testing.T) {
	if os.Getenv("KUBECONFIG") == "" {
		t.Fatal("there is no KUBECONFIG: run `make test-docs`")
	}
	ctx := t.Context()
	c := newCluster(ctx, t)
	c.empty(ctx, t)
	t.Cleanup(func() { c.empty(context.WithoutCancel(ctx), t) })
	s := openStandIn(ctx, t, c)
	s.pushPublicImages(ctx, t)
	proxy := s.proxy(t)
	for number, reading := range readings {
		t.Run(fmt.Sprintf("reading %d", number+1), func(t *testing.T) {
			c.empty(ctx, t)
			r := newReader(ctx, t, s, fmt.Sprintf("docs-%d", number+1), proxy)
			defer r.leave(t)
			for _, page := range reading {
				if !t.Run(page, func(t *testing.T) { r.read(t, page) }) {
					t.FailNow() // the next page builds on this one
				}
			}
		})
	}
}

// reader is a user with an empty home directory, a copy of the checkout, a namespace, and one terminal for all pages: a page
// may need the PATH that the page before has set.
type reader struct {
	standIn   *standIn
	namespace string
	shell     *Shell
}

func newReader(ctx context.Context, t *testing.T, s *standIn, namespace, proxy string) *reader {
	t.Helper()
	scratch := t.TempDir()
	home, checkout, kubeconfig := filepath.Join(scratch, "home"), filepath.Join(scratch, "slipway"), filepath.Join(scratch, "kubeconfig")
	for _, dir := range []string{home, checkout} {
		must(t, os.Mkdir(dir, 0o755))
	}
	// The files as they are here, also those that are not committed.
	run(ctx, t, "", "bash", "-ec", `git ls-files -z --cached --others --exclude-standard |
		while IFS= read -r -d '' file; do [[ ! -e $file ]] || printf '%s\0' "$file"; done |
		tar --null --files-from=- --create --file=- | tar --extract --directory="$0"`, checkout)
	s.cluster.provideVolume(ctx, t) // and take it away after the namespace, in which a claim has it
	s.cluster.namespace(ctx, t, namespace, kubeconfig)
	trusted := filepath.Join(scratch, "ca.crt")
	must(t, os.WriteFile(trusted, append(systemCertificates(t), s.ca...), 0o600))

	// The machine's own settings, but for what the reader's home would have.
	host, err := os.UserHomeDir()
	must(t, err)
	env := []string{
		"HOME=" + home, "KUBECONFIG=" + kubeconfig, "PATH=" + filepath.Dir(s.cluster.helm) + ":" + os.Getenv("PATH"),
		"HTTPS_PROXY=" + proxy, "https_proxy=" + proxy, "SSL_CERT_FILE=" + trusted, "NODE_EXTRA_CA_CERTS=" + trusted,
		"NPM_CONFIG_USERCONFIG=" + filepath.Join(host, ".npmrc"), "NPM_CONFIG_CACHE=" + filepath.Join(host, ".npm"),
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOENV", "GOPROXY", "GONOSUMDB", "GOSUMDB", "GOFLAGS", "GOTOOLCHAIN"} {
		env = append(env, name+"="+run(ctx, t, "", "go", "env", name))
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name == "NO_PROXY" || name == "no_proxy" || name == "LANG" || strings.HasPrefix(name, "NPM_CONFIG_REGISTRY") || strings.HasPrefix(name, "npm_config_registry") {
			env = append(env, variable)
		}
	}
	shell, err := StartShell(ctx, checkout, t.TempDir(), env)
	must(t, err)
	return &reader{standIn: s, namespace: namespace, shell: shell}
}

// leave closes the terminal.
func (r *reader) leave(t *testing.T) {
	t.Helper()
	if err := r.shell.Close(); err != nil {
		t.Error(err)
	}
}

// systemCertificates are what the machine trusts.
func systemCertificates(t *testing.T) []byte {
	t.Helper()
	for _, file := range []string{os.Getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"} {
		if text, err := os.ReadFile(file); err == nil {
			return append(text, '\n')
		}
	}
	t.Fatal("no certificates of the system are found")
	return nil
}

// read runs the commands of a page.
func (r *reader) read(t *testing.T, name string) {
	page, err := ReadPage(repository, name)
	must(t, err)
	for i := range page.Blocks {
		steps, reason, err := page.Blocks[i].Steps()
		must(t, err)
		if reason != "" {
			t.Logf("%s:%d does not run: %s", name, page.Blocks[i].Line, reason)
		}
		for _, step := range steps {
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			output, err := r.shell.Run(ctx, name, step)
			cancel()
			t.Logf("%s:%d (%s) $ %s\n%s", name, step.Line, time.Since(begin).Round(100*time.Millisecond), step.Script, output)
			if err != nil {
				r.standIn.cluster.dump(t, r.namespace)
				t.Fatal(err)
			}
			r.standIn.leadManager(t.Context(), t)
		}
	}
}
