// Package probekey lets the manager's probe prove itself at an adapter's client
// port, so that it finds a session slot of its own when all others are taken. The
// two share the server's key. The key itself does not travel: what is presented is
// derived from it, is good for nothing else, and differs from server to server.
package probekey

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
)

// Header is the request header that a probe presents its token in. The adapter
// never passes it on.
const Header = "Slipway-Probe"

// label sets the token apart from all else that is made from the key.
const label = "slipway probe slot v1"

// Token is what a probe presents. The key is as it stands in the file or Secret,
// and as it is presented for the catalogue; blanks around it do not matter.
func Token(key []byte) string {
	mac := hmac.New(sha256.New, bytes.TrimSpace(key))
	_, _ = mac.Write([]byte(label)) // never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Verifier knows the probe of one server. The zero value knows none.
type Verifier struct {
	known  bool
	digest [sha256.Size]byte // of the token
}

// NewVerifier returns a Verifier for the key; without a key, one that knows nobody.
func NewVerifier(key []byte) Verifier {
	if len(bytes.TrimSpace(key)) == 0 {
		return Verifier{}
	}
	return Verifier{known: true, digest: sha256.Sum256([]byte(Token(key)))}
}

// IsProbe says whether a request proves to be the manager's. How long it takes says
// nothing of the token.
func (v Verifier) IsProbe(r *http.Request) bool {
	presented := r.Header.Values(Header)
	if !v.known || len(presented) != 1 {
		return false
	}
	digest := sha256.Sum256([]byte(presented[0]))
	return subtle.ConstantTimeCompare(digest[:], v.digest[:]) == 1
}
