package front

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRemoveHopByHop(t *testing.T) {
	header := http.Header{
		"Connection":          {"X-One, keep-alive", "x-two"},
		"Proxy-Connection":    {"keep-alive"},
		"Keep-Alive":          {"timeout=5"},
		"Proxy-Authenticate":  {"Basic"},
		"Proxy-Authorization": {"Basic x"},
		"Te":                  {"trailers"},
		"Trailer":             {"X-Sum"},
		"Transfer-Encoding":   {"chunked"},
		"Upgrade":             {"h2c"},
		"X-One":               {"1"},
		"X-Two":               {"2"},
		"X-Three":             {"3"},
		"Content-Type":        {"text/plain"},
	}
	RemoveHopByHop(header)
	want := http.Header{"X-Three": {"3"}, "Content-Type": {"text/plain"}}
	if diff := cmp.Diff(want, header); diff != "" {
		t.Errorf("headers that are left (-want +got):\n%s", diff)
	}
}
