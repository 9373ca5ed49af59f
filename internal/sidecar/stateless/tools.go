package stateless

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

const (
	// toolsAge is how old what is known of the tools may be. Servers tell of changes
	// only those who listen, and some serve one listener at a time, so we do not.
	toolsAge = time.Minute
	// toolsFresh is how old it may be when a request is refused by it, or names a tool
	// that it does not have.
	toolsFresh = time.Second
	// toolsTimeout is for the server to list its tools. Until then calls wait; after it
	// they are passed on without a look at their headers.
	toolsTimeout = 10 * time.Second

	toolPages = 1000
	toolCount = 100_000
)

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
		t.outdate()
	}
}

// tools is what is known of one list of tools: which of their arguments are repeated by
// headers (M-18).
type tools struct {
	mu       sync.Mutex
	params   map[string][]paramheader.Param // of every tool
	asked    time.Time                      // when the list was asked for that this is from
	outdated bool
	failed   bool          // the list was not to be had, which is not tried with every call
	asking   chan struct{} // closed when the list is there that was asked for; nil if none was
}

func (t *tools) outdate() {
	t.mu.Lock()
	t.outdated = true
	t.mu.Unlock()
}

// find returns what is known of a tool, if it is not older than that.
func (t *tools) find(name string, age time.Duration) (params []paramheader.Param, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	params, known := t.params[name]
	since := time.Since(t.asked)
	switch {
	case t.asked.IsZero() || t.outdated || since > age:
		return nil, false
	case !known && since > toolsFresh && !t.failed:
		return nil, false
	}
	return params, true
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
	for _, age := range []time.Duration{toolsAge, toolsFresh} {
		params, ok := t.find(name, age)
		if !ok {
			r.listTools(ctx, request.From, t, capabilities)
			params, _ = t.find(name, toolsAge)
		}
		if refused = checkParams(header, request, params); refused == nil {
			return nil
		}
	}
	return refused
}

// listTools asks for the list of tools, or waits for the one that was asked for.
func (r *run) listTools(ctx context.Context, from *caller.Caller, t *tools, capabilities []byte) {
	t.mu.Lock()
	asking := t.asking
	if asking == nil {
		asking = make(chan struct{})
		t.asking = asking
		list := listing{meta: metaWith(string(capabilities)), done: asking}
		if r.translator != nil {
			list.from = from.Clone()
		}
		go r.refreshTools(context.WithoutCancel(ctx), t, list)
	}
	t.mu.Unlock()
	select {
	case <-asking:
	case <-ctx.Done():
	}
}

// listing is a list of tools that is being asked for.
type listing struct {
	from *caller.Caller // the client whose list it is; nil if all have the same
	meta string
	done chan struct{} // closed when the list is there
}

// refreshTools outlives the request that needs the list: others wait for it, too.
func (r *run) refreshTools(ctx context.Context, t *tools, list listing) {
	ctx, cancel := context.WithTimeout(ctx, toolsTimeout)
	defer cancel()
	t.mu.Lock()
	t.outdated = false // it is what changes from now on that the list may not have
	t.mu.Unlock()
	asked := time.Now()
	params, err := r.fetchTools(ctx, list)
	if err != nil {
		r.options.Log.V(1).Info("The server's tools are not known, so headers that repeat arguments are not looked at", "reason", err.Error())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil || t.params == nil {
		t.params = params
	}
	t.asked, t.failed, t.asking = asked, err != nil, nil
	close(list.done)
}

var errManyTools = errors.New("the list of tools does not end")

func (r *run) fetchTools(ctx context.Context, list listing) (map[string][]paramheader.Param, error) {
	found := map[string][]paramheader.Param{}
	params := list.meta
	seen := map[string]bool{}
	for range toolPages {
		page, err := r.fetchPage(ctx, list.from, params)
		if err != nil {
			return nil, err
		}
		for _, tool := range page.Tools {
			found[tool.Name] = r.paramsOfTool(tool.Name, tool.InputSchema)
		}
		switch {
		case page.NextCursor == nil:
			return found, nil
		case seen[*page.NextCursor] || len(found) > toolCount:
			return nil, errManyTools
		}
		seen[*page.NextCursor] = true
		params = `"cursor":` + string(rpc.AppendString(nil, *page.NextCursor)) + `,` + list.meta
	}
	return nil, errManyTools
}

type toolsPage struct {
	Tools []struct {
		Name        string          `json:"name"`
		InputSchema json.RawMessage `json:"inputSchema"`
	} `json:"tools"`
	NextCursor *string `json:"nextCursor"`
}

func (r *run) fetchPage(ctx context.Context, from *caller.Caller, params string) (toolsPage, error) {
	request := ownRequest("tools/list", params)
	request.From = from
	list, err := r.begin(ctx, request)
	if err != nil {
		return toolsPage{}, err
	}
	defer list.release()
	answer, err := list.await(ctx)
	if err != nil {
		return toolsPage{}, err
	}
	var response struct {
		Result toolsPage `json:"result"`
		Error  *struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(answer, &response); {
	case err != nil:
		return toolsPage{}, fmt.Errorf("read list of tools: %w", err)
	case response.Error != nil && response.Error.Code != rpc.CodeMethodNotFound: // that one has no tools
		return toolsPage{}, fmt.Errorf("the server answers tools/list with error %d", response.Error.Code)
	}
	return response.Result, nil
}

func (r *run) paramsOfTool(name string, schema json.RawMessage) []paramheader.Param {
	params, err := paramheader.Params(schema)
	if err != nil {
		r.options.Log.V(1).Info("A tool has an invalid x-mcp-header, so its headers are not looked at", "tool", name, "reason", err.Error())
	}
	return params
}
