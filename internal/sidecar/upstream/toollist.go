package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// better are other headers for a request that was refused for its own, or nil. They are looked
// for in a fresh list of tools; and a name is sent as it is, because servers of the Go
// SDK (measured with v1.8.0) do not decode it.
func (c *ModernConnection) better(ctx context.Context, request session.Message, header, refused http.Header) http.Header {
	if string(request.Envelope.Method) == methodCallTool && c.tools.mayAsk() {
		_ = c.listTools(ctx, request, header) // else the server's refusal is the answer
		c.tools.noteAsked()
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

// toolsFresh is how old a list of tools may be before it is asked for again. There are
// servers that refuse every call.
const toolsFresh = time.Second

func (t *mirroredTools) mayAsk() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.asked) > toolsFresh
}

func (t *mirroredTools) noteAsked() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = time.Now()
}

const (
	// toolsTimeout is for the server to list its tools, while a call waits.
	toolsTimeout = 10 * time.Second
	toolPages    = 1000
)

var errManyTools = errors.New("the list of tools does not end")

// listTools learns from the whole list of tools. It is asked for in the name of the
// client whose call was refused, and by that call's id, which the server is done with.
func (c *ModernConnection) listTools(ctx context.Context, refused session.Message, header http.Header) error {
	ctx, cancel := context.WithTimeout(ctx, toolsTimeout)
	defer cancel()
	e := &refused.Envelope
	head := `{"jsonrpc":"2.0","id":` + string(e.ID.Of(refused.Bytes)) + `,"method":"` + methodListTools + `","params":{"_meta":` + string(e.Meta.Of(refused.Bytes))
	text := head + "}}"
	seen := map[string]bool{}
	for range toolPages {
		page, err := c.fetchPage(ctx, []byte(text), header)
		if err != nil {
			return err
		}
		c.tools.take(page)
		switch {
		case page.NextCursor == nil:
			return nil
		case seen[*page.NextCursor]:
			return errManyTools
		}
		seen[*page.NextCursor] = true
		text = head + `,"cursor":` + string(rpc.AppendString(nil, *page.NextCursor)) + "}}"
	}
	return errManyTools
}

func (c *ModernConnection) fetchPage(ctx context.Context, text []byte, header http.Header) (*toolsPage, error) {
	envelope, err := rpc.Scan(text)
	if err != nil {
		return nil, fmt.Errorf("ask for the list of tools: %w", err)
	}
	request := session.Message{Bytes: text, Envelope: envelope}
	response, err := c.post(ctx, text, withAll(header, c.tools.mirror(request)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	result, err := c.readResult(response, envelope.ID.Of(text))
	if err != nil {
		return nil, err
	}
	var page toolsPage
	if err := json.Unmarshal(result, &page); err != nil {
		return nil, fmt.Errorf("read the list of tools: %w", err)
	}
	return &page, nil
}

// readResult reads an answer that nobody else gets.
func (c *ModernConnection) readResult(response *http.Response, id []byte) ([]byte, error) {
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("the server answers %s with status %d", methodListTools, response.StatusCode)
	}
	if !isEvents(response.Header) {
		body, err := c.readBody(response)
		if err != nil {
			return nil, err
		}
		return resultIn(body, id)
	}
	events := NewEventReader(response.Body, c.options.MessageBytes, c.options.Memory)
	for {
		event, err := events.Next()
		if err != nil {
			return nil, fmt.Errorf("wait for the list of tools: %w", err)
		}
		if result, err := resultIn(event.Data, id); err == nil {
			return result, nil
		}
	}
}

var errNoResult = errors.New("the server does not answer with a result")

func resultIn(message, id []byte) ([]byte, error) {
	envelope, err := rpc.ScanLenient(message)
	if err != nil || !envelope.Result.Present() || !rpc.SameID(envelope.ID.Of(message), id) {
		return nil, errNoResult
	}
	return envelope.Result.Of(message), nil
}

// withAll is a copy of the header with more.
func withAll(header, more http.Header) http.Header {
	all := header.Clone()
	maps.Copy(all, more)
	return all
}
