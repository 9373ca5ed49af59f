package tomodern

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// level is how severe a log message is: its place in rpc.LogLevels, counted from 1.
type level uint8

const noLevel level = 0

var errLevel = errors.New(rpc.MetaLogLevel + " is not a level")

// levelOf is the lowest level of which a client wants log messages of its request (U-07).
func levelOf(text []byte, at rpc.Span) (level, error) {
	if !at.Present() {
		return noLevel, nil
	}
	i := slices.Index(rpc.LogLevels, string(rpc.Text(text, at)))
	if i < 0 {
		return noLevel, errLevel
	}
	return level(i + 1), nil //nolint:gosec // There are eight.
}

// levelTimeout is for a process to take a level. After it calls go on without.
const levelTimeout = 5 * time.Second

// setLevel tells the process the lowest level that one of its calls wants, if the process does
// not know it yet. Calls that are not sent yet count.
func (p *process) setLevel(ctx context.Context, c *call) {
	s := p.server
	s.mu.Lock()
	if c.level == noLevel {
		s.mu.Unlock()
		return
	}
	if !c.done { // else the client resumes a call that was answered meanwhile
		p.logging[c] = struct{}{}
	}
	lowest := c.level
	for other := range p.logging {
		lowest = min(lowest, other.level)
	}
	if p.level == lowest || !p.offer.logging {
		s.mu.Unlock()
		return
	}
	p.level = lowest
	answered := p.AskLocked("logging/setLevel", `"level":"`+rpc.LogLevels[lowest-1]+`"`, levelTimeout)
	s.mu.Unlock()
	_, _ = p.Await(ctx, answered) // without it the process sends too few messages, or some that are dropped
}

// receiveLog gives a log message to the only call that it can belong to: the message itself
// does not say. Calls whose clients want no log messages count, too.
func (p *process) receiveLog(m session.Message) {
	s := p.server
	var severity level
	found, err := rpc.Find(m.Bytes, m.Envelope.Params, "level")
	if err == nil {
		severity, err = levelOf(m.Bytes, found[0])
	}
	s.mu.Lock()
	var to sessionless.Recipient
	c := p.calls[p.working.Only()]
	if _, wants := p.logging[c]; wants && err == nil && severity >= c.level {
		to = c.to
	}
	s.mu.Unlock()
	if to == nil {
		s.metrics.LogMessages.Inc()
		return
	}
	to.Notify(bytes.Clone(m.Bytes))
}
