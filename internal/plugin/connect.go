package plugin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/bridge"
	"github.com/slipway-mcp/slipway/internal/plugin/link"
	"github.com/slipway-mcp/slipway/internal/text"
)

// endpoint is the URL of every server behind a link, which leads to one port of one pod.
const endpoint = "http://127.0.0.1/mcp"

func (e *environment) connect() *cobra.Command {
	var port int
	var stdio bool
	var forClient string
	command := &cobra.Command{
		Use:   "connect NAME",
		Short: "Make a server of the cluster available to clients on this machine",
		Long: "Serve a server of the cluster at a port of this machine, or on standard input and output for\n" +
			"clients that only start processes. It survives the restart of pods.",
		Example: "  kubectl mcp connect tickets\n  kubectl mcp connect tickets --print claude-code",
		Args:    exactlyOne("name a server, as in kubectl mcp connect tickets"),
		RunE: func(command *cobra.Command, args []string) error {
			if forClient != "" {
				if _, _, err := e.server(command.Context(), args[0]); err != nil {
					return err // rather now than in the client
				}
				return e.printClient(forClient, args[0], port)
			}
			return e.serveLocally(command.Context(), args[0], port, stdio)
		},
	}
	command.Flags().IntVar(&port, "port", mcpv1alpha1.AdapterPort, "port of this machine; 0 picks a free one")
	command.Flags().BoolVar(&stdio, "stdio", false, "speak on standard input and output instead")
	command.Flags().StringVar(&forClient, "print", "", "print how to configure a `client` and end: claude-code, claude-desktop, cursor or vscode")
	return command
}

// serveLocally serves a server until ctx ends.
func (e *environment) serveLocally(ctx context.Context, name string, port int, stdio bool) error {
	line, err := e.lifeline(ctx, name)
	if err != nil {
		return err
	}
	defer line.close()
	if stdio {
		b := &bridge.Bridge{Client: &http.Client{Transport: line.transport()}, Endpoint: endpoint}
		return b.Run(ctx, e.In, e.Out)
	}
	local, err := listen(ctx, line.transport(), port)
	if err != nil {
		return err
	}
	defer local.close()
	_, _ = fmt.Fprintf(e.ErrOut, "Serving MCPServer %s at %s until you press Ctrl+C.\n", name, local.url)
	return local.wait(ctx)
}

// loopback is a port of this machine that leads to a server.
type loopback struct {
	url    string
	server *http.Server
	ended  chan error // has room for why it serves no more
}

// listen serves what a transport leads to at a port of this machine; 0 is a free one.
func listen(ctx context.Context, transport http.RoundTripper, port int) (*loopback, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fail(exitUnexpected, "Choose another port: --port 0 picks a free one.", "listen: %w", err)
	}
	local := &loopback{
		url:    "http://" + listener.Addr().String() + "/mcp",
		server: &http.Server{Handler: guard(proxy(transport)), ReadHeaderTimeout: time.Minute},
		ended:  make(chan error, 1),
	}
	go func() { local.ended <- local.server.Serve(listener) }()
	return local, nil
}

// wait returns when ctx ends, or when the port serves no more.
func (l *loopback) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-l.ended:
		return fmt.Errorf("serve: %w", err)
	}
}

func (l *loopback) close() { _ = l.server.Close() }

// proxy passes every request on to the server.
func proxy(transport http.RoundTripper) http.Handler {
	target := &url.URL{Scheme: "http", Host: "127.0.0.1"}
	return &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(target)
			request.Out.Host = target.Host
		},
		Transport: transport, FlushInterval: -1, // events are passed on as they come
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, text.Line("kubectl mcp: "+err.Error(), errorBytes), http.StatusBadGateway)
		},
	}
}

// guard refuses requests for other hosts: a page in a browser could otherwise reach the server by a name
// that leads to this machine.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		host, _, err := net.SplitHostPort(request.Host)
		if err != nil {
			host = request.Host
		}
		address, err := netip.ParseAddr(host)
		if host != "localhost" && (err != nil || !address.IsLoopback()) {
			http.Error(w, "kubectl mcp serves localhost only", http.StatusForbidden)
			return
		}
		if origin := request.Header.Get("Origin"); origin != "" && !isLocal(origin) {
			http.Error(w, "kubectl mcp serves no pages of other hosts", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, request)
	})
}

// isLocal says whether a page comes from this machine, as that of an inspector does.
func isLocal(origin string) bool {
	parsed, err := url.Parse(origin)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(parsed.Hostname())
	return parsed.Hostname() == "localhost" || err == nil && address.IsLoopback()
}

// lifeline is a connection to a pod of a server. When the pod goes, the next request finds another.
type lifeline struct {
	*environment
	api    client.Client
	config *rest.Config
	server *mcpv1alpha1.MCPServer

	turn    chan struct{} // has room for the one that looks at current
	current *link.Pod
	to      *corev1.Pod // that current leads to
	past    []*link.Pod
}

// lifeline opens one. A server that is not there is told at once.
func (e *environment) lifeline(ctx context.Context, name string) (*lifeline, error) {
	api, server, err := e.server(ctx, name)
	if err != nil {
		return nil, err
	}
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	l := &lifeline{environment: e, api: api, config: config, server: server, turn: make(chan struct{}, 1)}
	l.current, l.to, err = e.openPod(ctx, api, config, server)
	return l, err
}

// transport is for requests to the server.
func (l *lifeline) transport() *http.Transport { return &http.Transport{DialContext: l.dial} }

// patience is how long a request waits for a pod, as long as a rollout takes that needs no pull.
const patience = 30 * time.Second

// dial connects to the server.
func (l *lifeline) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pod, err := l.pod(ctx, nil)
	if err != nil {
		return nil, err
	}
	conn, err := pod.Dial(mcpv1alpha1.AdapterPort)
	if err == nil {
		return conn, nil
	}
	if pod, err = l.pod(ctx, pod); err != nil {
		return nil, err
	}
	return pod.Dial(mcpv1alpha1.AdapterPort)
}

// pod is the one that serves now, and is not the one that failed. It waits for one while none does.
func (l *lifeline) pod(ctx context.Context, failed *link.Pod) (*link.Pod, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.current != nil && l.current != failed && !isDone(l.current) && l.stillServes(ctx) {
		return l.current, nil
	}
	if l.current != nil { // a pod that ends may still answer what is in flight
		l.past, l.current = append(l.past, l.current), nil
	}
	return l.reconnect(ctx)
}

// reconnect connects to a pod that serves. It waits for one, unless there will be none.
func (l *lifeline) reconnect(ctx context.Context) (*link.Pod, error) {
	for {
		opened, to, err := l.openPod(ctx, l.api, l.config, l.server)
		if err == nil {
			l.current, l.to = opened, to
			return opened, nil
		}
		if explain(err).code == exitCredentials {
			return nil, err
		}
		if l.hasStopped(ctx) {
			return nil, stopped(l.server)
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Second):
		}
	}
}

// stillServes says whether the pod of the current connection is there and takes requests. The tunnel
// itself stays open when the pod is gone. An API server that does not tell is no reason to look for another.
func (l *lifeline) stillServes(ctx context.Context) bool {
	pod := &corev1.Pod{}
	err := l.api.Get(ctx, client.ObjectKeyFromObject(l.to), pod)
	if err != nil {
		return !apierrors.IsNotFound(err)
	}
	return pod.UID == l.to.UID && isServing(pod)
}

// hasStopped says whether the user has stopped the server, so that there is no pod to wait for.
func (l *lifeline) hasStopped(ctx context.Context) bool {
	server := &mcpv1alpha1.MCPServer{}
	if err := l.api.Get(ctx, client.ObjectKeyFromObject(l.server), server); err == nil {
		l.server = server
	}
	return isStopped(l.server)
}

func isDone(pod *link.Pod) bool {
	select {
	case <-pod.Done():
		return true
	default:
		return false
	}
}

// close is called when nothing dials any more.
func (l *lifeline) close() {
	for _, pod := range append(l.past, l.current) {
		if pod != nil {
			_ = pod.Close()
		}
	}
}
