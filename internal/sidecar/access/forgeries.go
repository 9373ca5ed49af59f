package access

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/token"
)

// Bounds of what forged tokens cost the adapter. No issuer signs a token that fails its own key, so clients that
// follow the protocol do not notice them.
const (
	// forgeryDelay is how long the answer to a forged token waits. A client that sends one token after the
	// other waits with it, and leaves the processors to others.
	forgeryDelay = time.Second
	// mostDelayed bounds the answers that wait, because each holds a connection.
	mostDelayed = 128
	// freeForgeries are answered at once: a client may have one broken token, and try it a few times.
	freeForgeries = 8
	// forgeryForgotten is how long it takes until a client has one more of them.
	forgeryForgotten = 10 * time.Second
	// mostForgers bounds the clients that the adapter remembers.
	mostForgers = 1024
)

// forgeries slow down clients that present tokens with wrong signatures. Each client address has an account of its
// own, so that a flood from one does not delay the tokens of another.
type forgeries struct {
	mu      sync.Mutex
	clean   map[netip.Prefix]time.Time // when all forgeries of a client are forgotten
	delayed int                        // answers that wait
}

// clientOf returns the account of a client address. One client may use all IPv6 addresses of its network.
func clientOf(address string) netip.Prefix {
	client, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}
	}
	client = client.Unmap().WithZone("")
	bits := client.BitLen()
	if client.Is6() {
		bits = 64
	}
	network, _ := client.Prefix(bits) // never fails: the address has as many
	return network
}

// isFreeLocked reports whether the next forgery of a client is answered at once.
func (f *forgeries) isFreeLocked(client netip.Prefix, now time.Time) bool {
	return f.clean[client].Sub(now) <= (freeForgeries-1)*forgeryForgotten
}

// isFlood reports whether the next token of a client is likely forged, because the client has presented many forged ones,
// and as many answers wait as may.
func (f *forgeries) isFlood(client netip.Prefix, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.delayed >= mostDelayed && !f.isFreeLocked(client, now)
}

// add counts a forgery of a client, and returns how long the answer has to wait. It returns false if the answer would
// have to wait, and as many do as may.
func (f *forgeries) add(client netip.Prefix, now time.Time) (delay time.Duration, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isFreeLocked(client, now) {
		f.rememberLocked(client, now)
		return 0, true
	}
	if f.delayed >= mostDelayed {
		return 0, false
	}
	f.delayed++
	// A client that does not wait for its answer gets no other place meanwhile.
	time.AfterFunc(forgeryDelay, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.delayed--
	})
	return forgeryDelay, true
}

func (f *forgeries) rememberLocked(client netip.Prefix, now time.Time) {
	clean, known := f.clean[client]
	if !known && len(f.clean) >= mostForgers {
		for other, clean := range f.clean {
			if !clean.After(now) {
				delete(f.clean, other)
			}
		}
		dropOne(f.clean, mostForgers)
	}
	if f.clean == nil {
		f.clean = map[netip.Prefix]time.Time{}
	}
	if clean.Before(now) {
		clean = now
	}
	f.clean[client] = clean.Add(forgeryForgotten)
}

// refuseToken counts a refusal of a token, and has the answer wait if the token is forged.
func (g *Gate) refuseToken(refusal *Refusal, client netip.Prefix) *Refusal {
	if refusal.Reason == string(token.Signature) {
		var ok bool
		refusal.Delay, ok = g.forgeries.add(client, time.Now())
		refusal.Close = !ok
	}
	return g.count(refusal)
}

// mayVerify waits for a turn to verify a token, and returns a refusal if there is none. During a flood of forgeries, a
// token that no document has accepted gets a turn only if one is free: it must not wait before the tokens of others.
func (g *Gate) mayVerify(now *policy, shown digest, client netip.Prefix) *Refusal {
	if at := time.Now(); g.forgeries.isFlood(client, at) && !now.verdicts.wasGood(shown, at) {
		if !g.tryEnter() {
			return tooManyForgeries()
		}
		return nil
	}
	if !g.enter() {
		return &Refusal{Status: http.StatusServiceUnavailable, Code: rpc.CodeInternal, Text: "the adapter verifies as many tokens as it can", RetryAfter: 1, Reason: "busy"}
	}
	return nil
}

// tooManyForgeries answers a request whose token the adapter does not look at.
func tooManyForgeries() *Refusal {
	return &Refusal{
		Status: http.StatusServiceUnavailable, Code: rpc.CodeInternal, RetryAfter: 1, Close: true, Reason: "forgeries",
		Text: "too many tokens that this server does not accept come from your address",
	}
}
