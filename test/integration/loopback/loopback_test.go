package loopback

import (
	"net/netip"
	"testing"
)

func TestNoAddressIsGivenTwice(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 3 {
		network, err := Claim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := network.Close(); err != nil {
				t.Error(err)
			}
		})
		for range 2*addressesInARow + 1 {
			address := network.Address()
			if parsed, err := netip.ParseAddr(address); err != nil || !parsed.IsLoopback() {
				t.Fatalf("%s is no loopback address: %v", address, err)
			}
			if seen[address] {
				t.Fatalf("%s was given twice", address)
			}
			seen[address] = true
		}
	}
}
