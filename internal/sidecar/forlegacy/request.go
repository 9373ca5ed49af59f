package forlegacy

import (
	"bytes"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// reserved begins the names in _meta that are the protocol's. What clients of older
// revisions put there means nothing to a modern server, or the wrong thing.
const reserved = "io.modelcontextprotocol/"

func isReserved(name []byte) bool { return bytes.HasPrefix(name, []byte(reserved)) }

// enveloped is a request of the client's as the modern server gets it: with these members
// of _meta, and without what a client of an older revision may not say to it. That is a
// task, which nobody has agreed on (U-13), and answers that nobody has asked for.
func enveloped(request session.Message, meta []byte) []byte {
	e := &request.Envelope
	var changes edits
	if !e.Params.Present() {
		end := bytes.LastIndexByte(request.Bytes, '}')
		changes.replace(rpc.Span{Start: end, End: end}, surrounded(`,"params":{"_meta":{`, meta, "}}"))
		return changes.of(request.Bytes)
	}
	begins := e.Params.Start + 1
	changes.replace(rpc.Span{Start: begins, End: begins}, nil) // for a _meta, if there is none
	thin := thinning{edits: &changes}
	for w := over(request.Bytes, e.Params); ; {
		m, ok := w.next()
		if !ok {
			break
		}
		switch string(m.name) {
		case "task", "inputResponses", "requestState":
			thin.drop(m)
		case "_meta":
			thin.keep(m)
			completeMeta(request.Bytes, m.value, meta, &changes)
		default:
			thin.keep(m)
		}
	}
	thin.close()
	if !e.Meta.Present() {
		after := "}"
		if thin.kept > 0 {
			after = "},"
		}
		changes.list[0].With = surrounded(`"_meta":{`, meta, after)
	}
	return changes.of(request.Bytes)
}

// completeMeta puts members into a _meta, in the place of all that are reserved.
func completeMeta(text []byte, at rpc.Span, meta []byte, changes *edits) {
	first := len(changes.list)
	changes.replace(rpc.Span{Start: at.Start + 1, End: at.Start + 1}, meta)
	if thinMeta(text, at, changes) > 0 {
		changes.list[first].With = surrounded("", meta, ",")
	}
}

// thinMeta drops what is reserved from a _meta, and returns how much is left.
func thinMeta(text []byte, at rpc.Span, changes *edits) (kept int) {
	thin := thinning{edits: changes}
	for w := over(text, at); ; {
		m, ok := w.next()
		switch {
		case !ok:
			thin.close()
			return thin.kept
		case isReserved(m.name):
			thin.drop(m)
		default:
			thin.keep(m)
		}
	}
}

func surrounded(before string, text []byte, after string) []byte {
	all := make([]byte, 0, len(before)+len(text)+len(after))
	return append(append(append(all, before...), text...), after...)
}

// ownRequest is a request that no client has made, with members of params that end with
// a comma.
func ownRequest(method, params string, meta []byte) session.Message {
	text := surrounded(`{"jsonrpc":"2.0","id":"slipway","method":"`+method+`","params":{`+params+`"_meta":{`, meta, "}}}")
	return scanned(text)
}

// scanned is a message that was put together here of parts that were scanned before.
func scanned(text []byte) session.Message {
	e, err := rpc.ScanLenient(text)
	if err != nil {
		return session.Message{Bytes: text} // so this does not happen
	}
	return session.Message{Bytes: text, Envelope: e, Owned: true}
}
