package audit

import (
	"bytes"
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
		var rooms []int
		for range 100 {
			room := l.Reserve(begun)
			if room == 0 {
				t.Fatalf("no room for line %d", len(rooms)+1)
			}
			rooms = append(rooms, room)
		}
		for l.Add(call()) {
		}
		if l.Reserve(begun) != 0 {
			t.Error("a full log promises room")
		}
		ended := call() // as long as it can become
		ended.Session, ended.Status, ended.Code, ended.ToolError = "18446744073709551615", 500, -32603, false
		ended.Completed, ended.Access, ended.Denied = ended.Received.Add(30*24*time.Hour+time.Microsecond), math.MaxInt64, "foreign"
		for i, room := range rooms {
			if size := len(appendEvent(nil, [16]byte{}, ended)); size > room {
				t.Fatalf("the line has %d bytes, and %d are promised", size, room)
			}
			if !l.AddReserved(ended, room) {
				t.Fatalf("line %d was promised room, and is lost", i+1)
			}
		}
		if l.reserved != 0 || l.Lost() != 1 {
			t.Errorf("%d bytes are still promised, and %d lines lost, want 0 and 1", l.reserved, l.Lost())
		}
		free()
		closeLog(t, l)
		if got := strings.Count(written.String(), `"reason":"foreign"`); got != len(rooms) {
			t.Errorf("%d lines of %d are written", got, len(rooms))
		}
		for text := range bytes.Lines(written.Bytes()) {
			checkLine(t, text)
		}
	})
}

func TestReleasedRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, free := stuckLog(t)
		var rooms []int
		for room := l.Reserve(call()); room > 0; room = l.Reserve(call()) {
			rooms = append(rooms, room)
		}
		if len(rooms) < 400 {
			t.Errorf("room for %d lines of requests in flight, want 400", len(rooms))
		}
		// Lines that no request is refused for have what is left.
		if !l.AddReserved(numbered(1), 0) {
			t.Error("no room for the end of a session")
		}
		for _, room := range rooms {
			l.Release(room)
		}
		if l.Full() || l.reserved != 0 {
			t.Errorf("%d bytes are still promised", l.reserved)
		}
		free()
		closeLog(t, l)
	})
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
		room := l.Reserve(call())
		if l.Full() || room == 0 || !l.AddReserved(call(), room) || !l.Add(call()) {
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
