package shared

import (
	"context"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// nameBytes bounds the URI of a subscription. The session bounds ids and progress tokens.
const nameBytes = 8 << 10

// Send takes a message from the client. It forwards the message to the child process, unless the
// child process must not see it.
func (v *sessionView) Send(ctx context.Context, message session.Message) error {
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
		// The adapter tracks initialization and roots per session; the shared process must not
		// see either. A notification that the adapter does not know could affect other
		// sessions. An answer belongs to no request, since the adapter forwards no requests to
		// clients.
		v.instance.metrics.UnforwardedMessages.Inc()
		return nil
	}
}

func (v *sessionView) request(ctx context.Context, request session.Message) error {
	id := string(request.Envelope.ID.Of(request.Bytes))
	method := string(request.Envelope.Method)
	switch method {
	case "initialize":
		return v.initialize(id, request)
	case "ping":
		return v.forward(ctx, id, request)
	}
	if !v.ready.Load() {
		return v.refuse(id, rpc.CodeInvalidRequest, "initialize comes first")
	}
	if strings.HasPrefix(method, "tasks/") {
		return v.refuse(id, rpc.CodeMethodNotFound, "tasks are not available on a server that sessions share")
	}
	switch method {
	case "logging/setLevel":
		return v.setLevel(id, request)
	case string(subscribing), string(unsubscribing):
		return v.subscribe(ctx, id, request)
	case "server/discover", "subscriptions/listen":
		// A process that gets one of these may drop the revisions with sessions (L-35).
		return v.refuse(id, rpc.CodeMethodNotFound, "not part of the protocol revision of this session")
	}
	return v.forward(ctx, id, request)
}

// refuse answers the client with an error, without the child process.
func (v *sessionView) refuse(id string, code int, text string) error {
	return v.reply(refusal(id, code, text))
}

// reply answers the client without the child process.
func (v *sessionView) reply(message session.Message) error {
	if v.instance.Dead() != nil {
		return session.ErrEnded
	}
	v.push(message)
	return nil
}

// initialize answers with the result that the child process gave the adapter (R24).
func (v *sessionView) initialize(id string, request session.Message) error {
	switch {
	case len(request.Envelope.RequestedVersion) == 0:
		return v.refuse(id, rpc.CodeInvalidParams, "initialize must name a protocolVersion")
	case v.ready.Load():
		return v.refuse(id, rpc.CodeInvalidRequest, "the session is initialized already")
	}
	i := v.instance
	text, at := replaced(i.initialized.answer, i.initialized.id, id)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.DeadLocked() != nil || v.isDone() {
		return session.ErrEnded
	}
	// The answer must precede the notifications that ready sessions get, so both changes share
	// the lock.
	v.push(session.Message{Bytes: text, Envelope: rpc.Envelope{Kind: rpc.Response, ID: at}})
	v.ready.Store(true)
	return nil
}

// setLevel answers in place of the child process, which has one level for all sessions. Every
// level is right, because the adapter forwards no log messages of a shared process.
func (v *sessionView) setLevel(id string, request session.Message) error {
	if !v.instance.initialized.logging {
		return v.refuse(id, rpc.CodeMethodNotFound, "the server has no log messages")
	}
	switch level := rpc.Lookup(request.Bytes, request.Envelope.Params, "level"); string(rpc.Text(request.Bytes, level)) {
	case "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency":
		return v.reply(success(id))
	}
	return v.refuse(id, rpc.CodeInvalidParams, "unknown log level")
}

// forward sends a request to the child process.
func (v *sessionView) forward(ctx context.Context, id string, request session.Message) error {
	i := v.instance
	i.mu.Lock()
	c := &call{number: i.NumberLocked(), view: v, id: id, key: id, token: tokenOf(request)}
	i.mu.Unlock()
	if key := rpc.IDKey(request.Envelope.ID.Of(request.Bytes)); string(key) != id {
		c.key = string(key)
	}
	text := toProcess(request, c.number)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.awaitRoomLocked(ctx, v); err != nil {
		return err
	}
	if err := i.registerLocked(c); err != nil {
		return err
	}
	i.PostLocked(text)
	return nil
}

// cancel forwards a cancellation under the call's number. It drops the cancellation of a call
// that is not in flight (U-02).
func (v *sessionView) cancel(notification session.Message) {
	i := v.instance
	at := notification.Envelope.RequestID
	i.mu.Lock()
	defer i.mu.Unlock()
	c := v.calls[string(rpc.IDKey(at.Of(notification.Bytes)))]
	if c == nil || c.cancelled {
		i.metrics.UnforwardedMessages.Inc()
		return
	}
	i.cancelLocked(c)
	text, _ := replaced(notification.Bytes, at, strconv.FormatUint(c.number, 10))
	i.PostLocked(text)
}
