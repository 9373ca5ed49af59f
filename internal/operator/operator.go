// Package operator wires what the manager's program runs: the controller, the prober, their metrics
// and the checks of health. Tests run the same.
package operator

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/addresspolicy"
	"github.com/slipway-mcp/slipway/internal/config"
	"github.com/slipway-mcp/slipway/internal/controller"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/registry"
	"github.com/slipway-mcp/slipway/internal/version"
	"github.com/slipway-mcp/slipway/internal/workload"
)

const (
	// leaseName is the Lease by which managers agree on a leader.
	leaseName = "slipway-manager.mcp.slipway.dev"

	// shutdownTimeout is shorter than the pod's grace period (30 s), so that a
	// stuck worker costs an error in the log and not the release of the lease.
	shutdownTimeout = 20 * time.Second
)

// Leader election keeps its Lease and its Events in the manager's own namespace.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create;get;update,namespace=system
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch,namespace=system

// Options are what a manager is made from.
type Options struct {
	Config  config.Manager
	Adapter workload.Adapter
	// Owned is what MCPServers become; workload.AllOwned if nil.
	Owned []workload.Owned
	Build version.Info
	// Metrics is where the manager registers its metrics.
	Metrics prometheus.Registerer
	// IssuerAddresses are those that the keys of token issuers are fetched from. The zero value is right;
	// tests allow loopback.
	IssuerAddresses addresspolicy.Policy
	// Adjust changes what the configuration has no field for; it may be nil.
	Adjust func(*manager.Options)
}

// New returns a manager with the controllers of Slipway. Start runs them.
func New(server *rest.Config, o Options) (manager.Manager, error) {
	if o.Owned == nil {
		o.Owned = workload.AllOwned()
	}
	options, err := managerOptions(o.Config, o.Owned)
	if err != nil {
		return nil, err
	}
	if o.Adjust != nil {
		o.Adjust(&options)
	}
	mgr, err := manager.New(server, options)
	if err != nil {
		return nil, fmt.Errorf("create manager: %w", err)
	}
	resolver, err := newResolver(o.Config.Registry)
	if err != nil {
		return nil, err
	}
	return mgr, register(mgr, o, &options, resolver)
}

// register adds everything that the manager runs or serves.
func register(mgr manager.Manager, o Options, options *manager.Options, resolver *registry.Resolver) error {
	cfg := o.Config
	requireAuth, err := cfg.Auth.RequiredIn()
	if err != nil {
		return err
	}
	reconciler := controller.New(controller.Options{
		Client: mgr.GetClient(), Metadata: mgr.GetCache(), Live: mgr.GetAPIReader(),
		Events:     mgr.GetEventRecorder("slipway"),
		Images:     &controller.ImageSource{Reader: mgr.GetAPIReader(), Resolver: resolver},
		Registries: registry.Policy{Disabled: cfg.Registry.Mode == config.RegistryDisabled, Hosts: cfg.Registry.AllowedHosts},
		Owned:      o.Owned,
		Adapter:    o.Adapter, OnOperatorUpgrade: mcpv1alpha1.RolloutPolicy(cfg.Rollouts.OnOperatorUpgrade), MaxRollouts: cfg.Rollouts.MaxConcurrent,
		Namespaces: cfg.Namespaces, ClusterDomain: cfg.ClusterDomain, Workers: cfg.Concurrency.Reconciliations, Now: time.Now,
		Users: workload.UserPolicy(cfg.Pods.RunAsUser),
		Defaults: workload.Defaults{
			Resources: cfg.Servers.Defaults.Resources, AdapterResources: cfg.Servers.Defaults.Adapter.Resources, Limits: cfg.Servers.Defaults.Adapter.Limits,
		},
		Bounds: workload.Bounds(cfg.Servers.Bounds), RequireAuth: requireAuth,
	})
	readiness := newCacheReadiness(mgr.GetCache(), reconciler.Unsynced)
	probes := prober.New(prober.Options{
		Workers: cfg.Concurrency.Probes,
		Term:    termOf(options, mgr.GetAPIReader(), mgr.GetClient()),
		Notify:  reconciler.Notify, Log: mgr.GetLogger().WithName("prober"), Registry: o.Metrics,
	})
	reconciler.Prober = probes
	issuers, err := newIssuers(mgr, o, reconciler.Notify)
	reconciler.Issuers = issuers
	problems := []error{
		err,
		reconciler.SetupWithManager(mgr),
		mgr.Add(probes),
		mgr.Add(readiness),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("cache", readiness.check),
		mgr.AddReadyzCheck("references", reconciler.CheckReferences),
	}
	for _, collector := range append(reconciler.Metrics(), buildInfo(o.Build), controller.NewServerMetrics(mgr.GetCache())) {
		problems = append(problems, o.Metrics.Register(collector))
	}
	return errors.Join(problems...)
}

func managerOptions(cfg config.Manager, owned []workload.Owned) (manager.Options, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), mcpv1alpha1.AddToScheme(scheme)); err != nil {
		return manager.Options{}, fmt.Errorf("register API types: %w", err)
	}
	metrics, err := metricsOptions(cfg.Metrics)
	if err != nil {
		return manager.Options{}, err
	}
	cacheOptions := cache.Options{DefaultTransform: controller.Trim, ByObject: controller.CacheByObject(owned)}
	if len(cfg.Namespaces) > 0 {
		cacheOptions.DefaultNamespaces = map[string]cache.Config{}
		for _, namespace := range cfg.Namespaces {
			cacheOptions.DefaultNamespaces[namespace] = cache.Config{}
		}
	}
	election := cfg.LeaderElection
	return manager.Options{
		Scheme:                  scheme,
		Cache:                   cacheOptions,
		Client:                  client.Options{Cache: &client.CacheOptions{DisableFor: controller.Uncached(owned)}},
		Metrics:                 metrics,
		HealthProbeBindAddress:  cfg.Health.BindAddress,
		LeaderElection:          election.Enabled,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: election.Namespace,
		LeaseDuration:           new(time.Duration(election.LeaseDuration)),
		RenewDeadline:           new(time.Duration(election.RenewDeadline)),
		RetryPeriod:             new(time.Duration(election.RetryPeriod)),
		GracefulShutdownTimeout: new(shutdownTimeout),
		// This is safe, because the process ends as soon as the manager has stopped.
		LeaderElectionReleaseOnCancel: true,
	}, nil
}
