//go:build !unix

package rpc

import "errors"

// canReadNow is false where kubectl mcp runs and the adapter does not.
const canReadNow = false

// ReadNow exists on Unix only.
func ReadNow(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
