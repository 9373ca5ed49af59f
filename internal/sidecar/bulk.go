package sidecar

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// bulkBytes is the size from which on a read is for a large body: net/http reads everything
// else through smaller buffers.
const bulkBytes = 32 << 10

// bulk is held while bytes of a large body are copied. However many clients send large
// bodies, one processor is enough for that: the kernel has the clients wait, and small calls
// find a processor that is free.
var bulk struct {
	sync.Mutex
	wanted atomic.Int32 // by so many, the holder included
	bytes  int          // copied since the last pause
}

// When more than bulkClients send large bodies at the same time, they leave most of the one
// processor to small calls, too. Short turns matter more than long pauses: Linux lets a thread
// that copies go on for milliseconds before it runs the next one, which may be a small call's.
// Go sleeps for at least a millisecond, so all of them together get about 100 MiB a second.
const (
	bulkClients = 8
	bulkTurn    = 128 << 10 // bytes before each pause
	bulkPause   = 300 * time.Microsecond
)

// readBulk is Read for large bodies.
func (c *patientConn) readBulk(p []byte) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		wanted := bulk.wanted.Add(1)
		bulk.Lock()
		defer func() {
			bulk.wanted.Add(-1)
			if bulk.bytes += max(n, 0); wanted > bulkClients && bulk.bytes >= bulkTurn {
				time.Sleep(bulkPause)
				bulk.bytes = 0
			}
			bulk.Unlock()
		}()
		for n, readErr = syscall.Read(int(fd), p); errors.Is(readErr, syscall.EINTR); {
			n, readErr = syscall.Read(int(fd), p)
		}
		return !errors.Is(readErr, syscall.EAGAIN)
	})
	switch {
	case err != nil:
		return 0, err
	case readErr != nil:
		return 0, readErr
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
