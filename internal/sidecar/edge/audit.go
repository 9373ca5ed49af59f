package edge

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/audit"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Auditor writes audit lines, if the access document asks for them. A nil Auditor writes none.
type Auditor struct {
	Gate *access.Gate
	Log  *audit.Log
}

// audited is what lines say of a request, besides what the record says. Records point to it, because most
// requests have none, and each byte of a record costs every call.
type audited struct {
	agent    string // User-Agent of the client
	denied   string // why the caller may not do what it asks for; empty if it may
	messages []auditedMessage
}

// auditedMessage is what a line says of one message.
type auditedMessage struct {
	verb, name string
	kind       rules.Kind
	rule       int
}

// isOn reports whether the document asks for lines.
func (a *Auditor) isOn() bool {
	if a == nil {
		return false
	}
	document := a.Gate.Document()
	return document != nil && document.Audit.Level == adapterapi.AuditMetadata
}

// refuses returns a refusal if the document asks to serve nothing that cannot be recorded, and the log is
// full.
func (a *Auditor) refuses() *Refusal {
	if !a.isOn() || a.Gate.Document().Audit.WhenFull != adapterapi.AuditRefuse || !a.Log.Full() {
		return nil
	}
	return &Refusal{
		Status: http.StatusServiceUnavailable, Code: rpc.CodeInternal, Header: http.Header{"Retry-After": {"1"}},
		Text: "the adapter cannot write its audit lines as fast as requests come", Reason: "audit_full",
	}
}

// note keeps what the lines of a request need from a message. The record outlives the message.
func (a *Auditor) note(r *Request, message *session.Message, decision *rules.Decision) {
	if !a.isOn() || message.Envelope.Kind != rpc.Request {
		return
	}
	about := auditedMessage{verb: knownMethod(message.Envelope.Method), kind: decision.Kind, rule: decision.Rule}
	switch about.verb {
	case rpc.MethodCallTool:
		about.kind, about.name = rules.Tools, string(message.Envelope.Name)
	case rpc.MethodGetPrompt:
		about.kind, about.name = rules.Prompts, string(message.Envelope.Name)
	case rpc.MethodReadResource, "resources/subscribe", "resources/unsubscribe":
		about.kind, about.name = rules.Resources, string(message.Envelope.URI)
	default:
		if decision.Denied == rules.Allowed {
			return // lists and the like
		}
	}
	noted := r.toAudit()
	noted.messages = append(noted.messages, about)
}

// toAudit returns where to note what an audit of the request says.
func (r *Request) toAudit() *audited {
	if r.Record.audited == nil {
		r.Record.audited = &audited{agent: r.Head("User-Agent")}
	}
	return r.Record.audited
}

// deniedForeign is why a caller may not use the session of another one.
const deniedForeign = "foreign"

// NoteForeign records that the request names the session of another caller. The caller gets the answer for an
// unknown session, and only audits tell the two apart.
func (r *Request) NoteForeign() { r.toAudit().denied = deniedForeign }

// closed writes the lines of a request that has ended.
func (a *Auditor) closed(r *Record) {
	noted := r.audited
	if noted == nil || !a.isOn() {
		return
	}
	document := a.Gate.Document()
	event := audit.Event{
		Received: r.began, Completed: r.began.Add(r.Duration), Verb: r.verb(), Identity: r.Caller.Identity(),
		Namespace: document.Server.Namespace, Server: document.Server.Name,
		Address: r.Caller.Address, UserAgent: noted.agent, Session: r.Session,
		Status: r.Status, Code: codeOf(r.Error), ToolError: r.Error == ToolError,
		Denied: noted.denied, Rule: -1, Access: document.Generation, Trace: traceParent(r.Caller),
	}
	if r.Caller.Grant != nil {
		event.Access = r.Caller.Grant.Generation
	}
	if len(noted.messages) == 0 && noted.denied != "" {
		a.Log.Add(&event)
	}
	for i := range noted.messages {
		about := &noted.messages[i]
		event.Verb, event.Kind, event.Name, event.Rule = about.verb, string(about.kind), about.name, about.rule
		a.Log.Add(&event)
	}
}

// verb names what a request without an audited message wanted.
func (r *Record) verb() string {
	if r.Method != "" {
		return r.Method
	}
	return "http/" + strings.ToLower(r.HTTPMethod)
}

// codeOf returns the code of JSON-RPC that an error type has, or 0.
func codeOf(how ErrorType) int {
	code, err := strconv.Atoi(string(how))
	if err != nil || code >= 0 && code != rpc.CodeUnauthorized && code != rpc.CodeForbidden {
		return 0
	}
	return code
}

func traceParent(from *caller.Caller) string {
	if values := from.Trace["Traceparent"]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// SessionBegan writes a line for a session that a caller has opened.
func (a *Auditor) SessionBegan(about *session.Identity) { a.session("session/begin", about) }

// SessionEnded writes a line for a session that has ended.
func (a *Auditor) SessionEnded(about *session.Identity) { a.session("session/end", about) }

func (a *Auditor) session(verb string, about *session.Identity) {
	if !a.isOn() {
		return
	}
	document, now := a.Gate.Document(), time.Now()
	a.Log.Add(&audit.Event{
		Received: now, Completed: now, Verb: verb, Identity: about.Owner.Identity(), Namespace: document.Server.Namespace, Server: document.Server.Name,
		Session: about.Number, Status: http.StatusOK, Rule: -1, Access: document.Generation,
	})
}
