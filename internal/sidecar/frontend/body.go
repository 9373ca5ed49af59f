package frontend

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// BodyLimits bound the bodies that an endpoint reads.
type BodyLimits struct {
	BodyBytes   int64         // largest body taken
	ReadTimeout time.Duration // for a client to send the next 64 KiB of it, or the rest; 0 waits for ever
}

// BodyError says why a body was not read to its end.
type BodyError struct {
	status int
	code   int
	text   string
}

func (e *BodyError) Error() string { return e.text }

// TooLarge says whether the body is larger than may be.
func (e *BodyError) TooLarge() bool { return e.status == http.StatusRequestEntityTooLarge }

// Refuse answers the request whose body it was.
func (e *BodyError) Refuse(w http.ResponseWriter) {
	if e.status != http.StatusUnsupportedMediaType {
		// What is left of the body is not worth reading.
		w.Header().Set("Connection", "close")
	}
	Refuse(w, e.status, nil, e.code, e.text)
}

// ReadBody reads a body that may be a message.
func ReadBody(w http.ResponseWriter, r *http.Request, limits BodyLimits) ([]byte, *BodyError) {
	if wrong := notPlainJSON(r.Header); wrong != "" {
		return nil, &BodyError{http.StatusUnsupportedMediaType, rpc.CodeInvalidRequest, wrong}
	}
	if r.ContentLength > limits.BodyBytes {
		return nil, tooLarge(limits)
	}
	body, err := readAll(w, r, limits)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &BodyError{http.StatusRequestTimeout, rpc.CodeParse,
			"the body does not arrive: " + strconv.Itoa(pieceBytes) + " bytes of it, or all, may take " + limits.ReadTimeout.String()}
	case err != nil:
		return nil, &BodyError{http.StatusBadRequest, rpc.CodeParse, "the body could not be read"}
	case int64(len(body)) > limits.BodyBytes:
		return nil, tooLarge(limits)
	}
	return body, nil
}

func tooLarge(limits BodyLimits) *BodyError {
	return &BodyError{http.StatusRequestEntityTooLarge, rpc.CodeInvalidRequest,
		"the body is larger than " + strconv.FormatInt(limits.BodyBytes, 10) + " bytes, the limit of this server"}
}

// notPlainJSON says why the headers are not those of JSON, if they are not.
func notPlainJSON(header http.Header) string {
	if encoding := header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return "the body must not have a Content-Encoding, such as " + strconv.Quote(Clip(encoding))
	}
	contentType := header.Get("Content-Type")
	if contentType == TypeJSON { // nearly always
		return ""
	}
	switch mediaType, _, err := mime.ParseMediaType(contentType); {
	case err == nil && mediaType == TypeJSON:
		return ""
	case contentType == "":
		return "the Content-Type must be " + TypeJSON + ", and there is none"
	}
	return "the Content-Type must be " + TypeJSON + ", not " + strconv.Quote(Clip(contentType))
}

// pieceBytes is how much of a body a client must send to be given time for more, and
// how much is set aside before any has come: what a client announces costs it nothing.
const pieceBytes = 64 << 10

// readAll reads a body, and one byte more than it may have to tell that it is too
// large. A client that stops sending, or all but stops, is not waited for.
func readAll(w http.ResponseWriter, r *http.Request, limits BodyLimits) ([]byte, error) {
	control := http.NewResponseController(w)
	most := limits.BodyBytes + 1
	body := make([]byte, 0, min(max(r.ContentLength, 512), pieceBytes, most))
	announced := r.ContentLength
	if announced < 0 {
		announced = limits.BodyBytes
	}
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
		case errors.Is(err, io.EOF) || int64(len(body)) == most:
			_ = control.SetReadDeadline(time.Time{})
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}

// acceptUsual is what nearly all clients send, for nearly all that is asked of them.
const acceptUsual = TypeJSON + ", " + TypeEvents

// Accepts says whether the Accept headers allow every one of the types. A client
// that sends none takes anything.
func Accepts(r *http.Request, types ...string) bool {
	values := r.Header["Accept"]
	if len(values) == 0 || len(values) == 1 && values[0] == acceptUsual {
		return true
	}
	for _, want := range types {
		if !acceptsOne(values, want) {
			return false
		}
	}
	return true
}

func acceptsOne(values []string, want string) bool {
	group, _, _ := strings.Cut(want, "/")
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			mediaType, _, _ := strings.Cut(part, ";")
			switch mediaType = strings.TrimSpace(mediaType); {
			case mediaType == "*/*", strings.EqualFold(mediaType, want), strings.EqualFold(mediaType, group+"/*"):
				return true
			}
		}
	}
	return false
}
