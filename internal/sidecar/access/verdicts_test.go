package access

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/token"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// verifiedBy returns how many tokens the Gate has verified with success.
func verifiedBy(g *Gate) int64 { return g.metrics.verified.Load() }

func TestKnownToken(t *testing.T) {
	corp := startIssuer(t)
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, documentOf(t, corp))
		token := corp.Mint(claimsOf("alice")) // for ten minutes
		first := wantGrant(t, g, token, "corp:alice")
		if again := wantGrant(t, g, token, "corp:alice"); again != first || verifiedBy(g) != 1 {
			t.Errorf("the token was verified %d times", verifiedBy(g))
		}
		if _, refusal := g.Admit(Head{Authorization: []string{"Bearer " + token}, Host: host, Query: "access_token=x"}); refusal == nil || refusal.Status != 400 {
			t.Errorf("a known token, and another in the URL: %+v", refusal)
		}
		if _, refusal := g.Admit(Head{Authorization: []string{"Bearer " + token, "Bearer " + token}, Host: host}); refusal == nil || refusal.Status != 400 {
			t.Errorf("a known token, twice: %+v", refusal)
		}
		renewed := wantGrant(t, g, corp.Mint(claimsOf("alice")), "corp:alice")
		if renewed == first || renewed.Principal != first.Principal || verifiedBy(g) != 2 {
			t.Errorf("another token of alice has principal %q, want %q", renewed.Principal, first.Principal)
		}
		time.Sleep(10*time.Minute + leeway - time.Nanosecond)
		wantGrant(t, g, token, "corp:alice")
		time.Sleep(time.Nanosecond)
		wantRefusal(t, g, token, 401, "expired")
	})
}

// What is known of a token is void with the document that it was found out by.
func TestNewDocumentVoidsVerdicts(t *testing.T) {
	corp := startIssuer(t)
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, documentOf(t, corp))
		good, bad := corp.Mint(claimsOf("alice")), corp.Mint(map[string]any{"sub": "bob", "aud": "https://new.example.com/mcp"})
		before := wantGrant(t, g, good, "corp:alice")
		wantRefusal(t, g, bad, 401, "audience")
		wantRefusal(t, g, bad, 401, "audience")
		take(t, g, documentOf(t, corp, func(a *adapterapi.Access) {
			a.Generation = 2
			a.Issuers[0].Audiences = []string{"https://new.example.com/mcp"}
		}))
		wantRefusal(t, g, good, 401, "audience")
		wantGrant(t, g, bad, "corp:bob")
		take(t, g, documentOf(t, corp, func(a *adapterapi.Access) {
			a.Generation = 3
			a.Blocked = []adapterapi.AccessSubject{{Kind: adapterapi.SubjectUser, Name: "corp:alice"}}
		}))
		if after := wantGrant(t, g, good, "corp:alice"); before.Rights.None() || !after.Rights.None() || after.Generation != 3 {
			t.Errorf("blocked, and granted %+v", after)
		}
		take(t, g, documentOf(t, corp, func(a *adapterapi.Access) { a.Generation, a.Issuers[0].Keys = 4, nil }))
		wantRefusal(t, g, good, 503, "unknown_key")
	})
}

func TestRefusedTokenIsNotVerifiedAgain(t *testing.T) {
	corp := startIssuer(t)
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, documentOf(t, corp))
		early := corp.Mint(map[string]any{"sub": "alice", "aud": resource, "nbf": time.Now().Add(leeway + time.Second).Unix()})
		wantRefusal(t, g, early, 401, "not_yet")
		time.Sleep(refusedFor - time.Nanosecond)
		wantRefusal(t, g, early, 401, "not_yet")
		time.Sleep(time.Nanosecond)
		wantGrant(t, g, early, "corp:alice")
	})
}

func TestVerdictsAreBounded(t *testing.T) {
	digestOfNumber := func(n int) digest { return digestOf(fmt.Sprint("token ", n)) }
	synctest.Test(t, func(t *testing.T) {
		if diff := cmp.Diff([]int{4096, 1024, 10}, []int{mostGrants, mostRefusals, int(refusedFor.Seconds())}); diff != "" {
			t.Fatalf("bounds of security.md, section 10 (-want +got):\n%s", diff)
		}
		var v verdicts
		expires := func(after time.Duration) *Grant {
			return &Grant{Identity: &identity.Identity{Expires: time.Now().Add(after)}}
		}
		for n := range mostGrants {
			v.grant(digestOfNumber(n), expires(time.Minute+time.Duration(n%2)*time.Hour))
		}
		if len(v.grants) != mostGrants {
			t.Fatalf("%d grants, want %d", len(v.grants), mostGrants)
		}
		v.grant(digestOfNumber(mostGrants), expires(time.Hour))
		if len(v.grants) != mostGrants || v.grantOf(digestOfNumber(mostGrants)) == nil {
			t.Errorf("%d grants with one more, want %d", len(v.grants), mostGrants)
		}
		time.Sleep(2 * time.Minute) // half of them expire
		v.grant(digestOfNumber(mostGrants+1), expires(time.Hour))
		if got := len(v.grants); got > mostGrants/2+2 {
			t.Errorf("%d grants are left after half of them expired", got)
		}
		for n := range 2 * mostRefusals {
			v.refuse(digestOfNumber(n), token.Malformed, time.Now())
			v.mayBecomeKnown(digestOfNumber(n), "corp", time.Now())
		}
		if len(v.refused) != mostRefusals || len(v.unknown) != mostRefusals || v.reasonAgainst(digestOfNumber(2*mostRefusals-1), time.Now()) != token.Malformed {
			t.Errorf("%d refusals and %d unknown keys, want %d", len(v.refused), len(v.unknown), mostRefusals)
		}
	})
}

// A token whose key is not known yet is no reason to log in again: the manager fetches the keys meanwhile.
func TestUnknownKey(t *testing.T) {
	corp := startIssuer(t)
	published := keysOf(t, corp)
	corp.Rotate()
	withKeys := func(generation int64, keys []json.RawMessage) *adapterapi.Access {
		return documentOf(t, corp, func(a *adapterapi.Access) { a.Generation, a.Issuers[0].Keys = generation, keys })
	}
	wait := &Refusal{Status: 503, Code: rpc.CodeInternal, Text: "the key of this token is not known yet: try again in 5 seconds", RetryAfter: 5, Reason: "unknown_key"}
	tests := map[string]func(t *testing.T, g *Gate, token string){
		"never known": func(t *testing.T, g *Gate, token string) {
			time.Sleep(unknownFor - time.Nanosecond)
			wantRefusal(t, g, token, 503, "unknown_key")
			time.Sleep(time.Nanosecond)
			if diff := cmp.Diff(invalid(invalidToken, "unknown_key"), wantRefusal(t, g, token, 401, "unknown_key")); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
			wantRefusal(t, g, token, 401, "unknown_key")
			time.Sleep(refusedFor)
			wantRefusal(t, g, token, 401, "unknown_key")
			time.Sleep(reportFor)
			if got := g.State().UnknownKeys; got != nil {
				t.Errorf("the manager is still asked for keys of %q", got)
			}
		},
		"published": func(t *testing.T, g *Gate, token string) {
			time.Sleep(5 * time.Second)
			take(t, g, withKeys(2, keysOf(t, corp)))
			wantGrant(t, g, token, "corp:alice")
			if got := g.State().UnknownKeys; got != nil {
				t.Errorf("the manager is still asked for keys of %q", got)
			}
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t, withKeys(1, published))
				if got := g.State().UnknownKeys; got != nil {
					t.Errorf("unknown keys of %q at first", got)
				}
				token := corp.Mint(claimsOf("alice"))
				if diff := cmp.Diff(wait, wantRefusal(t, g, token, 503, "unknown_key")); diff != "" {
					t.Errorf("refusal (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]string{"corp"}, g.State().UnknownKeys); diff != "" {
					t.Errorf("unknown keys (-want +got):\n%s", diff)
				}
				test(t, g, token)
			})
		})
	}
}

// Strangers must not take the processors from callers whose token is known.
func TestVerificationsAreBounded(t *testing.T) {
	corp := startIssuer(t)
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, documentOf(t, corp))
		known := corp.Mint(claimsOf("known"))
		wantGrant(t, g, known, "corp:known")
		if got, most := cap(g.verifying), max(1, runtime.GOMAXPROCS(0)-1); got != most {
			t.Fatalf("%d tokens at a time, want %d", got, most)
		}
		for range cap(g.verifying) { // as many are being verified
			g.verifying <- struct{}{}
		}
		var mu sync.Mutex
		granted := 0
		for n := range mostWaiting {
			token := corp.Mint(claimsOf(fmt.Sprint("user-", n)))
			go func() {
				if grant, _ := admit(g, token); grant != nil {
					mu.Lock()
					defer mu.Unlock()
					granted++
				}
			}()
		}
		synctest.Wait()
		if got := g.waiting.Load(); got != 64 {
			t.Errorf("%d wait, want 64", got)
		}
		busy := &Refusal{Status: 503, Code: rpc.CodeInternal, Text: "the adapter verifies as many tokens as it can", RetryAfter: 1, Reason: "busy"}
		_, refusal := admit(g, corp.Mint(claimsOf("one-more")))
		if diff := cmp.Diff(busy, refusal); diff != "" {
			t.Errorf("refusal (-want +got):\n%s", diff)
		}
		wantGrant(t, g, known, "corp:known") // needs no turn
		for range cap(g.verifying) {
			<-g.verifying
		}
		synctest.Wait()
		if granted != mostWaiting || g.waiting.Load() != 0 || len(g.verifying) != 0 {
			t.Errorf("%d of %d that waited were granted, %d wait, %d are verified", granted, mostWaiting, g.waiting.Load(), len(g.verifying))
		}
		wantGrant(t, g, corp.Mint(claimsOf("one-more")), "corp:one-more")
	})
}

// A clock that is off shows in the log, once a minute, without the token.
func TestClockIsTold(t *testing.T) {
	corp := startIssuer(t)
	tests := map[token.Reason]struct{ iat, exp time.Duration }{
		token.Expired: {-time.Hour, -90 * time.Second},
		token.NotYet:  {90 * time.Second, time.Hour},
	}
	for reason, test := range tests {
		t.Run(string(reason), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []string
				g := New(Options{Ring: ring, Log: funcr.New(func(_, args string) {
					if !strings.Contains(args, "Took access document") {
						told = append(told, args)
					}
				}, funcr.Options{})})
				take(t, g, documentOf(t, corp))
				refused := func() {
					t.Helper()
					wantRefusal(t, g, corp.Mint(map[string]any{"sub": "alice", "aud": resource, "iat": time.Now().Add(test.iat).Unix(), "exp": time.Now().Add(test.exp).Unix()}), 401, string(reason))
				}
				refused()
				refused()
				if len(told) != 1 || !strings.HasSuffix(told[0], `"issuer"="corp" "reason"="`+string(reason)+`" "offSeconds"="90"`) {
					t.Errorf("the log says %q", told)
				}
				time.Sleep(clockPause + time.Second)
				refused()
				if len(told) != 2 {
					t.Errorf("the log says %q", told)
				}
			})
		})
	}
}

func TestAcceptedTokens(t *testing.T) {
	now := time.Now()
	good := func(lasts time.Duration) *Grant {
		return &Grant{Identity: &identity.Identity{Expires: now.Add(lasts)}}
	}
	before := verdicts{
		grants:  map[digest]*Grant{{1}: good(time.Hour), {2}: good(-time.Second)},
		earlier: map[digest]time.Time{{3}: now.Add(time.Minute), {4}: now},
	}
	after := verdicts{earlier: before.accepted(now)}
	want := map[digest]time.Time{{1}: now.Add(time.Hour), {3}: now.Add(time.Minute)}
	if diff := cmp.Diff(want, after.earlier); diff != "" {
		t.Errorf("accepted tokens (-want +got):\n%s", diff)
	}
	if !after.wasGood(digest{3}, now) || after.wasGood(digest{3}, now.Add(time.Minute)) {
		t.Error("a token was good as long as it lasts")
	}
	if after.refuse(digest{1}, token.Signature, now); after.wasGood(digest{1}, now) {
		t.Error("a token that this document refuses is still good")
	}
	for n := range 2 * mostGrants {
		before.earlier[digest{5, byte(n >> 8), byte(n)}] = now.Add(time.Hour)
	}
	if got := len(before.accepted(now)); got != mostGrants {
		t.Errorf("%d tokens are remembered, want %d", got, mostGrants)
	}
}
