// Command gate is what the end-to-end tests have inside the cluster: a way in, and a
// registry. The way in is an HTTP proxy that knows CONNECT only, so tests outside reach
// Services by their names, as clients in the cluster do, whatever the cluster is. The
// registry keeps images in memory and speaks plain HTTP.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

const (
	proxyAddress    = ":8080"
	registryAddress = ":5000"

	dialTimeout   = 10 * time.Second
	headerTimeout = 10 * time.Second
)

func main() {
	failed := make(chan error, 2)
	for address, handler := range map[string]http.Handler{
		proxyAddress:    http.HandlerFunc(connect),
		registryAddress: slowly(registry.New(registry.Logger(log.New(io.Discard, "", 0)))),
	} {
		server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: headerTimeout}
		go func() { failed <- server.ListenAndServe() }()
	}
	fmt.Fprintln(os.Stderr, "gate:", <-failed)
	os.Exit(1)
}

const (
	// slowRepositories begins the paths of repositories whose layers come slowly, as from a registry
	// that is far away.
	slowRepositories = "/v2/slow/"
	slowPiece        = 64 << 10 // bytes
	slowRate         = 4 << 20  // bytes a second
)

// slowly serves the layers of some repositories slowly.
func slowly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, slowRepositories) && strings.Contains(r.URL.Path, "/blobs/") {
			w = slowWriter{w}
		}
		next.ServeHTTP(w, r)
	})
}

type slowWriter struct{ http.ResponseWriter }

func (w slowWriter) Write(content []byte) (written int, err error) {
	for piece := range slices.Chunk(content, slowPiece) {
		n, err := w.ResponseWriter.Write(piece)
		written += n
		if err != nil {
			return written, err
		}
		time.Sleep(time.Second * slowPiece / slowRate)
	}
	return written, nil
}

// connect joins the client with the address that it asks for.
func connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT is known here", http.StatusMethodNotAllowed)
		return
	}
	dialing, cancel := context.WithTimeout(r.Context(), dialTimeout)
	defer cancel()
	target, err := new(net.Dialer).DialContext(dialing, "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = target.Close() }()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gate: hijack connection:", err)
		return
	}
	defer func() { _ = client.Close() }()
	// By hand, because net/http would announce a body.
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	join(client, buffered, target)
}

// join copies both ways until both are done. An end of one direction is passed on, and
// so is a failure: what the client sees is what it would see without us.
func join(client net.Conn, fromClient io.Reader, target net.Conn) {
	done := make(chan error, 2)
	pass := func(to net.Conn, from io.Reader) {
		_, err := io.Copy(to, from)
		if half, ok := to.(*net.TCPConn); ok {
			err = errors.Join(err, half.CloseWrite())
		}
		done <- err
	}
	go pass(target, fromClient)
	go pass(client, target)
	for range 2 {
		if err := <-done; err != nil {
			return // The deferred Closes end the other direction.
		}
	}
}
