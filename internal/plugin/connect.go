package plugin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/bearer"
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
		Long: "Make a server of the cluster available at a port of this machine, or on standard input and output for\n" +
			"clients that only start processes. The connection survives a restart of the server's pods.",
		Example: "  kubectl mcp connect tickets\n  kubectl mcp connect tickets --print claude-code",
		Args:    exactlyOne("name a server, as in kubectl mcp connect tickets"),
		RunE: func(command *cobra.Command, args []string) error {
			if forClient != "" {
				_, server, err := e.server(command.Context(), args[0])
				if err != nil {
					return err // rather now than in the client
				}
				return e.printClient(forClient, server, port)
			}
			return e.serveLocally(command.Context(), args[0], port, stdio)
		},
	}
	command.Flags().IntVar(&port, "port", mcpv1alpha1.AdapterPort, "port of this machine; 0 picks a free one")
	command.Flags().BoolVar(&stdio, "stdio", false, "speak on standard input and output instead")
	command.Flags().StringVar(&forClient, "print", "", "print how to configure a `client` and end: claude-code, claude-desktop, cursor or vscode")
	return e.calling(command)
}

// serveLocally serves a server until ctx ends.
func (e *environment) serveLocally(ctx context.Context, name string, port int, stdio bool) error {
	line, err := e.lifeline(ctx, name)
	if err != nil {
		return err
	}
	defer line.close()
	if stdio {
		if err := needToken(line.server, line.tokens); err != nil {
			return err // a client on standard input has no token of its own
		}
		b := &bridge.Bridge{Client: &http.Client{Transport: line.transport()}, Endpoint: endpoint}
		return b.Run(ctx, e.In, e.Out)
	}
	local, err := listen(ctx, line.transport(), port, line.tokens != nil)
	if err != nil {
		return err
	}
	defer local.close()
	line.announce(local)
	return local.wait(ctx)
}

// announce says where a server is, and what its clients need.
func (l *lifeline) announce(local *loopback) {
	_, _ = fmt.Fprintf(l.ErrOut, "Serving MCPServer %s at %s until you press Ctrl+C.\n", l.server.Name, local.url)
	switch {
	case l.tokens != nil:
		_, _ = fmt.Fprintf(l.ErrOut, "Requests get the token of %s, in place of any that a client sends.\n", l.tokens)
	case wantsToken(l.server):
		_, _ = fmt.Fprintf(l.ErrOut, "The server wants a token, so clients must send one with every request, unless you stop and:\n%s\n", text.Block(howToGetToken(l.server), errorBytes))
	}
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

	tokens bearer.Source // nil if requests get none
}

// lifeline opens a lifeline. It fails at once if the server does not exist.
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
	if l.tokens, err = e.tokens(ctx, api, server); err != nil {
		return nil, err
	}
	l.current, l.to, err = e.openPod(ctx, api, config, server)
	return l, err
}

// transport is for requests to the server.
func (l *lifeline) transport() http.RoundTripper {
	return withTokens(&http.Transport{DialContext: l.dial}, l.tokens)
}

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
