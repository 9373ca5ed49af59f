package mcpprobe

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// The probe distinguishes an adapter whose server fails from a full one, and both errors say why.
func TestBusy(t *testing.T) {
	const refusal = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server could not be started:\nsignal 9"}}`
	for name, test := range map[string]struct {
		failed bool
		body   string
		want   Error
	}{
		"full":            {false, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"every session slot is taken"}}`, Error{Detail: "every session slot is taken"}},
		"failed":          {true, refusal, Error{Detail: "the server could not be started: signal 9", Failed: true}},
		"no message":      {false, "Service Unavailable", Error{}},
		"nothing":         {true, "", Error{Failed: true}},
		"another message": {false, `{"error":"no"}`, Error{}},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if test.failed {
					w.Header().Set(adapterapi.HeaderFailed, "server")
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, test.body)
			}))
			defer server.Close()
			_, err := Probe(t.Context(), HTTP(server.URL, nil), Options{})
			got, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("got %v", err)
			}
			test.want.Class, test.want.Op, test.want.Status, test.want.Asked = Busy, opConnect, 503, "POST "+server.URL
			if diff := cmp.Diff(&test.want, got, cmpopts.IgnoreFields(Error{}, "Err")); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// A peer that closes a connection before the first byte of its answer is not one that breaks off.
func TestUnheard(t *testing.T) {
	for name, test := range map[string]struct {
		says string
		want bool
	}{
		"nothing":           {"", true},
		"part of an answer": {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = listener.Close() }()
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Read(make([]byte, 64<<10))
					_, _ = io.WriteString(conn, test.says)
					_ = conn.Close()
				}
			}()
			_, err = Probe(t.Context(), HTTP("http://"+listener.Addr().String(), nil), Options{})
			if got, ok := errors.AsType[*Error](err); !ok || got.Class != Closed || got.Unheard != test.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}
