package registry

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/addresspolicy"
)

const (
	// maxRequests bounds the requests for one image: those for a token and those of
	// redirects included.
	maxRequests = 24
	// maxRedirects bounds the redirects of one request.
	maxRedirects = 5
	// maxBodyBytes bounds every answer, whichever code reads it.
	maxBodyBytes = 16 << 20
)

// addresses are those that are dialed. Loopback and private ones are among them: that is where registries
// inside a cluster are.
var addresses = addresspolicy.Policy{AllowLoopback: true}

// refusedError is that a registry leads to a place that is never asked.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// guard watches over the requests for one image. Registries are not trusted: they say
// where to get tokens and blobs, and how much to read.
type guard struct {
	base     http.RoundTripper
	registry string
	requests atomic.Int32
}

// leaveToGuard is the redirect policy of a client whose transport is guarded.
func leaveToGuard(*http.Request, []*http.Request) error { return nil }

// RoundTrip sends a request if it may be sent.
func (g *guard) RoundTrip(request *http.Request) (*http.Response, error) {
	if g.requests.Add(1) > maxRequests {
		return nil, errTooMany
	}
	if err := addresses.CheckHost(request.URL); err != nil {
		return nil, err
	}
	if err := g.checkRedirect(request); err != nil {
		return nil, err
	}
	response, err := g.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if err := checkNamed(response); err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	response.Body = &limitedBody{ReadCloser: response.Body, left: maxBodyBytes}
	return response, nil
}

var (
	errTooMany   = &answerError{Unavailable, "it wants too many requests for one image"}
	errRedirects = &answerError{Unavailable, "it redirects again and again"}
	errDowngrade = &answerError{Unavailable, "it redirects from TLS to plain HTTP"}
	errReplay    = &answerError{Unavailable, "its token server redirects a request that holds credentials"}
)

// checkRedirect says whether a redirect may be followed. Others are followed up to a
// number; the library takes care that they do not get the credentials.
func (g *guard) checkRedirect(request *http.Request) error {
	if request.Response == nil {
		return nil
	}
	hops := 0
	for r := request; r != nil && r.Response != nil; r = r.Response.Request {
		hops++
	}
	before := request.Response.Request
	switch {
	case hops > maxRedirects:
		return errRedirects
	case request.Method != http.MethodGet:
		return errReplay // its body is repeated, and there a refresh token is
	case before != nil && before.URL.Scheme == "https" && request.URL.Scheme != "https":
		return errDowngrade
	case internal(request.URL.Hostname()) && !internal(hostname(g.registry)):
		return &refusedError{"redirects to " + shortened(request.URL.Host) + ": from outside, nothing may lead to an address inside"}
	}
	return nil
}

func hostname(host string) string { return (&url.URL{Host: host}).Hostname() }

// internal says whether a name is plainly one of this machine or network.
func internal(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && (address.Unmap().IsLoopback() || address.Unmap().IsPrivate())
}

var realm = regexp.MustCompile(`(?i)realm="?([^",]+)`)

// checkNamed refuses an answer that names a place which is never asked, as the next
// or as the one to get a token from.
func checkNamed(response *http.Response) error {
	var places []string
	if response.StatusCode/100 == 3 {
		places = append(places, response.Header.Get("Location"))
	}
	for _, challenge := range response.Header.Values("WWW-Authenticate") {
		for _, match := range realm.FindAllStringSubmatch(challenge, -1) {
			places = append(places, match[1])
		}
	}
	for _, place := range places {
		if parsed, err := url.Parse(place); err == nil {
			if err := addresses.CheckHost(parsed); err != nil {
				return err
			}
		}
	}
	return nil
}

// limitedBody fails when a body goes on for too long.
type limitedBody struct {
	io.ReadCloser

	left int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("read: %w", errTooLarge)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
