package edge

import (
	"errors"
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
	share    string // of the room in the log that the lines of the messages count for
	messages []auditedMessage
}

// auditedMessage is what a line says of one message.
type auditedMessage struct {
	verb, name string
	kind       rules.Kind
	rule       int
	room       int // that the log has promised for the line
}

// isOn reports whether the document asks for lines.
func (a *Auditor) isOn() bool {
	if a == nil {
		return false
	}
	document := a.Gate.Document()
	return document != nil && document.Audit.Level == adapterapi.AuditMetadata
}

// reserve has the log promise room for the lines of a request, if the document asks to serve nothing that cannot be
// recorded. It returns a refusal if there is too little.
func (a *Auditor) reserve(r *Request) *Refusal {
	switch {
	case !a.isOn() || a.Gate.Document().Audit.WhenFull != adapterapi.AuditRefuse:
		return nil
	case a.Log.Full():
		return cannotRecord(audit.ErrFull)
	case r.Record.audited == nil || len(r.Record.audited.messages) == 0:
		return nil
	}
	noted, room := r.Record.audited, 0
	event := a.eventOf(&r.Record, &r.Caller)
	for i := range noted.messages {
		about := &noted.messages[i]
		about.of(&event)
		about.room = a.Log.Size(&event)
		room += about.room
	}
	noted.share = r.Caller.ShareKey()
	if err := a.Log.Reserve(noted.share, room); err != nil {
		for i := range noted.messages {
			noted.messages[i].room = 0
		}
		return cannotRecord(err)
	}
	return nil
}

// cannotRecord refuses a request that the log has no room for. It says whether the client may try again.
func cannotRecord(err error) *Refusal {
	if errors.Is(err, audit.ErrTooLarge) {
		return &Refusal{
			Status: http.StatusRequestEntityTooLarge, Code: rpc.CodeInvalidRequest, Reason: "audit_size",
			Text: "the batch has more calls than the adapter can audit at a time; send fewer in a batch",
		}
	}
	return &Refusal{
		Status: http.StatusServiceUnavailable, Code: rpc.CodeInternal, Header: http.Header{"Retry-After": {"1"}}, Text: err.Error(), Reason: "audit_full",
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
	if a == nil || noted == nil {
		return
	}
	isOn := a.isOn()
	var event audit.Event
	if isOn {
		event = a.eventOf(r, r.Caller)
	}
	if isOn && len(noted.messages) == 0 && noted.denied != "" {
		a.Log.Add(&event)
	}
	for i := range noted.messages {
		about := &noted.messages[i]
		about.of(&event)
		switch {
		case !isOn:
			a.Log.Release(noted.share, about.room)
		case about.room > 0:
			a.Log.AddReserved(&event, noted.share, about.room)
		default:
			a.Log.Add(&event)
		}
	}
}

// eventOf is what all lines of a request have in common.
func (a *Auditor) eventOf(r *Record, from *caller.Caller) audit.Event {
	document := a.Gate.Document()
	event := audit.Event{
		Received: r.began, Completed: r.began.Add(r.Duration), Verb: r.verb(), Identity: from.Identity(),
		Namespace: document.Server.Namespace, Server: document.Server.Name,
		Address: from.Address, UserAgent: r.audited.agent, Session: r.Session,
		Status: r.Status, Code: codeOf(r.Error), ToolError: r.Error == ToolError,
		Denied: r.audited.denied, Rule: -1, Access: document.Generation, Trace: traceParent(from),
	}
	if from.Grant != nil {
		event.Access = from.Grant.Generation
	}
	return event
}

// of completes an event with what it says of the message.
func (m *auditedMessage) of(event *audit.Event) {
	event.Verb, event.Kind, event.Name, event.Rule = m.verb, string(m.kind), m.name, m.rule
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

// SessionBegan writes a line for a session that a caller has opened. agent is the User-Agent of the caller.
func (a *Auditor) SessionBegan(about *session.Identity, agent string) {
	a.session("session/begin", about, agent)
}

// SessionEnded writes a line for a session that has ended. It says who opened the session, and not who has ended it.
func (a *Auditor) SessionEnded(about *session.Identity, agent string) {
	a.session("session/end", about, agent)
}

func (a *Auditor) session(verb string, about *session.Identity, agent string) {
	if !a.isOn() {
		return
	}
	document, now := a.Gate.Document(), time.Now()
	a.Log.AddReserved(&audit.Event{
		Received: now, Completed: now, Verb: verb, Identity: about.Owner.Identity(), Namespace: document.Server.Namespace, Server: document.Server.Name,
		Address: about.Owner.Address(), UserAgent: agent, Session: about.Number, Status: http.StatusOK, Rule: -1, Access: document.Generation,
	}, "", 0)
}
