package prober

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// More large catalogs come at a time than may wait to be decoded; all of them are read
// in the end. One of them is too large to be stored whole.
func TestManyLargeCatalogs(t *testing.T) {
	t.Parallel()
	p := newPods(t)
	large := func(tools int) (*mcpprobe.Catalog, http.Handler) {
		catalog := catalogOf(t, allCapabilities, map[string]string{"tools/list": list("tools", tools, func(i int) string { return tool(i, 9000, 10, 100) })})
		return catalog, adapter(keeper.State{Ready: true, Catalog: catalog})
	}
	catalog, adminPort := large(1 + smallBody/9000)
	tooLarge, trimmed := large(1 + maxStored/9000)
	client := sdkServer()
	prober, _ := p.run(Options{})
	const servers = 3 * maxWaiting
	for n := range servers {
		name := fmt.Sprint("large", n)
		prober.Watch(serverName(name), []Instance{p.add(name, client, adminPort)})
	}
	prober.Watch(serverName("trimmed"), []Instance{p.add("trimmed", client, trimmed)})
	read := func(name string) *workload.Catalog {
		return eventually(t, prober, name, "read", func(r Result) bool { return r.Catalog != nil && r.Catalog.Stored != nil }).Catalog.Stored
	}
	for n := range servers {
		if stored := read(fmt.Sprint("large", n)); stored.Digest != catalog.Digest || stored.Trimmed != "" {
			t.Errorf("got digest %s and %q", stored.Digest, stored.Trimmed)
		}
	}
	if stored := read("trimmed"); stored.Digest != tooLarge.Digest || len(stored.JSON) > maxStored || !strings.Contains(stored.Trimmed, "input schema") {
		t.Errorf("got digest %s, %d bytes and %q", stored.Digest, len(stored.JSON), stored.Trimmed)
	}
}

// An answer that cannot be taken in is not transferred: workers that read and
// discard catalogs would only keep each other from decoding them.
func TestNoRoomIsKnownBeforeTheAnswerIsRead(t *testing.T) {
	p := newPods(t)
	instance := p.add("large", nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(smallBody+1))
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // the body never comes
	}))
	for name, fill := range map[string]func(*asker){
		"answers that wait": func(a *asker) {
			for range maxWaiting {
				a.waiting <- struct{}{}
			}
		},
		"memory": func(a *asker) { a.budget.take(inFlight) },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsker(Options{ClientPort: p.clientPort, AdminPort: p.adminPort}.withDefaults())
			defer a.close()
			fill(a)
			if _, err := a.fetch(t.Context(), instance, question{}); !errors.Is(err, errNoRoom) {
				t.Errorf("got %v, want no room", err)
			}
		})
	}
}

// anyone takes an answer for signed.
func anyone([]byte) bool { return true }

func TestBudget(t *testing.T) {
	t.Parallel()
	b := budget{left: 10}
	if !b.take(6) || b.take(5) || !b.take(4) || b.take(1) {
		t.Error("more was taken than there is")
	}
	b.give(4)
	if !b.take(4) {
		t.Error("what was given back is not there")
	}
	a := newAsker(Options{}.withDefaults())
	for range 3 {
		var answer reply
		err := a.read(t.Context(), strings.NewReader(`{"ready":true,"error":"`+strings.Repeat("x", 2*smallBody)+`"}`), anyone, "", &answer)
		if err != nil || !answer.report.Ready {
			t.Fatal(err)
		}
		// The largest answer that is taken in. Its first byte says that it is no JSON.
		if err := a.read(t.Context(), strings.NewReader(strings.Repeat("x", maxBody)), anyone, "", &answer); mcpprobe.ClassOf(err) != mcpprobe.Protocol || errors.Is(err, errNoRoom) {
			t.Fatal(err)
		}
		if err := a.read(t.Context(), strings.NewReader(strings.Repeat(" ", maxBody+1)), anyone, "", &answer); mcpprobe.ClassOf(err) != mcpprobe.TooLarge {
			t.Fatal(err)
		}
	}
	if a.budget.left != inFlight {
		t.Errorf("%d bytes were not given back", inFlight-a.budget.left)
	}
	a.budget.take(inFlight - 1000)
	if err := a.read(t.Context(), strings.NewReader("{}"), anyone, "", &reply{}); !errors.Is(err, errNoRoom) {
		t.Errorf("got %v, want no room", err)
	}
}

func BenchmarkDecode(b *testing.B) {
	catalog := catalogOf(b, allCapabilities, map[string]string{"tools/list": list("tools", 400, func(i int) string { return tool(i, 15000, 10, 100) })})
	data := encode(adapterapi.Report{Ready: true, Catalog: encode(catalog)})
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		var answer reply
		if err := decode(data, mcpprobe.Limits{}, "", &answer); err != nil {
			b.Fatal(err)
		}
	}
}
