package token

import (
	"crypto"
	"crypto/elliptic"
	"encoding/json"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

func TestVerifyTakesEveryAlgorithm(t *testing.T) {
	v := newVerifier(t, corpIssuer(allKeys(t)...))
	want := &identity.Identity{
		Issuer:  "corp",
		User:    "corp:alice",
		Groups:  []string{"system:authenticated"},
		Expires: now.Add(10 * time.Minute),
	}
	for algorithm, test := range map[string]struct {
		id  string
		key crypto.Signer
	}{
		"RS256": {"rsa", rsaKey()},
		"RS384": {"rsa", rsaKey()},
		"RS512": {"rsa", rsaKey()},
		"PS256": {"rsa", rsaKey()},
		"PS384": {"rsa", rsaKey()},
		"PS512": {"rsa", rsaKey()},
		"ES256": {"p256", ecKey(elliptic.P256())},
		"ES384": {"p384", ecKey(elliptic.P384())},
		"ES512": {"p521", ecKey(elliptic.P521())},
		"EdDSA": {"ed", edKey()},
	} {
		t.Run(algorithm, func(t *testing.T) {
			text := signText(t, algorithm, `{"alg":"`+algorithm+`","kid":"`+test.id+`","typ":"at+jwt"}`, claims(t, nil), test.key)
			got, err := verifyAt(t, v, text, now)
			if err != nil {
				t.Fatalf("Verify: %v", err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("caller (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVerifyDates(t *testing.T) {
	at := func(offset time.Duration) json.Number {
		return json.Number(strconv.FormatFloat(float64(now.Add(offset).UnixMilli())/1000, 'f', 3, 64))
	}
	for name, test := range map[string]struct {
		changes map[string]any
		want    *Error
	}{
		"last moment of the leeway":         {map[string]any{"exp": at(-30*time.Second + time.Millisecond)}, nil},
		"leeway is over":                    {map[string]any{"exp": at(-30 * time.Second)}, &Error{Expired, "corp", 30 * time.Second}},
		"expired long ago":                  {map[string]any{"exp": at(-time.Hour), "iat": at(-2 * time.Hour)}, &Error{Expired, "corp", time.Hour}},
		"expired in 1970":                   {map[string]any{"exp": 1, "iat": 0}, &Error{Expired, "corp", now.Sub(time.Unix(1, 0))}},
		"no exp":                            {map[string]any{"exp": absent}, &Error{Claims, "corp", 0}},
		"exp is null":                       {map[string]any{"exp": nil}, &Error{Claims, "corp", 0}},
		"exp is text":                       {map[string]any{"exp": "1800000600"}, &Error{Claims, "corp", 0}},
		"exp is a list":                     {map[string]any{"exp": []any{at(time.Minute)}}, &Error{Claims, "corp", 0}},
		"exp has a fraction":                {map[string]any{"exp": at(500 * time.Millisecond)}, nil},
		"exp has an exponent":               {map[string]any{"exp": json.Number("18000006e2")}, nil},
		"exp overflows":                     {map[string]any{"exp": json.Number("1e300")}, &Error{Claims, "corp", 0}},
		"exp is no float":                   {map[string]any{"exp": json.Number("1e999")}, &Error{Claims, "corp", 0}},
		"exp wraps around an int64":         {map[string]any{"exp": json.Number("18446744075509552216")}, &Error{Claims, "corp", 0}},
		"exp wraps around in milliseconds":  {map[string]any{"exp": json.Number("18446745873709552")}, &Error{Claims, "corp", 0}},
		"exp after the year 9999":           {map[string]any{"exp": json.Number("253402300800")}, &Error{Claims, "corp", 0}},
		"exp is negative":                   {map[string]any{"exp": -1}, &Error{Claims, "corp", 0}},
		"no iat":                            {map[string]any{"iat": absent}, &Error{Claims, "corp", 0}},
		"iat is text":                       {map[string]any{"iat": "0"}, &Error{Claims, "corp", 0}},
		"iat is negative":                   {map[string]any{"iat": -1e9}, &Error{Claims, "corp", 0}},
		"iat in the leeway":                 {map[string]any{"iat": at(30 * time.Second)}, nil},
		"iat in the future":                 {map[string]any{"iat": at(30*time.Second + time.Millisecond)}, &Error{NotYet, "corp", 30*time.Second + time.Millisecond}},
		"iat after exp":                     {map[string]any{"iat": at(20 * time.Second), "exp": at(10 * time.Second)}, &Error{Claims, "corp", 0}},
		"nbf in the leeway":                 {map[string]any{"nbf": at(30 * time.Second)}, nil},
		"nbf in the future":                 {map[string]any{"nbf": at(time.Minute)}, &Error{NotYet, "corp", time.Minute}},
		"nbf in the future, iat further on": {map[string]any{"nbf": at(time.Minute), "iat": at(2 * time.Minute)}, &Error{NotYet, "corp", 2 * time.Minute}},
		"nbf is null":                       {map[string]any{"nbf": nil}, &Error{Claims, "corp", 0}},
		"nbf is text":                       {map[string]any{"nbf": "0"}, &Error{Claims, "corp", 0}},
		"longest lifetime":                  {map[string]any{"iat": at(-time.Minute), "exp": at(59 * time.Minute)}, nil},
		"longer lifetime":                   {map[string]any{"iat": at(-time.Minute), "exp": at(59*time.Minute + time.Second)}, &Error{Lifetime, "corp", 0}},
		"lifetime of all time":              {map[string]any{"iat": 0, "exp": json.Number("253402300799")}, &Error{Lifetime, "corp", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := verifyAt(t, newVerifier(t, corpIssuer(allKeys(t)...)), goodToken(t, test.changes), now)
			var want error
			if test.want != nil {
				want = test.want
			}
			if diff := cmp.Diff(want, err); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// A document may allow any lifetime, in seconds. It must not become a negative Duration.
func TestVerifyAllowsTheLongestLifetime(t *testing.T) {
	issuer := corpIssuer(allKeys(t)...)
	issuer.MaxLifetimeSeconds = math.MaxInt64
	if _, err := verifyAt(t, newVerifier(t, issuer), goodToken(t, nil), now); err != nil {
		t.Errorf("Verify: %v", err)
	}
}

func TestVerifyAudience(t *testing.T) {
	tests := map[string]struct {
		audience any
		want     Reason
	}{
		"the resource":               {resource, ""},
		"with a slash":               {resource + "/", ""},
		"with two slashes":           {resource + "//", Audience},
		"other case of the host":     {"HTTPS://Echo.Example.COM/mcp", ""},
		"other case of the path":     {"https://echo.example.com/MCP", Audience},
		"escape in the path":         {"https://echo.example.com/%6Dcp", Audience},
		"port that is the default":   {"https://echo.example.com:443/mcp", Audience},
		"other scheme":               {"http://echo.example.com/mcp", Audience},
		"query":                      {resource + "?", Audience},
		"fragment":                   {resource + "#", Audience},
		"user":                       {"https://a@echo.example.com/mcp", Audience},
		"dots in the path":           {"https://echo.example.com/x/../mcp", Audience},
		"blank at the end":           {resource + " ", Audience},
		"longer path":                {resource + "/admin", Audience},
		"prefix":                     {"https://echo.example.com", Audience},
		"NUL at the end":             {resource + "\x00", Audience},
		"name":                       {"mcp-echo", ""},
		"name in other case":         {"MCP-echo", Audience},
		"name with a slash":          {"mcp-echo/", Audience},
		"list":                       {[]any{"other", "mcp-echo"}, ""},
		"list of others":             {[]any{"other", "another"}, Audience},
		"list with a number":         {[]any{"mcp-echo", 1}, Claims},
		"list in a list":             {[]any{[]any{"mcp-echo"}}, Claims},
		"empty list":                 {[]any{}, Audience},
		"empty":                      {"", Audience},
		"absent":                     {absent, Audience},
		"null":                       {nil, Claims},
		"number":                     {1, Claims},
		"object":                     {map[string]any{"mcp-echo": true}, Claims},
		"several names in one text":  {"other mcp-echo", Audience},
		"audience of another issuer": {"for-the-other", Audience},
	}
	other := clusterIssuer(allKeys(t)...)
	other.Audiences = []string{"for-the-other"}
	v := newVerifier(t, corpIssuer(allKeys(t)...), other)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := verifyAt(t, v, goodToken(t, map[string]any{"aud": test.audience}), now)
			if got := reasonOf(t, err); got != test.want {
				t.Errorf("got reason %q, want %q", got, test.want)
			}
		})
	}
}

func TestCanonicalAudience(t *testing.T) {
	for audience, want := range map[string]string{
		"HTTP://User@Host:80/Path/": "http://User@host:80/Path",
		"https://HOST":              "https://host",
		"https://HOST/":             "https://host",
		"https://HOST?A/":           "https://host?A/",
		"https://HOST/#A/":          "https://host/#A/",
		"A+b.C-d://HOST":            "a+b.c-d://host",
		"1a://HOST/":                "1a://HOST/",
		"a b://HOST/":               "a b://HOST/",
		"://HOST/":                  "://HOST/",
		"File:///ETC/":              "File:///ETC/",
		"URN:Name/":                 "URN:Name/",
		"Name/":                     "Name/",
		"https://KÄSE/":             "https://kÄse", // K is one of ASCII; the Kelvin sign is none
		"https://\u212AELVIN":       "https://\u212Aelvin",
		"":                          "",
	} {
		if got := canonicalAudience(audience); got != want {
			t.Errorf("canonicalAudience(%q): got %q, want %q", audience, got, want)
		}
	}
}

func TestVerifyIssuer(t *testing.T) {
	corpKey, clusterKey := jwk(t, edKey(), "ed", nil), jwk(t, ecKey(elliptic.P256()), "p256", nil)
	v := newVerifier(t, corpIssuer(corpKey), clusterIssuer(clusterKey))
	for name, test := range map[string]struct {
		iss  any
		want *Error
	}{
		"exact":              {corp, nil},
		"with a slash":       {corp + "/", &Error{Reason: UnknownIssuer}},
		"other case":         {"https://LOGIN.example.com/realms/main", &Error{Reason: UnknownIssuer}},
		"its name":           {"corp", &Error{Reason: UnknownIssuer}},
		"absent":             {absent, &Error{Reason: UnknownIssuer}},
		"empty":              {"", &Error{Reason: UnknownIssuer}},
		"list":               {[]any{corp}, &Error{Reason: UnknownIssuer}},
		"key of another one": {cluster, &Error{Reason: UnknownKey, Issuer: "kubernetes"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := verifyAt(t, v, goodToken(t, map[string]any{"iss": test.iss}), now)
			var want error
			if test.want != nil {
				want = test.want
			}
			if diff := cmp.Diff(want, err); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNew(t *testing.T) {
	key := jwk(t, edKey(), "ed", nil)
	with := func(issuer adapterapi.AccessIssuer, change func(*adapterapi.AccessIssuer)) adapterapi.AccessIssuer {
		change(&issuer)
		return issuer
	}
	named := func(name string) adapterapi.AccessIssuer {
		return with(corpIssuer(key), func(i *adapterapi.AccessIssuer) { i.Name = name })
	}
	for name, test := range map[string]struct {
		issuers []adapterapi.AccessIssuer
		fails   bool
		want    Reason // of a good token of corp
	}{
		"none":                             {nil, false, UnknownIssuer},
		"without keys":                     {[]adapterapi.AccessIssuer{corpIssuer()}, false, UnknownKey},
		"with keys that are no use":        {[]adapterapi.AccessIssuer{corpIssuer(json.RawMessage(`{}`), json.RawMessage(`1`), nil)}, false, UnknownKey},
		"with a bad key beside a good one": {[]adapterapi.AccessIssuer{corpIssuer(json.RawMessage(`{"kty":"RSA"}`), key)}, false, ""},
		"reserved name":                    {[]adapterapi.AccessIssuer{named("system")}, true, ""},
		"name with a colon":                {[]adapterapi.AccessIssuer{named("system:serviceaccount")}, true, ""},
		"no name":                          {[]adapterapi.AccessIssuer{named("")}, true, ""},
		"no iss":                           {[]adapterapi.AccessIssuer{with(corpIssuer(key), func(i *adapterapi.AccessIssuer) { i.Issuer = "" })}, true, ""},
		"same iss":                         {[]adapterapi.AccessIssuer{corpIssuer(key), named("evil")}, true, ""},
		"same iss, and another issuer":     {[]adapterapi.AccessIssuer{corpIssuer(key), clusterIssuer(), named("evil")}, false, UnknownIssuer},
		"same name, and another issuer":    {[]adapterapi.AccessIssuer{corpIssuer(key), clusterIssuer(), with(corpIssuer(key), func(i *adapterapi.AccessIssuer) { i.Issuer = "https://evil" })}, false, UnknownIssuer},
		"two issuers":                      {[]adapterapi.AccessIssuer{corpIssuer(key), clusterIssuer()}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := New(Options{Issuers: test.issuers})
			if (err != nil) != test.fails {
				t.Fatalf("New: got error %v, want one: %v", err, test.fails)
			}
			if err != nil {
				return
			}
			_, err = verifyAt(t, v, goodToken(t, nil), now)
			if got := reasonOf(t, err); got != test.want {
				t.Errorf("got reason %q, want %q", got, test.want)
			}
		})
	}
}
