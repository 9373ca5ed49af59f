// Package access puts the access document of a server into effect: it says who a caller is, and what the
// caller may do.
package access

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/token"
	"github.com/slipway-mcp/slipway/internal/sidecar/document"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// Options configure a Gate.
type Options struct {
	// File is the mounted document; may be empty.
	File string
	// Ring returns the keys that sign documents. Nil means that documents are not signed: the user of
	// an adapter without a manager writes them.
	Ring func() adapterapi.Keyring
	// Required refuses all requests until there is a document. Without it, everything is allowed until
	// then.
	Required bool
	Log      logr.Logger
}

// Gate knows the access document in effect. Any goroutine may call its methods at any time.
type Gate struct {
	options Options
	mount   document.Mount
	current atomic.Pointer[policy] // nil before the first document
	arrived chan struct{}          // closed when it is there
	// ungranted is the grant of all callers while there is no document, and none is required.
	ungranted *Grant

	taking  sync.Mutex // held while a document is taken
	streams streams
	changed func()

	verifying chan struct{} // bounds how many tokens are verified at a time
	waiting   atomic.Int64  // requests that wait for that
	forgeries forgeries

	metrics Metrics
}

// policy is a document in effect. What is known of tokens belongs to one document, because another one may
// have other keys and rules.
type policy struct {
	access     adapterapi.Access
	digest     string
	rules      *rules.Policy
	tokens     *token.Verifier // nil unless the mode is Required
	anonymous  *Grant
	challenges []challenge // by resource
	verdicts   verdicts
	replaced   chan struct{} // closed when another document has taken effect
}

// New returns a Gate. It reads the mounted document, if there is one.
func New(options Options) *Gate {
	g := &Gate{options: options, arrived: make(chan struct{}), verifying: make(chan struct{}, verifications())}
	g.ungranted = &Grant{gate: g}
	g.mount = document.Mount{Path: options.File, Name: "access document", Take: func(text []byte) error { return g.take(text, "mounted") }, Log: options.Log}
	g.mount.Reload()
	return g
}

// OnChange sets what is called after a document has taken effect. It must be called before Run and Take.
func (g *Gate) OnChange(changed func()) { g.changed = changed }

// Run reads the mounted document again and again, until the context ends.
func (g *Gate) Run(ctx context.Context) { g.mount.Run(ctx) }

// Take puts a document into effect that the manager has pushed. One that is invalid, not signed, or older
// than the one in effect changes nothing.
func (g *Gate) Take(text []byte) error { return g.take(text, "pushed") }

func (g *Gate) take(text []byte, how string) error {
	g.taking.Lock()
	defer g.taking.Unlock()
	next, err := g.compile(text)
	if err != nil {
		return err
	}
	now := g.current.Load()
	switch {
	case now == nil:
	case next.digest == now.digest:
		return nil
	// Another document of the same generation says the same: the manager has signed it with another key.
	// Users of an adapter without a manager change the document, and need not count.
	case g.options.Ring != nil && next.access.Generation < now.access.Generation:
		return fmt.Errorf("take access document: %w: generation %d after %d", document.ErrOlder, next.access.Generation, now.access.Generation)
	}
	if now != nil {
		next.verdicts.earlier = now.verdicts.accepted(time.Now())
	}
	g.current.Store(next)
	if now == nil {
		close(g.arrived)
	} else {
		close(now.replaced)
	}
	g.streams.recheck(g)
	if g.changed != nil {
		g.changed()
	}
	g.options.Log.Info("Took access document", "generation", next.access.Generation, "how", how, "mode", string(next.access.Mode),
		"issuers", len(next.access.Issuers), "rules", len(next.access.Rules), "blocked", len(next.access.Blocked), "hidden", len(next.access.Hidden))
	return nil
}

// compile reads a document and everything that follows from it.
func (g *Gate) compile(text []byte) (*policy, error) {
	var access adapterapi.Access
	var err error
	if g.options.Ring != nil {
		access, err = g.options.Ring().OpenAccess(text)
	} else {
		access, err = adapterapi.DecodeAccess(text)
	}
	if err != nil {
		return nil, err
	}
	next := &policy{access: access, digest: adapterapi.SettingsDigest(text), challenges: challengesOf(&access), replaced: make(chan struct{})}
	if next.rules, err = rules.Compile(&access); err != nil {
		return nil, fmt.Errorf("compile access document: %w", err)
	}
	if access.Mode == adapterapi.AccessRequired {
		if next.tokens, err = token.New(token.Options{Issuers: access.Issuers, ScopeImplies: access.ScopeImplies}); err != nil {
			return nil, fmt.Errorf("compile access document: %w", err)
		}
	}
	next.anonymous = g.grant(next, nil)
	return next, nil
}

// ErrNoDocument says why an adapter serves no client yet.
var ErrNoDocument = errors.New("the adapter has no access document yet, so it cannot authorize callers")

// Ready returns ErrNoDocument as long as the adapter must not serve clients.
func (g *Gate) Ready() error {
	if g.options.Required && g.current.Load() == nil {
		return ErrNoDocument
	}
	return nil
}

// Arrived returns a channel that closes when the first document takes effect.
func (g *Gate) Arrived() <-chan struct{} { return g.arrived }

// State returns which document is in effect.
func (g *Gate) State() adapterapi.AccessState {
	state := adapterapi.AccessState{Version: adapterapi.AccessVersion}
	if now := g.current.Load(); now != nil {
		state.Generation, state.Digest = now.access.Generation, now.digest
		state.UnknownKeys = now.verdicts.unknownKeys(time.Now())
	}
	return state
}

// Verifies reports whether callers need a token.
func (g *Gate) Verifies() bool {
	now := g.current.Load()
	return now != nil && now.access.Mode == adapterapi.AccessRequired
}

// Document returns the document in effect, which the caller must not change; nil if there is none.
func (g *Gate) Document() *adapterapi.Access {
	if now := g.current.Load(); now != nil {
		return &now.access
	}
	return nil
}

// Keeps reports whether a caller that began something earlier, such as a session, may go on with it. A nil
// identity is a caller without a verified token.
func (g *Gate) Keeps(who *identity.Identity) bool {
	now := g.current.Load()
	if now == nil {
		return true
	}
	if (who != nil) != (now.access.Mode == adapterapi.AccessRequired) {
		return false // auth was turned on or off since then
	}
	return !now.rules.For(who).None()
}
