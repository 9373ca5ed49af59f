package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/version"
)

// sendInitialize opens the session. If the connection is closed meanwhile, the head of
// the answer is awaited a little all the same: nobody else could end the session then.
func (c *Stateful) sendInitialize(ctx context.Context, from *caller.Caller, id, message []byte) error {
	outlasting, stop := context.WithCancel(context.WithoutCancel(c.live))
	flight, err := c.begin(outlasting, id, c.agree)
	if err != nil {
		stop()
		return err
	}
	flight.by = c.sender(from)
	wait := context.AfterFunc(c.live, func() { time.AfterFunc(EndTimeout, stop) })
	return c.request(ctx, flight, func(ctx context.Context) error {
		defer stop()
		defer wait()
		response, err := c.post(ctx, message, flight.by.header)
		if err != nil {
			return c.failed(ctx, flight, err)
		}
		defer func() { _ = response.Body.Close() }()
		if err := c.enter(response.Header.Get(front.HeaderSession)); err != nil {
			c.fail(flight, err.Error())
			return nil
		}
		if c.live.Err() != nil {
			c.leave()
			return nil
		}
		defer context.AfterFunc(c.live, stop)()
		c.take(ctx, flight, response)
		return nil
	})
}

var errSessionID = fmt.Errorf("%w: it calls the session by an id that is too long or has characters that it must not have", ErrUnusable)

// enter notes how the server calls the session, if it has one.
func (c *Stateful) enter(id string) error {
	if id != "" && !IsHeaderValue(id) {
		return errSessionID
	}
	c.agreed.Lock()
	defer c.agreed.Unlock()
	c.agreed.session = id
	return nil
}

// agree notes the revision that the server answers initialize with.
func (c *Stateful) agree(answer session.Message) {
	revision, _, _ := Agreement(answer.Bytes)
	c.agreed.Lock()
	defer c.agreed.Unlock()
	c.agreed.revision = revision
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
	ctx, cancel := context.WithTimeout(context.Background(), EndTimeout)
	defer cancel()
	request := NewRequest(ctx, http.MethodDelete, c.server.URL, nil)
	request.Header = c.lastHeader().Clone()
	request.Header.Set(front.HeaderSession, id)
	if revision != "" {
		request.Header.Set(front.HeaderRevision, revision)
	}
	if response, err := c.server.endpoint.Send(request); err == nil {
		Discard(response)
	}
}

// Initializes says whether the server lets clients initialize, which servers of the
// stateless revision do or do not, whatever versions they name (L-34). Unless that is
// certain it may be otherwise when the server is asked again. An error means that it did
// not say.
func (s *Server) Initializes(ctx context.Context, from *caller.Caller) (has, certain bool, err error) {
	c, err := s.DialStateful(ctx, from)
	if err != nil {
		return false, false, err
	}
	defer c.finish(session.ErrEnded)
	response, err := c.post(ctx, initializeRequest(), c.header)
	if err != nil {
		return false, false, err
	}
	defer func() { _ = response.Body.Close() }()
	if err := c.enter(response.Header.Get(front.HeaderSession)); err != nil {
		return false, false, err
	}
	defer c.leave()
	answer, err := c.readAgreement(response)
	if err != nil {
		return false, false, err
	}
	if _, agreed, _ := Agreement(answer); agreed && response.StatusCode < http.StatusMultipleChoices {
		return true, true, nil
	}
	certain, err = judgeRefusal(response.StatusCode, codeOf(answer))
	return false, certain, err
}

// judgeRefusal looks at how a server refuses to initialize: as only those do that have no
// sessions, as they may, or for a reason that has nothing to do with it.
func judgeRefusal(status, code int) (certain bool, err error) {
	switch code {
	case rpc.CodeMethodNotFound, rpc.CodeUnsupportedRevision:
		return true, nil
	case rpc.CodeInvalidRequest, rpc.CodeInvalidParams, rpc.CodeHeaderMismatch, rpc.CodeMissingCapability:
		return false, nil // it lacks what requests of the other era have
	case 0:
		if status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
			return false, nil
		}
		return false, fmt.Errorf("the server answers initialize with status %d", status)
	}
	return false, fmt.Errorf("the server answers initialize with status %d and error %d", status, code)
}

// readAgreement reads the answer to initialize. An error over HTTP may have any text.
func (c *Stateful) readAgreement(response *http.Response) ([]byte, error) {
	failed := response.StatusCode >= http.StatusMultipleChoices
	if IsEvents(response.Header) && !failed {
		events := newEventReader(response.Body, c.server.MessageBytes, c.server.Memory)
		for {
			event, err := events.Next()
			if err != nil {
				return nil, fmt.Errorf("wait for the server to answer initialize: %w", err)
			}
			if _, _, answered := Agreement(event.Data); answered {
				return event.Data, nil
			}
		}
	}
	body, err := c.readBody(response)
	if err != nil {
		return nil, err
	}
	if _, _, answered := Agreement(body); !answered && !failed {
		return nil, fmt.Errorf("the server's answer to initialize, with status %d, is none", response.StatusCode)
	}
	return body, nil
}

func initializeRequest() []byte {
	return rpc.AppendRequest(nil, []byte("0"), rpc.MethodInitialize, rpc.InitializeParams(front.Revision20251125, "{}", version.Get().Version))
}

// Agreement reads the answer to initialize, if that is what it is.
func Agreement(answer []byte) (revision string, agreed, answered bool) {
	var response struct {
		Method *string
		Error  json.RawMessage
		Result *struct {
			ProtocolVersion string
		}
	}
	if err := json.Unmarshal(answer, &response); err != nil || response.Method != nil {
		return "", false, false
	}
	if response.Result == nil {
		return "", false, response.Error != nil
	}
	if revision = response.Result.ProtocolVersion; !IsHeaderValue(revision) {
		revision = ""
	}
	return revision, true, true
}
