package sessions

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/admin"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
)

const podUID = "11111111-2222-3333-4444-555555555555"

var serverKey = adapterapi.NewKey()

// open serves the admin port of an adapter with some sessions.
func open(t *testing.T, handler http.Handler) *Admin {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &Admin{Client: &http.Client{Transport: transport}, Key: serverKey.Sessions(), PodUID: podUID, Now: time.Now}
}

// adapter is the real handler of an adapter with the sessions.
func adapter(t *testing.T, list *adapterapi.SessionList) http.Handler {
	t.Helper()
	held, err := keys.New(adapterapi.Keyring{Current: serverKey}, podUID)
	if err != nil {
		t.Fatal(err)
	}
	return admin.Handler(admin.Options{
		Keys: held, Metrics: http.NotFoundHandler(),
		ListSessions: func() adapterapi.SessionList { return *list },
		EndSession: func(number string) bool {
			for i := range list.Sessions {
				if list.Sessions[i].Number == number {
					list.Sessions = append(list.Sessions[:i], list.Sessions[i+1:]...)
					return true
				}
			}
			return false
		},
	})
}

func TestListAndEnd(t *testing.T) {
	all := []adapterapi.SessionInfo{
		{Number: "3", Client: "inspector", ClientVersion: "1.0", Revision: "2025-11-25", AgeSeconds: 60, IdleSeconds: 2.5, Requests: 9, InFlight: 1, HeldBytes: 4096},
		{Number: "odd/number ?"},
	}
	list := &adapterapi.SessionList{Sessions: append([]adapterapi.SessionInfo{}, all...)}
	a := open(t, adapter(t, list))
	got, err := a.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("sessions (-want +got):\n%s", diff)
	}
	for _, session := range all {
		if err := a.End(t.Context(), session.Number); err != nil {
			t.Errorf("end %q: %v", session.Number, err)
		}
	}
	if err := a.End(t.Context(), "3"); !errors.Is(err, ErrUnknown) {
		t.Errorf("end a session that has ended: %v", err)
	}
	if got, err := a.List(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("left: %v, %v", got, err)
	}
}

// The clock of a laptop may be wrong.
func TestClocksDiffer(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"slow": -time.Hour, "fast": 48 * time.Hour, "a little": 20 * time.Second} {
		a := open(t, adapter(t, &adapterapi.SessionList{Sessions: []adapterapi.SessionInfo{{Number: "1"}}}))
		a.Now = func() time.Time { return time.Now().Add(ahead) }
		if got, err := a.List(t.Context()); err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	other := adapterapi.NewKey().Sessions()
	for name, test := range map[string]struct {
		handler http.Handler
		key     *adapterapi.SessionsKey
		want    error
	}{
		"another key":      {adapter(t, &adapterapi.SessionList{}), &other, ErrKey},
		"an old adapter":   {http.NotFoundHandler(), nil, ErrOld},
		"not the adapter":  {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"sessions":[]}`)) }), nil, ErrForged},
		"a forged refusal": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), nil, ErrForged},
	} {
		a := open(t, test.handler)
		if test.key != nil {
			a.Key = *test.key
		}
		if _, err := a.List(t.Context()); !errors.Is(err, test.want) {
			t.Errorf("%s: list: %v, want %v", name, err, test.want)
		}
		if err := a.End(t.Context(), "1"); !errors.Is(err, test.want) {
			t.Errorf("%s: end: %v, want %v", name, err, test.want)
		}
	}
}
