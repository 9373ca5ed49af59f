package main

import (
	"context"
	"errors"
	"fmt"
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
