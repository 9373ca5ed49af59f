package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/addresspolicy"
	"github.com/slipway-mcp/slipway/internal/config"
	wiring "github.com/slipway-mcp/slipway/internal/operator"
	"github.com/slipway-mcp/slipway/internal/registry"
	"github.com/slipway-mcp/slipway/internal/workload"
	"github.com/slipway-mcp/slipway/test/hang"
)

const adapterImage = "registry.example/slipway/adapter:test"

// operator is a manager that runs in this process.
type operator struct {
	log    *logBuffer
	probes *prometheus.Registry
	stop   func()
}

// asked is how many times the manager has asked adapters what their server offers.
func (o *operator) asked(t *testing.T) (times uint64) {
	t.Helper()
	families, err := o.probes.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "slipway_probe_duration_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if metric.GetLabel()[0].GetValue() == "catalog" {
				times += metric.GetHistogram().GetSampleCount()
			}
		}
	}
	return times
}

// gauge is the value of one of the manager's metrics, such as how many pods it looks after.
func (o *operator) gauge(t *testing.T, name string) (number float64) {
	t.Helper()
	families, err := o.probes.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, metric := range family.GetMetric() {
				number += metric.GetGauge().GetValue()
			}
		}
	}
	return number
}

// operatorOptions are what tests change of a manager.
type operatorOptions struct {
	namespace string // the only one it looks at
	config    *rest.Config
	adapter   workload.Adapter
	// What the manager's configuration says of these; nothing by default.
	upgrade     mcpv1alpha1.RolloutPolicy
	maxRollouts int
	workers     int // as many as by default, if 0
	registries  registry.Policy
	users       workload.UserPolicy
	owned       []workload.Owned
	servers     config.Servers
	auth        config.Auth
	elected     bool   // whether it has to be
	leases      string // the namespace of its Lease
	// issuers are the addresses that keys are fetched from.
	issuers addresspolicy.Policy
}

// configuration is that of a manager which looks at one namespace, alone and without ports.
func (o *operatorOptions) configuration() config.Manager {
	c := config.Default()
	c.Namespaces = []string{o.namespace}
	c.LeaderElection.Enabled, c.LeaderElection.Namespace = o.elected, o.leases
	c.Metrics.BindAddress, c.Health.BindAddress = "0", "0"
	c.Concurrency.Reconciliations = cmp.Or(o.workers, c.Concurrency.Reconciliations)
	c.Rollouts.OnOperatorUpgrade, c.Rollouts.MaxConcurrent = config.RolloutPolicy(o.upgrade), o.maxRollouts
	c.Registry.AllowedHosts = o.registries.Hosts
	if o.registries.Disabled {
		c.Registry.Mode = config.RegistryDisabled
	}
	c.Pods.RunAsUser = config.RunAsUser(o.users)
	c.Servers = o.servers
	if o.auth.Require != "" {
		c.Auth = o.auth
	}
	return c
}

// startOperator starts a manager for the namespace, until the test is over or it is
// stopped.
func startOperator(t *testing.T, namespace string, change func(*operatorOptions)) *operator {
	t.Helper()
	o := operatorOptions{
		namespace: namespace, config: shared.operator,
		adapter: workload.Adapter{Image: adapterImage, PullPolicy: corev1.PullIfNotPresent, Version: "v0.0.0-test"},
	}
	if change != nil {
		change(&o)
	}
	log := &logBuffer{}
	metrics := prometheus.NewRegistry()
	mgr, err := wiring.New(o.config, wiring.Options{
		Config: o.configuration(), Adapter: o.adapter, Owned: o.owned, Metrics: metrics, IssuerAddresses: o.issuers,
		Adjust: func(options *manager.Options) {
			options.Logger, options.Controller = log.logger(), ctrlconfig.Controller{SkipNameValidation: new(true)}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	running := true
	stop := func() {
		if !running {
			return
		}
		running = false
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("operator: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the operator:\n%s", log)
		}
	}
	t.Cleanup(stop)
	return &operator{log, metrics, stop}
}

// logBuffer keeps what the manager logs.
type logBuffer struct{ buffer }

func (l *logBuffer) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.writeLine(prefix + " " + args)
		if *showLogs {
			_, _ = os.Stderr.WriteString(prefix + " " + args + "\n")
		}
	}, funcr.Options{Verbosity: 2})
}

// newNamespace makes a namespace for one test. Its pods end with the test: what they go
// on doing would only slow down the other tests.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := shared.client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what was left in the namespace:\n%s%s", remains(namespace.Name), shared.kubelet.outputs(namespace.Name))
		}
		shared.kubelet.abandon(namespace.Name)
	})
	return namespace.Name
}

// remains describes the servers and the pods of a namespace, for a test that failed.
func remains(namespace string) string {
	ctx, cancel := context.WithTimeout(context.Background(), hang.Guard)
	defer cancel()
	var text strings.Builder
	servers, pods := &mcpv1alpha1.MCPServerList{}, &corev1.PodList{}
	if err := errors.Join(shared.client.List(ctx, servers, client.InNamespace(namespace)), shared.client.List(ctx, pods, client.InNamespace(namespace))); err != nil {
		fmt.Fprintln(&text, err)
	}
	for i := range servers.Items {
		fmt.Fprintf(&text, "server %s:\n%s", servers.Items[i].Name, describe(&servers.Items[i].Status))
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		fmt.Fprintf(&text, "pod %s, deleted %v: %s %s\n", pod.Name, pod.DeletionTimestamp, pod.Status.Phase, pod.Status.Message)
		for _, condition := range pod.Status.Conditions {
			fmt.Fprintf(&text, "  %s %s\n", condition.Type, condition.Status)
		}
	}
	return text.String()
}

// newServer returns a stdio server that runs the echo server.
func newServer(namespace, name string) *mcpv1alpha1.MCPServer {
	return &mcpv1alpha1.MCPServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: mcpv1alpha1.MCPServerSpec{
			Image: "localhost:1/echo:1", Command: []string{echoServer},
			Transport: mcpv1alpha1.Transport{Type: mcpv1alpha1.TransportStdio},
			Session:   mcpv1alpha1.Session{DrainTimeout: &metav1.Duration{Duration: time.Second}},
			// As long as it may be: no test is about it, and a busy machine is slow to answer.
			Verification: mcpv1alpha1.Verification{Interval: &metav1.Duration{Duration: time.Second}, Timeout: &metav1.Duration{Duration: time.Minute}},
		},
	}
}

// readyServer starts a manager for a namespace of its own and has it run a server.
func readyServer(t *testing.T) (namespace string, server *mcpv1alpha1.MCPServer) {
	t.Helper()
	namespace = newNamespace(t)
	startOperator(t, namespace, nil)
	server = newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready")
	return namespace, server
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := shared.client.Create(t.Context(), object); err != nil {
			t.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
	}
}

// change changes an object until the API server takes it.
func change[T client.Object](t *testing.T, object T, mutate func(T)) {
	t.Helper()
	NewWithT(t).Eventually(func() error {
		if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		mutate(object)
		return shared.client.Update(t.Context(), object)
	}).WithTimeout(hang.Guard).Should(Succeed())
}

// status gets the server and returns its status.
func status(t *testing.T, server *mcpv1alpha1.MCPServer) *mcpv1alpha1.MCPServerStatus {
	t.Helper()
	current := &mcpv1alpha1.MCPServer{}
	if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), current); err != nil {
		t.Fatal(err)
	}
	return &current.Status
}

// says describes a condition in one line, such as "False ReferenceNotFound"; "absent"
// when it is not there.
func says(t *testing.T, server *mcpv1alpha1.MCPServer, condition string) string {
	t.Helper()
	return saidBy(status(t, server), condition)
}

func saidBy(status *mcpv1alpha1.MCPServerStatus, condition string) string {
	found := meta.FindStatusCondition(status.Conditions, condition)
	if found == nil {
		return "absent"
	}
	return string(found.Status) + " " + found.Reason
}

// eventually waits until conditions say what they should; the order is type, words.
func eventually(t *testing.T, server *mcpv1alpha1.MCPServer, pairs ...string) {
	t.Helper()
	NewWithT(t).Eventually(func() []string {
		var got []string
		now := status(t, server)
		for i := 0; i < len(pairs); i += 2 {
			got = append(got, pairs[i], saidBy(now, pairs[i]))
		}
		return got
	}).WithTimeout(hang.Guard).Should(Equal(pairs), func() string {
		return describe(status(t, server))
	})
}

// describe is a status as a test's failure shows it.
func describe(status *mcpv1alpha1.MCPServerStatus) string {
	var text strings.Builder
	for _, condition := range status.Conditions {
		fmt.Fprintf(&text, "%s %s %s: %s\n", condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	for _, instance := range status.Instances {
		fmt.Fprintf(&text, "instance %s: %s\n", instance.Pod, instance.Message)
	}
	return text.String()
}

// eachItem calls each for every object of a list.
func eachItem(list client.ObjectList, each func(client.Object)) error {
	return meta.EachListItem(list, func(object runtime.Object) error {
		each(object.(client.Object))
		return nil
	})
}

func objectMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
