package tolegacy

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
	text, e := request.Bytes, &request.Envelope
	var edits rpc.Edits
	if !e.Params.Present() {
		end := bytes.LastIndexByte(text, '}')
		edits.Replace(rpc.Span{Start: end, End: end}, surrounded(`,"params":{"_meta":{`, meta, "}}"))
		return edits.Edited(text)
	}
	edits.Filter(text, e.Params, func(m rpc.Member) bool {
		switch string(m.Name) {
		case "task", "inputResponses", "requestState":
			return false
		}
		return true
	})
	if !e.Meta.Present() {
		edits.Insert(text, e.Params, surrounded(`"_meta":{`, meta, "}"))
		return edits.Edited(text)
	}
	dropReserved(text, e.Meta, &edits)
	edits.Insert(text, e.Meta, meta)
	return edits.Edited(text)
}

// dropReserved drops what is reserved from a _meta, and returns how much is left.
func dropReserved(text []byte, meta rpc.Span, edits *rpc.Edits) (kept int) {
	return edits.Filter(text, meta, func(m rpc.Member) bool { return !isReserved(m.Name) })
}

func surrounded(before string, text []byte, after string) []byte {
	all := make([]byte, 0, len(before)+len(text)+len(after))
	return append(append(append(all, before...), text...), after...)
}

// ownRequest is a request that no client has made, with members of params that end with
// a comma.
func ownRequest(method, params string, meta []byte) session.Message {
	return scanned(rpc.AppendRequest(nil, []byte(`"slipway"`), method, params+`"_meta":{`+string(meta)+`}`))
}

// scanned is a message that was put together here of parts that were scanned before.
func scanned(text []byte) session.Message {
	e, err := rpc.ScanLenient(text)
	if err != nil {
		return session.Message{Bytes: text} // so this does not happen
	}
	return session.Message{Bytes: text, Envelope: e, Owned: true}
}
