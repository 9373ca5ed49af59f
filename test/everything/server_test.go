//go:build conformance

package everything

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/sidecar/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/legacysse"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// install installs the pinned packages into the cache, once for each lock file, and
// returns the server's command.
func install(t *testing.T) (command []string) {
	t.Helper()
	cache := os.Getenv("SLIPWAY_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Fatalf("find cache: %v", err)
		}
		cache = filepath.Join(dir, "slipway")
	}
	key := sha256.New()
	files := map[string][]byte{"package.json": nil, "package-lock.json": nil}
	for _, name := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatalf("read %s: %v", name, err)
		}
		key.Write(data)
		files[name] = data
	}
	dir := filepath.Join(cache, "everything", hex.EncodeToString(key.Sum(nil)[:8]))
	command = []string{"node", filepath.Join(dir, "node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js"), "stdio"}
	installed := filepath.Join(dir, "installed")
	if _, err := os.Stat(installed); err == nil {
		return command
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatalf("make %s: %v", dir, err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatalf("copy %s: %v", name, err)
		}
	}
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("run npm ci: %v: %s", err, out)
	}
	if err := os.WriteFile(installed, nil, 0o644); err != nil {
		t.Fatalf("mark %s: %v", dir, err)
	}
	return command
}

// serve runs the adapter with the command behind it, until the test is over, and
// returns its URL.
func serve(t *testing.T, command ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "sidecar")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/sidecar").CombinedOutput(); err != nil {
		t.Fatalf("build sidecar: %v: %s", err, out)
	}
	sidecar := exec.CommandContext(context.WithoutCancel(t.Context()), binary, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--"}, command...)...)
	stderr, err := sidecar.StderrPipe()
	if err != nil {
		t.Fatalf("make pipe: %v", err)
	}
	if err := sidecar.Start(); err != nil {
		t.Fatalf("start sidecar: %v", err)
	}
	drained := make(chan struct{})
	t.Cleanup(func() {
		_ = sidecar.Process.Signal(syscall.SIGTERM)
		<-drained // Wait would close the pipe under its reader
		if err := sidecar.Wait(); err != nil {
			t.Errorf("stop sidecar: %v", err)
		}
	})
	urls := make(chan string, 1)
	go func() {
		defer close(drained)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			var entry struct {
				URL string `json:"url"`
			}
			if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.URL != "" {
				urls <- entry.URL
			}
		}
	}()
	return receive(t, urls)
}

// endpoint is the HTTP+SSE transport in this process, with a process of the server
// for each session.
type endpoint struct {
	url      string
	pool     *child.Pool
	sessions *session.Registry
}

func newEndpoint(t *testing.T, command ...string) *endpoint {
	t.Helper()
	direct, err := launcher.NewDirect(launcher.Options{Command: command, Stderr: io.Discard})
	if err != nil {
		t.Fatalf("run server's command: %v", err)
	}
	e := &endpoint{
		pool: child.NewPool(direct, child.Options{
			LineBytes: 16 << 20, Max: 8, Starts: 4,
			StartHold: 5 * time.Second, EOFGrace: 500 * time.Millisecond, TermGrace: 2 * time.Second, Log: testr.New(t),
		}),
		sessions: session.NewRegistry(session.Policy{Max: 8, IdleTimeout: time.Hour, MaxLifetime: time.Hour}),
	}
	metrics := &session.Metrics{}
	transport := legacysse.New(legacysse.Options{
		Sessions: e.sessions, MintToken: rand.Text, PostTo: legacysse.MessagesPath,
		Open: func(ctx context.Context) (*session.Session, error) {
			server, err := e.pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			opened := session.New(server, session.Limits{
				Calls: 64, Streams: 1, PendingBytes: 1 << 20, TotalBytes: 32 << 20,
				CallTimeout: time.Minute, CancelGrace: 5 * time.Second, DeliveryTimeout: 5 * time.Second,
			}, metrics)
			server.Serve(func(message session.Message) {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				opened.Deliver(ctx, message)
			}, opened.End)
			return opened, nil
		},
		BodyBytes: 1 << 20, OpenTimeout: patience, SendTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, KeepAlive: time.Second,
	})
	mux := http.NewServeMux()
	mux.HandleFunc(legacysse.StreamPath, transport.ServeStream)
	mux.HandleFunc(legacysse.MessagesPath, transport.ServeMessages)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		e.sessions.Drain(ended)
		server.Close()
		if err := direct.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	e.url = server.URL
	return e
}
