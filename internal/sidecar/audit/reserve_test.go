package audit

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stuckLog returns a Log whose writer has a first line, and does not return before the function is called.
func stuckLog(t *testing.T) (l *Log, written *bytes.Buffer, free func()) {
	t.Helper()
	written = new(bytes.Buffer)
	block := make(chan struct{})
	l = New(writerFunc(func(p []byte) (int, error) {
		<-block
		return written.Write(p)
	}), nil)
	l.Add(numbered(0))
	synctest.Wait()
	return l, written, func() { close(block) }
}

// A line that has room is written, whatever else fills the Log until its request ends.
func TestReservedRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, written, free := stuckLog(t)
		begun := call()
		begun.Session, begun.Status, begun.Completed = "", 0, begun.Received
		room, rooms := l.Size(begun), 100
		for n := range rooms {
			if err := l.Reserve("bob", room); err != nil {
				t.Fatalf("line %d: %v", n+1, err)
			}
		}
		for l.Add(call()) {
		}
		if err := l.Reserve("alice", room); !errors.Is(err, ErrFull) {
			t.Errorf("a full log promises room: %v", err)
		}
		ended := call() // as long as it can become
		ended.Session, ended.Status, ended.Code, ended.ToolError = "18446744073709551615", 500, -32603, false
		ended.Completed, ended.Access, ended.Denied = ended.Received.Add(30*24*time.Hour+time.Microsecond), math.MaxInt64, "foreign"
		for n := range rooms {
			if size := len(appendEvent(nil, [16]byte{}, ended)); size > room {
				t.Fatalf("the line has %d bytes, and %d are promised", size, room)
			}
			if !l.AddReserved(ended, "bob", room) {
				t.Fatalf("line %d was promised room, and is lost", n+1)
			}
		}
		if l.reserved != 0 || len(l.shares) != 0 || l.Lost() != 1 {
			t.Errorf("%d bytes are still promised, and %d lines lost, want 0 and 1", l.reserved, l.Lost())
		}
		free()
		closeLog(t, l)
		if got := strings.Count(written.String(), `"reason":"foreign"`); got != rooms {
			t.Errorf("%d lines of %d are written", got, rooms)
		}
		for text := range bytes.Lines(written.Bytes()) {
			checkLine(t, text)
		}
	})
}

func TestReleasedRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, free := stuckLog(t)
		room, callers := l.Size(call()), []string{"alice", "bob", "carol", "dave"}
		promised := map[string]int{}
		for _, of := range callers {
			for l.Reserve(of, room) == nil {
				promised[of]++
			}
			if promised[of] < 100 {
				t.Errorf("room for %d lines of requests of %s in flight, want 100", promised[of], of)
			}
		}
		// Lines that no request is refused for have what is left.
		if !l.AddReserved(numbered(1), "", 0) {
			t.Error("no room for the end of a session")
		}
		for of, lines := range promised {
			for range lines {
				l.Release(of, room)
			}
		}
		if l.Full() || l.reserved != 0 || len(l.shares) != 0 {
			t.Errorf("%d bytes are still promised, to %d callers", l.reserved, len(l.shares))
		}
		free()
		closeLog(t, l)
	})
}

// A caller with many calls in flight leaves room to others.
func TestShares(t *testing.T) {
	l := New(io.Discard, nil)
	defer closeLog(t, l)
	steps := []struct {
		of   string
		room int
		want error
	}{
		{"bob", Share + 1, ErrTooLarge}, // it takes nothing
		{"bob", Share - 1, nil},
		{"bob", 2, ErrShare},
		{"bob", Share + 1, ErrTooLarge},
		{"bob", 1, nil},
		{"bob", 1, ErrShare},
		{"alice", Share, nil},
		{"carol", Share, nil},
		{"dave", Share, nil},
		{"erin", maxLine, ErrFull},
	}
	for n, step := range steps {
		if err := l.Reserve(step.of, step.room); !errors.Is(err, step.want) {
			t.Errorf("step %d: %d bytes for %s: %v, want %v", n, step.room, step.of, err, step.want)
		}
	}
	if l.Release("alice", Share); l.Reserve("bob", 1) == nil || l.Reserve("alice", Share) != nil {
		t.Error("what a caller gives back is not for this caller")
	}
	if room := l.Size(largest()); room > Share {
		t.Errorf("the largest line needs %d bytes, and a caller has %d", room, Share)
	}
}

func TestReserveAllocatesNothing(t *testing.T) {
	l := New(io.Discard, nil)
	defer closeLog(t, l)
	e := call()
	if allocs := testing.AllocsPerRun(1000, func() {
		room := l.Size(e)
		if err := l.Reserve("bob", room); err != nil {
			t.Fatal(err)
		}
		l.Release("bob", room)
	}); allocs != 0 {
		t.Errorf("Reserve allocates %v objects", allocs)
	}
}

// Clients without any right can cause as many lines as they like. They must leave room to others.
func TestDeniedLinesLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, free := stuckLog(t)
		denied := &Event{Verb: "http/post", Denied: "missing", Status: 401, Rule: -1}
		for l.Add(denied) {
		}
		half, most := cap(l.filled)/2, cap(l.filled)/2+maxLine
		if len(l.filled) < half || len(l.filled) > most || l.Lost() != 1 {
			t.Errorf("denied requests fill %d bytes, want %d to %d, and %d lines are lost", len(l.filled), half, most, l.Lost())
		}
		room := l.Size(call())
		if l.Full() || l.Reserve("bob", room) != nil || !l.AddReserved(call(), "bob", room) || !l.Add(call()) {
			t.Error("denied requests leave no room to others")
		}
		free()
		synctest.Wait()
		if !l.Add(denied) {
			t.Error("a denied request finds no room in an empty log")
		}
		closeLog(t, l)
	})
}
