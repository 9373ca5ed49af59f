package controller

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/hang"
)

// The adapters of a server with several pods get the manager's list of them.
func TestAdaptersGetTheListOfPods(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Replicas = new(int32(2))
	create(t, server)
	eventually(t, server, "Ready", "True Ready")
	g.Eventually(func() int32 { return status(t, server).ReadyReplicas }).WithTimeout(hang.Guard).Should(BeEquivalentTo(2))
	for _, pod := range listed(t, namespace, &corev1.PodList{}) {
		address := pod.(*corev1.Pod).Status.PodIP
		g.Eventually(metricsAt).WithArguments(t, address).WithTimeout(hang.Guard).
			Should(MatchRegexp(`(?m)^slipway_adapter_peer_list_age_seconds [0-9.e-]*[1-9]`), "of pod %s", pod.GetName())
	}
}

// metricsAt are the metrics of the adapter at an address; empty if it does not answer.
func metricsAt(t *testing.T, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s:%d/metrics", address, mcpv1alpha1.AdapterAdminPort), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return ""
	}
	return string(text)
}
