package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote"
)

// MetadataPath is where a server that checks tokens itself names the authorization servers that it
// trusts (RFC 9728).
const MetadataPath = access.MetadataPath

const (
	metadataMethods   = "GET, HEAD"
	metadataBytes     = 64 << 10
	metadataTimeout   = 10 * time.Second
	metadataAtATime   = 16
	headerAllowOrigin = "Access-Control-Allow-Origin"
)

// Metadata are routes, by path, for the metadata of a server. They are needed because clients find the
// server's endpoint at another path than the server has it.
//
// The bytes of the document are the server's. So the server must know the URL that clients use, which
// the document names.
func Metadata(at *url.URL, endpoint string) map[string]edge.Route {
	server, slots := remote.NewEndpoint(at), make(chan struct{}, metadataAtATime)
	ofHost := url.URL{Scheme: at.Scheme, Host: at.Host, Path: MetadataPath}
	ofPath := ofHost
	if at.Path != "" && at.Path != "/" { // section 3.1: path and query follow the well-known part
		ofPath.Path, ofPath.RawPath, ofPath.RawQuery = MetadataPath+at.Path, MetadataPath+at.EscapedPath(), at.RawQuery
	}
	return map[string]edge.Route{
		MetadataPath:            (&metadata{server, &ofHost, slots}).route(),
		MetadataPath + endpoint: (&metadata{server, &ofPath, slots}).route(),
	}
}

type metadata struct {
	server *remote.Endpoint
	url    *url.URL
	slots  chan struct{} // bounds the requests at a time: clients need no token for them
}

func (m *metadata) route() edge.Route {
	return edge.Route{Methods: metadataMethods, Check: m.check, Serve: m.serve}
}

func (m *metadata) check(w http.ResponseWriter, r *edge.Request) bool {
	r.Record.Front = edge.HTTPServer
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", metadataMethods)
		front.RefusePlain(w, http.StatusMethodNotAllowed, "metadata is read-only")
		return false
	}
	return true
}

func (m *metadata) serve(w http.ResponseWriter, r *edge.Request) {
	select {
	case m.slots <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "1")
		front.RefusePlain(w, http.StatusServiceUnavailable, "too many requests for metadata are in flight")
		return
	}
	header, body, err := m.fetch(r.Context())
	<-m.slots
	switch {
	case errors.Is(err, errNoMetadata):
		http.Error(w, err.Error(), http.StatusNotFound) // the server has none, which is not worth a log line
	case err != nil:
		front.RefusePlain(w, http.StatusBadGateway, "the adapter cannot get the server's metadata: "+err.Error())
	default:
		write(w, r, header, body)
	}
}

// errNoMetadata says that the server works, but has no metadata at this path.
var errNoMetadata = errors.New("the server publishes no metadata here")

// fetch asks the server. It passes no header of the client on: the document is public, and tokens go to
// the endpoint only.
func (m *metadata) fetch(ctx context.Context) (http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	header := http.Header{"Accept": {front.TypeJSON}, "Accept-Encoding": {"identity"}, "User-Agent": {""}}
	response, err := m.server.Send(remote.NewRequest(ctx, http.MethodGet, m.url, header, nil))
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")) // a type that cannot be read is not JSON
	switch status := response.StatusCode; {
	case status >= http.StatusInternalServerError:
		return nil, nil, fmt.Errorf("it answers with status %d", status)
	case status != http.StatusOK:
		return nil, nil, fmt.Errorf("%w: it answers with status %d", errNoMetadata, status)
	case media != front.TypeJSON: // some servers have a page for every path
		return nil, nil, fmt.Errorf("%w: its answer is not JSON", errNoMetadata)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, metadataBytes+1))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("read metadata: %w", err)
	case len(body) > metadataBytes:
		return nil, nil, fmt.Errorf("it is larger than %d bytes", metadataBytes)
	}
	return response.Header, body, nil
}

// write answers with the document. Any page may read it, unless the server says otherwise. The edge has
// decided which pages may ask.
func write(w http.ResponseWriter, r *edge.Request, said http.Header, body []byte) {
	header := w.Header()
	header.Set(headerAllowOrigin, "*")
	for _, name := range []string{"Content-Type", "Cache-Control", headerAllowOrigin} {
		if values := said[name]; len(values) > 0 {
			header[name] = values
		}
	}
	header["Vary"] = append(header["Vary"], said["Vary"]...)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	_ = front.NewWriter(w, metadataTimeout, nil).Write(body) // the client has it, or is gone
}
