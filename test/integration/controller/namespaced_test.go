package controller

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// A manager that looks at some namespaces only needs no right outside of them: a
// RoleBinding in each to the role that it has otherwise everywhere.
func TestOperatorOfOneNamespace(t *testing.T) {
	t.Parallel()
	namespace, other := newNamespace(t), newNamespace(t)
	user, err := shared.env.AddUser(envtest.User{Name: "slipway-" + namespace}, nil)
	if err != nil {
		t.Fatal(err)
	}
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "slipway"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "manager-role"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "slipway-" + namespace}},
	})
	startOperator(t, namespace, func(o *operatorOptions) { o.config = user.Config() })
	ours, theirs := newServer(namespace, "echo"), newServer(other, "echo")
	create(t, ours, theirs)
	eventually(t, ours, "Ready", "True Ready")
	if got := status(t, theirs); len(got.Conditions) != 0 {
		t.Errorf("a server of another namespace was touched: %s", describe(got))
	}
}
