package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

type progress struct{ out io.Writer }

func (p progress) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p.out, format+"\n", args...) // A closed terminal must not stop a clean-up.
}

// step runs one step and prints a line with what it did and how long it took.
func (p progress) step(name string, run func() error) error {
	begin := time.Now()
	if err := run(); err != nil {
		p.printf("cluster: %-44s failed after %.1f s", name, time.Since(begin).Seconds())
		return fmt.Errorf("%s: %w", name, err)
	}
	p.printf("cluster: %-44s %5.1f s", name, time.Since(begin).Seconds())
	return nil
}

// componentError is an error whose reason is in the log of a component.
type componentError struct {
	log string
	err error
}

func (e *componentError) Error() string { return e.err.Error() }
func (e *componentError) Unwrap() error { return e.err }

// explain prints the tails of the logs that an error refers to.
func (p progress) explain(err error) {
	var component *componentError
	if !errors.As(err, &component) {
		return
	}
	p.printf("cluster: the last lines of %s:\n%s", component.log, tail(component.log, 20))
}

// tail returns the last lines of a file, cut to what a terminal can bear.
func tail(path string, lines int) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = file.Close() }() // Only read from.
	const window = 16 << 10
	if info, err := file.Stat(); err == nil && info.Size() > window {
		if _, err := file.Seek(-window, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	content, err := io.ReadAll(io.LimitReader(file, window))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// wait looks at a condition until it is met. It gives up at the deadline, or
// when one of the processes that could bring it about is dead.
func wait(ctx context.Context, deadline time.Duration, condition func(context.Context) error, alive ...func() error) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		for _, check := range alive {
			if dead := check(); dead != nil {
				return dead
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up after %s: %w", deadline, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
