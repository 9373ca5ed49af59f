package access

import (
	"crypto/sha256"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/token"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// Grant is what a document says of a caller. It is immutable, and shared by all requests with the same
// token.
type Grant struct {
	Identity *identity.Identity // nil for a caller without a verified token
	// Principal is how the adapter tells verified callers apart. It is the User with a prefix that no
	// caller without a verified token can have. It is empty without an Identity.
	Principal  string
	Rights     *rules.Rights // nil allows everything
	Generation int64         // of the document; 0 if there is none

	gate   *Gate   // nil if no document changes the grant
	policy *policy // nil if there is no document
}

// grant returns what a document says of a caller.
func (g *Gate) grant(by *policy, who *identity.Identity) *Grant {
	grant := &Grant{Identity: who, Rights: by.rules.For(who), Generation: by.access.Generation, gate: g, policy: by}
	if who != nil {
		grant.Principal = "user " + who.User
	}
	return grant
}

// Now returns what the document in effect says of the caller. It is for what lasts longer than a request. The
// result is the grant itself, unless another document has taken effect since it was made.
func (g *Grant) Now() *Grant {
	if g == nil || g.gate == nil {
		return g
	}
	current := g.gate.current.Load()
	if current == g.policy {
		return g
	}
	return g.gate.grant(current, g.Identity)
}

// IsOfDocument reports whether another grant is by the same document.
func (g *Grant) IsOfDocument(of *Grant) bool { return of != nil && g.policy == of.policy }

// Replaced returns a channel that is closed when another document has taken effect. It is nil if no document
// changes the grant.
func (g *Grant) Replaced() <-chan struct{} {
	if g == nil || g.policy == nil {
		return nil
	}
	return g.policy.replaced
}

// IsOutdated reports whether another document has taken effect since the grant was made, or the token has
// expired. A client may send the body of a request long after its headers.
func (g *Gate) IsOutdated(grant *Grant) bool {
	return grant.policy != g.current.Load() || grant.Identity != nil && time.Since(grant.Identity.Expires) >= leeway
}

// Probe returns the grant of the manager's probe.
func (g *Gate) Probe() *Grant { return &Grant{Rights: rules.Probe(), Generation: g.generation()} }

// Refusal is an answer to a request that the Gate does not let pass.
type Refusal struct {
	Status     int
	Code       int // of JSON-RPC
	Text       string
	Challenge  string // WWW-Authenticate; may be empty
	RetryAfter int    // seconds; 0 for none
	Reason     string // for metrics and audits
	// Delay is how long the answer has to wait. It may come earlier if the client goes away.
	Delay time.Duration
	// Close closes the connection after the answer.
	Close bool
}

// Head is what a Gate looks at of a request.
type Head struct {
	Authorization []string // all headers of this name
	Host          string
	Query         string
	Client        string // its address, without the port
}

// leeway is how far the clocks of issuer and adapter may be apart. It is that of package token.
const leeway = token.Leeway

// Admit says who makes a request. If it returns a Refusal, the request must not pass.
func (g *Gate) Admit(head Head) (*Grant, *Refusal) {
	now := g.current.Load()
	switch {
	case now == nil && g.options.Required:
		return nil, g.count(&Refusal{Status: http.StatusServiceUnavailable, Code: rpc.CodeInternal, Text: ErrNoDocument.Error(), RetryAfter: retryAfter, Reason: "no_document"})
	case now == nil:
		return g.ungranted, nil
	case now.access.Mode != adapterapi.AccessRequired:
		return now.anonymous, nil
	}
	if grant := now.known(head.Authorization, head.Query); grant != nil {
		return grant, nil
	}
	return g.admitUnknown(now, &head)
}

// AdmitVouched is Admit for a caller whose token another pod of the server has verified. The document of this pod
// says what the caller may do. While that document asks for no tokens, the caller is like any other.
func (g *Gate) AdmitVouched(who *identity.Identity, head Head) (*Grant, *Refusal) {
	head.Authorization = nil
	now := g.current.Load()
	if now == nil || now.access.Mode != adapterapi.AccessRequired || time.Since(who.Expires) >= leeway {
		return g.Admit(head)
	}
	return g.grant(now, who), nil
}

// retryAfter is how long a client waits before it tries again with a token whose key is not known yet.
const retryAfter = 5

// known returns the grant of a token that was verified before. It is what nearly every request needs.
func (p *policy) known(authorization []string, query string) *Grant {
	if len(authorization) != 1 || query != "" && namesToken(query) {
		return nil
	}
	grant := p.verdicts.grantOf(digestOf(authorization[0]))
	if grant == nil || time.Since(grant.Identity.Expires) >= leeway {
		return nil
	}
	return grant
}

// digestOf hashes an Authorization header without a copy on the heap, unless the header is long.
func digestOf(header string) [sha256.Size]byte {
	var buffer [2 << 10]byte
	return sha256.Sum256(append(buffer[:0], header...))
}

// namesToken reports whether a query string has a token, however it is spelled. Tokens in URLs end up in
// logs, so none counts.
func namesToken(query string) bool {
	for pair := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if strings.EqualFold(name, "access_token") {
			return true
		}
	}
	return false
}

// admitUnknown verifies a token.
func (g *Gate) admitUnknown(now *policy, head *Head) (*Grant, *Refusal) {
	challenge := now.challengeFor(head.Host)
	if namesToken(head.Query) {
		return nil, g.count(challenge.malformed("a token must be in the header Authorization, and not in the URL"))
	}
	shown, problem := token.Bearer(head.Authorization)
	switch problem {
	case token.None:
		return nil, g.count(challenge.missing(now.access.Scopes))
	case token.Invalid:
		return nil, g.count(challenge.malformed("the header Authorization must be one bearer token of at most " + strconv.Itoa(token.MaxBytes) + " bytes"))
	}
	digest, client := digestOf(head.Authorization[0]), clientOf(head.Client)
	if reason := now.verdicts.reasonAgainst(digest, time.Now()); reason != "" {
		return nil, g.refuseToken(challenge.invalid(now.access.Scopes, string(reason)), client)
	}
	if refusal := g.mayVerify(now, digest, client); refusal != nil {
		return nil, g.count(refusal)
	}
	who, err := now.tokens.Verify(shown, time.Now())
	g.leave()
	if err != nil {
		return nil, g.refuseToken(g.refusalOf(now, &challenge, digest, err), client)
	}
	grant := g.grant(now, who)
	now.verdicts.grant(digest, grant)
	g.metrics.verified.Add(1)
	return grant, nil
}

// verifications is how many tokens the adapter verifies at a time. One processor is left to callers with known
// tokens, if there is more than one.
func verifications() int { return max(runtime.GOMAXPROCS(0)-1, 1) }

// mostWaiting bounds the requests that wait for a verification.
const mostWaiting = 64

// enter waits for a turn to verify a token. It returns false if too many wait.
func (g *Gate) enter() bool {
	if g.tryEnter() {
		return true
	}
	if g.waiting.Add(1) > mostWaiting {
		g.waiting.Add(-1)
		return false
	}
	g.verifying <- struct{}{}
	g.waiting.Add(-1)
	return true
}

// tryEnter returns false if a token would have to wait for its turn.
func (g *Gate) tryEnter() bool {
	select {
	case g.verifying <- struct{}{}:
		return true
	default:
		return false
	}
}

func (g *Gate) leave() { <-g.verifying }
