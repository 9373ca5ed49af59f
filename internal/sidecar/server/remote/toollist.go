package remote

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

// better are other headers for a request that the server refused for its own, or nil. They come from
// a fresh list of tools. The last resort is to send a name unencoded, because servers of the Go SDK
// (measured with v1.8.0) do not decode it.
func (c *Stateless) better(ctx context.Context, text []byte, sender, refused http.Header) http.Header {
	request, err := session.Message{Bytes: text}.Scanned()
	if err != nil {
		return nil // it was scanned before
	}
	if string(request.Envelope.Method) == rpc.MethodCallTool {
		// Some servers refuse every call, so a list that is still fresh is not asked for again.
		c.tools.Refresh(ctx, string(request.Envelope.Name), toolindex.Fresh, c.toolList(request, sender))
	}
	other := c.tools.mirror(request, sender)
	sent, named := refused[front.HeaderName]
	if named {
		other[front.HeaderName] = sent
	}
	if !maps.EqualFunc(other, refused, slices.Equal) {
		return other
	}
	plain, _ := rpc.NameOf(request.Bytes, &request.Envelope)
	name := string(plain)
	if !named || name == sent[0] || strings.ContainsFunc(name, unicode.IsControl) {
		return nil
	}
	other[front.HeaderName] = []string{name}
	return other
}

// toolList asks for the list of tools on behalf of the client whose call the server refused. It uses
// the id of that call, which is free again at the server.
func (c *Stateless) toolList(refused session.Message, sender http.Header) toolindex.List[[]paramheader.Param] {
	e := &refused.Envelope
	id := e.ID.Of(refused.Bytes)
	meta := `"_meta":` + string(e.Meta.Of(refused.Bytes))
	return toolindex.List[[]paramheader.Param]{
		Context: c.live, Keep: mirroredParams, Merge: true, // every client of the connection has its own list
		Fetch: func(ctx context.Context, cursor string) ([]byte, error) {
			return c.fetchPage(ctx, id, rpc.AppendRequest(nil, id, toolindex.Method, cursor+meta), sender)
		},
	}
}

func (c *Stateless) fetchPage(ctx context.Context, id, text []byte, sender http.Header) ([]byte, error) {
	request, err := session.Message{Bytes: text}.Scanned()
	if err != nil {
		return nil, err
	}
	response, err := c.post(ctx, text, c.tools.mirror(request, sender))
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("ask for the list of tools: the server answers with status %d", response.StatusCode)
	}
	return c.server.readAnswer(response, id)
}
