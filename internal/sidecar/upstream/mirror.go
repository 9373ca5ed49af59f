package upstream

import (
	"bytes"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

const (
	methodListTools = "tools/list"
	methodCallTool  = "tools/call"
)

// mirroredTools is what is known of a server's tools: which of their arguments are
// repeated by headers. It is learnt from every list of tools that comes by, and from one
// that is asked for when a call is refused. A tool that is not known is called without.
type mirroredTools struct {
	mu     sync.Mutex
	params map[string][]paramheader.Param // of tools that have any
	asked  time.Time                      // when the list was last had for a call that was refused
}

// mostTools bounds how many are kept.
const mostTools = 10_000

// toolsPage is a part of the list of tools.
type toolsPage struct {
	Tools []struct {
		Name        string          `json:"name"`
		InputSchema json.RawMessage `json:"inputSchema"`
	} `json:"tools"`
	NextCursor *string `json:"nextCursor"`
}

// learn takes in a result that has a page of the list of tools.
func (t *mirroredTools) learn(result []byte) {
	t.mu.Lock()
	known := len(t.params)
	t.mu.Unlock()
	if known == 0 && !bytes.Contains(result, []byte(paramheader.Annotation)) { // nearly always
		return
	}
	var page toolsPage
	if json.Unmarshal(result, &page) == nil {
		t.take(&page)
	}
}

func (t *mirroredTools) take(page *toolsPage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, tool := range page.Tools {
		found, _ := paramheader.Params(tool.InputSchema) // a tool that is invalid has none
		switch {
		case len(found) == 0:
			delete(t.params, tool.Name)
		case t.params == nil || len(t.params) >= mostTools:
			t.params = map[string][]paramheader.Param{tool.Name: found}
		default:
			t.params[tool.Name] = found
		}
	}
}

// mirror are the headers that repeat what stands in a request (M-11 to M-17).
func (t *mirroredTools) mirror(request session.Message) http.Header {
	e := &request.Envelope
	header := http.Header{}
	header.Set("Content-Type", frontend.TypeJSON)
	header.Set("Accept", acceptBoth)
	header.Set(frontend.HeaderRevision, frontend.Revision20260728)
	if named := string(e.ProtocolVersion); isHeaderValue(named) {
		header.Set(frontend.HeaderRevision, named)
	}
	header.Set(headerMethod, paramheader.Encode(string(e.Method)))
	if name := nameIn(request); name != nil {
		header.Set(headerName, paramheader.Encode(string(name)))
	}
	if string(e.Method) != methodCallTool {
		return header
	}
	t.mu.Lock()
	params := t.params[string(e.Name)]
	t.mu.Unlock()
	if len(params) == 0 {
		return header
	}
	found, err := rpc.Find(request.Bytes, e.Params, "arguments")
	if err != nil {
		return header // it is not clear which the server would compare with
	}
	for _, p := range params {
		argument, err := p.Argument(found[0].Of(request.Bytes))
		if err != nil {
			continue // as above
		}
		if value, ok := paramheader.Value(argument); ok {
			header[p.Header] = []string{paramheader.Encode(value)}
		}
	}
	return header
}

// nameIn is what a request is about, for methods that have a header for it (M-13).
func nameIn(request session.Message) []byte {
	e := &request.Envelope
	switch string(e.Method) {
	case methodCallTool, "prompts/get":
		return e.Name
	case "resources/read":
		return e.URI
	case "tasks/get", "tasks/update", "tasks/cancel":
		found, err := rpc.Find(request.Bytes, e.Params, "taskId")
		if err != nil {
			return nil
		}
		return rpc.Text(request.Bytes, found[0])
	}
	return nil
}
