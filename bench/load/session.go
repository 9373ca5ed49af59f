package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Session is a client's session with a server, over HTTP or over a pipe. It has one
// call in flight at a time.
type Session interface {
	// Do calls a tool, verifies the answer, and hands over what else came on the
	// call's stream before.
	Do(call *Call, each func(message []byte) error) error
	Close() error
}

// Remote is a session over HTTP, on one connection.
type Remote struct {
	address, id string
	header      string // one more line of every request's header; may be empty
	conn        *conn
	used        time.Time // when the connection was, last
	deadline    time.Time // of Limit
	request     []byte
	answer      []byte
}

// staleAfter is how long a connection may rest. Servers close those that rest for a few
// seconds, as they may, and a client that is about to use one cannot know.
const staleAfter = time.Second

// refresh sees to a connection that can be used.
func (r *Remote) refresh() error {
	now := time.Now()
	if now.Sub(r.used) > staleAfter && !r.used.IsZero() {
		fresh, err := dial(r.address, r.header)
		if err != nil {
			return err
		}
		_ = r.conn.Close() // it may be closed already
		r.conn = fresh
		if !r.deadline.IsZero() {
			if err := fresh.SetDeadline(r.deadline); err != nil {
				return fmt.Errorf("limit connection: %w", err)
			}
		}
	}
	r.used = now
	return nil
}

// Open opens a session at an address: initialize, and the notification after it.
func Open(address string) (*Remote, error) { return OpenWith(address, "") }

// OpenWith opens a session whose requests all have one more line in their header, unless it is empty.
func OpenWith(address, header string) (*Remote, error) {
	r := &Remote{address: address, header: header}
	var err error
	if r.conn, err = dial(address, header); err != nil {
		return nil, err
	}
	if err := r.Initialize(); err != nil {
		return nil, errors.Join(err, r.conn.Close())
	}
	return r, nil
}

// Dial connects, for Initialize to be measured alone.
func Dial(address string) (*Remote, error) {
	c, err := dial(address, "")
	if err != nil {
		return nil, err
	}
	return &Remote{address: address, conn: c}, nil
}

// Initialize is the request of this name and the notification that completes it.
func (r *Remote) Initialize() error {
	if err := r.Ask(); err != nil {
		return err
	}
	return r.Complete()
}

// Ask sends the initialize request alone, and waits for its answer.
func (r *Remote) Ask() error {
	h, body, err := r.post([]byte(initialize))
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if h.status != http.StatusOK || !bytes.Contains(body, []byte(`"id":0`)) || bytes.Contains(body, []byte(`"error":`)) {
		return fmt.Errorf("initialize: %d %.300q", h.status, body)
	}
	r.id = h.session
	return nil
}

// Complete sends the notification.
func (r *Remote) Complete() error {
	h, body, err := r.post([]byte(initialized))
	if err != nil {
		return fmt.Errorf("complete initialize: %w", err)
	}
	if h.status/100 != 2 {
		return fmt.Errorf("complete initialize: %d %.300q", h.status, body)
	}
	return nil
}

func (r *Remote) post(message []byte) (head, []byte, error) {
	r.used = time.Now()
	if err := r.conn.send("POST", r.address, r.id, message); err != nil {
		return head{}, nil, err
	}
	h, err := r.conn.receive()
	if err != nil {
		return head{}, nil, err
	}
	body, err := r.conn.whole(h)
	return h, body, err
}

// Do implements Session.
func (r *Remote) Do(call *Call, each func(message []byte) error) error {
	if err := r.refresh(); err != nil {
		return err
	}
	r.request = call.append(r.request[:0])
	if err := r.conn.send("POST", r.address, r.id, r.request); err != nil {
		return err
	}
	return r.Finish(call, each)
}

// Finish reads the answer to a call that was sent, verifies it, and hands over what else
// comes on the call's stream before.
func (r *Remote) Finish(call *Call, each func(message []byte) error) error {
	h, err := r.conn.receive()
	if err != nil {
		return err
	}
	if h.status != http.StatusOK || !h.events {
		body, err := r.conn.whole(h)
		if err != nil {
			return err
		}
		if h.status != http.StatusOK { // the body is often a page with a stack trace
			return &StatusError{h.status}
		}
		return call.verify(body)
	}
	r.answer = r.answer[:0]
	err = events(r.conn.content(h), func(data []byte) (bool, error) {
		if isAnswer(data) {
			r.answer = append(r.answer, data...)
			return true, nil // to the end of the body
		}
		return true, each(data)
	})
	if err != nil {
		return err
	}
	return call.verify(r.answer)
}

// StatusError is an answer with a status that is not 200.
type StatusError struct{ Status int }

func (e *StatusError) Error() string {
	return fmt.Sprintf("status %d (%s)", e.Status, http.StatusText(e.Status))
}

// Listen opens a GET stream, on a connection of its own, and returns when the bridge has
// begun to answer. What comes is handed over until the stream is closed.
func (r *Remote) Listen(each func(message []byte)) (io.Closer, error) {
	c, err := dial(r.address, r.header)
	if err != nil {
		return nil, err
	}
	if err := c.send("GET", r.address, r.id, nil); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	h, err := c.receive()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if h.status != http.StatusOK || !h.events {
		return nil, errors.Join(fmt.Errorf("listen: status %d", h.status), c.Close())
	}
	go func() {
		_ = events(c.content(h), func(data []byte) (bool, error) { // it ends with the connection
			each(data)
			return true, nil
		})
	}()
	return c, nil
}

// Leave ends the session in the bridge and closes the connection. A bridge that does
// not know of DELETE, or of sessions, is not to blame.
func (r *Remote) Leave() error {
	if r.id == "" {
		return r.Close()
	}
	if err := r.refresh(); err != nil {
		return err
	}
	err := r.conn.send("DELETE", r.address, r.id, nil)
	if err == nil {
		var h head
		if h, err = r.conn.receive(); err == nil {
			_, err = r.conn.whole(h)
		}
	}
	return errors.Join(err, r.Close())
}

// Close closes the connection.
func (r *Remote) Close() error { return r.conn.Close() }

// Limit bounds how long the session's connection may take from now on.
func (r *Remote) Limit(d time.Duration) error {
	r.deadline = time.Now().Add(d)
	if err := r.conn.SetDeadline(r.deadline); err != nil {
		return fmt.Errorf("limit connection: %w", err)
	}
	return nil
}

// Move goes on with the session at another address.
func (r *Remote) Move(address string) error {
	c, err := dial(address, r.header)
	if err != nil {
		return err
	}
	_ = r.conn.Close() // it has nothing under way
	r.address, r.conn = address, c
	return nil
}

// Another is the same session on another connection.
func (r *Remote) Another() (*Remote, error) {
	c, err := dial(r.address, r.header)
	if err != nil {
		return nil, err
	}
	return &Remote{address: r.address, id: r.id, header: r.header, conn: c}, nil
}

// Begin sends a call and does not read its answer.
func (r *Remote) Begin(call *Call) error {
	return r.conn.send("POST", r.address, r.id, call.append(nil))
}

// Bearer returns the line of a header that carries a token; nothing for no token.
func Bearer(token string) string {
	if token == "" {
		return ""
	}
	return "Authorization: Bearer " + token
}

// Present sends a call outside of any session with another token, and returns the status of the answer. It connects
// again if the server closes the connection.
func (r *Remote) Present(token string, call *Call) (status int, err error) {
	r.conn.header = Bearer(token)
	h, _, err := r.post(call.append(r.request[:0]))
	if err != nil || !h.closes {
		return h.status, err
	}
	_ = r.conn.Close() // the server closes it, too
	r.conn, err = dial(r.address, "")
	return h.status, err
}
