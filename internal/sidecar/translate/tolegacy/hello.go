package tolegacy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

const (
	methodDiscover = "server/discover"
	newest         = front.Revision20251125
)

// client is what the client said of itself.
type client struct {
	revision string
	can      abilities
	identity []byte // the members of _meta that say so
}

// meta are the members of _meta that every request of the session has.
func (c *client) meta(logLevel string) []byte {
	if logLevel == "" {
		return c.identity
	}
	return append(slices.Clip(c.identity), `,"`+rpc.MetaLogLevel+`":"`+logLevel+`"`...)
}

// readClient reads the parameters of initialize. The revision is the one that is asked
// for, if it is one with sessions (L-02).
func readClient(request session.Message) *client {
	e := &request.Envelope
	c := &client{revision: string(e.RequestedVersion)}
	if !front.IsServed(c.revision) {
		c.revision = newest
	}
	c.identity = append(c.identity, `"`+rpc.MetaProtocolVersion+`":"`+front.Revision20260728+`"`...)
	if info := rpc.Lookup(request.Bytes, e.Params, "clientInfo"); info.IsObject(request.Bytes) {
		c.identity = append(append(c.identity, `,"`+rpc.MetaClientInfo+`":`...), info.Of(request.Bytes)...)
	}
	declared, can := readAbilities(rpc.Lookup(request.Bytes, e.Params, "capabilities").Of(request.Bytes), c.revision)
	c.can = can
	c.identity = append(append(c.identity, `,"`+rpc.MetaClientCapabilities+`":`...), declared...)
	return c
}

// greet answers initialize, by what the modern server says of itself.
func (s *Server) greet(ctx context.Context, request session.Message) error {
	id := request.Envelope.ID.Of(request.Bytes)
	if len(request.Envelope.RequestedVersion) == 0 {
		return s.refuse(id, rpc.CodeInvalidParams, "initialize must name a protocolVersion")
	}
	s.mu.Lock()
	again := s.greeting || s.client != nil
	s.greeting = s.client == nil
	s.mu.Unlock()
	if again {
		return s.refuse(id, rpc.CodeInvalidRequest, "the session is initialized already")
	}
	greeted := readClient(request)
	discover := ownRequest(methodDiscover, "", greeted.identity)
	discover.From = request.From
	exchange, err := s.options.Modern.Call(ctx, discover)
	if err != nil {
		s.greeted(nil)
		return fmt.Errorf("ask server for %s: %w", methodDiscover, err)
	}
	id = bytes.Clone(id)
	if !s.do(func() { s.finishGreeting(id, greeted, exchange) }) {
		exchange.Release()
		return session.ErrEnded
	}
	return nil
}

// greeted notes who the client is, if the server could be asked.
func (s *Server) greeted(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.greeting, s.client = false, c
	if c != nil {
		s.meta = c.meta("")
	}
}

func (s *Server) finishGreeting(id []byte, c *client, exchange Exchange) {
	defer exchange.Release()
	for {
		message, last, err := await(s.ctx, exchange)
		switch {
		case err != nil:
			return // the session ends
		case !last:
			continue
		}
		answer, agreed := s.hello(id, c, message)
		if !agreed {
			c = nil
		}
		s.greeted(c) // before the client can know, and go on
		s.deliver(answer, nil)
		return
	}
}

// hello is the answer to initialize, made of the one to server/discover.
func (s *Server) hello(id []byte, c *client, discovered []byte) (answer []byte, agreed bool) {
	e, err := rpc.ScanLenient(discovered)
	switch {
	case err == nil && e.Error.Present():
		return translateError(session.Message{Bytes: discovered, Envelope: e}, id), false
	case err != nil || e.Kind != rpc.Response || !e.Result.IsObject(discovered):
		s.metrics.BadResults.Inc()
		return rpc.AppendError(nil, id, rpc.CodeInternal, "the server's answer to "+methodDiscover+" cannot be understood", nil), false
	}
	capabilities, lists := readOffer(rpc.Lookup(discovered, e.Result, "capabilities").Of(discovered))
	s.listen.lists = lists
	result := append([]byte(`{"protocolVersion":"`+c.revision+`","capabilities":`), capabilities...)
	result = append(append(result, `,"serverInfo":`...), serverInfo(discovered, e.Result)...)
	if instructions := rpc.Lookup(discovered, e.Result, "instructions"); instructions.Present() && discovered[instructions.Start] == '"' {
		result = append(append(result, `,"instructions":`...), instructions.Of(discovered)...)
	}
	return rpc.AppendResult(nil, id, append(result, '}')), true
}

// serverInfo is who the server is. It need not say so in its revision, but it must in the
// client's (L-08).
func serverInfo(discovered []byte, result rpc.Span) []byte {
	info := rpc.Lookup(discovered, rpc.Lookup(discovered, result, "_meta"), rpc.MetaServerInfo).Of(discovered)
	var known struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	if len(info) > 0 && json.Unmarshal(info, &known) == nil && known.Name != "" && known.Version != "" {
		return info
	}
	const unknown = "unknown"
	if known.Name == "" {
		known.Name = unknown
	}
	if known.Version == "" {
		known.Version = unknown
	}
	text := rpc.AppendString([]byte(`{"name":`), known.Name)
	text = rpc.AppendString(append(text, `,"version":`...), known.Version)
	return append(text, '}')
}

var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// setLevel has every request ask for log messages of a level (U-06).
func (s *Server) setLevel(request session.Message) error {
	id := request.Envelope.ID.Of(request.Bytes)
	level := string(rpc.Text(request.Bytes, rpc.Lookup(request.Bytes, request.Envelope.Params, "level")))
	if !slices.Contains(logLevels, level) {
		return s.refuse(id, rpc.CodeInvalidParams, "unknown log level")
	}
	s.mu.Lock()
	s.logLevel, s.meta = level, s.client.meta(level)
	s.mu.Unlock()
	return s.reply(id, `{}`)
}

// identity are the members of _meta of requests that are the session's own.
func (s *Server) identity() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client.identity
}
