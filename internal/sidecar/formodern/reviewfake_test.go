package formodern

import (
	"context"
	"os"
)

type unreading struct{ LegacyServer }

func (unreading) Send(context.Context, []byte) error { return os.ErrDeadlineExceeded }
