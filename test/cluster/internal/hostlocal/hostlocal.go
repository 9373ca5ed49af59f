// Package hostlocal knows how the CNI plugin host-local, which gives pods their addresses, remembers which one was last.
package hostlocal

import (
	"fmt"
	"net/netip"
)

// LastFile is the file, in the directory of a network, with the address that the plugin gave last. The plugin goes on with the
// first free one behind it.
const LastFile = "last_reserved_ip.0"

// Before is what the file must have for the next pod to get an address, if the address is free.
func Before(address string) (string, error) {
	next, err := netip.ParseAddr(address)
	if err != nil {
		return "", fmt.Errorf("address %q: want that of a pod: %w", address, err)
	}
	before := next.Prev()
	if !before.IsValid() {
		return "", fmt.Errorf("address %q: want that of a pod", address)
	}
	return before.String(), nil
}
