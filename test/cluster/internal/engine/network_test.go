package engine

import (
	"net/netip"
	"testing"
)

func TestChoose(t *testing.T) {
	tests := map[string]struct {
		routes  []string
		want    string
		wantErr bool
	}{
		"nothing":       {want: "10.120.0.0/16"},
		"elsewhere":     {routes: []string{"192.168.0.0/16", "10.119.0.0/16"}, want: "10.120.0.0/16"},
		"the first":     {routes: []string{"10.120.3.0/24"}, want: "10.121.0.0/16"},
		"the first two": {routes: []string{"10.120.0.0/15"}, want: "10.122.0.0/16"},
		"all":           {routes: []string{"10.0.0.0/8"}, wantErr: true},
	}
	for name, test := range tests {
		var routes []netip.Prefix
		for _, route := range test.routes {
			routes = append(routes, netip.MustParsePrefix(route))
		}
		got, err := choose(routes)
		if (err != nil) != test.wantErr || err == nil && got.String() != test.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, test.want)
		}
	}
}

// Docker's bridge, the link to the machine and the networks of containers must not overlap.
func TestParts(t *testing.T) {
	r := &record{Network: netip.MustParsePrefix("10.130.0.0/16")}
	bridge := netip.PrefixFrom(r.bridge(), 24).Masked()
	link := netip.PrefixFrom(r.outside(), linkBits).Masked()
	if !link.Contains(r.inside()) || bridge.Overlaps(link) || bridge.Overlaps(r.nodes()) || link.Overlaps(r.nodes()) {
		t.Errorf("bridge %s, link %s, nodes %s, inside %s", bridge, link, r.nodes(), r.inside())
	}
	if !r.Network.Contains(r.nodes().Addr()) || r.nodes() != r.nodes().Masked() {
		t.Errorf("nodes %s", r.nodes())
	}
}
