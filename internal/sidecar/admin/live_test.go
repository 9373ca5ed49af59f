package admin

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An adapter whose lock is never released is not alive. It says which part it is, in time for
// the kubelet to hear it, and however often it is asked it leaves one goroutine behind.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan struct{})
		handler := Handler(Options{Metrics: http.NotFoundHandler(), Parts: []Part{
			{"registry", func() {}},
			{"endpoint", func() { <-held }},
			{"keeper", func() {}},
		}})
		before := runtime.NumGoroutine()
		for range 3 {
			begin := time.Now()
			got := ask(handler, "/livez")
			if got.Code != 500 || !strings.Contains(got.Body.String(), "a lock of the endpoint") {
				t.Errorf("got %d %s", got.Code, got.Body)
			}
			if took := time.Since(begin); took >= 2*time.Second {
				t.Errorf("it took %s, and the kubelet waits for two seconds", took)
			}
		}
		synctest.Wait()
		if got := runtime.NumGoroutine() - before; got > 1 {
			t.Errorf("%d goroutines are left behind", got)
		}
		close(held)
		if got := ask(handler, "/livez"); got.Code != 200 {
			t.Errorf("got %d %s once the lock was released", got.Code, got.Body)
		}
	})
}
