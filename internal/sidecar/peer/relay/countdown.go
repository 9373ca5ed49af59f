package relay

import (
	"context"
	"sync"
	"time"
)

// countdownSteps is how many pauses of this process a countdown outlasts, less one.
const countdownSteps = 6

// countdown ends a context after a time in which this process runs. On a busy machine a process may stand still for
// seconds. When it goes on, the time would be over before it has looked for what came meanwhile, and it
// would take its own pause for the silence of a pod. So the time is divided into steps, of which a pause takes one.
type countdown struct {
	mu    sync.Mutex
	timer *time.Timer
	step  time.Duration
	left  int // steps
	end   context.CancelCauseFunc
}

// within is context.WithTimeout with a countdown. The cause of a context whose time is over is
// context.DeadlineExceeded.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	c := &countdown{step: timeout / countdownSteps, left: countdownSteps, end: end}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(c.step, c.tick)
	return ctx, c.cancel
}

func (c *countdown) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.left--; {
	case c.left > 0:
		c.timer.Reset(c.step)
	case c.left == 0:
		c.end(context.DeadlineExceeded)
	}
}

func (c *countdown) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = 0
	c.timer.Stop()
	c.end(context.Canceled)
}
