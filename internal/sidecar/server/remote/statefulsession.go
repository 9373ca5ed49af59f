package remote

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/version"
)

// sendInitialize opens the session. If the connection is closed meanwhile, it still waits a little
// for the head of the response: without the id in it, no code could end the session.
func (c *Stateful) sendInitialize(ctx context.Context, by sender, id, message []byte) error {
	flight := c.begin(context.WithoutCancel(c.live), id, by)
	flight.learn = c.agree
	context.AfterFunc(c.live, func() { time.AfterFunc(endTimeout, flight.cancel) })
	return c.exchange(ctx, flight, message, c.takeInitialized)
}

// takeInitialized is take for the answer to initialize.
func (c *Stateful) takeInitialized(ctx context.Context, flight *call, response *http.Response) {
	if err := c.enter(response); err != nil {
		c.fail(flight, err.Error())
		return
	}
	if c.live.Err() != nil {
		c.leave()
		return
	}
	defer context.AfterFunc(c.live, flight.cancel)()
	c.take(ctx, flight, response)
}

// SessionID is the server's id of the session that a response opens. It is empty if the server gives
// none.
func SessionID(response *http.Response) (string, error) {
	id := response.Header.Get(front.HeaderSession)
	if id != "" && !IsHeaderValue(id) {
		return "", fmt.Errorf("%w: its id of the session is too long or has characters that ids must not have", ErrUnusable)
	}
	return id, nil
}

// enter notes the server's id of the session, if it has one.
func (c *Stateful) enter(response *http.Response) (err error) {
	c.agreed.Lock()
	defer c.agreed.Unlock()
	c.agreed.session, err = SessionID(response)
	return err
}

// agree notes the revision in the server's answer to initialize.
func (c *Stateful) agree(answer session.Message) {
	c.agreed.Lock()
	defer c.agreed.Unlock()
	c.agreed.revision, _, _ = rpc.Agreement(answer.Bytes)
}

// leave ends the session at the server, once.
func (c *Stateful) leave() {
	c.agreed.Lock()
	id, revision := c.agreed.session, c.agreed.revision
	c.agreed.session = ""
	c.agreed.Unlock()
	if id == "" {
		return
	}
	header := c.lastHeader().Clone()
	nameSession(header, id, revision)
	c.server.endpoint.Tell(context.Background(), http.MethodDelete, c.server.URL, header, nil)
}

// Initializes says whether the server lets clients initialize. A server of the stateless revision may
// or may not, whatever versions it names (L-34). If certain is false, the server may say otherwise
// when it is asked again. An error means that the server did not say.
func (s *Server) Initializes(ctx context.Context) (does, certain bool, err error) {
	c := newStateful(s, nil)
	defer c.end(session.ErrEnded)
	id := []byte("0")
	params := rpc.InitializeParams(front.Revision20251125, "{}", version.Get().Version)
	response, err := c.post(ctx, rpc.AppendRequest(nil, id, rpc.MethodInitialize, params), c.opener)
	if err != nil {
		return false, false, err
	}
	defer func() { _ = response.Body.Close() }()
	if err := c.enter(response); err != nil {
		return false, false, err
	}
	defer c.leave()
	answer, err := s.readAnswer(response, id)
	if err != nil {
		return false, false, fmt.Errorf("read the answer to initialize: %w", err)
	}
	if _, agreed, _ := rpc.Agreement(answer); agreed && response.StatusCode < http.StatusMultipleChoices {
		return true, true, nil
	}
	certain, err = judgeRefusal(response.StatusCode, codeOf(answer))
	return false, certain, err
}

// judgeRefusal looks at how a server refuses to initialize. It is certain if only servers without
// sessions refuse so. It returns an error if the reason has nothing to do with sessions.
func judgeRefusal(status, code int) (certain bool, err error) {
	switch code {
	case rpc.CodeMethodNotFound, rpc.CodeUnsupportedRevision:
		return true, nil
	case rpc.CodeInvalidRequest, rpc.CodeInvalidParams, rpc.CodeHeaderMismatch, rpc.CodeMissingCapability:
		return false, nil // the server misses members that requests of 2026-07-28 have
	case 0: // the body is no error message
		if status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
			return false, nil
		}
		return false, fmt.Errorf("the server answers initialize with status %d", status)
	}
	return false, fmt.Errorf("the server answers initialize with status %d and error %d", status, code)
}
