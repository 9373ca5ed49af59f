package mux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// ErrUnread says that the server does not read what it is sent.
var ErrUnread = errors.New("the server does not read what it is sent")

// outgoing is a message that no caller waits for to be written.
type outgoing struct {
	text    []byte
	request bool
}

const (
	// BusyPause is before what was not taken is sent again.
	BusyPause = 50 * time.Millisecond
	// ReasonGrace is how long a failed write waits for the reader of the server's output to say
	// that the server has ended, and why. The reader itself waits a second for the exit code.
	ReasonGrace = 3 * time.Second
)

// PostLocked has a message written after those that were posted before, without waiting. The
// message must not change any more.
func (c *Conn[Call]) PostLocked(message []byte) { c.postLocked(outgoing{text: message}) }

func (c *Conn[Call]) postLocked(message outgoing) {
	if c.dead != nil {
		return
	}
	c.queue = append(c.queue, message)
	c.queued += len(message.text)
	if !c.writing {
		c.writing = true
		go c.write()
	}
}

// QueuedLocked is how many bytes wait for the server to read them.
func (c *Conn[Call]) QueuedLocked() int { return c.queued }

// WritingLocked says whether anything waits for the server to read.
func (c *Conn[Call]) WritingLocked() bool { return c.writing }

// write sends what waits. A server may take no requests for as long as it has too many calls. Then
// messages that may end these go first.
func (c *Conn[Call]) write() {
	held := false // requests have to wait
	for {
		next, more := c.next(held)
		switch {
		case next != nil:
		case more:
			c.pause()
			held = false
			continue
		default:
			return
		}
		err := c.send(next.text)
		switch {
		case err == nil:
			c.wrote(len(next.text))
		case errors.Is(err, fault.ErrBusy):
			c.putBack(*next)
			if held = next.request; !held {
				c.pause()
			}
		case IsUnread(err) && !c.stillUnread():
			c.putBack(*next)
			c.pause()
		default:
			c.AwaitReason(err)
			return
		}
	}
}

func (c *Conn[Call]) send(message []byte) error {
	ctx := context.Background()
	if c.options.WriteTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.options.WriteTimeout)
		defer cancel()
	}
	return c.server.Send(ctx, session.Message{Bytes: message})
}

// next is what is to be written next: the oldest message, or if requests have to wait, the oldest
// other one. It says whether any waits.
func (c *Conn[Call]) next(held bool) (next *outgoing, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		c.writing, c.queue = false, nil
		return nil, false
	}
	for i, message := range c.queue {
		if held && message.request {
			continue
		}
		if i == 0 { // as nearly always
			c.queue[0] = outgoing{}
			c.queue = c.queue[1:]
		} else {
			c.queue = slices.Delete(c.queue, i, i+1)
		}
		return &message, true
	}
	return nil, true
}

// putBack has a message sent again. It was the oldest of its kind.
func (c *Conn[Call]) putBack(message outgoing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead == nil {
		c.queue = slices.Insert(c.queue, 0, message)
	}
}

// wrote notes that the server has read a message of the queue.
func (c *Conn[Call]) wrote(size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return
	}
	c.queued -= size
	c.ReadLocked()
	if c.options.Written != nil {
		c.options.Written()
	}
}

func (c *Conn[Call]) pause() {
	select {
	case <-c.over:
	case <-time.After(BusyPause):
	}
}

// IsUnread says whether an error means that the server did not read a message in time. It has not
// seen the message.
func IsUnread(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// UnreadLocked notes that the server did not read a message, and returns for how long it has not
// read any.
func (c *Conn[Call]) UnreadLocked() time.Duration {
	if c.unread.IsZero() {
		c.unread = time.Now()
	}
	return time.Since(c.unread)
}

// ReadsLocked says whether the server reads, as far as is known.
func (c *Conn[Call]) ReadsLocked() bool { return c.unread.IsZero() }

// ReadLocked notes that the server has read a message.
func (c *Conn[Call]) ReadLocked() {
	if c.unread.IsZero() {
		return
	}
	c.unread = time.Time{}
	if c.options.ReadsAgain != nil {
		c.options.ReadsAgain()
	}
}

// stillUnread is for a message of the queue that the server did not read. It says whether the
// server has not read for too long.
func (c *Conn[Call]) stillUnread() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.UnreadLocked() >= c.options.StuckTimeout
}

// AwaitReason fails the connection because of a write that failed. The end of the server, if that
// is why, tells more than that it cannot be written to, so AwaitReason waits for it first.
func (c *Conn[Call]) AwaitReason(err error) {
	if IsUnread(err) {
		c.options.Fail(fmt.Errorf("%w: %w", ErrUnread, err))
		return
	}
	select {
	case <-c.over:
	case <-time.After(ReasonGrace):
		c.options.Fail(err)
	}
}
