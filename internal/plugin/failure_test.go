package plugin

import (
	"errors"
	"fmt"
	"net"
	"testing"
)

// For a user without a kubeconfig, the error does not name a connection to a default port.
func TestNoKubeconfig(t *testing.T) {
	for name, test := range map[string]struct{ address, want string }{
		"no kubeconfig":        {noCluster, "no kubeconfig names a cluster"},
		"a cluster that is no": {"10.0.0.1:6443", "list MCPServers: dial tcp 10.0.0.1:6443: refused"},
	} {
		err := fmt.Errorf("list MCPServers: %w", &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused"), Addr: address(test.address)})
		if got := explain(err); got.Error() != test.want || got.code != exitUnreachable || got.next == "" {
			t.Errorf("%s: %d %v; %s", name, got.code, got, got.next)
		}
	}
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }
