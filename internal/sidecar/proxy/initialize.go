package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/streamable"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote"
)

// initialize takes a request that opens a session. The client may still send the id of a session that
// is over, which the server does not get.
func (p *Proxy) initialize(x *exchange) {
	if p.hasOpen(x.r) {
		streamable.RefuseInitialize(x.w, x.id)
		return
	}
	if p.Initialize == nil || !p.Initialize(x.w, x.r) {
		p.forwardInitialize(x)
	}
}

// hasOpen reports whether a request names an open session that its caller can end. No other caller
// can follow the advice to end the session.
func (p *Proxy) hasOpen(r *edge.Request) bool {
	found, ok := p.Sessions.Find(r.Head(front.HeaderSession)).(*proxySession)
	return ok && found.EndedBy() == nil && found.Owner.IsVerified(&r.Caller)
}

// forwardInitialize forwards a request that opens a session. It reads the answer before it passes
// anything on, so that a session that fails to open leaves nothing behind (T-15). If the client goes
// away meanwhile, it still waits for the answer: without the id in it, no code could end the session.
func (p *Proxy) forwardInitialize(x *exchange) {
	slot, err := x.r.Place(x.w, p.Sessions)
	if err != nil {
		x.turnAway(err)
		return
	}
	if slot == nil {
		return // another instance has the session
	}
	defer slot.Release()

	x.timeout = p.OpenTimeout
	ctx, cancel := x.context()
	defer cancel(nil)
	response, err := x.send(ctx)
	if err != nil {
		x.fail(ctx, err)
		return
	}
	defer func() { _ = response.Body.Close() }()
	serverID, err := remote.SessionID(response)
	if err != nil {
		x.fail(ctx, err)
		return
	}
	revision, agreed, err := x.readAgreement(response)
	if err != nil {
		x.endStray(ctx, serverID)
		x.fail(ctx, err)
		return
	}
	switch {
	case serverID == "":
	case agreed && x.r.Context().Err() == nil:
		opened := p.newSession(serverID, revision, &x.r.Caller)
		defer opened.leave(false)
		x.r.Record.Session, x.r.Record.Revision = opened.Number, edge.KnownRevision(revision)
		id := p.mintID(opened, &x.r.Caller)
		slot.Fill(x.r.Context(), id, opened)
		x.w.Header().Set(front.HeaderSession, id)
	default:
		x.endStray(ctx, serverID)
	}
	defer context.AfterFunc(x.r.Context(), func() { cancel(errClientGone) })()
	x.answer(ctx, cancel, response)
}

// readAgreement reads the answer to initialize until it is known whether client and server agree, and
// on which revision. Then the answer can be read again.
func (x *exchange) readAgreement(response *http.Response) (revision string, agreed bool, err error) {
	if response.StatusCode >= http.StatusMultipleChoices {
		return "", false, nil
	}
	var seen bytes.Buffer
	body := response.Body
	limit := x.proxy.AnswerBytes
	limited := io.TeeReader(io.LimitReader(body, limit), &seen)
	if remote.IsEvents(response.Header) {
		events := rpc.NewEventReader(limited, int(limit))
		for answered := false; !answered && err == nil; {
			var event rpc.Event
			if event, err = events.Next(); err == nil {
				revision, agreed, answered = rpc.Agreement(event.Data)
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil // the stream ends without an answer, which the client will see
		}
	} else if _, err = io.Copy(io.Discard, limited); err == nil {
		revision, agreed, _ = rpc.Agreement(seen.Bytes())
	}
	if err == nil && !agreed && int64(seen.Len()) == limit {
		err = fmt.Errorf("%w: its answer to initialize is larger than %d bytes", remote.ErrUnusable, limit)
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&seen, body), body}
	return revision, agreed, err
}
