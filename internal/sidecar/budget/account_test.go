package budget

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

const kib = 1 << 10

// However many holders never have enough, the budget is not exceeded. One of them leaves a
// third to others.
func TestAccountsLeaveRoom(t *testing.T) {
	for holders := range 20 {
		b := New(1024*kib, 1024)
		for range holders {
			a := b.Account(nil)
			for a.Fits(kib) {
				a.Change(kib)
			}
		}
		if b.Used() > b.Limit() {
			t.Errorf("%d holders use %d of %d bytes", holders, b.Used(), b.Limit())
		}
		if left := b.Limit() - b.Used(); holders == 1 && left < b.Limit()/3 {
			t.Errorf("one holder leaves %d of %d bytes", left, b.Limit())
		}
	}
}

// The holder that has most is the one that gives way. One that could itself does not press
// one that has less.
func TestPress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(1024*kib, 1)
		asked := map[string]int{}
		hold := func(name string, bytes int) *Account {
			a := b.Account(func() { asked[name]++ })
			a.Change(bytes)
			return a
		}
		want := func(name string, times int) {
			t.Helper()
			synctest.Wait()
			if asked[name] != times {
				t.Errorf("asked to give way: %v, want %s %d times", asked, name, times)
			}
		}
		small, less, most := hold("small", 10*kib), hold("less", 200*kib), hold("most", 400*kib)
		line := b.Account(nil) // cannot give way
		line.Change(500 * kib)
		small.Press()
		want("most", 1)
		most.Press()
		want("less", 0)
		line.Press()
		want("most", 2)
		most.Change(-400 * kib)
		line.Press()
		want("less", 1)
		less.Change(-200 * kib)
		line.Press()
		want("small", 0)
	})
}

// What a holder has at first costs nothing, and always has room.
func TestAccountIsFreeAtFirst(t *testing.T) {
	b := New(1024*kib, 1)
	if !b.Take(1024 * kib) {
		t.Fatal("an empty budget has no room")
	}
	a := b.Account(nil)
	if !a.Fits(mostFree) || a.Fits(mostFree+1) {
		t.Errorf("fits: %t and one byte more: %t, want only the first", a.Fits(mostFree), a.Fits(mostFree+1))
	}
	a.Change(mostFree)
	if b.Used() != 1024*kib {
		t.Errorf("%d bytes are used", b.Used())
	}
	a.Change(10)
	a.Change(-mostFree)
	if b.Used() != 1024*kib || a.Held() != 10 {
		t.Errorf("%d bytes are used, %d held", b.Used(), a.Held())
	}
}

// A holder that needs more waits until others give some back, and not for longer than it may.
func TestReachWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(1024*kib, 1)
		if !b.Take(1000 * kib) {
			t.Fatal("an empty budget has no room")
		}
		b.Patience = time.Minute
		room := &Room{Account: b.Account(nil), Stop: make(chan struct{})}
		time.AfterFunc(30*time.Second, func() { b.Give(10) })
		time.AfterFunc(40*time.Second, func() { b.Give(900 * kib) })
		begin := time.Now()
		if err := room.Reserve(500 * kib); err != nil || time.Since(begin) != 40*time.Second {
			t.Errorf("got %v after %s", err, time.Since(begin))
		}
		if err := room.Reserve(2000 * kib); !errors.Is(err, ErrNoRoom) {
			t.Errorf("got %v for more than there is", err)
		}
		if err := room.Reserve(0); err != nil || b.Used() != 100*kib-10 {
			t.Errorf("got %v, and %d bytes are used", err, b.Used())
		}
	})
}

func TestReachStops(t *testing.T) {
	b := New(1024*kib, 1)
	b.Take(1024 * kib)
	stop := make(chan struct{})
	close(stop)
	if err := b.Account(nil).Reach(100*kib, stop); !errors.Is(err, ErrNoRoom) {
		t.Errorf("got %v", err)
	}
}

func TestWithoutBudget(t *testing.T) {
	var b *Budget
	a := b.Account(nil)
	a.Change(1 << 40)
	if !a.Fits(1<<40) || a.Held() != 0 || a.Reach(1<<40, nil) != nil || (*Room)(nil).Reserve(1) != nil {
		t.Error("an account without a budget has a bound")
	}
}
