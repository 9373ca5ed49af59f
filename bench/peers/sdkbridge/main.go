// Command sdkbridge is the bridge that one writes in an afternoon with the official Go
// SDK: its server transport on one side, its client transport on the other, and two
// loops that pass messages on. It is a peer in benchmarks and no more than that: it
// cannot send progress on the stream of its call, for one.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/bench/listen"
)

func main() { listen.Serve("sdkbridge", &bridge{command: os.Args[1:]}) }

const sessionHeader = "Mcp-Session-Id"

type bridge struct {
	command  []string
	sessions sync.Map // of *session, by id
}

type session struct {
	transport *mcp.StreamableServerTransport
	client    mcp.Connection
	server    mcp.Connection
}

func (b *bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(sessionHeader)
	if id == "" {
		var err error
		if id, err = b.open(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set(sessionHeader, id)
	}
	found, ok := b.sessions.Load(id)
	if !ok {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	s := found.(*session)
	if r.Method == http.MethodDelete {
		b.sessions.Delete(id)
		if err := s.close(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		return
	}
	s.transport.ServeHTTP(w, r)
}

// open starts a process and connects both sides.
func (b *bridge) open() (id string, err error) {
	ctx := context.Background()                             // the session outlives the request that opens it
	process := exec.Command(b.command[0], b.command[1:]...) //nolint:noctx // What the benchmark told us to run.
	stdin, err := process.StdinPipe()
	if err != nil {
		return "", err
	}
	stdout, err := process.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := process.Start(); err != nil {
		return "", fmt.Errorf("start server: %w", err)
	}
	s := &session{transport: &mcp.StreamableServerTransport{SessionID: rand.Text()}}
	if s.client, err = s.transport.Connect(ctx); err != nil {
		return "", fmt.Errorf("connect client's side: %w", err)
	}
	const unlimited = -1
	if s.server, err = (&mcp.IOTransport{Reader: stdout, Writer: stdin, MaxLineLength: unlimited}).Connect(ctx); err != nil {
		return "", fmt.Errorf("connect server's side: %w", err)
	}
	go pump(ctx, s.client, s.server)
	go func() {
		pump(ctx, s.server, s.client)
		_ = s.close()
		_ = process.Wait() // however it ended, it is over
	}()
	b.sessions.Store(s.transport.SessionID, s)
	return s.transport.SessionID, nil
}

// pump passes messages on until one side is closed.
func pump(ctx context.Context, from, to mcp.Connection) {
	for {
		message, err := from.Read(ctx)
		if err != nil {
			return
		}
		if err := to.Write(ctx, message); err != nil {
			return
		}
	}
}

func (s *session) close() error { return errors.Join(s.client.Close(), s.server.Close()) }
