package formodern

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
)

var errNoObject = errors.New("the result is no object")

// answer gives a process's answer to the client that waits for it.
func (s *Server) answer(c *call, to stateless.Recipient, m session.Message) {
	if c.task != nil {
		m = withoutTask(m)
	}
	if m.Envelope.Error.Present() {
		s.answerError(c, to, m)
		return
	}
	text, err := resultFor(c.method, to.ID(), m, c.worker.hello.serverInfo)
	if err != nil {
		refuse(to, session.CodeInternal, "the server's answer cannot be translated: "+err.Error())
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
	if !isObject(text, result) {
		return nil, errNoObject
	}
	found, err := rpc.Find(text, result, "resultType", "ttlMs", "cacheScope", "_meta", "tools")
	if err != nil {
		return nil, err
	}
	kind, ttl, scope, meta, tools := found[0], found[1], found[2], found[3], found[4]
	edits := []rpc.Edit{{Span: m.Envelope.ID, With: id}}
	members := ""
	if kind.Present() {
		edits = append(edits, rpc.Edit{Span: kind, With: []byte(`"complete"`)})
	} else {
		members += `"resultType":"complete",`
	}
	if cacheable(method) {
		if !ttl.Present() {
			members += `"ttlMs":0,`
		}
		if !scope.Present() {
			members += `"cacheScope":"private",`
		}
	}
	named, err := withServerInfo(text, meta, serverInfo, &members)
	if err != nil {
		return nil, err
	}
	edits = append(edits, named...)
	if method == methodTools {
		edits = append(edits, withoutExecution(text, tools)...)
	}
	if members != "" {
		edits = append(edits, insert(text, result, members))
	}
	return rpc.Edited(text, edits...), nil
}

// withServerInfo names the server in the result's _meta, unless it has done so itself.
func withServerInfo(text []byte, meta rpc.Span, serverInfo []byte, members *string) ([]rpc.Edit, error) {
	if serverInfo == nil {
		return nil, nil
	}
	info := `"` + rpc.MetaServerInfo + `":` + string(serverInfo)
	switch {
	case !meta.Present():
		*members += `"_meta":{` + info + `},`
		return nil, nil
	case text[meta.Start] != '{': // some write null
		return []rpc.Edit{{Span: meta, With: []byte(`{` + info + `}`)}}, nil
	}
	found, err := rpc.Find(text, meta, rpc.MetaServerInfo)
	if err != nil || found[0].Present() {
		return nil, err
	}
	return []rpc.Edit{insert(text, meta, info+",")}, nil
}

// withoutExecution takes out of tools how they are run as tasks, which clients without
// sessions are not offered.
func withoutExecution(text []byte, tools rpc.Span) []rpc.Edit {
	var list []json.RawMessage
	if !tools.Present() || !bytes.Contains(tools.Of(text), []byte(`"execution"`)) || json.Unmarshal(tools.Of(text), &list) != nil {
		return nil
	}
	for i, tool := range list {
		all := rpc.Span{End: len(tool)}
		if edits, err := cut(tool, all, "execution"); err == nil {
			list[i] = rpc.Edited(tool, edits...)
		}
	}
	joined := append([]byte{'['}, bytes.Join(rawBytes(list), []byte{','})...)
	return []rpc.Edit{{Span: tools, With: append(joined, ']')}}
}

func rawBytes(list []json.RawMessage) [][]byte {
	texts := make([][]byte, len(list))
	for i, text := range list {
		texts[i] = text
	}
	return texts
}

// Codes of errors that only servers with sessions have.
const (
	codeResourceNotFound = -32002
	codeURLElicitation   = -32042
)

// answerError translates an error: some codes mean something else without sessions, or
// nothing (B4).
func (s *Server) answerError(c *call, to stateless.Recipient, m session.Message) {
	text, at := m.Bytes, m.Envelope.Error
	found, err := rpc.Find(text, at, "code", "message", "data")
	if err != nil {
		refuse(to, session.CodeInternal, "the server's error cannot be translated: "+err.Error())
		return
	}
	code, err := strconv.Atoi(string(found[0].Of(text)))
	if err != nil {
		code = 0 // whatever it is, it means nothing here
	}
	edits := []rpc.Edit{{Span: m.Envelope.ID, With: to.ID()}}
	switch {
	case code == session.CodeMethodNotFound && c.method == methodCall:
		c.group.outdateTools() // one that is to be called as a task says so
	case code == codeResourceNotFound:
		edits = append(edits, notFound(c, text, found, at)...)
		code = session.CodeInvalidParams
	case code == codeURLElicitation && mayAsk(c.method) && s.answerURLs(c, to, text, found[2]):
		return
	case isReserved(code, text, found[2]):
		code = session.CodeInternal
		to.Answer(frontend.AppendError(nil, to.ID(), code, string(rpc.Text(text, found[1])), at.Of(text)), code, rpc.ErrorTypeOf(code))
		return
	}
	to.Answer(rpc.Edited(text, edits...), code, rpc.ErrorTypeOf(code))
}

// isReserved says whether an error has a code that means something else to clients
// without sessions than its server can have meant.
func isReserved(code int, text []byte, data rpc.Span) bool {
	if code == frontend.CodeMissingCapability && namesCapabilities(text, data) {
		return false
	}
	return code <= -32020 && code >= -32099
}

// namesCapabilities says whether the data of an error is what -32021 must have.
func namesCapabilities(text []byte, data rpc.Span) bool {
	found, err := rpc.Find(text, data, "requiredCapabilities")
	return err == nil && isObject(text, found[0])
}

// notFound makes the error of a resource that there is not what it is without sessions.
// It says which, if the process does not.
func notFound(c *call, text []byte, found []rpc.Span, at rpc.Span) []rpc.Edit {
	code, data := found[0], found[2]
	edits := []rpc.Edit{{Span: code, With: []byte(strconv.Itoa(session.CodeInvalidParams))}}
	if c.method != methodRead {
		return edits
	}
	uri := `"uri":` + string(rpc.AppendString(nil, c.name))
	if !data.Present() {
		return append(edits, insert(text, at, `"data":{`+uri+`},`))
	}
	if named, err := rpc.Find(text, data, "uri"); err == nil && isObject(text, data) && !named[0].Present() {
		edits = append(edits, insert(text, data, uri+","))
	}
	return edits
}
