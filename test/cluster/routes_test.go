package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/test/cluster/internal/local"
)

// servicesStayHere checks that an address of a Service that kube-proxy knows nothing
// of is not looked for outside of this machine.
func (h *harness) servicesStayHere() {
	h.Helper()
	api := strings.TrimSpace(h.kubectl("get", "service", "kubernetes", "--namespace", "default", "--output", "jsonpath={.spec.clusterIP}"))
	address, err := netip.ParseAddr(api)
	if err != nil {
		h.Fatalf("address of the API server's Service: %v", err)
	}
	unknown := address.As4()
	unknown[3] = 254
	route := h.must("ip", "-4", "-o", "route", "get", netip.AddrFrom4(unknown).String())
	if got := routeDevice(route); got != local.Bridge {
		h.Errorf("traffic to a Service that is not there leaves by %q, want %q: %s", got, local.Bridge, route)
	}
}

// routeDevice is the interface in what "ip route get" prints.
func routeDevice(route string) string {
	_, after, _ := strings.Cut(route, " dev ")
	device, _, _ := strings.Cut(after, " ")
	return device
}

func TestRouteDevice(t *testing.T) {
	for route, want := range map[string]string{
		`10.214.0.254 dev slipway0 src 10.213.0.1 uid 0 \    cache`:     "slipway0",
		`10.214.0.254 via 192.0.2.1 dev eth0 src 192.0.2.7 uid 0 \    `: "eth0",
		`RTNETLINK answers: Network is unreachable`:                     "",
	} {
		if got := routeDevice(route); got != want {
			t.Errorf("%s: %q, want %q", route, got, want)
		}
	}
}
