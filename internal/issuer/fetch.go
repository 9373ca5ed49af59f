package issuer

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/addresspolicy"
	"github.com/slipway-mcp/slipway/internal/version"
)

const (
	fetchTimeout     = 10 * time.Second // for all requests of a fetch together
	maxDocumentBytes = 1 << 20
	maxHeaderBytes   = 64 << 10
	maxRedirects     = 5
)

// fetcher gets keys. Issuers are not trusted: the author of an MCPServer names them, and they say where to
// go on. It goes through the proxies of the environment (HTTPS_PROXY, NO_PROXY); then the proxy looks the
// names up, so of the addresses that are never dialed only those that are written out are recognized.
type fetcher struct {
	cluster   APIServer
	addresses addresspolicy.Policy
	timeout   time.Duration
}

// fetch gets the keys of a source. With errNoKeys it also returns what the issuer says of itself.
func (f *fetcher) fetch(ctx context.Context, source Source) (Keys, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if source.Cluster {
		return f.fetchCluster(ctx)
	}
	client, err := f.client(source)
	if err != nil {
		return Keys{}, err
	}
	defer client.CloseIdleConnections()
	metadata, err := discover(ctx, client, source.URL)
	if err != nil {
		return Keys{}, err
	}
	text, err := read(ctx, client, metadata.JWKS)
	if err != nil {
		return Keys{}, err
	}
	set, err := readKeySet(text)
	if err != nil {
		return Keys{}, err
	}
	return set.of(source.URL, metadata.warnings()...)
}

// client is one for a single fetch, so that nothing of an issuer outlives it.
func (f *fetcher) client(source Source) (*http.Client, error) {
	var roots *x509.CertPool
	if source.CABundle != "" {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(source.CABundle)) {
			return nil, errCABundle
		}
	}
	dialer := &net.Dialer{Control: f.addresses.Control}
	return &http.Client{
		Transport: &guard{f.addresses, &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			MaxResponseHeaderBytes: maxHeaderBytes,
			// Nothing that is read here is worth it, and it could grow without end.
			DisableCompression: true,
		}},
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return errRedirects
			}
			return nil
		},
	}, nil
}

// guard refuses requests that must not be made, those of redirects included.
type guard struct {
	addresses addresspolicy.Policy
	*http.Transport
}

// RoundTrip sends a request if it may be sent.
func (g *guard) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		return nil, errDowngrade
	}
	if err := g.addresses.CheckHost(request.URL); err != nil {
		return nil, err
	}
	return g.Transport.RoundTrip(request)
}

// read gets one document.
func read(ctx context.Context, client *http.Client, from string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, errURL
	}
	request.Header.Set("Accept", "application/json, application/jwk-set+json")
	request.Header.Set("User-Agent", "slipway/"+version.Get().Version)
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, statusError(response.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxDocumentBytes+1))
	// An issuer can end its answer at the moment when the client closes the connection. This is still too late.
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return nil, err
	}
	if len(text) > maxDocumentBytes {
		return nil, errTooLarge
	}
	return text, nil
}

// metadata is what an issuer says of itself, by RFC 8414 or OpenID Connect Discovery.
type metadata struct {
	Issuer            string   `json:"issuer"`
	JWKS              string   `json:"jwks_uri"`
	ChallengeMethods  []string `json:"code_challenge_methods_supported"`
	ClientIDDocuments bool     `json:"client_id_metadata_document_supported"`
	Registration      string   `json:"registration_endpoint"`
}

// The warnings about what clients need to log in.
const (
	warningPKCE         = "its metadata does not have S256 in code_challenge_methods_supported: MCP clients refuse to log in there"
	warningRegistration = "its metadata has neither client_id_metadata_document_supported nor registration_endpoint: only clients that are registered there beforehand can log in"
)

func (m metadata) warnings() []string {
	var warnings []string
	if !slices.Contains(m.ChallengeMethods, "S256") {
		warnings = append(warnings, warningPKCE)
	}
	if !m.ClientIDDocuments && m.Registration == "" {
		warnings = append(warnings, warningRegistration)
	}
	return warnings
}

// discover reads the metadata of an issuer where MCP clients look for it, in the same order. The first
// counts that is the issuer's own and says where its keys are. If none does, the error is that of the
// first place where there was something.
func discover(ctx context.Context, client *http.Client, issuer string) (metadata, error) {
	places, err := wellKnown(issuer)
	if err != nil {
		return metadata{}, err
	}
	var first error
	for _, place := range places {
		found, err := readMetadata(ctx, client, place, issuer)
		if err == nil {
			return found, nil
		}
		if status, nothing := errors.AsType[statusError](first); first == nil || nothing && status == http.StatusNotFound {
			first = err
		}
	}
	return metadata{}, first
}

func readMetadata(ctx context.Context, client *http.Client, place, issuer string) (metadata, error) {
	text, err := read(ctx, client, place)
	if err != nil {
		return metadata{}, err
	}
	var found metadata
	if err := json.Unmarshal(text, &found); err != nil {
		return metadata{}, errMetadata
	}
	if found.Issuer != issuer {
		return metadata{}, errIssuer
	}
	if keys, err := url.Parse(found.JWKS); err != nil || keys.Scheme != "https" || keys.Host == "" {
		return metadata{}, errNoJWKS
	}
	return found, nil
}

// parseIssuer reads the URL of an issuer. Dots in its path could lead out of what is allowed.
func parseIssuer(issuer string) (*url.URL, error) {
	parsed, err := url.Parse(issuer)
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil || strings.ContainsAny(issuer, "?#") {
		return nil, errURL
	}
	if plain := strings.TrimSuffix(parsed.Path, "/"); plain != "" && path.Clean(plain) != plain {
		return nil, errURL
	}
	return parsed, nil
}

// wellKnown are the places of an issuer's metadata.
func wellKnown(issuer string) ([]string, error) {
	parsed, err := parseIssuer(issuer)
	if err != nil {
		return nil, err
	}
	origin, tenant := "https://"+parsed.Host, strings.TrimSuffix(parsed.EscapedPath(), "/")
	places := []string{
		origin + "/.well-known/oauth-authorization-server" + tenant,
		origin + "/.well-known/openid-configuration" + tenant,
	}
	if tenant != "" {
		places = append(places, origin+tenant+"/.well-known/openid-configuration")
	}
	return places, nil
}
