package mcpprobe

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// opening is what a server said of itself when the session was opened.
type opening struct {
	server       Server
	capabilities json.RawMessage
}

func (o opening) modern() bool { return o.server.ProtocolVersion >= versionModern }

// offers says whether the server declared a capability.
func (o opening) offers(capability string) bool {
	var declared map[string]json.RawMessage
	if json.Unmarshal(o.capabilities, &declared) != nil {
		return false
	}
	value, ok := declared[capability]
	return ok && string(value) != "null"
}

// readOpening puts together what the SDK decoded and what it has no place for.
func (g *guard) readOpening(decoded *mcp.InitializeResult) (opening, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := opening{server: Server{ProtocolVersion: decoded.ProtocolVersion, Instructions: decoded.Instructions}}
	if info := decoded.ServerInfo; info != nil {
		o.server.Name, o.server.Title, o.server.Version = info.Name, info.Title, info.Version
	}
	raw := g.opening.result
	if o.modern() {
		raw = g.discover.result
	}
	var result struct {
		Capabilities json.RawMessage `json:"capabilities"`
	}
	var discovered struct {
		SupportedVersions []string `json:"supportedVersions"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return o, &Error{Class: Protocol, Op: opConnect, Detail: "the answer to the opening is not an object"}
	}
	if g.discover.result != nil && json.Unmarshal(g.discover.result, &discovered) == nil {
		o.server.ProtocolVersions = discovered.SupportedVersions
	}
	o.capabilities = result.Capabilities
	// These are not needed any more.
	g.opening.result, g.discover.result = nil, nil
	return o, nil
}

// list is one of the things that a server lists.
type list struct {
	method     string
	capability string
	keep       keeper
	page       func(context.Context, *mcp.ClientSession) error
}

var lists = []list{
	{methodTools, "tools", keepTool, func(ctx context.Context, client *mcp.ClientSession) error {
		_, err := client.ListTools(ctx, &mcp.ListToolsParams{})
		return err
	}},
	{methodPrompts, "prompts", keepPrompt, func(ctx context.Context, client *mcp.ClientSession) error {
		_, err := client.ListPrompts(ctx, &mcp.ListPromptsParams{})
		return err
	}},
	{methodResources, "resources", keepResource, func(ctx context.Context, client *mcp.ClientSession) error {
		_, err := client.ListResources(ctx, &mcp.ListResourcesParams{})
		return err
	}},
	{methodTemplates, "resources", keepResourceTemplate, func(ctx context.Context, client *mcp.ClientSession) error {
		_, err := client.ListResourceTemplates(ctx, &mcp.ListResourceTemplatesParams{})
		return err
	}},
}

// Catalog asks for all that the server offers. A list that changes meanwhile also
// makes Changed fire.
func (s *Session) Catalog(ctx context.Context) (*Catalog, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		e := fromContext(ctx.Err())
		e.Op = "catalog"
		return nil, e
	}
	b := newBuilder(s.guard.limits)
	b.modern = s.opening.modern()
	b.catalog.Server = s.opening.server
	err := b.setCapabilities(s.opening.capabilities)
	if err == nil {
		err = b.spend(s.opening.server.size())
	}
	for _, l := range lists {
		if err == nil && s.opening.offers(l.capability) {
			err = s.list(ctx, l, b)
		}
	}
	if err != nil {
		return nil, withOp(err, "catalog")
	}
	return b.build()
}

// size is about what the server's words on itself take.
func (s Server) size() int {
	size := len(s.Name) + len(s.Title) + len(s.Version) + len(s.ProtocolVersion) + len(s.Instructions)
	for _, version := range s.ProtocolVersions {
		size += len(version)
	}
	return size
}

// withOp makes sure that an error is an *Error that says what was being done.
func withOp(err error, op string) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = protocolError(clean(err.Error()))
	}
	if e.Op != "" {
		return e
	}
	named := *e
	named.Op = op
	return &named
}

// list takes all pages of a list.
func (s *Session) list(ctx context.Context, l list, b *builder) error {
	var (
		cursor *string
		count  int
		seen   = map[[sha256.Size]byte]bool{}
	)
	for page := 1; ; page++ {
		if page > s.guard.limits.Pages {
			return withOp(tooLarge(LimitPages, s.guard.limits.Pages), l.method)
		}
		answer, err := s.page(ctx, l, cursor)
		if e, ok := errors.AsType[*Error](err); ok && e.Code == jsonrpc.CodeMethodNotFound {
			return nil // what is declared and not there is empty
		}
		if err != nil {
			return err
		}
		if err := b.add(l.keep, l.method, answer.items(l.method), &count); err != nil {
			return withOp(err, l.method)
		}
		cursor = answer.NextCursor
		if cursor == nil || *cursor == "" && !s.opening.modern() {
			return nil
		}
		// Cursors can be as large as a reply.
		key := sha256.Sum256([]byte(*cursor))
		if seen[key] {
			return withOp(tooLarge(LimitCursors, 0), l.method)
		}
		seen[key] = true
	}
}

// page is what the answer to a list request holds.
type page struct {
	Tools      json.RawMessage `json:"tools"`
	Prompts    json.RawMessage `json:"prompts"`
	Resources  json.RawMessage `json:"resources"`
	Templates  json.RawMessage `json:"resourceTemplates"`
	NextCursor *string         `json:"nextCursor"`
	ResultType *string         `json:"resultType"`
}

func (p page) items(method string) []byte {
	switch method {
	case methodTools:
		return p.Tools
	case methodPrompts:
		return p.Prompts
	case methodResources:
		return p.Resources
	default:
		return p.Templates
	}
}

func (s *Session) page(ctx context.Context, l list, cursor *string) (page, error) {
	var answer capture
	err := s.call(ctx, l.method, func(ctx context.Context) error {
		s.guard.expect(&answer)
		return l.page(context.WithValue(ctx, cursorKey{}, cursor), s.client)
	})
	if err != nil {
		return page{}, err
	}
	var p page
	if err := json.Unmarshal(answer.result, &p); err != nil {
		return page{}, withOp(protocolError("the result is not that of a list"), l.method)
	}
	if p.ResultType != nil && *p.ResultType != "complete" {
		return page{}, withOp(protocolError("the result is of another type: "+clean(*p.ResultType)), l.method)
	}
	return p, nil
}

type cursorKey struct{}

// cursorParams are those of any list request. The SDK's own leave an empty cursor
// out, though an empty cursor is one.
type cursorParams struct {
	mcp.ParamsBase
	Cursor *string `json:"cursor,omitempty"`
}

// setCursor puts the cursor that stands in the context into a list request.
func setCursor(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		cursor, isList := ctx.Value(cursorKey{}).(*string)
		session, isClient := request.GetSession().(*mcp.ClientSession)
		if !isList || !isClient {
			return next(ctx, method, request)
		}
		params := &cursorParams{Cursor: cursor}
		params.SetMeta(request.GetParams().GetMeta())
		return next(ctx, method, &mcp.ClientRequest[*cursorParams]{Session: session, Params: params})
	}
}
