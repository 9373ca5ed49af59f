package budget

import (
	"errors"
	"sync/atomic"
	"time"
)

// Account counts the bytes that one holder has of a Budget. A holder is a session, or the
// buffer into which the adapter reads a message of a server. Goroutines may call its methods
// at the same time. A nil Account has room for everything.
//
// A holder may take more only while it has less than twice what is left of the budget, so that
// a greedy holder leaves room to others. A holder that finds no room can press the holder that
// has most to give way. The first bytes of a holder that can give way are free of charge, so
// that a small holder always has room.
type Account struct {
	budget  *Budget
	free    int64 // bytes that it holds free of charge
	held    atomic.Int64
	giveWay func()
}

// Account returns an Account that holds nothing. The budget calls giveWay, in a new goroutine,
// when another holder finds no room. giveWay is nil for a buffer, which cannot give way. No byte
// of a buffer is free of charge, so that the budget has room for a session that takes the message
// over.
func (b *Budget) Account(giveWay func()) *Account {
	if b == nil {
		return nil
	}
	a := &Account{budget: b, giveWay: giveWay}
	if giveWay != nil {
		a.free = b.free
	}
	return a
}

// charge returns how many bytes of the budget a holder of so many bytes takes.
func (a *Account) charge(held int64) int64 { return max(held-a.free, 0) }

// Held returns how many bytes the holder has.
func (a *Account) Held() int64 {
	if a == nil {
		return 0
	}
	return a.held.Load()
}

// Change records that the holder has so many bytes more, or fewer. It never fails, because the
// holder has the bytes already.
func (a *Account) Change(by int) {
	if a != nil && by != 0 {
		a.budget.change(a.add(by))
	}
}

// TakeOver is Change for a holder that takes a message over from another one. The message keeps
// its room in the budget all the time. Otherwise a third holder could take that room in between,
// and both together would exceed the budget. from may be nil, or the same account.
func (a *Account) TakeOver(by int, from *Account, message int) {
	if a == nil {
		return
	}
	a.budget.change(a.add(by) + from.drop(message))
}

// Give records that the holder no longer has a message of so many bytes. The holder may have had
// fewer, because the adapter makes a message longer when it repairs the text.
func (a *Account) Give(message int) {
	if a != nil {
		a.budget.change(a.drop(message))
	}
}

func (a *Account) drop(message int) int64 {
	if a == nil {
		return 0
	}
	return a.add(-min(message, int(a.held.Load())))
}

// add changes what the account holds, and returns by how much its charge changes.
func (a *Account) add(by int) int64 {
	held := a.held.Add(int64(by))
	return a.changed(held-int64(by), held)
}

// changed lists the account if it is charged, and returns by how much its charge changes.
func (a *Account) changed(from, to int64) int64 {
	before, after := a.charge(from), a.charge(to)
	if (before == 0) != (after == 0) {
		a.budget.list(a)
	}
	return after - before
}

// Take gives the holder so many bytes more, if there is room, and reports whether there was.
// Holders that call Take at the same time do not exceed the budget together, as they would with
// Fits and Change.
func (a *Account) Take(more int) bool {
	if a == nil {
		return true
	}
	for {
		held := a.held.Load()
		charge := a.charge(held + int64(more))
		taken := charge - a.charge(held)
		if taken > 0 && !a.budget.take(taken, (charge+1)/2) {
			return false
		}
		if a.held.CompareAndSwap(held, held+int64(more)) {
			a.changed(held, held+int64(more))
			return true
		}
		a.budget.change(-taken) // the account has changed meanwhile
	}
}

// Fits reports whether the budget has room for so many bytes more.
func (a *Account) Fits(more int) bool {
	if a == nil {
		return true
	}
	held := a.held.Load()
	charge := a.charge(held + int64(more))
	if charge == 0 {
		return true
	}
	left := a.budget.limit - a.budget.used.Load() - (charge - a.charge(held))
	return charge <= 2*left
}

// Press makes the holder that has most give way to this one, which finds no room for more. A
// holder that can give way itself presses only a holder that has more.
func (a *Account) Press() {
	least := int64(0)
	if a.giveWay != nil {
		least = a.held.Load()
	}
	a.budget.pressMost(a, least)
}

// pressAgain is how long a holder that finds no room waits before it presses again.
const pressAgain = time.Second

// Await waits until a holder has given bytes back, or it is time to press again.
func (b *Budget) Await(freed, stop <-chan struct{}) {
	timer := time.NewTimer(pressAgain)
	defer timer.Stop()
	select {
	case <-freed:
	case <-timer.C:
	case <-stop:
	}
}

// ErrNoRoom says that the budget had no room for a message for some time.
var ErrNoRoom = errors.New("the adapter's memory budget has no room for it")

// Reach gives the holder so many bytes in all. If there is no room for more, Reach waits for it,
// until the budget's Patience is over or stop closes. stop may be nil.
func (a *Account) Reach(total int, stop <-chan struct{}) error {
	if a == nil {
		return nil
	}
	more := total - int(a.held.Load())
	if more <= 0 {
		a.Change(more)
		return nil
	}
	if a.Take(more) { // nearly always
		return nil
	}
	a.budget.waits.Add(1)
	begin := time.Now()
	for {
		freed := a.budget.Freed()
		if a.Take(more) {
			return nil
		}
		select {
		case <-stop:
			return ErrNoRoom
		default:
		}
		if time.Since(begin) >= a.budget.Patience {
			return ErrNoRoom
		}
		a.Press()
		a.budget.Await(freed, stop)
	}
}
