package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// informerRetry is the time between two attempts to watch MCPServers.
const informerRetry = 2 * time.Second

// +kubebuilder:rbac:groups=mcp.slipway.dev,resources=mcpservers,verbs=get;list;watch

// cacheReadiness says whether the manager's cache is complete. It also starts the watch
// of MCPServers, and retries until it succeeds. So a manager without its CRD does not
// crash in a loop. It waits, and says why.
type cacheReadiness struct {
	cache    cache.Cache
	unsynced func() []string // The other resources that have not been listed yet.

	mu       sync.Mutex
	informer cache.Informer // Nil until the watch has started.
	err      error          // Why it has not started.
}

func newCacheReadiness(cache cache.Cache, unsynced func() []string) *cacheReadiness {
	return &cacheReadiness{cache: cache, unsynced: unsynced, err: errors.New("the manager has not started to watch MCPServers yet")}
}

// NeedLeaderElection lets a standby fill its cache, too. So it is ready to take over, and
// a rolling update need not wait for the lease.
func (*cacheReadiness) NeedLeaderElection() bool { return false }

// Start watches MCPServers as soon as the API server serves them.
func (r *cacheReadiness) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, informerRetry, true, func(ctx context.Context) (bool, error) {
		return r.watch(ctx), nil
	}) // The only error is that ctx ended, and then the manager stops.
	return nil
}

func (r *cacheReadiness) watch(ctx context.Context) bool {
	informer, err := r.cache.GetInformer(ctx, &mcpv1alpha1.MCPServer{}, cache.BlockUntilSynced(false))
	if meta.IsNoMatchError(err) {
		err = fmt.Errorf("the API server does not serve MCPServer in %s: install the CustomResourceDefinition "+
			"mcpservers.mcp.slipway.dev (kubectl apply -f install.yaml); the manager goes on by itself", mcpv1alpha1.SchemeGroupVersion)
	} else if err != nil {
		err = fmt.Errorf("watch MCPServers: %w", err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && err.Error() != r.err.Error() {
		// The log has each reason once. The answer of /readyz has none, because any
		// client can read it.
		log.FromContext(ctx).Info("Waiting until MCPServers can be watched", "reason", err.Error())
	}
	r.informer, r.err = informer, err
	return err == nil
}

// check is a readiness check. It never waits for the API server.
func (r *cacheReadiness) check(*http.Request) error {
	r.mu.Lock()
	informer, err := r.informer, r.err
	r.mu.Unlock()
	if err != nil {
		return err
	}
	missing := r.unsynced()
	if !informer.HasSynced() {
		missing = append([]string{"mcpservers"}, missing...)
	}
	if len(missing) == 0 {
		return nil
	}
	names := strings.Join(missing, ", ")
	return fmt.Errorf("these have not been listed yet: %s: if this lasts, look in the manager's log for errors of the API server and "+
		"check that its ClusterRole may list and watch %s", names, names)
}
