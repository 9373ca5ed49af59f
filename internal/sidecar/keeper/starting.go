package keeper

import (
	"context"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// awaitContainer waits until the server's container runs. Meanwhile the server counts as starting,
// which is no failure: the kubelet pulls the image and starts the container, and says what hinders it.
func (k *Keeper) awaitContainer(ctx context.Context) {
	container := k.options.Container
	if container == nil || container.Connected() {
		return
	}
	err := k.noContainer()
	k.logFailure(false, adapterapi.Starting, err)
	k.settle(false, adapterapi.Starting, err)
	if container.WaitConnected(ctx) == nil {
		k.set(func(s *State) { s.Err = ErrStarting })
	}
}

// noContainer is the error while there is no container.
func (k *Keeper) noContainer() error {
	if k.connected {
		return errContainerGone
	}
	return ErrNoContainer
}

// wait is the wait for the answer of one server. The keeper's lock guards it.
type wait struct {
	patience time.Duration
	late     bool // the patience is over
	told     bool // the state says that the server is silent
	over     bool // the server has answered or failed
}

// awaitAnswer reports a server as silent when it is late, long before the keeper gives it up. The
// caller calls the returned function when the server has answered or failed.
//
// A server that has yet to answer for the first time is not late: many take long to load, and nothing
// that worked is broken. It is late if it writes what is not a message, because most such servers never
// answer.
func (k *Keeper) awaitAnswer() (stop func(answered bool)) {
	begin := time.Now()
	w := &wait{patience: k.patience()}
	k.set(func(s *State) {
		k.waiting = w
		if k.excusedLocked() && s.Failures == 0 {
			s.Reason, s.Err = adapterapi.Starting, errUnanswered
		}
	})
	timer := time.AfterFunc(w.patience, func() {
		k.mu.Lock()
		w.late = true
		k.mu.Unlock()
		k.reportLate(w)
	})
	return func(answered bool) {
		timer.Stop()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.waiting, w.over = nil, true
		if answered {
			k.slowest = max(k.slowest, time.Since(begin))
		}
	}
}

// excusedLocked says whether a server may take until StartTimeout to answer.
func (k *Keeper) excusedLocked() bool {
	return k.options.Starts && !k.answered && k.stray == ""
}

// isFirst says whether the keeper starts servers, and none has answered yet.
func (k *Keeper) isFirst() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.options.Starts && !k.answered
}

// reportLate reports a server as silent if it is late and has no excuse.
func (k *Keeper) reportLate(w *wait) {
	k.mu.Lock()
	tell := w.late && !w.told && !w.over && !k.excusedLocked()
	w.told = w.told || tell
	k.mu.Unlock()
	if !tell {
		return
	}
	err := k.silent(w.patience, nil)
	late := false
	k.set(func(s *State) {
		if late = !w.over; late {
			s.Ready, s.Reason, s.Err = false, adapterapi.Silent, err
		}
	})
	if late {
		k.logFailure(false, adapterapi.Silent, err)
	}
}
