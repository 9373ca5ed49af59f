// Package caller identifies the client that makes a request. Package edge makes the values.
package caller

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"sync"

	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// Principal names the person or program that a client makes a request for. It stays the same when the
// client refreshes its token.
type Principal string

const (
	// Anonymous is the principal of clients without a token.
	Anonymous Principal = ""
	// SomeToken is the principal of clients whose token names no owner.
	SomeToken Principal = "token"
)

// Caller identifies the client that makes a request. A nil *Caller is the adapter itself.
type Caller struct {
	Principal     Principal
	Address       string   // of the client, without the port
	Probe         bool     // the manager makes the request
	Authorization []string // the client's headers, unchanged; none once the adapter has verified the token
	// Grant is what the access document says of the caller. Nil allows everything: the adapter itself
	// needs no rule.
	Grant *access.Grant

	// Trace are the client's headers for tracing, unchanged, by their canonical names. It is nil if
	// there are none.
	Trace map[string][]string

	// Accepted is called when a server that checks tokens itself has accepted a request of this
	// caller. It may be nil.
	Accepted func()

	group string // the result of Group, once it was called
}

// Clone returns a copy that outlives the request. It is nil for the adapter itself.
func (c *Caller) Clone() *Caller {
	if c == nil {
		return nil
	}
	clone := *c
	return &clone
}

// Lasting is Clone without the values of one request. It is for requests that the adapter makes on
// behalf of the caller later.
func (c *Caller) Lasting() *Caller {
	clone := c.Clone()
	if clone != nil {
		clone.Trace = nil
	}
	return clone
}

// Identity returns the verified caller; nil if the adapter has not verified one.
func (c *Caller) Identity() *identity.Identity {
	if c == nil || c.Grant == nil {
		return nil
	}
	return c.Grant.Identity
}

// Rights returns what the caller may do; nil allows everything.
func (c *Caller) Rights() *rules.Rights {
	if c == nil || c.Grant == nil {
		return nil
	}
	return c.Grant.Rights
}

// PrincipalDigest stands for the principal, and for whether the adapter has verified it: a caller that only has the same name is
// another one.
func (c *Caller) PrincipalDigest() [sha256.Size]byte {
	kind := "unverified\x00"
	if c.Identity() != nil {
		kind = "verified\x00"
	}
	return sha256.Sum256([]byte(kind + string(c.Principal)))
}

// Group names the callers that may share processes of a server that keeps state: those with the same
// verified principal, or with the same token, or with the same address and no token. It holds no secret.
func (c *Caller) Group() string {
	switch {
	case c == nil:
		return ""
	case c.group != "":
	case c.Identity() != nil:
		c.group = string(c.Principal)
	case len(c.Authorization) == 0:
		c.group = "address " + c.Address
	default:
		digest := c.digest()
		c.group = "authorization " + hex.EncodeToString(digest[:])
	}
	return c.group
}

// ShareKey names the client whose share of the adapter's capacity a session counts for. It is the
// verified principal, or else the address, or for IPv6 the network, because one client may use all
// addresses of its network. It is empty for the adapter itself.
func (c *Caller) ShareKey() string {
	switch {
	case c == nil:
		return ""
	case c.Identity() != nil:
		return string(c.Principal)
	}
	return ShareOf(c.Address)
}

// ShareOf returns the ShareKey of clients with the address.
func ShareOf(client string) string {
	address, err := netip.ParseAddr(client)
	if err != nil || address.Unmap().Is4() {
		return client
	}
	network, _ := address.WithZone("").Prefix(64) // never fails for IPv6
	return network.String()
}

func (c *Caller) digest() (digest [sha256.Size]byte) {
	hash := sha256.New()
	for _, value := range c.Authorization {
		_, _ = hash.Write(append([]byte(value), 0)) // never fails
	}
	hash.Sum(digest[:0])
	return digest
}

// mostTokens bounds the tokens that an Owner knows. Clients use one at a time.
const mostTokens = 8

// Owner is the caller that a session belongs to. All other callers get the answer for an unknown
// session, even if they know its id.
type Owner struct {
	principal Principal
	identity  *identity.Identity // nil unless the adapter has verified one
	address   string             // that the session was opened from

	mu     sync.Mutex
	tokens [][sha256.Size]byte // digests of those that the server has accepted, oldest first
}

// NewOwner returns the owner of a session that the caller opens.
func NewOwner(c *Caller) *Owner {
	o := FormerOwner(c)
	o.Accepted(c)
	return o
}

// FormerOwner returns the owner of a session that the caller opened earlier, as far as its principal shows. The server has
// not accepted the caller's token yet.
func FormerOwner(c *Caller) *Owner {
	return &Owner{principal: c.Principal, identity: c.Identity(), address: c.Address}
}

// Identity returns the verified caller that opened the session; nil if the adapter has not verified one.
func (o *Owner) Identity() *identity.Identity {
	if o == nil {
		return nil
	}
	return o.identity
}

// Address returns where the session was opened from.
func (o *Owner) Address() string {
	if o == nil {
		return ""
	}
	return o.address
}

// Is reports whether the caller has the owner's principal. A nil Owner matches no caller.
func (o *Owner) Is(c *Caller) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return c.Principal == o.principal
}

// IsAnonymous reports whether a client opened the session without a token, and no caller has claimed it
// since.
func (o *Owner) IsAnonymous() bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.principal == Anonymous
}

// Claim makes the caller the owner of a session that a client opened without a token. It is for a
// server that asks for a token later, and has accepted that of the caller.
func (o *Owner) Claim(c *Caller) {
	o.mu.Lock()
	if o.principal == Anonymous {
		o.principal = c.Principal
	}
	o.mu.Unlock()
	o.Accepted(c)
}

// IsVerified is Is for servers that check tokens themselves. A token that names no owner counts only if
// the server has accepted it in this session. The adapter does not verify a JWT here either.
func (o *Owner) IsVerified(c *Caller) bool {
	if is := o.Is(c); !is || c.Principal != SomeToken {
		return is
	}
	digest := c.digest()
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.tokens, digest)
}

// Accepted records that the server has accepted the caller's token in this session.
func (o *Owner) Accepted(c *Caller) {
	if c.Principal != SomeToken {
		return
	}
	digest := c.digest()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.principal != SomeToken || slices.Contains(o.tokens, digest) {
		return
	}
	if len(o.tokens) == mostTokens {
		o.tokens = slices.Delete(o.tokens, 0, 1)
	}
	o.tokens = append(o.tokens, digest)
}
