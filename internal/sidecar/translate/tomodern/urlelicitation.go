package tomodern

import (
	"encoding/json"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
)

// answerURLs asks a client to visit the URLs that a process wants visited before it is called
// again (-32042). It says whether the process's error could be read.
func (s *Server) answerURLs(c *call, to sessionless.Recipient, text []byte, data rpc.Span) bool {
	var read struct {
		Elicitations []json.RawMessage `json:"elicitations"`
	}
	if !data.IsObject(text) || json.Unmarshal(data.Of(text), &read) != nil || len(read.Elicitations) == 0 || len(read.Elicitations) > mostInputs {
		return false
	}
	if !c.group.capabilities.url {
		const code = rpc.CodeMissingCapability
		to.Answer(rpc.AppendError(nil, to.ID(), code, "this takes a client with elicitation by URL", []byte(`{"requiredCapabilities":{"elicitation":{"url":{}}}}`)), code, rpc.ErrorTypeOf(code))
		return true
	}
	var inputs []*inputRequest
	for i, params := range read.Elicitations {
		mode, modeErr := rpc.Find(params, rpc.Whole(params), "mode")
		var edits rpc.Edits
		if _, err := edits.Take(params, rpc.Whole(params), "elicitationId"); err != nil || modeErr != nil || string(rpc.Text(params, mode[0])) != "url" {
			return false
		}
		inputs = append(inputs, &inputRequest{key: "u" + strconv.Itoa(i+1), method: rpc.MethodElicit, params: edits.Edited(params)})
	}
	bound := c.boundTo()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.parked) >= mostParked {
		return false
	}
	k := &parked{bound: bound}
	s.openLocked(k)
	succeed(to, inputRequired(inputs, k.state))
	return true
}
