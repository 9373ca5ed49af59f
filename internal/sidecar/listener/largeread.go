package listener

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// largeReadBytes is the size of the buffer from which on a read is for a large body: net/http
// reads everything else through smaller buffers.
const largeReadBytes = 32 << 10

// largeReads is locked while bytes of a large body are copied out of the kernel. So all large
// bodies together occupy one processor, however many clients send them: the kernel has the
// clients wait, and small calls have the other processors.
var largeReads struct {
	sync.Mutex
	waiting atomic.Int32 // reads that have the lock or wait for it
	bytes   int          // copied since the last pause
}

// When more than largeReadClients send large bodies at the same time, these leave most of the
// one processor to small calls, too. Short turns matter more than long pauses: Linux lets a
// thread that copies run for milliseconds before the next one, which may have a small call.
// Go sleeps for at least a millisecond, so all large bodies together get about 100 MiB/s.
const (
	largeReadClients = 8
	largeReadTurn    = 128 << 10 // bytes before each pause
	largeReadPause   = 300 * time.Microsecond
)

// readLarge is Read for large bodies.
func (c *conn) readLarge(p []byte) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		waiting := largeReads.waiting.Add(1)
		largeReads.Lock()
		defer func() {
			largeReads.waiting.Add(-1)
			if largeReads.bytes += n; waiting > largeReadClients && largeReads.bytes >= largeReadTurn {
				time.Sleep(largeReadPause)
				largeReads.bytes = 0
			}
			largeReads.Unlock()
		}()
		n, readErr = rpc.ReadNow(fd, p)
		return !errors.Is(readErr, syscall.EAGAIN)
	})
	if err != nil {
		return 0, err
	}
	return n, readErr
}
