// Package caller says who makes a request. It has only the value; package edge makes it.
package caller

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
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

// Caller identifies the client that makes a request. A nil *Caller is the adapter itself.
type Caller struct {
	Principal     Principal
	Address       string   // of the client, without the port
	Probe         bool     // the manager makes the request
	Authorization []string // what the client shows, as it came

	// Trace are the headers by which the request belongs to a trace, as they came, by their
	// canonical names. It is nil if there are none.
	Trace map[string][]string

	// Accepted is called when a server that checks tokens itself has let a request of this
	// caller in. It may be nil.
	Accepted func()

	group string // once it was asked for
}

// Clone returns a copy that outlives the request. It is nil for the adapter itself.
func (c *Caller) Clone() *Caller {
	if c == nil {
		return nil
	}
	clone := *c
	return &clone
}

// Lasting is Clone without what is about one request: it is for requests that the adapter
// makes on behalf of the caller later.
func (c *Caller) Lasting() *Caller {
	clone := c.Clone()
	if clone != nil {
		clone.Trace = nil
	}
	return clone
}

// Group names the callers that may share processes of a server that keeps state: those
// that show the same token, or that have the same address and show none. It is no secret.
func (c *Caller) Group() string {
	switch {
	case c == nil:
		return ""
	case c.group != "":
	case len(c.Authorization) == 0:
		c.group = "address " + c.Address
	default:
		digest := c.digest()
		c.group = "authorization " + hex.EncodeToString(digest[:])
	}
	return c.group
}

// ShareKey names the client that shares of what there is are counted for: its address, or
// for IPv6 the network, which one client may have all of. The adapter itself has none.
func (c *Caller) ShareKey() string {
	if c == nil {
		return ""
	}
	return ShareOf(c.Address)
}

// ShareOf is the ShareKey of clients with the address.
func ShareOf(client string) string {
	address, err := netip.ParseAddr(client)
	if err != nil || address.Unmap().Is4() {
		return client
	}
	network, err := address.WithZone("").Prefix(64)
	if err != nil {
		return client
	}
	return network.String()
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

// Is reports whether the caller has the owner's principal. A nil Owner matches no caller.
func (o *Owner) Is(c *Caller) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return c.Principal == o.principal
}

// IsNobody reports whether the client opened the session without a token, and no caller
// has claimed it since.
func (o *Owner) IsNobody() bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.principal == Nobody
}

// Claim makes the caller the owner of a session that a client opened without a token. The
// server has accepted a token that it asked for later.
func (o *Owner) Claim(c *Caller) {
	o.mu.Lock()
	if o.principal == Nobody {
		o.principal = c.Principal
	}
	o.mu.Unlock()
	o.Accepted(c)
}

// IsVerified is Is for servers that check tokens themselves: a token that does not say
// whose it is counts only if the server has accepted it in this session. What a JWT says
// is not verified here either.
func (o *Owner) IsVerified(c *Caller) bool {
	if is := o.Is(c); !is || c.Principal != SomeToken {
		return is
	}
	digest := c.digest()
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.tokens, digest)
}

// Accepted notes that the server has accepted the caller's token in this session.
func (o *Owner) Accepted(c *Caller) {
	if c.Principal != SomeToken || !o.Is(c) {
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
