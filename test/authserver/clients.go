package authserver

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// maxBody bounds what the server reads.
const maxBody = 1 << 20

// Client is an application, as RFC 7591 and client ID metadata documents describe it.
type Client struct {
	ID           string   `json:"client_id"`
	Secret       string   `json:"client_secret,omitempty"`
	Name         string   `json:"client_name,omitempty"`
	RedirectURIs []string `json:"redirect_uris"`
	// AuthMethod is none for clients without a secret.
	AuthMethod string `json:"token_endpoint_auth_method,omitempty"`
	// GrantTypes are those that the client may use. Without any, it may use all.
	GrantTypes []string `json:"grant_types,omitempty"`
}

func (c Client) may(grantType string) bool {
	return len(c.GrantTypes) == 0 || slices.Contains(c.GrantTypes, grantType)
}

// register is dynamic registration.
func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var client Client
	if err := json.NewDecoder(io.LimitReader(r.Body, maxBody)).Decode(&client); err != nil {
		refuse(w, &problem{"invalid_client_metadata", err.Error()})
		return
	}
	if len(client.RedirectURIs) == 0 || slices.ContainsFunc(client.RedirectURIs, func(uri string) bool { return !absolute(uri) }) {
		refuse(w, &problem{"invalid_redirect_uri", "redirect_uris need absolute URIs without a fragment"})
		return
	}
	client.ID, client.Secret = rand.Text(), ""
	if client.GrantTypes == nil {
		client.GrantTypes = []string{authorizationCode}
	}
	switch client.AuthMethod {
	case "":
		client.AuthMethod = "client_secret_basic"
		fallthrough
	case "client_secret_basic", "client_secret_post":
		client.Secret = rand.Text()
	case "none":
	default:
		refuse(w, &problem{"invalid_client_metadata", "token_endpoint_auth_method is not supported"})
		return
	}
	s.mu.Lock()
	s.clients[client.ID] = client
	s.mu.Unlock()
	answer(w, http.StatusCreated, struct {
		Client
		SecretExpires int `json:"client_secret_expires_at"` // never
	}{Client: client})
}

// client finds a client that is registered, or whose ID is the URL of a document about it.
func (s *Server) client(ctx context.Context, id string) (Client, error) {
	s.mu.Lock()
	client, registered := s.clients[id]
	s.mu.Unlock()
	switch {
	case registered:
		return client, nil
	case !strings.HasPrefix(id, "https://") || !absolute(id):
		return Client{}, &problem{"invalid_client", "the client is not registered"}
	}
	client, err := s.fetchClient(ctx, id)
	if err != nil {
		return Client{}, &problem{"invalid_client", fmt.Sprintf("read client ID metadata document: %v", err)}
	}
	return client, nil
}

func (s *Server) fetchClient(ctx context.Context, id string) (Client, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, id, nil)
	if err != nil {
		return Client{}, err
	}
	response, err := s.HTTPClient().Do(request)
	if err != nil {
		return Client{}, err
	}
	defer func() { _ = response.Body.Close() }()
	var client Client
	if err := json.NewDecoder(io.LimitReader(response.Body, maxBody)).Decode(&client); err != nil {
		return Client{}, fmt.Errorf("%s: %w", response.Status, err)
	}
	if response.StatusCode != http.StatusOK || client.ID != id || client.Secret != "" {
		return Client{}, fmt.Errorf("%s, client_id %q", response.Status, client.ID)
	}
	return client, nil
}

// authenticate finds out which client asks for a token.
func (s *Server) authenticate(r *http.Request) (Client, error) {
	id, secret := r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	if user, password, ok := r.BasicAuth(); ok {
		var err error
		if id, err = url.QueryUnescape(user); err != nil {
			return Client{}, &problem{"invalid_client", err.Error()}
		}
		if secret, err = url.QueryUnescape(password); err != nil {
			return Client{}, &problem{"invalid_client", err.Error()}
		}
	}
	client, err := s.client(r.Context(), id)
	if err != nil {
		return Client{}, err
	}
	if subtle.ConstantTimeCompare([]byte(client.Secret), []byte(secret)) == 0 {
		return Client{}, &problem{"invalid_client", "the secret is wrong"}
	}
	return client, nil
}

// absolute says whether a URI can be redirected to, or named as a resource.
func absolute(uri string) bool {
	parsed, err := url.Parse(uri)
	return err == nil && parsed.IsAbs() && parsed.Host != "" && !strings.Contains(uri, "#")
}
