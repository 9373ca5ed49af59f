package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/test/cluster/internal/statedir"
)

// checkDir refuses a directory with somebody else's files, before as much as a
// lock is put into it.
func (c *Cluster) checkDir() error {
	foreign, err := statedir.Foreign(c.Dir)
	if err == nil && foreign {
		err = fmt.Errorf("%s holds files that are not a cluster's: it stays as it is", c.Dir)
	}
	return err
}

// lock keeps other commands off the state directory until release is called. It
// waits for its turn: the cluster that another command takes up is as good.
func (c *Cluster) lock(ctx context.Context) (release func(), err error) {
	waiting := false
	for {
		if err := os.MkdirAll(c.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("make state directory: %w", err)
		}
		file, err := os.OpenFile(c.path(statedir.Lock), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock state directory: %w", err)
		}
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && c.isLockFile(file) {
			return func() { _ = file.Close() }, nil
		}
		_ = file.Close() // Held by another, or removed with the directory by another.
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock state directory: %w", err)
		}
		if err != nil && !waiting {
			waiting = true
			c.progress.printf("cluster: waiting for another command that works on %s", c.Dir)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock state directory: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// isLockFile tells whether the locked file is still the one in the directory.
func (c *Cluster) isLockFile(file *os.File) bool {
	locked, err := file.Stat()
	if err != nil {
		return false
	}
	present, err := os.Stat(c.path(statedir.Lock))
	return err == nil && os.SameFile(locked, present)
}
