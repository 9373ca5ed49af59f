package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

// better are other headers for a request that was refused for its own, or nil. They are looked
// for in a fresh list of tools; and a name is sent as it is, because servers of the Go
// SDK (measured with v1.8.0) do not decode it.
func (c *Stateless) better(ctx context.Context, request session.Message, header, refused http.Header) http.Header {
	if string(request.Envelope.Method) == methodCallTool {
		// There are servers that refuse every call, so a list that is fresh will do.
		c.tools.Refresh(ctx, string(request.Envelope.Name), toolindex.Fresh, c.toolList(request, header))
	}
	other := c.tools.mirror(request)
	sent, named := refused[headerName]
	if named {
		other[headerName] = sent
	}
	if !maps.EqualFunc(other, refused, slices.Equal) {
		return other
	}
	name := string(nameIn(request))
	if !named || name == sent[0] || strings.ContainsFunc(name, unicode.IsControl) {
		return nil
	}
	other[headerName] = []string{name}
	return other
}

// toolList asks for the list of tools in the name of the client whose call was refused, and
// by that call's id, which the server is done with.
func (c *Stateless) toolList(refused session.Message, header http.Header) toolindex.List[[]paramheader.Param] {
	e := &refused.Envelope
	head := `{"jsonrpc":"2.0","id":` + string(e.ID.Of(refused.Bytes)) + `,"method":"` + toolindex.Method + `","params":{`
	meta := `"_meta":` + string(e.Meta.Of(refused.Bytes)) + `}}`
	return toolindex.List[[]paramheader.Param]{
		Context: c.live, Keep: mirroredParams, Merge: true, // every client of the connection has its own list
		Fetch: func(ctx context.Context, cursor string) ([]byte, error) {
			return c.fetchPage(ctx, []byte(head+cursor+meta), header)
		},
	}
}

func (c *Stateless) fetchPage(ctx context.Context, text []byte, header http.Header) ([]byte, error) {
	envelope, err := rpc.Scan(text)
	if err != nil {
		return nil, fmt.Errorf("ask for the list of tools: %w", err)
	}
	response, err := c.post(ctx, text, withAll(header, c.tools.mirror(session.Message{Bytes: text, Envelope: envelope})))
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return c.readAnswer(response, envelope.ID.Of(text))
}

var errNoAnswer = errors.New("the server does not answer " + toolindex.Method)

// readAnswer reads an answer that no client gets.
func (c *Stateless) readAnswer(response *http.Response, id []byte) ([]byte, error) {
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%w: status %d", errNoAnswer, response.StatusCode)
	}
	if !IsEvents(response.Header) {
		body, err := c.readBody(response)
		if err == nil && !isAnswer(body, id) {
			err = errNoAnswer
		}
		return body, err
	}
	events := newEventReader(response.Body, c.server.MessageBytes, c.server.Memory)
	for {
		event, err := events.Next()
		if err != nil {
			return nil, fmt.Errorf("wait for the list of tools: %w", err)
		}
		if isAnswer(event.Data, id) {
			return event.Data, nil
		}
	}
}

func isAnswer(message, id []byte) bool {
	envelope, err := rpc.ScanLenient(message)
	return err == nil && envelope.Kind == rpc.Response && rpc.SameID(envelope.ID.Of(message), id)
}

// withAll is a copy of the header with more.
func withAll(header, more http.Header) http.Header {
	all := header.Clone()
	maps.Copy(all, more)
	return all
}
