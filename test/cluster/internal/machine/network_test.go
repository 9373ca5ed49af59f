package machine

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRoutes(t *testing.T) {
	const output = `default via 192.0.2.1 dev eth0
192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.2
local 127.0.0.0/8 dev lo table local proto kernel scope host src 127.0.0.1
broadcast 192.0.2.255 dev eth0 table local proto kernel scope link src 192.0.2.2
0.0.0.0/0 dev tun0
blackhole 10.213.0.0/16
`
	var got []string
	for _, route := range parseRoutes(output) {
		got = append(got, route.String())
	}
	want := []string{"192.0.2.0/24", "127.0.0.0/8", "192.0.2.255/32", "10.213.0.0/16"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFreeSubnets(t *testing.T) {
	tests := map[string]struct {
		routes []string
		want   string
	}{
		"no routes":   {nil, "10.213.0.0/24 10.214.0.0/24"},
		"one taken":   {[]string{"10.213.0.0/16"}, "10.214.0.0/24 10.215.0.0/24"},
		"host inside": {[]string{"10.214.0.7/32"}, "10.213.0.0/24 10.215.0.0/24"},
		"all taken":   {[]string{"10.0.0.0/8"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var routes []netip.Prefix
			for _, route := range test.routes {
				routes = append(routes, netip.MustParsePrefix(route))
			}
			pods, services, err := FreeSubnets(routes)
			if test.want == "" {
				if err == nil {
					t.Error("no error")
				}
				return
			}
			if got := fmt.Sprint(pods, " ", services); err != nil || got != test.want {
				t.Errorf("%s, %v, want %s", got, err, test.want)
			}
		})
	}
}

func TestParseLinks(t *testing.T) {
	const output = `5: veth1a2b@if2: <BROADCAST,UP> mtu 1500 master slipway0
6: tap0: <BROADCAST> mtu 1500
`
	if diff := cmp.Diff([]string{"veth1a2b", "tap0"}, parseLinks(output)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCheckPortNamesWhoIsInTheWay(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	err = CheckPort(t.Context(), address)
	if want := fmt.Sprintf("process %d (", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one that says %q", err, want)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := CheckPort(t.Context(), address); err != nil {
		t.Errorf("a free port: %v", err)
	}
}
