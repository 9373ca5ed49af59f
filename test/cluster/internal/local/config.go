package local

import (
	"bytes"
	"embed"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed templates
var templates embed.FS

// values is what the templates may refer to.
type values struct {
	Dir, Socket, CertsDir, CNIPlugins, Bridge, Cgroup, NodeName, Domain string
	NodeIP, PodSubnet, DNS, ResolvConf                                  string
	PauseImage, CoreDNSImage                                            string
	KubeletPort, KubeletLivePort                                        int
	ProxyMetrics, ProxyLive                                             string
}

func (c *Cluster) values() values {
	return values{
		Dir:             c.Dir,
		Socket:          c.socket(),
		CertsDir:        c.certsDir(),
		CNIPlugins:      c.cni,
		Bridge:          Bridge,
		Cgroup:          Cgroup,
		NodeName:        NodeName,
		Domain:          clusterDomain,
		NodeIP:          c.network.node().String(),
		PodSubnet:       c.network.Pods.String(),
		DNS:             c.network.dns().String(),
		ResolvConf:      resolvConf(),
		PauseImage:      pauseImage,
		CoreDNSImage:    coreDNSImage,
		KubeletPort:     portKubelet,
		KubeletLivePort: portKubeletLive,
		ProxyMetrics:    address(loopback, portProxyMetric),
		ProxyLive:       address(loopback, portProxyLive),
	}
}

// resolvConf is what pods inherit that do not want cluster DNS. A resolver on
// the machine's loopback, as systemd's, is out of their reach.
func resolvConf() string {
	const upstream = "/run/systemd/resolve/resolv.conf"
	if _, err := os.Stat(upstream); err == nil {
		return upstream
	}
	return "/etc/resolv.conf"
}

func render(name string, values values) ([]byte, error) {
	parsed, err := template.New(name).Option("missingkey=error").ParseFS(templates, "templates/"+name)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	var rendered bytes.Buffer
	if err := parsed.Execute(&rendered, values); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return rendered.Bytes(), nil
}

// writeConfig writes the configuration of all components.
func (c *Cluster) writeConfig() error {
	for name, path := range map[string]string{
		"containerd.toml":  c.path("containerd", "config.toml"),
		"slipway.conflist": c.path("cni", "conf", "10-slipway.conflist"),
		"kubelet.yaml":     c.path("conf", "kubelet.yaml"),
		"kube-proxy.yaml":  c.path("conf", "kube-proxy.yaml"),
	} {
		content, err := render(name, c.values())
		if err != nil {
			return err
		}
		if err := writeFile(path, content); err != nil {
			return err
		}
	}
	for user, path := range map[string]string{
		"admin":                   c.Kubeconfig(),
		"kube-controller-manager": c.kubeconfigOf("kube-controller-manager"),
		"kube-scheduler":          c.kubeconfigOf("kube-scheduler"),
		"kubelet":                 c.kubeconfigOf("kubelet"),
		"kube-proxy":              c.kubeconfigOf("kube-proxy"),
	} {
		content, err := c.kubeconfig(user)
		if err != nil {
			return err
		}
		if err := writeFile(path, content); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig embeds the user's certificate, so that the file can be copied.
func (c *Cluster) kubeconfig(user string) ([]byte, error) {
	encoded := map[string]string{}
	for name, path := range map[string]string{
		"ca": c.certificate("ca"), "certificate": c.certificate(user), "key": c.key(user),
	} {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("write kubeconfig of %s: %w", user, err)
		}
		encoded[name] = base64.StdEncoding.EncodeToString(content)
	}
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
  - name: slipway
    cluster:
      server: %s
      certificate-authority-data: %s
users:
  - name: %s
    user:
      client-certificate-data: %s
      client-key-data: %s
contexts:
  - name: slipway
    context:
      cluster: slipway
      user: %s
current-context: slipway
`, c.apiURL(), encoded["ca"], user, encoded["certificate"], encoded["key"], user), nil
}

// writeFile replaces a file at once, so that a crash leaves the old or the new one.
func writeFile(path string, content []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // Mode 0600.
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // Gone already when all went well.
	_, err = temporary.Write(content)
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(temporary.Name(), path)
}
