package front

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const timeout = 10 * time.Second

// client is one that takes a while to read each piece, or never does.
type client struct {
	header http.Header
	status int
	wrote  func() // called after each piece; may be nil

	mu       sync.Mutex
	takes    time.Duration // for a piece; a negative value blocks
	deadline time.Time
	moved    chan struct{} // closed when the deadline is another
	pieces   []string
}

func newClient() *client { return &client{header: http.Header{}, moved: make(chan struct{})} }

func (c *client) Header() http.Header    { return c.header }
func (c *client) WriteHeader(status int) { c.status = status }
func (c *client) Flush()                 {}

func (c *client) SetWriteDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = at
	close(c.moved)
	c.moved = make(chan struct{})
	return nil
}

func (c *client) Write(b []byte) (int, error) {
	began := time.Now()
	for {
		c.mu.Lock()
		deadline, moved, takes := c.deadline, c.moved, c.takes
		c.mu.Unlock()
		var late, taken <-chan time.Time
		if !deadline.IsZero() {
			late = time.After(time.Until(deadline))
		}
		if takes >= 0 {
			taken = time.After(takes - time.Since(began))
		}
		select {
		case <-moved:
			continue
		case <-late:
			return 0, os.ErrDeadlineExceeded
		case <-taken:
		}
		c.mu.Lock()
		c.pieces = append(c.pieces, string(b))
		c.mu.Unlock()
		if c.wrote != nil {
			c.wrote()
		}
		return len(b), nil
	}
}

func (c *client) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.pieces, "")
}

// read returns the pieces that were written since it was called last. The next ones take
// another while.
func (c *client) read(takes time.Duration) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takes = takes
	pieces := c.pieces
	c.pieces = nil
	return pieces
}

// owner is of what is written.
type owner struct {
	mu        sync.Mutex
	interrupt func()
	wrote     int
}

func (o *owner) Interruptible(interrupt func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.interrupt = interrupt
}

func (o *owner) Wrote() { o.wrote++ }

func (o *owner) giveUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.interrupt()
}

func TestWriteJSON(t *testing.T) {
	for name, test := range map[string]struct {
		status, size  int
		by            *owner
		pieces        int
		says, bounded bool
	}{
		"small":           {http.StatusOK, 100, &owner{}, 1, false, false},
		"an error":        {http.StatusNotFound, 100, &owner{}, 1, false, false},
		"larger":          {http.StatusOK, saidLength + 1, &owner{}, 1, true, false},
		"one piece":       {http.StatusOK, pieceSize, &owner{}, 1, true, false},
		"large":           {http.StatusOK, 2*pieceSize + 1, &owner{}, 3, true, true},
		"large, no owner": {http.StatusOK, 2*pieceSize + 1, nil, 3, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, body := newClient(), strings.Repeat("x", test.size)
			var by Interrupter
			if test.by != nil {
				by = test.by
			}
			WriteJSON(c, test.status, []byte(body), timeout, by)
			if c.text() != body || len(c.pieces) != test.pieces {
				t.Errorf("got %d bytes in %d pieces, want %d in %d", len(c.text()), len(c.pieces), test.size, test.pieces)
			}
			if c.status != test.status || c.header.Get("Content-Type") != TypeJSON {
				t.Errorf("got status %d, headers %v", c.status, c.header)
			}
			if says := c.header.Get("Content-Length") != ""; says != test.says || c.deadline.IsZero() == test.bounded {
				t.Errorf("says how long it is: %v, deadline %v", says, c.deadline)
			}
			if test.by != nil && (test.by.interrupt != nil || test.bounded && test.by.wrote != test.pieces) {
				t.Errorf("interruptible after it is over: %v, %d pieces are noted", test.by.interrupt != nil, test.by.wrote)
			}
		})
	}
}

// A client that reads steadily gets all, however long it takes. One that does not is given up,
// and gets nothing more.
func TestWriterIsPatient(t *testing.T) {
	for name, test := range map[string]struct {
		takes, want time.Duration
		all         bool
	}{
		"steady": {timeout - time.Second, 4 * (timeout - time.Second), true},
		"slow":   {timeout + time.Second, timeout, false},
		"never":  {-1, timeout, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient()
				c.takes = test.takes
				out, began := NewWriter(c, timeout, nil), time.Now()
				err := out.Write(make([]byte, 4*pieceSize))
				if took := time.Since(began); (err == nil) != test.all || took != test.want {
					t.Errorf("got %v after %s", err, took)
				}
				c.takes = 0
				if again := out.WriteNow([]byte("more")); !errors.Is(again, err) || test.all != strings.Contains(c.text(), "more") {
					t.Errorf("got %v then", again)
				}
				time.Sleep(time.Hour)
				out.Close()
				if late := time.Until(c.deadline) == timeout; late != test.all {
					t.Errorf("time for the end of the answer: %v", late)
				}
			})
		})
	}
}

// A write ends as soon as it is interrupted, also between two pieces.
func TestWriterIsInterrupted(t *testing.T) {
	for name, takes := range map[string]time.Duration{"within a piece": -1, "between pieces": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, by := newClient(), &owner{}
				c.takes = takes
				if takes < 0 {
					time.AfterFunc(time.Second, by.giveUp)
				} else {
					c.wrote = by.giveUp
				}
				out, began := NewWriter(c, timeout, by), time.Now()
				if err := out.Write(make([]byte, 4*pieceSize)); !errors.Is(err, os.ErrDeadlineExceeded) || len(c.pieces) > 1 {
					t.Errorf("got %v after %d pieces", err, len(c.pieces))
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}
