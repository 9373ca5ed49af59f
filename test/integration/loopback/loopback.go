// Package loopback gives each test process a network of its own on the loopback
// interface. A port that is free now may be taken a moment later; an address in such a
// network is not. Only a process that listens on all addresses of the machine can be in
// the way, so tests use ports that are uncommon and below those that the kernel hands out.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
)

const (
	// The networks are 127.64.0.0/16 to 127.126.0.0/16. A process owns a network while it
	// listens on claimPort of the network's first address.
	firstNetwork, lastNetwork = 64, 126
	claimPort                 = 20764

	addressesInARow = 250 // the last part of an address is from 1 to this
)

// Network is one that no other process on this machine has until it is closed.
type Network struct {
	number int
	claim  net.Listener
	last   atomic.Uint32
}

// Claim takes the first network that no process has.
func Claim(ctx context.Context) (*Network, error) {
	for number := firstNetwork; number <= lastNetwork; number++ {
		claim, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.%d.0.0:%d", number, claimPort))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("claim loopback network: %w", err)
		}
		return &Network{number: number, claim: claim}, nil
	}
	return nil, errors.New("claim loopback network: other processes have all of them")
}

// Address is one of the network that was not returned before.
func (n *Network) Address() string {
	next := n.last.Add(1) - 1
	return fmt.Sprintf("127.%d.%d.%d", n.number, next/addressesInARow, next%addressesInARow+1)
}

// Close lets others have the network.
func (n *Network) Close() error {
	if n == nil {
		return nil
	}
	return n.claim.Close()
}
