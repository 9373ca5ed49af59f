package budget

import (
	"errors"
	"sync"
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

// Holders that take at the same time do not exceed the budget together, and each leaves half
// of what it has.
func TestAccountsTakeAtTheSameTime(t *testing.T) {
	const each = 200 * kib
	b := New(1024*kib, 1)
	stop := make(chan struct{})
	close(stop)
	atTheSameTime(func(n int) {
		a := b.Account(nil)
		for range 50_000 {
			if n%2 == 0 {
				_ = a.Reach(each, stop) // does not wait
			} else {
				a.Take(each)
			}
			if left := b.Limit() - b.Used(); left < each/2 {
				t.Errorf("%d bytes are left, want %d", left, each/2)
				return
			}
			a.Change(-int(a.Held()))
		}
	})
}

// One account may change while it takes. What it holds and what is used stay in step.
func TestOneAccountTakesAtTheSameTime(t *testing.T) {
	b := New(1024*kib, 1)
	a := b.Account(func() {})
	a.Change(mostFree + kib) // so that it is always charged
	atTheSameTime(func(int) {
		for range 50_000 {
			if a.Take(10 * kib) {
				a.Change(-10 * kib)
			}
		}
	})
	if a.Held() != mostFree+kib || b.Used() != kib {
		t.Errorf("%d bytes are held, %d used", a.Held(), b.Used())
	}
}

func atTheSameTime(do func(n int)) {
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() { do(n) })
	}
	all.Wait()
}

// A session takes over what the buffer of a message had, and no more is used than before,
// but for what an event costs besides.
func TestTakeOver(t *testing.T) {
	b := New(1024*kib, 1)
	session, buffer := b.Account(func() {}), b.Account(nil)
	session.Change(mostFree) // from now on all is charged
	if err := buffer.Reach(400*kib, nil); err != nil || b.Used() != 400*kib {
		t.Fatalf("%d bytes are used: %v", b.Used(), err)
	}
	freed := b.Freed()
	want := func(name string, inSession, inBuffer, used int64) {
		t.Helper()
		if session.Held() != inSession || buffer.Held() != inBuffer || b.Used() != used {
			t.Errorf("%s: %d and %d bytes are held, %d used, want %d, %d and %d", name, session.Held(), buffer.Held(), b.Used(), inSession, inBuffer, used)
		}
	}
	session.TakeOver(301*kib, buffer, 300*kib)
	want("a message", mostFree+301*kib, 100*kib, 401*kib)
	select {
	case <-freed:
		t.Error("others are told of room")
	default:
	}
	session.TakeOver(200*kib, buffer, 200*kib) // more than the buffer had
	want("a longer one", mostFree+501*kib, 0, 501*kib)
	session.TakeOver(201*kib, session, 200*kib)
	want("its own", mostFree+502*kib, 0, 502*kib)
	session.TakeOver(kib, nil, kib)
	want("one without room", mostFree+503*kib, 0, 503*kib)
	if _ = buffer.Reach(100*kib, nil); b.Used() != 603*kib {
		t.Errorf("%d bytes are used", b.Used())
	}
	buffer.Give(200 * kib)
	want("given back", mostFree+503*kib, 0, 503*kib)
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
	a := b.Account(func() {})
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
		room, stop := b.Account(nil), make(chan struct{})
		time.AfterFunc(30*time.Second, func() { b.Give(10) })
		time.AfterFunc(40*time.Second, func() { b.Give(900 * kib) })
		begin := time.Now()
		if err := room.Reach(500*kib, stop); err != nil || time.Since(begin) != 40*time.Second {
			t.Errorf("got %v after %s", err, time.Since(begin))
		}
		if err := room.Reach(2000*kib, stop); !errors.Is(err, ErrNoRoom) {
			t.Errorf("got %v for more than there is", err)
		}
		if err := room.Reach(0, stop); err != nil || b.Used() != 100*kib-10 {
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
	a.TakeOver(1<<40, a, 1)
	a.Give(1)
	if !a.Fits(1<<40) || !a.Take(1<<40) || a.Held() != 0 || a.Reach(1<<40, nil) != nil {
		t.Error("an account without a budget has a bound")
	}
}
