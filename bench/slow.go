package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/bench/load"
)

const (
	slowBytes = 64 << 20
	slowSize  = 1000 // of an event
	// slowPatience is for all calls beside it, and for the answer when it reads at last.
	slowPatience = 20 * time.Second
)

// slowReader has eight sessions at work, and a ninth whose client asks for 64 MiB of
// events and reads none of them.
func slowReader(ctx context.Context, c *cell) (values, error) {
	const active = 8
	sessions, err := c.openAll(ctx, active)
	if err != nil {
		return nil, err
	}
	defer closeAll(sessions)
	slow, err := load.Open(c.address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = slow.Close() }()
	return c.besideSlow(ctx, sessions, slow)
}

// slowReaderSame is a session whose client does not read one of its calls, and makes
// other calls on another connection.
func slowReaderSame(ctx context.Context, c *cell) (values, error) {
	slow, err := load.Open(c.address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = slow.Close() }()
	other, err := slow.Another()
	if err != nil {
		return nil, err
	}
	defer func() { _ = other.Close() }()
	if err := other.Limit(slowPatience); err != nil {
		return nil, err
	}
	return c.besideSlow(ctx, []load.Session{other}, slow)
}

// measureCalls is measure, again if no call was answered. On a busy machine the window of
// a quick run can be over before the server has written the burst. A full run has a longer
// window, and a window without an answer is a result.
func (c *contrast) measureCalls(ctx context.Context, beside bool) error {
	begin := time.Now()
	for {
		err := c.measure(ctx, beside)
		if !errors.Is(err, errSilence) || !c.cell.quick || time.Since(begin) > slowPatience {
			return err
		}
	}
}

// besideSlow measures the sessions before a client begins not to read, twice while it
// does not, and after it has read everything.
func (c *cell) besideSlow(ctx context.Context, sessions []load.Session, slow *load.Remote) (values, error) {
	compared := &contrast{cell: c, sessions: sessions, timing: c.timing()}
	compared.timing.Measure = compared.timing.Measure * 3 / 2
	if err := compared.measure(ctx, false); err != nil {
		return nil, err
	}
	before := values{}
	if err := c.memory(before); err != nil {
		return nil, err
	}
	const id = 999_999_999 // that no other call of the session has
	call := &load.Call{
		ID: id, Tool: "burst", Token: 1, Text: []byte("done"),
		Arguments: []byte(`"n":` + strconv.Itoa(slowBytes/slowSize) + `,"size":` + strconv.Itoa(slowSize)),
	}
	if err := slow.Begin(call); err != nil {
		return nil, err
	}
	c.rest() // for all that fits to be where it fits
	for range 2 {
		if err := compared.measureCalls(ctx, true); err != nil {
			return nil, fmt.Errorf("while it does not read: %w", err)
		}
	}
	during := values{}
	if err := c.memory(during); err != nil {
		return nil, err
	}
	lost, err := c.neverAnswered(slow, call)
	if err != nil {
		return nil, err
	}
	c.rest()
	if err := compared.measure(ctx, false); err != nil {
		return nil, err
	}
	found, err := compared.values()
	if err != nil {
		return nil, err
	}
	found["growth"] = during["rss"] - before["rss"]
	found["lost"] = lost
	return found, nil
}

// neverAnswered reads what a client has not read, and says how many answers are not
// there: of one. Events may be missing, of which a bridge can keep only so many.
func (c *cell) neverAnswered(slow *load.Remote, call *load.Call) (float64, error) {
	if err := slow.Limit(slowPatience); err != nil {
		return 0, err
	}
	if err := slow.Finish(call, func([]byte) error { return nil }); err != nil {
		c.note = "the call that was not read: " + err.Error()
		return 1, nil //nolint:nilerr // That there is no answer is what was found out.
	}
	return 0, nil
}
