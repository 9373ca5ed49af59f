package local

import (
	"context"
	"fmt"

	"github.com/slipway-mcp/slipway/test/cluster/internal/statedir"
)

// checkDir refuses a directory with a user's files before it creates even a lock
// there.
func (c *Cluster) checkDir() error {
	foreign, err := statedir.Foreign(c.Dir)
	if err == nil && foreign {
		err = fmt.Errorf("%s holds files that are not a cluster's: it stays as it is", c.Dir)
	}
	return err
}

// lock keeps other commands off the state directory until release is called.
func (c *Cluster) lock(ctx context.Context) (release func(), err error) {
	return statedir.Acquire(ctx, c.Dir, c.progress.out)
}
