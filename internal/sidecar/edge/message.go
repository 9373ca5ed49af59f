package edge

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// batchMessages is how many messages a batch may have. The envelope of a short message
// takes more memory than the message.
const batchMessages = 1024

// scanBatch reads the envelopes of the messages in an array.
func scanBatch(body []byte) (messages []session.Message, err error) {
	err = rpc.Batch(body, func(element []byte) error {
		envelope, err := rpc.Scan(element)
		switch {
		case err != nil:
			return err
		case envelope.ProtocolVersion != nil:
			return refused("a request of the stateless protocol must not be part of a batch")
		case string(envelope.Method) == "initialize": // nothing else may be sent before its answer
			return refused("initialize must not be part of a batch")
		case len(messages) == batchMessages:
			return refused("a batch may have " + strconv.Itoa(batchMessages) + " messages")
		}
		messages = append(messages, session.Message{Bytes: element, Envelope: envelope})
		return nil
	})
	return messages, err
}

func refused(reason string) *rpc.Error {
	return &rpc.Error{Code: rpc.CodeInvalidRequest, Reason: reason}
}

// notScanned refuses a body that is neither a message nor a batch.
func notScanned(err error) *Refusal {
	code := rpc.CodeParse
	if refused, ok := errors.AsType[*rpc.Error](err); ok {
		code = refused.Code
	}
	text := err.Error()
	if code == rpc.CodeParse {
		text = "the body is not JSON: " + text
	}
	return &Refusal{Status: http.StatusBadRequest, Code: code, Text: text}
}
