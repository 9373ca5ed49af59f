//go:build !linux

package peer

import "net/netip"

// IsKnown says whether IsOwn works on this system.
const IsKnown = false

// IsOwn reports false: this system has no simple way to tell.
func IsOwn(_, _ netip.AddrPort) bool { return false }
