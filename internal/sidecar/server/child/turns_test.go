package child

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
)

// A goroutine that never waits gives a turn to one that waits for a file. It must not run
// beside others, since it has one processor for all.
func TestTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	var rounds atomic.Int64 // that the other had
	go func() {
		for buffer := make([]byte, 1); ; rounds.Add(1) {
			if _, err := read.Read(buffer); err != nil {
				return
			}
		}
	}()
	runtime.Gosched() // so that it waits
	var turn turns
	defer turn.close()
	for range burstMessages {
		turn.took(false)
	}
	const want = 10
	for round := range int64(want) {
		if _, err := write.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		for range 2 * turnMessages {
			turn.took(false)
		}
		if had := rounds.Load(); had != round+1 {
			t.Fatalf("the other has had %d turns of %d", had, round+1)
		}
	}
	_ = write.Close()
}

// A goroutine that waits by itself needs no turns, and no pipe for them.
func TestTurnsOfOneThatWaits(t *testing.T) {
	var turn turns
	for i := range 4 * burstMessages {
		turn.took(i%10 == 0)
	}
	if turn.file != nil {
		t.Error("there is a pipe")
	}
}
