package main

import (
	"bytes"
	"io"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

const (
	modernVersion = "2026-07-28"
	maxBody       = 16 << 20
)

// refuseInitialize makes the SDK's stateless handler one of the stateless revision only.
func refuseInitialize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		e, err := rpc.Scan(body)
		if err == nil && e.Kind == rpc.Request && e.ProtocolVersion == nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(e.ID.Of(body))+
				`,"error":{"code":-32022,"message":"unsupported protocol version","data":{"supported":["`+modernVersion+`"],"requested":""}}}`)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}
