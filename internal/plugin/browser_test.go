//go:build unix

package plugin

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

// useOpener has nothing on the PATH but a program of shell that opens pages.
func useOpener(t *testing.T, script string) {
	t.Helper()
	usePrograms(t, map[string]string{"xdg-open": script, "open": script})
}

// A program that becomes the browser does not keep the command waiting, and Ctrl+C, which goes to our process group, does
// not end it.
func TestOpenBrowser(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "opener")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OPENER", fifo)
	useOpener(t, `echo "$$ $1" > "$OPENER"; exec /bin/sleep 1000`)
	opened := make(chan struct{})
	go func() {
		openBrowser("http://127.0.0.1:1/?token=a", io.Discard)
		close(opened)
	}()
	said, err := os.ReadFile(fifo)
	if err != nil {
		t.Fatal(err)
	}
	number, link, _ := strings.Cut(strings.TrimSpace(string(said)), " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	select {
	case <-opened:
	case <-time.After(hang.Guard):
		t.Fatal("the command waits for the browser")
	}
	if group, err := syscall.Getpgid(pid); err != nil || group != pid || link != "http://127.0.0.1:1/?token=a" {
		t.Errorf("process %d is of group %d, %v, and opens %s", pid, group, err, link)
	}
}

// A user without a browser learns that nothing opens.
func TestOpenNoBrowser(t *testing.T) {
	said := make(chan string, 1)
	useOpener(t, "exit 3")
	openBrowser("http://127.0.0.1:1/", toChannel(said))
	select {
	case got := <-said:
		if !strings.HasPrefix(got, "Open the link yourself: run ") || !strings.HasSuffix(got, "open: exit status 3.\n") {
			t.Errorf("got %q", got)
		}
	case <-time.After(hang.Guard):
		t.Fatal("the command says nothing")
	}
	t.Setenv("PATH", t.TempDir())
	var got bytes.Buffer
	openBrowser("http://127.0.0.1:1/", &got)
	if !strings.HasPrefix(got.String(), "Open the link yourself: run ") || !strings.Contains(got.String(), "executable file not found") {
		t.Errorf("got %q", got.String())
	}
}

// toChannel passes on what is written.
type toChannel chan string

func (w toChannel) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}
