package streamable

import (
	"errors"
	"io"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

// T-21, T-22: the event that a resumed stream begins with stands for what the client
// has. With that of the beginning it would get all again, should it lose the connection
// once more.
func TestResumedStreamBeginsWhereItWas(t *testing.T) {
	e := newEndpoint(t, nil)
	id := e.openSession(revision20251125)
	read := func(body io.Reader) (ids []string) {
		next := events(body)
		for {
			event, err := next()
			if errors.Is(err, io.EOF) {
				return ids
			}
			if err != nil {
				t.Fatalf("read: %v", err)
			}
			ids = append(ids, event.id)
		}
	}
	sent := read(e.post(id, `{"jsonrpc":"2.0","id":"p","method":"tools/call","params":{"name":"progress","_meta":{"progressToken":"tok"}}}`).Body)
	if len(sent) != 5 {
		t.Fatalf("got %q, want the priming event, three times progress and the answer", sent)
	}
	var resumed []string
	gomega.NewWithT(t).Eventually(func() int {
		response := e.do("GET", "", map[string]string{"Accept": typeEvents, headerSession: id, headerLastEventID: sent[2]})
		if response.StatusCode == 200 {
			resumed = read(response.Body)
		}
		return response.StatusCode
	}).WithTimeout(hang.Guard).Should(gomega.Equal(200))
	gomega.NewWithT(t).Expect(resumed).To(gomega.Equal(sent[2:]))
}
