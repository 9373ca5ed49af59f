package main

import (
	"context"
	"errors"

	"github.com/slipway-mcp/slipway/bench/histogram"
	"github.com/slipway-mcp/slipway/bench/load"
)

// contrast is p99 of the same sessions with a disturbance and without it. A measurement
// alternates between the two, so that noise of the machine is in both. Two rounds without
// the disturbance show how far equal measurements differ.
type contrast struct {
	cell     *cell
	sessions []load.Session
	timing   load.Timing
	with     histogram.Histogram
	without  histogram.Histogram
	again    []float64 // p99 of each time without
	last     values    // what else was measured, the last time with
}

// measure has the sessions call for a while.
func (c *contrast) measure(ctx context.Context, with bool) error {
	found, result, err := c.cell.echo(c.sessions, func(call echoCall, mark func() error) (load.Result, error) {
		return load.Loop(ctx, c.sessions, c.timing, call, mark)
	})
	if err != nil {
		return err
	}
	if with {
		c.with.Merge(result.Latencies)
		c.last = found
		return nil
	}
	c.without.Merge(result.Latencies)
	c.again = append(c.again, found["p99"])
	return nil
}

var errNoContrast = errors.New("there is nothing to compare with")

// values are the two p99, and by what factor they differ: with and without, and two
// times without.
func (c *contrast) values() (values, error) {
	if c.last == nil || c.without.Count() == 0 {
		return nil, errNoContrast
	}
	c.last["p99"] = micros(c.with.Quantile(0.99))
	c.last["before"] = micros(c.without.Quantile(0.99))
	c.last["change"] = c.last["p99"] / c.last["before"]
	if len(c.again) > 1 {
		c.last["again"] = c.again[1] / c.again[0]
	}
	return c.last, nil
}
