package swarm

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// OwnPauses is for how long an SDK may do nothing after the server is well again: the one for Go waits up to
// 2, 3, 4.5, 6.75 and 10 s between five attempts to get a stream back, and keeps the call waiting meanwhile.
const OwnPauses = 30 * time.Second

// trouble is an exchange of an SDK that did not go well, or a message that it could not read.
type trouble struct {
	Method     string `json:"method"`
	Call       bool   `json:"call"`       // a POST with a request of the client's
	Answer     bool   `json:"answer"`     // a POST with an answer of the client's
	Status     int    `json:"status"`     // 0 if there was no whole answer
	Unasked    bool   `json:"unasked"`    // it did not get as far as the server
	Unreadable bool   `json:"unreadable"` // the SDK did not understand what the server sent
	Text       string `json:"text"`
}

func (t trouble) String() string { return fmt.Sprintf("%s %d %s", t.Method, t.Status, t.Text) }

// kindOf says what the status of an error means.
func kindOf(status int) Kind {
	switch status {
	case http.StatusNotFound:
		return Over
	case http.StatusServiceUnavailable:
		return Refused
	case http.StatusBadGateway:
		return Broken
	}
	return Wrong
}

// facts are what is known of an operation of an SDK.
type facts struct {
	err      error // what the SDK says; nil if it was content
	troubles []trouble
	told     bool // the server has said in this session that it is over
	before   bool // it had, when the operation began
	ended    bool // the SDK takes the session for ended
	gaveUp   bool // the SDK tries no more to get the call's stream back
	waits    bool // the swarm has ended the call, for which the SDK would have waited on
}

func (f facts) any(of func(trouble) bool) bool { return slices.ContainsFunc(f.troubles, of) }

// own says that a trouble is that of the call, and not of a stream beside it.
func (t trouble) own() bool { return t.Call || t.Answer }

// rule says what an operation of an SDK means that did not go well.
type rule struct {
	kind    Kind
	quirk   string
	applies func(facts) bool
}

// rules are asked in order. The first one that applies decides.
var rules = []rule{
	// The server must not send what an SDK cannot read, nor answer with any other status than those that have a meaning.
	// Notifications after a cancellation and streams beside the call are looked at, too.
	{kind: Wrong, applies: func(f facts) bool {
		return f.any(func(t trouble) bool { return t.Unreadable || t.Status > 0 && kindOf(t.Status) == Wrong })
	}},
	// A session that was over has answered, so the 404 was wrong.
	{kind: Wrong, applies: func(f facts) bool { return f.err == nil && f.before }},
	// All is well. What went wrong beside it did not matter: the SDK tried once more.
	{applies: func(f facts) bool { return f.err == nil }},
	// A 404 is the end, whatever the SDK calls it: the one for Go has ErrSessionMissing only if the body is no JSON-RPC error, and
	// those for TypeScript throw an error of HTTP, and keep the id. An application begins another session.
	{kind: Over, applies: func(f facts) bool { return f.told }},
	// The test's own way to the server failed.
	{kind: Unasked, applies: func(f facts) bool {
		return f.any(func(t trouble) bool { return t.Unasked && (t.own() || f.ended || f.gaveUp) })
	}},
	// An answer to the server's question was lost. The SDK does not tell the application, which waits for the call.
	{kind: Broken, quirk: "waited on for a call whose answer to a question was lost", applies: func(f facts) bool { return f.waits }},
	{kind: Refused, applies: func(f facts) bool {
		return f.any(func(t trouble) bool { return t.own() && kindOf(t.Status) == Refused })
	}},
	// The call's stream broke, and the SDK does not try to get it back, or no more. Version 1 for TypeScript does not tell
	// the application, which waits for the call.
	{kind: Broken, quirk: "gave up the stream of a call", applies: func(f facts) bool { return f.gaveUp && f.any(trouble.isOfServer) }},
	{kind: Broken, applies: func(f facts) bool { return f.any(trouble.own) }},
	// The server has answered a GET with an error, instead of closing the connection. That is the end of a session
	// of the SDK for Go.
	{kind: Broken, quirk: "ended its session because a GET had an error", applies: func(f facts) bool { return f.ended && f.any(trouble.isOfServer) }},
	// Streams may end at any time. The SDK for Go ends its session after the sixth stream beside the calls that had no event, though
	// they end hours after one another, and all SDKs stop after a few attempts that follow one another.
	{kind: Abandoned, quirk: "ended its session because streams had ended", applies: func(f facts) bool { return f.ended }},
	{kind: Abandoned, quirk: "gave up a stream because it had ended", applies: func(f facts) bool { return f.gaveUp }},
	// An error of JSON-RPC, or a time-out without an exchange that explains it.
	{kind: Broken, applies: func(facts) bool { return true }},
}

// isOfServer says that the server has answered with an error, or not at all to the call itself.
func (t trouble) isOfServer() bool { return t.Status > 0 || t.own() }

// judge says what an operation of an SDK means. It returns nil if all is well.
func judge(f facts) error {
	if failed, ok := errors.AsType[*failure](f.err); ok {
		return failed // the answer has come, and is wrong
	}
	for _, rule := range rules {
		if !rule.applies(f) {
			continue
		}
		if rule.kind == "" {
			return nil
		}
		text := []string{"a session that was over has answered"}
		if f.err != nil {
			text[0] = f.err.Error()
		}
		for _, one := range f.troubles {
			text = append(text, one.String())
		}
		return &failure{kind: rule.kind, text: strings.Join(text, "; "), gone: f.ended || f.told, quirk: rule.quirk}
	}
	return nil
}
