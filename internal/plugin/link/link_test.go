package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/slipway-mcp/slipway/test/hang"
)

// kubelet is what the API server leads to: it gets the two streams of each connection to a port.
type kubelet struct {
	connected func(port string, data, problems httpstream.Stream)

	mu       sync.Mutex
	requests []string // as METHOD UPGRADE
	half     map[string]httpstream.Stream
}

// ServeHTTP implements http.Handler as an API server does behind a proxy that knows no WebSockets.
func (k *kubelet) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	k.mu.Lock()
	k.requests = append(k.requests, request.Method+" "+request.Header.Get("Upgrade"))
	k.mu.Unlock()
	if strings.EqualFold(request.Header.Get("Upgrade"), "websocket") {
		http.Error(w, "no WebSockets here", http.StatusForbidden)
		return
	}
	if _, err := httpstream.Handshake(request, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		return // it has answered
	}
	tunnel := spdy.NewResponseUpgrader().UpgradeResponse(w, request, k.stream)
	if tunnel != nil {
		<-tunnel.CloseChan()
		_ = tunnel.Close()
	}
}

// stream takes one stream of a connection. The second of two begins the connection.
func (k *kubelet) stream(stream httpstream.Stream, replied <-chan struct{}) error {
	number, kind := stream.Headers().Get(corev1.PortForwardRequestIDHeader), stream.Headers().Get(corev1.StreamType)
	k.mu.Lock()
	defer k.mu.Unlock()
	other, ok := k.half[number]
	if !ok {
		if kind != corev1.StreamTypeError {
			return errors.New("the error stream comes first")
		}
		k.half[number] = stream
		return nil
	}
	delete(k.half, number)
	go func() {
		<-replied
		k.connected(stream.Headers().Get(corev1.PortHeader), stream, other)
	}()
	return nil
}

// open connects to a pod of a kubelet.
func open(t *testing.T, connected func(port string, data, problems httpstream.Stream)) (*Pod, *kubelet) {
	t.Helper()
	k := &kubelet{connected: connected, half: map[string]httpstream.Stream{}}
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	pod, err := Open(t.Context(), &rest.Config{Host: server.URL}, types.NamespacedName{Namespace: "a", Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pod.Close() })
	return pod, k
}

// echo sends back what it gets.
func echo(_ string, data, problems httpstream.Stream) {
	_ = problems.Close()
	_, _ = io.Copy(data, data)
	_ = data.Close()
}

func dial(t *testing.T, pod *Pod, port int) net.Conn {
	t.Helper()
	conn, err := pod.Dial(port)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// exchange sends a text to an echo, and reads it back.
func exchange(conn net.Conn, text string) error {
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != text {
		return fmt.Errorf("got %q, want %q", got, text)
	}
	return nil
}

// Some proxies in front of API servers know no WebSockets. Then it is SPDY, as with kubectl port-forward.
func TestWithoutWebSockets(t *testing.T) {
	pod, k := open(t, echo)
	conn := dial(t, pod, 8080)
	if err := exchange(conn, "hello"); err != nil {
		t.Error(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if got := strings.Join(k.requests, ", "); got != "GET websocket, POST SPDY/3.1" {
		t.Errorf("the requests were %s", got)
	}
}

// A connection that the API server does not answer ends with the context.
func TestContext(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, &rest.Config{Host: server.URL}, types.NamespacedName{Namespace: "a", Name: "b"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	server.CloseClientConnections()
}

// The error of a pod that cannot be reached says why.
func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	_, err := Open(t.Context(), &rest.Config{Host: server.URL}, types.NamespacedName{Namespace: "a", Name: "b"})
	if err == nil || !strings.HasPrefix(err.Error(), "connect to pod a/b: ") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
}

// What the kubelet says is the error of the connection, and the tunnel is of no more use.
func TestProblem(t *testing.T) {
	pod, _ := open(t, func(port string, data, problems httpstream.Stream) {
		_, _ = io.WriteString(problems, "nothing listens on port "+port+"\n")
		_ = problems.Close()
		_ = data.Close()
	})
	conn := dial(t, pod, 8080)
	_, err := conn.Read(make([]byte, 1))
	if want := "connect to port 8080 of pod a/b: nothing listens on port 8080"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	select {
	case <-pod.Done():
	case <-time.After(hang.Guard):
		t.Error("the tunnel is still open")
	}
	if _, err := conn.Write([]byte("x")); err == nil || !strings.Contains(err.Error(), "nothing listens") { // whatever came first
		t.Errorf("a write after that: %v", err)
	}
}

// The error of a request has the kubelet's words only, whether the request is sent before or after the refusal.
func TestProblemOfRequest(t *testing.T) {
	refuse := func(port string, data, problems httpstream.Stream) {
		_, _ = io.WriteString(problems, "nothing listens on port "+port)
		_ = problems.Close()
		_ = data.Close()
	}
	for name, got := range map[string]func(*Pod){
		"at once":                     func(*Pod) {},
		"after the kubelet's refusal": func(pod *Pod) { <-pod.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			pod, _ := open(t, refuse)
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got(pod) }})
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://pod/", io.MultiReader()) // not sent twice
			if err != nil {
				t.Fatal(err)
			}
			response, err := pod.Client(8080).Do(request)
			if err == nil {
				_ = response.Body.Close()
				t.Fatalf("got status %d", response.StatusCode)
			}
			if want := `Post "http://pod/": connect to port 8080 of pod a/b: nothing listens on port 8080`; err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// The end of a connection ends both of its streams on both sides, and no other connection.
func TestClose(t *testing.T) {
	left := make(chan struct{})
	pod, _ := open(t, func(port string, data, problems httpstream.Stream) {
		if port != "1" {
			echo(port, data, problems)
			return
		}
		_, _ = io.Copy(io.Discard, data) // it says nothing by itself
		close(left)
	})
	closed, other := dial(t, pod, 1), dial(t, pod, 2)
	unblocked := make(chan error, 1)
	go func() {
		_, err := closed.Read(make([]byte, 1))
		unblocked <- err
	}()
	for _, attempt := range []string{"first", "second"} {
		if err := closed.Close(); err != nil {
			t.Errorf("%s time: %v", attempt, err)
		}
	}
	for what, ended := range map[string]<-chan struct{}{"data at the kubelet": left, "problems": closed.(*conn).ended} {
		select {
		case <-ended:
		case <-time.After(hang.Guard):
			t.Errorf("the stream of %s is still open", what)
		}
	}
	select {
	case err := <-unblocked:
		if !errors.Is(err, io.EOF) {
			t.Errorf("a read ends with %v", err)
		}
	case <-time.After(hang.Guard):
		t.Error("a read still waits")
	}
	if err := exchange(other, "still there"); err != nil {
		t.Error(err)
	}
}

// Connections share a tunnel, and nothing else.
func TestManyConnections(t *testing.T) {
	pod, _ := open(t, func(port string, data, problems httpstream.Stream) {
		_ = problems.Close()
		_, _ = io.WriteString(data, port+"\n")
		echo(port, data, problems)
	})
	var calls sync.WaitGroup
	for port := 1; port <= 50; port++ {
		calls.Go(func() {
			conn, err := pod.Dial(port)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			greeting := make([]byte, len(fmt.Sprintln(port)))
			if _, err := io.ReadFull(conn, greeting); err != nil || string(greeting) != fmt.Sprintln(port) {
				t.Errorf("port %d says %q, %v", port, greeting, err)
			}
			for i := range 20 {
				if err := exchange(conn, strings.Repeat(fmt.Sprintf("%d.%d ", port, i), 500)); err != nil {
					t.Errorf("port %d: %.60v", port, err)
					return
				}
			}
		})
	}
	calls.Wait()
}
