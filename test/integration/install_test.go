package integration

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-mcp/slipway/internal/config"
)

// TestMain has applied the installer already; what is left to see is that the
// API server kept what it was given, and that applying it again changes nothing.
func TestInstallerIsStable(t *testing.T) {
	g := NewWithT(t)
	versions := func() map[string]string {
		versions := map[string]string{}
		for _, o := range installer {
			live := &unstructured.Unstructured{}
			live.SetGroupVersionKind(o.GroupVersionKind())
			g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(o), live)).To(Succeed())
			versions[o.GetKind()+"/"+o.GetName()] = live.GetResourceVersion()
		}
		return versions
	}
	before := versions()
	g.Expect(shared.install(t.Context(), installer)).To(Succeed())
	g.Expect(versions()).To(Equal(before))
}

func TestInstallerNamesTheImageAndTheVersion(t *testing.T) {
	for name, test := range map[string]struct{ prefix, version, want string }{
		"as asked":        {"registry.example:5000/a/b", "v1.2.3", "registry.example:5000/a/b/manager:v1.2.3"},
		"without a wish":  {"", "", "localhost/slipway/manager:dev"},
		"like an integer": {"registry.example/slipway", "1", "registry.example/slipway/manager:1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects, err := renderInstaller(t.Context(), filepath.Join(t.TempDir(), "install.yaml"), test.prefix, test.version)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(deployment(t, objects).Spec.Template.Spec.Containers[0].Image).To(Equal(test.want))
		})
	}
	for name, test := range map[string]struct{ prefix, version string }{
		"a version that is no tag": {"registry.example/slipway", "v1+dirty"},
		"a prefix with a newline":  {"registry.example/a\nb", "v1"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := renderInstaller(t.Context(), filepath.Join(t.TempDir(), "install.yaml"), test.prefix, test.version); err == nil {
				t.Error("hack/installer.sh took it")
			}
		})
	}
}

func TestInstalledConfigurationIsValid(t *testing.T) {
	g := NewWithT(t)
	var files []string
	for _, o := range installer {
		if o.GetKind() != "ConfigMap" {
			continue
		}
		var configMap corev1.ConfigMap
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &configMap)).To(Succeed())
		for _, name := range slices.Sorted(maps.Keys(configMap.Data)) {
			files = append(files, configMap.Data[name])
		}
		mounted := deployment(t, installer).Spec.Template.Spec.Volumes[0].ConfigMap.Name
		g.Expect(mounted).To(Equal(configMap.Name), "the pod mounts another ConfigMap")
	}
	g.Expect(files).To(HaveLen(1))
	_, err := config.Decode([]byte(files[0]))
	g.Expect(err).NotTo(HaveOccurred())
}

func TestManagerPodPassesRestricted(t *testing.T) {
	template := deployment(t, installer).Spec.Template
	for name, test := range map[string]struct {
		change   func(*corev1.PodSpec)
		admitted bool
	}{
		"as installed": {func(*corev1.PodSpec) {}, true},
		// Shows that the namespace enforces anything at all.
		"with more rights": {func(spec *corev1.PodSpec) {
			spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = new(true)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "manager-", Namespace: systemNamespace, Labels: template.Labels},
				Spec:       *template.Spec.DeepCopy(),
			}
			test.change(&pod.Spec)
			err := shared.client.Create(t.Context(), pod)
			if test.admitted {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			g.Expect(err).To(MatchError(ContainSubstring(`violates PodSecurity "restricted:latest"`)))
		})
	}
}

func deployment(t *testing.T, objects []object) *appsv1.Deployment {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		deployment := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, deployment); err != nil {
			t.Fatalf("read Deployment: %v", err)
		}
		return deployment
	}
	t.Fatal("the installer holds no Deployment")
	return nil
}
