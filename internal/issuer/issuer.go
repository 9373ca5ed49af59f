// Package issuer fetches and keeps the public keys of token issuers, and says when they have changed. It
// keeps these requests out of the reconciler, so that an issuer that does not answer delays no reconcile.
package issuer

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-mcp/slipway/internal/addresspolicy"
)

// Source is an issuer whose keys a server needs.
type Source struct {
	// Name is what the server calls the issuer. It does not matter for what is fetched.
	Name string
	// URL is the issuer, exactly as its tokens have it in the claim iss.
	URL string
	// CABundle has the certificates, in PEM, that alone are trusted for this issuer. Empty trusts what
	// the system trusts.
	CABundle string
	// Cluster is the issuer of the cluster's ServiceAccount tokens: URL and CABundle do not count.
	Cluster bool
}

// Keys are what is known of an issuer. They are shared: do not change them.
type Keys struct {
	// Issuer is the claim iss of its tokens.
	Issuer string
	// Keys are its public keys, each a JWK in canonical form, sorted: two sets with the same keys are the
	// same bytes.
	Keys []json.RawMessage
	// Err says why there are no keys: a class in words, which never has anything that the issuer wrote. It
	// is empty while there are keys, also when the last attempt to fetch them failed.
	Err string
	// Forbidden is true if the manager's configuration does not allow the issuer. Then keys from before do
	// not count either.
	Forbidden bool
	// Withdrawn is true if the issuer has answered, and publishes no key any more. Then keys from before do
	// not count either.
	Withdrawn bool
	// Stale is true if the keys could not be fetched for a day, also if there were none before.
	Stale bool
	// Warnings are sentences about an issuer whose keys are known and which still makes trouble.
	Warnings []string
}

func (k Keys) equal(other Keys) bool {
	return k.Issuer == other.Issuer && k.Err == other.Err && k.Withdrawn == other.Withdrawn && k.Stale == other.Stale && slices.Equal(k.Warnings, other.Warnings) &&
		slices.EqualFunc(k.Keys, other.Keys, func(a, b json.RawMessage) bool { return string(a) == string(b) })
}

// APIServer reads documents of the cluster's API server.
type APIServer interface {
	Get(ctx context.Context, path string) ([]byte, error)
}

// Options are what a Store is made from.
type Options struct {
	// Cluster is asked for the keys of ServiceAccount tokens.
	Cluster APIServer
	// Notify is called with the name of a server when what Get returns has changed for one of its
	// sources. It must not block.
	Notify func(server types.NamespacedName)
	// Allowed are the only issuers that are asked: URLs, or the beginnings of URLs followed by *, as in
	// https://login.example.com/realms/*. Without any, all are.
	Allowed []string
	// Addresses are those that are dialed. The zero value refuses loopback, too: no issuer is in the
	// manager's pod, and what listens there is not for authors of MCPServers. Tests allow it, because
	// their issuers are there.
	Addresses addresspolicy.Policy
	Log       logr.Logger
	// Registry takes the metrics; nil means none.
	Registry prometheus.Registerer
}

const (
	// interval is the time between two fetches while all is well. Each is up to a tenth shorter, so that
	// the issuers are not all asked at once. What an issuer says of caching does not matter: a key that it
	// withdraws must not live on for an hour.
	interval = 5 * time.Minute
	// After a failure the pauses grow from the first to the last.
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
	// refreshPause is the least time between two fetches that Refresh asks for, and between one that failed
	// and one that Refresh asks for: any client can send tokens with unknown keys.
	refreshPause = 30 * time.Second
	// staleAfter is how long keys are used without a warning while they cannot be fetched again.
	staleAfter = 24 * time.Hour

	// fetches is how many issuers are asked at a time. Those that took long and failed when they were last
	// asked share a number of their own, so that they hold up each other only.
	fetches     = 16
	slowFetches = 8
	slowAfter   = fetchTimeout / 2
)

const errNotAllowed = "is not in auth.allowedIssuers of the manager's configuration"

// forbids says why an issuer is not asked at all; empty if it is.
func (o *Options) forbids(source Source) string {
	if source.Cluster {
		return ""
	}
	if _, err := parseIssuer(source.URL); err != nil {
		return classify(err)
	}
	if len(o.Allowed) > 0 && !slices.ContainsFunc(o.Allowed, func(pattern string) bool { return allows(pattern, source.URL) }) {
		return errNotAllowed
	}
	return ""
}

func allows(pattern, issuer string) bool {
	if below, ok := strings.CutSuffix(pattern, "/*"); ok {
		return strings.HasPrefix(issuer, below+"/")
	}
	return pattern == issuer
}
