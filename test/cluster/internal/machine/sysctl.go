package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sysctls are the kernel parameters that the kubelet, kube-proxy, the CNI plugins
// and the systemd of kind's nodes set without being asked.
var sysctls = []string{
	"fs/file-max",
	"kernel/keys/root_maxbytes",
	"kernel/keys/root_maxkeys",
	"kernel/panic",
	"kernel/panic_on_oops",
	"net/ipv4/conf/all/route_localnet",
	"net/ipv4/ip_forward",
	"net/ipv6/conf/all/forwarding",
	"net/netfilter/nf_conntrack_max",
	"net/netfilter/nf_conntrack_tcp_timeout_close_wait",
	"net/netfilter/nf_conntrack_tcp_timeout_established",
	"vm/overcommit_memory",
	"vm/panic_on_oom",
}

// Sysctls reads the kernel parameters that a cluster changes; those that this
// kernel does not have are left out.
func Sysctls() (map[string]string, error) {
	values := map[string]string{}
	for _, name := range sysctls {
		content, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read kernel parameter: %w", err)
		}
		values[name] = strings.TrimSpace(string(content))
	}
	return values, nil
}

// RestoreSysctls writes back the values that have changed since Sysctls.
func RestoreSysctls(before map[string]string) error {
	now, err := Sysctls()
	if err != nil {
		return err
	}
	var errs []error
	for name, value := range before {
		if now[name] != value {
			errs = append(errs, SetSysctl(name, value))
		}
	}
	return errors.Join(errs...)
}

// SetSysctl sets one kernel parameter, named by its path below /proc/sys.
func SetSysctl(name, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set kernel parameter: %w", err)
	}
	return nil
}
