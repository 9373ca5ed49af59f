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

// outgoing is a message of the queue.
type outgoing struct {
	text    []byte
	request bool
}

const (
	// BusyPause is between two tries to send a message to a busy server.
	BusyPause = 50 * time.Millisecond
	// ReasonGrace is how long a failed write waits for the reader of the server's output, which may
	// find out why the server has ended. The reader itself waits a second for the exit code.
	ReasonGrace = 3 * time.Second
)

// PostLocked queues a message. It does not wait. The caller must not change the message afterwards.
func (c *Conn[Call]) PostLocked(message []byte) { c.postLocked(outgoing{text: message}) }

func (c *Conn[Call]) postLocked(message outgoing) {
	switch {
	case c.dead != nil:
		return
	case c.options.QueueBytes > 0 && c.queued > c.options.QueueBytes:
		go c.options.Fail(ErrUnread)
		return
	}
	c.queue = append(c.queue, message)
	c.queued += len(message.text)
	if !c.writing {
		c.writing = true
		go c.write()
	}
}

// QueuedLocked returns how many bytes wait for the server to read them.
func (c *Conn[Call]) QueuedLocked() int { return c.queued }

// WritingLocked reports whether a message waits for the server to read it.
func (c *Conn[Call]) WritingLocked() bool { return c.writing }

// write sends the messages of the queue. A server with too many calls is busy and refuses requests.
// Then other messages, which may end calls, go first.
func (c *Conn[Call]) write() {
	held := false // requests wait
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

// next takes the oldest message from the queue, or if requests are held, the oldest other one. more is
// true if any message waits.
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
		if i == 0 { // nearly always
			c.queue[0] = outgoing{}
			c.queue = c.queue[1:]
		} else {
			c.queue = slices.Delete(c.queue, i, i+1)
		}
		return &message, true
	}
	return nil, true
}

// putBack returns a message to the queue. The message was the oldest of its kind, so it goes first.
func (c *Conn[Call]) putBack(message outgoing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead == nil {
		c.queue = slices.Insert(c.queue, 0, message)
	}
}

// wrote records that the server has read a message of the queue.
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

// IsUnread reports whether an error means that the server did not read a message in time. Then the
// server has got no part of the message.
func IsUnread(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// UnreadLocked records that the server did not read a message, and returns for how long it has read
// none.
func (c *Conn[Call]) UnreadLocked() time.Duration {
	if c.unread.IsZero() {
		c.unread = time.Now()
	}
	return time.Since(c.unread)
}

// ReadsLocked reports whether the server read the last message.
func (c *Conn[Call]) ReadsLocked() bool { return c.unread.IsZero() }

// ReadLocked records that the server has read a message.
func (c *Conn[Call]) ReadLocked() {
	if c.unread.IsZero() {
		return
	}
	c.unread = time.Time{}
	if c.options.ReadsAgain != nil {
		c.options.ReadsAgain()
	}
}

// stillUnread records that the server did not read a message of the queue. It reports whether the
// server has read none for too long.
func (c *Conn[Call]) stillUnread() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.UnreadLocked() >= c.options.StuckTimeout
}

// AwaitReason fails the connection after a failed write. If the server has ended, the reader of its
// output fails the connection with a better reason, so AwaitReason waits for that first.
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
