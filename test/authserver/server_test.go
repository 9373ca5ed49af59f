package authserver

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
)

const (
	callback = "http://127.0.0.1:1/callback" // nothing listens there
	verifier = "a-verifier-that-is-long-enough-for-rfc-7636"
)

func start(t *testing.T) *Server {
	t.Helper()
	return Start(t, Options{
		Algorithms: []jose.SignatureAlgorithm{jose.ES256}, // keys of RSA take a while
		Scopes:     []string{"openid", "read", "write"},
		Clients: []Client{
			{ID: "app", RedirectURIs: []string{callback}, AuthMethod: "none"},
			{ID: "other", RedirectURIs: []string{callback}, AuthMethod: "none"},
			{ID: "bot", Secret: "hush & more", GrantTypes: []string{clientCredentials}, RedirectURIs: []string{callback}},
		},
	})
}

// with changes parameters. An empty value removes one.
func with(values url.Values, pairs ...string) url.Values {
	changed := maps.Clone(values)
	for i := 0; i < len(pairs); i += 2 {
		changed.Set(pairs[i], pairs[i+1])
		if pairs[i+1] == "" {
			changed.Del(pairs[i])
		}
	}
	return changed
}

func authorization() url.Values {
	challenge := sha256.Sum256([]byte(verifier))
	return url.Values{
		"response_type": {"code"}, "client_id": {"app"}, "redirect_uri": {callback}, "state": {"s"}, "scope": {"read write"}, "resource": {resource},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(challenge[:])}, "code_challenge_method": {"S256"},
	}
}

func TestMetadata(t *testing.T) {
	server := Start(t, Options{Path: "/realms/main", Algorithms: []jose.SignatureAlgorithm{jose.ES256}, Metadata: func(metadata map[string]any) { delete(metadata, "registration_endpoint") }})
	origin := strings.TrimSuffix(server.Issuer, "/realms/main")
	for _, address := range []string{
		origin + "/.well-known/oauth-authorization-server/realms/main",
		origin + "/.well-known/openid-configuration/realms/main",
		origin + "/realms/main/.well-known/openid-configuration",
	} {
		response, err := server.HTTPClient().Get(address)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if _, there := got["registration_endpoint"]; got["issuer"] != server.Issuer || got["jwks_uri"] != server.Issuer+"/keys" || there {
			t.Errorf("%s has %v", address, got)
		}
	}
}

func TestAuthorize(t *testing.T) {
	server := start(t)
	server.SetUser(User{Subject: "bob", Scopes: []string{"read", "openid"}})
	tests := map[string]struct {
		request url.Values
		want    string // the error; without any, a code
	}{
		"all is well":             {authorization(), ""},
		"no state":                {with(authorization(), "state", ""), ""},
		"other response type":     {with(authorization(), "response_type", "token"), "unsupported_response_type"},
		"no PKCE":                 {with(authorization(), "code_challenge", "", "code_challenge_method", ""), "invalid_request"},
		"plain PKCE":              {with(authorization(), "code_challenge_method", "plain"), "invalid_request"},
		"no method of PKCE":       {with(authorization(), "code_challenge_method", ""), "invalid_request"},
		"unknown scope":           {with(authorization(), "scope", "read admin"), "invalid_scope"},
		"scope that is not given": {with(authorization(), "scope", "write"), "access_denied"},
		"resource with fragment":  {with(authorization(), "resource", resource+"#a"), "invalid_target"},
		"relative resource":       {with(authorization(), "resource", "/mcp"), "invalid_target"},
		"other grant type":        {with(authorization(), "client_id", "bot"), "unauthorized_client"},
		"parameter twice":         {url.Values{"scope": {"read", "write"}, "response_type": {"code"}, "client_id": {"app"}, "redirect_uri": {callback}, "state": {"s"}}, "invalid_request"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			values, err := server.Login(t.Context(), server.Issuer+"/authorize?"+test.request.Encode())
			if (err != nil) != (test.want != "") || values.Get("error") != test.want || (values.Get("code") == "") != (test.want != "") {
				t.Errorf("got %v, %v, want error %q", values, err, test.want)
			}
			if values.Get("iss") != server.Issuer || values.Get("state") != test.request.Get("state") {
				t.Errorf("got %v", values)
			}
		})
	}
	for name, request := range map[string]url.Values{
		"unknown client":             with(authorization(), "client_id", "absent"),
		"document of something else": with(authorization(), "client_id", server.Issuer+"/keys"),
		"redirect elsewhere":         with(authorization(), "redirect_uri", "https://attacker.example.com/callback"),
		"redirect with more to it":   with(authorization(), "redirect_uri", callback+"/.."),
		"no redirect":                with(authorization(), "redirect_uri", ""),
		"document without TLS":       with(authorization(), "client_id", "http://127.0.0.1:1/client"),
	} {
		t.Run(name, func(t *testing.T) {
			if values, err := server.Login(t.Context(), server.Issuer+"/authorize?"+request.Encode()); err == nil || values != nil {
				t.Errorf("got a redirect with %v, %v", values, err)
			}
		})
	}
}

func TestClientDocument(t *testing.T) {
	server := start(t)
	tests := map[string]struct {
		status int
		change func(*Client)
		valid  bool
	}{
		"as it should be":         {http.StatusOK, func(*Client) {}, true},
		"of another client":       {http.StatusOK, func(client *Client) { client.ID += "2" }, false},
		"with a secret":           {http.StatusOK, func(client *Client) { client.Secret = "hush" }, false},
		"with another redirect":   {http.StatusOK, func(client *Client) { client.RedirectURIs[0] += "2" }, false},
		"that the server has not": {http.StatusNotFound, func(*Client) {}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			served := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				client := Client{ID: "https://" + r.Host + "/client.json", RedirectURIs: []string{callback}}
				test.change(&client)
				answer(w, test.status, client)
			}))
			defer served.Close()
			request := with(authorization(), "client_id", served.URL+"/client.json")
			if values, err := server.Login(t.Context(), server.Issuer+"/authorize?"+request.Encode()); (err == nil) != test.valid {
				t.Errorf("got %v, %v", values, err)
			}
		})
	}
}

// post asks for a token, and returns the answer with its error.
func post(t *testing.T, server *Server, form url.Values) (answer map[string]any, problem string) {
	t.Helper()
	response, err := server.HTTPClient().PostForm(server.Issuer+"/token", form)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	problem, _ = answer["error"].(string)
	want := map[string]int{"": http.StatusOK, "invalid_client": http.StatusUnauthorized}[problem]
	if want == 0 {
		want = http.StatusBadRequest
	}
	if response.StatusCode != want {
		t.Errorf("%s for error %q", response.Status, problem)
	}
	return answer, problem
}

func TestToken(t *testing.T) {
	server := start(t)
	// login returns the form that exchanges a new code.
	login := func(t *testing.T, pairs ...string) url.Values {
		values, err := server.Login(t.Context(), server.Issuer+"/authorize?"+with(authorization(), pairs...).Encode())
		if err != nil {
			t.Fatal(err)
		}
		return url.Values{
			"grant_type": {authorizationCode}, "client_id": {"app"}, "redirect_uri": {callback},
			"code": {values.Get("code")}, "code_verifier": {verifier}, "resource": {resource},
		}
	}
	// refreshed returns the form that refreshes a new token.
	refreshed := func(t *testing.T) url.Values {
		first, problem := post(t, server, login(t))
		if problem != "" {
			t.Fatal(first)
		}
		return url.Values{"grant_type": {refreshToken}, "client_id": {"app"}, "refresh_token": {first["refresh_token"].(string)}}
	}
	used := func(t *testing.T, form url.Values) url.Values {
		if answer, problem := post(t, server, form); problem != "" {
			t.Fatal(answer)
		}
		return form
	}
	bot := url.Values{"grant_type": {clientCredentials}, "client_id": {"bot"}, "client_secret": {"hush & more"}, "scope": {"read"}, "resource": {resource}}
	tests := map[string]struct {
		form func(t *testing.T) url.Values
		want string
	}{
		"code":                       {func(t *testing.T) url.Values { return login(t) }, ""},
		"code, no resource again":    {func(t *testing.T) url.Values { return with(login(t), "resource", "") }, ""},
		"code twice":                 {func(t *testing.T) url.Values { return used(t, login(t)) }, "invalid_grant"},
		"unknown code":               {func(t *testing.T) url.Values { return with(login(t), "code", "x") }, "invalid_grant"},
		"code of another client":     {func(t *testing.T) url.Values { return with(login(t), "client_id", "other") }, "invalid_grant"},
		"code with another redirect": {func(t *testing.T) url.Values { return with(login(t), "redirect_uri", callback+"2") }, "invalid_grant"},
		"code with another verifier": {func(t *testing.T) url.Values { return with(login(t), "code_verifier", verifier+"2") }, "invalid_grant"},
		"code without a verifier":    {func(t *testing.T) url.Values { return with(login(t), "code_verifier", "") }, "invalid_grant"},
		"code for another resource":  {func(t *testing.T) url.Values { return with(login(t), "resource", resource+"2") }, "invalid_target"},
		"refresh":                    {refreshed, ""},
		"refresh, fewer scopes":      {func(t *testing.T) url.Values { return with(refreshed(t), "scope", "read") }, ""},
		"refresh, more scopes":       {func(t *testing.T) url.Values { return with(refreshed(t), "scope", "read openid") }, "invalid_scope"},
		"refresh, another resource":  {func(t *testing.T) url.Values { return with(refreshed(t), "resource", resource+"2") }, "invalid_target"},
		"refresh twice":              {func(t *testing.T) url.Values { return used(t, refreshed(t)) }, "invalid_grant"},
		"refresh of another client":  {func(t *testing.T) url.Values { return with(refreshed(t), "client_id", "other") }, "invalid_grant"},
		"credentials":                {func(*testing.T) url.Values { return bot }, ""},
		"credentials, wrong secret":  {func(*testing.T) url.Values { return with(bot, "client_secret", "x") }, "invalid_client"},
		"credentials, no secret":     {func(*testing.T) url.Values { return with(bot, "client_secret", "") }, "invalid_client"},
		"credentials, public client": {func(*testing.T) url.Values { return with(bot, "client_id", "app", "client_secret", "") }, "unauthorized_client"},
		"credentials, unknown scope": {func(*testing.T) url.Values { return with(bot, "scope", "admin") }, "invalid_scope"},
		"unknown client":             {func(*testing.T) url.Values { return with(bot, "client_id", "absent") }, "invalid_client"},
		"unknown grant type":         {func(*testing.T) url.Values { return with(bot, "grant_type", "password") }, "unsupported_grant_type"},
		"grant type of others":       {func(*testing.T) url.Values { return with(bot, "grant_type", refreshToken) }, "unauthorized_client"},
		"secret of a public client":  {func(t *testing.T) url.Values { return with(login(t), "client_secret", "x") }, "invalid_client"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			answer, problem := post(t, server, test.form(t))
			if problem != test.want {
				t.Fatalf("error %q, want %q: %v", problem, test.want, answer)
			}
			if token, _ := answer["access_token"].(string); problem == "" {
				if _, err := verify(server.Keys(), server.Issuer, resource, token); err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Run("claims", func(t *testing.T) {
		server.SetUser(User{Subject: "bob", Groups: []string{"sre"}, Scopes: []string{"openid", "read"}})
		got := map[string]claims{}
		for name, form := range map[string]url.Values{
			"next user": login(t, "scope", "openid read write"), "login_hint": login(t, "login_hint", "carol"), "credentials": bot,
		} {
			answer, _ := post(t, server, form)
			token, err := verify(server.Keys(), server.Issuer, resource, answer["access_token"].(string))
			if err != nil {
				t.Fatal(err)
			}
			if _, there := answer["id_token"]; there != (name == "next user") || answer["scope"] != token.Scope {
				t.Errorf("%s: id_token %v, scope %v", name, there, answer["scope"])
			}
			got[name] = claims{Scope: token.Scope, Client: token.Client + " for " + token.Subject, Groups: token.Groups}
		}
		want := map[string]claims{
			"next user":   {Scope: "openid read", Client: "app for bob", Groups: []string{"sre"}},
			"login_hint":  {Scope: "read write", Client: "app for carol"},
			"credentials": {Scope: "read", Client: "bot for bot"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("tokens (-want +got):\n%s", diff)
		}
	})
	t.Run("two resources", func(t *testing.T) {
		form := maps.Clone(bot)
		form["resource"] = []string{resource, resource + "2"}
		answer, _ := post(t, server, form)
		got, err := verify(server.Keys(), server.Issuer, resource+"2", answer["access_token"].(string))
		if diff := cmp.Diff(form["resource"], []string(got.Audience)); err != nil || diff != "" {
			t.Errorf("%v, audience (-want +got):\n%s", err, diff)
		}
	})
}

func TestRegister(t *testing.T) {
	server := start(t)
	for name, test := range map[string]struct{ body, want string }{
		"public":             {`{"redirect_uris":["` + callback + `"],"token_endpoint_auth_method":"none"}`, ""},
		"with a secret":      {`{"redirect_uris":["` + callback + `"]}`, ""},
		"no redirect":        {`{}`, "invalid_redirect_uri"},
		"relative redirect":  {`{"redirect_uris":["/callback"]}`, "invalid_redirect_uri"},
		"unknown method":     {`{"redirect_uris":["` + callback + `"],"token_endpoint_auth_method":"private_key_jwt"}`, "invalid_client_metadata"},
		"no JSON":            {`redirect_uris=x`, "invalid_client_metadata"},
		"secret of its own":  {`{"redirect_uris":["` + callback + `"],"client_id":"app","client_secret":"mine"}`, ""},
		"script as redirect": {`{"redirect_uris":["javascript:alert(1)"]}`, "invalid_redirect_uri"},
	} {
		t.Run(name, func(t *testing.T) {
			response, err := server.HTTPClient().Post(server.Issuer+"/register", "application/json", strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			var got struct {
				Client
				Error string `json:"error"`
			}
			if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
				t.Fatal(err)
			}
			if got.Error != test.want || (response.StatusCode == http.StatusCreated) != (test.want == "") {
				t.Fatalf("%s, error %q, want %q", response.Status, got.Error, test.want)
			}
			if test.want == "" && (len(got.ID) < 20 || (got.Secret == "") != (got.AuthMethod == "none") || got.Secret == "mine") {
				t.Errorf("got %+v", got.Client)
			}
		})
	}
}
