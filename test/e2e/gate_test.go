//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
	"github.com/slipway-mcp/slipway/test/forward"
)

// wayIn leads from the tests into the cluster's network; see gate/main.go.
type wayIn struct {
	proxy    string // host:port
	registry string // host:port, the same for tests, nodes and pods
	image    string
	node     string // where it runs
	through  *wayIn // the way to a proxy that only pods reach
	entry    string // host:port that all connections lead to, whatever they name; empty for a way to everything
}

// at leads to one replica, past the Service.
func (g *wayIn) at(replica *corev1.Pod) *wayIn {
	way := *g
	way.entry = adapterOf(replica)
	return &way
}

const (
	gateName      = "gate"
	gateNamespace = "slipway-e2e"

	// The same with every run, so that a node that is used again has the same names.
	proxyPort    = 30627
	registryPort = 30628
)

// openGate runs the gate behind a port of the nodes.
func openGate(ctx context.Context) *wayIn {
	GinkgoHelper()
	image := loadGate(ctx)
	home := schedulableNodes(ctx)[0]
	labels := map[string]string{"app": gateName}
	meta := metav1.ObjectMeta{Name: gateName, Namespace: gateNamespace}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:   gateNamespace,
			Labels: map[string]string{ownLabel: "", "pod-security.kubernetes.io/enforce": "restricted"},
		}},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				// The registry keeps images in memory, so the pod stays where specs take no node away.
				Spec: gatePod(image, home.Name),
			},
		}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: labels,
			Ports: []corev1.ServicePort{
				{Name: "proxy", Port: 8080, TargetPort: intstr.FromInt32(8080), NodePort: proxyPort},
				{Name: "registry", Port: 5000, TargetPort: intstr.FromInt32(5000), NodePort: registryPort},
			},
		}},
	} {
		Expect(cluster.Create(ctx, object)).To(Succeed())
	}
	kubectl(ctx, gateNamespace, "rollout", "status", "deployment/"+gateName, "--timeout=60s")
	address := internalAddress(&home)
	g := &wayIn{
		image:    image,
		node:     home.Name,
		proxy:    net.JoinHostPort(address, strconv.Itoa(proxyPort)),
		registry: net.JoinHostPort(address, strconv.Itoa(registryPort)),
	}
	// The Service reaches a ready pod only once every node has updated its rules.
	Eventually(func() error {
		for _, address := range []string{g.proxy, g.registry} {
			probe, err := net.Dial("tcp", address)
			if err != nil {
				return err
			}
			_ = probe.Close()
		}
		return nil
	}).WithContext(ctx).Should(Succeed())
	run(ctx, cluster.tool, "trust", g.registry)
	return g
}

// gatePod runs the gate on a node, also on one that is cordoned.
func gatePod(image, node string) corev1.PodSpec {
	return restricted(corev1.PodSpec{
		NodeName: node,
		Containers: []corev1.Container{{
			Name: gateName, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
			ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}},
		}},
	})
}

// loadGate builds the gate's image, and loads it because there is no registry yet.
func loadGate(ctx context.Context) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	program := filepath.Join(dir, gateName)
	buildStatic(ctx, program, "./test/e2e/gate")
	image, err := imagebuild.Image(imagebuild.Spec{
		Platform:   v1.Platform{OS: "linux", Architecture: goruntime.GOARCH},
		Files:      []imagebuild.File{{Path: "/gate", Source: program, Mode: 0o755}},
		Entrypoint: []string{"/gate"},
	})
	Expect(err).NotTo(HaveOccurred())
	name := "localhost/slipway-e2e/gate:" + contentTag(image)
	archive := filepath.Join(dir, "gate.tar")
	Expect(imagebuild.WriteTar(archive, name, image)).To(Succeed())
	run(ctx, cluster.tool, "load", archive)
	return name
}

func internalAddress(node *corev1.Node) string {
	GinkgoHelper()
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	Fail("node " + node.Name + " has no internal address")
	return ""
}

// errNoGate says that a test did not get as far as the gate. What it asked for was not asked.
var errNoGate = errors.New("dial gate")

// gatePatience is how long the gate's own port may refuse connections. kube-proxy refuses them for a
// moment while it rewrites its rules, which it does whenever pods of any Service come and go. That
// says nothing about the servers behind the gate.
const gatePatience = 5 * time.Second

// stream is a connection of which one direction can end before the other.
type stream interface {
	net.Conn
	CloseWrite() error
}

// dialGate connects to the gate itself.
func (g *wayIn) dialGate(ctx context.Context) (stream, error) {
	if g.through != nil {
		outer, err := g.through.dial(ctx, "tcp", g.proxy)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNoGate, err)
		}
		return outer.(stream), nil
	}
	for begin := time.Now(); ; {
		outer, err := new(net.Dialer).DialContext(ctx, "tcp", g.proxy)
		if err == nil {
			return outer.(stream), nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(begin) > gatePatience {
			return nil, fmt.Errorf("%w: %w", errNoGate, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errNoGate, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// dial connects to host:port as seen from inside the cluster.
func (g *wayIn) dial(ctx context.Context, _, target string) (net.Conn, error) {
	if g.entry != "" {
		target = g.entry
	}
	outer, err := g.dialGate(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = outer.Close() })
	defer stop()
	if _, err := fmt.Fprintf(outer, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		return nil, errors.Join(fmt.Errorf("ask gate for %s: %w", target, err), outer.Close())
	}
	reader := bufio.NewReader(outer)
	response, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask gate for %s: %w", target, err), outer.Close())
	}
	if response.StatusCode != http.StatusOK {
		words, _ := io.ReadAll(response.Body) // the status says enough
		return nil, errors.Join(fmt.Errorf("gate cannot connect to %s: %s", target, words), outer.Close())
	}
	return &gated{stream: outer, reader: reader}, nil
}

// gated is a connection of which the reader may already hold some bytes.
type gated struct {
	stream
	reader *bufio.Reader
}

func (c *gated) Read(p []byte) (int, error) { return c.reader.Read(p) }

// WriteTo keeps io.Copy from bypassing the reader.
func (c *gated) WriteTo(w io.Writer) (int64, error) { return c.reader.WriteTo(w) }

// httpClient returns a client of its own connections.
func (g *wayIn) httpClient() *http.Client {
	transport := &http.Transport{DialContext: g.dial}
	DeferCleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// forward listens on a port of this machine's loopback, until the spec is over, and
// leads from there to a host:port in the cluster.
func (g *wayIn) forward(ctx context.Context, target string) (address string) {
	GinkgoHelper()
	address, end, err := forward.Listen(ctx, func(ctx context.Context) (net.Conn, error) { return g.dial(ctx, "tcp", target) }, nil)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(end)
	return address
}
