package issuer

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/slipway-mcp/slipway/internal/addresspolicy"
	"github.com/slipway-mcp/slipway/test/hang"
)

// authority is an issuer with pages by path. It notes what it was asked.
type authority struct {
	*httptest.Server

	mu    sync.Mutex
	pages map[string]http.HandlerFunc
	asked []string
}

func startAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pages: map[string]http.HandlerFunc{}}
	a.Server = httptest.NewUnstartedServer(a)
	a.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

func (a *authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.asked = append(a.asked, r.URL.EscapedPath())
	page := a.pages[r.URL.EscapedPath()]
	a.mu.Unlock()
	if page == nil {
		http.NotFound(w, r)
		return
	}
	page(w, r)
}

func (a *authority) serve(path string, page http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pages[path] = page
}

func (a *authority) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.asked)
}

// source is the authority as an issuer with this path.
func (a *authority) source(path string) Source {
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	return Source{Name: "corp", URL: a.URL + path, CABundle: string(bundle)}
}

// document answers with JSON.
func document(value any) http.HandlerFunc {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "max-age=86400")
		_, _ = w.Write(text)
	}
}

type object = map[string]any

// complete is metadata that causes no warning.
func complete(issuer, keys string) object {
	return object{
		"issuer": issuer, "jwks_uri": keys, "authorization_endpoint": issuer + "/authorize",
		"code_challenge_methods_supported": []string{"plain", "S256"}, "client_id_metadata_document_supported": true,
	}
}

// patient fetches from loopback, and waits for as long as a test may take.
func patient() *fetcher {
	return &fetcher{addresses: addresspolicy.Policy{AllowLoopback: true}, timeout: hang.Guard}
}

// The keys of the tests, made once: RSA takes its time.
var (
	rsaKey   = must(rsa.GenerateKey(rand.Reader, 2048))
	weakKey  = must(rsa.GenerateKey(rand.Reader, 1024))
	ecKey    = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	ec384Key = must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	ec521Key = must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))
	edKey, _ = edPair()
)

func edPair() (ed25519.PublicKey, ed25519.PrivateKey) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return public, private
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// jwk is a key as issuers write it, with members that are added or replaced; nil removes one.
func jwk(key any, id string, changes object) object {
	text, err := jose.JSONWebKey{Key: key, KeyID: id}.MarshalJSON()
	if err != nil {
		panic(err)
	}
	var members object
	if err := json.Unmarshal(text, &members); err != nil {
		panic(err)
	}
	for name, value := range changes {
		members[name] = value
		if value == nil {
			delete(members, name)
		}
	}
	return members
}

// keySetOf is a JWK set.
func keySetOf(keys ...object) object { return object{"keys": append([]object{}, keys...)} }

// ids are those of keys.
func ids(t *testing.T, keys []json.RawMessage) []string {
	t.Helper()
	list := []string{}
	for _, text := range keys {
		var key publicKey
		if err := json.Unmarshal(text, &key); err != nil {
			t.Fatal(err)
		}
		list = append(list, key.ID)
	}
	slices.Sort(list)
	return list
}
