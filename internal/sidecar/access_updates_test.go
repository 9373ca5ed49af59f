package sidecar

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/test/hang"
)

const itemURI = "matrix://item/"

// updatesIn returns the keys of the items that a text has updates of.
func updatesIn(text string) (keys []string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, `"notifications/resources/updated"`) {
			_, rest, _ := strings.Cut(line, `"uri":"`+itemURI)
			key, _, _ := strings.Cut(rest, `"`)
			keys = append(keys, key)
		}
	}
	return keys
}

// updatesHeard subscribes to two items, touches both after a change, and returns those that the client hears of.
type updatesHeard func(g *guard, url, token string, change func()) (keys []string)

// sessionHears reads all streams of a session, because the server does not say which one an update belongs to.
func sessionHears(g *guard, url, token string, change func()) (keys []string) {
	l := listens["GET"](g, url, token)
	for _, key := range []string{"b", "a"} { // a subscription may have the server tell of earlier ones
		if got := l.session.ask("resources/subscribe", `"uri":"`+itemURI+key+`"`); got.status != http.StatusOK {
			g.t.Fatalf("subscribe: %d %s", got.status, got.message)
		}
	}
	touch := func(key string) {
		response := g.request(http.MethodPost, url, token, requestText("tools/call", `"name":"touch","arguments":{"key":"`+key+`"}`), l.session.headers()...)
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || !strings.Contains(string(body), "touched") {
			g.t.Fatalf("touch: %s %s %v", response.Status, body, err)
		}
		keys = append(keys, updatesIn(string(body))...)
	}
	change()
	touch("a")
	touch("b")
	l.session.ask("resources/unsubscribe", `"uri":"`+itemURI+`b"`) // the server has written all updates before the answer
	l.session.close()
	rest, _ := io.ReadAll(l.events) // the stream may break off
	return append(keys, updatesIn(string(rest))...)
}

func subscriberHears(g *guard, url, token string, change func()) (keys []string) {
	events := subscribe(g, url, token, `"resourceSubscriptions":["`+itemURI+`a","`+itemURI+`b"]`)
	s := &statelessSpeaker{g, url, token}
	touch := func(key string) {
		if got := s.ask("tools/call", `"name":"touch","arguments":{"key":"`+key+`"}`); !strings.Contains(got.message, "touched") {
			g.t.Fatalf("touch: %d %s", got.status, got.message)
		}
	}
	change()
	touch("a")
	touch("b")
	ended := make(chan error, 1)
	go func() {
		for !slices.Contains(keys, "b") {
			line, err := events.ReadString('\n')
			if err != nil {
				ended <- err
				return
			}
			keys = append(keys, updatesIn(line)...)
		}
		ended <- nil
	}()
	select {
	case err := <-ended:
		if err != nil {
			g.t.Fatalf("the stream ends after %v: %v", keys, err)
		}
	case <-time.After(hang.Guard):
		g.t.Fatal("there is no update of b")
	}
	return keys
}

// A caller hears of changes of the resources that the rules give it now, and not of those that it has subscribed to
// when they gave it more.
func TestCallersHearOfTheirResources(t *testing.T) {
	t.Parallel()
	for name, backend := range matrixBackends {
		for kind, hear := range map[string]updatesHeard{"session": sessionHears, "stateless": subscriberHears} {
			if backend.http == "modern" && kind == "stateless" || (backend.http == "legacy" || backend.http == "json") && kind == "session" {
				continue // the server writes into the streams
			}
			for what, want := range map[string][]string{itemURI: {"a", "b"}, itemURI + "b": {"b"}} {
				t.Run(name+"/"+kind+"/"+what, func(t *testing.T) {
					t.Parallel()
					g := newGuard(t, func(a *adapterapi.Access) { a.Rules[0].Tools = []string{"touch"} })
					url := startMatrix(t, g, name)
					got := hear(g, url, g.token("alice", nil), func() {
						g.take(func(a *adapterapi.Access) { a.Rules[0].Resources = []string{what} })
					})
					slices.Sort(got)
					if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
						t.Errorf("heard of (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}
