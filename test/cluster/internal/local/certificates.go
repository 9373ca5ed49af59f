package local

import (
	"time"

	"github.com/slipway-mcp/slipway/test/cluster/internal/pki"
)

// serviceAccountKey signs the tokens of ServiceAccounts.
const serviceAccountKey = "service-accounts"

// certificates lists every certificate of the cluster. etcd and the aggregation
// layer have authorities of their own: both trust every certificate that their
// authority signed, and must not trust a kubelet's.
func certificates(network network) []pki.Certificate {
	node := network.node().String()
	return []pki.Certificate{
		{Name: "ca", CommonName: "slipway"},
		{Name: "etcd-ca", CommonName: "slipway-etcd"},
		{Name: "front-proxy-ca", CommonName: "slipway-front-proxy"},
		{Name: "etcd", CA: "etcd-ca", CommonName: "etcd", Addresses: []string{"localhost", loopback}},
		{Name: "etcd-client", CA: "etcd-ca", CommonName: "kube-apiserver"},
		{Name: "front-proxy-client", CA: "front-proxy-ca", CommonName: "front-proxy-client"},
		{Name: "kube-apiserver", CA: "ca", CommonName: "kube-apiserver", Addresses: []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + clusterDomain,
			"localhost", loopback, node, network.api().String(),
		}},
		{Name: "kubelet-client", CA: "ca", CommonName: "kube-apiserver-kubelet-client", Organization: "system:masters"},
		{Name: "kubelet-server", CA: "ca", CommonName: NodeName, Addresses: []string{NodeName, node}},
		{Name: "admin", CA: "ca", CommonName: "admin", Organization: "system:masters"},
		{Name: "kube-controller-manager", CA: "ca", CommonName: "system:kube-controller-manager"},
		{Name: "kube-scheduler", CA: "ca", CommonName: "system:kube-scheduler"},
		{Name: "kubelet", CA: "ca", CommonName: "system:node:" + NodeName, Organization: "system:nodes"},
		{Name: "kube-proxy", CA: "ca", CommonName: "system:kube-proxy"},
	}
}

func (c *Cluster) writeCertificates() error {
	if err := pki.Ensure(c.path("pki"), time.Now(), certificates(c.network)...); err != nil {
		return err
	}
	return pki.EnsureKey(c.path("pki"), serviceAccountKey)
}
