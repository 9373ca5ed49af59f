package operator

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/slipway-mcp/slipway/internal/issuer"
)

// newIssuers returns what keeps the keys of token issuers. Only a leader fetches them: a standby writes
// nothing that needs them.
func newIssuers(mgr manager.Manager, o Options, notify func(types.NamespacedName)) (*issuer.Store, error) {
	cluster, err := issuer.NewAPIServer(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	store := issuer.New(issuer.Options{
		Cluster: cluster, Notify: notify, Allowed: o.Config.Auth.AllowedIssuers, Addresses: o.IssuerAddresses,
		Log: mgr.GetLogger().WithName("issuers"), Registry: o.Metrics,
	})
	return store, mgr.Add(manager.RunnableFunc(store.Run))
}
