package rules

import (
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// Decision is what the rules say of a message.
type Decision struct {
	Denied Denial   // empty if the message is allowed
	Kind   Kind     // of what the message is about; empty if it names nothing
	Rule   int      // index of the rule that allows it, or -1 if none was needed
	Scopes []string // with DeniedScope: all that this message needs, also those that the token has
	Text   string   // for the client, if the message is denied
}

// Denial is why a message is denied. It is a label of metrics.
type Denial string

// The denials.
const (
	Allowed     Denial = ""
	DeniedRule  Denial = "no_rule"
	DeniedScope Denial = "scope" // a rule lacks only scopes of the token
	DeniedBlock Denial = "blocked"
	DeniedName  Denial = "name"   // the message names nothing, or not in the way that the method has it
	DeniedURI   Denial = "uri"    // the URI could be read in several ways
	DeniedKind  Denial = "method" // the adapter does not know the method
)

// Kind is what a message is about. It is a label of metrics and a subresource of audits.
type Kind string

// The kinds.
const (
	Tools     Kind = "tools"
	Prompts   Kind = "prompts"
	Resources Kind = "resources"
)

var allKinds = [...]Kind{Tools, Prompts, Resources}

// Decide decides on one message that rpc.Scan has accepted. It does not allocate if it allows the
// message.
//
// Without rules, only calls of hidden tools are denied. Then a method that the adapter does not know is
// allowed, although it might reach a hidden tool: without rules, servers with methods of their own must
// work as they do without the adapter. The same holds for a caller that rules give everything.
func (r *Rights) Decide(message []byte, e *rpc.Envelope) Decision {
	t := targetOf(message, e)
	switch {
	case r == nil || r.all:
		return allow(&t, -1)
	case r.probe:
		return r.decideProbe(&t, e)
	case r.blocked:
		return deny(&t, DeniedBlock, "this server blocks you")
	case r.open:
		return r.decideHidden(&t)
	case !r.entitled:
		return deny(&t, DeniedRule, "no rule of this server names you")
	}
	switch t.class {
	case named:
		return r.decideNamed(&t)
	case subscribes:
		return r.decideSubscription(message, &t)
	case unknown:
		return r.decideUnknown(&t, e)
	case handshake, own, list:
	}
	if r.lacks(r.base) {
		return r.denyScope(&t, r.base)
	}
	return allow(&t, -1)
}

func allow(t *target, rule int) Decision { return Decision{Kind: t.kind, Rule: rule} }

func deny(t *target, why Denial, text string) Decision {
	return Decision{Denied: why, Kind: t.kind, Rule: -1, Text: text}
}

// denyScope asks for all scopes that the message needs, because there are clients that ask for no others then,
// and would lose those that they have (typescript-sdk#1582). The text names those that are missing.
func (r *Rights) denyScope(t *target, needs []string) Decision {
	missing := slices.DeleteFunc(slices.Clone(needs), func(scope string) bool { return slices.Contains(r.held, scope) })
	d := deny(t, DeniedScope, "your token lacks scopes that this needs: "+strings.Join(missing, " "))
	d.Scopes = needs
	return d
}

func (r *Rights) decideProbe(t *target, e *rpc.Envelope) Decision {
	if t.class == handshake || t.class == list {
		return allow(t, -1)
	}
	return deny(t, DeniedRule, "the manager may not send "+quoted(e.Method))
}

// decideHidden decides where there are no rules.
func (r *Rights) decideHidden(t *target) Decision {
	switch {
	case t.kind != Tools:
		return allow(t, -1)
	case t.flawed:
		return denyFlawed(t)
	case r.hides(t.kind, t.what.name):
		return deny(t, DeniedRule, noRule(t.kind, t.shown))
	}
	return allow(t, -1)
}

func (r *Rights) decideNamed(t *target) Decision {
	if t.flawed {
		return denyFlawed(t)
	}
	if r.hides(t.kind, t.what.name) {
		return deny(t, DeniedRule, noRule(t.kind, t.shown))
	}
	grant, offer := r.find(t.kind, t.what)
	switch {
	case grant >= 0:
		return allow(t, grant)
	case offer >= 0:
		return r.denyScope(t, r.policy.rules[offer].needs)
	case t.what.onlyAll:
		return deny(t, DeniedURI, "the rules of this server are not for a URI with dots in a row, backslashes, control characters, %2e, %2f or %5c, such as "+quoted(t.shown))
	}
	return deny(t, DeniedRule, noRule(t.kind, t.shown))
}

// decideSubscription decides on each resource of a subscription. One that is denied denies all.
func (r *Rights) decideSubscription(message []byte, t *target) Decision {
	if t.flawed {
		return denyFlawed(t)
	}
	lacking := r.lacks(r.base)
	rule := -1
	for uri := range rpc.Members(message, t.uris) {
		one := uriTarget(textOf(message, uri.Value))
		d := r.decideNamed(&one)
		switch {
		case d.Denied == DeniedScope:
			lacking = true
		case d.Denied != Allowed:
			return d
		case rule < 0:
			rule = d.Rule
		}
	}
	if lacking {
		return r.denyScope(t, r.subscriptionNeeds(message, t))
	}
	return allow(t, rule)
}

// subscriptionNeeds returns the scopes for all resources of a subscription, none of which is denied for good.
func (r *Rights) subscriptionNeeds(message []byte, t *target) []string {
	needs := slices.Clone(r.base)
	for uri := range rpc.Members(message, t.uris) {
		one := uriTarget(textOf(message, uri.Value))
		grant, offer := r.find(one.kind, one.what)
		needs = union(needs, r.policy.rules[max(grant, offer)].needs)
	}
	return needs
}

// decideUnknown allows methods that the adapter does not know to callers who may use everything.
func (r *Rights) decideUnknown(t *target, e *rpc.Envelope) Decision {
	lacking := false
	for _, kind := range allKinds {
		grant, offer := r.find(kind, everything)
		if grant < 0 && offer < 0 {
			return deny(t, DeniedKind, "the rules of this server say nothing of the method "+quoted(e.Method))
		}
		lacking = lacking || grant < 0
	}
	if !lacking {
		return allow(t, -1)
	}
	var needs []string
	for _, kind := range allKinds {
		grant, offer := r.find(kind, everything)
		needs = union(needs, r.policy.rules[max(grant, offer)].needs)
	}
	return r.denyScope(t, needs)
}

func denyFlawed(t *target) Decision {
	text := "the message does not say which prompt or resource it is about, as its method must"
	switch t.kind {
	case Tools:
		text = "params.name must be the name of a tool"
	case Prompts:
		text = "the message must have the name of a prompt"
	case Resources:
		text = "the message must have the URI of a resource"
	}
	return deny(t, DeniedName, text)
}

// noRule says no more than what the caller has said: not whether there is such a thing.
func noRule(kind Kind, name []byte) string {
	const start = "no rule of this server allows you to "
	switch kind {
	case Tools:
		return start + "call the tool " + quoted(name)
	case Prompts:
		return start + "use the prompt " + quoted(name)
	default:
		return start + "use the resource " + quoted(name)
	}
}

// quotedBytes are enough for a name, and for most of a URI.
const quotedBytes = 256

func quoted(text []byte) string { return `"` + rpc.Legible(text, quotedBytes) + `"` }
