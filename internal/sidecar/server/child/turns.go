package child

import (
	"os"
	"syscall"
	"time"
)

// turns keeps a flood of messages from one child process from delaying other sessions. Go's
// scheduler polls the network when a goroutine blocks, or after 10 ms. The goroutine that
// reads a flood never blocks, and runtime.Gosched does not poll either. So the goroutine
// blocks on a pipe of its own: the poll that wakes it also finds the connections of others.
//
// During a long flood the goroutine also pauses, to leave CPU to other sessions.
type turns struct {
	messages int // read since the goroutine last waited for one
	file     *os.File
	raw      syscall.RawConn
	writer   int
}

const (
	burstMessages = 1024 // read without turns: most processes write no more at a time
	turnMessages  = 64   // then read before the goroutine blocks on its pipe
	floodMessages = 4096 // read before the pauses begin
	floodTurn     = 256  // read before each pause
	floodPause    = 200 * time.Microsecond
)

// took counts a message that the goroutine has read. waited is true if the goroutine had to wait for
// the message.
func (t *turns) took(waited bool) {
	if t.messages++; waited {
		t.messages = 0
	}
	switch {
	case t.messages < burstMessages || t.messages%turnMessages != 0:
		return
	case t.messages >= floodMessages:
		if t.messages%floodTurn == 0 {
			time.Sleep(floodPause)
		}
		return
	case t.file == nil && !t.open():
		return
	}
	woken := false
	_ = t.raw.Read(func(fd uintptr) bool { // if this fails, other sessions wait a little longer
		if !woken {
			woken = true
			_, err := syscall.Write(t.writer, []byte{1})
			return err != nil
		}
		_, _ = syscall.Read(int(fd), make([]byte, 8))
		return true
	})
}

// open makes the pipe. Without one, other sessions wait a little longer.
func (t *turns) open() bool {
	var ends [2]int
	if syscall.Pipe2(ends[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC) != nil {
		return false
	}
	t.writer = ends[1]
	t.file = os.NewFile(uintptr(ends[0]), "turns")
	raw, err := t.file.SyscallConn()
	if err != nil {
		t.close()
		return false
	}
	t.raw = raw
	return true
}

func (t *turns) close() {
	if t.file != nil {
		_ = t.file.Close()
		_ = syscall.Close(t.writer)
		t.file = nil
	}
}
