package tomodern

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

var errNoObject = errors.New("the result is no object")

// answer gives a process's answer to the client that waits for it.
func (s *Server) answer(c *call, to sessionless.Recipient, m session.Message) {
	if c.task != nil {
		m = withoutTask(m)
	}
	if m.Envelope.Error.Present() {
		s.answerError(c, to, m)
		return
	}
	text, err := resultFor(c.method, to.ID(), m, c.worker.hello.serverInfo)
	if err != nil {
		refuse(to, rpc.CodeInternal, "the server's answer cannot be translated: "+err.Error())
		return
	}
	to.Answer(text, 0, rpc.ErrorType(m.Bytes, &m.Envelope, c.method == methodCall))
}

// cacheable are the methods whose results say how long they are good for (C-01). Nobody
// knows that of a server with sessions, and whose they are depends on who asked (C-04).
func cacheable(method string) bool {
	switch method {
	case methodTools, "prompts/list", "resources/list", "resources/templates/list", methodRead:
		return true
	}
	return false
}

// resultFor is a result as a client of the stateless revision wants it. All that the
// process said stays as it was spelled.
func resultFor(method string, id []byte, m session.Message, serverInfo []byte) ([]byte, error) {
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
	if kind.Present() {
		edits.Replace(kind, []byte(`"complete"`))
	} else {
		edits.Insert(text, result, []byte(`"resultType":"complete"`))
	}
	if cacheable(method) && !ttl.Present() {
		edits.Insert(text, result, []byte(`"ttlMs":0`))
	}
	if cacheable(method) && !scope.Present() {
		edits.Insert(text, result, []byte(`"cacheScope":"private"`))
	}
	if err := nameServer(text, result, meta, serverInfo, &edits); err != nil {
		return nil, err
	}
	if method == methodTools {
		dropExecution(text, tools, &edits)
	}
	return rpc.Edited(text, edits...), nil
}

// nameServer names the server in the result's _meta, unless it has done so itself.
func nameServer(text []byte, result, meta rpc.Span, serverInfo []byte, edits *rpc.Edits) error {
	if serverInfo == nil {
		return nil
	}
	info := `"` + rpc.MetaServerInfo + `":` + string(serverInfo)
	switch {
	case !meta.Present():
		edits.Insert(text, result, []byte(`"_meta":{`+info+`}`))
		return nil
	case !meta.IsObject(text): // some write null
		edits.Replace(meta, []byte(`{`+info+`}`))
		return nil
	}
	found, err := rpc.Find(text, meta, rpc.MetaServerInfo)
	if err == nil && !found[0].Present() {
		edits.Insert(text, meta, []byte(info))
	}
	return err
}

// dropExecution takes out of tools how they are run as tasks, which clients without
// sessions are not offered. A tool that has the member twice stays as it is.
func dropExecution(text []byte, tools rpc.Span, edits *rpc.Edits) {
	if !bytes.Contains(tools.Of(text), []byte(`"execution"`)) {
		return
	}
	for tool := range rpc.Members(text, tools) {
		before := len(*edits)
		if _, err := edits.Take(text, tool.Value, "execution"); err != nil {
			*edits = (*edits)[:before]
		}
	}
}

// answerError translates an error: some codes mean something else without sessions, or
// nothing (B-04).
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
	case code == rpc.CodeMethodNotFound && c.method == methodCall:
		c.group.taskTools.Doubt() // one that is to be called as a task says so
	case code == rpc.CodeResourceNotFound:
		notFound(c, text, found, at, &edits)
		code = rpc.CodeInvalidParams
	case code == rpc.CodeURLElicitation && mayAsk(c.method) && s.answerURLs(c, to, text, found[2]):
		return
	case isReserved(code, text, found[2]):
		code = rpc.CodeInternal
		to.Answer(rpc.AppendError(nil, to.ID(), code, string(rpc.Text(text, found[1])), at.Of(text)), code, rpc.ErrorTypeOf(code))
		return
	}
	to.Answer(rpc.Edited(text, edits...), code, rpc.ErrorTypeOf(code))
}

// isReserved says whether an error has a code that means something else to clients
// without sessions than its server can have meant.
func isReserved(code int, text []byte, data rpc.Span) bool {
	if code == rpc.CodeMissingCapability && namesCapabilities(text, data) {
		return false
	}
	return code <= -32020 && code >= -32099
}

// namesCapabilities says whether the data of an error is what -32021 must have.
func namesCapabilities(text []byte, data rpc.Span) bool {
	found, err := rpc.Find(text, data, "requiredCapabilities")
	return err == nil && found[0].IsObject(text)
}

// notFound makes the error of a resource that there is not what it is without sessions.
// It says which, if the process does not.
func notFound(c *call, text []byte, found []rpc.Span, at rpc.Span, edits *rpc.Edits) {
	code, data := found[0], found[2]
	edits.Replace(code, []byte(strconv.Itoa(rpc.CodeInvalidParams)))
	if c.method != methodRead {
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
