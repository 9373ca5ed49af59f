package session

import (
	"fmt"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// Message is a JSON-RPC message with its envelope.
type Message struct {
	Bytes    []byte
	Envelope rpc.Envelope

	// Tag is a value of the front end. The Event with the answer has it, too.
	Tag any
	// From is the client that sends the message; nil if the adapter does.
	From *caller.Caller

	// Set by servers that know which call a message belongs to. Child processes do not.
	Call      []byte // the id of the call that the message belongs to
	Unrelated bool   // the message belongs to no call

	Owned   bool // the receiver may keep Bytes: no other code changes them
	Charged bool // the budget has room for the message, which the session takes over
	// Room is the account that holds this room until the session takes it over, or GiveRoom
	// gives it back. nil means that no account holds it.
	Room *budget.Account
}

// GiveRoom gives the room of the message back to the budget.
func (m *Message) GiveRoom() {
	m.Room.Give(len(m.Bytes))
	m.Charged, m.Room = false, nil
}

// Scanned returns the message with its envelope. It scans the bytes if the sender has not.
func (m Message) Scanned() (Message, error) {
	if m.Envelope.Kind != 0 {
		return m, nil
	}
	var err error
	if m.Envelope, err = rpc.Scan(m.Bytes); err != nil {
		return m, fmt.Errorf("read message: %w", err)
	}
	return m, nil
}
