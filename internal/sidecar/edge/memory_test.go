package edge

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// reading is a request whose body is being read. Like net/http, it notices a deadline that
// has passed, and then gives back what it has.
type reading struct {
	*httptest.ResponseRecorder
	memory  *Memory
	request *Request
	stopped bool
}

func (r *reading) SetReadDeadline(at time.Time) error {
	if at.Before(time.Now()) {
		r.stopped = true
		go r.memory.Release(r.request)
	}
	return nil
}

// from returns a request that is being read.
func (m *Memory) from(t *testing.T, address string) *reading {
	t.Helper()
	r := &reading{ResponseRecorder: httptest.NewRecorder(), memory: m}
	r.request = &Request{
		Request: httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil),
		Caller:  caller.Caller{Address: address}, Record: Record{began: time.Now()},
	}
	r.request.writer = answerWriter{ResponseWriter: r, asked: r.request}
	return r
}

func (r *reading) grow(t *testing.T, bytes int) {
	t.Helper()
	if refused := r.memory.Grow(r.request, bytes); refused != nil {
		t.Fatalf("%d bytes are refused: %+v", bytes, refused)
	}
}

func newMemory(bytes int64) *Memory { return NewMemory(BodyLimits{}, budget.New(bytes, 1)) }

// A request that finds no room is refused, with a time to try again.
func TestNoRoomForABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(1000)
		first, second := m.from(t, "192.0.2.1"), m.from(t, "192.0.2.2")
		first.grow(t, 600)
		m.Slow(first.request)
		began := time.Now()
		refused := m.Grow(second.request, 500)
		if refused == nil || refused.Status != http.StatusServiceUnavailable || refused.Header.Get("Retry-After") == "" || time.Since(began) != 0 {
			t.Errorf("got %+v after %s", refused, time.Since(began))
		}
		if first.stopped || m.bytes.Used() != 600 || m.Refused() != 1 {
			t.Errorf("stopped %t, %d bytes, %d refused", first.stopped, m.bytes.Used(), m.Refused())
		}
		m.Release(first.request)
		second.grow(t, 1000)
		m.Release(second.request)
		if m.bytes.Used() != 0 || len(m.shares) != 0 {
			t.Errorf("%d bytes and %d shares are left", m.bytes.Used(), len(m.shares))
		}
	})
}

// A body that is slow to come gives way: of the address that holds most, the oldest. One
// that has come does not.
func TestSlowBodiesGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(1000)
		oldest, older, large, whole := m.from(t, "192.0.2.1"), m.from(t, "192.0.2.2"), m.from(t, "192.0.2.2"), m.from(t, "192.0.2.2")
		for r, bytes := range map[*reading]int{oldest: 300, older: 100, large: 50, whole: 300} {
			r.grow(t, bytes)
		}
		for _, r := range []*reading{oldest, whole, older, large} {
			m.Slow(r.request)
		}
		large.grow(t, 200) // which counts for its address
		m.Filled(whole.request)
		time.Sleep(slowAfter)
		newcomer := m.from(t, "192.0.2.3")
		newcomer.grow(t, 300)
		// With the older one gone, the other address holds most.
		if !older.stopped || !oldest.stopped || large.stopped || whole.stopped {
			t.Errorf("stopped: older %t, of another address %t, large %t, whole %t", older.stopped, oldest.stopped, large.stopped, whole.stopped)
		}
		if m.Evicted() != 2 || m.bytes.Used() != 850 {
			t.Errorf("%d are evicted, %d bytes are held", m.Evicted(), m.bytes.Used())
		}
	})
}

// Large bodies leave some room to small ones.
func TestLargeBodiesLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(8 * pieceBytes)
		large, small := m.from(t, "192.0.2.1"), m.from(t, "192.0.2.1")
		large.grow(t, 7*pieceBytes)
		if m.Grow(large.request, 1) == nil {
			t.Error("a large body takes all")
		}
		small.grow(t, pieceBytes)
		if m.Grow(m.from(t, "192.0.2.2").request, 1) == nil {
			t.Error("there is room where there is none")
		}
	})
}

// The body that asks for room does not give way to itself, and learns that it gave way to
// another.
func TestBodyThatGaveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(1000)
		slow := m.from(t, "192.0.2.1")
		slow.grow(t, 900)
		if !m.Slow(slow.request) {
			t.Error("it gives way to nothing")
		}
		time.Sleep(slowAfter)
		if m.Grow(slow.request, 200) == nil || slow.stopped {
			t.Error("there is room where there is none, or it makes room for itself")
		}
		other := m.from(t, "192.0.2.1")
		go func() { _ = m.Grow(other.request, 200) }()
		synctest.Wait()
		if !slow.stopped || m.bytes.Used() != 200 {
			t.Errorf("stopped %t, %d bytes", slow.stopped, m.bytes.Used())
		}
		if m.Slow(slow.request) {
			t.Error("the body does not learn that it gave way")
		}
	})
}

// A body that is slow to come makes room for a message of a server.
func TestSlowBodyGivesWayToMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(16 * pieceBytes)
		slow := m.from(t, "192.0.2.1")
		slow.grow(t, 14*pieceBytes)
		if !m.Slow(slow.request) {
			t.Fatal("the body has to give way at once")
		}
		began := time.Now()
		if err := m.bytes.Account(nil).Reach(6*pieceBytes, nil); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); !slow.stopped || waited < slowAfter || waited > 5*time.Second {
			t.Errorf("stopped: %t, after %s", slow.stopped, waited)
		}
	})
}
