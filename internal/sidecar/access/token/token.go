// Package token verifies JWT access tokens offline, with the keys of an access document.
package token

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// MaxBytes is the longest token that the adapter looks at.
const MaxBytes = 16 << 10

// Options configure a Verifier.
type Options struct {
	Issuers []adapterapi.AccessIssuer
	// ScopeImplies has the scopes that a broader scope includes, by the broader scope.
	ScopeImplies map[string][]string
}

// Verifier verifies tokens of several issuers. It is immutable.
type Verifier struct {
	issuers      map[string]*issuer // by the claim iss
	scopeImplies map[string][]string
}

// issuer is what a token of one issuer is checked by.
type issuer struct {
	name        string
	audiences   map[string]bool // canonical
	maxLifetime time.Duration
	claims      adapterapi.AccessClaims
	keys        keys
}

// New returns a Verifier. It skips keys that the adapter cannot use, such as RSA keys of less than 2048
// bits. An issuer without usable keys is no error, because its keys may come: its tokens have unknown
// keys. New also skips issuers that it cannot tell apart, and returns an error only if it would have to
// skip all of them.
func New(options Options) (*Verifier, error) {
	v := &Verifier{issuers: map[string]*issuer{}, scopeImplies: options.ScopeImplies}
	var problems []error
	for i := range options.Issuers {
		candidate := &options.Issuers[i]
		if err := checkIssuer(options.Issuers, i); err != nil {
			problems = append(problems, fmt.Errorf("issuers[%d]: %w", i, err))
			continue
		}
		v.issuers[candidate.Issuer] = newIssuer(candidate)
	}
	if len(problems) > 0 && len(v.issuers) == 0 {
		return nil, fmt.Errorf("make verifier of tokens: %w", errors.Join(problems...))
	}
	return v, nil
}

// checkIssuer finds issuers whose tokens could pass for those of another.
func checkIssuer(all []adapterapi.AccessIssuer, i int) error {
	candidate := &all[i]
	switch {
	case candidate.Issuer == "" || candidate.Name == "":
		return errors.New("name or issuer is empty")
	// The prefix system: has users and groups of the cluster, and one with a colon could end in the
	// middle of another issuer's user.
	case candidate.Name == "system" || strings.Contains(candidate.Name, ":"):
		return errors.New("the name is reserved, or has a colon")
	}
	for j := range all {
		if i != j && (all[j].Issuer == candidate.Issuer || all[j].Name == candidate.Name) {
			return fmt.Errorf("issuers[%d] has the same name or issuer", j)
		}
	}
	return nil
}

func newIssuer(from *adapterapi.AccessIssuer) *issuer {
	i := &issuer{
		name:      from.Name,
		audiences: make(map[string]bool, len(from.Audiences)),
		// More seconds than a Duration holds would become a short time, or a negative one.
		maxLifetime: time.Duration(min(from.MaxLifetimeSeconds, math.MaxInt64/int64(time.Second))) * time.Second,
		claims:      from.Claims,
		keys:        readKeys(from.Keys),
	}
	for _, audience := range from.Audiences {
		i.audiences[canonicalAudience(audience)] = true
	}
	return i
}

// Verify returns the caller that the token names. The error is always an *Error.
func (v *Verifier) Verify(text string, now time.Time) (*identity.Identity, error) {
	token, reason := parse(text)
	if reason != "" {
		return nil, &Error{Reason: reason}
	}
	iss, _ := token.claims["iss"].(string)
	issuer, known := v.issuers[iss]
	if !known {
		return nil, &Error{Reason: UnknownIssuer}
	}
	if reason := issuer.keys.verify(token); reason != "" {
		return nil, &Error{Reason: reason, Issuer: issuer.name}
	}
	// The adapter reads only iss and the header before this line, so only an issuer can make the log
	// report a wrong clock.
	expires, refusal := issuer.check(token.claims, now)
	if refusal != nil {
		refusal.Issuer = issuer.name
		return nil, refusal
	}
	caller, valid := issuer.caller(token.claims)
	if !valid {
		return nil, &Error{Reason: Claims, Issuer: issuer.name}
	}
	caller.Expires = expires
	caller.Scopes = v.withImplied(caller.Scopes)
	return caller, nil
}

// Reason is why a token does not count. It is a label of metrics and part of the log. Clients do not
// learn it.
type Reason string

// The reasons.
const (
	Malformed     Reason = "malformed"      // it is no JWT, is encrypted, nested, or has the header crit
	Algorithm     Reason = "algorithm"      // it is not signed, or by an algorithm that does not count
	UnknownIssuer Reason = "unknown_issuer" // no issuer has this iss
	UnknownKey    Reason = "unknown_key"    // the issuer has no key with this kid
	Signature     Reason = "signature"
	Expired       Reason = "expired"
	NotYet        Reason = "not_yet"  // nbf or iat lies in the future
	Audience      Reason = "audience" // it is for another server
	Lifetime      Reason = "lifetime" // it is valid for longer than the issuer's tokens may be
	Claims        Reason = "claims"   // a claim is missing, or is of the wrong type
	Bound         Reason = "bound"    // cnf: it is no bearer token
)

// Error says why a token does not count. It holds nothing of the token.
type Error struct {
	Reason Reason
	Issuer string        // its name in the document; empty if it is not known
	Off    time.Duration // with Expired and NotYet: by how much
}

func (e *Error) Error() string { return "verify token: " + string(e.Reason) }
