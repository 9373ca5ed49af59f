package registry

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
)

const (
	// maxRequests bounds the requests for one image: those for a token and those of
	// redirects included.
	maxRequests = 24
	// maxRedirects bounds the redirects of one request.
	maxRedirects = 5
	// maxBodyBytes bounds every answer, whoever reads it.
	maxBodyBytes = 16 << 20
)

// metadata are the addresses that clouds answer at with credentials of the machine,
// apart from those which are link-local.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle
}

// nat64 is the prefix under which a network without IPv4 has the IPv4 addresses.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// refused says whether an address is never dialled. Loopback and private addresses are
// not among them: that is where registries inside a cluster are.
func refused(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	if nat64.Contains(address) {
		bytes := address.As16()
		address = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return slices.Contains(metadata, address) || address.IsLinkLocalUnicast() || address.IsMulticast() || address.IsUnspecified()
}

// refuseAddress is what a dialer asks before it connects, when names have become
// addresses.
func refuseAddress(_, address string, _ syscall.RawConn) error {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		return &refusedError{"leads to an address that cannot be read"}
	}
	if refused(parsed.Addr()) {
		return neverAsked(parsed.Addr())
	}
	return nil
}

// refusedError is that a registry leads to a place that is never asked.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

func neverAsked(address netip.Addr) error {
	return &refusedError{"leads to " + address.String() + ": link-local addresses and those of cloud metadata are never asked"}
}

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
	if err := checkHost(request.URL); err != nil {
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
			if err := checkHost(parsed); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkHost refuses a host that is written as an address which is never dialled. The
// dialer would do so as well, unless there is a proxy.
func checkHost(target *url.URL) error {
	if address, err := netip.ParseAddr(target.Hostname()); err == nil && refused(address) {
		return neverAsked(address)
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
