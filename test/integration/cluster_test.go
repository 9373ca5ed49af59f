package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/slipway-mcp/slipway/test/hang"
)

type object = *unstructured.Unstructured

// cluster is an API server, and a client of it that may do everything.
type cluster struct {
	env    *envtest.Environment
	client client.Client
	dir    string
}

// startCluster starts an API server that has nothing of Slipway in it. dir is
// for the kubeconfigs.
func startCluster(dir string) (*cluster, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	env := &envtest.Environment{ControlPlaneStartTimeout: hang.Guard}
	// The default has room for 254 Services.
	env.ControlPlane.GetAPIServer().Configure().Set("service-cluster-ip-range", "10.0.0.0/16")
	config, err := env.Start()
	if err != nil {
		return nil, fmt.Errorf("start API server: %w", errors.Join(err, env.Stop()))
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		return nil, errors.Join(err, env.Stop())
	}
	admin, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("create client: %w", errors.Join(err, env.Stop()))
	}
	return &cluster{env: env, client: admin, dir: dir}, nil
}

func (c *cluster) stop() error {
	if c == nil {
		return nil
	}
	return c.env.Stop()
}

// install applies objects the way `kubectl apply --server-side` does, and waits
// until what they define is served.
func (c *cluster) install(ctx context.Context, objects []object) error {
	for _, o := range objects {
		if err := c.apply(ctx, o); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, hang.Guard)
	defer cancel()
	for _, o := range objects {
		if !isCRD(o) {
			continue
		}
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			return c.established(ctx, o.GetName())
		})
		if err != nil {
			return fmt.Errorf("wait for CRD %s: %w", o.GetName(), err)
		}
	}
	return nil
}

func (c *cluster) apply(ctx context.Context, o object) error {
	// A copy: Apply writes the answer into what it is given.
	configuration := client.ApplyConfigurationFromUnstructured(o.DeepCopy())
	if err := c.client.Apply(ctx, configuration, client.FieldOwner("integration-test"), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

func (c *cluster) established(ctx context.Context, name string) (bool, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		return false, err
	}
	for _, condition := range crd.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue, nil
		}
	}
	return false, nil
}

// groups are the API groups that the server serves.
func (c *cluster) groups() ([]string, error) {
	discovered, err := discovery.NewDiscoveryClientForConfig(c.env.Config)
	if err != nil {
		return nil, err
	}
	list, err := discovered.ServerGroups()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, group := range list.Groups {
		names = append(names, group.Name)
	}
	return names, nil
}

// token is a token of the ServiceAccount, as a pod of it would have.
func (c *cluster) token(ctx context.Context, namespace, name string) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{}
	if err := c.client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("request token of %s/%s: %w", namespace, name, err)
	}
	return request.Status.Token, nil
}

// kubeconfig writes a file with which its holder is the ServiceAccount and
// nothing more, and returns its path.
func (c *cluster) kubeconfig(ctx context.Context, namespace, name string) (string, error) {
	token, err := c.token(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["test"] = &clientcmdapi.Cluster{
		Server:                   c.env.Config.Host,
		CertificateAuthorityData: c.env.Config.CAData,
	}
	kubeconfig.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: token}
	kubeconfig.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	kubeconfig.CurrentContext = "test"
	path := filepath.Join(c.dir, name+".kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return path, nil
}

// renderInstaller has hack/installer.sh write its file to path and reads it.
func renderInstaller(ctx context.Context, path, prefix, version string) ([]object, error) {
	command := exec.CommandContext(ctx, "hack/installer.sh", prefix, version, path)
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("run hack/installer.sh: %w\n%s", err, output)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read installer: %w", err)
	}
	var objects []object
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		o := &unstructured.Unstructured{}
		switch err := decoder.Decode(o); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("read installer: %w", err)
		}
		objects = append(objects, o)
	}
}

func isCRD(o object) bool { return o.GetKind() == "CustomResourceDefinition" }
