package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
)

// Routes lists the IPv4 networks that the machine has a route to, apart from
// everything (the default route).
func Routes(ctx context.Context) ([]netip.Prefix, error) {
	output, err := ip(ctx, "-4", "-o", "route", "show", "table", "all")
	if err != nil {
		return nil, err
	}
	return parseRoutes(output), nil
}

func parseRoutes(output string) []netip.Prefix {
	var routes []netip.Prefix
	for line := range strings.Lines(output) {
		for _, field := range strings.Fields(line)[:min(2, len(strings.Fields(line)))] {
			// The first field may be a type (local, broadcast, blackhole).
			prefix, err := netip.ParsePrefix(field)
			if err != nil {
				address, err := netip.ParseAddr(field)
				if err != nil {
					continue
				}
				prefix = netip.PrefixFrom(address, address.BitLen())
			}
			if prefix.Bits() > 0 {
				routes = append(routes, prefix)
			}
			break
		}
	}
	return routes
}

// FreeSubnets picks one network for pods and one for Services that overlap with
// no route of the machine.
func FreeSubnets(routes []netip.Prefix) (pods, services netip.Prefix, err error) {
	var free []netip.Prefix
	for second := byte(213); second < 253 && len(free) < 2; second++ {
		candidate := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, second, 0, 0}), 24)
		if !Overlaps(candidate, routes) {
			free = append(free, candidate)
		}
	}
	if len(free) < 2 {
		return pods, services, errors.New("choose subnets: the machine has routes to all of 10.213.0.0/24 to 10.252.0.0/24")
	}
	return free[0], free[1], nil
}

// Overlaps tells whether the network and one of the routes have an address in common.
func Overlaps(network netip.Prefix, routes []netip.Prefix) bool {
	return slices.ContainsFunc(routes, network.Overlaps)
}

// BridgeExists tells whether the machine has a network interface of that name.
func BridgeExists(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

// EnsureBridge makes a bridge with the address, or gives it to the one that is there.
// The networks are routed to it as well: addresses of Services that kube-proxy does
// not know yet must not be looked for outside of this machine.
func EnsureBridge(ctx context.Context, name string, address netip.Prefix, networks ...netip.Prefix) error {
	if !BridgeExists(name) {
		if _, err := ip(ctx, "link", "add", name, "type", "bridge"); err != nil {
			return err
		}
	}
	if _, err := ip(ctx, "address", "replace", address.String(), "dev", name); err != nil {
		return err
	}
	if _, err := ip(ctx, "link", "set", name, "up"); err != nil {
		return err
	}
	for _, network := range networks {
		if _, err := ip(ctx, "route", "replace", network.String(), "dev", name); err != nil {
			return err
		}
	}
	return nil
}

// DeleteBridge deletes the bridge and the interfaces that are plugged into it.
func DeleteBridge(ctx context.Context, name string) error {
	if !BridgeExists(name) {
		return nil
	}
	output, err := ip(ctx, "-o", "link", "show", "master", name)
	if err != nil {
		return err
	}
	var errs []error
	for _, port := range append(parseLinks(output), name) {
		// A veth goes by itself when its pod's namespace does, maybe just now.
		if _, err := ip(ctx, "link", "delete", port); err != nil && BridgeExists(port) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// parseLinks reads names from lines like "7: veth1@if2: <BROADCAST> mtu …".
func parseLinks(output string) []string {
	var names []string
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(fields[1], ":"), "@")
		names = append(names, name)
	}
	return names
}

func ip(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, "ip", args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
