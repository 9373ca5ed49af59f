package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
)

const (
	// firstPause and longestPause are before a stream is opened again that broke off. The first
	// is short: servers end streams in good order, too, and clients wait for what is on them.
	firstPause   = 250 * time.Millisecond
	longestPause = 30 * time.Second
	// resumeTries is how often in a row the server may fail to go on with a call's stream.
	resumeTries = 5
)

// place is how far a stream has been read, and how often nothing came of going on there.
type place struct {
	id        string // of the last event
	retry     time.Duration
	fruitless int
}

// read reads a stream from a place on.
func (c *Stateful) read(body io.ReadCloser, flight *call, p *place) error {
	events := newEventReader(body, c.server.MessageBytes, c.server.Memory)
	count, err := c.readEvents(events, flight)
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
	if err == nil {
		awaitEnd(body)
	}
	return err
}

// pause waits before a stream is opened again, and says whether it should be.
func (p *place) pause(ctx context.Context) bool {
	pace := mux.Pace{First: firstPause, Last: longestPause}
	return mux.Pause(ctx, max(p.retry, pace.After(1+p.fruitless)))
}

// open asks for a stream, from a place on if there is one. Without a stream it says
// whether it may be asked for again.
func (c *Stateful) open(ctx context.Context, lastID string, header http.Header) (stream *http.Response, again bool) {
	response, err := c.get(ctx, lastID, header)
	if err != nil {
		return nil, !errors.Is(err, ErrUnusable)
	}
	status := response.StatusCode
	if status == http.StatusOK && IsEvents(response.Header) {
		c.streams.Store(true)
		c.away.Store(false)
		return response, true
	}
	_ = response.Body.Close() // what is no stream may be anything
	if c.forgotten(status, true) {
		c.finish(errNoSession)
		return nil, false
	}
	// A server that has not noticed the end of a stream says that there is one.
	return nil, status >= http.StatusInternalServerError || status == http.StatusConflict || status == http.StatusTooManyRequests
}

// follow has the stream of a call received until its answer. One that breaks off before
// that goes on in another, if the server numbers its events (T-21, T-22). That may take
// any number of them; for how long is for whoever waits for the answer to say.
func (c *Stateful) follow(ctx context.Context, flight *call, response *http.Response) {
	var at place
	err := c.read(response.Body, flight, &at)
	for failures := 0; failures < resumeTries && !flight.answered && at.id != "" && !errors.Is(err, rpc.ErrEventTooLarge) && at.pause(ctx); {
		stream, again := c.open(ctx, at.id, flight.by.header)
		switch {
		case stream != nil:
			failures = 0
			err = c.read(stream.Body, flight, &at)
			_ = stream.Body.Close() // it has ended, or is of no more use
		case again:
			failures++
			at.fruitless++
		default:
			failures = resumeTries
		}
	}
	switch {
	case flight.answered:
	case errors.Is(err, rpc.ErrEventTooLarge):
		c.fail(flight, err.Error())
	default:
		c.fail(flight, "the server ended the stream of the call without an answer")
	}
}

// listen has the messages received that belong to no call, for as long as the connection
// lives and the server has a stream for them.
func (c *Stateful) listen() {
	var at place
	for {
		stream, again := c.open(c.live, at.id, c.lastHeader())
		switch {
		case stream != nil:
			err := c.read(stream.Body, nil, &at)
			_ = stream.Body.Close() // it has ended, or is of no more use
			if errors.Is(err, rpc.ErrEventTooLarge) {
				c.server.Junk.Inc()
				at.id = "" // or else it would come again
			}
		case again:
			at.fruitless++
		case at.id != "":
			at.id = "" // the server knows no more what followed that (T-24)
			at.fruitless++
		default:
			return
		}
		if !at.pause(c.live) {
			return
		}
	}
}
