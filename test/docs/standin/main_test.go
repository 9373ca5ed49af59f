package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// What is pushed to one registry is not in the other one, and Docker Hub has more than one name.
func TestRegistriesAreApart(t *testing.T) {
	server := httptest.NewServer(newRegistries([]string{"docker.io", "registry.example.com"}))
	t.Cleanup(server.Close)
	image, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	reference, err := name.ParseReference("index.docker.io/mcp/everything:latest", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(reference, image, remote.WithTransport(leadTo(server))); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]int{
		"?ns=docker.io":             http.StatusOK,
		"?ns=registry-1.docker.io":  http.StatusOK,
		"?ns=registry.example.com":  http.StatusNotFound,
		"?ns=registry.example.test": http.StatusNotFound,
		"":                          http.StatusNotFound, // the address of the server is the name of no registry
	} {
		response, err := http.Get(server.URL + "/v2/mcp/everything/manifests/latest" + target)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%q: status %d, want %d", target, response.StatusCode, want)
		}
	}
}

// leadTo is a transport that sends all requests to one server, as they are.
func leadTo(server *httptest.Server) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		redirected := request.Clone(request.Context())
		redirected.Host = request.URL.Host
		redirected.URL.Scheme, redirected.URL.Host = "http", strings.TrimPrefix(server.URL, "http://")
		response, err := http.DefaultTransport.RoundTrip(redirected)
		if err == nil {
			response.Request = request // what it says of its own address counts from there
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
