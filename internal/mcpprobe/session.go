package mcpprobe

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/version"
)

const (
	versionModern = "2026-07-28" // the first without sessions
	versionLegacy = "2025-11-25" // the last with sessions
)

// opConnect is the Op of errors of Connect.
const opConnect = "connect"

// Session is a connection to a server. Its methods may run at the same time.
type Session struct {
	guard     *guard
	client    *mcp.ClientSession
	opening   opening
	transport mcp.Transport
	end       context.CancelFunc // ends everything that belongs to the session
	idle      func()             // closes idle connections
	turn      chan struct{}      // holds an element while a goroutine lists
	closing   sync.Once
}

// Connect opens a session. The context bounds the opening, not the session.
func Connect(ctx context.Context, target Target, options Options) (*Session, error) {
	return connect(ctx, target, options.withDefaults(), true)
}

// Probe opens a session, takes the catalog and ends the session.
func Probe(ctx context.Context, target Target, options Options) (*Catalog, error) {
	session, err := connect(ctx, target, options.withDefaults(), false)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	return session.Catalog(ctx)
}

// connect opens a session. With follow, the session reports changes.
func connect(ctx context.Context, target Target, options Options, follow bool) (*Session, error) {
	options.SkipInitialize = options.SkipInitialize && target.kind != serverSentEvents
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s := &Session{
		guard: newGuard(options),
		end:   end,
		idle:  func() {},
		turn:  make(chan struct{}, 1),
	}
	if err := s.prepare(life, target, options, follow); err != nil {
		end()
		return nil, &Error{Class: Rejected, Op: opConnect, Detail: err.Error()}
	}
	if err := s.open(ctx, life, target, options, follow); err != nil {
		s.abort()
		return nil, err
	}
	go s.watch()
	return s, nil
}

func (s *Session) prepare(life context.Context, target Target, options Options, follow bool) error {
	switch target.kind {
	case pipes:
		s.transport = newPipeTransport(s.guard, target, options.DiscoverTimeout)
		return nil
	case streamableHTTP, serverSentEvents:
	default:
		return errors.New("there is no target")
	}
	tripper, err := newRoundTripper(life, s.guard, target)
	if err != nil {
		return err
	}
	s.idle = tripper.transport.CloseIdleConnections
	client := &http.Client{Transport: tripper}
	if target.kind == serverSentEvents {
		// The guard bounds events, to less than what the SDK allows.
		s.transport = &mcp.SSEClientTransport{Endpoint: target.url, HTTPClient: client, MaxEventSize: -1}
		return nil
	}
	s.transport = &mcp.StreamableClientTransport{
		Endpoint: target.url, HTTPClient: client, MaxEventSize: -1, DisableStandaloneSSE: !follow,
	}
	return nil
}

// open lets the SDK negotiate. The SDK gets a context without a deadline, because it ties
// the session to that context. The context of open bounds the wait.
func (s *Session) open(ctx, life context.Context, target Target, options Options, follow bool) error {
	negotiate := &mcp.ClientSessionOptions{}
	if options.SkipDiscover || target.kind == serverSentEvents {
		negotiate.ProtocolVersion = versionLegacy
	}
	inner, note := withNote(life)
	type outcome struct {
		client *mcp.ClientSession
		err    error
	}
	opened := make(chan outcome, 1)
	go func() {
		client, err := newClient(follow).Connect(inner, s.transport, negotiate)
		opened <- outcome{client, err}
	}()
	nonsense := s.guard.nonsense.Load()
	var result outcome
	select {
	case result = <-opened:
	case <-ctx.Done():
		result.err = ctx.Err()
	case <-s.guard.broken.Done():
		result.err = context.Cause(s.guard.broken)
	}
	if result.err != nil {
		return s.guard.lastWord(s.explain(ctx, opConnect, note, nonsense, result.err))
	}
	s.client = result.client
	opening, err := s.guard.readOpening(result.client.InitializeResult())
	s.opening = opening
	return err
}

// newClient declares everything, so that servers show everything, and declines
// everything.
func newClient(follow bool) *mcp.Client {
	options := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			RootsV2: &mcp.RootCapabilities{ListChanged: true},
			Sampling: &mcp.SamplingCapabilities{
				Tools:   &mcp.SamplingToolsCapabilities{},
				Context: &mcp.SamplingContextCapabilities{},
			},
			Elicitation: &mcp.ElicitationCapabilities{
				Form: &mcp.FormElicitationCapabilities{},
				URL:  &mcp.URLElicitationCapabilities{},
			},
		},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	}
	if follow {
		// The guard takes the notifications. These handlers do nothing, but without them
		// the SDK would not subscribe where a server needs that.
		options.ToolListChangedHandler = func(context.Context, *mcp.ToolListChangedRequest) {}
		options.PromptListChangedHandler = func(context.Context, *mcp.PromptListChangedRequest) {}
		options.ResourceListChangedHandler = func(context.Context, *mcp.ResourceListChangedRequest) {}
	}
	client := mcp.NewClient(implementation(), options)
	client.AddReceivingMiddleware(decline)
	client.AddSendingMiddleware(setCursor)
	return client
}

func implementation() *mcp.Implementation {
	return &mcp.Implementation{Name: "slipway", Title: "Slipway probe", Version: version.Get().Version}
}

// decline answers requests of the server for the user. The SDK itself answers pings, and
// lists no roots.
func decline(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		switch method {
		case methodElicit:
			return &mcp.ElicitResult{Action: "decline"}, nil
		case methodSample:
			return nil, &jsonrpc.Error{Code: -1, Message: "User rejected sampling request"}
		default:
			return next(ctx, method, request)
		}
	}
}

// Changed returns a channel that receives a value when the server reports a changed list.
// Several reports before the caller takes the value are one value.
func (s *Session) Changed() <-chan struct{} { return s.guard.changed }

// Done returns a channel that closes when either side has ended the connection.
func (s *Session) Done() <-chan struct{} { return s.guard.broken.Done() }

// Err returns why the connection has ended, or nil while it has not.
func (s *Session) Err() error {
	return context.Cause(s.guard.broken)
}

// Junk returns how many lines of a process the guard has skipped because they are no
// messages.
func (s *Session) Junk() int64 { return s.guard.junkLines.Load() }

// Ping checks that the server answers. An error that the server sends is an answer, too.
func (s *Session) Ping(ctx context.Context) error {
	params := &mcp.PingParams{}
	if s.opening.modern() {
		// The revision has no ping, but the server answers with an error.
		params.Meta = mcp.Meta{
			mcp.MetaKeyProtocolVersion:    s.opening.server.ProtocolVersion,
			mcp.MetaKeyClientInfo:         implementation(),
			mcp.MetaKeyClientCapabilities: map[string]any{},
		}
	}
	err := s.call(ctx, methodPing, func(ctx context.Context) error { return s.client.Ping(ctx, params) })
	if e, ok := errors.AsType[*Error](err); ok && e.Class == Rejected && e.Code != 0 {
		return nil
	}
	return err
}

// call makes one request and explains its failure.
func (s *Session) call(ctx context.Context, method string, do func(context.Context) error) error {
	inner, note := withNote(ctx)
	inner, cancel := context.WithCancelCause(inner)
	defer cancel(nil)
	stop := context.AfterFunc(s.guard.broken, func() { cancel(context.Cause(s.guard.broken)) })
	defer stop()
	nonsense := s.guard.nonsense.Load()
	if err := do(inner); err != nil {
		return s.explain(ctx, method, note, nonsense, err)
	}
	return nil
}

// explain finds the best reason for an error of the SDK. When a status breaks the
// connection, the SDK gives the connection up before or after it returns from the call,
// and the time of the call may run out meanwhile. In every order the status is the
// reason. While Connect opens a session, a status need not be a failure.
func (s *Session) explain(ctx context.Context, op string, note *note, nonsense int64, err error) error {
	noted := note.get()
	failure, secondHand := s.guard.failure()
	outOfTime := ctx.Err() != nil && (op == opConnect || noted == nil || noted.Status == 0)
	var e *Error
	switch {
	case failure != nil && !secondHand:
		e = failure
	case outOfTime:
		e = s.guard.overtime(ctx.Err(), nonsense)
	case noted != nil && (noted.Status != 0 || failure == nil):
		e = noted.with(fromSDK(err))
	case failure != nil:
		e = failure
	default:
		e = fromSDK(err)
	}
	explained := *e
	explained.Op = op
	return &explained
}

// with adds the error in the response's body to that of its status.
func (e *Error) with(body *Error) *Error {
	if e.Class != Rejected || body.Class != Rejected || body == e {
		return e
	}
	return &Error{Class: Rejected, Status: e.Status, Asked: e.Asked, Code: body.Code, Detail: body.Detail}
}

// overtime returns the error of a call whose context has ended. nonsense is the guard's
// count when the call began.
func (g *guard) overtime(ended error, nonsense int64) *Error {
	e := fromContext(ended)
	switch {
	case e.Class != Timeout:
	case !g.reached.Load():
		e.Class = Unreachable
	case g.nonsense.Load() > nonsense:
		e.Class, e.Detail = Protocol, "the server sent something, but no answer"
	}
	return e
}

// watch waits for the end of the connection.
func (s *Session) watch() {
	e := &Error{Class: Closed, Detail: "the server ended the connection"}
	if err := s.client.Wait(); err != nil {
		e = s.guard.reasonFor(fromSDK(err))
	}
	s.guard.giveUp(e)
}

// Close ends the session: it deletes the session of an HTTP server, and closes the input
// of a process. It takes a second at most.
func (s *Session) Close() {
	s.closing.Do(func() {
		s.guard.fail(&Error{Class: Closed, Op: "session", Detail: "the probe closed it"})
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_ = s.client.Close()
		}()
		timer := time.NewTimer(closeTimeout)
		defer timer.Stop()
		select {
		case <-closed:
		case <-timer.C:
		}
		s.abort()
	})
}

// abort ends everything at once.
func (s *Session) abort() {
	s.end()
	if t, ok := s.transport.(*pipeTransport); ok {
		_ = t.close()
	}
	s.idle()
}
