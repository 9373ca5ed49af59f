package remote

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
)

// pace is that of opening a stream again that broke off. The first pause is short: servers also end
// streams in good order, and clients wait for the events on them.
var pace = mux.Pace{First: 250 * time.Millisecond, Last: longestPause}

const (
	longestPause = 30 * time.Second
	// resumeTries is how often in a row the server may fail to resume the stream of a call.
	resumeTries = 5
)

// place is how far a stream has been read.
type place struct {
	id        string // of the last event
	retry     time.Duration
	fruitless int // streams in a row, from this place on, that had no event
}

// read reads a stream from a place on.
func (c *Stateful) read(stream *http.Response, flight *call, p *place) error {
	events := c.server.events(stream.Body)
	count, err := c.readEvents(events, stream, flight)
	if id := events.LastID(); id != "" && id != p.id {
		p.id = id
		count++
	}
	if retry := events.Retry(); retry > 0 {
		p.retry = min(retry, longestPause)
	}
	p.fruitless++
	if count > 0 {
		p.fruitless = 0
	}
	return err
}

// pause waits before a stream is opened again, and says whether it should be.
func (p *place) pause(ctx context.Context) bool {
	return mux.Pause(ctx, max(p.retry, pace.After(1+p.fruitless)))
}

// open asks for a stream, which begins after the last event if there is one. Without a stream it says
// whether to ask again.
func (c *Stateful) open(ctx context.Context, lastID string, header http.Header) (stream *http.Response, again bool) {
	request := newGET(ctx, c.server.URL, header)
	if lastID != "" {
		request.Header.Set(front.HeaderLastEventID, lastID)
	}
	response, err := c.do(request)
	if err != nil {
		return nil, !errors.Is(err, ErrUnusable)
	}
	status := response.StatusCode
	if status == http.StatusOK && IsEvents(response.Header) {
		c.streams.Store(true)
		c.away.Store(false)
		return response, true
	}
	_ = response.Body.Close() // not read, because it may never end
	if c.isForgotten(status, true) {
		c.end(errNoSession)
		return nil, false
	}
	// A server that has not noticed the end of a stream answers with a conflict.
	return nil, status >= http.StatusInternalServerError || status == http.StatusConflict || status == http.StatusTooManyRequests
}

// follow has the stream of a call received until its answer. If the stream breaks off and the server
// numbers its events, follow resumes it (T-21, T-22), any number of times. The caller decides how
// long to wait.
func (c *Stateful) follow(ctx context.Context, flight *call, response *http.Response) {
	var at place
	err := c.read(response, flight, &at)
	for failures := 0; failures < resumeTries && !flight.answered && at.id != "" && !errors.Is(err, rpc.ErrEventTooLarge) && at.pause(ctx); {
		stream, again := c.open(ctx, at.id, flight.by.header)
		switch {
		case stream != nil:
			failures = 0
			err = c.read(stream, flight, &at)
			_ = stream.Body.Close() // it has ended, or is of no more use
		case again:
			failures++
			at.fruitless++
		default:
			failures = resumeTries
		}
	}
	if !flight.answered {
		c.streamEnded(flight, err)
	}
}

// streamWait is how long the server may take to answer the first GET. Some servers answer only when they have an event.
const streamWait = 2 * time.Second

// AwaitStream waits until the server has opened the stream for messages that belong to no call, or will not. Many servers
// discard such messages while there is no stream, so a client must not rely on them before. AwaitStream waits no longer
// than streamWait.
func (c *Stateful) AwaitStream(ctx context.Context) { c.awaitStream(ctx, streamWait) }

func (c *Stateful) awaitStream(ctx context.Context, wait time.Duration) {
	patience := time.NewTimer(wait)
	defer patience.Stop()
	select {
	case <-c.settled:
	case <-patience.C:
	case <-ctx.Done():
	case <-c.live.Done():
	}
}

// listen has the messages received that belong to no call, for as long as the connection lives and
// the server has a stream for them.
func (c *Stateful) listen() {
	isSettled := func() { c.settle.Do(func() { close(c.settled) }) }
	defer time.AfterFunc(streamWait, isSettled).Stop()
	var at place
	for {
		stream, again := c.open(c.live, at.id, c.lastHeader())
		isSettled()
		switch {
		case stream != nil:
			err := c.read(stream, nil, &at)
			_ = stream.Body.Close() // as above
			if errors.Is(err, rpc.ErrEventTooLarge) {
				c.server.Junk.Inc()
				at.id = "" // the server would send the event again
			}
		case again:
			at.fruitless++
		case at.id != "":
			at.id = "" // the server no longer has the events after it (T-24)
			at.fruitless++
		default:
			return
		}
		if !at.pause(c.live) {
			return
		}
	}
}
