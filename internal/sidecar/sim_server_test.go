package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/backend"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// simLedger is what really happens in the servers of a simulation.
type simLedger struct {
	mu        sync.Mutex
	processes int
	executed  map[string]int  // times that each call reached a server
	running   map[string]bool // processes that have not ended
}

func newSimLedger() *simLedger {
	return &simLedger{executed: map[string]int{}, running: map[string]bool{}}
}

func (l *simLedger) isRunning(process string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running[process]
}

// simBackend starts servers in memory.
type simBackend struct {
	backend.Backend
	env      *backend.Env
	ledger   *simLedger
	launcher *simLauncher
}

func newSimBackend(ledger *simLedger, launcher *simLauncher) func(*backend.Env, child.Starter) backend.Backend {
	return func(env *backend.Env, starter child.Starter) backend.Backend {
		return &simBackend{backend.NewProcesses(env, starter), env, ledger, launcher}
	}
}

// simLauncher ends the processes of an adapter that has ended, as the launcher of a pod does. An adapter that fails
// leaves that to the launcher. It is the server's container as well.
type simLauncher struct {
	mu        sync.Mutex
	processes map[*simProcess]*session.Session
	away      bool
}

// begin starts a process, unless the container does not run.
func (l *simLauncher) begin(p *simProcess, of *session.Session) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return launcher.ErrNoLauncher
	}
	if l.processes == nil {
		l.processes = map[*simProcess]*session.Session{}
	}
	l.processes[p] = of
	return nil
}

// setAway has the container end, or start again.
func (l *simLauncher) setAway(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
	if !away {
		return
	}
	for p, of := range l.processes {
		p.Close()
		of.End(errors.New("the server's container has ended"))
	}
	clear(l.processes)
}

// Connected implements child.Container.
func (l *simLauncher) Connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.away
}

// WaitConnected implements child.Container. Only spare processes wait, and there are none.
func (*simLauncher) WaitConnected(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Spawn implements child.Starter. Sessions have processes in memory instead.
func (*simLauncher) Spawn(context.Context, string) (*launcher.Process, error) {
	return nil, launcher.ErrNoLauncher
}

// Open implements backend.Backend.
func (b *simBackend) Open(context.Context, *caller.Caller) (*session.Session, error) {
	b.ledger.mu.Lock()
	b.ledger.processes++
	p := &simProcess{name: fmt.Sprint("process ", b.ledger.processes), ledger: b.ledger, ended: make(chan struct{})}
	b.ledger.running[p.name] = true
	b.ledger.mu.Unlock()
	opened := session.New(p, b.env.SessionLimits(), &b.env.SessionMetrics)
	opened.Number = p.name
	p.deliver = opened.Deliver
	if err := b.launcher.begin(p, opened); err != nil {
		p.Close()
		return nil, err
	}
	return opened, nil
}

// Connect implements backend.Backend.
func (*simBackend) Connect(context.Context, bool) (keeper.Connection, error) {
	return keeper.Connection{}, errors.New("there is no server for the keeper")
}

// Run implements backend.Backend.
func (*simBackend) Run(ctx context.Context) { <-ctx.Done() }

// simProcess is the server of one session. It counts its calls.
type simProcess struct {
	name    string
	ledger  *simLedger
	deliver func(session.Message)
	once    sync.Once
	ended   chan struct{}

	mu    sync.Mutex
	calls int
}

// simRequest is a message of a client.
type simRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Arguments simCall `json:"arguments"`
	} `json:"params"`
}

// simCall is a call that only one server may get, and only once.
type simCall struct {
	Name string        `json:"name"`
	Wait time.Duration `json:"wait"` // before the answer
}

// simResult says who has answered which call.
type simResult struct {
	Call    string `json:"call"`
	Process string `json:"process"`
	Count   int    `json:"count"`
}

// Send implements session.Server.
func (p *simProcess) Send(_ context.Context, message session.Message) error {
	var request simRequest
	if err := json.Unmarshal(message.Bytes, &request); err != nil {
		return err
	}
	switch request.Method {
	case "initialize":
		go p.answer(request.ID, 0, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"`+p.name+`","version":"1"}}`)
	case "tools/call":
		p.call(&request)
	}
	return nil
}

func (p *simProcess) call(request *simRequest) {
	call := request.Params.Arguments
	p.ledger.mu.Lock()
	p.ledger.executed[call.Name]++
	p.ledger.mu.Unlock()
	p.mu.Lock()
	p.calls++
	text, _ := json.Marshal(simResult{call.Name, p.name, p.calls})
	p.mu.Unlock()
	quoted, _ := json.Marshal(string(text))
	go p.answer(request.ID, call.Wait, `{"content":[{"type":"text","text":`+string(quoted)+`}]}`)
}

func (p *simProcess) answer(id json.RawMessage, after time.Duration, result string) {
	select {
	case <-time.After(after):
	case <-p.ended:
		return
	}
	text := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
	envelope, err := rpc.Scan(text)
	if err != nil {
		panic(err)
	}
	p.deliver(session.Message{Bytes: text, Envelope: envelope})
}

// Close implements session.Server.
func (p *simProcess) Close() {
	p.once.Do(func() {
		close(p.ended)
		p.ledger.mu.Lock()
		defer p.ledger.mu.Unlock()
		p.ledger.running[p.name] = false
	})
}
