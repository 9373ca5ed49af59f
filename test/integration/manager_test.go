package integration

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-mcp/slipway/test/hang"
)

func TestManagerStartsAndStops(t *testing.T) {
	g := NewWithT(t)
	manager := startManager(t, managerAccount, "")
	g.Eventually(manager.ready).WithTimeout(hang.Guard).Should(Succeed())
	g.Eventually(manager.answer).WithArguments("/healthz").WithTimeout(hang.Guard).Should(Equal(http.StatusOK))

	g.Eventually(holder).WithArguments(t).WithTimeout(hang.Guard).ShouldNot(BeEmpty(), "no manager holds the lease")
	g.Eventually(leaderElectionEvents).WithArguments(t).WithTimeout(hang.Guard).ShouldNot(BeEmpty(), "no Event tells of the election")

	manager.stop()
	g.Expect(holder(t)).To(BeEmpty(), "the lease was not released")
	g.Expect(manager.stderr.String()).NotTo(ContainSubstring("forbidden"), "the roles lack a right")
	for line := range strings.Lines(manager.stderr.String()) {
		g.Expect(json.Valid([]byte(line))).To(BeTrue(), "a line of the log is not JSON: %s", line)
	}
}

func TestMetricsAreForThoseWhoMay(t *testing.T) {
	g := NewWithT(t)
	manager := startManager(t, managerAccount, "")
	g.Eventually(manager.ready).WithTimeout(hang.Guard).Should(Succeed())

	namespace := newNamespace(t, shared, "metrics-")
	stranger := newAccount(t, shared, namespace, "stranger")
	prometheus := newAccount(t, shared, namespace, "prometheus")
	create(t, shared, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "metrics-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: metricsReader},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "prometheus"}},
	})

	for name, test := range map[string]struct {
		token string
		want  int
	}{
		"no token":              {"", http.StatusUnauthorized},
		"a token without right": {stranger, http.StatusForbidden},
		"a token with the role": {prometheus, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// The API server itself learns of a new binding a moment later.
			g.Eventually(func(g Gomega) {
				code, body, err := manager.scrape(test.token)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(code).To(Equal(test.want), body)
				if test.want != http.StatusOK {
					g.Expect(body).NotTo(ContainSubstring("slipway_"))
					return
				}
				g.Expect(body).To(MatchRegexp(`(?m)^slipway_build_info\{commit="[^"]+",go_version="go1\.[^"]+",version="` + testVersion + `"\} 1$`))
			}).WithTimeout(hang.Guard).Should(Succeed())
		})
	}
	manager.stop()
}

func TestStandbyTakesOver(t *testing.T) {
	g := NewWithT(t)
	// A lease that does not end by itself while the test waits. If the test fails, no manager
	// releases it for the next one.
	const election = ", leaseDuration: 2h, renewDeadline: 1h, retryPeriod: 200ms"
	t.Cleanup(func() {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: leaseName}}
		if err := shared.client.Delete(context.WithoutCancel(t.Context()), lease); err != nil {
			t.Error(err)
		}
	})
	first := startElected(t, managerAccount, election, "")
	g.Eventually(holder).WithArguments(t).WithTimeout(hang.Guard).ShouldNot(BeEmpty())
	leader := holder(t)

	second := startElected(t, managerAccount, election, "")
	g.Eventually(second.ready).WithTimeout(hang.Guard).Should(Succeed(), "a standby is ready, too")
	g.Expect(holder(t)).To(Equal(leader))

	first.stop()
	g.Eventually(holder).WithArguments(t).WithTimeout(hang.Guard).ShouldNot(Or(BeEmpty(), Equal(leader)), "the lease was not released")
	second.stop()
	g.Expect(holder(t)).To(BeEmpty())
}

func TestStandbyLeavesTheLeaseAlone(t *testing.T) {
	g := NewWithT(t)
	first := startManager(t, managerAccount, "")
	g.Eventually(holder).WithArguments(t).WithTimeout(hang.Guard).ShouldNot(BeEmpty())
	leader := holder(t)

	second := startManager(t, managerAccount, "")
	g.Eventually(second.ready).WithTimeout(hang.Guard).Should(Succeed())
	second.stop()
	g.Expect(holder(t)).To(Equal(leader))
	first.stop()
}

func TestManagerStopsWhileStarting(t *testing.T) {
	g := NewWithT(t)
	manager := startManager(t, managerAccount, "")
	g.Eventually(manager.stderr.String).WithTimeout(hang.Guard).Should(ContainSubstring("Starting manager"))
	manager.stop()
}

func TestManagerRefusesToStart(t *testing.T) {
	const (
		header  = "apiVersion: config.slipway.dev/v1alpha1\nkind: ManagerConfiguration\n"
		adapter = "adapter: {image: sidecar}\n"
	)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"an unknown field":      {[]string{"--config", writeFile(t, header+"metrics: {bindAdress: \":1\"}\n")}, `unknown field \"metrics.bindAdress\"`},
		"no such file":          {[]string{"--config", "/no/such/file"}, "read configuration: open /no/such/file"},
		"an argument":           {[]string{"start"}, `\"start\" is not a flag`},
		"no cluster":            {[]string{"--kubeconfig", "/no/such/kubeconfig"}, "read kubeconfig"},
		"a missing certificate": {[]string{"--kubeconfig", sharedKubeconfig(t), "--config", writeFile(t, header+adapter+"metrics: {certificateDirectory: /no/such}\n")}, "/no/such/tls.crt"},
		"no lease's namespace":  {[]string{"--kubeconfig", sharedKubeconfig(t), "--config", writeFile(t, header+adapter)}, "leader election namespace"},
		"no adapter":            {[]string{"--kubeconfig", sharedKubeconfig(t)}, "the adapter's image is not known: set adapter.image"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			manager := start(t, test.args...)
			g.Expect(manager.wait()).To(Equal(1))
			lines := strings.Split(strings.TrimSpace(manager.stderr.String()), "\n")
			g.Expect(lines[len(lines)-1]).To(And(ContainSubstring(`"level":"error"`), ContainSubstring(test.want)))
			g.Expect(strings.Count(manager.stderr.String(), `"level":"error"`)).To(Equal(1), "one line for one error")
		})
	}
}

func TestManagerTellsItsVersion(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), managerBinary, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := string(output); !strings.HasPrefix(got, "manager "+testVersion+" (commit ") {
		t.Errorf("--version: %q", got)
	}
}

func TestManagerWaitsForTheCRD(t *testing.T) {
	g := NewWithT(t)
	crds := slices.DeleteFunc(slices.Clone(installer), func(o object) bool { return !isCRD(o) })
	g.Expect(crds).NotTo(BeEmpty())
	t.Cleanup(func() {
		// For the tests that come after one that failed.
		if err := shared.install(context.WithoutCancel(t.Context()), crds); err != nil {
			t.Error(err)
		}
	})
	for _, crd := range crds {
		g.Expect(shared.client.Delete(t.Context(), crd.DeepCopy())).To(Succeed())
	}
	g.Eventually(shared.groups).WithTimeout(hang.Guard).ShouldNot(ContainElement("mcp.slipway.dev"))

	manager := startManager(t, managerAccount, "")
	g.Eventually(func() string {
		_, reason, _ := manager.probe("/readyz/cache")
		return reason
	}).WithTimeout(hang.Guard).Should(ContainSubstring("install the CustomResourceDefinition mcpservers.mcp.slipway.dev"))
	g.Eventually(manager.answer).WithArguments("/readyz").WithTimeout(hang.Guard).Should(Equal(http.StatusInternalServerError))
	g.Eventually(manager.answer).WithArguments("/healthz").WithTimeout(hang.Guard).Should(Equal(http.StatusOK), "a restart would not help")
	g.Expect(manager.stderr.String()).To(ContainSubstring("install the CustomResourceDefinition"), "the log says it, too")

	g.Expect(shared.install(t.Context(), crds)).To(Succeed())
	g.Eventually(manager.ready).WithTimeout(hang.Guard).Should(Succeed())
	manager.stop()
}

func TestManagerKeepsToItsNamespaces(t *testing.T) {
	// An account that has the manager's rights, but in one namespace only, after
	// which it is named.
	team := newNamespace(t, shared, "team-")
	newAccount(t, shared, systemNamespace, team)
	bind := func(namespace, kind string) {
		create(t, shared, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: team + "-", Namespace: namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: managerRole},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: systemNamespace, Name: team}},
		})
	}
	bind(systemNamespace, "Role")
	bind(team, "ClusterRole")

	t.Run("ready in its own", func(t *testing.T) {
		g := NewWithT(t)
		manager := startManager(t, team, "namespaces: ["+team+"]\n")
		g.Eventually(manager.ready).WithTimeout(hang.Guard).Should(Succeed())
		manager.stop()
	})
	t.Run("not ready in all", func(t *testing.T) {
		g := NewWithT(t)
		manager := startManager(t, team, "")
		// client-go logs the refusal after the list was tried, of whatever it lists first.
		g.Eventually(manager.stderr.String).WithTimeout(hang.Guard).Should(ContainSubstring("forbidden"))
		g.Eventually(func() (string, error) {
			_, reason, err := manager.probe("/readyz/cache")
			return reason, err
		}).WithTimeout(hang.Guard).Should(ContainSubstring("check that its ClusterRole may list and watch mcpservers"))
		manager.stop()
	})
	t.Run("not ready without the labels of namespaces", func(t *testing.T) {
		// No RoleBinding can give the right to list namespaces. A manager that does not know their labels must
		// not take a server for one that may be open, so it waits, and says for what.
		g := NewWithT(t)
		manager := startManager(t, team, "namespaces: ["+team+"]\nauth: {require: Selector, namespaceSelector: {matchLabels: {stage: production}}}\n")
		g.Eventually(manager.stderr.String).WithTimeout(hang.Guard).Should(ContainSubstring("namespaces is forbidden"))
		g.Eventually(func() (string, error) {
			_, reason, err := manager.probe("/readyz/cache")
			return reason, err
		}).WithTimeout(hang.Guard).Should(ContainSubstring("check that its ClusterRole may list and watch namespaces"))
		reader := metav1.ObjectMeta{Name: team + "-namespaces"}
		create(t, shared, &rbacv1.ClusterRole{
			ObjectMeta: reader, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list", "watch"}}},
		})
		create(t, shared, &rbacv1.ClusterRoleBinding{
			ObjectMeta: reader, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: reader.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: systemNamespace, Name: team}},
		})
		g.Eventually(manager.ready).WithTimeout(hang.Guard).Should(Succeed())
		manager.stop()
	})
}

// holder returns the identity that holds the lease. It is empty if no manager does.
func holder(t *testing.T) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: systemNamespace, Name: leaseName}
	if err := client.IgnoreNotFound(shared.client.Get(context.WithoutCancel(t.Context()), key, lease)); err != nil {
		t.Errorf("get Lease: %v", err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func leaderElectionEvents(t *testing.T) []corev1.Event {
	t.Helper()
	events := &corev1.EventList{}
	err := shared.client.List(t.Context(), events, client.InNamespace(systemNamespace), client.MatchingFields{"reason": "LeaderElection"})
	if err != nil {
		t.Errorf("list Events: %v", err)
	}
	return events.Items
}

func sharedKubeconfig(t *testing.T) string {
	t.Helper()
	path, err := shared.kubeconfig(t.Context(), systemNamespace, managerAccount)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func create(t *testing.T, c *cluster, o client.Object) {
	t.Helper()
	if err := c.client.Create(t.Context(), o); err != nil {
		t.Fatalf("create %T: %v", o, err)
	}
}

func newNamespace(t *testing.T, c *cluster, prefix string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	create(t, c, namespace)
	return namespace.Name
}

// newAccount makes a ServiceAccount and returns a token of it.
func newAccount(t *testing.T, c *cluster, namespace, name string) string {
	t.Helper()
	create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	token, err := c.token(t.Context(), namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	return token
}
