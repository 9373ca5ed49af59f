package main

import (
	"context"
	"time"

	"github.com/slipway-mcp/slipway/bench/load"
)

// commonShare is how much of what L3 can do is asked of every system: so little that
// those which are compared closely can do it, also in a round in which L3 was lucky.
const commonShare = 0.25

// paced is small calls of 8 sessions at rates that are fixed before: half and four
// fifths of what the system itself can do, and one rate that is the same for all
// systems of the round.
func paced(ctx context.Context, c *cell) (values, error) {
	const active = 8
	sessions, err := c.openAll(ctx, active)
	if err != nil {
		return nil, err
	}
	defer closeAll(sessions)
	closed, err := c.small(ctx, sessions, c.timing())
	if err != nil {
		return nil, err
	}
	found := values{"max": closed["rate"], "others": closed["others"]}
	common := commonShare * closed["rate"]
	if top, ok := c.base["max"]; ok {
		common = commonShare * top
	}
	if common > 0.8*closed["rate"] {
		c.note = "cannot do the common rate"
		common = 0
	}
	for _, step := range []struct {
		key  string
		rate float64
	}{{"half", 0.5 * closed["rate"]}, {"most", 0.8 * closed["rate"]}, {"common", common}} {
		if step.rate == 0 {
			continue
		}
		if err := c.pace(ctx, sessions, step.key, step.rate, found); err != nil {
			return nil, err
		}
	}
	return found, c.memory(found)
}

// pace adds what calls at one rate measured.
func (c *cell) pace(ctx context.Context, sessions []load.Session, key string, rate float64, to values) error {
	timing := load.Timing{Warm: 100 * time.Millisecond, Measure: 700 * time.Millisecond}
	if c.quick {
		timing.Measure /= 4
	}
	used, result, err := c.echo(sessions, func(call echoCall, mark func() error) (load.Result, error) {
		return load.Paced(ctx, sessions, rate, timing, call, mark)
	})
	if err != nil {
		return err
	}
	to[key+"Rate"] = rate
	to[key+"P50"] = micros(result.Latencies.Quantile(0.5))
	to[key+"P99"] = micros(result.Latencies.Quantile(0.99))
	to[key+"P999"] = micros(result.Latencies.Quantile(0.999))
	to[key+"Late"] = micros(result.Late.Quantile(0.99))
	to["generator"] = used["generator"]
	return nil
}
