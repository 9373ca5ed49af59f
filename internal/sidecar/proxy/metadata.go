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

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote"
)

// MetadataPath is where a server that checks tokens itself says which authorization
// servers it trusts (RFC 9728).
const MetadataPath = "/.well-known/oauth-protected-resource"

const (
	metadataMethods   = "GET, HEAD"
	metadataBytes     = 64 << 10
	metadataTimeout   = 10 * time.Second
	metadataAtATime   = 16
	headerAllowOrigin = "Access-Control-Allow-Origin"
)

// Metadata are front ends, by path, for the metadata of a server whose clients find its
// endpoint at another path than the server itself has it.
//
// The document's bytes are the server's. What it says of the resource, such as the URL
// that clients know it by, is for the server to know.
func Metadata(at *url.URL, endpoint string) map[string]edge.Route {
	server, slots := remote.NewEndpoint(at), make(chan struct{}, metadataAtATime)
	ofHost := url.URL{Scheme: at.Scheme, Host: at.Host, Path: MetadataPath}
	ofPath := ofHost
	if at.Path != "" && at.Path != "/" { // section 3.1: path and query stand behind the well-known part
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
	slots  chan struct{} // bounds how many are asked for at a time, as nobody proves anything to ask
}

func (m *metadata) route() edge.Route {
	return edge.Route{Methods: metadataMethods, Check: m.check, Serve: m.serve}
}

func (m *metadata) check(w http.ResponseWriter, r *edge.Request) bool {
	r.Record.Front = edge.HTTPServer
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", metadataMethods)
		front.RefusePlain(w, http.StatusMethodNotAllowed, "metadata can only be read")
		return false
	}
	return true
}

func (m *metadata) serve(w http.ResponseWriter, r *edge.Request) {
	select {
	case m.slots <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "1")
		front.RefusePlain(w, http.StatusServiceUnavailable, "too many ask for metadata at a time")
		return
	}
	document, err := m.fetch(r.Context())
	<-m.slots
	switch {
	case errors.Is(err, errNoMetadata):
		http.Error(w, err.Error(), http.StatusNotFound) // the server has none, which is nothing to log
	case err != nil:
		front.RefusePlain(w, http.StatusBadGateway, "the server's metadata cannot be had: "+err.Error())
	default:
		document.write(w, r)
	}
}

// errNoMetadata says that the server works, but has nothing to say here.
var errNoMetadata = errors.New("the server publishes no metadata here")

// document is what a server says, with the headers that go with it.
type document struct {
	header http.Header
	body   []byte
}

// fetch asks the server. It is told nothing of who asks: the document is for everybody, and
// whatever proves who a client is goes to the endpoint only.
func (m *metadata) fetch(ctx context.Context) (document, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	request := remote.NewRequest(ctx, http.MethodGet, m.url, nil)
	request.Header = http.Header{"Accept": {front.TypeJSON}, "Accept-Encoding": {"identity"}, "User-Agent": {""}}
	response, err := m.server.Send(request)
	if err != nil {
		return document{}, err
	}
	defer remote.Discard(response)
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")) // what cannot be read is no JSON
	switch status := response.StatusCode; {
	case status >= http.StatusInternalServerError:
		return document{}, fmt.Errorf("it answers with status %d", status)
	case status != http.StatusOK:
		return document{}, fmt.Errorf("%w: it answers with status %d", errNoMetadata, status)
	case media != front.TypeJSON: // some servers have a page for every path
		return document{}, fmt.Errorf("%w: what it answers is no JSON", errNoMetadata)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, metadataBytes+1))
	switch {
	case err != nil:
		return document{}, fmt.Errorf("read metadata: %w", err)
	case len(body) > metadataBytes:
		return document{}, fmt.Errorf("it is larger than %d bytes", metadataBytes)
	}
	return document{response.Header, body}, nil
}

// write answers with the document. Any page may read it, unless the server knows better;
// which pages may ask at all was decided before.
func (d document) write(w http.ResponseWriter, r *edge.Request) {
	header := w.Header()
	header.Set(headerAllowOrigin, "*")
	for _, name := range []string{"Content-Type", "Cache-Control", headerAllowOrigin} {
		if values := d.header[name]; len(values) > 0 {
			header[name] = values
		}
	}
	header["Vary"] = append(header["Vary"], d.header["Vary"]...)
	header.Set("Content-Length", strconv.Itoa(len(d.body)))
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	_ = front.NewWriter(w, metadataTimeout, nil).Write(d.body) // the client has it, or is gone
}
