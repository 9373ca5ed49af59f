package prober

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/admin"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/sidecar/settings"
	"github.com/slipway-mcp/slipway/test/hang"
)

// All pods of these tests have one key and, so that they can share handlers, one UID.
var key = adapterapi.NewKey()

const podUID = "11111111-2222-3333-4444-555555555555"

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
		t.Cleanup(func() { _ = listener.Close() }) // so that no other process gets it
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

// add starts a pod that has all the time it needs; a nil handler is a port on which no
// process listens.
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
		Pod: serverName(name), UID: podUID, IP: ip, Ready: true, Key: key,
		Interval: 200 * time.Millisecond, Timeout: hang.Guard,
	}
}

// adapter is a real admin port.
func adapter(state keeper.State) http.Handler {
	held, err := keys.New(adapterapi.Keyring{Current: key}, podUID)
	if err != nil {
		panic(err)
	}
	return admin.Handler(admin.Options{
		State:    func() (keeper.State, <-chan struct{}) { return state, nil },
		Sessions: func() adapterapi.Sessions { return adapterapi.Sessions{Open: 3, Limit: 20, Spares: 2} },
		Processes: func() adapterapi.Processes {
			return adapterapi.Processes{Ended: 2, Crashed: 1, OutOfMemory: 1, Cause: "out of memory"}
		},
		Keys: held, Settings: settings.New(settings.Options{}), Access: access.New(access.Options{}), Metrics: http.NotFoundHandler(),
	})
}

// signed is an admin port that signs whatever the handler answers.
func signed(handler http.Handler) http.Handler {
	ring := adapterapi.Keyring{Current: key}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proof, ok := ring.Verify(r.Header.Get(adapterapi.HeaderProof), adapterapi.CatalogSubject(podUID), time.Now())
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		recorded := httptest.NewRecorder()
		handler.ServeHTTP(recorded, r)
		maps.Copy(w.Header(), recorded.Header())
		w.Header().Set("Content-Length", strconv.Itoa(recorded.Body.Len()))
		w.Header().Set(adapterapi.HeaderAnswer, proof.Seal(adapterapi.Answer{
			Status: recorded.Code, ETag: recorded.Header().Get("ETag"), Sessions: recorded.Header().Get(adapterapi.HeaderSessions), Body: recorded.Body.Bytes(),
			Processes: recorded.Header().Get(adapterapi.HeaderProcesses),
		}))
		w.WriteHeader(recorded.Code)
		_, _ = w.Write(recorded.Body.Bytes())
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
		case <-time.After(hang.Guard):
			p.t.Error("Start does not end")
		}
	})
	p.t.Cleanup(stop)
	return prober, stop
}

// eventually waits for something to become true of a result.
func eventually(t *testing.T, p *Prober, server string, what string, is func(Result) bool) Result {
	t.Helper()
	return eventuallyWithin(t, hang.Guard, p, server, what, is)
}

func eventuallyWithin(t *testing.T, guard time.Duration, p *Prober, server string, what string, is func(Result) bool) Result {
	t.Helper()
	deadline := time.Now().Add(guard)
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
	t.Parallel()
	p := newPods(t)
	client, adminPort, catalog := healthy(t, 200)
	// Nothing that is sent has a byte of the key, or is sent twice.
	var sent, proofs sync.Map
	seen := func(header string, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent.Store(fmt.Sprint(r.URL, r.Header), true)
			if _, again := proofs.LoadOrStore(r.Header.Get(header), true); again {
				t.Errorf("the proof %q is sent twice", r.Header.Get(header))
			}
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
	prober.Watch(serverName("real"), []Instance{p.add("real", seen(adapterapi.HeaderProbe, client), seen(adapterapi.HeaderProof, counted))})
	result := eventually(t, prober, "real", "verified", func(r Result) bool { return r.Outcome == Verified && r.Catalog != nil })
	if result.Sessions != (adapterapi.Sessions{Open: 3, Limit: 20, Spares: 2}) || !result.Report.Ready || result.Catalog.Summary.Catalog.Counts.Tools != 200 || len(result.Catalog.Summary.Catalog.Tools) != 200 ||
		result.Catalog.Summary.Catalog.Digest != catalog.Digest || result.Catalog.Stored.Digest != catalog.Digest {
		t.Errorf("got %+v", result)
	}
	for deadline := time.Now().Add(hang.Guard); unchanged.Load() < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the catalog was asked for %d times by its tag, want 3", unchanged.Load())
		}
	}
	if full.Load() != 1 {
		t.Errorf("the whole catalog was asked for %d times", full.Load())
	}
	stop()
	mu.Lock()
	defer mu.Unlock()
	text := log.String()
	sent.Range(func(request, _ any) bool {
		text += request.(string) + "\n"
		return true
	})
	raw, _ := hex.DecodeString(key.Encode())
	for _, secret := range []string{key.Encode()[:16], string(raw[:8]), base64.StdEncoding.EncodeToString(raw)[:16], base64.RawURLEncoding.EncodeToString(raw)[:16]} {
		if strings.Contains(text, secret) {
			t.Errorf("the key is in what is sent or logged:\n%s", text)
		}
	}
	if !strings.Contains(text, "Verified") || !strings.Contains(text, adapterapi.HeaderProbe) || !strings.Contains(text, adapterapi.HeaderProof) {
		t.Errorf("not all of it was seen:\n%s", text)
	}
}
