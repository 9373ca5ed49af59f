// Package caller says who makes a request. It has only the value; package edge makes it.
package caller

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
)

// Principal names the person or program that a request is made for. Two requests of one
// principal have the same one, also after the client has refreshed its token.
type Principal string

const (
	// Nobody is the principal of clients that show no token.
	Nobody Principal = ""
	// SomeToken is the principal of clients whose token does not say whose it is.
	SomeToken Principal = "token"
)

// Caller is on whose behalf a request is made. The zero value is the adapter itself.
type Caller struct {
	Principal     Principal
	Address       string   // of the client, without the port
	Probe         bool     // the manager makes the request
	Authorization []string // what the client shows, as it came

	group string // once it was asked for
}

// Adapter is on whose behalf the adapter makes requests of its own.
func Adapter() *Caller { return &Caller{} }

// IsAdapter says whether the adapter makes the request by itself.
func (c *Caller) IsAdapter() bool { return c.Address == "" && len(c.Authorization) == 0 }

// Group names the callers that may share processes of a server that keeps state: those
// that show the same token, or that have the same address and show none. It is no secret.
func (c *Caller) Group() string {
	switch {
	case c.group != "" || c.IsAdapter():
	case len(c.Authorization) == 0:
		c.group = "address " + c.Address
	default:
		digest := c.digest()
		c.group = "authorization " + hex.EncodeToString(digest[:])
	}
	return c.group
}

func (c *Caller) digest() (digest [sha256.Size]byte) {
	hash := sha256.New()
	for _, value := range c.Authorization {
		_, _ = hash.Write(append([]byte(value), 0)) // which never fails
	}
	hash.Sum(digest[:0])
	return digest
}

// mostTokens is how many tokens of one session are remembered. Clients use one at a time.
const mostTokens = 8

// Owner is the caller that a session belongs to. For all others the session does not
// exist: knowing its id gives no rights.
type Owner struct {
	principal Principal

	mu     sync.Mutex
	tokens [][sha256.Size]byte // that the server accepted, oldest first
}

// NewOwner is for a session that the caller opens.
func NewOwner(c *Caller) *Owner {
	o := &Owner{principal: c.Principal}
	o.Accepted(c)
	return o
}

// Is says whether the caller is the owner, as far as its token says whose it is.
func (o *Owner) Is(c *Caller) bool { return c.Principal == o.principal }

// IsVerified is Is for servers that check tokens themselves: a token that does not say
// whose it is counts only if the server has accepted it in this session.
func (o *Owner) IsVerified(c *Caller) bool {
	if !o.Is(c) || c.Principal != SomeToken {
		return o.Is(c)
	}
	digest := c.digest()
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.tokens, digest)
}

// Accepted notes that the server has accepted the caller's token in this session.
func (o *Owner) Accepted(c *Caller) {
	if c.Principal != SomeToken || o.principal != SomeToken {
		return
	}
	digest := c.digest()
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.tokens, digest) {
		return
	}
	if len(o.tokens) == mostTokens {
		o.tokens = slices.Delete(o.tokens, 0, 1)
	}
	o.tokens = append(o.tokens, digest)
}
