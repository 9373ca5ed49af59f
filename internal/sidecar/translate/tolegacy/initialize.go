package tolegacy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

const methodDiscover = "server/discover"

// client is the client as it has described itself.
type client struct {
	revision string
	can      abilities
	identity []byte // the members of _meta that say who the client is, and what it can do
}

// readClient reads the parameters of initialize. The revision is the one that the client asks
// for, if that is one with sessions (L-02).
func readClient(request session.Message) *client {
	e := &request.Envelope
	c := &client{revision: string(e.RequestedVersion)}
	if !front.IsServed(c.revision) {
		c.revision = front.Revision20251125
	}
	c.identity = []byte(`"` + rpc.MetaProtocolVersion + `":"` + front.Revision20260728 + `"`)
	if info := rpc.Lookup(request.Bytes, e.Params, "clientInfo"); info.IsObject(request.Bytes) {
		c.identity = append(append(c.identity, `,"`+rpc.MetaClientInfo+`":`...), info.Of(request.Bytes)...)
	}
	declared, can := readAbilities(rpc.Lookup(request.Bytes, e.Params, "capabilities").Of(request.Bytes), c.revision)
	c.can = can
	c.identity = append(append(c.identity, `,"`+rpc.MetaClientCapabilities+`":`...), declared...)
	return c
}

// initialize answers initialize with what the modern server says to server/discover.
func (s *Server) initialize(ctx context.Context, request session.Message) error {
	id := request.Envelope.ID.Of(request.Bytes)
	if len(request.Envelope.RequestedVersion) == 0 {
		return s.refuse(id, rpc.CodeInvalidParams, "initialize must name a protocolVersion")
	}
	s.mu.Lock()
	again := s.initializing || s.client != nil
	s.initializing = s.client == nil
	s.mu.Unlock()
	if again {
		return s.refuse(id, rpc.CodeInvalidRequest, "the session is initialized already")
	}
	c := readClient(request)
	discover := ownRequest(methodDiscover, "", c.identity)
	discover.From = request.From
	exchange, err := s.options.Modern.Call(ctx, discover)
	if err != nil {
		s.initialized(nil)
		return fmt.Errorf("ask server for %s: %w", methodDiscover, err)
	}
	id = bytes.Clone(id)
	if !s.do(func() { s.finishInitialize(id, c, exchange) }) {
		exchange.Release()
		return session.ErrEnded
	}
	return nil
}

// initialized notes who the client is. It is nil if the server could not be asked.
func (s *Server) initialized(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.initializing, s.client = false, c
	if c != nil {
		s.meta = metaMember(c.identity)
	}
}

func (s *Server) finishInitialize(id []byte, c *client, exchange Exchange) {
	discovered := follow(s.ctx, exchange, func([]byte) {})
	if discovered == nil {
		return // the session ends
	}
	answer, agreed := s.initializeAnswer(id, c, scanned(discovered))
	s.initialized(agreed) // before the client can know, and go on
	s.deliver(answer, nil)
}

// initializeAnswer is the answer to initialize, made of the one to server/discover. It also returns
// the client if the server agreed.
func (s *Server) initializeAnswer(id []byte, c *client, discovered session.Message) (answer []byte, agreed *client) {
	text, e := discovered.Bytes, &discovered.Envelope
	switch {
	case e.Error.Present():
		return translateError(discovered, id), nil
	case e.Kind != rpc.Response || !e.Result.IsObject(text):
		s.metrics.BadResults.Inc()
		return rpc.AppendError(nil, id, rpc.CodeInternal, "the server's answer to "+methodDiscover+" cannot be understood", nil), nil
	}
	capabilities, lists := readOffer(rpc.Lookup(text, e.Result, "capabilities").Of(text))
	s.listen.lists = lists
	result := `{"protocolVersion":"` + c.revision + `","capabilities":` + string(capabilities) + `,"serverInfo":` + string(serverInfo(text, e.Result))
	if instructions := rpc.Lookup(text, e.Result, "instructions"); instructions.Present() && text[instructions.Start] == '"' {
		result += `,"instructions":` + string(instructions.Of(text))
	}
	return rpc.AppendResult(nil, id, []byte(result+"}")), c
}

// serverInfo says who the server is. The server need not say so in its revision, but it must in
// the client's (L-08).
func serverInfo(discovered []byte, result rpc.Span) []byte {
	info := rpc.Lookup(discovered, rpc.Lookup(discovered, result, "_meta"), rpc.MetaServerInfo).Of(discovered)
	var known struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	if len(info) > 0 && json.Unmarshal(info, &known) == nil && known.Name != "" && known.Version != "" {
		return info
	}
	text := rpc.AppendString([]byte(`{"name":`), cmp.Or(known.Name, "unknown"))
	text = rpc.AppendString(append(text, `,"version":`...), cmp.Or(known.Version, "unknown"))
	return append(text, '}')
}
