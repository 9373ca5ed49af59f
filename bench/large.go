package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/bench/histogram"
	"github.com/slipway-mcp/slipway/bench/load"
)

// enough says when a cell of few and slow operations may end.
func enough(n int, since time.Time) bool {
	return n >= 3 && time.Since(since) >= 300*time.Millisecond
}

// largeReply is one session that is answered with so many bytes.
func largeReply(size int) func(context.Context, *cell) (values, error) {
	text := bytes.Repeat([]byte("x"), size)
	arguments := []byte(`"n":` + strconv.Itoa(size))
	return func(ctx context.Context, c *cell) (values, error) {
		return c.large(ctx, func(number int) *load.Call {
			return &load.Call{ID: number, Tool: "big", Arguments: arguments, Text: text}
		})
	}
}

// largeRequest is one session that sends so many bytes and is answered with few. The
// server's tool does not look at them; what it counts is that they arrived.
func largeRequest(size int) func(context.Context, *cell) (values, error) {
	arguments := fmt.Appendf(nil, `"text":"%s"`, bytes.Repeat([]byte("x"), size))
	return func(ctx context.Context, c *cell) (values, error) {
		return c.large(ctx, func(number int) *load.Call {
			return &load.Call{ID: number, Tool: "count", Arguments: arguments, Text: strconv.AppendInt(nil, int64(number), 10)}
		})
	}
}

// warm has a system do what it is about to be measured by: a few times, and for as long
// as a JIT needs if it has one.
func (c *cell) warm(once func() error) error {
	const least, long = 3, 3 * time.Second
	for start, n := time.Now(), 0; n < least || c.node && !c.quick && time.Since(start) < long; n++ {
		if err := once(); err != nil {
			return err
		}
	}
	return nil
}

func (c *cell) large(ctx context.Context, next func(number int) *load.Call) (values, error) {
	session, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll([]load.Session{session})
	number := 0
	call := func() error {
		number++
		return session.Do(next(number), unexpected)
	}
	if err := c.warm(call); err != nil {
		return nil, err
	}
	begin, err := c.measure()
	if err != nil {
		return nil, err
	}
	var latencies histogram.Histogram
	for start, n := time.Now(), 0; !enough(n, start); n++ {
		before := time.Now()
		if err := call(); err != nil {
			return nil, err
		}
		latencies.Record(time.Since(before))
	}
	end, err := c.measure()
	if err != nil {
		return nil, err
	}
	found := values{"p50": millis(latencies.Quantile(0.5)), "max": millis(latencies.Max())}
	found.costs(begin, end, float64(latencies.Count()))
	found["cpu"] /= 1000 // milliseconds, as the rest
	return found, c.memory(found)
}
