package statedir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Acquire keeps other commands off the state directory until release is called. It waits for its turn: the cluster that
// another command takes up is as good.
func Acquire(ctx context.Context, dir string, out io.Writer) (release func(), err error) {
	waiting := false
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make state directory: %w", err)
		}
		file, err := os.OpenFile(filepath.Join(dir, Lock), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock state directory: %w", err)
		}
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && isLockFile(dir, file) {
			return func() { _ = file.Close() }, nil
		}
		_ = file.Close() // Another command holds it, or has removed it with the directory.
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock state directory: %w", err)
		}
		if err != nil && !waiting {
			waiting = true
			_, _ = fmt.Fprintf(out, "cluster: waiting for another command that works on %s\n", dir)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock state directory: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// isLockFile tells whether the locked file is still the one in the directory.
func isLockFile(dir string, file *os.File) bool {
	locked, err := file.Stat()
	if err != nil {
		return false
	}
	present, err := os.Stat(filepath.Join(dir, Lock))
	return err == nil && os.SameFile(locked, present)
}
