// Command relay is the barest hop between a client and a bridge: it passes each request on by net/http. It decides nothing, verifies nothing and encrypts nothing. What passing requests on to another pod costs more shows as
// a ratio to it.
package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"sync"

	"github.com/slipway-mcp/slipway/bench/listen"
)

// The argument is the address of the bridge.
func main() {
	listen.Serve("relay", &relay{
		bridge: &url.URL{Scheme: "http", Host: os.Args[1], Path: "/mcp"}, transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1 << 10},
	})
}

type relay struct {
	bridge    *url.URL
	transport *http.Transport
}

const pieceSize = 32 << 10

var pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}

func (f *relay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The transport may still be at the end of a body when the answer is there, and net/http begins no answer meanwhile.
	body := make([]byte, max(r.ContentLength, 0))
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	onward := &http.Request{Method: r.Method, URL: f.bridge, Header: r.Header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: r.ContentLength, Host: r.Host}
	response, err := f.transport.RoundTrip(onward.WithContext(r.Context()))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = response.Body.Close() }()
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
	if response.ContentLength < 0 { // the first event may be long in coming
		_ = http.NewResponseController(w).Flush()
	}
	piece := pieces.Get().(*[pieceSize]byte)
	defer pieces.Put(piece)
	for {
		n, err := response.Body.Read(piece[:])
		if _, failed := w.Write(piece[:n]); failed != nil {
			return
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if response.ContentLength < 0 {
			_ = http.NewResponseController(w).Flush()
		}
	}
}
