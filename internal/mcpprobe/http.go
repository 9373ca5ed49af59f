package mcpprobe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
)

// roundTripper sends the SDK's requests to one address only, and shows the guard every
// message in them and in the responses.
type roundTripper struct {
	guard  *guard
	target *url.URL
	header http.Header
	sign   func(http.Header) // may be nil
	// lazyStream answers the GET for the server's own stream at once. The SDK waits for
	// that response without a deadline, and some servers send no header before their
	// first event.
	lazyStream bool
	transport  *http.Transport
	// life ends with the session. No request outlasts it, though the SDK gives some of
	// them contexts that never end.
	life context.Context
}

func newRoundTripper(life context.Context, g *guard, target Target) (*roundTripper, error) {
	parsed, address, err := target.address()
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &roundTripper{
		guard:      g,
		target:     parsed,
		header:     target.header.Clone(),
		sign:       target.sign,
		lazyStream: target.kind == streamableHTTP,
		life:       life,
		transport: &http.Transport{
			// No proxy from the environment, and always this address.
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				conn, err := dialer.DialContext(ctx, "tcp", address)
				if err != nil {
					return nil, err
				}
				g.reached.Store(true)
				return newMortalConn(life, conn, &g.heard), nil
			},
			MaxResponseHeaderBytes: headerBytes,
			DisableCompression:     true, // a small reply must not become a large one
			TLSHandshakeTimeout:    dialTimeout,
			MaxIdleConns:           2,
		},
	}, nil
}

// mortalConn is a connection that ends with the session. Without it, if a request ends
// while the transport dials, the transport would never close the idle connection.
type mortalConn struct {
	net.Conn
	forget func() bool
	heard  *atomic.Bool // the first byte sets it
}

func newMortalConn(life context.Context, conn net.Conn, heard *atomic.Bool) *mortalConn {
	return &mortalConn{conn, context.AfterFunc(life, func() { _ = conn.Close() }), heard}
}

func (c *mortalConn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if n > 0 {
		c.heard.Store(true)
	}
	return n, err
}

func (c *mortalConn) Close() error {
	c.forget()
	return c.Conn.Close()
}

// RoundTrip implements http.RoundTripper.
func (r *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	message, err := r.message(request)
	note := message.note(request.Context())
	if err != nil {
		note.set(bodyError(err))
		return nil, err
	}
	note.set(nil)
	ctx, release := r.scope(request)
	ours := request.Clone(ctx)
	maps.Copy(ours.Header, r.header)
	if r.sign != nil {
		r.sign(ours.Header)
	}
	if r.lazyStream && request.Method == http.MethodGet && request.Header.Get("Last-Event-ID") == "" {
		return r.stream(ours, release), nil
	}
	response, err := r.transport.RoundTrip(ours)
	if message.kind == rpc.Response {
		r.guard.answered()
	}
	if err != nil {
		ended := ctx.Err() // before release ends it
		release()
		return nil, r.lost(note, message, ended, err)
	}
	response.Body = &body{ReadCloser: response.Body, release: release}
	if err := r.receive(note, message, response); err != nil {
		return nil, err
	}
	return response, nil
}

// scope returns a context that bounds a request, and a function that ends it.
func (r *roundTripper) scope(request *http.Request) (context.Context, func()) {
	ctx, cancel := context.WithCancel(request.Context())
	stop := context.AfterFunc(r.life, cancel)
	if request.Method != http.MethodDelete {
		return ctx, func() { stop(); cancel() }
	}
	limited, cancelLimited := context.WithTimeout(ctx, closeTimeout)
	return limited, func() { stop(); cancelLimited(); cancel() }
}

// message checks the address of a request, and shows the guard the message in it.
func (r *roundTripper) message(request *http.Request) (sent, error) {
	if request.URL.Scheme != r.target.Scheme || request.URL.Host != r.target.Host {
		return sent{}, protocolError("the server names a foreign address")
	}
	if request.GetBody == nil {
		return sent{}, nil
	}
	content, err := request.GetBody()
	if err != nil {
		return sent{}, err
	}
	data, err := io.ReadAll(content)
	if err != nil {
		return sent{}, err
	}
	return r.guard.outgoing(data)
}

// lost returns the error of a request without a response.
func (r *roundTripper) lost(note *note, message sent, ended, err error) *Error {
	var e *Error
	switch dial, isDial := errors.AsType[*net.OpError](err); {
	case !r.guard.reached.Load(), isDial && dial.Op == "dial":
		e = &Error{Class: Unreachable, Detail: clean(reason(err)), Unheard: errors.Is(err, syscall.ECONNRESET)}
	case ended != nil:
		e = fromContext(ended)
	default:
		e = &Error{Class: Closed, Detail: clean(reason(err)), Unheard: !r.guard.heard.Load()}
	}
	note.set(e)
	if message.method == methodDiscover {
		r.guard.refuse(e)
	}
	return e
}

// reason returns the innermost error. The others repeat the address.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// receive bounds a response and shows the guard the messages in it.
func (r *roundTripper) receive(note *note, message sent, response *http.Response) error {
	limit := r.guard.limits.ReplyBytes
	small := min(smallReply, limit)
	e := r.statusError(response, small)
	r.guard.status.Store(e)
	if e != nil {
		note.set(e)
		if message.method == methodDiscover && (e.Class == Unauthorized || e.Class == Busy) {
			r.guard.refuse(e)
		}
		if e.Class == Protocol { // a redirect
			_ = response.Body.Close()
			return e
		}
		return r.replace(note, message, response, small, false)
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case kind == "text/event-stream":
		response.Body = r.filter(note, message, response.Body)
		return nil
	case kind == "application/json" && message.kind == rpc.Request:
		return r.replace(note, message, response, limit, true)
	case message.method == methodDiscover:
		// The SDK would end the connection for this status, but it only means that the
		// server does not know the request.
		response.StatusCode = http.StatusBadRequest
	}
	return r.replace(note, message, response, small, false)
}

// replace reads a whole body, and puts in its place what the SDK is to see.
func (r *roundTripper) replace(note *note, message sent, response *http.Response, limit int, answer bool) error {
	data, err := readLimited(response.Body, limit)
	_ = response.Body.Close()
	if err == nil && (answer || message.kind == rpc.Request && looksLikeMessage(data)) {
		data, err = r.answer(data, message, answer)
	}
	if err != nil {
		e := bodyError(err)
		note.set(e)
		if answer {
			r.guard.fail(e)
		}
		return e
	}
	response.Body = io.NopCloser(bytes.NewReader(data))
	response.ContentLength = int64(len(data))
	return nil
}

func looksLikeMessage(data []byte) bool {
	trimmed := bytes.TrimSpace(data)
	return len(trimmed) > 0 && trimmed[0] == '{'
}

// answer shows the guard the answer to a request. If an answer is required, the body must
// be this answer and no other. With an error status the body may be one.
func (r *roundTripper) answer(data []byte, message sent, required bool) ([]byte, error) {
	envelope, err := rpc.ScanLenient(data)
	answers := err == nil && envelope.Kind == rpc.Response && string(envelope.ID.Of(data)) == message.id
	switch {
	case answers:
		return r.guard.incoming(data)
	case !required:
		return data, nil
	case err != nil:
		return nil, protocolError("the reply is not a message: " + err.Error())
	default:
		return nil, protocolError("the reply does not answer the request")
	}
}

// errorMessage returns the message of the JSON-RPC error in a response, or nothing. The body can be
// read again.
func errorMessage(response *http.Response, limit int) string {
	data, _ := io.ReadAll(io.LimitReader(response.Body, int64(limit))) // the next to read gets the error
	response.Body = &readAgain{io.MultiReader(bytes.NewReader(data), response.Body), response.Body}
	var message struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(data, &message) != nil {
		return ""
	}
	return clean(message.Error.Message)
}

// readAgain is a body of which a part was read already.
type readAgain struct {
	io.Reader
	io.Closer
}

func bodyError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fromContext(err)
	}
	return &Error{Class: Closed, Detail: "the reply broke off", Err: io.ErrUnexpectedEOF}
}

func readLimited(source io.Reader, limit int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(source, int64(limit)+1))
	if err == nil && len(data) > limit {
		return nil, tooLarge(LimitReplyBytes, limit)
	}
	return data, err
}

// asked names a request by its method and URL, without the query, which may be secret.
// Servers of SSE name another path for messages, which may have the session in it.
func (r *roundTripper) asked(request *http.Request) string {
	if request.URL.Path != r.target.Path {
		return request.Method + " to the address that the server named"
	}
	asked := url.URL{Scheme: r.target.Scheme, Host: r.target.Host, Path: r.target.Path, RawPath: r.target.RawPath}
	return request.Method + " " + clean(asked.String())
}

// statusError returns the error for a status, or nil for success, with what the response says of it.
func (r *roundTripper) statusError(response *http.Response, limit int) *Error {
	e := statusError(response)
	if e == nil {
		return nil
	}
	e.Asked = r.asked(response.Request)
	if e.Class == Busy {
		e.Failed = response.Header.Get(adapterapi.HeaderFailed) != ""
		e.Detail = errorMessage(response, limit)
	}
	return e
}

// statusError returns the error for a status, or nil for success.
func statusError(response *http.Response) *Error {
	status := response.StatusCode
	switch {
	case status >= 200 && status < 300:
		return nil
	case status < 400:
		return &Error{Class: Protocol, Status: status, Detail: "a redirect is not followed"}
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return &Error{Class: Unauthorized, Status: status}
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500:
		return &Error{Class: Busy, Status: status, RetryAfter: retryAfter(response.Header)}
	default:
		return &Error{Class: Rejected, Status: status}
	}
}

// retryAfter returns the time in the header, or 0 for more than an hour.
func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 0 || seconds > 3600 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// stream answers the GET for the server's own stream before the server does. If the
// server has no such stream, the SDK gets a silent one.
func (r *roundTripper) stream(request *http.Request, release func()) *http.Response {
	reader, writer := io.Pipe()
	go func() {
		defer release()
		response, err := r.transport.RoundTrip(request)
		if err == nil {
			defer func() { _ = response.Body.Close() }()
			kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
			if response.StatusCode == http.StatusOK && kind == "text/event-stream" {
				_, err = io.Copy(writer, r.filter(nil, sent{}, response.Body))
				_ = writer.CloseWithError(err)
				return
			}
		}
		<-request.Context().Done()
		_ = writer.Close()
	}()
	return &http.Response{
		StatusCode:    http.StatusOK,
		Status:        "200 OK",
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        http.Header{"Content-Type": {"text/event-stream"}},
		Body:          &body{ReadCloser: reader, release: release},
		ContentLength: -1,
		Request:       request,
	}
}

// body ends the context of its request when the SDK closes it.
type body struct {
	io.ReadCloser
	release func()
	once    sync.Once
}

func (b *body) Close() error {
	b.once.Do(b.release)
	return b.ReadCloser.Close()
}

// note is the error of the last request of a call. The SDK has most of it as a text only.
type note struct {
	mu  sync.Mutex
	err *Error
}

type noteKey struct{}

func withNote(ctx context.Context) (context.Context, *note) {
	n := &note{}
	return context.WithValue(ctx, noteKey{}, n), n
}

// note returns where to record the error of a request, or nil for a message that no call
// of the SDK waits for.
func (s sent) note(ctx context.Context) *note {
	if s.kind == rpc.Response || s.kind == rpc.Notification && s.method != "notifications/initialized" {
		return nil
	}
	n, _ := ctx.Value(noteKey{}).(*note)
	return n
}

func (n *note) set(err *Error) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
}

func (n *note) get() *Error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}
