// Command standin stands in for the public registries that the pages of the documentation name: it has
// the images that a test has pushed, for each registry apart. Clients reach it by TLS under the registries' names, and
// containerd by plain HTTP, with the registry's name in the query (ns).
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

const headerTimeout = 10 * time.Second

func main() {
	names := flag.String("names", "docker.io", "comma-separated `names` of the registries")
	plain := flag.String("plain", ":5000", "`address` to speak plain HTTP at")
	secure := flag.String("tls", ":8443", "`address` to speak TLS at")
	pair := flag.String("pair", "/etc/standin", "`directory` with tls.crt and tls.key")
	flag.Parse()

	handler := newRegistries(strings.Split(*names, ","))
	failed := make(chan error, 2)
	go func() {
		server := &http.Server{Addr: *plain, Handler: handler, ReadHeaderTimeout: headerTimeout}
		failed <- server.ListenAndServe()
	}()
	go func() {
		server := &http.Server{Addr: *secure, Handler: handler, ReadHeaderTimeout: headerTimeout, Protocols: new(http.Protocols)}
		// The registry takes one upload at a time, and the others wait. With HTTP/2 they would share one connection, and
		// what it does not read of the others would leave no flow-control window for the one that it reads: a deadlock.
		server.Protocols.SetHTTP1(true)
		failed <- server.ListenAndServeTLS(*pair+"/tls.crt", *pair+"/tls.key")
	}()
	fmt.Fprintln(os.Stderr, "standin:", <-failed)
	os.Exit(1)
}

// hub is what Docker Hub is called by those who connect to it, and by those who name its images.
var hub = map[string]string{"index.docker.io": "docker.io", "registry-1.docker.io": "docker.io"}

// registries are handlers by the name of the registry, which keep images in memory.
type registries map[string]http.Handler

func newRegistries(names []string) registries {
	all := registries{}
	for _, name := range names {
		all[name] = registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	}
	return all
}

func (r registries) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	name := request.URL.Query().Get("ns")
	if name == "" {
		name, _, _ = strings.Cut(request.Host, ":")
	}
	if usual, ok := hub[name]; ok {
		name = usual
	}
	handler := r[name]
	if handler == nil {
		http.Error(w, "standin: no registry is called "+name, http.StatusNotFound)
		return
	}
	handler.ServeHTTP(w, request)
}
