package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
	"github.com/slipway-mcp/slipway/test/servers"
)

// The programs that the tests run. Another user can run them.
var sidecarProgram, launcherProgram, echoServer string

// asSidecar has the test program be the sidecar itself.
const asSidecar = "SLIPWAY_TEST_AS_SIDECAR"

func TestMain(m *testing.M) {
	if os.Getenv(asSidecar) != "" {
		main()
		return
	}
	os.Exit(servers.Run(m, map[string]*string{
		"cmd/sidecar": &sidecarProgram, "cmd/launcher": &launcherProgram, "test/servers/echo": &echoServer,
	}))
}

// program is one that runs until the test is over.
type program struct {
	*exec.Cmd
	mu  sync.Mutex
	log bytes.Buffer
}

func start(t *testing.T, uid uint32, name string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(filepath.Dir(sidecarProgram), name), args...)}
	if int(uid) != os.Getuid() {
		p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	p.run(t)
	return p
}

// run starts the program, and ends it with the test.
func (p *program) run(t *testing.T) {
	t.Helper()
	p.Stderr = p
	name := filepath.Base(p.Path)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGTERM)
		if err := p.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if t.Failed() {
			t.Logf("%s wrote:\n%s", name, p.written())
		}
	})
}

func (p *program) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(data)
}

func (p *program) written() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

var adminURL = regexp.MustCompile(`"admin":"([^"]+)"`)

// startSidecar returns a sidecar that serves, and where its admin port is.
func startSidecar(t *testing.T, args ...string) (p *program, admin string) {
	t.Helper()
	ports := []string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--drain-timeout", "1s"}
	p = start(t, uint32(os.Getuid()), "sidecar", append(ports, args...)...)
	return p, p.admin(t)
}

// admin waits for a sidecar to say where its admin port is.
func (p *program) admin(t *testing.T) string {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() []string {
		return adminURL.FindStringSubmatch(p.written())
	}).WithTimeout(hang.Guard).Should(gomega.HaveLen(2))
	return adminURL.FindStringSubmatch(p.written())[1]
}

// Architecture §4.2: a pod that has reached its limit of processes allows no new
// threads, and a Go program that needs one dies.
func TestThreadsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	p, _ := startSidecar(t, "--", echoServer)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if len(threads) < spareThreads {
		t.Errorf("%d threads, want %d", len(threads), spareThreads)
	}
}

// Architecture §4.11: every container of the pod can reach the socket, and only the user of the server's
// container may use it.
func TestServerUID(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("to run a process as another user takes root")
	}
	const server, other = 1000, 1001
	for name, test := range map[string]struct {
		flags []string
		uid   uint32
		want  bool
	}{
		"the server's user":   {[]string{"--server-uid", "1000"}, server, true},
		"another user":        {[]string{"--server-uid", "1000"}, other, false},
		"root is another one": {[]string{"--server-uid", "1000"}, 0, false},
		"one of two":          {[]string{"--server-uid", "1000", "--server-uid", "1001"}, other, true},
		"any user":            {nil, other, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp(filepath.Dir(sidecarProgram), "s") //nolint:usetesting // another user must get there
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			socket := filepath.Join(dir, "s")
			p, admin := startSidecar(t, append(test.flags, "--socket", socket)...)
			began := time.Now()
			l := start(t, test.uid, "launcher", "--socket", socket, "--", echoServer)
			g := gomega.NewWithT(t)
			if test.want {
				g.Eventually(func() int { return status(t, admin+"/readyz?wait=1.8s") }).WithTimeout(hang.Guard).Should(gomega.Equal(http.StatusOK))
				return
			}
			g.Eventually(p.written).WithTimeout(hang.Guard).Should(gomega.ContainSubstring(fmt.Sprintf("user %d may not connect", test.uid)))
			if got := status(t, admin+"/readyz"); got != http.StatusServiceUnavailable {
				t.Errorf("status %d", got)
			}
			if strings.Contains(p.written(), "launcher connected") {
				t.Error("the launcher connected")
			}
			// The other container's log tells why, and once a second: after each line the
			// launcher rests for so long.
			g.Eventually(l.written).WithTimeout(hang.Guard).Should(gomega.ContainSubstring(fmt.Sprintf("the user that the adapter expects? It is number %d", test.uid)))
			written := l.written()
			if lines, seconds := strings.Count(written, "\n"), int(time.Since(began)/time.Second); lines > seconds+1 {
				t.Errorf("%d lines in %d seconds:\n%s", lines, seconds, written)
			}
		})
	}
}

func status(t *testing.T, url string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode
}

func TestServerUIDFlag(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"not a number":     {[]string{"--socket", "s", "--server-uid", "node"}, `want the number of a user, such as 1000, not "node"`},
		"too large":        {[]string{"--socket", "s", "--server-uid", "4294967296"}, "want the number of a user"},
		"without a socket": {[]string{"--server-uid", "1000", "--", "true"}, "set --socket, too"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := serve(t.Context(), test.args); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// A key that is too long is refused as one that is too short is.
func TestKeysDir(t *testing.T) {
	for name, text := range map[string]string{"short": "00", "long": strings.Repeat("00", 64), "no number": strings.Repeat("zz", 32), "none": ""} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range map[string]string{"current": text, "accepted": ""} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := serve(t.Context(), []string{"--keys-dir", dir, "--", "true"}); err == nil || !strings.Contains(err.Error(), "in hexadecimal") {
				t.Errorf("got %v", err)
			}
		})
	}
}
