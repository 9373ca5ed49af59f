package plugin

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/plugin/peer"
	"github.com/slipway-mcp/slipway/internal/text"
)

// loopback is a port of this machine that leads to a server.
type loopback struct {
	url    string
	server *http.Server
	ended  chan error // has room for why it serves no more
}

// listen serves what a transport leads to at a port of this machine; 0 is a free one. If the transport adds a
// token to requests, the port is private: the rights of the token are not for other users of the machine.
func listen(ctx context.Context, transport http.RoundTripper, port int, isPrivate bool) (*loopback, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fail(exitUnexpected, "Choose another port: --port 0 picks a free one.", "listen: %w", err)
	}
	local := &loopback{
		url:    "http://" + listener.Addr().String() + "/mcp",
		server: &http.Server{Handler: guard(proxy(transport, isPrivate)), ReadHeaderTimeout: time.Minute},
		ended:  make(chan error, 1),
	}
	if isPrivate {
		local.url = "http://" + listener.Addr().String() + keepPrivate(local.server, peer.IsKnown) + "/mcp"
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

// fromOwn is the key of whether a connection comes from a process of the same user.
type fromOwn struct{}

// keepPrivate has a server refuse the processes of other users. Where the system does not tell whose
// processes they are, they must know the beginning of the path, which it returns.
func keepPrivate(server *http.Server, knowsPeers bool) (prefix string) {
	if !knowsPeers {
		prefix = "/" + rand.Text()
		server.Handler = http.StripPrefix(prefix, server.Handler)
		return prefix
	}
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		local, ofServer := conn.LocalAddr().(*net.TCPAddr)
		remote, ofClient := conn.RemoteAddr().(*net.TCPAddr)
		return context.WithValue(ctx, fromOwn{}, ofServer && ofClient && peer.IsOwn(local.AddrPort(), remote.AddrPort()))
	}
	next := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if isOwn, _ := request.Context().Value(fromOwn{}).(bool); !isOwn {
			http.Error(w, "kubectl mcp serves the user who started it, and no other", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, request)
	})
	return ""
}

// proxy passes every request on to the server.
func proxy(transport http.RoundTripper, addsToken bool) http.Handler {
	target := &url.URL{Scheme: "http", Host: "127.0.0.1"}
	return &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(target)
			request.Out.Host = target.Host
		},
		ModifyResponse: func(response *http.Response) error {
			if addsToken && response.StatusCode == http.StatusUnauthorized {
				// A login of the client would have no effect, because the plugin replaces its token.
				response.StatusCode, response.Status = http.StatusForbidden, ""
				response.Header.Del("WWW-Authenticate")
			}
			return nil
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
