package access

import (
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/access/token"
)

// Bounds of what the adapter remembers of tokens.
const (
	mostGrants   = 4096
	mostRefusals = 1024
	// refusedFor is how long the adapter refuses a token again without looking at it.
	refusedFor = 10 * time.Second
	// unknownFor is how long a token whose key the adapter does not have may become valid: the manager
	// fetches the keys of the issuer meanwhile.
	unknownFor = 30 * time.Second
	// reportFor is how long the adapter tells the manager of an unknown key. The manager asks every ten
	// seconds.
	reportFor = time.Minute
)

// digest stands for a token. The adapter keeps no token.
type digest = [sha256.Size]byte

// verdicts are what the adapter has found out about tokens under one document. All of it is bounded, and
// which tokens it forgets does not matter: it verifies them again.
type verdicts struct {
	mu       sync.RWMutex
	grants   map[digest]*Grant
	refused  map[digest]refused
	unknown  map[digest]time.Time // since when the key of the token is not known
	issuers  map[string]time.Time // when a token of the issuer last had an unknown key
	expiries time.Time            // when expired grants were last dropped
	earlier  map[digest]time.Time // tokens that earlier documents have accepted, and when they expire
}

// refused is a token that the adapter refuses again without looking at it.
type refused struct {
	until  time.Time
	reason token.Reason
}

func (v *verdicts) grantOf(shown digest) *Grant {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.grants[shown]
}

// grant remembers a verified token.
func (v *verdicts) grant(shown digest, grant *Grant) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.grants == nil {
		v.grants = map[digest]*Grant{}
	}
	if len(v.grants) >= mostGrants {
		v.makeRoomLocked()
	}
	v.grants[shown] = grant
	delete(v.unknown, shown)
}

// accepted returns the tokens that this document and earlier ones have accepted, and when they expire. It is what the
// next document may know: it has to verify them again.
func (v *verdicts) accepted(now time.Time) map[digest]time.Time {
	v.mu.RLock()
	defer v.mu.RUnlock()
	accepted := make(map[digest]time.Time, len(v.grants))
	for shown, grant := range v.grants {
		if now.Before(grant.Identity.Expires) {
			accepted[shown] = grant.Identity.Expires
		}
	}
	for shown, expires := range v.earlier {
		if now.Before(expires) && len(accepted) < mostGrants {
			accepted[shown] = expires
		}
	}
	return accepted
}

// wasGood reports whether an earlier document has accepted a token, and this one has not refused it.
func (v *verdicts) wasGood(shown digest, now time.Time) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return now.Before(v.earlier[shown])
}

// makeRoomLocked drops grants of expired tokens, at most once a second, or else any one.
func (v *verdicts) makeRoomLocked() {
	if now := time.Now(); now.Sub(v.expiries) > time.Second {
		v.expiries = now
		for shown, grant := range v.grants {
			if now.After(grant.Identity.Expires) {
				delete(v.grants, shown)
			}
		}
	}
	dropOne(v.grants, mostGrants)
}

// dropOne drops any one entry of a map that has as many as it may.
func dropOne[K comparable, V any](from map[K]V, most int) {
	if len(from) < most {
		return
	}
	for key := range from {
		delete(from, key)
		return
	}
}

// reasonAgainst returns why the adapter refuses a token again; nothing if it has to verify the token.
func (v *verdicts) reasonAgainst(shown digest, now time.Time) token.Reason {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if known := v.refused[shown]; now.Before(known.until) {
		return known.reason
	}
	return ""
}

// refuse remembers a token that does not count.
func (v *verdicts) refuse(shown digest, reason token.Reason, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.refused == nil {
		v.refused = map[digest]refused{}
	}
	dropOne(v.refused, mostRefusals)
	v.refused[shown] = refused{now.Add(refusedFor), reason}
	delete(v.earlier, shown)
}

// mayBecomeKnown remembers a token whose key the adapter does not have. It returns false once the manager
// has had the time to fetch the key.
func (v *verdicts) mayBecomeKnown(shown digest, issuer string, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.unknown == nil {
		v.unknown, v.issuers = map[digest]time.Time{}, map[string]time.Time{}
	}
	v.issuers[issuer] = now // as many as the document has, at most
	since, known := v.unknown[shown]
	if !known {
		dropOne(v.unknown, mostRefusals)
		v.unknown[shown] = now
		return true
	}
	return now.Sub(since) < unknownFor
}

// unknownKeys returns the issuers whose keys the manager should fetch again.
func (v *verdicts) unknownKeys(now time.Time) (issuers []string) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for issuer, last := range v.issuers {
		if now.Sub(last) < reportFor {
			issuers = append(issuers, issuer)
		}
	}
	slices.Sort(issuers)
	return issuers
}
