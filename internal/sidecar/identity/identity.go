// Package identity describes a caller whose token the adapter has verified.
package identity

import "time"

// Identity is a verified caller. It is immutable, and shared by all requests with the same token.
type Identity struct {
	// Issuer is the name of the issuer in the access document.
	Issuer string
	// User is the principal: the issuer's name, a colon and the subject; or, for a ServiceAccount of the
	// cluster, system:serviceaccount:NAMESPACE:NAME. A refreshed token has the same User.
	User string
	// Groups have the issuer's prefix, too, but for those of the cluster. They include
	// system:authenticated.
	Groups []string
	// Client is the OAuth client that the token was issued to, with the issuer's prefix; may be empty.
	Client string
	// Scopes are those of the token, and those that they imply.
	Scopes []string
	// TokenID is the claim jti; may be empty.
	TokenID string
	// Actors are the subjects of the claim act, the nearest first; mostly none.
	Actors []string
	// Expires is when the token does.
	Expires time.Time
}
