package edge

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/iotest"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// A body of any size arrives as it was sent, whether its size was announced or not.
func TestBodiesOfAllSizes(t *testing.T) {
	random := rand.NewChaCha8([32]byte{})
	for _, size := range []int{1, 511, 512, 513, pieceBytes - 1, pieceBytes, pieceBytes + 1, 2 * pieceBytes, 5*pieceBytes + 17} {
		sent := make([]byte, size)
		_, _ = random.Read(sent) // which never fails
		for name, reader := range map[string]io.Reader{
			"announced":     bytes.NewReader(sent),
			"not announced": io.MultiReader(bytes.NewReader(sent)),
			"in halves":     iotest.HalfReader(bytes.NewReader(sent)),
		} {
			t.Run(fmt.Sprintf("%d %s", size, name), func(t *testing.T) {
				r := httptest.NewRequest(http.MethodPost, "/", reader)
				r.Header.Set("Content-Type", front.TypeJSON)
				got, refused := readBody(httptest.NewRecorder(), r, BodyLimits{BodyBytes: int64(size)})
				if refused != nil || !bytes.Equal(got, sent) {
					t.Errorf("got %d bytes of %d, refusal %+v", len(got), size, refused)
				}
				r = httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(append(bytes.Clone(sent), 'x')))
				r.ContentLength = -1
				r.Header.Set("Content-Type", front.TypeJSON)
				if _, refused := readBody(httptest.NewRecorder(), r, BodyLimits{BodyBytes: int64(size)}); refused == nil || refused.Status != http.StatusRequestEntityTooLarge {
					t.Errorf("one byte more than may be: refusal %+v", refused)
				}
			})
		}
	}
}
