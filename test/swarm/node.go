package swarm

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/test/forward"
)

// Node is what runs clients in TypeScript.
type Node struct {
	Program string // Node.js
	Modules string // where the packages of test/eras are installed
}

//go:embed typescript
var scripts embed.FS

// sessionsPerProcess is how many clients one process of Node.js has. A process for each client would need 60 MB for each.
const sessionsPerProcess = 8

// statusUnasked is what clients in TypeScript see if they do not get as far as the server. Their connections lead
// through a port of this process, because they cannot dial by themselves as the swarm does.
const statusUnasked = 590

// nodes are the processes that clients in TypeScript live in.
type nodes struct {
	processes map[Make][]*node
	closing   []func() error
}

// startNodes starts as many processes as the clients need.
func (s *Swarm) startNodes(ctx context.Context) (all *nodes, err error) {
	all = &nodes{processes: map[Make][]*node{}}
	numbers := map[Make]int{TypeScriptV1: s.options.Clients.TypeScriptV1, TypeScriptV2: s.options.Clients.TypeScriptV2}
	if numbers[TypeScriptV1]+numbers[TypeScriptV2] == 0 {
		return all, nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start clients in TypeScript: %w", err), all.end())
		}
	}()
	dir, err := os.MkdirTemp("", "slipway-swarm")
	if err != nil {
		return nil, err
	}
	all.closing = append(all.closing, func() error { return os.RemoveAll(dir) })
	if err := os.CopyFS(dir, scripts); err != nil {
		return nil, err
	}
	address, err := s.door(ctx, all)
	if err != nil {
		return nil, err
	}
	for kind, number := range numbers {
		for range (number + sessionsPerProcess - 1) / sessionsPerProcess {
			process, err := startNode(ctx, s.options.Node, filepath.Join(dir, "typescript", "main.mjs"), string(kind), address)
			if err != nil {
				return nil, err
			}
			all.processes[kind] = append(all.processes[kind], process)
			all.closing = append(all.closing, process.end)
		}
	}
	return all, nil
}

// door leads to the server, and returns the URL at which clients in TypeScript find it.
func (s *Swarm) door(ctx context.Context, all *nodes) (string, error) {
	target, err := url.Parse(s.options.URL)
	if err != nil {
		return "", err
	}
	host := target.Host
	if target.Port() == "" {
		host = net.JoinHostPort(target.Hostname(), "80")
	}
	address, end, err := forward.Listen(context.WithoutCancel(ctx), func(ctx context.Context) (net.Conn, error) { return s.options.Dial(ctx, "tcp", host) }, func(local net.Conn, err error) {
		if s.options.Unasked == nil || !errors.Is(err, s.options.Unasked) {
			return // The client sees that the connection ends.
		}
		_ = local.SetDeadline(time.Now().Add(s.options.Patience))
		if request, err := http.ReadRequest(bufio.NewReader(local)); err == nil {
			_, _ = io.Copy(io.Discard, request.Body) // as far as it comes: the client may have gone
			_, _ = fmt.Fprintf(local, "HTTP/1.1 %d Unasked\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", statusUnasked)
		}
	})
	if err != nil {
		return "", err
	}
	all.closing = append(all.closing, end)
	target.Host = address
	return target.String(), nil
}

func (n *nodes) end() error {
	var all []error
	for _, end := range n.closing {
		all = append(all, end())
	}
	return errors.Join(all...)
}

// node is one process, which many clients share.
type node struct {
	command *exec.Cmd
	stderr  bytes.Buffer
	gone    chan struct{} // closed when it writes no more

	mu      sync.Mutex
	stdin   io.WriteCloser
	last    int
	waiting map[int]chan reply
}

// order is what a process is told to do.
type order struct {
	ID      int    `json:"id"`
	Session int    `json:"session"` // the number of the client
	Do      string `json:"do"`
	Millis  int64  `json:"ms"` // how long it may take
	Word    string `json:"word,omitempty"`
	Number  int    `json:"number,omitempty"`
	Cut     int    `json:"cut,omitempty"`
	Keeps   bool   `json:"keeps,omitempty"`
	Lives   bool   `json:"lives,omitempty"`
}

// reply is the result of an order.
type reply struct {
	ID        int       `json:"id"`
	Answer    string    `json:"answer"`
	Asked     int       `json:"asked"`
	Progress  []float64 `json:"progress"`
	Resumed   int       `json:"resumed"`
	Cancelled bool      `json:"cancelled"`
	Error     string    `json:"error"`
	Troubles  []trouble `json:"troubles"`
	Told      bool      `json:"told"`
	Before    bool      `json:"before"`
	GaveUp    bool      `json:"gaveUp"`
	Waits     bool      `json:"waits"`
}

func startNode(ctx context.Context, with Node, script, kind, address string) (*node, error) {
	// It ends when its standard input does.
	n := &node{command: exec.CommandContext(context.WithoutCancel(ctx), with.Program, script, kind, with.Modules, address), gone: make(chan struct{}), waiting: map[int]chan reply{}}
	n.command.Stderr = &n.stderr
	stdout, err := n.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if n.stdin, err = n.command.StdinPipe(); err != nil {
		return nil, err
	}
	if err := n.command.Start(); err != nil {
		return nil, err
	}
	go n.read(stdout)
	return n, nil
}

func (n *node) read(stdout io.Reader) {
	defer close(n.gone)
	for replies := json.NewDecoder(stdout); ; {
		var got reply
		if err := replies.Decode(&got); err != nil {
			return
		}
		n.mu.Lock()
		waiting := n.waiting[got.ID]
		delete(n.waiting, got.ID)
		n.mu.Unlock()
		if waiting != nil {
			waiting <- got
		}
	}
}

// end ends the process, and says what went wrong in it.
func (n *node) end() error {
	_ = n.stdin.Close()
	<-n.gone
	if err := n.command.Wait(); err != nil {
		return fmt.Errorf("clients in TypeScript: %w: %s", err, n.stderr.String())
	}
	return nil
}

// grace is how much longer the swarm waits than the SDK, whose own time-out is to come first.
const grace = 10 * time.Second

// do has the process do something, and waits until it is done.
func (n *node) do(ctx context.Context, what order) (reply, error) {
	if deadline, ok := ctx.Deadline(); ok {
		what.Millis = max(time.Until(deadline).Milliseconds(), 1)
	}
	done := make(chan reply, 1)
	n.mu.Lock()
	n.last++
	what.ID = n.last
	n.waiting[what.ID] = done
	err := json.NewEncoder(n.stdin).Encode(what)
	n.mu.Unlock()
	if err != nil {
		return reply{}, wrong("tell clients in TypeScript: %v", err)
	}
	select {
	case got := <-done:
		return got, nil
	case <-n.gone:
		return reply{}, wrong("the process of the client has ended")
	case <-time.After(time.Duration(what.Millis)*time.Millisecond + grace):
		return reply{}, wrong("the process of the client does not answer")
	}
}

// nodeSession is a session of a client in TypeScript.
type nodeSession struct {
	node   *node
	number int
}

func (n *nodes) open(ctx context.Context, c *client) (session, error) {
	processes := n.processes[c.make]
	s := &nodeSession{node: processes[c.number%len(processes)], number: c.number}
	if _, err := s.do(ctx, order{Do: "open", Keeps: c.keeps}); err != nil {
		s.end(ctx, false)
		return nil, err
	}
	return s, nil
}

func (s *nodeSession) do(ctx context.Context, what order) (reply, error) {
	what.Session = s.number
	got, err := s.node.do(ctx, what)
	if err != nil {
		return got, err
	}
	f := facts{troubles: got.Troubles, told: got.Told, before: got.Before, gaveUp: got.GaveUp, waits: got.Waits}
	if got.Error != "" {
		f.err = errors.New(got.Error)
	}
	return got, judge(f)
}

func (s *nodeSession) tick(ctx context.Context, word string) (string, error) {
	got, err := s.do(ctx, order{Do: "tick", Word: word})
	return got.Answer, err
}

func (s *nodeSession) ask(ctx context.Context) (int, string, error) {
	got, err := s.do(ctx, order{Do: "ask"})
	return got.Asked, got.Answer, err
}

func (s *nodeSession) stream(ctx context.Context, number, cut int) (streamed, error) {
	got, err := s.do(ctx, order{Do: "stream", Number: number, Cut: cut})
	return streamed{progress: got.Progress, answer: got.Answer, resumed: got.Resumed > 0}, err
}

func (s *nodeSession) cancel(ctx context.Context) error {
	got, err := s.do(ctx, order{Do: "cancel"})
	if err == nil && !got.Cancelled {
		return wrong("a cancelled call was answered %q", got.Answer)
	}
	return err
}

func (s *nodeSession) end(ctx context.Context, lives bool) {
	_, _ = s.node.do(ctx, order{Session: s.number, Do: "end", Lives: lives}) // it may be over
}
