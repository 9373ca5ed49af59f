package local

import (
	"path/filepath"
	"strconv"
)

// component is a process of the cluster.
type component struct {
	name string
	path string
	args []string
	// files are what it reads at start: when one changes, it is restarted.
	files []string
	// addresses are where it listens.
	addresses []string
}

// Names of the components, in the order in which they are started.
var componentNames = []string{
	"containerd", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy",
}

func (c *Cluster) components() map[string]component {
	all := map[string]component{}
	for _, component := range []component{
		c.containerd(), c.etcd(), c.apiServer(), c.controllerManager(), c.scheduler(), c.kubelet(), c.proxy(),
	} {
		if component.path == "" {
			component.path = filepath.Join(c.bin, component.name)
		}
		all[component.name] = component
	}
	return all
}

func (c *Cluster) containerd() component {
	config := c.path("containerd", "config.toml")
	return component{
		name:  "containerd",
		path:  "containerd",
		args:  []string{"--config=" + config},
		files: []string{config},
	}
}

func (c *Cluster) etcd() component {
	client, peer := address(loopback, portEtcdClient), address(loopback, portEtcdPeer)
	return component{
		name: "etcd",
		args: []string{
			"--name=" + NodeName,
			"--data-dir=" + c.path("etcd"),
			"--listen-client-urls=https://" + client,
			"--advertise-client-urls=https://" + client,
			"--listen-peer-urls=https://" + peer,
			"--initial-advertise-peer-urls=https://" + peer,
			"--initial-cluster=" + NodeName + "=https://" + peer,
			"--client-cert-auth",
			"--trusted-ca-file=" + c.certificate("etcd-ca"),
			"--cert-file=" + c.certificate("etcd"),
			"--key-file=" + c.key("etcd"),
			"--peer-client-cert-auth",
			"--peer-trusted-ca-file=" + c.certificate("etcd-ca"),
			"--peer-cert-file=" + c.certificate("etcd"),
			"--peer-key-file=" + c.key("etcd"),
			// Only a crash of the whole machine could lose data, and then the
			// cluster's other state is gone too.
			"--unsafe-no-fsync",
		},
		files:     []string{c.certificate("etcd-ca"), c.certificate("etcd")},
		addresses: []string{client, peer},
	}
}

func (c *Cluster) apiServer() component {
	node := c.network.node().String()
	return component{
		name: "kube-apiserver",
		args: []string{
			"--advertise-address=" + node,
			"--bind-address=" + node,
			"--secure-port=" + strconv.Itoa(portAPI),
			"--service-cluster-ip-range=" + c.network.Services.String(),
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true",
			"--profiling=false",
			"--client-ca-file=" + c.certificate("ca"),
			"--tls-cert-file=" + c.certificate("kube-apiserver"),
			"--tls-private-key-file=" + c.key("kube-apiserver"),
			"--etcd-servers=https://" + address(loopback, portEtcdClient),
			"--etcd-cafile=" + c.certificate("etcd-ca"),
			"--etcd-certfile=" + c.certificate("etcd-client"),
			"--etcd-keyfile=" + c.key("etcd-client"),
			"--kubelet-certificate-authority=" + c.certificate("ca"),
			"--kubelet-client-certificate=" + c.certificate("kubelet-client"),
			"--kubelet-client-key=" + c.key("kubelet-client"),
			"--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc." + clusterDomain,
			"--service-account-key-file=" + c.path("pki", serviceAccountKey+".pub"),
			"--service-account-signing-key-file=" + c.key(serviceAccountKey),
			"--requestheader-client-ca-file=" + c.certificate("front-proxy-ca"),
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-username-headers=X-Remote-User",
			"--proxy-client-cert-file=" + c.certificate("front-proxy-client"),
			"--proxy-client-key-file=" + c.key("front-proxy-client"),
		},
		files: []string{
			c.certificate("ca"), c.certificate("kube-apiserver"), c.certificate("etcd-client"),
			c.certificate("kubelet-client"), c.certificate("front-proxy-client"), c.key(serviceAccountKey),
		},
		addresses: []string{address(node, portAPI)},
	}
}

func (c *Cluster) controllerManager() component {
	kubeconfig := c.kubeconfigOf("kube-controller-manager")
	return component{
		name: "kube-controller-manager",
		args: []string{
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=" + loopback,
			"--secure-port=" + strconv.Itoa(portControllers),
			"--leader-elect=false",
			"--profiling=false",
			"--root-ca-file=" + c.certificate("ca"),
			"--cluster-signing-cert-file=" + c.certificate("ca"),
			"--cluster-signing-key-file=" + c.key("ca"),
			"--service-account-private-key-file=" + c.key(serviceAccountKey),
			"--use-service-account-credentials=true",
		},
		files:     []string{kubeconfig, c.certificate("ca"), c.key(serviceAccountKey)},
		addresses: []string{address(loopback, portControllers)},
	}
}

func (c *Cluster) scheduler() component {
	kubeconfig := c.kubeconfigOf("kube-scheduler")
	return component{
		name: "kube-scheduler",
		args: []string{
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=" + loopback,
			"--secure-port=" + strconv.Itoa(portScheduler),
			"--leader-elect=false",
			"--profiling=false",
		},
		files:     []string{kubeconfig},
		addresses: []string{address(loopback, portScheduler)},
	}
}

func (c *Cluster) kubelet() component {
	config, kubeconfig := c.path("conf", "kubelet.yaml"), c.kubeconfigOf("kubelet")
	return component{
		name: "kubelet",
		args: []string{
			"--config=" + config,
			"--kubeconfig=" + kubeconfig,
			"--root-dir=" + c.path("kubelet"),
			"--cert-dir=" + c.path("kubelet", "pki"),
			"--hostname-override=" + NodeName,
			"--node-ip=" + c.network.node().String(),
		},
		files: []string{config, kubeconfig, c.certificate("ca"), c.certificate("kubelet-server")},
		addresses: []string{
			address(c.network.node().String(), portKubelet), address(loopback, portKubeletLive),
		},
	}
}

func (c *Cluster) proxy() component {
	config := c.path("conf", "kube-proxy.yaml")
	return component{
		name:      "kube-proxy",
		args:      []string{"--config=" + config},
		files:     []string{config, c.kubeconfigOf("kube-proxy")},
		addresses: []string{address(loopback, portProxyLive), address(loopback, portProxyMetric)},
	}
}
