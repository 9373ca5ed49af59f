package engine

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/test/cluster/internal/machine"
)

// The record's network is a /16: .0.0/24 is Docker's own bridge, .1.0/30 the link to the machine, and the upper half
// is for the networks of containers.
func (r *record) at(third, fourth byte) netip.Addr {
	octets := r.Network.Addr().As4()
	octets[2], octets[3] = third, fourth
	return netip.AddrFrom4(octets)
}

func (r *record) bridge() netip.Addr  { return r.at(0, 1) }
func (r *record) outside() netip.Addr { return r.at(1, 1) } // the machine's end of the link
func (r *record) inside() netip.Addr  { return r.at(1, 2) } // the engine's end
func (r *record) nodes() netip.Prefix { return netip.PrefixFrom(r.at(128, 0), 17) }

// freeNetwork finds a network that overlaps neither with a route of the machine nor with kind's pods and Services.
func freeNetwork(ctx context.Context) (netip.Prefix, error) {
	routes, err := machine.Routes(ctx)
	if err != nil {
		return netip.Prefix{}, err
	}
	return choose(routes)
}

func choose(routes []netip.Prefix) (netip.Prefix, error) {
	const first, last = 120, 220 // kind has 10.96.0.0/16 and 10.244.0.0/16
	for second := byte(first); second <= last; second++ {
		network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, second, 0, 0}), 16)
		if !machine.Overlaps(network, routes) {
			return network, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("find network for the Docker engine: the machine has routes to all of 10.%d.0.0/16 to 10.%d.0.0/16", first, last)
}

// namespace is a file that keeps the network namespace alive. `ip netns` would leave a directory of the machine behind.
func (e *Engine) namespace() string { return e.path("namespace") }

// connect makes the namespace, and the link between it and the machine. What is there already stays.
func (e *Engine) connect(ctx context.Context, r *record) error {
	if err := e.makeNamespace(ctx); err != nil {
		return err
	}
	if !machine.BridgeExists(Link) {
		if err := command(ctx, "ip", "link", "add", Link, "type", "veth", "peer", "name", inner, "netns", e.namespace()); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "replace", netip.PrefixFrom(r.inside(), linkBits).String(), "dev", inner},
		{"link", "set", inner, "up"},
	} {
		if err := e.inside(ctx, "ip", args...); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"address", "replace", netip.PrefixFrom(r.outside(), linkBits).String(), "dev", Link},
		{"link", "set", Link, "up"},
		{"route", "replace", r.nodes().String(), "via", r.inside().String()},
	} {
		if err := command(ctx, "ip", args...); err != nil {
			return err
		}
	}
	return nil
}

const linkBits = 30

func (e *Engine) makeNamespace(ctx context.Context) error {
	mounted, err := machine.MountsUnder(e.Dir)
	if err != nil || slices.Contains(mounted, e.namespace()) {
		return err
	}
	if err := os.WriteFile(e.namespace(), nil, 0o600); err != nil {
		return fmt.Errorf("make network namespace: %w", err)
	}
	return command(ctx, "unshare", "--net="+e.namespace(), "true")
}

// accept lets the machine reach containers. Docker drops what it forwards from elsewhere.
func (e *Engine) accept(ctx context.Context) error {
	rule := []string{"DOCKER-USER", "-i", inner, "-j", "ACCEPT"}
	if e.inside(ctx, "iptables", append([]string{"-w", "-C"}, rule...)...) == nil {
		return nil
	}
	return e.inside(ctx, "iptables", append([]string{"-w", "-I"}, rule...)...)
}

// disconnect removes the namespace. Interfaces, routes and rules in it go with it, and so does the other end of the
// link with its route.
func (e *Engine) disconnect(ctx context.Context) error {
	if machine.BridgeExists(Link) {
		if err := command(ctx, "ip", "link", "delete", Link); err != nil {
			return err
		}
	}
	return machine.UnmountUnder(e.Dir)
}

// inside runs a program in the network namespace.
func (e *Engine) inside(ctx context.Context, name string, args ...string) error {
	return command(ctx, "nsenter", append([]string{"--net=" + e.namespace(), name}, args...)...)
}

func command(ctx context.Context, name string, args ...string) error {
	if output, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(output))
	}
	return nil
}
