package bridge

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/test/hang"
)

// A message reaches the client as soon as its event has ended, whatever ends its lines: the server keeps the stream
// open.
func TestReceiveDoesNotWait(t *testing.T) {
	const progress, answer = `{"method":"notifications/progress"}`, `{"id":1,"result":{}}`
	for name, text := range map[string]string{
		"LF":              "data: " + progress + "\n\ndata: " + answer + "\n\n",
		"CRLF":            "data: " + progress + "\r\n\r\ndata: " + answer + "\r\n\r\n",
		"CR":              "data: " + progress + "\r\rdata: " + answer + "\r\r",
		"several lines":   "data: " + progress + "\r\rdata: {\"id\":1,\rdata:\"result\":{}}\r\r",
		"byte order mark": "\xef\xbb\xbfdata: " + progress + "\n\ndata: " + answer + "\n\n",
		"priming":         "id: 1\ndata: \n\n" + "data: " + progress + "\n\ndata: " + answer + "\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := io.Pipe()
			defer func() { _ = from.Close() }()
			go func() { _, _ = io.WriteString(to, text) }()
			response := &http.Response{Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: from}
			got := make(chan string, 2)
			ended := make(chan error, 1)
			go func() {
				answered, err := receive(response, []byte("1"), func(message []byte) error {
					got <- string(message)
					return nil
				})
				if err == nil && !answered {
					err = io.ErrUnexpectedEOF
				}
				ended <- err
			}()
			select {
			case err := <-ended:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(hang.Guard):
				t.Fatal("the messages are held back")
			}
			wantAnswer := answer
			if name == "several lines" {
				wantAnswer = "{\"id\":1,\n\"result\":{}}"
			}
			if diff := cmp.Diff([]string{progress, wantAnswer}, []string{<-got, <-got}); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}
