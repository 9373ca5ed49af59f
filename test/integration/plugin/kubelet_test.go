package plugin

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// kubelet forwards ports, as that of a node does, to handlers that stand in for pods.
type kubelet struct {
	node string

	mu   sync.Mutex
	pods map[string]net.Addr // what a port of a pod leads to, by namespace, name and port
}

// startKubelet adds a node whose kubelet is a stand-in.
func startKubelet(t *testing.T, node string) *kubelet {
	t.Helper()
	k := &kubelet{node: node, pods: map[string]net.Addr{}}
	server := httptest.NewTLSServer(k)
	t.Cleanup(server.Close)
	address := server.Listener.Addr().(*net.TCPAddr)
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	create(t, object)
	t.Cleanup(func() { remove(t, object) })
	object.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.IP.String()}}
	object.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(address.Port)
	if err := admin.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	return k
}

// addPod adds a pod of a server that is ready. Its admin port leads to a handler, or nowhere.
func (k *kubelet) addPod(t *testing.T, namespace, server, name string, handler http.HandlerFunc) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{mcpv1alpha1.LabelServer: server}},
		Spec:       corev1.PodSpec{NodeName: k.node, Containers: []corev1.Container{{Name: "server", Image: "registry.example/server"}}},
	}
	create(t, pod)
	t.Cleanup(func() { remove(t, pod) })
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := admin.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if handler != nil {
		k.serve(t, namespace+"/"+name, mcpv1alpha1.AdapterAdminPort, handler)
	}
}

// serve has a port of a pod lead to a handler.
func (k *kubelet) serve(t *testing.T, pod string, port int, handler http.Handler) {
	t.Helper()
	backend := httptest.NewServer(handler)
	t.Cleanup(backend.Close)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods[pod+":"+strconv.Itoa(port)] = backend.Listener.Addr()
}

func remove(t *testing.T, object client.Object) {
	t.Helper()
	if err := admin.Delete(context.WithoutCancel(t.Context()), object, client.GracePeriodSeconds(0)); err != nil {
		t.Error(err)
	}
}

// ServeHTTP implements http.Handler.
func (k *kubelet) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	pod, ok := strings.CutPrefix(request.URL.Path, "/portForward/")
	if !ok {
		http.NotFound(w, request)
		return
	}
	if _, err := httpstream.Handshake(request, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		return // it has answered
	}
	streams := make(chan httpstream.Stream, 16)
	tunnel := spdy.NewResponseUpgrader().UpgradeResponse(w, request, func(stream httpstream.Stream, _ <-chan struct{}) error {
		streams <- stream
		return nil
	})
	if tunnel == nil {
		return
	}
	defer func() { _ = tunnel.Close() }()
	problems := map[string]httpstream.Stream{}
	for {
		select {
		case <-tunnel.CloseChan():
			return
		case stream := <-streams:
			number := stream.Headers().Get(corev1.PortForwardRequestIDHeader)
			if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				problems[number] = stream
			} else {
				go k.forward(request.Context(), pod, stream, problems[number])
			}
		}
	}
}

// forward carries a connection.
func (k *kubelet) forward(ctx context.Context, pod string, data, problems httpstream.Stream) {
	defer func() { _, _ = data.Close(), problems.Close() }()
	port := data.Headers().Get(corev1.PortHeader)
	k.mu.Lock()
	address := k.pods[pod+":"+port]
	k.mu.Unlock()
	if address == nil {
		_, _ = fmt.Fprintf(problems, "dial tcp4 127.0.0.1:%s: connect: connection refused", port)
		return
	}
	conn, err := new(net.Dialer).DialContext(ctx, address.Network(), address.String())
	if err != nil {
		_, _ = fmt.Fprint(problems, err)
		return
	}
	defer func() { _ = conn.Close() }()
	go func() {
		_, _ = io.Copy(conn, data)
		_ = conn.Close()
	}()
	_, _ = io.Copy(data, conn)
}
