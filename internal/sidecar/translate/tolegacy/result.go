package tolegacy

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// complete is a complete result as the client gets it: without what its revision does not
// know, and otherwise byte for byte. It overwrites the answer.
func (c *call) complete(answer session.Message) session.Message {
	text, e := answer.Bytes, &answer.Envelope
	down := downlevel{text: text, method: c.method(), revision: c.revision}
	down.edits.Filter(text, e.Result, func(m rpc.Member) bool {
		switch string(m.Name) {
		case "resultType", "ttlMs", "cacheScope":
			return false
		case "_meta":
			return keepMeta(text, m.Value, &down.edits)
		}
		return down.keep(m, e.Result)
	})
	e.ID, e.Result = down.edits.Moved(e.ID), down.edits.Moved(e.Result)
	answer.Bytes = down.edits.EditedInPlace(text)
	return answer
}

// keepMeta drops the reserved members of a _meta. It says whether to keep the _meta: one that
// has only such members goes.
func keepMeta(text []byte, meta rpc.Span, edits *rpc.Edits) bool {
	before := edits.Len()
	if dropReserved(text, meta, edits) > 0 || edits.Len() == before {
		return true
	}
	edits.Truncate(before)
	return false
}

// translateError is an error of the modern server as the client gets it, under an id.
func translateError(answer session.Message, id []byte) []byte {
	at := answer.Envelope.Error
	text := string(rpc.Text(answer.Bytes, rpc.Lookup(answer.Bytes, at, "message")))
	var data []byte
	if found := rpc.Lookup(answer.Bytes, at, "data"); found.Present() {
		data = found.Of(answer.Bytes)
	}
	code, err := strconv.Atoi(string(rpc.Lookup(answer.Bytes, at, "code").Of(answer.Bytes)))
	switch {
	case err != nil:
		return rpc.AppendError(nil, id, rpc.CodeInternal, "the server's error has no code", nil)
	case code == rpc.CodeUnsupportedRevision:
		// The client would think that it is about the client's own revision.
		return rpc.AppendError(nil, id, rpc.CodeInternal, "the server does not serve protocol revision "+front.Revision20260728+" any more", nil)
	case code == rpc.CodeMissingCapability:
		return rpc.AppendError(nil, id, code, missing(text, data), data)
	}
	return rpc.AppendErrorObject(nil, id, at.Of(answer.Bytes))
}

// missing says which capabilities the client lacks. Modern clients read that in the data.
// Older ones show their users the message.
func missing(text string, data []byte) string {
	if text == "" {
		text = "the server needs a client that can do more"
	}
	var known struct {
		Required map[string]json.RawMessage `json:"requiredCapabilities"`
	}
	if data == nil || json.Unmarshal(data, &known) != nil || len(known.Required) == 0 {
		return text
	}
	const most = 16
	var names []string
	for name := range known.Required {
		names = append(names, rpc.Clip(name))
	}
	slices.Sort(names)
	return text + " (the client lacks: " + strings.Join(names[:min(len(names), most)], ", ") + ")"
}
