// Command manager is the operator: it watches MCPServers, and creates and updates the
// objects that they need.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zapcore"
	// The manager's image has no distribution, and so no CA certificates. The manager
	// reads image configurations from registries over TLS, so that the binary includes
	// the roots. It uses those of the host, if there are any.
	_ "golang.org/x/crypto/x509roots/fallback"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
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

func main() {
	configFile := flag.String("config", "", "the ManagerConfiguration `file`; without it, the defaults")
	showVersion := flag.Bool("version", false, "print the version and exit")
	flag.Parse() // --kubeconfig comes from controller-runtime.
	if *showVersion {
		fmt.Println("manager", version.Get())
		return
	}
	// Errors before the manager has read its configuration go to a log with the defaults.
	setLogger(config.Default().Logging)
	if err := run(ctrl.SetupSignalHandler(), *configFile); err != nil {
		ctrl.Log.Error(err, "Manager stopped")
		os.Exit(1)
	}
}

func run(ctx context.Context, configFile string) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("read arguments: %q is not a flag, and there are no other arguments", flag.Arg(0))
	}
	cfg, err := config.Load(configFile)
	if err != nil {
		return err
	}
	log := setLogger(cfg.Logging)
	build := version.Get()
	log.Info("Starting manager", "version", build.Version, "commit", build.Commit, "goVersion", build.GoVersion)

	if err := setMemoryLimit(); err != nil {
		return err
	}
	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	// The API server takes the field manager of what is not applied from here.
	restConfig.UserAgent = mcpv1alpha1.ManagedBy + "/" + build.Version
	adapter, err := adapterOf(cfg, build)
	if err != nil {
		return err
	}
	options, err := managerOptions(cfg)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(restConfig, options)
	if err != nil {
		return fmt.Errorf("create manager: %w", err)
	}
	resolver, err := newResolver(cfg.Registry)
	if err != nil {
		return err
	}
	if err := register(mgr, cfg, adapter, resolver, build); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run manager: %w", err)
	}
	log.Info("Manager stopped")
	return nil
}

// adapterOf returns the adapter of the MCPServers' pods.
func adapterOf(cfg config.Manager, build version.Info) (workload.Adapter, error) {
	image := cfg.Adapter.Image
	if image == "" {
		image = os.Getenv(config.AdapterImageVariable)
	}
	if image == "" {
		return workload.Adapter{}, fmt.Errorf("read configuration: the adapter's image is not known: set adapter.image in the file, or the environment variable %s",
			config.AdapterImageVariable)
	}
	return workload.Adapter{Image: image, PullPolicy: cfg.Adapter.ImagePullPolicy, Version: build.Version}, nil
}

// register adds everything that the manager runs or serves.
func register(mgr manager.Manager, cfg config.Manager, adapter workload.Adapter, resolver *registry.Resolver, build version.Info) error {
	reconciler := controller.New(controller.Options{
		Client: mgr.GetClient(), Metadata: mgr.GetCache(), Live: mgr.GetAPIReader(),
		Events:     mgr.GetEventRecorder("slipway"),
		Images:     &controller.ImageSource{Reader: mgr.GetAPIReader(), Resolver: resolver},
		Registries: registry.Policy{Disabled: cfg.Registry.Mode == config.RegistryDisabled, Hosts: cfg.Registry.AllowedHosts},
		Adapter:    adapter, OnOperatorUpgrade: mcpv1alpha1.RolloutPolicy(cfg.Rollouts.OnOperatorUpgrade), MaxRollouts: cfg.Rollouts.MaxConcurrent,
		Namespaces: cfg.Namespaces, ClusterDomain: cfg.ClusterDomain, Workers: cfg.Concurrency.Reconciliations, Now: time.Now,
		Users: workload.UserPolicy(cfg.Pods.RunAsUser),
	})
	readiness := newCacheReadiness(mgr.GetCache(), reconciler.Unsynced)
	probes := prober.New(prober.Options{
		Workers: cfg.Concurrency.Probes,
		Notify:  reconciler.Notify, Log: mgr.GetLogger().WithName("prober"), Registry: ctrlmetrics.Registry,
	})
	reconciler.Prober = probes
	return errors.Join(
		reconciler.SetupWithManager(mgr),
		mgr.Add(probes),
		mgr.Add(readiness),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("cache", readiness.check),
		mgr.AddReadyzCheck("references", reconciler.CheckReferences),
		ctrlmetrics.Registry.Register(buildInfo(build)),
		ctrlmetrics.Registry.Register(controller.NewServerMetrics(mgr.GetCache())),
		registerAll(reconciler.Metrics()),
	)
}

func registerAll(collectors []prometheus.Collector) error {
	var errs []error
	for _, collector := range collectors {
		errs = append(errs, ctrlmetrics.Registry.Register(collector))
	}
	return errors.Join(errs...)
}

func managerOptions(cfg config.Manager) (manager.Options, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), mcpv1alpha1.AddToScheme(scheme)); err != nil {
		return manager.Options{}, fmt.Errorf("register API types: %w", err)
	}
	metrics, err := metricsOptions(cfg.Metrics)
	if err != nil {
		return manager.Options{}, err
	}
	cacheOptions := cache.Options{DefaultTransform: controller.Trim, ByObject: controller.CacheByObject()}
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
		Client:                  client.Options{Cache: &client.CacheOptions{DisableFor: controller.Uncached()}},
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

// setLogger makes controller-runtime and client-go log alike, and returns the
// logger. An error is one line: it carries its context by wrapping, not by a
// stack trace.
func setLogger(logging config.Logging) logr.Logger {
	log := zap.New(
		zap.UseDevMode(logging.Format == config.LogFormatText),
		zap.Level(zapcore.Level(-logging.Level)), //nolint:gosec // Validated: from 0 to 5.
		zap.StacktraceLevel(zapcore.PanicLevel),
	)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	return log
}
