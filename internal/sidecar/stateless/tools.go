package stateless

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

// tools is what is known of one list of tools: which of their arguments headers repeat
// (M-18).
type tools = toolindex.Index[[]paramheader.Param]

// toolLists is what is known of tools. A process has one list. What stands in for
// processes with sessions may have others for clients that can do more, and for other
// principals.
type toolLists struct {
	mu     sync.Mutex
	byWhom map[listKey]*tools
}

// listKey is whose a list is. It is a digest: what clients say of themselves can be long.
type listKey [sha256.Size]byte

func keyOf(principal string, capabilities []byte) listKey {
	return sha256.Sum256(append(append([]byte(principal), 0), capabilities...))
}

// mostLists is how many lists are known at a time.
const mostLists = 64

// of returns the list for those with this key, which may be new.
func (l *toolLists) of(key listKey) *tools {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t, ok := l.byWhom[key]; ok {
		return t
	}
	if l.byWhom == nil {
		l.byWhom = map[listKey]*tools{}
	}
	for other := range l.byWhom {
		if len(l.byWhom) < mostLists {
			break
		}
		delete(l.byWhom, other)
	}
	t := &tools{}
	l.byWhom[key] = t
	return t
}

func (l *toolLists) outdate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.byWhom {
		t.Outdate()
	}
}

// checkArguments compares the arguments of a tool with their headers. The list of tools
// is asked for if it is not known, or if it may be its age that a request is refused for.
func (r *run) checkArguments(ctx context.Context, header http.Header, request session.Message) *refusal {
	if string(request.Envelope.Method) != "tools/call" {
		return nil
	}
	key, capabilities := listKey{}, []byte(allCapabilities)
	if r.translator != nil {
		found, err := rpc.Find(request.Bytes, request.Envelope.Meta, rpc.MetaClientCapabilities)
		if err != nil {
			return nil // it was found before
		}
		capabilities = found[0].Of(request.Bytes)
		key = keyOf(request.From.Group(), capabilities)
	}
	t := r.tools.of(key)
	var refused *refusal
	name := string(request.Envelope.Name)
	for _, age := range []toolindex.Age{toolindex.Recent, toolindex.Fresh} {
		params, current := t.Find(name, age)
		if !current {
			params = t.Refresh(ctx, name, age, r.toolList(ctx, request.From, capabilities))
		}
		if refused = checkParams(header, request, params); refused == nil {
			return nil
		}
	}
	return refused
}

// toolList asks for the tools that a client with the capabilities has. Only a stand-in has
// others for other clients.
func (r *run) toolList(ctx context.Context, from *caller.Caller, capabilities []byte) toolindex.List[[]paramheader.Param] {
	if r.translator == nil {
		from = nil
	}
	from, meta := from.Clone(), metaWith(string(capabilities))
	return toolindex.List[[]paramheader.Param]{
		Context:  context.WithoutCancel(ctx),
		Fetch:    func(ctx context.Context, cursor string) ([]byte, error) { return r.fetchTools(ctx, from, cursor+meta) },
		Keep:     r.paramsOfTool,
		Sessions: r.translator != nil,
		Failed: func(reason error) {
			r.options.Log.V(1).Info("The server's tools are not known, so headers that repeat arguments are not looked at", "reason", reason.Error())
		},
	}
}

func (r *run) fetchTools(ctx context.Context, from *caller.Caller, params string) ([]byte, error) {
	request := ownRequest(toolindex.Method, params)
	request.From = from
	list, err := r.begin(ctx, request)
	if err != nil {
		return nil, err
	}
	defer list.release()
	return list.await(ctx)
}

func (r *run) paramsOfTool(tool toolindex.Tool) ([]paramheader.Param, bool) {
	params, err := paramheader.Params(tool.InputSchema)
	if err != nil {
		r.options.Log.V(1).Info("A tool has an invalid x-mcp-header, so its headers are not looked at", "tool", tool.Name, "reason", err.Error())
	}
	return params, true
}
