package authserver

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The grant types.
const (
	authorizationCode = "authorization_code"
	refreshToken      = "refresh_token"
	clientCredentials = "client_credentials"
)

// codeLifetime bounds how long a client has to exchange a code.
const codeLifetime = time.Minute

// grant is what a user, or a client for itself, was given.
type grant struct {
	client              Client
	user                User
	scopes, resources   []string
	redirect, challenge string
	nonce               string
	expires             time.Time // of a code
}

// authorize logs in the user of login_hint, or else the user of SetUser.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	client, err := s.client(r.Context(), query.Get("client_id"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest) // an unknown client gets no redirect
		return
	}
	target, err := url.Parse(query.Get("redirect_uri"))
	if err != nil || !slices.Contains(client.RedirectURIs, query.Get("redirect_uri")) {
		http.Error(w, "redirect_uri is not registered", http.StatusBadRequest)
		return
	}
	values := target.Query()
	values.Set("iss", s.Issuer)
	if query.Has("state") {
		values.Set("state", query.Get("state"))
	}
	if code, problem := s.approve(client, query); problem != nil {
		values.Set("error", problem.code)
		values.Set("error_description", problem.description)
	} else {
		values.Set("code", code)
	}
	target.RawQuery = values.Encode()
	http.Redirect(w, r, target.String(), http.StatusFound)
}

func (s *Server) approve(client Client, query url.Values) (code string, refusal *problem) {
	if refusal := checkAuthorization(client, query); refusal != nil {
		return "", refusal
	}
	scopes, refusal := s.checkScopes(query.Get("scope"))
	if refusal != nil {
		return "", refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	user := s.user
	if hint := query.Get("login_hint"); hint != "" && hint != user.Subject {
		user = User{Subject: hint}
	}
	granted := slices.DeleteFunc(slices.Clone(scopes), func(scope string) bool { return user.Scopes != nil && !slices.Contains(user.Scopes, scope) })
	if len(scopes) > 0 && len(granted) == 0 {
		return "", &problem{"access_denied", "the user may have none of these scopes"}
	}
	code = rand.Text()
	s.codes[code] = grant{
		client: client, user: user, scopes: granted, resources: query["resource"],
		redirect: query.Get("redirect_uri"), challenge: query.Get("code_challenge"), nonce: query.Get("nonce"), expires: time.Now().Add(codeLifetime),
	}
	return code, nil
}

func checkAuthorization(client Client, query url.Values) *problem {
	for name, values := range query {
		if len(values) > 1 && name != "resource" {
			return &problem{"invalid_request", name + " is there twice"}
		}
	}
	switch {
	case query.Get("response_type") != "code":
		return &problem{"unsupported_response_type", "want code"}
	case !client.may(authorizationCode):
		return &problem{"unauthorized_client", "the client may not use this grant type"}
	case query.Get("code_challenge_method") != "S256" || len(query.Get("code_challenge")) != base64.RawURLEncoding.EncodedLen(sha256.Size):
		return &problem{"invalid_request", "PKCE with S256 is required"}
	}
	return checkResources(query["resource"], nil)
}

// token is the token endpoint.
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		refuse(w, &problem{"invalid_request", err.Error()})
		return
	}
	client, err := s.authenticate(r)
	if err != nil {
		refuse(w, err)
		return
	}
	grantType := r.PostForm.Get("grant_type")
	redeem := map[string]func(Client, url.Values) (grant, *problem){
		authorizationCode: s.redeemCode, refreshToken: s.redeemRefresh, clientCredentials: s.redeemCredentials,
	}[grantType]
	if redeem == nil {
		refuse(w, &problem{"unsupported_grant_type", grantType})
		return
	}
	if !client.may(grantType) {
		refuse(w, &problem{"unauthorized_client", "the client may not use this grant type"})
		return
	}
	given, refusal := redeem(client, r.PostForm)
	if refusal == nil {
		refusal = checkResources(r.PostForm["resource"], given.resources)
	}
	if refusal != nil {
		refuse(w, refusal)
		return
	}
	answer(w, http.StatusOK, s.issue(grantType, given, r.PostForm["resource"]))
}

// redeemCode takes a code, which is then gone, whether the rest fits or not.
func (s *Server) redeemCode(client Client, form url.Values) (grant, *problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	given, known := s.codes[form.Get("code")]
	delete(s.codes, form.Get("code"))
	digest := sha256.Sum256([]byte(form.Get("code_verifier")))
	switch {
	case !known || given.client.ID != client.ID || time.Now().After(given.expires):
		return grant{}, &problem{"invalid_grant", "the code is not valid"}
	case form.Has("redirect_uri") && given.redirect != form.Get("redirect_uri"): // OAuth 2.1 has it no more
		return grant{}, &problem{"invalid_grant", "redirect_uri is another"}
	case given.challenge != base64.RawURLEncoding.EncodeToString(digest[:]):
		return grant{}, &problem{"invalid_grant", "code_verifier does not fit"}
	}
	return given, nil
}

// redeemRefresh takes a refresh token, which is then gone: a new one comes with the answer.
func (s *Server) redeemRefresh(client Client, form url.Values) (grant, *problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	given, known := s.refresh[form.Get("refresh_token")]
	if !known || given.client.ID != client.ID {
		return grant{}, &problem{"invalid_grant", "the refresh token is not valid"}
	}
	if wanted := strings.Fields(form.Get("scope")); len(wanted) > 0 {
		if slices.ContainsFunc(wanted, func(scope string) bool { return !slices.Contains(given.scopes, scope) }) {
			return grant{}, &problem{"invalid_scope", "a refreshed token cannot have more scopes"}
		}
		given.scopes = wanted
	}
	delete(s.refresh, form.Get("refresh_token"))
	return given, nil
}

func (s *Server) redeemCredentials(client Client, form url.Values) (grant, *problem) {
	if client.Secret == "" {
		return grant{}, &problem{"unauthorized_client", "the client has no secret"}
	}
	scopes, refusal := s.checkScopes(form.Get("scope"))
	return grant{client: client, user: User{Subject: client.ID}, scopes: scopes, resources: form["resource"]}, refusal
}

// issue makes the answer with the tokens. A client may name fewer resources than it was granted.
func (s *Server) issue(grantType string, given grant, resources []string) map[string]any {
	if len(resources) == 0 {
		resources = given.resources
	}
	claims := map[string]any{"sub": given.user.Subject, "client_id": given.client.ID, "azp": given.client.ID, "scope": strings.Join(given.scopes, " ")}
	switch len(resources) {
	case 0:
		if s.options.Audience != "" {
			claims["aud"] = s.options.Audience
		}
	case 1:
		claims["aud"] = resources[0]
	default:
		claims["aud"] = resources
	}
	if given.user.Groups != nil {
		claims["groups"] = given.user.Groups
	}
	issued := map[string]any{
		"access_token": s.Mint(claims), "token_type": "Bearer",
		"expires_in": int(s.options.Lifetime.Seconds()), "scope": strings.Join(given.scopes, " "),
	}
	if slices.Contains(given.scopes, "openid") {
		issued["id_token"] = s.Mint(map[string]any{"sub": given.user.Subject, "aud": given.client.ID, "nonce": given.nonce}, Header("typ", "JWT"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = append(s.served, grantType)
	if grantType != clientCredentials && given.client.may(refreshToken) {
		next := rand.Text()
		s.refresh[next] = given
		issued["refresh_token"] = next
	}
	return issued
}

func (s *Server) checkScopes(scope string) ([]string, *problem) {
	scopes := strings.Fields(scope)
	for _, name := range scopes {
		if s.options.Scopes != nil && !slices.Contains(s.options.Scopes, name) {
			return nil, &problem{"invalid_scope", name}
		}
	}
	return scopes, nil
}

// checkResources takes any resource, or only those that were granted.
func checkResources(resources, granted []string) *problem {
	for _, resource := range resources {
		if !absolute(resource) || granted != nil && !slices.Contains(granted, resource) {
			return &problem{"invalid_target", resource}
		}
	}
	return nil
}
