package controller

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/slipway-mcp/slipway/test/hang"
)

// grantLease gives the manager the rights that it has in its own namespace.
func grantLease(t *testing.T, namespace string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "config/rbac/role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.Role{}
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); role.Kind != "Role"; {
		*role = rbacv1.Role{}
		if err := decoder.Decode(role); err != nil {
			t.Fatalf("read role: %v", err)
		}
	}
	role.Namespace = namespace
	create(t, role, &rbacv1.RoleBinding{
		ObjectMeta: objectMeta(namespace, operatorUser),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: operatorUser}},
	})
}

// Adapters refuse a list that is older than theirs. So each manager's lists are newer than those of the one before,
// also if leader election was turned off in between.
func TestListsOfTheNextManagerAreNewer(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	operator, server, c, pods := crowdedServer(t, 1, 2)
	operator.stop()
	grantLease(t, server.Namespace)
	const termBits = 30 // below them, a generation has the count of the manager
	term := func() int64 { return c.generation(pods[0].UID) >> termBits }
	// The first manager has no namespace for a Lease, so its term is the second in which it started.
	g.Eventually(func() int64 { return time.Now().Unix() }).WithTimeout(hang.Guard).Should(BeNumerically(">", term()))
	for _, elected := range []bool{true, false, false, true, true, false, true} {
		last := term()
		operator = startOperator(t, server.Namespace, func(o *operatorOptions) { o.elected, o.leases = elected, server.Namespace })
		g.Eventually(term).WithTimeout(hang.Guard).Should(BeNumerically(">", last), "of a manager with leader election: %t", elected)
		operator.stop()
	}
}
