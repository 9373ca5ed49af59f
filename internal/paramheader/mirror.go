package paramheader

import (
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// The headers that repeat what every request is about.
const (
	HeaderMethod = "Mcp-Method"
	HeaderName   = "Mcp-Name" // of the tool, prompt, resource or task
)

// Mirror sets the headers that repeat parts of a request of revision 2026-07-28 (M-12 to M-17). The params
// are those of the tool that it calls.
func Mirror(header http.Header, request []byte, e *rpc.Envelope, params []Param) {
	header.Set(HeaderMethod, Encode(string(e.Method)))
	if name, _ := rpc.NameOf(request, e); name != nil {
		header.Set(HeaderName, Encode(string(name)))
	}
	if string(e.Method) != rpc.MethodCallTool || len(params) == 0 {
		return
	}
	found, err := rpc.Find(request, e.Params, "arguments")
	if err != nil {
		return // servers differ in which of two values they compare with
	}
	for _, p := range params {
		argument, err := p.Argument(found[0].Of(request))
		if err != nil {
			continue // as above
		}
		if value, ok := Value(argument); ok {
			header[p.Header] = []string{Encode(value)}
		}
	}
}
