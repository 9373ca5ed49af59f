// Command netecho is what net/http costs by itself: it answers every request with its
// own body. No bridge can be faster, and a generator that is much faster against it
// than against a bridge is not what holds the bridge back.
package main

import (
	"io"
	"net/http"
	"strconv"

	"github.com/slipway-mcp/slipway/bench/listen"
)

func main() { listen.Serve("netecho", http.HandlerFunc(echo)) }

func echo(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, max(r.ContentLength, 0))
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // a client that is gone needs no answer
}
