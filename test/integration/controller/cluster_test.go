package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/hang"
	"github.com/slipway-mcp/slipway/test/integration/loopback"
)

const root = "../../.."

// operatorUser is the user that the manager authenticates as. It has only the generated
// roles.
const operatorUser = "slipway-manager"

// cluster is an API server with a kube-controller-manager and the stand-in for a
// kubelet, and a client that may do everything.
type cluster struct {
	env         *envtest.Environment
	network     *loopback.Network // of the pods
	scheme      *runtime.Scheme
	client      client.WithWatch
	operator    *rest.Config
	controllers *exec.Cmd
	log         bytes.Buffer
	kubelet     *kubelet
	audit       string // where the manager's requests are written down, if they are
}

func startCluster(ctx context.Context, dir string) (c *cluster, err error) {
	c = &cluster{scheme: runtime.NewScheme(), env: &envtest.Environment{
		ControlPlaneStartTimeout: hang.Guard,
		CRDDirectoryPaths:        []string{filepath.Join(root, "config/crd/bases")}, ErrorIfCRDPathMissing: true,
	}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	if err := errors.Join(os.MkdirAll(dir, 0o700), clientgoscheme.AddToScheme(c.scheme), mcpv1alpha1.AddToScheme(c.scheme), apiextensionsv1.AddToScheme(c.scheme)); err != nil {
		return c, err
	}
	if c.network, err = loopback.Claim(ctx); err != nil {
		return c, err
	}
	// The default has room for 254 Services.
	c.env.ControlPlane.GetAPIServer().Configure().Set("service-cluster-ip-range", "10.0.0.0/16")
	if *audit {
		if c.audit, err = writeDown(c.env.ControlPlane.GetAPIServer(), dir); err != nil {
			return c, fmt.Errorf("configure audit log: %w", err)
		}
	}
	config, err := c.env.Start()
	if err != nil {
		return c, fmt.Errorf("start API server: %w", err)
	}
	if c.client, err = client.NewWithWatch(config, client.Options{Scheme: c.scheme}); err != nil {
		return c, fmt.Errorf("create client: %w", err)
	}
	if err := c.startControllers(dir); err != nil {
		return c, err
	}
	if err := c.addOperator(ctx); err != nil {
		return c, err
	}
	c.kubelet, err = startKubelet(c.client, c.network, filepath.Join(dir, "pods"))
	return c, err
}

// startControllers starts what makes pods of Deployments, collects garbage, empties namespaces and scales.
func (c *cluster) startControllers(dir string) error {
	admin, err := c.env.AddUser(envtest.User{Name: "controllers", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return fmt.Errorf("add user: %w", err)
	}
	kubeconfig, err := admin.KubeConfig()
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	path := filepath.Join(dir, "controllers.kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return err
	}
	program := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-controller-manager")
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("find kube-controller-manager: %w: it comes with `make kube`, whose directory KUBEBUILDER_ASSETS must be", err)
	}
	// It lives as long as the tests, not as long as a context.
	c.controllers = exec.CommandContext(context.Background(), program,
		"--kubeconfig="+path, "--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=false",
		"--controllers=deployment-controller,replicaset-controller,garbage-collector-controller,namespace-controller,horizontal-pod-autoscaler-controller,disruption-controller",
		"--concurrent-deployment-syncs=20", "--concurrent-replicaset-syncs=20", "--concurrent-gc-syncs=20",
		"--kube-api-qps=500", "--kube-api-burst=1000", "--horizontal-pod-autoscaler-sync-period=1s",
		"--min-resync-period=1h")
	c.controllers.Stdout, c.controllers.Stderr = &c.log, &c.log
	if err := c.controllers.Start(); err != nil {
		return fmt.Errorf("start kube-controller-manager: %w", err)
	}
	return nil
}

// addOperator makes the user that the manager is, with the rights that are generated
// from the code's markers.
func (c *cluster) addOperator(ctx context.Context) error {
	user, err := c.env.AddUser(envtest.User{Name: operatorUser}, nil)
	if err != nil {
		return fmt.Errorf("add user: %w", err)
	}
	c.operator = user.Config()
	content, err := os.ReadFile(filepath.Join(root, "config/rbac/role.yaml"))
	if err != nil {
		return err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	role := &rbacv1.ClusterRole{} // the first document; the second is about the Lease
	if err := decoder.Decode(role); err != nil {
		return fmt.Errorf("read role: %w", err)
	}
	if role.Kind != "ClusterRole" {
		return fmt.Errorf("read role: the first document is a %s", role.Kind)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: operatorUser},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: operatorUser}},
	}
	return errors.Join(c.client.Create(ctx, role), c.client.Create(ctx, binding))
}

func (c *cluster) stop() error {
	if c == nil {
		return nil
	}
	var problems []error
	if c.kubelet != nil {
		c.kubelet.stop()
	}
	if c.controllers != nil && c.controllers.Process != nil {
		problems = append(problems, c.controllers.Process.Signal(syscall.SIGTERM))
		_ = c.controllers.Wait() // it was ended by a signal
	}
	return errors.Join(append(problems, c.env.Stop(), c.network.Close())...)
}
