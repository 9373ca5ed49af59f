package edge

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// BodyLimits bound the bodies that the Door reads.
type BodyLimits struct {
	BodyBytes   int64         // largest body that the adapter accepts
	Name        string        // the setting by which a user changes BodyBytes; may be empty
	ReadTimeout time.Duration // for a client to send the next 64 KiB, or the rest; 0 is no limit
}

// ReadTimeout is for a client to send 64 KiB of a body. A slower connection is of little use.
const ReadTimeout = 30 * time.Second

// readBody reads a body and checks its type and size. It does not look at the message.
func (r *Request) readBody(w http.ResponseWriter) ([]byte, *Refusal) {
	limits := &r.door.options.Budget.limits
	if wrong := notPlainJSON(r.Header); wrong != "" {
		return nil, &Refusal{Status: http.StatusUnsupportedMediaType, Code: rpc.CodeInvalidRequest, Text: wrong}
	}
	if r.carried {
		return r.Body, nil
	}
	body, refused := r.readAll(w, limits)
	if refused != nil {
		refused.Close = true
	}
	return body, refused
}

func tooLarge(limits *BodyLimits) *Refusal {
	text := "the body is larger than " + strconv.FormatInt(limits.BodyBytes, 10) + " bytes, the limit of this server"
	if limits.Name != "" {
		text += ", which " + limits.Name + " sets"
	}
	return &Refusal{Status: http.StatusRequestEntityTooLarge, Code: rpc.CodeInvalidRequest, Text: text}
}

// notRead refuses a body that the Door could not read to its end.
func notRead(err error, limits *BodyLimits) *Refusal {
	switch {
	case errors.Is(err, errGaveWay):
		return noRoom("the body came slowly, and made room for others: the adapter holds as many bytes of request bodies as it may")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Refusal{
			Status: http.StatusRequestTimeout, Code: rpc.CodeParse,
			Text: "the body does not arrive: " + strconv.Itoa(pieceBytes) + " bytes of it, or all, may take " + limits.ReadTimeout.String(),
		}
	}
	return &Refusal{Status: http.StatusBadRequest, Code: rpc.CodeParse, Text: "the body could not be read"}
}

// notPlainJSON returns why the headers do not announce plain JSON, or nothing if they do.
func notPlainJSON(header http.Header) string {
	if encoding := head(header, "Content-Encoding"); encoding != "" && encoding != "identity" {
		return "the body must not have a Content-Encoding, such as " + strconv.Quote(rpc.Clip(encoding))
	}
	contentType := head(header, "Content-Type")
	if contentType == front.TypeJSON { // nearly always
		return ""
	}
	switch mediaType, _, err := mime.ParseMediaType(contentType); {
	case err == nil && mediaType == front.TypeJSON:
		return ""
	case contentType == "":
		return "the Content-Type must be " + front.TypeJSON + ", and there is none"
	}
	return "the Content-Type must be " + front.TypeJSON + ", not " + strconv.Quote(rpc.Clip(contentType))
}

// pieceBytes is how much of a body a client must send to get time for more. It also
// bounds the room that the Door sets aside before the first byte arrives, because a large
// Content-Length costs a client nothing.
const pieceBytes = 64 << 10

// smallBytes is the size up to which a body is not slow before its first bytes arrive.
const smallBytes = 4 << 10

// readAll reads a body, up to one byte more than the limit, which tells that the body is too
// large. It does not wait for a client that stops sending, or almost stops.
func (r *Request) readAll(w http.ResponseWriter, limits *BodyLimits) ([]byte, *Refusal) {
	if r.ContentLength > limits.BodyBytes {
		return nil, tooLarge(limits)
	}
	control := http.NewResponseController(w)
	most := limits.BodyBytes + 1
	size := min(max(r.ContentLength, 1), pieceBytes, most)
	if r.ContentLength <= 0 { // the size is unknown, or the body is empty
		size = min(512, most)
	}
	var body pieces
	defer body.drop()
	refused := r.enlarge(&body, int(size))
	now := r.Record.began // a moment ago: a second look at the clock costs more than the error
	for due := 0; refused == nil; {
		if limits.ReadTimeout > 0 && body.size >= due {
			if due > 0 {
				now = time.Now()
			}
			// A writer without deadlines has no connection, and so no client to wait for.
			_ = control.SetReadDeadline(now.Add(limits.ReadTimeout))
			due = body.size + pieceBytes
		}
		free := body.free()
		n, err := r.readMore(free[:min(int64(len(free)), most-int64(body.size))], body.size > 0 || size > smallBytes)
		body.size += n
		switch {
		case int64(body.size) == most:
			return nil, tooLarge(limits)
		case errors.Is(err, io.EOF), int64(body.size) == r.ContentLength:
			r.door.options.Budget.Filled(r)
			_ = control.SetReadDeadline(time.Time{})
			return body.join(), nil
		case err != nil:
			return nil, notRead(err, limits)
		case len(body.free()) == 0:
			refused = r.enlarge(&body, min(max(body.size, 512), pieceBytes))
		}
	}
	return nil, refused
}

// enlarge makes room for more bytes of a body, if the budget has that much.
func (r *Request) enlarge(body *pieces, more int) *Refusal {
	if refused := r.door.options.Budget.Grow(r, more); refused != nil {
		return refused
	}
	body.grow(more)
	return nil
}

var errGaveWay = errors.New("the body gave way to others")

// readMore reads a piece of a body. While the Door waits, the budget may make the body give way.
func (r *Request) readMore(into []byte, slow bool) (int, error) {
	budget := r.door.options.Budget
	if slow && !budget.Slow(r) {
		return 0, errGaveWay
	}
	n, err := r.Request.Body.Read(into)
	if err != nil && !errors.Is(err, io.EOF) && !budget.Slow(r) {
		return n, errGaveWay
	}
	return n, err
}
