// Command kindnetd is the pod network of a kind cluster on a machine that reaches no registry. It stands in for the
// program of the same name that kind publishes, whose module no proxy has: point-to-point links from the pod CIDR of
// the node, routes to the pod CIDRs of the other nodes, and masquerading of what leaves the pod network. It enforces no
// NetworkPolicy.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

const (
	// interval is how often the daemon looks for nodes that come or change their address.
	interval   = 3 * time.Second
	configFile = "/etc/cni/net.d/10-kindnet.conflist"
)

func main() {
	log := zap.New()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, log)
	stop()
	if err != nil {
		log.Error(err, "Cannot run the pod network")
		os.Exit(1)
	}
}

func run(ctx context.Context, log logr.Logger) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("connect to API server: %w", err)
	}
	// The address of the Service needs kube-proxy, which may start after this daemon.
	if endpoint := os.Getenv("CONTROL_PLANE_ENDPOINT"); endpoint != "" {
		config.Host = "https://" + endpoint
	}
	config.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to API server: %w", err)
	}
	n := network{hostIP: os.Getenv("HOST_IP"), podSubnet: os.Getenv("POD_SUBNET"), command: command}
	for ctx.Err() == nil {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err == nil {
			err = n.sync(ctx, nodes.Items)
		}
		if err != nil {
			log.Error(err, "Cannot bring the routes up to date; trying again")
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
	return nil
}

// network is the part of the pod network on one node.
type network struct {
	hostIP, podSubnet string
	command           func(ctx context.Context, name string, args ...string) error
}

func command(ctx context.Context, name string, args ...string) error {
	if output, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("run %s %v: %w: %s", name, args, err, output)
	}
	return nil
}

func (n *network) sync(ctx context.Context, nodes []corev1.Node) error {
	var failures []error
	for i := range nodes {
		node := &nodes[i]
		address := addressOf(node)
		if address == "" || node.Spec.PodCIDR == "" {
			continue // its kubelet or the controller manager has yet to say so
		}
		if address == n.hostIP {
			failures = append(failures, n.configure(ctx, node.Spec.PodCIDR))
		} else {
			failures = append(failures, n.command(ctx, "ip", "route", "replace", node.Spec.PodCIDR, "via", address))
		}
	}
	return errors.Join(failures...)
}

func addressOf(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if parsed, err := netip.ParseAddr(address.Address); err == nil && parsed.Is4() && address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}

// configure sets up this node. The kubelet calls the node ready once the configuration of its network is there.
func (n *network) configure(ctx context.Context, podCIDR string) error {
	rule := []string{"POSTROUTING", "-s", podCIDR, "!", "-d", n.podSubnet, "-m", "comment", "--comment", "pods to the outside", "-j", "MASQUERADE"}
	if n.command(ctx, "iptables", append([]string{"-w", "-t", "nat", "-C"}, rule...)...) != nil {
		if err := n.command(ctx, "iptables", append([]string{"-w", "-t", "nat", "-A"}, rule...)...); err != nil {
			return err
		}
	}
	text, err := conflist(podCIDR)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(configFile); err == nil && string(old) == string(text) {
		return nil
	}
	if err := os.WriteFile(configFile+".new", text, 0o600); err != nil {
		return fmt.Errorf("write network configuration: %w", err)
	}
	if err := os.Rename(configFile+".new", configFile); err != nil {
		return fmt.Errorf("write network configuration: %w", err)
	}
	return nil
}

// conflist is the configuration for the plugins of the Container Network Interface.
func conflist(podCIDR string) ([]byte, error) {
	type object = map[string]any
	text, err := json.MarshalIndent(object{
		"cniVersion": "0.3.1", "name": "kindnet",
		"plugins": []object{
			{"type": "ptp", "ipMasq": false, "mtu": 1500, "ipam": object{
				"type": "host-local", "dataDir": "/run/cni-ipam-state", "routes": []object{{"dst": "0.0.0.0/0"}}, "ranges": [][]object{{{"subnet": podCIDR}}},
			}},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode network configuration: %w", err)
	}
	return text, nil
}
