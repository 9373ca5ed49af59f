package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/bench/load"
	"github.com/slipway-mcp/slipway/bench/procfs"
)

// values are what a cell measures, by the keys of its metrics.
type values map[string]float64

// cell is one system, started afresh, and what it has to do.
type cell struct {
	*running
	tools *tools
	node  bool
	quick bool
	note  string
	ids   int    // that were used in earlier loops: a session has each once
	base  values // what L3 had in this round, if it was there already
}

// timing is shorter than anybody would like, because there are many rounds.
func (c *cell) timing() load.Timing {
	t := load.Timing{Warm: 200 * time.Millisecond, Measure: 400 * time.Millisecond}
	if c.node {
		t.Warm = time.Second
	}
	if c.quick {
		t.Warm, t.Measure = t.Warm/2, t.Measure/2
	}
	return t
}

// settled is a timing for workloads with a hop. While it warms up, the first pod connects to the other one with TLS,
// for as many calls as there are at a time. With 64, that takes longer than the usual warm-up.
func (c *cell) settled() load.Timing {
	t := c.timing()
	t.Warm *= 5
	return t
}

// rest waits for what was left under way.
func (c *cell) rest() {
	if c.quick {
		time.Sleep(100 * time.Millisecond)
		return
	}
	time.Sleep(time.Second)
}

// openAll opens sessions, a few at a time.
func (c *cell) openAll(ctx context.Context, n int) ([]load.Session, error) {
	const atATime = 4
	sessions, failures := make([]load.Session, n), make([]error, atATime)
	var opening sync.WaitGroup
	for worker := range atATime {
		opening.Go(func() {
			for i := worker; i < n && failures[worker] == nil; i += atATime {
				sessions[i], failures[worker] = c.open(ctx)
			}
		})
	}
	opening.Wait()
	if err := errors.Join(failures...); err != nil {
		closeAll(sessions)
		return nil, fmt.Errorf("open %d sessions: %w", n, err)
	}
	return sessions, nil
}

func closeAll(sessions []load.Session) {
	for _, s := range sessions {
		if s != nil {
			_ = s.Close() // the system is about to end, too
		}
	}
}

// calls is small calls of n sessions at a time.
func calls(n int) func(context.Context, *cell) (values, error) {
	return callsIn(n, (*cell).timing)
}

func callsIn(n int, timingOf func(*cell) load.Timing) func(context.Context, *cell) (values, error) {
	return func(ctx context.Context, c *cell) (values, error) {
		sessions, err := c.openAll(ctx, n)
		if err != nil {
			return nil, err
		}
		defer closeAll(sessions)
		timing := timingOf(c)
		if n <= mostJudged && !c.node {
			timing.Measure *= 2
		}
		return c.small(ctx, sessions, timing)
	}
}

// mostJudged is the most sessions whose p99 has a goal. Of many calls it is steadier, so
// these are measured for longer.
const mostJudged = 64

// payload is the size of a small call's text.
const payload = 200

// small has all sessions echo small texts, as fast as they are answered.
func (c *cell) small(ctx context.Context, sessions []load.Session, timing load.Timing) (values, error) {
	found, _, err := c.echo(sessions, func(call echoCall, mark func() error) (load.Result, error) {
		return load.Loop(ctx, sessions, timing, call, mark)
	})
	return found, err
}

type echoCall = func(session load.Session, index, number int) error

// echo has all sessions echo small texts, each different from all others, when drive
// says so.
func (c *cell) echo(sessions []load.Session, drive func(call echoCall, mark func() error) (load.Result, error)) (values, load.Result, error) {
	buffers := make([][]byte, len(sessions))
	padding := make([]byte, payload)
	for i := range padding {
		padding[i] = 'x'
	}
	const manyIDs = 10_000_000
	base := c.ids
	c.ids += manyIDs
	call := func(s load.Session, index, number int) error {
		const before = `"text":"`
		a := buffers[index][:0]
		a = append(a, before+"session "...)
		a = strconv.AppendInt(a, int64(index), 10)
		a = append(a, " call "...)
		a = strconv.AppendInt(a, int64(number), 10)
		a = append(a, padding[len(a)-len(before):]...)
		text := a[len(before):]
		a = append(a, '"')
		buffers[index] = a
		return s.Do(&load.Call{ID: base + number, Tool: "echo", Arguments: a, Text: text}, unexpected)
	}
	var marks []usage
	result, err := drive(call, func() error {
		now, err := c.measure()
		marks = append(marks, now)
		return err
	})
	if err != nil {
		return nil, load.Result{}, err
	}
	if result.Calls == 0 {
		return nil, load.Result{}, errSilence
	}
	found := values{
		"rate": result.Rate(),
		"p50":  micros(result.Latencies.Quantile(0.5)),
		"p99":  micros(result.Latencies.Quantile(0.99)),
	}
	found.costs(marks[0], marks[1], float64(result.Calls))
	return found, result, c.memory(found)
}

var errSilence = errors.New("no call is answered at all")

func unexpected(message []byte) error { return fmt.Errorf("unexpected message %.300q", message) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// costs adds what was used between two moments, for each of n operations.
func (v values) costs(begin, end usage, n float64) {
	elapsed := end.at.Sub(begin.at)
	v["cpu"] = micros(end.bridge-begin.bridge) / n
	v["cpuAll"] = micros(end.all-begin.all) / n
	v["generator"] = float64(end.generator-begin.generator) / float64(elapsed)
	v["others"] = others(begin, end)
}

// others is the share of the machine that neither we nor the system used. Ticks are
// coarse, so it may come out a little below zero.
func others(begin, end usage) float64 {
	ours := end.all - begin.all + end.generator - begin.generator
	whole := float64(end.at.Sub(begin.at)) * float64(runtime.NumCPU())
	return max(float64(end.machine.Sub(begin.machine).Busy-ours)/whole, 0)
}

// memory adds what the bridge alone has now.
func (c *cell) memory(to values) error {
	if c.bridge == nil {
		return nil
	}
	m, _, err := c.weigh()
	to["rss"], to["pss"] = mebibytes(m.Resident), mebibytes(m.Share)
	return err
}

// weigh returns the memory and the threads of the bridge alone, or of both.
func (r *running) weigh() (sum procfs.Memory, threads int, err error) {
	for _, p := range r.bridges() {
		m, err := procfs.ReadMemory(p.Process.Pid)
		if err != nil {
			return procfs.Memory{}, 0, err
		}
		now, err := procfs.ReadProcess(p.Process.Pid)
		if err != nil {
			return procfs.Memory{}, 0, err
		}
		sum.Resident += m.Resident
		sum.Share += m.Share
		threads += now.Threads
	}
	return sum, threads, nil
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }
