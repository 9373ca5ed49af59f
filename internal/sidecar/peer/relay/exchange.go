package relay

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// exchange is one request and its answer.
type exchange struct {
	relay   *Relay
	ctx     context.Context // of the request, for as long as Forward runs
	w       http.ResponseWriter
	request *Request
	again   bool // the connection was closed before, and the request may be sent once more
}

// try sends the request on one connection, and relays the answer.
func (x *exchange) try(p *pod, fresh bool) error {
	x.again = false
	c, err := x.relay.take(x.ctx, p, x.request, fresh)
	if err != nil {
		return err
	}
	release := context.AfterFunc(x.ctx, c.close)
	reusable, err := x.run(c)
	if release() && reusable {
		x.relay.put(p, c)
	} else {
		x.relay.drop(p, c)
	}
	return err
}

// run is try on a connection. It returns whether the connection is good for another request.
func (x *exchange) run(c *conn) (reusable bool, err error) {
	sending, sendErr := c.send(x.request)
	response, err := c.readAnswer(sendErr)
	whole := sendErr == nil
	if sending != nil {
		if err != nil {
			c.close()
		}
		whole = sending.halt(c, http.NewResponseController(x.w))
	}
	if err != nil {
		return false, x.unanswered(c, sending, err)
	}
	defer func() { _ = response.Body.Close() }()
	if x.request.Begun != nil {
		x.request.Begun()
	}
	if err := x.answer(c, response); err != nil {
		return false, err
	}
	return c.isReusable(response) && whole, nil
}

// unanswered is the error of a request without an answer.
func (x *exchange) unanswered(c *conn, sending *sending, err error) error {
	switch {
	case x.ctx.Err() != nil:
		return left(x.ctx)
	case sending != nil && sending.bodyErr != nil:
		return because(ErrBody, sending.bodyErr)
	case !c.used && sending == nil && isAlert(err):
		// In TLS 1.3, the handshake ends here before the pod has seen the certificate of this one. It
		// reads no request if it does not like what it sees.
		return &DialError{Outcome: Unready, Err: err}
	}
	x.again = c.used && !c.heard && !c.lost.Load() && sending == nil && x.mayRepeat()
	return because(ErrLost, err)
}

// isAlert reports whether the pod has refused the TLS connection.
func isAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// mayRepeat reports whether it does no harm if the pod gets the request twice.
func (x *exchange) mayRepeat() bool {
	return !x.request.Once && (x.request.Method == http.MethodGet || x.request.Method == http.MethodDelete)
}

// answer writes the answer to the client.
func (x *exchange) answer(c *conn, response *http.Response) error {
	header := x.w.Header()
	passHeaders(header, response.Header)
	events := strings.HasPrefix(response.Header.Get("Content-Type"), front.TypeEvents)
	if response.Header["Content-Type"] == nil {
		header["Content-Type"] = nil // net/http would guess
	}
	x.w.WriteHeader(response.StatusCode)
	if response.ContentLength >= 0 && response.ContentLength <= pieceSize {
		return x.copySmall(response)
	}
	out := front.NewWriter(x.w, x.relay.options.WriteTimeout, nil)
	if events && c.reader.Buffered() == 0 {
		if err := out.WriteNow(nil); err != nil { // the first event may be long in coming
			return because(ErrClient, err)
		}
	}
	if err := x.copyPieces(c, response, out, events); err != nil {
		return err
	}
	out.Close()
	return nil
}

// peerHeaders is how the names of headers begin that are for pods only.
const peerHeaders = "Slipway-Peer-"

// passHeaders sets the headers that the client gets.
func passHeaders(dst, header http.Header) {
	front.RemoveHopByHop(header)
	maps.DeleteFunc(header, func(name string, _ []string) bool { return strings.HasPrefix(name, peerHeaders) })
	maps.Copy(dst, header)
}

// copySmall copies a body that fits into one piece. The write needs no deadline, because it fits into the
// buffers of the client's connection, too.
func (x *exchange) copySmall(response *http.Response) error {
	if response.ContentLength == 0 {
		return nil
	}
	piece := getPiece()
	defer pieces.Put(piece)
	n, err := io.ReadFull(response.Body, piece[:response.ContentLength])
	if err != nil {
		return x.cut(err)
	}
	if _, err := x.w.Write(piece[:n]); err != nil {
		return because(ErrClient, err)
	}
	return nil
}

// copyPieces copies a body piece by piece. A piece of a body without a length does not wait for the next
// one.
func (x *exchange) copyPieces(c *conn, response *http.Response, out *front.Writer, events bool) error {
	large := !events
	for {
		if !large && c.reader.Buffered() == 0 {
			// A stream that is silent for hours holds no piece meanwhile. What is wrong with the
			// connection, the next read finds, too.
			_, _ = c.reader.Peek(1)
		}
		n, end, err := x.copyPiece(response, out)
		if end || err != nil {
			return err
		}
		large = !events || n >= readerSize
	}
}

// copyPiece copies what one read returns, and says whether that was the end.
func (x *exchange) copyPiece(response *http.Response, out *front.Writer) (n int, end bool, err error) {
	piece := getPiece()
	defer pieces.Put(piece)
	n, readErr := response.Body.Read(piece[:])
	if n > 0 {
		write := out.Write
		if response.ContentLength < 0 && readErr == nil {
			write = out.WriteNow
		}
		if err := write(piece[:n]); err != nil {
			return n, false, because(ErrClient, err)
		}
	}
	switch {
	case readErr == nil:
		return n, false, nil
	case errors.Is(readErr, io.EOF):
		return n, true, nil
	}
	return n, false, x.cut(readErr)
}

// cut is the error of an answer that broke off.
func (x *exchange) cut(err error) error {
	if x.ctx.Err() != nil {
		return left(x.ctx)
	}
	return because(ErrCut, err)
}
