package shared

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// nameBytes bounds what is kept of a call or subscription: id, token or URI.
const nameBytes = 8 << 10

// Send takes a message of the client's, and forwards it unless it is one that the
// process must not see.
func (v *view) Send(ctx context.Context, message session.Message) error {
	message, err := message.Scanned()
	if err != nil {
		return err
	}
	switch e := &message.Envelope; {
	case e.Kind == rpc.Request:
		return v.request(ctx, message)
	case e.Kind == rpc.Notification && string(e.Method) == rpc.MethodCancelled:
		v.cancel(message)
		return nil
	default:
		// That a client is initialized is for us to know, as its roots are. Of a
		// notification that we do not know nobody can say whom its effects reach.
		// And nobody has asked a question that could be answered.
		v.run.metrics.UnforwardedMessages.Inc()
		return nil
	}
}

func (v *view) request(ctx context.Context, request session.Message) error {
	id := string(request.Envelope.ID.Of(request.Bytes))
	if len(id) > nameBytes || request.Envelope.ProgressToken.End-request.Envelope.ProgressToken.Start > nameBytes {
		return v.refuse(id, rpc.CodeInvalidRequest, "id and progress token may have "+strconv.Itoa(nameBytes)+" bytes each")
	}
	method := string(request.Envelope.Method)
	switch method {
	case "initialize":
		return v.initialize(id, request)
	case "ping":
		return v.forward(ctx, id, request)
	}
	if !v.isReady() {
		return v.refuse(id, rpc.CodeInvalidRequest, "initialize comes first")
	}
	switch method {
	case "logging/setLevel":
		return v.setLevel(id, request)
	case "resources/subscribe", "resources/unsubscribe":
		return v.follow(ctx, id, request)
	case "tasks/get", "tasks/result", "tasks/list", "tasks/cancel":
		return v.refuse(id, rpc.CodeMethodNotFound, "tasks are not available on a server that sessions share")
	case "server/discover", "subscriptions/listen":
		// They would put the process into another era of the protocol (L-35).
		return v.refuse(id, rpc.CodeMethodNotFound, "not part of the protocol revision of this session")
	}
	return v.forward(ctx, id, request)
}

// isReady says whether the session is initialized.
func (v *view) isReady() bool {
	v.run.mu.Lock()
	defer v.run.mu.Unlock()
	return v.ready
}

// reply answers the client without the process.
func (v *view) reply(message session.Message) error {
	if v.run.Dead() != nil {
		return session.ErrEnded
	}
	v.deliver(message)
	return nil
}

func (v *view) refuse(id string, code int, text string) error {
	return v.reply(refusal(id, code, text))
}

// initialize answers from the handshake with the process (R24).
func (v *view) initialize(id string, request session.Message) error {
	if len(request.Envelope.RequestedVersion) == 0 {
		return v.refuse(id, rpc.CodeInvalidParams, "initialize must name a protocolVersion")
	}
	r := v.run
	r.mu.Lock()
	switch {
	case r.DeadLocked() != nil || v.closed:
		r.mu.Unlock()
		return session.ErrEnded
	case v.ready:
		r.mu.Unlock()
		return v.refuse(id, rpc.CodeInvalidRequest, "the session is initialized already")
	}
	// The answer comes before anything that sessions get once they are ready.
	text, at := toClient(r.hello.answer, r.hello.id, id)
	slow := v.push(session.Message{Bytes: text, Envelope: rpc.Envelope{Kind: rpc.Response, ID: at}})
	v.ready = true
	r.mu.Unlock()
	if slow {
		v.endSlow()
	}
	return nil
}

// setLevel is answered here: the level is one session's, and the process has one
// level only. As no session gets log messages, any level is observed.
func (v *view) setLevel(id string, request session.Message) error {
	if !v.run.hello.logging {
		return v.refuse(id, rpc.CodeMethodNotFound, "the server has no log messages")
	}
	var params struct {
		Level string `json:"level"`
	}
	if request.Envelope.Params.Present() {
		if err := json.Unmarshal(request.Envelope.Params.Of(request.Bytes), &params); err != nil {
			params.Level = ""
		}
	}
	switch params.Level {
	case "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency":
		return v.reply(success(id))
	}
	return v.refuse(id, rpc.CodeInvalidParams, "unknown log level")
}

// forward sends a request to the process.
func (v *view) forward(ctx context.Context, id string, request session.Message) error {
	r := v.run
	r.mu.Lock()
	c := &call{number: r.NumberLocked(), view: v, id: id, key: id, token: tokenOf(request)}
	r.mu.Unlock()
	if key := rpc.IDKey(request.Envelope.ID.Of(request.Bytes)); string(key) != id {
		c.key = string(key)
	}
	text := toProcess(request, c.number)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.awaitOpenLocked(ctx, v); err != nil {
		return err
	}
	if err := r.registerLocked(c); err != nil {
		return err
	}
	r.PostLocked(text)
	return nil
}

// cancel forwards a cancellation under the number that the process knows the call
// by. One of a call that is over, or never was, goes no further (U-02).
func (v *view) cancel(notification session.Message) {
	r := v.run
	at := notification.Envelope.RequestID
	r.mu.Lock()
	defer r.mu.Unlock()
	c := v.calls[string(rpc.IDKey(at.Of(notification.Bytes)))]
	if c == nil || c.cancelled {
		r.metrics.UnforwardedMessages.Inc()
		return
	}
	r.cancelLocked(c)
	text, _ := toClient(notification.Bytes, at, strconv.FormatUint(c.number, 10))
	r.PostLocked(text)
}
