package main

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-mcp/slipway/bench/histogram"
	"github.com/slipway-mcp/slipway/bench/load"
)

// pause is between two clients. Spares are for clients that do not all come at once,
// and systems that have none wait as long.
const pause = 10 * time.Millisecond

// opening is initialize: from the request to the answer, on a connection that is there.
func opening(ctx context.Context, c *cell) (values, error) {
	n := 30
	if c.quick {
		n = 10
	}
	var latencies histogram.Histogram
	for range n {
		took, err := c.openOnce(ctx)
		if err != nil {
			return nil, err
		}
		latencies.Record(took)
		time.Sleep(pause)
	}
	return values{"p50": micros(latencies.Quantile(0.5)), "max": micros(latencies.Max())}, nil
}

func (c *cell) openOnce(ctx context.Context) (took time.Duration, err error) {
	if c.bridge == nil {
		begin := time.Now()
		s, err := load.Start(ctx, c.command)
		if err != nil {
			return 0, err
		}
		return time.Since(begin), s.Close()
	}
	s, err := load.Dial(c.address)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	err = s.Ask()
	took = time.Since(begin)
	if err != nil {
		return 0, errors.Join(err, s.Close())
	}
	if err := s.Complete(); err != nil {
		return 0, errors.Join(err, s.Close())
	}
	return took, s.Leave()
}

// churn is sessions that come, call once and go, one after the other on four
// connections at a time.
func churn(ctx context.Context, c *cell) (values, error) {
	const clients = 4
	timing := c.timing()
	timing.Measure *= 2
	var marks []usage
	result, err := load.Loop(ctx, make([]load.Session, clients), timing, func(_ load.Session, _, number int) error {
		s, err := load.Open(c.address)
		if err != nil {
			return err
		}
		err = s.Do(&load.Call{ID: number, Tool: "echo", Arguments: []byte(`"text":"hello"`), Text: []byte("hello")}, unexpected)
		return errors.Join(err, s.Leave())
	}, func() error {
		now, err := c.measure()
		marks = append(marks, now)
		return err
	})
	if err != nil {
		return nil, err
	}
	found := values{"rate": result.Rate(), "p50": millis(result.Latencies.Quantile(0.5)), "p99": millis(result.Latencies.Quantile(0.99))}
	found.costs(marks[0], marks[1], float64(result.Calls))
	return found, c.memory(found)
}
