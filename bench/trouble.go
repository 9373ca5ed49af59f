package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/bench/histogram"
	"github.com/slipway-mcp/slipway/bench/load"
)

// killPatience is how long a client waits to hear that its server has died.
const killPatience = 3 * time.Second

// kill has servers end by SIGKILL in the middle of a call: how long does it take until
// the client knows?
func kill(_ context.Context, c *cell) (values, error) {
	n := 10
	if c.node {
		n = 3
	}
	var latencies histogram.Histogram
	for range n {
		s, err := load.Open(c.address)
		if err != nil {
			return nil, err
		}
		if err := s.Limit(killPatience); err != nil {
			return nil, err
		}
		begin := time.Now()
		err = s.Do(&load.Call{ID: 1, Tool: "kill"}, unexpected)
		took := time.Since(begin)
		_ = s.Close() // the session is over in any case
		if err == nil {
			return nil, errors.New("a call is answered whose server is dead")
		}
		if took >= killPatience {
			return nil, fmt.Errorf("nothing is said of the server's death within %s", killPatience)
		}
		latencies.Record(took)
	}
	if err := c.works(); err != nil {
		c.note = "no session works after that"
	}
	return values{"p50": millis(latencies.Quantile(0.5)), "max": millis(latencies.Max())}, nil
}

// works says whether a new session can call.
func (c *cell) works() error {
	s, err := load.Open(c.address)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if err := s.Limit(killPatience); err != nil {
		return err
	}
	return s.Do(&load.Call{ID: 1, Tool: "echo", Arguments: []byte(`"text":"hello"`), Text: []byte("hello")}, unexpected)
}

// slowReader has eight sessions at work, and then a ninth whose client asks for 64 MiB
// of events and reads none of them.
func slowReader(ctx context.Context, c *cell) (values, error) {
	const active = 8
	sessions, err := c.openAll(ctx, active)
	if err != nil {
		return nil, err
	}
	defer closeAll(sessions)
	timing := c.timing()
	timing.Measure *= 2
	without, err := c.small(ctx, sessions, timing)
	if err != nil {
		return nil, err
	}
	slow, err := load.Open(c.address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = slow.Close() }() // it is never read
	const size = 1000
	arguments := []byte(`"n":` + strconv.Itoa(64<<20/size) + `,"size":` + strconv.Itoa(size))
	if err := slow.Begin(&load.Call{ID: 1, Tool: "burst", Token: 1, Arguments: arguments}); err != nil {
		return nil, err
	}
	timing.Warm = time.Second // for all that fits to be where it fits
	with, err := c.small(ctx, sessions, timing)
	if err != nil {
		return nil, err
	}
	with["before"] = without["p99"]
	with["change"] = with["p99"] / without["p99"]
	with["growth"] = with["rss"] - without["rss"]
	return with, nil
}
