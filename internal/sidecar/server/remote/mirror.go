package remote

import (
	"bytes"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

// mirroredTools knows which arguments of a server's tools are repeated by headers. It learns from
// every list of tools that a client gets, and from one that the adapter asks for when the server
// refuses a call. The adapter calls a tool that it does not know without such headers.
type mirroredTools struct {
	toolindex.Index[[]paramheader.Param] // of tools that have any
}

// learn takes in a result that has a page of the list of tools.
func (t *mirroredTools) learn(result []byte) {
	if t.Len() == 0 && !bytes.Contains(result, []byte(paramheader.Annotation)) { // nearly always
		return
	}
	t.Learn(result, mirroredParams)
}

func mirroredParams(tool toolindex.Tool) ([]paramheader.Param, bool) {
	params, _ := paramheader.Params(tool.InputSchema) // a tool that is invalid has none
	return params, len(params) > 0
}

// mirror are the headers of a request: those of its sender, and those that repeat parts of its body
// (M-11 to M-17).
func (t *mirroredTools) mirror(request session.Message, sender http.Header) http.Header {
	e := &request.Envelope
	header := sender.Clone()
	header.Set("Content-Type", front.TypeJSON)
	header.Set("Accept", AcceptBoth)
	header.Set(front.HeaderRevision, front.Revision20260728)
	if named := string(e.ProtocolVersion); IsHeaderValue(named) {
		header.Set(front.HeaderRevision, named)
	}
	var params []paramheader.Param
	if string(e.Method) == rpc.MethodCallTool {
		params, _ = t.Find(string(e.Name), toolindex.Forever)
	}
	paramheader.Mirror(header, request.Bytes, e, params)
	return header
}
