package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/bench/load"
	"github.com/slipway-mcp/slipway/bench/report"
)

// tokens is small calls of n sessions, with auth and without.
//
// Auth costs a few percent of a call, and two runs of one program differ by more. So several
// adapters are up at the same time and take turns of a fraction of a second: what the machine
// does meanwhile, it does to all of them.
func tokens(n int) workload {
	text := strconv.Itoa(n)
	title := "Small calls with a token, " + text + " sessions"
	if n == 1 {
		title = "Small calls with a token, 1 session"
	}
	return workload{
		Workload: report.Workload{Name: "tokens-" + text, Title: title, Metrics: tokenMetrics},
		run:      func(ctx context.Context, c *cell) (values, error) { return c.besideOpen(ctx, n) }, rounds: 8, quick: 1,
		participants: []participants{also(1, adapterAuth)},
	}
}

// contestant is one of the adapters that take turns.
type contestant struct {
	cell     *cell
	sessions []load.Session
	calls    uint64
	busy     time.Duration
}

func (c *contestant) rate() float64 { return float64(c.calls) / c.busy.Seconds() }

// turn has all sessions of a contestant call for a while.
func (c *contestant) turn(ctx context.Context, timing load.Timing) error {
	_, result, err := c.cell.echo(c.sessions, func(call echoCall, mark func() error) (load.Result, error) {
		return load.Loop(ctx, c.sessions, timing, call, mark)
	})
	c.calls += result.Calls
	c.busy += result.Elapsed
	return err
}

// besideOpen compares the cell's adapter, which asks for tokens, with three that do not: two
// that are the same, and one whose clients send as many bytes in a header that the adapter
// ignores. The last one tells what any HTTP server pays for a longer header from what auth costs.
func (c *cell) besideOpen(ctx context.Context, n int) (_ values, err error) {
	all := []*contestant{{cell: c}}
	for _, header := range []string{"", "", strings.Replace(c.header, "Authorization:", "X-Unused-Text:", 1)} {
		open := &cell{tools: c.tools, quick: c.quick}
		if open.running, err = sidecar()(ctx, c.tools); err != nil {
			return nil, err
		}
		defer func() {
			if left := open.stop(); left > 0 {
				err = errors.Join(err, fmt.Errorf("an adapter without auth leaves %d processes behind", left))
			}
		}()
		open.header = header
		if err := open.settle(); err != nil {
			return nil, err
		}
		all = append(all, &contestant{cell: open})
	}
	for _, one := range all {
		if one.sessions, err = one.cell.openAll(ctx, n); err != nil {
			return nil, err
		}
		defer closeAll(one.sessions)
	}
	begin, err := c.measure()
	if err != nil {
		return nil, err
	}
	if err := takeTurns(ctx, all, c.quick); err != nil {
		return nil, err
	}
	end, err := c.measure()
	if err != nil {
		return nil, err
	}
	with, padded := all[0].rate(), all[3].rate()
	// Two of the same are one steadier measure.
	without := float64(all[1].calls+all[2].calls) / (all[1].busy + all[2].busy).Seconds()
	return values{
		"rate": with, "change": with / without, "own": with / padded, "bytes": padded / without, "again": all[2].rate() / all[1].rate(),
		"generator": float64(end.generator-begin.generator) / float64(end.at.Sub(begin.at)),
	}, nil
}

// orders are the turns of four contestants: each comes after each of the others equally often.
var orders = [][]int{{0, 1, 3, 2}, {1, 2, 0, 3}, {2, 3, 1, 0}, {3, 0, 2, 1}}

// takeTurns measures all contestants, some hundred milliseconds each in every turn. Before
// that, each one warms up.
func takeTurns(ctx context.Context, all []*contestant, quick bool) error {
	turns, timing := 4*len(orders), load.Timing{Warm: 20 * time.Millisecond, Measure: 80 * time.Millisecond}
	if quick {
		turns = 1
	}
	for _, one := range all {
		if err := one.turn(ctx, load.Timing{Warm: 200 * time.Millisecond, Measure: timing.Measure}); err != nil {
			return err
		}
		one.calls, one.busy = 0, 0
	}
	for n := range turns {
		for _, i := range orders[n%len(orders)] {
			if err := all[i].turn(ctx, timing); err != nil {
				return err
			}
		}
	}
	return nil
}
