package token

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// What a token may say about its caller.
const (
	maxName   = 512 // bytes of a user, client, actor or token ID
	maxGroup  = 256 // bytes of a group or scope
	maxGroups = 256 // groups, and scopes
	maxActors = 8
	// maxScopes bounds a token's scopes with those that they imply. The rest is left out.
	maxScopes = 1024
)

// caller reads whom the claims name. It fails on a claim of the wrong type, rather than go on without it:
// a group that the adapter cannot read could be one that is blocked.
func (i *issuer) caller(claims object) (*identity.Identity, bool) {
	r := claimReader{claims: claims}
	caller := &identity.Identity{Issuer: i.name, TokenID: r.text(claims["jti"]), Actors: r.actors()}
	if i.name == adapterapi.KubernetesIssuer {
		r.serviceAccount(caller)
	} else {
		r.user(caller, i.name+":", i.claims)
	}
	return caller, !r.failed
}

// claimReader reads claims, and remembers whether one was not as it should be.
type claimReader struct {
	claims object
	failed bool
}

// text reads a name that may be absent.
func (r *claimReader) text(value any) string {
	if value == nil {
		return ""
	}
	text, ok := value.(string)
	if !ok || !isName(text, maxName) {
		r.failed = true
	}
	return text
}

// isName says whether a name can stand in a rule and in a log. JSON can have halves of UTF-16 pairs, which
// all decode to the same character. Names with it are refused, so that two users never become one.
func isName(text string, limit int) bool {
	return len(text) <= limit && !strings.ContainsFunc(text, func(c rune) bool { return unicode.IsControl(c) || c == utf8.RuneError })
}

// texts reads a list of names, or one name, that may be absent.
func (r *claimReader) texts(value any) []string {
	var list []any
	switch value := value.(type) {
	case nil:
		return nil
	case []any:
		list = value
	default:
		list = []any{value}
	}
	if len(list) > maxGroups {
		r.failed = true
		return nil
	}
	names := make([]string, 0, len(list)+1)
	for _, element := range list {
		name, ok := element.(string)
		if !ok || name == "" || !isName(name, maxGroup) {
			r.failed = true
			return nil
		}
		names = append(names, name)
	}
	return names
}

// serviceAccount reads a caller of the cluster, as its API server names it. Its tokens have no scopes.
func (r *claimReader) serviceAccount(caller *identity.Identity) {
	caller.User, _ = r.claims["sub"].(string)
	account, isAccount := strings.CutPrefix(caller.User, "system:serviceaccount:")
	namespace, name, ok := strings.Cut(account, ":")
	if !isAccount || !ok || !isObjectName(namespace, 63) || !isObjectName(name, 253) {
		r.failed = true
		return
	}
	caller.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, adapterapi.GroupAuthenticated}
}

func isObjectName(name string, limit int) bool {
	return name != "" && len(name) <= limit && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.'
	})
}

func (r *claimReader) user(caller *identity.Identity, prefix string, paths adapterapi.AccessClaims) {
	user := r.text(r.claims.find(paths.User))
	// A user who can enter any address at the issuer could impersonate any other user.
	if verified, says := r.claims["email_verified"]; user == "" || paths.User == "email" && says && verified != true {
		r.failed = true
	}
	caller.User = prefix + user
	caller.Groups = r.groups(prefix, paths.Groups)
	if client := r.text(r.client(paths.Client)); client != "" {
		caller.Client = prefix + client
	}
	caller.Scopes = r.scopes()
}

func (r *claimReader) groups(prefix, path string) []string {
	var groups []string
	if path != "" {
		groups = r.texts(r.claims.find(path))
		// The claim has so many groups that the issuer has them somewhere else.
		if elsewhere, _ := r.claims["_claim_names"].(object); elsewhere[path] != nil {
			r.failed = true
		}
	}
	for i := range groups {
		groups[i] = prefix + groups[i]
	}
	return append(groups, adapterapi.GroupAuthenticated)
}

func (r *claimReader) client(path string) any {
	if path != "" {
		return r.claims.find(path)
	}
	if client := r.claims["azp"]; client != nil {
		return client
	}
	return r.claims["client_id"]
}

// scopes reads scope, or else scp. Some issuers have a string with blanks in one of them, others a list.
func (r *claimReader) scopes() []string {
	value := r.claims["scope"]
	if value == nil {
		value = r.claims["scp"]
	}
	if text, isText := value.(string); isText {
		var list []any
		for scope := range strings.SplitSeq(text, " ") {
			if scope != "" {
				list = append(list, scope)
			}
		}
		value = list
	}
	scopes := r.texts(value)
	if slices.ContainsFunc(scopes, func(scope string) bool { return strings.ContainsAny(scope, ` "\`) }) {
		r.failed = true
	}
	return scopes
}

// actors reads who acts for the user: the claim act, and those nested in it.
func (r *claimReader) actors() []string {
	var actors []string
	for value := r.claims["act"]; value != nil; {
		actor, isObject := value.(object)
		name := r.text(actor["sub"])
		if !isObject || name == "" || len(actors) == maxActors {
			r.failed = true
			return nil
		}
		actors = append(actors, name)
		value = actor["act"]
	}
	return actors
}

// withImplied adds the scopes that others imply, and that those imply.
func (v *Verifier) withImplied(scopes []string) []string {
	if len(v.scopeImplies) == 0 {
		return scopes
	}
	has := make(map[string]bool, len(scopes))
	for _, scope := range scopes {
		has[scope] = true
	}
	for next := 0; next < len(scopes); next++ {
		for _, implied := range v.scopeImplies[scopes[next]] {
			if !has[implied] && len(scopes) < maxScopes {
				has[implied] = true
				scopes = append(scopes, implied)
			}
		}
	}
	return scopes
}
