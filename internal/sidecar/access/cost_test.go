package access

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/test/authserver"
)

const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"text":"x"}}}`

// longToken is about as long as that of a ServiceAccount.
func longToken(corp *authserver.Server) string {
	claims := claimsOf("alice")
	claims["padding"] = strings.Repeat("p", 400)
	return corp.Mint(claims)
}

// With a token that is known, a call allocates nothing at the gate.
func TestKnownTokenAllocatesNothing(t *testing.T) {
	corp := startIssuer(t)
	g := newGate(t, documentOf(t, corp))
	token := longToken(corp)
	wantGrant(t, g, token, "corp:alice")
	message := []byte(call)
	envelope, err := rpc.Scan(message)
	if err != nil {
		t.Fatal(err)
	}
	authorization := []string{"Bearer " + token}
	for name, query := range map[string]string{"no query": "", "a query": "session=17&tab=2"} {
		if n := testing.AllocsPerRun(100, func() {
			grant, refusal := g.Admit(Head{Authorization: authorization, Host: host, Query: query})
			if refusal != nil || grant.Rights.Decide(message, &envelope).Denied != rules.Allowed {
				t.Fatal("refused")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

func BenchmarkAdmit(b *testing.B) {
	corp := startIssuer(b)
	g := newGate(b, documentOf(b, corp))
	known := []string{"Bearer " + longToken(corp)}
	wantGrant(b, g, strings.TrimPrefix(known[0], "Bearer "), "corp:alice")
	message := []byte(call)
	envelope, err := rpc.Scan(message)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("known token", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			grant, refusal := g.Admit(Head{Authorization: known, Host: host})
			if refusal != nil || grant.Rights.Decide(message, &envelope).Denied != rules.Allowed {
				b.Fatal("refused")
			}
		}
		b.ReportMetric(float64(len(known[0])), "tokenbytes")
	})
	b.Run("mode None", func(b *testing.B) {
		open := newGate(b, documentOf(b, corp, func(a *adapterapi.Access) { a.Mode, a.Rules = adapterapi.AccessNone, nil }))
		b.ReportAllocs()
		for b.Loop() {
			if _, refusal := open.Admit(Head{Authorization: known, Host: host}); refusal != nil {
				b.Fatal("refused")
			}
		}
	})
	for name, forge := range map[string]authserver.Forge{"new token ES256": authserver.Algorithm("ES256"), "new token RS256": authserver.Algorithm("RS256"), "bad signature": authserver.ByAttacker()} {
		b.Run(name, func(b *testing.B) {
			tokens := make([][]string, 256)
			for i := range tokens {
				tokens[i] = []string{"Bearer " + corp.Mint(claimsOf(fmt.Sprint("user-", i)), forge)}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%len(tokens) == 0 { // all are known by then
					b.StopTimer()
					g = newGate(b, documentOf(b, corp))
					b.StartTimer()
				}
				_, _ = g.Admit(Head{Authorization: tokens[i%len(tokens)], Host: host})
			}
		})
	}
}
