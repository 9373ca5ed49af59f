package sessionless

import (
	"context"
	"crypto/sha256"
	"sync"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

// Tools knows the server's tools, as the client of a request sees them.
type Tools interface {
	// Params are those arguments of the tool that a request calls which headers repeat (M-18),
	// from a list of tools that is not older than age. It asks the server for the list if the
	// one that it knows is.
	Params(ctx context.Context, request session.Message, age toolindex.Age) []paramheader.Param
}

// toolList is what the adapter knows of one list of tools.
type toolList = toolindex.Index[[]paramheader.Param]

// toolLists are the lists of a process, which has one. A Translator may have others for
// clients with other capabilities, and for other principals.
type toolLists struct {
	mu    sync.Mutex
	lists map[listKey]*toolList
}

// listKey names the clients that see a list. It is a digest, because a client's capabilities
// can be long.
type listKey [sha256.Size]byte

// maxLists is how many lists the adapter knows at a time.
const maxLists = 64

// of returns the list with a key, which may be new.
func (l *toolLists) of(key listKey) *toolList {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t, ok := l.lists[key]; ok {
		return t
	}
	if l.lists == nil {
		l.lists = map[listKey]*toolList{}
	}
	for other := range l.lists {
		if len(l.lists) < maxLists {
			break
		}
		delete(l.lists, other)
	}
	t := &toolList{}
	l.lists[key] = t
	return t
}

// each calls a function with every list.
func (l *toolLists) each(do func(*toolList)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.lists {
		do(t)
	}
}

// Params is that of Tools.
func (p *process) Params(ctx context.Context, request session.Message, age toolindex.Age) []paramheader.Param {
	key, capabilities := listKey{}, []byte(allCapabilities)
	if p.translator != nil {
		found, err := rpc.Find(request.Bytes, request.Envelope.Meta, rpc.MetaClientCapabilities)
		if err != nil {
			return nil // the admission has found it before
		}
		capabilities = found[0].Of(request.Bytes)
		key = sha256.Sum256(append(append([]byte(request.From.Group()), 0), capabilities...))
	}
	t, name := p.tools.of(key), string(request.Envelope.Name)
	params, current := t.Find(name, age)
	if !current {
		params = t.Refresh(ctx, name, age, p.toolList(ctx, request.From, capabilities))
	}
	return params
}

// toolList asks for the tools that a client with the capabilities has. Only a Translator has
// others for other clients.
func (p *process) toolList(ctx context.Context, from *caller.Caller, capabilities []byte) toolindex.List[[]paramheader.Param] {
	if p.translator == nil {
		from = nil
	}
	from, meta := from.Clone(), metaWith(string(capabilities))
	return toolindex.List[[]paramheader.Param]{
		Context:  context.WithoutCancel(ctx),
		Fetch:    func(ctx context.Context, cursor string) ([]byte, error) { return p.fetchTools(ctx, from, cursor+meta) },
		Keep:     p.paramsOfTool,
		Sessions: p.translator != nil,
		Failed: func(reason error) {
			p.options.Log.V(1).Info("The server's tools are not known, so headers that repeat arguments are not checked", "reason", reason.Error())
		},
	}
}

func (p *process) fetchTools(ctx context.Context, from *caller.Caller, params string) ([]byte, error) {
	list, err := p.ask(ctx, from, toolindex.Method, params)
	if err != nil {
		return nil, err
	}
	defer list.Release()
	return list.await(ctx)
}

func (p *process) paramsOfTool(tool toolindex.Tool) ([]paramheader.Param, bool) {
	params, err := paramheader.Params(tool.InputSchema)
	if err != nil {
		p.options.Log.V(1).Info("A tool has an invalid x-mcp-header, so its headers are not checked", "tool", tool.Name, "reason", err.Error())
	}
	return params, true
}
