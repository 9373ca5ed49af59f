package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-mcp/slipway/bench/load"
	"github.com/slipway-mcp/slipway/bench/procfs"
)

// idle is sessions that have an open GET stream and do nothing: what each costs the
// bridge, and what all of them together cost eight that are at work.
func idle(n int) func(context.Context, *cell) (values, error) {
	return func(ctx context.Context, c *cell) (found values, err error) {
		before, began, err := c.weigh()
		if err != nil {
			return nil, err
		}
		sessions, err := c.openAll(ctx, n)
		if err != nil {
			return nil, err
		}
		defer closeAll(sessions)
		if err := listenAll(sessions); err != nil {
			return nil, err
		}
		for range 3 { // idle is a state that lasts
			c.rest()
		}
		after, ended, err := c.weigh()
		if err != nil {
			return nil, err
		}
		children, err := c.children()
		if err != nil {
			return nil, err
		}
		if found, err = c.withAndWithout(ctx, sessions); err != nil {
			return nil, err
		}
		found["kib"] = float64(after.Share-before.Share) / float64(n) / (1 << 10)
		found["threads"] = float64(ended)
		found["threadsMore"] = float64(ended - began)
		found["childKib"] = float64(children) / float64(n) / (1 << 10)
		return found, nil
	}
}

// listenAll opens a stream for each session. They end with the system.
func listenAll(sessions []load.Session) error {
	for i, s := range sessions {
		remote, ok := s.(*load.Remote)
		if !ok {
			return errors.New("idle sessions are for HTTP")
		}
		if _, err := remote.Listen(func([]byte) {}); err != nil {
			return fmt.Errorf("session %d: %w", i, err)
		}
	}
	return nil
}

// withAndWithout has eight of the sessions at work while the others are idle, when the
// others are gone, and when as many are there again.
func (c *cell) withAndWithout(ctx context.Context, sessions []load.Session) (values, error) {
	const active = 8
	compared := &contrast{cell: c, sessions: sessions[:active], timing: c.timing()}
	compared.timing.Measure *= 2
	if err := compared.measure(ctx, true); err != nil {
		return nil, err
	}
	if err := leaveAll(sessions[active:]); err != nil {
		return nil, err
	}
	c.rest()
	if err := compared.measure(ctx, false); err != nil {
		return nil, err
	}
	if c.node { // it takes them long, and they are far away
		return compared.values()
	}
	if err := compared.measure(ctx, false); err != nil {
		return nil, err
	}
	others, err := c.openAll(ctx, len(sessions)-active)
	if err != nil {
		return nil, err
	}
	defer closeAll(others)
	if err := listenAll(others); err != nil {
		return nil, err
	}
	c.rest()
	if err := compared.measure(ctx, true); err != nil {
		return nil, err
	}
	return compared.values()
}

func leaveAll(sessions []load.Session) error {
	for i, s := range sessions {
		if err := s.(*load.Remote).Leave(); err != nil {
			return fmt.Errorf("session %d: %w", i, err)
		}
	}
	return nil
}

// children is the memory of everything but the bridge.
func (c *cell) children() (total int64, err error) {
	roots := []int{c.bridge.Process.Pid}
	if c.helper != nil {
		roots = append(roots, c.helper.Process.Pid)
	}
	for i, root := range roots {
		below, err := procfs.Descendants(root)
		if err != nil {
			return 0, err
		}
		if i > 0 {
			below = append(below, procfs.Process{PID: root})
		}
		for _, p := range below {
			if m, err := procfs.ReadMemory(p.PID); err == nil { // else it has ended
				total += m.Share
			}
		}
	}
	return total, nil
}
