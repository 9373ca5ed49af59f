// Package addresspolicy says which addresses the manager never dials for authors of MCPServers, whatever
// a URL, a redirect or a DNS server says.
package addresspolicy

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
)

// metadata are the addresses that clouds answer at with credentials of the machine,
// apart from those which are link-local.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle
}

// nat64 is the prefix under which a network without IPv4 has the IPv4 addresses.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Policy refuses addresses of cloud metadata, link-local, multicast and unspecified ones. The zero value
// refuses loopback as well. Private addresses are never refused: that is where the registries and issuers
// of a cluster are.
type Policy struct {
	// AllowLoopback lets loopback addresses pass.
	AllowLoopback bool
}

// RefusedError says which address a policy refuses.
type RefusedError struct{ Address netip.Addr }

func (e *RefusedError) Error() string { return "the address " + e.Address.String() + " is not allowed" }

// Check returns a *RefusedError for an address that is never dialed.
func (p Policy) Check(address netip.Addr) error {
	plain := address.Unmap().WithZone("")
	if nat64.Contains(plain) {
		bytes := plain.As16()
		plain = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	if slices.Contains(metadata, plain) || plain.IsLinkLocalUnicast() || plain.IsMulticast() || plain.IsUnspecified() || plain.IsLoopback() && !p.AllowLoopback {
		return &RefusedError{address}
	}
	return nil
}

// Control is for a net.Dialer, which calls it before it connects, when names have become addresses.
func (p Policy) Control(_, address string, _ syscall.RawConn) error {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		return errors.New("check address: it cannot be read")
	}
	return p.Check(parsed.Addr())
}

// CheckHost refuses a URL whose host is written as an address that is never dialed. Control refuses the
// same, unless there is a proxy between.
func (p Policy) CheckHost(target *url.URL) error {
	if address, err := netip.ParseAddr(target.Hostname()); err == nil {
		return p.Check(address)
	}
	return nil
}
