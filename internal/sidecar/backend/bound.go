package backend

import (
	"bytes"
	"context"
	"sync"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/handle"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// boundServer is a connection to an HTTP server for a session of the adapter's own. It binds handles to the
// verified caller that opens the session, as package proxy does for sessions of the server.
type boundServer struct {
	mux.Server
	handles *handle.Binder
	owner   *caller.Caller

	receiving sync.Mutex // messages come one at a time
	receive   func(session.Message)
}

// bindTo returns the connection as the caller may use it.
func bindTo(from *caller.Caller, connection mux.Server, handles *handle.Binder) mux.Server {
	if from.Identity() == nil {
		return connection
	}
	return &boundServer{Server: connection, handles: handles, owner: from.Lasting()}
}

// Serve implements mux.Server.
func (b *boundServer) Serve(receive func(session.Message), ended func(error)) {
	b.receive = receive
	b.Server.Serve(func(message session.Message) { b.hand(b.bound(message)) }, ended)
}

func (b *boundServer) hand(message session.Message) {
	b.receiving.Lock()
	defer b.receiving.Unlock()
	b.receive(message)
}

// bound binds the handles in a message of the server.
func (b *boundServer) bound(message session.Message) session.Message {
	if message.Envelope.Kind != rpc.Response || !handle.Mentions(message.Bytes) {
		return message
	}
	text := message.Bytes
	if !message.Owned { // Bind overwrites it
		text = bytes.Clone(text)
	}
	text = b.handles.Bind(b.owner, text, &message.Envelope)
	envelope, err := rpc.ScanLenient(text)
	if err != nil {
		panic("scan an answer with bound handles: " + err.Error()) // it was an answer before
	}
	message.Bytes, message.Envelope = text, envelope
	return message
}

// Send implements session.Server. A request that names a handle of another caller gets its answer here.
func (b *boundServer) Send(ctx context.Context, message session.Message) error {
	scanned, err := message.Scanned()
	if err != nil {
		return err
	}
	refused := b.handles.Claim(b.owner, scanned.Bytes, &scanned.Envelope)
	switch {
	case refused == nil:
		return b.Server.Send(ctx, scanned)
	case scanned.Envelope.Kind != rpc.Request:
		return nil
	}
	answer := rpc.AppendError(nil, scanned.Envelope.ID.Of(scanned.Bytes), rpc.CodeInvalidParams, refused.Error(), nil)
	envelope, err := rpc.Scan(answer)
	if err != nil {
		return err
	}
	go b.hand(session.Message{Bytes: answer, Envelope: envelope, Owned: true}) // the session waits for Send
	return nil
}
