//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

const (
	operatorNamespace = "slipway-system"

	dumpTimeout = 10 * time.Second // for one question
	dumpedLines = 200              // of a container's log
)

// ownNamespaces are those of the spec that runs.
var ownNamespaces []string

var _ = BeforeEach(func() { ownNamespaces = nil })

// What is left of a spec that failed is all that explains it, and is gone soon.
var _ = JustAfterEach(func() {
	if CurrentSpecReport().Failed() {
		dump(append([]string{operatorNamespace}, ownNamespaces...)...)
	}
})

// dumpedKinds are shown in full. Secrets are not, because their values must not be in a log.
const dumpedKinds = "mcpservers,deployments,replicasets,pods,services,endpointslices,horizontalpodautoscalers,poddisruptionbudgets,controllerrevisions,leases"

// dump writes what is known of namespaces. It fails nothing: something has failed already.
func dump(namespaces ...string) {
	show("default", "get", "nodes", "-o", "wide")
	for _, namespace := range namespaces {
		GinkgoWriter.Printf("\n===== namespace %s\n", namespace)
		show(namespace, "get", dumpedKinds, "-o", "wide")
		show(namespace, "get", "events", "--sort-by=.lastTimestamp")
		show(namespace, "get", dumpedKinds, "-o", "yaml")
		ctx, cancel := context.WithTimeout(context.Background(), dumpTimeout)
		var list corev1.PodList
		if err := cluster.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			GinkgoWriter.Println("list pods:", err)
		}
		cancel()
		for i := range list.Items {
			dumpPod(&list.Items[i])
		}
	}
}

// dumpPod writes the logs of every container, and the adapter's catalog.
func dumpPod(pod *corev1.Pod) {
	for _, status := range containerStatuses(pod) {
		log := []string{"logs", pod.Name, "--container", status.Name, fmt.Sprintf("--tail=%d", dumpedLines)}
		show(pod.Namespace, log...)
		if status.RestartCount > 0 {
			show(pod.Namespace, append(log, "--previous")...)
		}
	}
	if server := pod.Labels[mcpv1alpha1.LabelServer]; server != "" && pod.Status.PodIP != "" && gate != nil {
		ctx, cancel := context.WithTimeout(context.Background(), dumpTimeout)
		defer cancel()
		GinkgoWriter.Printf("\n----- catalog of the adapter in %s\n", pod.Name)
		body, status, err := catalog(ctx, pod, key(ctx, pod.Namespace, server))
		GinkgoWriter.Println(status, body, err)
	}
}

// show writes what kubectl says, and gives up on it soon.
func show(namespace string, args ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), dumpTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "kubectl", append([]string{"--namespace", namespace}, args...)...).CombinedOutput()
	GinkgoWriter.Printf("\n----- kubectl %v\n%s", args, out)
	if err != nil {
		GinkgoWriter.Println(err)
	}
}

// key is what opens the catalogs of a server; the zero value if there is none.
func key(ctx context.Context, namespace, server string) adapterapi.Key {
	secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: server + "-keys"}}
	if err := cluster.Get(ctx, types.NamespacedName{Namespace: namespace, Name: secret.Name}, &secret); err != nil {
		GinkgoWriter.Println("read keys:", err)
	}
	current, _ := adapterapi.ParseKey(string(secret.Data[adapterapi.KeysCurrent]))
	return current
}

// catalog is what the adapter in a pod reports to those who have the key.
func catalog(ctx context.Context, pod *corev1.Pod, key adapterapi.Key) (body string, status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:16271/catalog", pod.Status.PodIP), http.NoBody)
	if err != nil {
		return "", 0, err
	}
	if key != (adapterapi.Key{}) {
		_, proof := adapterapi.NewProof(key, adapterapi.CatalogSubject(string(pod.UID)), time.Now())
		request.Header.Set(adapterapi.HeaderProof, proof)
	}
	return get(request)
}

// get sends a request to a server in the cluster, on a new connection.
func get(request *http.Request) (body string, status int, err error) {
	transport := &http.Transport{DialContext: gate.dial, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return string(data), response.StatusCode, err
}
