// Command authserver is the authorization server of test/authserver, for a pod. A request to /rotate has it
// sign with new keys from then on, while it still publishes the old ones.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/slipway-mcp/slipway/test/authserver"
)

var (
	listen = flag.String("listen", ":8443", "the address to serve at")
	issuer = flag.String("issuer", "", "the URL of the issuer, as others reach it")
	pair   = flag.String("pair", "", "a directory with the certificate to serve with and its key, tls.crt and tls.key")
	config = flag.String("config", "", `a JSON file: {"clients": [clients of RFC 7591, with their IDs]}`)
)

func main() {
	flag.Parse()
	fmt.Fprintln(os.Stderr, "authserver:", serve())
	os.Exit(1)
}

// serve serves until it fails.
func serve() error {
	text, err := os.ReadFile(*config)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	var known struct{ Clients []authserver.Client }
	if err := json.Unmarshal(text, &known); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	server := authserver.New(*issuer, authserver.Options{Clients: known.Clients})
	routes := http.NewServeMux()
	routes.Handle("/", server)
	routes.HandleFunc("POST /rotate", func(http.ResponseWriter, *http.Request) { server.Rotate() })
	serving := &http.Server{Addr: *listen, Handler: routes, ReadHeaderTimeout: time.Minute}
	return fmt.Errorf("serve: %w", serving.ListenAndServeTLS(filepath.Join(*pair, "tls.crt"), filepath.Join(*pair, "tls.key")))
}
