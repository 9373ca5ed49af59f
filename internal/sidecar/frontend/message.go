package frontend

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Scan reads the envelope of a message.
func Scan(body []byte) (session.Message, error) {
	envelope, err := rpc.Scan(body)
	return session.Message{Bytes: body, Envelope: envelope}, err
}

// batchMessages is how many messages a batch may have: what is known of a message
// takes more room than a short one itself.
const batchMessages = 1024

// ScanBatch reads the envelopes of the messages in an array.
func ScanBatch(body []byte) (messages []session.Message, err error) {
	err = rpc.Batch(body, func(element []byte) error {
		message, err := Scan(element)
		switch {
		case err != nil:
			return err
		case message.Envelope.ProtocolVersion != nil:
			return refused("a request of the stateless protocol must not be part of a batch")
		case string(message.Envelope.Method) == "initialize": // J-08
			return refused("initialize must not be part of a batch")
		case len(messages) == batchMessages:
			return refused("a batch may have " + strconv.Itoa(batchMessages) + " messages")
		}
		messages = append(messages, message)
		return nil
	})
	return messages, err
}

func refused(reason string) *rpc.Error {
	return &rpc.Error{Code: rpc.CodeInvalidRequest, Reason: reason}
}

// RefuseScan answers a request whose body is no message (J-13).
func RefuseScan(w http.ResponseWriter, err error) {
	code := rpc.CodeParse
	if refused, ok := errors.AsType[*rpc.Error](err); ok {
		code = refused.Code
	}
	text := err.Error()
	if code == rpc.CodeParse {
		text = "the body is not JSON: " + text
	}
	Refuse(w, http.StatusBadRequest, nil, code, text)
}
