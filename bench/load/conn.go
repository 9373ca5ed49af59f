// Package load is the generator: clients that cost little, verify every answer and
// measure how long it took.
package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"time"
)

// conn is one connection with HTTP/1.1 and keep-alive. It is written by hand because
// net/http's client costs as much as the server that is to be measured, on the same two
// cores.
type conn struct {
	net.Conn
	header string // one more line of every request's header; may be empty
	reader *bufio.Reader
	head   []byte // of the last request, kept for its space
	body   []byte // of the last answer, likewise
}

// patience is for one whole cell: a bridge that hangs must not hang the run.
const patience = 2 * time.Minute

func dial(address, header string) (*conn, error) {
	c, err := net.DialTimeout("tcp", address, patience) //nolint:noctx // It is this machine: it takes no time.
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, fmt.Errorf("limit connection: %w", err)
	}
	return &conn{Conn: c, header: header, reader: bufio.NewReaderSize(c, 16<<10)}, nil
}

// head is what matters of an answer's header.
type head struct {
	status  int
	session string
	length  int // -1 when it is not said
	chunked bool
	events  bool
	closes  bool // the server closes the connection
}

// send writes a request. A small one is one write.
func (c *conn) send(method, address, session string, body []byte) error {
	h := c.head[:0]
	h = append(h, method...)
	h = append(h, " /mcp HTTP/1.1\r\nHost: "...)
	h = append(h, address...)
	if method == "GET" {
		h = append(h, "\r\nAccept: text/event-stream"...)
	} else {
		h = append(h, "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream"...)
		h = append(h, "\r\nContent-Length: "...)
		h = strconv.AppendInt(h, int64(len(body)), 10)
	}
	if c.header != "" {
		h = append(h, "\r\n"...)
		h = append(h, c.header...)
	}
	if session != "" {
		h = append(h, "\r\nMcp-Session-Id: "...)
		h = append(h, session...)
		h = append(h, "\r\nMCP-Protocol-Version: "+revision...)
	}
	h = append(h, "\r\n\r\n"...)
	var err error
	if len(body) <= 4<<10 {
		h = append(h, body...)
		_, err = c.Write(h)
	} else {
		buffers := net.Buffers{h, body}
		_, err = buffers.WriteTo(c.Conn)
	}
	c.head = h
	if err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	return nil
}

// receive reads an answer's header.
func (c *conn) receive() (head, error) {
	answer := head{length: -1}
	for first := true; ; first = false {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return head{}, fmt.Errorf("read answer: %w", err)
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first:
			if len(line) < len("HTTP/1.1 200") {
				return head{}, fmt.Errorf("read answer: %q", line)
			}
			if answer.status, err = strconv.Atoi(string(line[9:12])); err != nil {
				return head{}, fmt.Errorf("read answer: %q", line)
			}
		case len(line) == 0:
			return answer, nil
		default:
			if err := answer.take(line); err != nil {
				return head{}, err
			}
		}
	}
}

// take reads one line of the header.
func (h *head) take(line []byte) (err error) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimSpace(value)
	switch len(name) { // before a comparison that costs more
	case len("Content-Length"): // and of Mcp-Session-Id
		if bytes.EqualFold(name, []byte("Content-Length")) {
			if h.length, err = strconv.Atoi(string(value)); err != nil {
				return fmt.Errorf("read answer: %q", line)
			}
		} else if bytes.EqualFold(name, []byte("Mcp-Session-Id")) {
			h.session = string(value)
		}
	case len("Connection"):
		h.closes = h.closes || bytes.EqualFold(name, []byte("Connection")) && bytes.EqualFold(value, []byte("close"))
	case len("Content-Type"):
		if bytes.EqualFold(name, []byte("Content-Type")) {
			h.events = bytes.HasPrefix(value, []byte("text/event-stream"))
		}
	case len("Transfer-Encoding"):
		if bytes.EqualFold(name, []byte("Transfer-Encoding")) {
			h.chunked = bytes.EqualFold(value, []byte("chunked"))
		}
	}
	return nil
}

// content is the body of an answer, to be read to its end before the next request.
func (c *conn) content(h head) io.Reader {
	switch {
	case h.chunked:
		return &chunked{httputil.NewChunkedReader(c.reader), c.reader}
	case h.length > 0:
		return io.LimitReader(c.reader, int64(h.length))
	}
	return bytes.NewReader(nil)
}

// chunked takes the empty line, too, that ends a chunked body.
type chunked struct {
	io.Reader
	raw *bufio.Reader
}

func (c *chunked) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		if _, end := c.raw.Discard(len("\r\n")); end != nil {
			return n, end
		}
	}
	return n, err
}

// whole reads a body into the connection's own buffer, where it stays until the next.
func (c *conn) whole(h head) ([]byte, error) {
	if h.length >= 0 && !h.chunked {
		if cap(c.body) < h.length {
			c.body = make([]byte, h.length)
		}
		c.body = c.body[:h.length]
		if _, err := io.ReadFull(c.reader, c.body); err != nil {
			return nil, fmt.Errorf("read answer's body: %w", err)
		}
		return c.body, nil
	}
	buffer := bytes.NewBuffer(c.body[:0])
	if _, err := buffer.ReadFrom(c.content(h)); err != nil {
		return nil, fmt.Errorf("read answer's body: %w", err)
	}
	c.body = buffer.Bytes()
	return c.body, nil
}

// events calls take with the data of each event, until the body ends or take says that
// it has enough. The data is there until take returns.
func events(body io.Reader, take func(data []byte) (more bool, err error)) error {
	lines := bufio.NewReaderSize(body, 32<<10)
	var long []byte
	for {
		part, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, part...)
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		line := part
		if len(long) > 0 {
			long = append(long, part...)
			line, long = long, long[:0]
		}
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if data = bytes.TrimSpace(data); !ok || len(data) == 0 {
			continue // ids, comments, and events that only begin a stream
		}
		if more, err := take(data); !more || err != nil {
			return err
		}
	}
}
