package access

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/token"
	"github.com/slipway-mcp/slipway/test/authserver"
)

// forgery makes tokens that the adapter has not seen before.
type forgery struct {
	corp *authserver.Server
	gate *Gate
	made int
}

func (f *forgery) present(client string) *Refusal {
	f.made++
	_, refusal := f.gate.Admit(Head{Authorization: []string{"Bearer " + f.corp.Mint(claimsOf(fmt.Sprint("user-", f.made)), authserver.ByAttacker())}, Host: host, Client: client})
	return refusal
}

// fill has as many answers wait as may.
func (f *forgery) fill(t *testing.T, client string) {
	t.Helper()
	for n := range freeForgeries + mostDelayed {
		want := time.Duration(0)
		if n >= freeForgeries {
			want = forgeryDelay
		}
		if got := f.present(client); got.Status != 401 || got.Delay != want || got.Close {
			t.Fatalf("forgery %d: %+v, want it to wait for %s", n+1, got, want)
		}
	}
}

// occupy has the gate verify as many tokens as it can. The function ends that.
func (f *forgery) occupy() (leave func()) {
	for range cap(f.gate.verifying) {
		f.gate.verifying <- struct{}{}
	}
	return func() {
		for range cap(f.gate.verifying) {
			f.gate.leave()
		}
	}
}

func TestForgeriesWait(t *testing.T) {
	corp := startIssuer(t)
	synctest.Test(t, func(t *testing.T) {
		f := &forgery{corp: corp, gate: newGate(t, documentOf(t, corp))}
		refused := func(client string, want time.Duration) {
			t.Helper()
			refusal := invalid(invalidToken, token.Signature)
			refusal.Delay = want
			if diff := cmp.Diff(refusal, f.present(client)); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		}
		for range freeForgeries {
			refused(client, 0)
		}
		refused(client, forgeryDelay)
		refused("192.0.2.8", 0) // it has an account of its own
		repeated := corp.Mint(claimsOf("bob"), authserver.ByAttacker())
		for range 2 {
			if got := wantRefusal(t, f.gate, repeated, 401, "signature"); got.Delay != forgeryDelay {
				t.Errorf("a token that is presented again waits for %s", got.Delay)
			}
		}
		for name, other := range map[string]string{
			"malformed": "abc", "audience": corp.Mint(map[string]any{"sub": "bob", "aud": "https://other.example.com/mcp"}),
			"expired": corp.Mint(map[string]any{"sub": "bob", "aud": resource, "iat": time.Now().Add(-time.Hour).Unix(), "exp": time.Now().Add(-time.Minute).Unix()}),
		} {
			if got := wantRefusal(t, f.gate, other, 401, name); got.Delay != 0 {
				t.Errorf("%s: the answer waits for %s", name, got.Delay)
			}
		}
		time.Sleep(forgeryForgotten)
		refused(client, 0)
		refused(client, forgeryDelay)
		time.Sleep(freeForgeries * forgeryForgotten)
		for range freeForgeries {
			refused(client, 0)
		}
		refused(client, forgeryDelay)
	})
}

// A flood delays neither callers whose token is known, nor the first request of others.
func TestFloodOfForgeries(t *testing.T) {
	corp := startIssuer(t)
	tooMany := &Refusal{
		Status: 503, Code: rpc.CodeInternal, RetryAfter: 1, Close: true, Reason: "forgeries",
		Text: "too many tokens that this server does not accept come from your address",
	}
	synctest.Test(t, func(t *testing.T) {
		f := &forgery{corp: corp, gate: newGate(t, documentOf(t, corp))}
		known, elsewhere := corp.Mint(claimsOf("known")), "2001:db8::1"
		wantGrant(t, f.gate, known, "corp:known")
		f.fill(t, elsewhere)
		began := time.Now()
		wantGrant(t, f.gate, corp.Mint(claimsOf("alice")), "corp:alice")
		leave := f.occupy()
		for range 2 { // also from another address of the same network
			if diff := cmp.Diff(tooMany, f.present("2001:db8::2")); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		}
		if _, refusal := f.gate.Admit(Head{Authorization: []string{"Bearer " + known}, Host: host, Client: elsewhere}); refusal != nil {
			t.Errorf("a known token from the address of the flood: %+v", refusal)
		}
		if _, refusal := f.gate.Admit(Head{Host: host, Client: elsewhere}); refusal == nil || refusal.Reason != "missing" {
			t.Errorf("no token from the address of the flood: %+v", refusal)
		}
		fresh := Head{Authorization: []string{"Bearer " + corp.Mint(claimsOf("bob"))}, Host: host, Client: elsewhere}
		if _, refusal := f.gate.Admit(fresh); refusal == nil || refusal.Reason != "forgeries" {
			t.Errorf("a token of the flood has waited for its turn: %+v", refusal)
		}
		leave()
		if _, refusal := f.gate.Admit(fresh); refusal != nil {
			t.Errorf("a good token while no other is verified: %+v", refusal)
		}
		if got := f.present(elsewhere); got.Status != 401 || got.Delay != 0 || !got.Close {
			t.Errorf("a forgery without a place to wait: %+v", got)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("callers waited for %s", waited)
		}
		time.Sleep(forgeryDelay)
		if got := f.present(elsewhere); got.Delay != forgeryDelay { // as few as this leave room
			t.Errorf("after the flood: %+v", got)
		}
	})
}

// The adapter verifies all tokens again when a document takes effect. A flood must not keep it from those that it knew.
func TestFloodAfterChange(t *testing.T) {
	corp := startIssuer(t)
	synctest.Test(t, func(t *testing.T) {
		f := &forgery{corp: corp, gate: newGate(t, documentOf(t, corp))}
		alice := corp.Mint(claimsOf("alice"))
		wantGrant(t, f.gate, alice, "corp:alice")
		for generation := range int64(2) { // she calls nothing between them
			take(t, f.gate, documentOf(t, corp, func(a *adapterapi.Access) { a.Generation = generation + 2 }))
		}
		f.fill(t, client)
		leave := f.occupy()
		wantRefusal(t, f.gate, corp.Mint(claimsOf("bob")), 503, "forgeries")
		done := make(chan *Refusal, 1)
		go func() {
			_, refusal := admit(f.gate, alice)
			done <- refusal
		}()
		synctest.Wait()
		if f.gate.waiting.Load() != 1 {
			t.Error("a token that the last document accepted does not wait for its turn")
		}
		leave()
		if refusal := <-done; refusal != nil {
			t.Errorf("a token that the last document accepted: %+v", refusal)
		}
	})
}

// Two answers cannot both get the last place.
func TestForgeriesThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f forgeries
		var waits, refused atomic.Int64
		for range freeForgeries + mostDelayed + 10 {
			go func() {
				switch delay, ok := f.add(clientOf(client), time.Now()); {
				case !ok:
					refused.Add(1)
				case delay > 0:
					waits.Add(1)
				}
			}()
		}
		synctest.Wait()
		if waits.Load() != mostDelayed || refused.Load() != 10 {
			t.Errorf("%d answers wait, want %d, and %d find no place, want 10", waits.Load(), mostDelayed, refused.Load())
		}
	})
}

func TestForgersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f forgeries
		client := func(n int) netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 32)
		}
		for n := range 2 * mostForgers {
			if _, ok := f.add(client(n), time.Now()); !ok {
				t.Fatalf("no place for client %d", n)
			}
		}
		if len(f.clean) != mostForgers {
			t.Errorf("%d clients are remembered, want %d", len(f.clean), mostForgers)
		}
		time.Sleep(forgeryForgotten)
		f.add(client(0), time.Now())
		f.add(client(2*mostForgers), time.Now())
		if len(f.clean) > 2 {
			t.Errorf("%d clients are remembered after their forgeries were forgotten", len(f.clean))
		}
	})
}

func TestClientOf(t *testing.T) {
	tests := map[string]string{
		"192.0.2.7": "192.0.2.7/32", "::ffff:192.0.2.7": "192.0.2.7/32", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64", "": "invalid Prefix", "somewhere": "invalid Prefix",
	}
	for address, want := range tests {
		if got := clientOf(address).String(); got != want {
			t.Errorf("%q: %s, want %s", address, got, want)
		}
	}
}
