package edge

import (
	"io"
	"net/http"
	"time"
)

// carriedBytes is the size up to which Carry reads a body. A client that sends slowly then holds no connection
// between instances. It is the size of a piece, for which every client has time.
const carriedBytes = pieceBytes

// Carry returns the body of a request that another instance may answer. It reads a small body, for which it takes
// room from the budget. It does not read any other body, and returns a reader for it. This instance can still
// answer the request afterwards, unless that reader was used.
func (r *Request) Carry(w http.ResponseWriter) (body []byte, rest io.Reader, refused *Refusal) {
	limits := &r.door.options.Budget.limits
	switch {
	case r.carried:
		return r.Body, nil, nil
	case r.ContentLength == 0:
		return nil, nil, nil
	case r.ContentLength < 0 || r.ContentLength > min(carriedBytes, limits.BodyBytes):
		return nil, &timely{from: r.Request.Body, control: http.NewResponseController(w), timeout: limits.ReadTimeout}, nil
	}
	body, refused = r.readAll(w, limits)
	if refused != nil {
		refused.Close = true
		return nil, nil, refused
	}
	r.Body, r.carried = body, true
	return body, nil, nil
}

// NotRead refuses a request because the reader that Carry returned has failed.
func (r *Request) NotRead(err error) *Refusal {
	refused := notRead(err, &r.door.options.Budget.limits)
	refused.Close = true
	return refused
}

// timely reads a body, and gives up on a client that stops sending, or almost stops.
type timely struct {
	from    io.Reader
	control *http.ResponseController
	timeout time.Duration
	left    int // bytes until the client gets more time
}

func (t *timely) Read(into []byte) (int, error) {
	if t.left <= 0 && t.timeout > 0 {
		_ = t.control.SetReadDeadline(time.Now().Add(t.timeout)) // as in readAll
		t.left = pieceBytes
	}
	n, err := t.from.Read(into)
	t.left -= n
	if err != nil {
		_ = t.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
