package upstream

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

const acceptBoth = front.TypeJSON + ", " + front.TypeEvents

// Headers that repeat what stands in the body of a request.
const (
	headerMethod = "Mcp-Method"
	headerName   = "Mcp-Name"
	headerParam  = "Mcp-Param-"
)

// hopByHop are the headers that concern one connection only.
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// notForwarded are further headers of a request that the server does not get.
var notForwarded = []string{
	front.HeaderSession,    // names a session to us; the server's own id takes its place
	adapterapi.HeaderProbe, // is between the manager and us
	// We have checked where the request comes from. The server would refuse every
	// place that it has not been told of.
	"Origin", "Referer", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest", "Sec-Fetch-User",
	// The body was read and is sent anew.
	"Expect", "Content-Length", "Content-Encoding",
	// Anybody can say anything in these, and servers believe a peer on loopback.
	"Forwarded", "X-Real-Ip",
}

// cleaned are the headers without those that the server does not get.
func cleaned(header http.Header) http.Header {
	header = header.Clone()
	removeHopByHop(header)
	for _, name := range notForwarded {
		header.Del(name)
	}
	for name := range header {
		// Some servers cannot tell an underscore from a hyphen.
		if strings.HasPrefix(name, "X-Forwarded-") || strings.Contains(name, "_") {
			header.Del(name)
		}
	}
	return header
}

// shownBy are the headers that every request on behalf of a caller has: whatever else its
// client sends is about one request, and not about all that share a connection.
func shownBy(from *caller.Caller) http.Header {
	header := http.Header{
		"Accept-Encoding": {"identity"},
		"User-Agent":      {""}, // as for the requests that are forwarded
	}
	if from != nil && len(from.Authorization) > 0 {
		header["Authorization"] = slices.Clone(from.Authorization)
	}
	return header
}

// sender is on whose behalf a message is sent, and what the server is shown for that.
type sender struct {
	from   *caller.Caller // nil is the adapter
	header http.Header
}

func senderOf(from *caller.Caller) sender {
	header := shownBy(from)
	maps.Copy(header, from.Trace)
	return sender{from: from.Clone(), header: header}
}

// isAccepted says whether the server has let the sender in by an answer with the status,
// and tells the sender.
func (s sender) isAccepted(status int) bool {
	if s.from == nil || status >= http.StatusMultipleChoices {
		return false
	}
	if s.from.Accepted != nil {
		s.from.Accepted()
	}
	return true
}

// senders are those of the messages of one session.
type senders struct {
	opener   http.Header                 // of the caller that the session was opened for
	accepted atomic.Pointer[http.Header] // of the caller that the server has let in last
}

// sender returns the sender of a message. Knowing the id of a session gives no rights: the
// server is shown what the client shows that has sent the message.
func (s *senders) sender(from *caller.Caller) sender {
	if from == nil {
		return sender{header: s.lastHeader()}
	}
	return senderOf(from)
}

// lastHeader is for what no message asks for. What clients show expires, so it is not the
// one that the session was opened with.
func (s *senders) lastHeader() http.Header {
	if accepted := s.accepted.Load(); accepted != nil {
		return *accepted
	}
	return s.opener
}

// noteAnswer notes whether the server has let the sender in.
func (s *senders) noteAnswer(by sender, status int) {
	if !by.isAccepted(status) {
		return
	}
	header := by.header
	if by.from.Trace != nil {
		header = shownBy(by.from)
	}
	s.accepted.Store(&header)
}

// forwarded are the headers that the server gets with a request.
func forwarded(r *edge.Request) http.Header {
	header := cleaned(r.Header)
	if r.Caller.Address != "" {
		header.Set("X-Forwarded-For", r.Caller.Address)
	}
	// Comments are put between events, which must not be compressed for that.
	header.Set("Accept-Encoding", "identity")
	if r.Method == http.MethodPost {
		// Without parameters: nobody shall read the body in another character set.
		header.Set("Content-Type", front.TypeJSON)
		// Servers look for both by name.
		if accept := header.Get("Accept"); accept == "" || strings.Contains(accept, "*/*") {
			header.Set("Accept", acceptBoth)
		}
	}
	if _, ok := header["User-Agent"]; !ok {
		header.Set("User-Agent", "") // else ours would stand there
	}
	return header
}

func removeHopByHop(header http.Header) {
	for _, value := range header.Values("Connection") {
		for name := range strings.SplitSeq(value, ",") {
			header.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		header.Del(name)
	}
}

// answered are the headers that the client gets with an answer.
func answered(dst, header http.Header) {
	removeHopByHop(header)
	header.Del(front.HeaderSession) // the server's own id is told to nobody
	front.DropCORS(header)
	if ours := dst["Vary"]; len(ours) > 0 {
		header["Vary"] = append(slices.Clone(ours), header["Vary"]...)
	}
	maps.Copy(dst, header)
}

// isHeaderValue says whether what a server said may stand in a header of ours. For
// the ids of sessions that is what they may consist of (T-14).
func isHeaderValue(value string) bool {
	const longest = 4096
	if value == "" || len(value) > longest {
		return false
	}
	for i := range len(value) {
		if value[i] < 0x21 || value[i] > 0x7e {
			return false
		}
	}
	return true
}

// newRequest is a request to the server, without headers yet.
func newRequest(ctx context.Context, method string, to *url.URL, body []byte) *http.Request {
	request := (&http.Request{Method: method, URL: to, Host: to.Host, Header: http.Header{}}).WithContext(ctx)
	if body != nil {
		request.ContentLength = int64(len(body))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		request.Body, _ = request.GetBody() //nolint:forbidigo // It is a request of ours, and GetBody never fails.
	}
	return request
}
