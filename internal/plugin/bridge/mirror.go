package bridge

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

// toolFacts are what the bridge has to know of a tool before a call.
type toolFacts struct {
	params       []paramheader.Param // that headers repeat
	isRepeatable bool                // it does no harm to call it twice
}

// factsOf are those of a tool, unless they are those of a tool that the bridge does not know.
func factsOf(tool toolindex.Tool) (facts toolFacts, isWorthIt bool) {
	facts.params, _ = paramheader.Params(tool.InputSchema) // a tool that is invalid has none
	var hints mcpprobe.Annotations
	if len(tool.Annotations) > 0 && json.Unmarshal(tool.Annotations, &hints) == nil {
		is := func(hint *bool) bool { return hint != nil && *hint }
		facts.isRepeatable = is(hints.ReadOnlyHint) || is(hints.IdempotentHint)
	}
	return facts, facts.isRepeatable || len(facts.params) > 0
}

// learn takes in a page of the list of tools that the client gets.
func (b *Bridge) learn(answer []byte) {
	var listed struct {
		Result json.RawMessage `json:"result"`
	}
	if json.Unmarshal(answer, &listed) == nil {
		b.tools.Learn(listed.Result, factsOf)
	}
}

func (b *Bridge) factsFor(m message) toolFacts {
	facts, _ := b.tools.Find(string(m.envelope.Name), toolindex.Forever)
	return facts
}

// header are the headers of a message. Those of a client without sessions repeat parts of the message.
func (b *Bridge) header(content []byte, m message, session, revision string) http.Header {
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if m.isModern() {
		header.Set(revisionHeader, string(m.envelope.ProtocolVersion))
		paramheader.Mirror(header, content, &m.envelope, b.factsFor(m).params)
		return header
	}
	setSession(header, session, revision)
	return header
}

// exchange sends a message. A server that refuses a call for its headers has not run it: the bridge asks for
// the list of tools then, and sends the call again if it finds other headers by that.
func (b *Bridge) exchange(ctx context.Context, content []byte, m message, header http.Header) (response *http.Response, isSent bool, err error) {
	response, isSent, err = b.send(ctx, content, header)
	if err != nil || response.StatusCode != http.StatusBadRequest || !m.isModern() || m.Method != rpc.MethodCallTool {
		return response, isSent, err
	}
	refusal, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	_ = response.Body.Close()
	if err != nil {
		return nil, true, err
	}
	response.Body = io.NopCloser(bytes.NewReader(refusal))
	if codeOf(refusal) != rpc.CodeHeaderMismatch {
		return response, true, nil
	}
	b.tools.Refresh(ctx, string(m.envelope.Name), toolindex.Fresh, b.toolList(content, m))
	other := b.header(content, m, "", "")
	if maps.EqualFunc(other, header, slices.Equal) {
		return response, true, nil
	}
	return b.send(ctx, content, other)
}

func codeOf(answer []byte) int {
	var refused struct {
		Error struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(answer, &refused) // what is no answer has no code
	return refused.Error.Code
}

// toolList asks for the list of tools as the client of a call would.
func (b *Bridge) toolList(call []byte, m message) toolindex.List[toolFacts] {
	meta := `"_meta":` + string(m.envelope.Meta.Of(call))
	return toolindex.List[toolFacts]{
		Context: b.live, Keep: factsOf,
		Fetch: func(ctx context.Context, cursor string) ([]byte, error) {
			request := rpc.AppendRequest(nil, newID(), toolindex.Method, cursor+meta)
			asked, err := read(request)
			if err != nil {
				return nil, err
			}
			response, _, err := b.send(ctx, request, b.header(request, asked, "", ""))
			if err != nil {
				return nil, err
			}
			defer func() { _ = response.Body.Close() }()
			if response.StatusCode != http.StatusOK {
				return nil, fmt.Errorf("ask for the list of tools: the server answers %s", response.Status)
			}
			var answer []byte
			_, err = receive(response, asked.ID, func(content []byte) error {
				answer = bytes.Clone(content)
				return nil
			})
			return answer, err
		},
	}
}

// newID is an id that no client uses.
func newID() []byte { return []byte(`"kubectl-mcp-` + rand.Text() + `"`) }
