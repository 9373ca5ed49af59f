//go:build conformance

package flows

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

// node returns a client that is a script of this package. Its options are for steps.mjs.
func node(modules, script string, options map[string]string) func(t *testing.T, at guarded) report {
	return func(t *testing.T, at guarded) (got report) {
		t.Helper()
		authority := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(authority, at.issuer.CA, 0o600); err != nil {
			t.Fatal(err)
		}
		// The SDKs refresh a token when it is refused, so the script puts this one in the place of a good one.
		earlier := time.Now().Add(-time.Hour)
		expired := at.issuer.Mint(map[string]any{"sub": "alice", "aud": at.url, "scope": use, "iat": earlier.Unix(), "exp": earlier.Add(time.Minute).Unix()})
		given := map[string]string{
			"modules": modules, "url": at.url, "revision": at.revision, "callback": callback, "expired": expired,
			"who": at.who, "more": at.more, "never": at.never,
		}
		maps.Copy(given, options)
		input, err := json.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
		defer cancel()
		command := exec.CommandContext(ctx, "node", script, string(input))
		command.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+authority)
		out, err := command.Output()
		if exit, is := errors.AsType[*exec.ExitError](err); is {
			t.Fatalf("run %s: %v: %s", script, err, exit.Stderr)
		}
		if err != nil {
			t.Fatalf("run %s: %v", script, err)
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s said %q: %v", script, out, err)
		}
		return got
	}
}
