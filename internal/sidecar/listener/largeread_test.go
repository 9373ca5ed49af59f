package listener

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"
)

// However many clients send large bodies at the same time, all of them arrive as they were
// sent, and end as they should.
func TestLargeReads(t *testing.T) {
	var running sync.WaitGroup
	for i := range 3 * largeReadClients {
		ours, theirs := connect(t)
		running.Go(func() {
			sent := make([]byte, 1<<20)
			_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(sent) // which never fails
			go func() {
				_, _ = theirs.Write(sent)
				_ = theirs.Close()
			}()
			var got bytes.Buffer
			if _, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{ours}, make([]byte, 2*largeReadBytes)); err != nil || !bytes.Equal(got.Bytes(), sent) {
				t.Errorf("got %d bytes of %d, %v", got.Len(), len(sent), err)
			}
		})
	}
	running.Wait()
}

// A deadline ends a large read, too.
func TestLargeReadDeadline(t *testing.T) {
	ours, _ := connect(t)
	if err := ours.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if n, err := ours.Read(make([]byte, largeReadBytes)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v", n, err)
	}
}
