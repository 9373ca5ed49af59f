package issuer

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Kubernetes gives this permission to every ServiceAccount. The manager also has it where an administrator removed it.
// +kubebuilder:rbac:urls=/.well-known/openid-configuration;/openid/v1/jwks,verbs=get

// Where the API server has the keys of ServiceAccount tokens, and the name of their issuer. The metadata
// also has a jwks_uri, which is the address of the API server for clients outside the cluster: the manager
// may not reach it, so the path counts.
const (
	clusterMetadata = "/.well-known/openid-configuration"
	clusterKeys     = "/openid/v1/jwks"
)

// fetchCluster gets the keys of the cluster's ServiceAccount tokens. If the API server has several issuers,
// it signs with the first, which is the one that it lists.
func (f *fetcher) fetchCluster(ctx context.Context) (Keys, error) {
	if f.cluster == nil {
		return Keys{}, errNoCluster
	}
	text, err := f.cluster.Get(ctx, clusterMetadata)
	if err != nil {
		return Keys{}, err
	}
	var found metadata
	if err := json.Unmarshal(text, &found); err != nil {
		return Keys{}, errMetadata
	}
	if found.Issuer == "" {
		return Keys{}, errNoIssuer
	}
	if text, err = f.cluster.Get(ctx, clusterKeys); err != nil {
		return Keys{}, err
	}
	set, err := readKeySet(text)
	if err != nil {
		return Keys{}, err
	}
	return set.of(found.Issuer)
}

// NewAPIServer returns the API server of a configuration.
func NewAPIServer(config *rest.Config) (APIServer, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create client of the API server: %w", err)
	}
	return &apiServer{client}, nil
}

type apiServer struct{ client *rest.RESTClient }

// Get reads one document.
func (a *apiServer) Get(ctx context.Context, path string) ([]byte, error) {
	return a.client.Get().AbsPath(path).Do(ctx).Raw()
}
