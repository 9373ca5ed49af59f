package remote

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Options say where a server is and how connections to it behave.
type Options struct {
	// URL is that of the server's endpoint, such as http://127.0.0.1:3000/mcp. For the transport of
	// 2024-11-05 it is that of the event stream, such as http://127.0.0.1:3000/sse.
	URL *url.URL

	MessageBytes int            // largest message taken from the server
	Memory       *budget.Budget // for large messages while they are read; nil is no limit
	Calls        int            // messages of one connection that the server is not done with
	SendTimeout  time.Duration  // for the server to read a message
	// AcceptTimeout is for the server to accept a message that it has read. Only the transport of
	// 2024-11-05 has it: there the answer comes by another way.
	AcceptTimeout time.Duration
}

// Server is an MCP server that speaks HTTP. Each of its connections is a mux.Server.
type Server struct {
	Options
	// Junk counts events and bodies of the server that are no messages, and answers to no request.
	Junk session.Counter

	endpoint *Endpoint
}

// New returns a Server. It connects to nothing.
func New(options Options) *Server {
	return &Server{Options: options, endpoint: NewEndpoint(options.URL)}
}

// Check says whether the server's port accepts connections.
func (s *Server) Check(ctx context.Context) error { return s.endpoint.Check(ctx) }

func (s *Server) reach(ctx context.Context) error {
	if err := s.Check(ctx); err != nil {
		return fmt.Errorf("the server could not be reached: %w", err)
	}
	return nil
}
