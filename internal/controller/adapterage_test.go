package controller

import "testing"

func TestIsTooOld(t *testing.T) {
	for versions, want := range map[[2]string]bool{
		{"v0.1.0", "v0.1.0"}:                                false,
		{"v0.1.9", "v0.3.0"}:                                false,
		{"v0.1.9", "v0.4.0"}:                                true,
		{"v0.9.0", "v0.10.0"}:                               false,
		{"v0.9.0", "v0.12.0"}:                               true,
		{"v0.4.0", "v0.1.0"}:                                false, // the manager was downgraded
		{"v0.9.0", "v1.0.0"}:                                true,
		{"v1.0.0", "v0.9.0"}:                                false,
		{"v0.0.0-20261115120000-38dd8fc00000", "v0.4.0"}:    false,
		{"v0.1.0", "v0.4.1-0.20261115120000-38dd8fc00000"}:  false,
		{"v0.1.0", "v0.9.0-rc.1"}:                           false,
		{"unknown", "v0.4.0"}:                               false,
		{"", "v0.4.0"}:                                      false,
		{"(devel)", "(devel)"}:                              false,
		{"v0.1.0", "v0.99999999999999999999999999999999.0"}: true,
	} {
		if got := isTooOld(versions[0], versions[1]); got != want {
			t.Errorf("adapter %s, manager %s: %t", versions[0], versions[1], got)
		}
	}
}
