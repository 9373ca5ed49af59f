package mcpprobe

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A process that is known to have no sessions is never asked for one, and what it
// answered in place of that is why it failed.
func TestSkipInitialize(t *testing.T) {
	for name, test := range map[string]struct {
		discover func(call) string
		want     Class // none if the probe works
		code     int
	}{
		"modern": {discover: func(c call) string {
			return c.result(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
		}},
		"does not know it":       {func(c call) string { return c.fail(-32601) }, Rejected, -32601},
		"fails":                  {func(c call) string { return c.fail(-32603) }, Rejected, -32603},
		"L-33 has sessions only": {func(c call) string { return c.result(`{"supportedVersions":["2025-11-25"],"capabilities":{}}`) }, Rejected, 0},
		"answers nothing":        {func(call) string { return "" }, Timeout, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				target := inBubble(script{
					methodDiscover:   test.discover,
					methodInitialize: func(c call) string { asked++; return c.result(scriptedOpening) },
				}.run)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				catalog, err := Probe(ctx, target, Options{SkipInitialize: true})
				switch {
				case test.want != "":
					wantClass(t, err, test.want)
					if got := ours(t, err).Code; got != test.code {
						t.Errorf("got code %d, want %d: %v", got, test.code, err)
					}
				case err != nil:
					t.Fatalf("Probe: %v", err)
				case catalog.Server.ProtocolVersion != versionModern || toolNames(catalog) != "a":
					t.Errorf("got %+v", catalog)
				}
				synctest.Wait()
				if asked != 0 {
					t.Errorf("it was asked to initialize %d times", asked)
				}
			})
		})
	}
}

// There is no other way to open a session of the old transport.
func TestSkipInitializeIsNotForSSE(t *testing.T) {
	sse := mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return realServer() }, nil)
	catalog, err := Probe(withPatience(t), SSE(serve(t, sse), nil), Options{SkipInitialize: true})
	if err != nil {
		t.Fatalf("Probe: %v", err)
	}
	checkRealCatalog(t, catalog, versionLegacy)
}

// An adapter that serves more than the server speaks reports that in a valid catalog, and
// the server's own catalog does not change.
func TestServing(t *testing.T) {
	own := standardOffer().catalog(t)
	digest := own.Digest
	serving, err := own.Serving([]string{versionModern, versionLegacy})
	if err != nil {
		t.Fatal(err)
	}
	if serving.Digest == digest || own.Digest != digest || own.Server.ProtocolVersions != nil {
		t.Errorf("digests: %s of %s, %v", serving.Digest, own.Digest, own.Server.ProtocolVersions)
	}
	data, err := json.Marshal(serving)
	if err != nil {
		t.Fatal(err)
	}
	read, err := DecodeCatalog(data, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{versionModern, versionLegacy}, read.Server.ProtocolVersions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	back, err := serving.Serving(nil)
	if err != nil || back.Digest != digest {
		t.Errorf("got %s, %v, want the digest of the same catalog, %s", back.Digest, err, digest)
	}
}

// S-07, L-27: a process that refuses to initialize and ends has refused.
func TestProcessThatRefusesAndEnds(t *testing.T) {
	for range 50 { // the end and the answer are seen by different goroutines
		target := inBubble(func(stdin io.ReadCloser, stdout io.WriteCloser) {
			script{methodInitialize: func(c call) string {
				_, _ = io.WriteString(stdout, c.fail(-32022)+"\n")
				_ = stdin.Close()
				return ""
			}}.run(stdin, stdout)
		})
		_, err := Connect(withPatience(t), target, Options{SkipDiscover: true})
		wantClass(t, err, Rejected)
		if got := ours(t, err).Code; got != -32022 {
			t.Fatalf("got code %d: %v", got, err)
		}
	}
}
