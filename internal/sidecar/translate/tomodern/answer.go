package tomodern

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

var errNoObject = errors.New("the result is not an object")

// answer gives a process's answer to the client that waits for it.
func (s *Server) answer(c *call, to sessionless.Recipient, m session.Message) {
	if c.task != nil {
		m = withoutTask(m)
	}
	if m.Envelope.Error.Present() {
		s.answerError(c, to, m)
		return
	}
	text, err := resultFor(c.method, to.ID(), m, c.process.offer.meta)
	if err != nil {
		refuse(to, rpc.CodeInternal, "the server's answer cannot be translated: "+err.Error())
		return
	}
	to.Answer(text, 0, rpc.ErrorType(m.Bytes, &m.Envelope, c.method == rpc.MethodCallTool))
}

// Members that results of the stateless revision must have. A server with sessions does not say
// for how long a result is valid (C-01), and the result depends on the client (C-04).
var (
	memberComplete = []byte(`"resultType":"complete"`)
	memberTTL      = []byte(`"ttlMs":0`)
	memberScope    = []byte(`"cacheScope":"private"`)
)

var listMethods = []string{toolindex.Method, "prompts/list", "resources/list", "resources/templates/list"}

// resultFor is a result as a client of the stateless revision wants it. Every other byte of
// the process stays as it is.
func resultFor(method string, id []byte, m session.Message, serverMeta []byte) ([]byte, error) {
	text, result := m.Bytes, m.Envelope.Result
	if !result.IsObject(text) {
		return nil, errNoObject
	}
	found, err := rpc.Find(text, result, "resultType", "ttlMs", "cacheScope", "_meta", "tools")
	if err != nil {
		return nil, err
	}
	kind, ttl, scope, meta, tools := found[0], found[1], found[2], found[3], found[4]
	var edits rpc.Edits
	edits.Replace(m.Envelope.ID, id)
	isList := slices.Contains(listMethods, method)
	if isList {
		dropEmptyCursor(text, result, &edits)
	}
	if kind.Present() {
		edits.Replace(kind, memberComplete[len(`"resultType":`):])
	} else {
		edits.Insert(text, result, memberComplete)
	}
	cacheable := isList || method == rpc.MethodReadResource
	if cacheable && !ttl.Present() {
		edits.Insert(text, result, memberTTL)
	}
	if cacheable && !scope.Present() {
		edits.Insert(text, result, memberScope)
	}
	if err := nameServer(text, result, meta, serverMeta, &edits); err != nil {
		return nil, err
	}
	if method == toolindex.Method {
		dropExecution(text, tools, &edits)
	}
	return edits.Edited(text), nil
}

// dropEmptyCursor drops the cursor by which servers with sessions say that a list has ended. In
// the stateless revision an empty cursor is a cursor like any other (P-05).
func dropEmptyCursor(text []byte, result rpc.Span, edits *rpc.Edits) {
	edits.Filter(text, result, func(m rpc.Member) bool {
		return string(m.Name) != "nextCursor" || string(m.Value.Of(text)) != `""`
	})
}

// nameServer names the server in the result's _meta, unless the server has done so itself.
func nameServer(text []byte, result, meta rpc.Span, serverMeta []byte, edits *rpc.Edits) error {
	if serverMeta == nil {
		return nil
	}
	found, err := rpc.Find(text, meta, rpc.MetaServerInfo)
	if err == nil && !found[0].Present() {
		edits.InsertMeta(text, result, meta, serverMeta)
	}
	return err
}

// dropExecution takes out of tools how they run as tasks, which clients without sessions are
// not offered. A tool that has the member twice stays as it is.
func dropExecution(text []byte, tools rpc.Span, edits *rpc.Edits) {
	if !bytes.Contains(tools.Of(text), []byte(`"execution"`)) {
		return
	}
	for tool := range rpc.Members(text, tools) {
		before := edits.Len()
		if _, err := edits.Take(text, tool.Value, "execution"); err != nil {
			edits.Truncate(before)
		}
	}
}

// answerError translates an error: some codes have another meaning without sessions, or none
// (B-04).
func (s *Server) answerError(c *call, to sessionless.Recipient, m session.Message) {
	text, at := m.Bytes, m.Envelope.Error
	found, err := rpc.Find(text, at, "code", "message", "data")
	if err != nil {
		refuse(to, rpc.CodeInternal, "the server's error cannot be translated: "+err.Error())
		return
	}
	code := rpc.ErrorCode(text, &m.Envelope)
	var edits rpc.Edits
	edits.Replace(m.Envelope.ID, to.ID())
	switch {
	case code == rpc.CodeMethodNotFound && c.method == rpc.MethodCallTool:
		c.group.taskTools.Doubt() // a tool that must be called as a task answers this
	case code == rpc.CodeResourceNotFound:
		notFound(c, text, found, at, &edits)
		code = rpc.CodeInvalidParams
	case code == rpc.CodeURLElicitation && rpc.TakesInput(c.method) && s.answerURLs(c, to, text, found[2]):
		return
	case isReserved(code, text, found[2]):
		code = rpc.CodeInternal
		to.Answer(rpc.AppendError(nil, to.ID(), code, string(rpc.Text(text, found[1])), at.Of(text)), code, rpc.ErrorTypeOf(code))
		return
	}
	to.Answer(edits.Edited(text), code, rpc.ErrorTypeOf(code))
}

// isReserved says whether an error has a code with another meaning without sessions than its
// server can have meant. -32021 has the same meaning if it names capabilities.
func isReserved(code int, text []byte, data rpc.Span) bool {
	found, err := rpc.Find(text, data, "requiredCapabilities")
	if code == rpc.CodeMissingCapability && err == nil && found[0].IsObject(text) {
		return false
	}
	return code <= -32020 && code >= -32099
}

// notFound translates the error of a resource that the server does not have. It names the
// resource, if the process does not.
func notFound(c *call, text []byte, found rpc.Found, at rpc.Span, edits *rpc.Edits) {
	code, data := found[0], found[2]
	edits.Replace(code, []byte(strconv.Itoa(rpc.CodeInvalidParams)))
	if c.method != rpc.MethodReadResource {
		return
	}
	uri := `"uri":` + string(rpc.AppendString(nil, c.name))
	if !data.Present() {
		edits.Insert(text, at, []byte(`"data":{`+uri+`}`))
		return
	}
	if named, err := rpc.Find(text, data, "uri"); err == nil && data.IsObject(text) && !named[0].Present() {
		edits.Insert(text, data, []byte(uri))
	}
}
