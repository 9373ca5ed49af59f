// Command naive is the barest bridge that works: net/http, one process for each
// session, a mutex, and one write to and one read from a pipe for each call. It checks
// nothing, times nothing out and cleans nothing up, and it knows how the echo server
// spells its answers. Everything that a real bridge does more shows as a ratio to it.
package main

import (
	"bytes"
	"crypto/rand"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"github.com/slipway-mcp/slipway/bench/listen"
)

func main() { listen.Serve("naive", &bridge{command: os.Args[1:]}) }

const sessionHeader = "Mcp-Session-Id"

type bridge struct {
	command  []string
	sessions sync.Map // of *session, by id
}

// session is a process and the pipes to it.
type session struct {
	process *exec.Cmd
	stdin   io.WriteCloser
	stdout  io.Reader

	mu     sync.Mutex
	buffer []byte // read and not yet answered
}

func (b *bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(sessionHeader)
	if id == "" {
		created, err := b.start()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		id = rand.Text()
		b.sessions.Store(id, created)
	}
	found, ok := b.sessions.Load(id)
	if !ok {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	s := found.(*session)
	switch r.Method {
	case http.MethodPost:
		w.Header()[sessionHeader] = []string{id}
		s.post(w, r)
	case http.MethodGet:
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case http.MethodDelete:
		b.sessions.Delete(id)
		_ = s.stdin.Close()
		_ = s.process.Wait() // however it ended, it is over
	}
}

func (b *bridge) start() (*session, error) {
	process := exec.Command(b.command[0], b.command[1:]...) //nolint:noctx // What the benchmark told us to run.
	stdin, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &session{process: process, stdin: stdin, stdout: stdout}, process.Start()
}

var (
	answerPrefix = []byte(`{"jsonrpc":"2.0","id":`)
	notification = []byte(`"method":"notifications/`)
)

// post passes one message on and what comes back for it: an answer as it is, or events
// up to the answer.
func (s *session) post(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, r.ContentLength+1)
	if _, err := io.ReadFull(r.Body, body[:r.ContentLength]); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body[r.ContentLength] = '\n'
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.stdin.Write(body); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if bytes.Contains(body[:min(len(body), 100)], notification) {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	streaming := false
	for {
		line, err := s.line()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		answer := bytes.HasPrefix(line, answerPrefix)
		if answer && !streaming {
			w.Header()["Content-Type"] = []string{"application/json"}
			w.Header()["Content-Length"] = []string{strconv.Itoa(len(line))}
			_, _ = w.Write(line) // a client that is gone needs no answer
			s.consume(len(line))
			return
		}
		if !streaming {
			w.Header()["Content-Type"] = []string{"text/event-stream"}
			streaming = true
		}
		for _, part := range [][]byte{[]byte("data: "), line, []byte("\n")} {
			_, _ = w.Write(part)
		}
		s.consume(len(line))
		if answer {
			return
		}
		if bytes.IndexByte(s.buffer, '\n') < 0 {
			_ = http.NewResponseController(w).Flush()
		}
	}
}

const (
	smallBuffer = 4 << 10
	keptBuffer  = 64 << 10
)

// line is the next line, with its end, until consume.
func (s *session) line() ([]byte, error) {
	searched := 0
	for {
		if end := bytes.IndexByte(s.buffer[searched:], '\n'); end >= 0 {
			return s.buffer[:searched+end+1], nil
		}
		searched = len(s.buffer)
		if len(s.buffer) == cap(s.buffer) {
			s.buffer = append(make([]byte, 0, max(2*cap(s.buffer), smallBuffer)), s.buffer...)
		}
		n, err := s.stdout.Read(s.buffer[len(s.buffer):cap(s.buffer)])
		if n == 0 && err != nil {
			return nil, err
		}
		s.buffer = s.buffer[:len(s.buffer)+n]
	}
}

func (s *session) consume(n int) {
	rest := s.buffer[n:]
	if len(rest) == 0 && cap(s.buffer) > keptBuffer {
		s.buffer = nil
		return
	}
	s.buffer = s.buffer[:copy(s.buffer, rest)]
}
