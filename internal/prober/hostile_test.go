package prober

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/test/hang"
)

// endless writes until the client stops reading.
func endless(w http.ResponseWriter, chunk string) {
	block := []byte(strings.Repeat(chunk, 1+(64<<10)/len(chunk)))
	for {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func body(status int, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(text))) // as an adapter does
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})
}

var (
	mute  = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	flood = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		endless(w, `{"ready":true,"catalog":{"tools":[[[`)
	})
	trickle = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "1000000")
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Millisecond)
		}
	})
	// headers never end.
	headers = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for {
			if _, err := io.WriteString(conn, "X: "+strings.Repeat("y", 1000)+"\r\n"); err != nil {
				return
			}
		}
	})
	pages = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scripted(allCapabilities, map[string]string{
			"tools/list": fmt.Sprintf(`{"tools":[{"name":"a"}],"nextCursor":"%d"}`, time.Now().UnixNano()),
		}).ServeHTTP(w, r)
	})
	wrongIDs = body(http.StatusOK, `{"jsonrpc":"2.0","id":4711,"result":{}}`)
)

func report(ready bool, reason, words, catalog string) http.Handler {
	return signed(body(http.StatusOK, string(encode(adapterapi.Report{Ready: ready, Reason: adapterapi.Reason(reason), Error: words, Catalog: json.RawMessage(catalog)}))))
}

// replayed answers every request with the answer to another.
func replayed(adminPort http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		other := httptest.NewRequest(http.MethodGet, adapterapi.PathCatalog, http.NoBody)
		_, proof := adapterapi.NewProof(key, adapterapi.CatalogSubject(podUID), time.Now())
		other.Header.Set(adapterapi.HeaderProof, proof)
		adminPort.ServeHTTP(w, other)
	})
}

// manyNumbers is JSON that becomes much larger when it is decoded.
func manyNumbers(bytes int) string { return "[" + strings.Repeat("0,", bytes/2) + "0]" }

// hostile is a server that does not do what it should.
type hostile struct {
	client, admin http.Handler
	want          Outcome
	message       string        // a part of it
	timeout       time.Duration // 0 is as long as it takes
}

// hostileServers are of all kinds. What they send has to be larger than what is taken of
// it; times multiplies that.
func hostileServers(client, adminPort http.Handler, times int) map[string]hostile {
	// Nothing has to succeed within this time.
	const short = 300 * time.Millisecond
	many := scripted(allCapabilities, map[string]string{"tools/list": list("tools", times*70_000, func(i int) string { return fmt.Sprintf(`{"name":"t%d"}`, i) })})
	long := scripted(allCapabilities, map[string]string{"tools/list": fmt.Sprintf(`{"tools":[{"name":"a","description":"%s"}]}`, strings.Repeat("x", times*2<<20))})
	tooLarge := adapter(keeper.State{Ready: true, Reason: adapterapi.TooLarge, Err: errors.New("more than 10000 items of a list")})
	return map[string]hostile{
		"hanging":           {mute, mute, Failed, "did not answer initialize within", short},
		"flooding":          {flood, adminPort, Failed, "probe connect", 0},
		"flooding-catalog":  {client, flood, Verified, "more than 20971520 bytes", 0},
		"trickling":         {trickle, trickle, Failed, "", short},
		"headers":           {headers, headers, Failed, "probe connect", 0},
		"broken-json":       {body(200, `{"jsonrpc":"2.0","id":1,"result":{`), body(200, `{"ready":tr`), Failed, "Protocol", 0},
		"broken-catalog":    {client, report(true, "", "", `{"digest":"sha256:00","tools":[{"name":"a"}]}`), Verified, "does not match its digest", 0},
		"swelling-catalog":  {client, report(true, "", "", `{"tools":[{"name":"a","x":`+manyNumbers(times*smallBody)+`}]}`), Verified, "cannot be read", 0},
		"wrong-ids":         {wrongIDs, adminPort, Failed, "Protocol", 0},
		"endless-pages":     {pages, tooLarge, Verified, "", 0},
		"many-tools":        {many, tooLarge, Verified, "", 0},
		"long-descriptions": {long, tooLarge, Verified, "", 0},
		"unauthorized":      {body(401, ""), adminPort, Unauthorized, "HTTP 401", 0},
		"full":              {body(429, ""), adminPort, Full, "HTTP 429", 0},
		"unavailable":       {body(503, ""), adminPort, Full, "HTTP 503", 0},
		"catalog-500":       {client, signed(body(500, "encode catalog")), Verified, "the adapter cannot answer at the moment", 0},
		"catalog-broken":    {client, signed(body(200, `{"ready":tr`)), Verified, "the answer is not that of an adapter", 0},
		// Processes of the server's container can listen where the adapter should.
		"catalog-401":      {client, body(401, ""), Verified, "answers HTTP 401 without the adapter's signature", 0},
		"catalog-503":      {client, body(503, ""), Verified, "answers HTTP 503 without the adapter's signature", 0},
		"catalog-304":      {client, body(304, ""), Verified, "answers HTTP 304 without the adapter's signature", 0},
		"catalog-redirect": {client, http.RedirectHandler("http://127.0.0.1:1/", http.StatusTemporaryRedirect), Verified, "answers HTTP 307 without the adapter's signature", 0},
		"catalog-forged":   {client, body(200, `{"ready":true,"catalog":{}}`), Verified, "answers HTTP 200 without the adapter's signature", 0},
		"catalog-replayed": {client, replayed(adminPort), Verified, "answers HTTP 200 without the adapter's signature", 0},
		"nothing":          {nil, nil, Unreachable, "connection refused", 0},
		"not-ready":        {client, report(false, "Exited", "exit status 1\x1b[31m", "null"), Failed, "exit status 1 [31m", 0},
		"endless-words":    {client, report(false, strings.Repeat("R", 5000), strings.Repeat("語", 5000), "null"), Failed, "語語…", 0},
	}
}

func TestHostileServersDoNotDisturbOthers(t *testing.T) {
	watchHostileServers(t, 1, func() {})
}

// watchHostileServers has a Prober look after hostile servers and good ones. It calls
// observe when the servers have what they send, and now and then afterwards.
func watchHostileServers(t *testing.T, times int, observe func()) {
	t.Helper()
	p := newPods(t)
	client, adminPort, _ := healthy(t, 20)
	servers := hostileServers(client, adminPort, times)
	observe()
	prober, stop := p.run(Options{})
	watch := func(name string, client, admin http.Handler, timeout time.Duration) {
		i := p.add(name, client, admin)
		i.Timeout = cmp.Or(timeout, i.Timeout)
		prober.Watch(serverName(name), []Instance{i})
	}
	// These hold workers from the beginning to the end.
	entered := make(chan struct{}, 16)
	stuck := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		mute(w, r)
	})
	const held = 4
	for n := range held {
		watch(fmt.Sprint("stuck", n), stuck, stuck, time.Hour)
	}
	for range held {
		<-entered
	}
	good := func(name string) {
		t.Helper()
		eventually(t, prober, name, "verified", func(r Result) bool {
			return r.Outcome == Verified && r.Message == "" && r.Catalog != nil && r.Catalog.Summary.Catalog.Counts.Tools == 20
		})
		observe()
	}
	for n := range 5 {
		watch(fmt.Sprint("good", n), client, adminPort, 0)
	}
	for name, s := range servers {
		watch(name, s.client, s.admin, s.timeout)
	}
	guard := hang.Guard
	if times > 1 {
		// On a busy machine, the race detector makes the prober decode the swelling catalog
		// for half a minute. It postpones the largest answers meanwhile, and asks again later.
		guard *= 3
	}
	for name, s := range servers {
		eventuallyWithin(t, guard, prober, name, string(s.want)+" "+s.message, func(r Result) bool {
			return r.Outcome == s.want && strings.Contains(r.Message, s.message)
		})
		observe()
	}
	// While all of them go on, the good ones are asked.
	for n := range 5 {
		watch(fmt.Sprint("late", n), client, adminPort, 0)
	}
	for n := range 5 {
		good(fmt.Sprint("late", n))
		good(fmt.Sprint("good", n))
	}
	for _, name := range []string{"endless-pages", "many-tools", "long-descriptions"} {
		if got := eventually(t, prober, name, "noted", func(r Result) bool { return r.Catalog != nil }); got.Catalog.Summary.TooLarge != "more than 10000 items of a list" {
			t.Errorf("%s: got %+v", name, got.Catalog.Summary)
		}
	}
	for n := range held {
		for _, result := range prober.Results(serverName(fmt.Sprint("stuck", n))) {
			if result.Outcome != Pending {
				t.Errorf("a server that hangs is %s: it did not hang while the others were asked", result.Outcome)
			}
		}
	}
	stop()
	checkNoRequestLeft(t)
}

// checkNoRequestLeft waits until no goroutine sends a request to an instance. The goroutines
// of the test's own servers stay until the test ends.
func checkNoRequestLeft(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 16<<20)
	for deadline := time.Now().Add(hang.Guard); ; time.Sleep(10 * time.Millisecond) {
		var left []string
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "prober.(*Prober)") || strings.Contains(stack, "prober.(*asker)") ||
				strings.Contains(stack, "/mcpprobe.") || strings.Contains(stack, "net/http.(*persistConn)") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("these are left:\n%s", strings.Join(left, "\n\n"))
		}
	}
}

// TestLongMemoryBesideHostileServers has them send a lot, and looks at what is in use:
// what is just not collected yet says nothing.
func TestLongMemoryBesideHostileServers(t *testing.T) {
	inUse := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before, peak := int64(0), int64(0)
	watchHostileServers(t, 25, func() {
		if before == 0 {
			before = inUse()
		}
		peak = max(peak, inUse())
	})
	if grown := (peak - before) >> 20; grown > 300 {
		t.Errorf("the heap has grown by %d MiB", grown)
	} else {
		t.Logf("heap %d MiB, at most %d MiB more", before>>20, grown)
	}
}

// expiring is a context whose deadline passes when the test says so.
type expiring struct {
	context.Context
	done chan struct{}
}

func (e *expiring) Done() <-chan struct{} { return e.done }

func (e *expiring) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Whatever an adapter does not send, the deadline ends the waiting for it.
func TestFetchEndsWithItsDeadline(t *testing.T) {
	p := newPods(t)
	for name, test := range map[string]struct {
		handler http.Handler
		until   func(a *asker) bool // when the deadline passes
	}{
		"hanging":   {mute, func(*asker) bool { return true }},
		"trickling": {trickle, func(a *asker) bool { return !a.budget.has(inFlight) }}, // the body is being read
	} {
		t.Run(name, func(t *testing.T) {
			ctx := &expiring{t.Context(), make(chan struct{})}
			a := newAsker(Options{ClientPort: p.clientPort, AdminPort: p.adminPort}.withDefaults())
			defer a.close()
			instance := p.add(name, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				go func() {
					for ; !test.until(a); time.Sleep(time.Millisecond) {
					}
					close(ctx.done)
				}()
				test.handler.ServeHTTP(w, r)
			}))
			_, err := a.fetch(ctx, instance, question{})
			if mcpprobe.ClassOf(err) != mcpprobe.Timeout || !strings.Contains(trouble(err, instance), "the adapter did not answer within") {
				t.Errorf("got %v", err)
			}
			if a.budget.left != inFlight {
				t.Errorf("%d bytes were not given back", inFlight-a.budget.left)
			}
		})
	}
}
