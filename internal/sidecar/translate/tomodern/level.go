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

// level is how severe a log message is.
type level uint8

const noLevel level = 0

var levels = []string{noLevel: "", 1: "debug", 2: "info", 3: "notice", 4: "warning", 5: "error", 6: "critical", 7: "alert", 8: "emergency"}

var errLevel = errors.New(rpc.MetaLogLevel + " is not a level")

// levelOf is from which level on a client wants log messages of its request (U-07).
func levelOf(text []byte, at rpc.Span) (level, error) {
	if !at.Present() {
		return noLevel, nil
	}
	return readLevel(rpc.Text(text, at))
}

func readLevel(text []byte) (level, error) {
	i := slices.Index(levels, string(text))
	if i <= 0 {
		return noLevel, errLevel
	}
	return level(i), nil //nolint:gosec // There are eight.
}

// levelTimeout is for a process to take a level. After it calls go on without.
const levelTimeout = 5 * time.Second

// tellLevel tells the process the lowest level that one of its calls wants, if it does
// not know yet. That call may be one that is still prepared.
func (w *worker) tellLevel(ctx context.Context, c *call) {
	s := w.server
	s.mu.Lock()
	if c.level == noLevel {
		s.mu.Unlock()
		return
	}
	if c.number == 0 { // else it is of these for as long as it is there
		w.logged[c] = struct{}{}
	}
	lowest := c.level
	for other := range w.logged {
		lowest = min(lowest, other.level)
	}
	if w.level == lowest || !w.hello.logging {
		s.mu.Unlock()
		return
	}
	w.level = lowest
	answered := w.askLocked("logging/setLevel", `"level":"`+levels[lowest]+`"`, levelTimeout)
	s.mu.Unlock()
	_, _ = w.Await(ctx, answered) // without it there are fewer messages, or more, which are dropped
}

// receiveLog gives a log message to the call that it belongs to, if there is only one
// that it can belong to, whether that call's client wants log messages or not: the message
// itself does not say.
func (w *worker) receiveLog(m session.Message) {
	found, err := rpc.Find(m.Bytes, m.Envelope.Params, "level")
	if err != nil {
		w.server.metrics.LogMessages.Inc()
		return
	}
	severity, err := readLevel(rpc.Text(m.Bytes, found[0]))
	w.server.mu.Lock()
	var to sessionless.Recipient
	if c := w.loggingLocked(); c != nil && err == nil && severity >= c.level {
		to = c.to
	}
	w.server.mu.Unlock()
	if to == nil {
		w.server.metrics.LogMessages.Inc()
		return
	}
	to.Notify(bytes.Clone(m.Bytes))
}

// loggingLocked is the only call that the process can write about, if it wants log messages,
// or nil.
func (w *worker) loggingLocked() *call {
	for c := range w.logged {
		if c.first != 0 && c.first == w.working.Only() { // 0: the process does not have it yet
			return c
		}
	}
	return nil
}
