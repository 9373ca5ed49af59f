package swarm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// goSession is a session of a client of the official SDK for Go.
type goSession struct {
	witness *witness
	sdk     *mcp.ClientSession
	close   context.CancelFunc

	mu       sync.Mutex
	asked    int
	operated int // operations so far; progress is told apart by their number
	progress chan float64
}

// connect opens a session.
func (c *client) connect(ctx context.Context, transport http.RoundTripper) (session, error) {
	s := &goSession{witness: &witness{transport: transport, unasked: c.swarm.options.Unasked}}
	sdk := mcp.NewClient(&mcp.Implementation{Name: "swarm", Version: "1"}, &mcp.ClientOptions{
		Capabilities:                &mcp.ClientCapabilities{}, // no roots
		ElicitationHandler:          s.answer,
		ProgressNotificationHandler: s.note,
	})
	// The session's streams live as long as this context.
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	s.close = end
	stop := context.AfterFunc(ctx, end)
	var err error
	s.sdk, err = sdk.Connect(lasting, &mcp.StreamableClientTransport{Endpoint: c.swarm.options.URL, HTTPClient: &http.Client{Transport: s.witness}},
		&mcp.ClientSessionOptions{ProtocolVersion: revision})
	stop()
	if err = s.judge(err, false, false); err != nil {
		s.end(ctx, false)
		return nil, err
	}
	return s, nil
}

func (s *goSession) answer(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
}

// note gets progress, in order.
func (s *goSession) note(ctx context.Context, r *mcp.ProgressNotificationClientRequest) {
	s.mu.Lock()
	progress, current := s.progress, fmt.Sprint(r.Params.ProgressToken) == s.token()
	s.mu.Unlock()
	if !current {
		return // it is of a call that was cancelled
	}
	select {
	case progress <- r.Params.Progress:
	case <-ctx.Done():
	}
}

func (s *goSession) token() string { return fmt.Sprintf("operation %d", s.operated) }

// operate runs do with the SDK. The context ends if the SDK would never return.
func (s *goSession) operate(ctx context.Context, cut int, do func(context.Context) error) error {
	s.mu.Lock()
	s.operated++
	s.asked, s.progress = 0, make(chan float64, 2*progressed)
	s.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	before := s.witness.begin(cut, func() { cancel(errLost) })
	err := do(ctx)
	return s.judge(err, before, errors.Is(context.Cause(ctx), errLost))
}

// errLost ends a call whose answer to the server's question was lost.
var errLost = errors.New("the answer to a question was lost")

func (s *goSession) judge(err error, before, waits bool) error {
	troubles, told := s.witness.take()
	f := facts{err: err, troubles: troubles, told: told, before: before, waits: waits && err != nil}
	if err != nil {
		text := err.Error()
		f.ended = errors.Is(err, mcp.ErrConnectionClosed) || strings.Contains(text, "retries without progress") || strings.Contains(text, "failed to reconnect")
		for _, unreadable := range []string{"failed to decode", "malformed", "mismatching session IDs", "unsupported content type"} {
			if strings.Contains(text, unreadable) {
				f.troubles = append(f.troubles, trouble{Unreadable: true, Text: unreadable})
			}
		}
	}
	return judge(f)
}

// call calls a tool and returns its text.
func (s *goSession) call(ctx context.Context, tool string, arguments map[string]any) (string, error) {
	params := &mcp.CallToolParams{Name: tool, Arguments: arguments}
	params.SetProgressToken(s.token())
	result, err := s.sdk.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	if len(result.Content) == 1 {
		if text, ok := result.Content[0].(*mcp.TextContent); ok {
			return text.Text, nil
		}
	}
	return "", wrong("%s answered %+v", tool, result)
}

func (s *goSession) tick(ctx context.Context, word string) (answer string, err error) {
	err = s.operate(ctx, 0, func(ctx context.Context) (err error) {
		answer, err = s.call(ctx, "tick", map[string]any{"text": word})
		return err
	})
	return answer, err
}

func (s *goSession) ask(ctx context.Context) (asked int, answer string, err error) {
	err = s.operate(ctx, 0, func(ctx context.Context) (err error) {
		answer, err = s.call(ctx, "ask", map[string]any{"text": "why?"})
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, answer, err
}

func (s *goSession) stream(ctx context.Context, number, cut int) (got streamed, err error) {
	err = s.operate(ctx, cut, func(ctx context.Context) (err error) {
		got.answer, err = s.call(ctx, "burst", map[string]any{"n": number})
		if err != nil {
			return err
		}
		// The SDK may return the answer before it has handled the notifications.
		for len(got.progress) < number {
			select {
			case progress := <-s.progress:
				got.progress = append(got.progress, progress)
			case <-ctx.Done():
				return nil // the check says what is missing
			}
			if last := len(got.progress) - 1; got.progress[last] != float64(last) {
				return nil // the check says what is wrong
			}
		}
		return nil
	})
	got.resumed = s.witness.resumptions() > 0
	return got, err
}

func (s *goSession) cancel(ctx context.Context) error {
	return s.operate(ctx, 0, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var begun atomic.Bool
		go func() {
			select {
			case <-s.progress:
				begun.Store(true)
				cancel()
			case <-ctx.Done():
			}
		}()
		answer, err := s.call(ctx, "sleep", map[string]any{"ms": time.Hour.Milliseconds(), "text": "asleep"})
		switch {
		case err == nil:
			return wrong("a cancelled call was answered %q", answer)
		case errors.Is(err, context.Canceled) && begun.Load():
			return nil
		}
		return err
	})
}

// end closes the SDK's session. The SDK tells the server.
func (s *goSession) end(_ context.Context, _ bool) {
	defer s.close()
	if s.sdk != nil {
		_ = s.sdk.Close() // it may be over
	}
}
