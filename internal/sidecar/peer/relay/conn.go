package relay

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// readerSize is the size of the buffer that each connection has. Heads of answers fit into it, and it is
	// small beside what else a stream without events takes.
	readerSize = 4 << 10
	// maxHead bounds the heads of an answer, informational ones among them.
	maxHead = 256 << 10
)

var errHeadTooLarge = errors.New("the head of the answer is too large")

// conn is a connection to a pod. One goroutine uses it at a time; any may close it.
type conn struct {
	raw         net.Conn
	tls         *tls.Conn
	reader      *bufio.Reader
	head        int  // bytes that the head of an answer may have; negative after the head
	heard       bool // a byte of the current answer has come
	used        bool // it had a request before the current one
	idleSince   time.Time
	connections *atomic.Int64

	closed atomic.Bool
	lost   atomic.Bool // the pod did not answer a ping

	kernel Kernel // nil if there is none, as for pipes
}

func (r *Relay) newConn(raw net.Conn, secure *tls.Conn) *conn {
	c := &conn{raw: raw, tls: secure, connections: &r.connections}
	c.reader = bufio.NewReaderSize((*limited)(c), readerSize)
	c.kernel = kernelOf(raw)
	r.connections.Add(1)
	return c
}

// close closes the connection at once. The pod needs no closing alert of TLS, which could block: HTTP
// says how long a request is.
func (c *conn) close() {
	if c.closed.CompareAndSwap(false, true) {
		c.connections.Add(-1)
		_ = c.raw.Close()
	}
}

// abort closes the connection of a pod that counts as dead. The kernel drops what the pod has not acknowledged: otherwise
// a request would reach a pod that was cut off for a while, after its client was told that it is lost.
func (c *conn) abort() {
	if tcp, ok := c.raw.(interface{ SetLinger(seconds int) error }); ok {
		_ = tcp.SetLinger(0) // fails only if it is closed
	}
	c.close()
}

func (c *conn) isClosed() bool { return c.closed.Load() }

// isStale reports whether the pod has closed a connection that had no request, or sent what no request
// asked for. It costs one system call. A call that is sent on a connection that the pod has closed is
// lost, because the relay cannot know whether the pod has read it.
func (c *conn) isStale() bool {
	if c.isClosed() {
		return true
	}
	if c.kernel == nil {
		return false
	}
	unread, over := c.kernel.State()
	return over || unread && c.used // an unused one may have tickets of TLS, which come before the first answer
}

// isAcknowledged reports whether the kernel of the pod has acknowledged all that was sent.
func (c *conn) isAcknowledged() bool { return c.kernel != nil && c.kernel.Acknowledged() }

// limited reads from the connection within the limit for heads.
type limited conn

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if l.head == 0 {
		return 0, errHeadTooLarge
	}
	if l.head > 0 {
		p = p[:min(len(p), l.head)]
	}
	n, err := l.tls.Read(p)
	if l.head > 0 {
		l.head -= n
	}
	l.heard = l.heard || n > 0
	return n, err
}

// readHead waits for an answer, and reads its head.
func (c *conn) readHead() (*http.Response, error) {
	c.head, c.heard = maxHead, false
	for {
		response, err := http.ReadResponse(c.reader, nil)
		switch {
		case err != nil:
			return nil, err
		case response.StatusCode < http.StatusContinue, response.StatusCode == http.StatusSwitchingProtocols:
			return nil, fmt.Errorf("read answer: unexpected status %d", response.StatusCode)
		case response.StatusCode >= http.StatusOK:
			c.head = -1
			return response, nil
		}
	}
}

// drain reads an answer to its end, up to a limit. It returns whether the connection is good for
// another request.
func (c *conn) drain(response *http.Response, limit int64) bool {
	n, err := io.CopyN(io.Discard, response.Body, limit)
	return n < limit && errors.Is(err, io.EOF) && c.isReusable(response)
}

// isReusable reports whether the connection is good for another request, once an answer was read to
// its end.
func (c *conn) isReusable(response *http.Response) bool {
	c.used = true
	return !response.Close && c.reader.Buffered() == 0 && !c.isClosed()
}

// readAnswer waits for the answer to a request, and reads its head. A request that could not be sent may
// have an answer, too: the pod can answer before it closes the connection. If it did not, the error of the
// sending counts.
func (c *conn) readAnswer(sendErr error) (*http.Response, error) {
	if sendErr == nil {
		return c.readHead()
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(lateAnswer)) // fails only if it is closed
	response, err := c.readHead()
	if err != nil && !isAlert(err) {
		err = sendErr
	}
	return response, err
}
