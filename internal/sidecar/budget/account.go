package budget

import (
	"errors"
	"sync/atomic"
	"time"
)

// Account is what one holder has of a Budget: a session, or the buffer that a message of a
// server is read into. Its methods may be called at any time from any goroutine. A nil
// Account has room for everything.
//
// A holder may have more only while it has less than twice what is left of the budget. So
// a holder that never has enough leaves room to others. One that finds no room can press the
// holder that has most to give way. The first bytes are free: a holder that has little costs
// nothing and always has room.
type Account struct {
	budget  *Budget
	held    atomic.Int64
	giveWay func()
}

// Account returns an Account that holds nothing. giveWay is called, in a goroutine of its
// own, when another holder finds no room; it may be nil.
func (b *Budget) Account(giveWay func()) *Account {
	if b == nil {
		return nil
	}
	return &Account{budget: b, giveWay: giveWay}
}

// charge is what a holder of so many bytes takes of the budget.
func (a *Account) charge(held int64) int64 { return max(held-a.budget.free, 0) }

// Held is how many bytes the account holds.
func (a *Account) Held() int64 {
	if a == nil {
		return 0
	}
	return a.held.Load()
}

// Change notes that the holder has so many bytes more, or fewer. It never fails: the bytes
// are there.
func (a *Account) Change(by int) {
	if a == nil {
		return
	}
	held := a.held.Add(int64(by))
	before, after := a.charge(held-int64(by)), a.charge(held)
	if (before == 0) != (after == 0) {
		a.budget.list(a)
	}
	switch {
	case after > before:
		a.budget.used.Add(after - before)
	case after < before:
		a.budget.Give(before - after)
	}
}

// Fits says whether the holder may have so many bytes more.
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

// Press has the holder that has most give way to this one, which finds no room for more. A
// holder that can give way itself presses only one that has more.
func (a *Account) Press() {
	least := int64(0)
	if a.giveWay != nil {
		least = a.held.Load()
	}
	a.budget.pressMost(a, least)
}

// pressAgain is how long a holder that finds no room waits before it presses again.
const pressAgain = time.Second

// Await waits until bytes were given back, or it is time to press again.
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

// Reach has the account hold so many bytes in all. If it has no room for more, it waits
// until it has, for as long as the budget's Patience lasts and stop is not closed.
func (a *Account) Reach(total int, stop <-chan struct{}) error {
	if a == nil {
		return nil
	}
	more := total - int(a.held.Load())
	if more <= 0 || a.Fits(more) { // nearly always
		a.Change(more)
		return nil
	}
	a.budget.waits.Add(1)
	begin := time.Now()
	for {
		freed := a.budget.Freed()
		if a.Fits(more) {
			break
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
	a.Change(more)
	return nil
}

// Room bounds a buffer that grows with what it is filled with.
type Room struct {
	Account *Account
	Stop    <-chan struct{} // when it is closed, the buffer does not wait for room any more; may be nil
}

// Reserve is called before the buffer has so many bytes, and with 0 when it is given back.
func (r *Room) Reserve(total int) error {
	if r == nil {
		return nil
	}
	return r.Account.Reach(total, r.Stop)
}
