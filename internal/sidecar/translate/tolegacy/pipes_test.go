package tolegacy

import (
	"context"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// pipes is a modern server of the official SDK at the other end of two pipes, which all
// sessions of a test share. It does no more than a Modern must.
type pipes struct {
	mu      sync.Mutex
	stdin   io.WriteCloser
	number  uint64
	calls   map[string]*piped
	listens int
	sent    []string
}

// piped is a request to it.
type piped struct {
	pipes     *pipes
	number    string
	id, token string // as they were
	listen    int    // which one it is, if it is a subscription
	ready     chan struct{}
	inbox     []string
	answered  bool
}

func newPipes(t *testing.T, server *mcp.Server) *pipes {
	t.Helper()
	stdin, toServer := io.Pipe()
	fromServer, stdout := io.Pipe()
	p := &pipes{stdin: toServer, calls: map[string]*piped{}}
	var both sync.WaitGroup
	both.Go(func() {
		reader := rpc.NewFrameReader(fromServer, rpc.Newline, 64<<20, func([]byte) {})
		for {
			text, err := reader.Next()
			if err != nil {
				return
			}
			if e, err := rpc.ScanLenient(text); err == nil {
				p.receive(text, e)
			}
		}
	})
	both.Go(func() {
		_ = server.Run(context.Background(), &mcp.IOTransport{Reader: stdin, Writer: stdout})
		_ = stdout.Close()
	})
	t.Cleanup(func() {
		_ = toServer.Close()
		both.Wait()
	})
	return p
}

func (p *pipes) Call(_ context.Context, request session.Message) (Exchange, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number++
	e := &request.Envelope
	x := &piped{pipes: p, number: strconv.FormatUint(p.number, 10), ready: make(chan struct{}, 1)}
	x.id, x.token = string(e.ID.Of(request.Bytes)), string(e.ProgressToken.Of(request.Bytes))
	if string(e.Method) == subscription.MethodListen {
		p.listens++
		x.listen = p.listens
	}
	p.calls[x.number] = x
	edits := []rpc.Edit{{Span: e.ID, With: []byte(x.number)}}
	if x.token != "" {
		edits = append(edits, rpc.Edit{Span: e.ProgressToken, With: []byte(x.number)})
	}
	text := rpc.Edited(request.Bytes, edits...)
	p.sent = append(p.sent, string(text))
	_, err := p.stdin.Write(rpc.AppendFrame(nil, text, rpc.Newline))
	return x, err
}

func (p *pipes) receive(text []byte, e rpc.Envelope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, restores := e.ID, func(x *piped) string { return x.id }
	switch {
	case e.Kind == rpc.Response:
	case string(e.Method) == methodProgress:
		at, restores = e.ProgressToken, func(x *piped) string { return x.token }
	case e.SubscriptionID.Present():
		at = e.SubscriptionID
	default: // a log message, which says not whose it is; tests have one call then
		for _, x := range p.calls {
			if !x.answered && x.listen == 0 {
				x.push(string(text), false)
			}
		}
		return
	}
	if x := p.calls[string(at.Of(text))]; x != nil {
		x.push(string(rpc.Edited(text, rpc.Edit{Span: at, With: []byte(restores(x))})), e.Kind == rpc.Response)
	}
}

func (x *piped) push(text string, last bool) {
	x.inbox = append(x.inbox, text)
	x.answered = x.answered || last
	select {
	case x.ready <- struct{}{}:
	default:
	}
}

func (x *piped) Take() (message []byte, last, ok bool) {
	x.pipes.mu.Lock()
	defer x.pipes.mu.Unlock()
	if len(x.inbox) == 0 {
		return nil, false, false
	}
	message = []byte(x.inbox[0])
	x.inbox = x.inbox[1:]
	return message, x.answered && len(x.inbox) == 0, true
}

func (x *piped) Ready() <-chan struct{} { return x.ready }

func (x *piped) Release() {
	p := x.pipes
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, x.number)
	// In this SDK the end of one subscription ends all of the connection.
	if x.answered || x.listen > 0 && x.listen < p.listens {
		return
	}
	_, _ = io.WriteString(p.stdin, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+x.number+"}}\n")
}

// count is how often a text was sent to the server.
func (p *pipes) count(text string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sent := range p.sent {
		n += strings.Count(sent, text)
	}
	return n
}
