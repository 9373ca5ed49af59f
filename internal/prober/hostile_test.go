package prober

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/probekey"
	"github.com/slipway-mcp/slipway/internal/sidecar/admin"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
)

const key = "0123456789abcdef"

// pods are servers on addresses of this machine that share two ports, as pods do.
type pods struct {
	t                     *testing.T
	clientPort, adminPort int
	next                  int
}

func newPods(t *testing.T) *pods {
	t.Helper()
	p := &pods{t: t, next: 1}
	for _, port := range []*int{&p.clientPort, &p.adminPort} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		*port = listener.Addr().(*net.TCPAddr).Port
		t.Cleanup(func() { _ = listener.Close() }) // so that nobody else gets it
	}
	return p
}

func (p *pods) serve(ip string, port int, handler http.Handler) {
	p.t.Helper()
	listener, err := net.Listen("tcp", address(ip, port))
	if err != nil {
		p.t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	p.t.Cleanup(func() { _ = server.Close() })
}

// add starts a pod; a nil handler is a port that nobody listens on.
func (p *pods) add(name string, client, adapter http.Handler) Instance {
	p.t.Helper()
	p.next++
	ip := fmt.Sprintf("127.0.%d.%d", 1+p.next/250, 1+p.next%250)
	if client != nil {
		p.serve(ip, p.clientPort, client)
	}
	if adapter != nil {
		p.serve(ip, p.adminPort, adapter)
	}
	return Instance{
		Pod: serverName(name), UID: types.UID(name), IP: ip, Ready: true, Key: key,
		Interval: 200 * time.Millisecond, Timeout: 2 * time.Second,
	}
}

// adapter is a real admin port.
func adapter(state keeper.State) http.Handler {
	return admin.Handler(admin.Options{
		State:    func() (keeper.State, <-chan struct{}) { return state, nil },
		Sessions: func() int { return 3 },
		Key:      []byte(key), Metrics: http.NotFoundHandler(),
	})
}

func sdkServer() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "real", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
}

func healthy(t *testing.T, tools int) (client, adminPort http.Handler, catalog *mcpprobe.Catalog) {
	t.Helper()
	catalog = catalogOf(t, allCapabilities, map[string]string{"tools/list": list("tools", tools, func(i int) string { return tool(i, 200, 10, 100) })})
	return sdkServer(), adapter(keeper.State{Ready: true, Catalog: catalog}), catalog
}

// run starts a Prober and returns how to end it.
func (p *pods) run(options Options) (*Prober, func()) {
	p.t.Helper()
	options.ClientPort, options.AdminPort = p.clientPort, p.adminPort
	prober := New(options)
	ctx, cancel := context.WithCancel(p.t.Context())
	over := make(chan error, 1)
	go func() { over <- prober.Start(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-over:
			if err != nil {
				p.t.Error(err)
			}
		case <-time.After(20 * time.Second):
			p.t.Error("Start does not end")
		}
	})
	p.t.Cleanup(stop)
	return prober, stop
}

// eventually waits for something to become true of a result.
func eventually(t *testing.T, p *Prober, server string, what string, is func(Result) bool) Result {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		for _, result := range p.Results(serverName(server)) {
			if is(result) {
				return result
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is not %s: %+v, report %+v", server, what, result, result.Report)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestARealServer(t *testing.T) {
	p := newPods(t)
	client, adminPort, catalog := healthy(t, 200)
	var token, bearer atomic.Value
	seen := func(value *atomic.Value, header string, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			value.Store(r.Header.Get(header))
			next.ServeHTTP(w, r)
		})
	}
	var full, unchanged atomic.Int64
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == "" {
			full.Add(1)
		} else {
			unchanged.Add(1)
		}
		adminPort.ServeHTTP(w, r)
	})
	var log strings.Builder
	var mu sync.Mutex
	prober, stop := p.run(Options{Log: funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		log.WriteString(prefix + args + "\n")
	}, funcr.Options{Verbosity: 5})})
	prober.Watch(serverName("real"), []Instance{p.add("real", seen(&token, probekey.Header, client), seen(&bearer, "Authorization", counted))})
	result := eventually(t, prober, "real", "verified", func(r Result) bool { return r.Outcome == Verified && r.Catalog != nil })
	if result.Sessions != 3 || !result.Report.Ready || result.Catalog.Summary.Counts.Tools != 200 || len(result.Catalog.Summary.Tools) != 128 ||
		result.Catalog.Summary.Digest != catalog.Digest || result.Catalog.Stored.Digest != catalog.Digest {
		t.Errorf("got %+v", result)
	}
	if token.Load() != probekey.Token([]byte(key)) || bearer.Load() != "Bearer "+key {
		t.Errorf("got the token %v and the key %v", token.Load(), bearer.Load())
	}
	for deadline := time.Now().Add(time.Minute); unchanged.Load() < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the catalogue was asked for %d times by its tag, want 3", unchanged.Load())
		}
	}
	if full.Load() != 1 {
		t.Errorf("the whole catalogue was asked for %d times", full.Load())
	}
	stop()
	mu.Lock()
	defer mu.Unlock()
	if text := log.String(); strings.Contains(text, key) || strings.Contains(text, probekey.Token([]byte(key))) || !strings.Contains(text, "Verified") {
		t.Errorf("the log has a key, or nothing:\n%s", text)
	}
}

// endless writes until nobody reads any more.
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
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})
}

var (
	hang  = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
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
	return body(http.StatusOK, string(encode(admin.Report{Ready: ready, Reason: keeper.Reason(reason), Error: words, Catalog: json.RawMessage(catalog)})))
}

// manyNumbers is JSON that becomes much larger when it is decoded.
func manyNumbers(bytes int) string { return "[" + strings.Repeat("0,", bytes/2) + "0]" }

func TestHostileServersDoNotDisturbOthers(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	p := newPods(t)
	client, adminPort, _ := healthy(t, 20)
	many := scripted(allCapabilities, map[string]string{"tools/list": list("tools", 100_000, func(i int) string { return fmt.Sprintf(`{"name":"t%d"}`, i) })})
	long := scripted(allCapabilities, map[string]string{"tools/list": fmt.Sprintf(`{"tools":[{"name":"a","description":"%s"}]}`, strings.Repeat("x", 50<<20))})
	tooLarge := adapter(keeper.State{Ready: true, Reason: keeper.TooLarge, Err: errors.New("more than 10000 items of a list")})
	type hostile struct {
		client, admin http.Handler
		want          Outcome
		message       string // a part of it
	}
	servers := map[string]hostile{
		"hanging":           {hang, hang, Failed, "did not answer initialize within"},
		"hanging-catalog":   {client, hang, Verified, "the adapter did not answer within"},
		"flooding":          {flood, flood, Failed, "probe connect"},
		"flooding-catalog":  {client, flood, Verified, "more than 20971520 bytes"},
		"trickling":         {trickle, trickle, Failed, ""},
		"trickling-catalog": {client, trickle, Verified, "did not answer within"},
		"headers":           {headers, headers, Failed, "probe connect"},
		"broken-json":       {body(200, `{"jsonrpc":"2.0","id":1,"result":{`), body(200, `{"ready":tr`), Failed, "Protocol"},
		"broken-catalog":    {client, report(true, "", "", `{"digest":"sha256:00","tools":[{"name":"a"}]}`), Verified, "does not match its digest"},
		"swelling-catalog":  {client, report(true, "", "", `{"tools":[{"name":"a","x":`+manyNumbers(6<<20)+`}]}`), Verified, "cannot be read"},
		"wrong-ids":         {wrongIDs, adminPort, Failed, "Protocol"},
		"endless-pages":     {pages, tooLarge, Verified, ""},
		"many-tools":        {many, tooLarge, Verified, ""},
		"long-descriptions": {long, tooLarge, Verified, ""},
		"unauthorized":      {body(401, ""), adminPort, Unauthorized, "HTTP 401"},
		"full":              {body(429, ""), adminPort, Full, "HTTP 429"},
		"unavailable":       {body(503, ""), adminPort, Full, "HTTP 503"},
		"catalog-401":       {client, body(401, ""), Verified, "does not take the key"},
		"catalog-503":       {client, body(503, ""), Verified, "asks for patience"},
		"catalog-redirect":  {client, http.RedirectHandler("http://127.0.0.1:1/", http.StatusTemporaryRedirect), Verified, "no answer of an adapter"},
		"nobody":            {nil, nil, Unreachable, "connection refused"},
		"not-ready":         {client, report(false, "Exited", "exit status 1\x1b[31m", "null"), Failed, "exit status 1 [31m"},
		"endless-words":     {client, report(false, strings.Repeat("R", 5000), strings.Repeat("語", 5000), "null"), Failed, "語語…"},
	}
	prober, stop := p.run(Options{})
	for n := range 10 {
		name := fmt.Sprint("good", n)
		prober.Watch(serverName(name), []Instance{p.add(name, client, adminPort)})
	}
	for name, s := range servers {
		prober.Watch(serverName(name), []Instance{p.add(name, s.client, s.admin)})
	}
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	peak := uint64(0)
	watch := func() {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		peak = max(peak, now.HeapAlloc)
	}
	for name, s := range servers {
		eventually(t, prober, name, string(s.want)+" "+s.message, func(r Result) bool {
			watch()
			return r.Outcome == s.want && strings.Contains(r.Message, s.message)
		})
	}
	// While all of them go on, the good ones are asked in time.
	var slowest time.Duration
	for n := range 10 {
		name := fmt.Sprint("late", n)
		begin := time.Now()
		i := p.add(name, client, adminPort)
		prober.Watch(serverName(name), []Instance{i})
		eventually(t, prober, name, "verified", func(r Result) bool {
			watch()
			return r.Outcome == Verified && r.Message == "" && r.Catalog != nil && r.Catalog.Summary.Counts.Tools == 20
		})
		slowest = max(slowest, time.Since(begin))
	}
	for n := range 10 {
		eventually(t, prober, fmt.Sprint("good", n), "verified", func(r Result) bool { return r.Outcome == Verified && r.Message == "" })
	}
	if slowest > 10*time.Second {
		t.Errorf("a good server was verified after %v", slowest)
	}
	for _, name := range []string{"endless-pages", "many-tools", "long-descriptions"} {
		if got := eventually(t, prober, name, "noted", func(r Result) bool { return r.Catalog != nil }); got.Catalog.Summary.TooLarge != "more than 10000 items of a list" {
			t.Errorf("%s: got %+v", name, got.Catalog.Summary)
		}
	}
	if grown := int64(peak) - int64(before.HeapAlloc); grown > 300<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	} else {
		t.Logf("heap %d MiB, at most %d MiB more; slowest good server %v", before.HeapAlloc>>20, grown>>20, slowest)
	}
	stop()
	deadline := time.Now().Add(20 * time.Second)
	for {
		// The servers of the test have one goroutine per port, and a few for their
		// connections, which end by themselves.
		have := runtime.NumGoroutine()
		if allowed := goroutines + 2*p.next + 20; have <= allowed {
			break
		} else if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines are left, %d were there\n%s", have, allowed, stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// With many large catalogues at a time, memory is bounded, and all of them are read
// in the end.
func TestManyLargeCatalogues(t *testing.T) {
	p := newPods(t)
	catalog := catalogOf(t, allCapabilities, map[string]string{"tools/list": list("tools", 400, func(i int) string { return tool(i, 3000, 10, 100) })})
	plain := report(true, "", "", string(encode(catalog)))
	adminPort := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // one that costs nothing
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		plain.ServeHTTP(w, r)
	})
	client := sdkServer()
	prober, _ := p.run(Options{})
	for n := range 20 {
		name := fmt.Sprint("large", n)
		prober.Watch(serverName(name), []Instance{p.add(name, client, adminPort)})
	}
	for n := range 20 {
		got := eventually(t, prober, fmt.Sprint("large", n), "read", func(r Result) bool { return r.Catalog != nil })
		if stored := got.Catalog.Stored; stored == nil || len(stored.JSON) > maxStored || !strings.Contains(stored.Trimmed, "input schemas") {
			t.Errorf("got %+v", got.Catalog.Summary)
		}
	}
}

// An answer that cannot be taken in is not transferred: workers that read and
// discard catalogues would only keep each other from decoding them.
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

func TestBudget(t *testing.T) {
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
		err := a.read(t.Context(), strings.NewReader(`{"ready":true,"error":"`+strings.Repeat("x", 19<<20)+`"}`), "", &answer)
		if err != nil || !answer.report.Ready {
			t.Fatal(err)
		}
		if err := a.read(t.Context(), strings.NewReader(strings.Repeat(" ", maxBody+1)), "", &answer); mcpprobe.ClassOf(err) != mcpprobe.TooLarge {
			t.Fatal(err)
		}
	}
	if a.budget.left != inFlight {
		t.Errorf("%d bytes were not given back", inFlight-a.budget.left)
	}
	a.budget.take(inFlight - 1000)
	if err := a.read(t.Context(), strings.NewReader("{}"), "", &reply{}); !errors.Is(err, errNoRoom) {
		t.Errorf("got %v, want no room", err)
	}
}

func BenchmarkDecode(b *testing.B) {
	catalog := catalogOf(b, allCapabilities, map[string]string{"tools/list": list("tools", 400, func(i int) string { return tool(i, 15000, 10, 100) })})
	data := encode(admin.Report{Ready: true, Catalog: encode(catalog)})
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		var answer reply
		if err := decode(data, mcpprobe.Limits{}, "", &answer); err != nil {
			b.Fatal(err)
		}
	}
}
