package dex_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/test/dex"
	"github.com/slipway-mcp/slipway/test/hang"
)

const (
	resource = "https://echo.example.com/mcp"
	callback = "http://127.0.0.1:1/callback" // nothing listens there
	verifier = "a-verifier-that-is-long-enough-for-rfc-7636"
)

var alice = dex.User{Email: "alice@example.com", Password: "wonderland", Groups: []string{"sre"}}

func start(t *testing.T, config dex.Config) dex.Provider {
	t.Helper()
	config.Clients = []dex.Client{
		{ID: "app", Name: "App", Public: true, RedirectURIs: []string{callback}},
		{ID: "bot", Name: "Bot", Secret: "hush"},
		{ID: resource, Name: "Echo", Secret: "unused", TrustedPeers: []string{"app", "bot"}},
	}
	config.Users = []dex.User{alice}
	return dex.Start(t, config)
}

// claims are those that tests look at.
type claims struct {
	Issuer   string       `json:"iss"`
	Audience jwt.Audience `json:"aud"`
	Groups   []string     `json:"groups"`
	Email    string       `json:"email"`
	Client   string       `json:"azp"`
	Scope    any          `json:"scope"`
}

func TestTokens(t *testing.T) {
	provider := start(t, dex.Config{})
	tests := map[string]struct {
		form func(t *testing.T) url.Values
		want claims
	}{
		"of a user": {
			form: func(t *testing.T) url.Values {
				return url.Values{
					"grant_type": {"authorization_code"}, "client_id": {"app"}, "redirect_uri": {callback},
					"code": {code(t, provider)}, "code_verifier": {verifier},
				}
			},
			want: claims{Issuer: provider.Issuer, Audience: jwt.Audience{resource, "app"}, Email: alice.Email, Groups: alice.Groups, Client: "app"},
		},
		"of a client": {
			form: func(*testing.T) url.Values {
				return url.Values{
					"grant_type": {"client_credentials"}, "client_id": {"bot"}, "client_secret": {"hush"},
					"scope": {"openid " + dex.AudienceScope(resource)},
				}
			},
			want: claims{Issuer: provider.Issuer, Audience: jwt.Audience{resource, "bot"}, Client: "bot"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			token := exchange(t, provider, test.form(t))
			var got claims
			if err := token.Claims(key(t, provider, token), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWrongPassword(t *testing.T) {
	provider := start(t, dex.Config{})
	mallory := alice
	mallory.Password = "guessed"
	if values, err := provider.Login(t.Context(), authorization(provider), mallory); err == nil {
		t.Errorf("dex answers %v", values)
	}
}

// Dex signs with a new key at once, and publishes the old one for as long as its tokens are valid.
func TestRotation(t *testing.T) {
	provider := start(t, dex.Config{Rotate: time.Second})
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {"bot"}, "client_secret": {"hush"}, "scope": {"openid"}}
	first := exchange(t, provider, form)
	deadline := time.After(hang.Guard)
	for poll := time.Tick(50 * time.Millisecond); ; {
		if next := exchange(t, provider, form); next.Headers[0].KeyID != first.Headers[0].KeyID {
			key(t, provider, next)
			break
		}
		select {
		case <-poll:
		case <-deadline:
			t.Fatal("dex did not rotate its key")
		}
	}
	if err := first.Claims(key(t, provider, first), &claims{}); err != nil {
		t.Errorf("the token of before: %v", err)
	}
}

func authorization(provider dex.Provider) string {
	challenge := sha256.Sum256([]byte(verifier))
	return provider.Issuer + "/auth?" + url.Values{
		"response_type": {"code"}, "client_id": {"app"}, "redirect_uri": {callback}, "state": {"s"},
		"scope":          {"openid email groups " + dex.AudienceScope(resource)},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(challenge[:])}, "code_challenge_method": {"S256"},
	}.Encode()
}

func code(t *testing.T, provider dex.Provider) string {
	t.Helper()
	values, err := provider.Login(t.Context(), authorization(provider), alice)
	if err != nil {
		t.Fatal(err)
	}
	if values.Get("state") != "s" {
		t.Errorf("state %q", values.Get("state"))
	}
	return values.Get("code")
}

// exchange returns an access token. Nothing has verified it.
func exchange(t *testing.T, provider dex.Provider, form url.Values) *jwt.JSONWebToken {
	t.Helper()
	response, err := provider.HTTPClient().PostForm(provider.Issuer+"/token", form)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer map[string]any
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %v", response.Status, err, answer)
	}
	text, _ := answer["access_token"].(string)
	token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		t.Fatalf("parse access token %q: %v", text, err)
	}
	return token
}

// key is the published key that a token names.
func key(t *testing.T, provider dex.Provider, token *jwt.JSONWebToken) jose.JSONWebKey {
	t.Helper()
	var metadata struct {
		Keys string `json:"jwks_uri"`
	}
	get(t, provider, provider.Issuer+"/.well-known/openid-configuration", &metadata)
	if !strings.HasPrefix(metadata.Keys, provider.Issuer) {
		t.Fatalf("jwks_uri is %q", metadata.Keys)
	}
	var set jose.JSONWebKeySet
	get(t, provider, metadata.Keys, &set)
	i := slices.IndexFunc(set.Keys, func(key jose.JSONWebKey) bool { return key.KeyID == token.Headers[0].KeyID })
	if i < 0 {
		t.Fatalf("key %q is not published", token.Headers[0].KeyID)
	}
	return set.Keys[i]
}

func get(t *testing.T, provider dex.Provider, address string, into any) {
	t.Helper()
	response, err := provider.HTTPClient().Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v", address, response.Status, err)
	}
}
