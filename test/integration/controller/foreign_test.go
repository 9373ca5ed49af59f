//go:build bench

package controller

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	foreignNamespaces = 100
	foreignBytes      = 1 << 10 // in each object
	foreignAtATime    = 32
)

// createForeign makes Secrets and ConfigMaps that no MCPServer refers to, in namespaces
// that have none.
func createForeign(t *testing.T, count int) {
	t.Helper()
	if count == 0 {
		return
	}
	var namespaces []string
	for range foreignNamespaces {
		namespaces = append(namespaces, newNamespace(t))
	}
	value := strings.Repeat("x", foreignBytes)
	var making sync.WaitGroup
	for worker := range foreignAtATime {
		making.Go(func() {
			for i := worker; i < count; i += foreignAtATime {
				meta := objectMeta(namespaces[i%foreignNamespaces], fmt.Sprintf("foreign-%06d", i))
				meta.Annotations = map[string]string{"example.com/owner": "a team that has nothing to do with Slipway"}
				var object client.Object = &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"value": value}}
				if i/foreignNamespaces%2 == 1 {
					object = &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"value": value}}
				}
				if err := shared.client.Create(t.Context(), object); err != nil {
					t.Errorf("create %T %s: %v", object, meta.Name, err)
					return
				}
			}
		})
	}
	making.Wait()
	if t.Failed() {
		t.FailNow()
	}
}
