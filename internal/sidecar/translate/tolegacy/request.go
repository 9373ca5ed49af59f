package tolegacy

import (
	"bytes"
	"slices"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// reserved begins the names in _meta that are the protocol's. A modern server misreads those
// of older revisions.
const reserved = "io.modelcontextprotocol/"

// metaMember is the member _meta with these members.
func metaMember(members []byte) []byte {
	return slices.Concat([]byte(`"_meta":{`), members, []byte("}"))
}

// enveloped is a request of the client as the modern server gets it: with this member _meta,
// and without what a client of an older revision may not say to it. That is a task, which
// client and server have not agreed on (U-13), and answers to no input request.
func enveloped(request session.Message, meta []byte) []byte {
	text, e := request.Bytes, &request.Envelope
	var edits rpc.Edits
	if !e.Params.Present() {
		end := bytes.LastIndexByte(text, '}')
		edits.Replace(rpc.Span{Start: end, End: end}, slices.Concat([]byte(`,"params":{`), meta, []byte("}")))
		return edits.Edited(text)
	}
	edits.Filter(text, e.Params, func(m rpc.Member) bool {
		switch string(m.Name) {
		case "task", "inputResponses", "requestState":
			return false
		}
		return true
	})
	dropReserved(text, e.Meta, &edits)
	edits.InsertMeta(text, e.Params, e.Meta, meta)
	return edits.Edited(text)
}

// dropReserved drops the reserved members of a _meta, and returns how many members stay.
func dropReserved(text []byte, meta rpc.Span, edits *rpc.Edits) (kept int) {
	return edits.Filter(text, meta, func(m rpc.Member) bool { return !bytes.HasPrefix(m.Name, []byte(reserved)) })
}

// ownRequest is a request of the adapter itself, with members of params that end with a comma.
func ownRequest(method, params string, meta []byte) session.Message {
	return scanned(rpc.AppendRequest(nil, []byte(`"slipway"`), method, params+string(metaMember(meta))))
}

// scanned is a message that the session may keep. Its Envelope is empty if the text is not a
// message, which is so for none that the adapter puts together of scanned parts.
func scanned(text []byte) session.Message {
	e, err := rpc.ScanLenient(text)
	if err != nil {
		return session.Message{Bytes: text}
	}
	return session.Message{Bytes: text, Envelope: e, Owned: true}
}
