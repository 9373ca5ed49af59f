// Command manager watches MCPServers, and creates and updates the
// objects that they need.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	// The manager's image has no distribution, and so no CA certificates. The manager
	// reads image configurations from registries over TLS, so that the binary includes
	// the roots. It uses those of the host, if there are any.
	_ "golang.org/x/crypto/x509roots/fallback"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/config"
	"github.com/slipway-mcp/slipway/internal/operator"
	"github.com/slipway-mcp/slipway/internal/version"
	"github.com/slipway-mcp/slipway/internal/workload"
)

func main() {
	configFile, showVersion := bindFlags(flag.CommandLine)
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

func bindFlags(flags *flag.FlagSet) (configFile *string, showVersion *bool) {
	configFile = flags.String("config", "", "read the ManagerConfiguration from this `file`; without it, every field has its default")
	showVersion = flags.Bool("version", false, "print the version and exit")
	return configFile, showVersion
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
	mgr, err := operator.New(restConfig, operator.Options{Config: cfg, Adapter: adapter, Build: build, Metrics: ctrlmetrics.Registry})
	if err != nil {
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
