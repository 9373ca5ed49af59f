//go:build conformance

package conformance

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/test/authserver"
)

// The authorization server that tests log in at is a good one: it passes what the suite has for those,
// without a warning.
func TestAuthorizationServer(t *testing.T) {
	suite, err := Install(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for method, secret := range map[string]string{"none": "", "client_secret_post": "hush & more", "client_secret_basic": "hush & more"} {
		t.Run(method, func(t *testing.T) {
			port := freePort(t)
			callback := "http://127.0.0.1:" + port + "/callback"
			server := authserver.Start(t, authserver.Options{
				Path:    "/tenant",
				Clients: []authserver.Client{{ID: "suite", Secret: secret, RedirectURIs: []string{callback}}},
				// The suite would send no secret to a server that says that it needs none.
				Metadata: func(metadata map[string]any) { metadata["token_endpoint_auth_methods_supported"] = []string{method} },
			})
			args := []string{"--client-id", "suite", "--port", port, "--resource", "https://echo.example.com/mcp"}
			if secret != "" {
				args = append(args, "--client-secret", secret)
			}
			got := authorize(t, suite, server, args...)
			want := map[string]string{"authorization-server-metadata": "SUCCESS", "authorization-server-metadata-cimd": "SUCCESS", "authorization-code-grant": "SUCCESS"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("checks (-want +got):\n%s", diff)
			}
		})
	}
}

// authorize runs the suite, is the user with the browser, and returns the status of every check.
func authorize(t *testing.T, suite Suite, server *authserver.Server, args ...string) (checks map[string]string) {
	t.Helper()
	dir := t.TempDir()
	authority, results := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "results")
	if err := os.WriteFile(authority, server.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), suite.Node, append([]string{suite.Script, "authorization", "--url", server.Issuer, "-o", results}, args...)...)
	command.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+authority)
	command.Stderr = t.Output()
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var page string
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		t.Log(lines.Text())
		if strings.HasPrefix(lines.Text(), server.Issuer+"/authorize?") {
			page = lines.Text()
		}
		if strings.HasPrefix(lines.Text(), "Callback server started") {
			visit(t, server, page)
		}
	}
	if err := command.Wait(); err != nil {
		t.Errorf("run suite: %v", err)
	}
	return statuses(t, results)
}

// visit follows the redirect to the suite.
func visit(t *testing.T, server *authserver.Server, page string) {
	t.Helper()
	browser := server.HTTPClient()
	browser.CheckRedirect = nil
	response, err := browser.Get(page)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("the suite answers the browser with %s", response.Status)
	}
}

func statuses(t *testing.T, results string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(results, "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var checks []struct{ ID, Status string }
		if err := json.Unmarshal(text, &checks); err != nil {
			t.Fatal(err)
		}
		for _, check := range checks {
			found[check.ID] = check.Status
		}
	}
	return found
}

// freePort returns a port that is free now. The suite does not accept port 0.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}
