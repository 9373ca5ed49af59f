package stateless

import (
	"context"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

// checkArguments compares the arguments of a tool with their headers. Before it refuses a
// request, it looks at a fresh list of tools.
func checkArguments(ctx context.Context, header http.Header, request *session.Message, tools sessionless.Tools) (refused *refusal) {
	if string(request.Envelope.Method) != "tools/call" {
		return nil
	}
	for _, age := range [...]toolindex.Age{toolindex.Recent, toolindex.Fresh} {
		if refused = checkParams(header, request, tools.Params(ctx, *request, age)); refused == nil {
			return nil
		}
	}
	return refused
}

// checkParams compares arguments with the headers that repeat them (M-17).
func checkParams(header http.Header, request *session.Message, params []paramheader.Param) *refusal {
	if len(params) == 0 {
		return nil
	}
	found, err := rpc.Find(request.Bytes, request.Envelope.Params, "arguments")
	if err != nil {
		return invalidParams("params: " + err.Error()) // the server might read another one than the adapter
	}
	for _, p := range params {
		argument, err := p.Argument(found[0].Of(request.Bytes))
		if err != nil {
			return invalidParams("params.arguments: " + err.Error()) // as above
		}
		if argument == nil {
			if len(header[p.Header]) > 0 {
				return mismatch(p.Header, "repeats an argument that is not there")
			}
			continue
		}
		value, refused := decoded(header, p.Header)
		switch {
		case refused != nil:
			return refused
		case !paramheader.Repeats(value, argument):
			return mismatch(p.Header, "is not the argument that it repeats")
		}
	}
	return nil
}
