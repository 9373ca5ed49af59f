package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/bench/load"
)

const (
	eventsPerCall = 1000
	eventSize     = 100
	// lostAfter is how long events of a call that is answered may still be under way.
	lostAfter = 300 * time.Millisecond
)

// tally checks the events of one call at a time, wherever they come.
type tally struct {
	mu      sync.Mutex
	token   int
	next    int // number of the event that is to come
	last    time.Time
	aside   int // events that came on another stream than the call's
	gaps    int
	arrived chan struct{} // there is something new
	failed  error
}

func (t *tally) take(message []byte, aside bool) error {
	token, number, err := load.Progress(message)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil:
		t.failed = err
	case token != t.token:
		t.failed = fmt.Errorf("event %d of call %d comes in call %d", number, token, t.token)
	case number < t.next:
		t.failed = fmt.Errorf("event %d comes when %d should", number, t.next)
	default:
		t.gaps += number - t.next
		t.next = number + 1
		t.last = time.Now()
		if aside {
			t.aside++
		}
	}
	select {
	case t.arrived <- struct{}{}:
	default:
	}
	return t.failed
}

// begin makes ready for the next call.
func (t *tally) begin(token int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token, t.next, t.gaps = token, 0, 0
}

// finish waits for stragglers, and says how many events came and when the last did.
func (t *tally) finish() (delivered int, last time.Time, err error) {
	late := time.After(lostAfter)
	for {
		t.mu.Lock()
		next, gaps, last, err := t.next, t.gaps, t.last, t.failed
		t.mu.Unlock()
		if next == eventsPerCall || err != nil {
			return next - gaps, last, err
		}
		select {
		case <-t.arrived:
		case <-late:
			return next - gaps, last, nil
		}
	}
}

// teller is a session whose calls tell of their progress.
type teller struct {
	session           load.Session
	tally             *tally
	number, delivered int
}

// call has one call tell of its progress, and returns how long it took until all of it
// was there.
func (t *teller) call() (took time.Duration, err error) {
	t.number++
	t.tally.begin(t.number)
	arguments := []byte(`"n":` + strconv.Itoa(eventsPerCall) + `,"size":` + strconv.Itoa(eventSize))
	before := time.Now()
	err = t.session.Do(&load.Call{ID: t.number, Tool: "burst", Token: t.number, Arguments: arguments, Text: []byte("done")},
		func(message []byte) error { return t.tally.take(message, false) })
	if err != nil {
		return 0, err
	}
	answered := time.Now()
	n, last, err := t.tally.finish()
	t.delivered += n
	if last.Before(answered) {
		last = answered
	}
	return last.Sub(before), err
}

// progress is calls that tell of their progress a thousand times as fast as they can.
// It counts what arrives, in order.
func progress(ctx context.Context, c *cell) (values, error) {
	session, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll([]load.Session{session})
	t := &teller{session: session, tally: &tally{arrived: make(chan struct{}, 1)}}
	if remote, ok := session.(*load.Remote); ok {
		// Some systems can only send it there. finish says what was wrong.
		stream, err := remote.Listen(func(message []byte) { _ = t.tally.take(message, true) })
		if err != nil {
			return nil, err
		}
		defer func() { _ = stream.Close() }()
	}
	if err := c.warm(func() error { _, err := t.call(); return err }); err != nil {
		return nil, err
	}
	t.delivered = 0
	begin, err := c.measure()
	if err != nil {
		return nil, err
	}
	var took time.Duration
	n := 0
	for start := time.Now(); !enough(n, start); n++ {
		one, err := t.call()
		if err != nil {
			return nil, err
		}
		took += one
	}
	end, err := c.measure()
	if err != nil {
		return nil, err
	}
	sent := float64(n * eventsPerCall)
	found := values{"rate": float64(t.delivered) / took.Seconds(), "lost": 100 * (1 - float64(t.delivered)/sent)}
	found.costs(begin, end, sent)
	if t.tally.aside > 0 {
		c.note = "sends progress on the GET stream, not on the call's"
	}
	return found, c.memory(found)
}
