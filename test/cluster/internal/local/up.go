package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/test/cluster/internal/kubeapi"
	"github.com/slipway-mcp/slipway/test/cluster/internal/machine"
	"github.com/slipway-mcp/slipway/test/cluster/internal/statedir"
)

// Up takes the cluster up, or makes a cluster whole of which parts have died.
func (c *Cluster) Up(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("a local cluster needs root: it makes a bridge, mounts and cgroups")
	}
	if err := c.checkDir(); err != nil {
		return err
	}
	release, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	begin := time.Now()
	if err := c.up(ctx); err != nil {
		c.progress.explain(err)
		return err
	}
	c.progress.printf("cluster: up in %.1f s; kubectl and the other programs are in %s", time.Since(begin).Seconds(), c.bin)
	return nil
}

func (c *Cluster) up(ctx context.Context) error {
	if err := statedir.Claim(c.Dir, provider); err != nil {
		return err
	}
	if err := c.makeDirs(); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	var kubeletStarted time.Time
	images := make(chan error, 1)
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"find Kubernetes", func() error { return c.findBinaries(ctx) }},
		{"find container runtime", func() error { return c.findRuntime(ctx) }},
		{"prepare bridge and cgroups", func() error { return c.prepareMachine(ctx) }},
		{"write certificates and configuration", func() error {
			return errors.Join(c.writeCertificates(), c.writeConfig())
		}},
		{"start containerd and etcd", func() error { return c.startFoundation(ctx) }},
		{"start kube-apiserver", func() error {
			// Importing images keeps one core busy, the API server the other.
			go func() { images <- c.loadOwnImages(ctx) }()
			return c.startAPIServer(ctx)
		}},
		{"load images of pause and CoreDNS", func() error { return <-images }},
		{"start controllers, scheduler, kubelet, proxy", func() (err error) {
			kubeletStarted, err = c.startNode(ctx)
			return err
		}},
		{"wait for node " + NodeName, func() error { return c.waitForNode(ctx, kubeletStarted) }},
		{"wait for CoreDNS", func() error { return c.startDNS(ctx) }},
	} {
		if err := c.progress.step(step.name, step.run); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) findBinaries(ctx context.Context) error {
	build := exec.CommandContext(ctx, filepath.Join(c.Repository, "hack", "kube", "build.sh"))
	build.Stderr = os.Stderr // It may build for minutes and says how far it is.
	// Killed outright, it could not end the compiler.
	build.Cancel = func() error { return build.Process.Signal(syscall.SIGTERM) }
	build.WaitDelay = 10 * time.Second
	output, err := build.Output()
	if err != nil {
		return fmt.Errorf("run hack/kube/build.sh: %w", err)
	}
	c.bin = strings.TrimSpace(string(output))
	return nil
}

func (c *Cluster) findRuntime(ctx context.Context) error {
	installed, err := machine.InstallPackages(ctx)
	if err != nil {
		return err
	}
	if len(installed) > 0 {
		c.progress.printf("cluster: installed %s", strings.Join(installed, " "))
	}
	c.cni, err = machine.CNIPlugins()
	return err
}

// startFoundation starts what has no dependencies.
func (c *Cluster) startFoundation(ctx context.Context) error {
	for _, name := range []string{"containerd", "etcd"} {
		if _, err := c.start(ctx, name); err != nil {
			return err
		}
	}
	err := c.waitFor(ctx, "containerd", 20*time.Second, func(ctx context.Context) error {
		_, err := c.ctr(ctx, "version")
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for containerd: %w", err)
	}
	err = c.waitFor(ctx, "etcd", 20*time.Second, func(ctx context.Context) error {
		return dial(ctx, "tcp", address(loopback, portEtcdClient))
	})
	if err != nil {
		return fmt.Errorf("wait for etcd: %w", err)
	}
	return nil
}

func (c *Cluster) startAPIServer(ctx context.Context) error {
	if _, err := c.start(ctx, "kube-apiserver"); err != nil {
		return err
	}
	api, err := kubeapi.Connect(c.Kubeconfig())
	if err != nil {
		return err
	}
	if err := c.waitFor(ctx, "kube-apiserver", 60*time.Second, api.Ready); err != nil {
		return fmt.Errorf("wait for kube-apiserver: %w", err)
	}
	return nil
}

func (c *Cluster) startNode(ctx context.Context) (kubeletStarted time.Time, err error) {
	for _, name := range []string{"kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		started, err := c.start(ctx, name)
		if err != nil {
			return kubeletStarted, err
		}
		if name == "kubelet" {
			kubeletStarted = started
		}
	}
	return kubeletStarted, nil
}

func (c *Cluster) waitForNode(ctx context.Context, kubeletStarted time.Time) error {
	api, err := kubeapi.Connect(c.Kubeconfig())
	if err != nil {
		return err
	}
	for name, healthz := range map[string]string{
		"kubelet":    "http://" + address(loopback, portKubeletLive) + "/healthz",
		"kube-proxy": "http://" + address(loopback, portProxyLive) + "/healthz",
	} {
		if err := c.waitFor(ctx, name, 60*time.Second, func(ctx context.Context) error { return get(ctx, healthz) }); err != nil {
			return fmt.Errorf("wait for %s: %w", name, err)
		}
	}
	// A node that died is still called ready for most of a minute: believe only
	// what this kubelet says.
	return c.waitFor(ctx, "kubelet", 60*time.Second, func(ctx context.Context) error {
		return api.NodeReady(ctx, NodeName, kubeletStarted)
	})
}

func (c *Cluster) startDNS(ctx context.Context) error {
	manifest, err := render("coredns.yaml", c.values())
	if err != nil {
		return err
	}
	apply := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"), "--kubeconfig", c.Kubeconfig(),
		"apply", "--server-side", "--force-conflicts", "--field-manager=slipway-cluster", "--filename=-")
	apply.Stdin = bytes.NewReader(manifest)
	if output, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("apply CoreDNS: %w: %s", err, bytes.TrimSpace(output))
	}
	return c.waitFor(ctx, "kubelet", 60*time.Second, c.dnsReady)
}

// dnsReady asks CoreDNS a question, the way a pod would: what the API says of a
// Deployment whose pods were killed a moment ago is not true yet.
func (c *Cluster) dnsReady(ctx context.Context) error {
	api, err := kubeapi.Connect(c.Kubeconfig())
	if err != nil {
		return err
	}
	if err := api.DeploymentAvailable(ctx, "kube-system", "coredns"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address(c.network.dns().String(), 53))
	}}
	_, err = resolver.LookupNetIP(ctx, "ip4", "kubernetes.default.svc."+clusterDomain+".")
	return err
}

func dial(ctx context.Context, network, address string) error {
	connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return connection.Close()
}

func get(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}
