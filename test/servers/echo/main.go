// Command echo is an MCP server on standard input and output for tests and
// benchmarks. It costs next to nothing itself, keeps state, so that mixed-up
// sessions show, and misbehaves on request.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

const maxLine = 256 << 20

func main() {
	option, value := "", ""
	if len(os.Args) == 3 {
		option, value = os.Args[1], os.Args[2]
	}
	switch option {
	case "--kill":
		kill(value)
		return
	case "--touch":
		touch(value)
		return
	}
	s := &server{name: nameOf(), out: bufio.NewWriterSize(os.Stdout, 64<<10), cancelled: map[string]chan struct{}{}, answers: map[string]chan json.RawMessage{}}
	switch option {
	case "--page":
		s.page, _ = strconv.Atoi(value) // without a number, everything is one page
	case "--until":
		s.until = value
	}
	reader := rpc.NewFrameReader(os.Stdin, rpc.Newline, maxLine, func(line []byte) {
		fmt.Fprintf(os.Stderr, "echo: not a message: %q\n", line)
		os.Exit(65) // S-04: no client may send this
	})
	for {
		line, err := reader.Next()
		if err == io.EOF { //nolint:errorlint // Next returns it as it is.
			return
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "echo:", err)
			os.Exit(1)
		}
		s.handle(line)
	}
}

// kill ends another process and says when it did.
func kill(pid string) {
	number, err := strconv.Atoi(pid)
	if err == nil {
		fmt.Println(time.Now().UnixNano())
		err = syscall.Kill(number, syscall.SIGKILL)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "echo: kill", pid, err)
		os.Exit(1)
	}
}

// touch makes a file, for --until.
func touch(path string) {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

type server struct {
	mu        sync.Mutex
	out       *bufio.Writer
	page      int    // tools in one answer to tools/list; 0 is all
	until     string // a file; when it is there we fall silent
	count     int
	ticks     int             // calls of tick
	words     map[string]bool // what clients have called these
	name      string          // of this process, among all that there ever were
	asked     int
	hoard     [][]byte
	cancelled map[string]chan struct{}        // calls that can be cancelled, by id
	answers   map[string]chan json.RawMessage // our own requests, by id
}

// nameOf returns the host, which is the pod in a cluster, and a random number.
func nameOf() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + " " + strconv.FormatUint(rand.Uint64(), 36)
}

// tick says which process this is, how many calls of tick it has executed, and what the client has called this one.
func (s *server) tick(id, word string) {
	s.ticks++
	if s.words == nil {
		s.words = map[string]bool{}
	}
	if s.words[word] {
		word += ",again"
	}
	s.words[word] = true
	s.text(id, s.name+" "+strconv.Itoa(s.ticks)+" "+word)
}

// send writes one message made of the parts.
func (s *server) send(parts ...string) {
	s.mu.Lock()
	for _, part := range parts {
		_, _ = s.out.WriteString(part) // an error shows at Flush
	}
	_ = s.out.WriteByte('\n')
	err := s.out.Flush()
	s.mu.Unlock()
	if err != nil {
		os.Exit(1)
	}
}

func (s *server) result(id, result string) {
	s.send(`{"jsonrpc":"2.0","id":`, id, `,"result":`, result, `}`)
}

func (s *server) text(id, text string) {
	s.result(id, `{"content":[{"type":"text","text":`+string(rpc.AppendString(nil, text))+`}]}`)
}

func (s *server) progress(token string, number int, message string) {
	s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`, token, `,"progress":`, strconv.Itoa(number), `,"message":"`, message, `"}}`)
}

func (s *server) handle(line []byte) {
	e, err := rpc.Scan(line)
	if err != nil {
		fmt.Fprintf(os.Stderr, "echo: %v: %.200q\n", err, line)
		os.Exit(65)
	}
	id := string(e.ID.Of(line))
	switch e.Kind {
	case rpc.Response:
		s.mu.Lock()
		answer := s.answers[id]
		s.mu.Unlock()
		if answer != nil {
			answer <- append(json.RawMessage(nil), line...)
		}
	case rpc.Notification:
		if string(e.Method) == "notifications/cancelled" {
			s.mu.Lock()
			if c := s.cancelled[string(e.RequestID.Of(line))]; c != nil {
				close(c)
				delete(s.cancelled, string(e.RequestID.Of(line)))
			}
			s.mu.Unlock()
		}
	case rpc.Request:
		s.request(id, string(e.Method), line, e)
	}
}

func (s *server) request(id, method string, line []byte, e rpc.Envelope) {
	if s.until != "" {
		if _, err := os.Stat(s.until); err == nil {
			return
		}
	}
	switch method {
	case "initialize":
		revision := string(e.RequestedVersion)
		switch revision {
		case "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25":
		default:
			revision = "2025-11-25"
		}
		s.result(id, `{"protocolVersion":"`+revision+`","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"echo","version":"1"}}`)
	case "ping":
		s.result(id, `{}`)
	case "tools/list":
		s.list(id, e.Params.Of(line))
	case "tools/call":
		s.call(id, string(e.Name), append([]byte(nil), e.Params.Of(line)...), string(e.ProgressToken.Of(line)))
	default:
		s.send(`{"jsonrpc":"2.0","id":`, id, `,"error":{"code":-32601,"message":"unknown method"}}`)
	}
}

// toolNames are the tools; what each does stands in call.
var toolNames = []string{"echo", "count", "pid", "sleep", "burst", "big", "ask", "log", "junk", "stderr", "exit", "kill", "close", "changed", "spawn", "whoami", "allocate", "flood"}

// list answers with the page that the cursor, the number of its first tool, stands for.
func (s *server) list(id string, params []byte) {
	var p struct {
		Cursor string `json:"cursor"`
	}
	if len(params) > 0 {
		_ = json.Unmarshal(params, &p) // rpc.Scan has seen to it that it is an object
	}
	first := 0
	if p.Cursor != "" {
		var err error
		if first, err = strconv.Atoi(p.Cursor); err != nil || first < 0 || first >= len(toolNames) {
			s.send(`{"jsonrpc":"2.0","id":`, id, `,"error":{"code":-32602,"message":"unknown cursor"}}`)
			return
		}
	}
	last, next := len(toolNames), ""
	if s.page > 0 && first+s.page < last {
		last = first + s.page
		next = `,"nextCursor":"` + strconv.Itoa(last) + `"`
	}
	entries := make([]string, 0, last-first)
	for _, name := range toolNames[first:last] {
		entries = append(entries, `{"name":"`+name+`","description":"see the source","inputSchema":{"type":"object"}}`)
	}
	s.result(id, `{"tools":[`+strings.Join(entries, ",")+`]`+next+`}`)
}

type arguments struct {
	Text   string `json:"text"`
	N      int    `json:"n"`
	Size   int    `json:"size"`
	Millis int    `json:"ms"`
}

func (s *server) call(id, name string, params []byte, token string) {
	if name == "count" { // state that another session must not see
		// It takes no arguments and looks at none, however large: reading them would
		// cost more than the bridge that a benchmark is about.
		s.count++
		s.text(id, strconv.Itoa(s.count))
		return
	}
	var p struct {
		Arguments arguments `json:"arguments"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		s.send(`{"jsonrpc":"2.0","id":`, id, `,"error":{"code":-32602,"message":"bad arguments"}}`)
		return
	}
	a := p.Arguments
	switch name {
	case "echo":
		s.text(id, a.Text)
	case "pid":
		s.text(id, strconv.Itoa(os.Getpid()))
	case "big":
		s.big(id, token, a)
	case "sleep":
		if a.Text != "" { // to be said when it has begun
			s.progress(token, 0, a.Text)
		}
		s.sleep(id, time.Duration(a.Millis)*time.Millisecond)
	case "ask":
		go s.ask(id, a.Text)
	case "whoami":
		s.text(id, whoami())
	case "allocate": // and keep, so many MiB
		for range a.N {
			s.hoard = append(s.hoard, bytes.Repeat([]byte{1}, 1<<20))
		}
		s.text(id, "done")
	default:
		s.misbehave(id, name, token, a)
	}
}

func (s *server) big(id, token string, a arguments) {
	if a.Text != "" { // to be said before
		s.progress(token, 0, a.Text)
	}
	s.text(id, strings.Repeat("x", a.N))
}

func (s *server) misbehave(id, name, token string, a arguments) {
	switch name {
	case "burst": // progress, as fast as it goes
		padding := strings.Repeat("p", a.Size)
		for i := range a.N {
			s.progress(token, i, padding)
		}
	case "log":
		s.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":`, string(rpc.AppendString(nil, a.Text)), `}}`)
	case "changed":
		s.send(listChanged)
	case "junk":
		s.send("this is not a message")
		s.send("{neither is this")
	case "stderr":
		fmt.Fprint(os.Stderr, strings.Repeat(a.Text+"\n", a.N))
	case "exit":
		fmt.Fprintln(os.Stderr, "echo: told to exit")
		os.Exit(a.N)
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "close":
		_ = os.Stdout.Close()
		return
	case "spawn":
		spawnStragglers()
	case "flood":
		s.flood(a.Text, a.N)
	default:
		s.unlisted(id, name, a)
		return
	}
	s.text(id, "done")
}

// unlisted is a tool that tools/list does not have.
func (s *server) unlisted(id, name string, a arguments) {
	switch name {
	case "tick":
		s.tick(id, a.Text)
	case "changes": // once the call is over, so that the notification belongs to none
		s.text(id, "done")
		s.send(listChanged)
	default:
		s.send(`{"jsonrpc":"2.0","id":`, id, `,"error":{"code":-32602,"message":"unknown tool"}}`)
	}
}

const listChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// whoami says who the server runs as, and where it can write.
func whoami() string {
	text := []string{"uid " + strconv.Itoa(os.Getuid())}
	for _, dir := range []string{os.Getenv("HOME"), os.TempDir()} {
		err := os.WriteFile(filepath.Join(dir, "written"), []byte("by echo"), 0o600)
		if err == nil {
			text = append(text, "can write "+dir)
		} else {
			text = append(text, err.Error())
		}
	}
	return strings.Join(text, ", ")
}

// spawnStragglers starts children that outlive this process unless the launcher ends them.
func spawnStragglers() {
	for _, argv := range [][]string{{"sleep", "1000"}, {"setsid", "sleep", "1000"}, {"sh", "-c", "trap '' TERM; sleep 1000 & wait"}} {
		if _, err := os.StartProcess("/usr/bin/env", append([]string{"env"}, argv...), &os.ProcAttr{}); err != nil {
			fmt.Fprintln(os.Stderr, "echo:", err)
		}
	}
}

// sleep answers later, or not at all if it is cancelled.
func (s *server) sleep(id string, d time.Duration) {
	cancelled := make(chan struct{})
	s.mu.Lock()
	s.cancelled[id] = cancelled
	s.mu.Unlock()
	go func() {
		select {
		case <-cancelled:
			fmt.Fprintln(os.Stderr, "echo: cancelled", id)
		case <-time.After(d):
			s.text(id, "slept")
		}
	}()
}

// ask puts a question to the client and returns what it says.
func (s *server) ask(id, text string) {
	s.mu.Lock()
	s.asked++
	own := strconv.Itoa(s.asked) // small numbers, as in most clients
	answer := make(chan json.RawMessage, 1)
	s.answers[own] = answer
	s.mu.Unlock()
	s.send(`{"jsonrpc":"2.0","id":`, own, `,"method":"elicitation/create","params":{"message":`, string(rpc.AppendString(nil, text)), `,"requestedSchema":{"type":"object","properties":{}}}}`)
	s.text(id, string(<-answer))
}
