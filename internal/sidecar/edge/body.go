package edge

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
)

// BodyLimits bound the bodies that are read.
type BodyLimits struct {
	BodyBytes   int64         // largest body taken
	Name        string        // of BodyBytes, as the user sets it; may be empty
	ReadTimeout time.Duration // for a client to send the next 64 KiB of it, or the rest; 0 waits for ever
}

// bodyError says why a body was not read to its end.
type bodyError struct {
	status int
	code   int
	text   string
}

// write answers the request whose body it was.
func (e *bodyError) write(w http.ResponseWriter) {
	if e.status != http.StatusUnsupportedMediaType {
		// What is left of the body is not worth reading.
		w.Header().Set("Connection", "close")
	}
	frontend.Refuse(w, e.status, nil, e.code, e.text)
}

// readBody reads a body that may be a message.
func readBody(w http.ResponseWriter, r *http.Request, limits BodyLimits) ([]byte, *bodyError) {
	if wrong := notPlainJSON(r.Header); wrong != "" {
		return nil, &bodyError{http.StatusUnsupportedMediaType, rpc.CodeInvalidRequest, wrong}
	}
	if r.ContentLength > limits.BodyBytes {
		return nil, tooLarge(limits)
	}
	body, err := readAll(w, r, limits)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &bodyError{http.StatusRequestTimeout, rpc.CodeParse,
			"the body does not arrive: " + strconv.Itoa(pieceBytes) + " bytes of it, or all, may take " + limits.ReadTimeout.String()}
	case err != nil:
		return nil, &bodyError{http.StatusBadRequest, rpc.CodeParse, "the body could not be read"}
	case int64(len(body)) > limits.BodyBytes:
		return nil, tooLarge(limits)
	}
	return body, nil
}

func tooLarge(limits BodyLimits) *bodyError {
	text := "the body is larger than " + strconv.FormatInt(limits.BodyBytes, 10) + " bytes, the limit of this server"
	if limits.Name != "" {
		text += ", which " + limits.Name + " sets"
	}
	return &bodyError{http.StatusRequestEntityTooLarge, rpc.CodeInvalidRequest, text}
}

// notPlainJSON says why the headers are not those of JSON, if they are not.
func notPlainJSON(header http.Header) string {
	if encoding := header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return "the body must not have a Content-Encoding, such as " + strconv.Quote(frontend.Clip(encoding))
	}
	contentType := header.Get("Content-Type")
	if contentType == frontend.TypeJSON { // nearly always
		return ""
	}
	switch mediaType, _, err := mime.ParseMediaType(contentType); {
	case err == nil && mediaType == frontend.TypeJSON:
		return ""
	case contentType == "":
		return "the Content-Type must be " + frontend.TypeJSON + ", and there is none"
	}
	return "the Content-Type must be " + frontend.TypeJSON + ", not " + strconv.Quote(frontend.Clip(contentType))
}

// pieceBytes is how much of a body a client must send to be given time for more, and
// how much is set aside before any has come: what a client announces costs it nothing.
const pieceBytes = 64 << 10

// readAll reads a body, and one byte more than it may have to tell that it is too
// large. A client that stops sending, or all but stops, is not waited for.
func readAll(w http.ResponseWriter, r *http.Request, limits BodyLimits) ([]byte, error) {
	control := http.NewResponseController(w)
	most := limits.BodyBytes + 1
	announced, first := r.ContentLength, r.ContentLength
	if announced <= 0 { // it is not known, or there is none
		announced, first = limits.BodyBytes, 512
	}
	body := make([]byte, 0, min(first, pieceBytes, most))
	due := 0
	for {
		if len(body) == cap(body) {
			// As far as it is announced, but no more than some times what has come.
			body = slices.Grow(body, int(min(max(announced-int64(len(body)), 512), 7*int64(len(body)))))
		}
		if limits.ReadTimeout > 0 && len(body) >= due {
			// Where there is no connection to set it on, there is nobody to wait for.
			_ = control.SetReadDeadline(time.Now().Add(limits.ReadTimeout))
			due = len(body) + pieceBytes
		}
		n, err := r.Body.Read(body[len(body):min(int64(cap(body)), most)])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF), int64(len(body)) == most, int64(len(body)) == r.ContentLength:
			_ = control.SetReadDeadline(time.Time{})
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}
