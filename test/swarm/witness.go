package swarm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"sync"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// witness sees the HTTP exchanges of one session of an SDK, and cuts a stream when it is told to. The one for
// TypeScript is in typescript/witness.mjs.
type witness struct {
	transport http.RoundTripper
	unasked   error

	mu       sync.Mutex
	troubles []trouble
	told     bool
	left     bool // the SDK has ended the session
	cut      int  // after how many events the next stream of a call is cut; 0 is never
	resumed  int  // streams
	lost     func()
}

// begin says whether the server has said that the session is over. From now on lost is called if an answer to the
// server is lost.
func (w *witness) begin(cut int, lost func()) (told bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.resumed, w.lost = cut, 0, lost
	return w.told
}

func (w *witness) note(seen trouble, status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen.Status = status
	w.troubles = append(w.troubles, seen)
	if seen.Answer && w.lost != nil {
		w.lost()
	}
}

// take returns the troubles since it was called last, and whether the server has said that the session is over.
func (w *witness) take() (troubles []trouble, told bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	troubles, w.troubles, w.lost = w.troubles, nil, nil
	return troubles, w.told
}

// isOver notes a 404, and says whether the server has ended the session. When the SDK for Go gives a session up, it tells the
// server, and a call that it makes at the same time gets a 404, too.
func (w *witness) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = w.told || !w.left
	return w.told
}

func (w *witness) resumptions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.resumed
}

// RoundTrip makes one exchange.
func (w *witness) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodDelete {
		w.mu.Lock()
		w.left = true
		w.mu.Unlock()
		return w.transport.RoundTrip(request)
	}
	kind := troubleOf(request)
	response, err := w.transport.RoundTrip(request)
	switch {
	case err != nil:
		if request.Context().Err() == nil {
			kind.Text, kind.Unasked = err.Error(), w.unasked != nil && errors.Is(err, w.unasked)
			w.note(kind, 0)
		}
		return nil, err
	case response.StatusCode >= http.StatusBadRequest:
		if response.StatusCode != http.StatusNotFound || request.Header.Get(headerSession) == "" || w.isOver() {
			w.note(kind, response.StatusCode)
		}
		return response, nil
	}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	body := &watched{ReadCloser: response.Body, witness: w, request: request.Context(), kind: kind, streams: media == "text/event-stream"}
	w.mu.Lock()
	defer w.mu.Unlock()
	if body.streams && kind.Call {
		body.cut, w.cut = w.cut, 0
	}
	if request.Header.Get(headerLast) != "" {
		w.resumed++
	}
	response.Body = body
	return response, nil
}

// troubleOf is what a request would be in trouble as.
func troubleOf(request *http.Request) trouble {
	kind := trouble{Method: request.Method}
	if request.GetBody == nil {
		return kind
	}
	if body, err := request.GetBody(); err == nil {
		text, _ := io.ReadAll(body) // it is in memory
		if message, err := rpc.Scan(text); err == nil {
			kind.Call, kind.Answer = message.Kind == rpc.Request, message.Kind == rpc.Response
		}
	}
	return kind
}

// watched is the body of an answer.
type watched struct {
	io.ReadCloser
	witness *witness
	request context.Context //nolint:containedctx // says whether the client has left
	kind    trouble
	streams bool
	cut     int // after how many events; 0 is never
	text    []byte
	broken  error
}

func (b *watched) Read(p []byte) (int, error) {
	if b.broken != nil {
		return 0, b.broken
	}
	n, err := b.ReadCloser.Read(p)
	before := len(b.text)
	if b.streams && b.kind.Call {
		b.text = append(b.text, p[:n]...)
	}
	if end := b.endOf(b.cut); end >= 0 {
		b.broken = errCut
		_ = b.Close()
		return max(end-before, 0), nil
	}
	switch {
	case err == nil || b.request.Err() != nil:
	case !errors.Is(err, io.EOF):
		b.kind.Text = err.Error()
		b.witness.note(b.kind, 0)
	case b.streams && b.kind.Call && !bytes.Contains(b.text, []byte(`"result":`)) && !bytes.Contains(b.text, []byte(`"error":`)):
		b.kind.Text = errNoAnswer.Error()
		b.witness.note(b.kind, 0)
	}
	return n, err
}

// endOf returns where the n-th event ends, or -1 if it has not come.
func (b *watched) endOf(n int) int {
	if n == 0 {
		return -1
	}
	end := 0
	for range n {
		at := bytes.Index(b.text[end:], []byte("\n\n"))
		if at < 0 {
			return -1
		}
		end += at + 2
	}
	return end
}
