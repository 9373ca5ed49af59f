package machine

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Addresses of Services are not looked for outside of the machine, whether or not
// there is such a Service. The test looks at that in a network of its own.
func TestEnsureBridgeRoutesServices(t *testing.T) {
	const inside = "SLIPWAY_TEST_NETWORK_OF_ITS_OWN"
	if os.Getenv(inside) == "" {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEnsureBridgeRoutesServices$", "-test.v")
		again.Env = append(os.Environ(), inside+"=1", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
		again.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := again.CombinedOutput()
		switch {
		case again.ProcessState == nil:
			t.Skipf("no network of its own here: %v", err)
		case strings.Contains(string(out), "--- SKIP"):
			t.Skipf("%s", out)
		case err != nil:
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	// A way out, as every machine has one.
	for _, command := range []string{"link add out type bridge", "address add 192.0.2.7/24 dev out", "link set out up", "route add default via 192.0.2.1"} {
		if _, err := ip(t.Context(), strings.Fields(command)...); err != nil {
			t.Skipf("interfaces cannot be made: %v", err)
		}
	}
	address, services := netip.MustParsePrefix("10.213.0.1/24"), netip.MustParsePrefix("10.214.0.0/24")
	for range 2 { // It repairs what is there.
		if err := EnsureBridge(t.Context(), "slipway9", address, services); err != nil {
			t.Fatal(err)
		}
	}
	for at, want := range map[string]string{"10.214.0.254": " dev slipway9 ", "10.213.0.9": " dev slipway9 ", "10.215.0.1": " dev out "} {
		route, err := ip(t.Context(), "-4", "-o", "route", "get", at)
		if err != nil || !strings.Contains(route, want) {
			t.Errorf("%s: %q, %v; want %q", at, route, err, want)
		}
	}
}
