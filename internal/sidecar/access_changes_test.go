package sidecar

import (
	"bufio"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/test/hang"
)

// hearers open streams of every kind, on which clients hear of changes of lists.
var hearers = map[string]func(g *guard, url, token string) *bufio.Reader{
	"session": func(g *guard, url, token string) *bufio.Reader { return listens["GET"](g, url, token).events },
	"sse": func(g *guard, url, token string) *bufio.Reader {
		s := &sseSpeaker{guard: g, url: strings.TrimSuffix(url, Path), token: token}
		if status := s.open(); status != http.StatusOK {
			g.t.Fatalf("connect: %d", status)
		}
		g.t.Cleanup(s.close)
		return s.events
	},
	"stateless": func(g *guard, url, token string) *bufio.Reader {
		return subscribe(g, url, token, `"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true`)
	},
}

// subscribe opens a subscription of 2026-07-28, and returns its events behind the acknowledgement.
func subscribe(g *guard, url, token, filter string) *bufio.Reader {
	g.t.Helper()
	response := g.request(http.MethodPost, url, token, requestText("subscriptions/listen", `"notifications":{`+filter+`},`+modernMeta),
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen")
	events := newListening(g, nil, response).events
	if method := nextNotice(g.t, events); method != "notifications/subscriptions/acknowledged" {
		g.t.Fatalf("the subscription begins with %s", method)
	}
	return events
}

// nextNotice returns the method of the next notification.
func nextNotice(t *testing.T, events *bufio.Reader) string {
	t.Helper()
	found := make(chan string, 1)
	go func() {
		for {
			line, err := events.ReadString('\n')
			if _, rest, ok := strings.Cut(line, `"method":"`); ok {
				method, _, _ := strings.Cut(rest, `"`)
				found <- method
				return
			}
			if err != nil {
				found <- err.Error()
				return
			}
		}
	}()
	select {
	case method := <-found:
		return method
	case <-time.After(hang.Guard):
		t.Fatal("the stream gets no notification")
		return ""
	}
}

// heardUntil returns the methods of all notifications up to one.
func heardUntil(t *testing.T, events *bufio.Reader, last string) (all []string) {
	t.Helper()
	for {
		all = append(all, nextNotice(t, events))
		if all[len(all)-1] == last || len(all) > 20 {
			return all
		}
	}
}

// A caller hears of the lists that a change of rules changes for it, once, and of no others.
func TestCallersHearOfChangedRules(t *testing.T) {
	t.Parallel()
	const tools, prompts, resources = "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed"
	// Streams of HTTP servers are theirs, unless the adapter translates.
	proxied := map[string][]string{
		"HTTP, answers in events": {"session"}, "HTTP, answers in JSON": {"session"}, "HTTP, 2026-07-28 only": {"stateless"},
	}
	for name, backend := range matrixBackends {
		for kind, hear := range hearers {
			if slices.Contains(backend.without, kind) || slices.Contains(proxied[name], kind) {
				continue
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				g := newGuard(t, nil)
				url := startMatrix(t, g, name)
				alice, bob, root := hear(g, url, g.token("alice", nil)), hear(g, url, g.token("bob", nil)), hear(g, url, g.token("root", nil))
				g.take(nil)
				g.take(func(a *adapterapi.Access) { a.Rules[0].Tools = []string{"echo"} })
				g.take(func(a *adapterapi.Access) { a.Rules[1].Prompts = []string{"*"} })
				g.take(func(a *adapterapi.Access) {
					for i := range a.Rules {
						a.Rules[i].Resources = []string{"matrix://other"}
					}
				})
				want := map[string][]string{"alice": {tools, resources}, "bob": {prompts, resources}, "root": {resources}}
				got := map[string][]string{
					"alice": heardUntil(t, alice, resources), "bob": heardUntil(t, bob, resources), "root": heardUntil(t, root, resources),
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("heard (-want +got):\n%s", diff)
				}
			})
		}
	}
}
