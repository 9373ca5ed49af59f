package config

import "fmt"

// Transport is the transport that the server speaks.
type Transport uint8

// The transports.
const (
	Stdio Transport = iota
	StreamableHTTP
	SSE
)

// StatelessClients says how the adapter treats clients of revision 2026-07-28 of a server
// that has sessions only.
type StatelessClients uint8

const (
	// Native refuses them, with the error after which clients of both eras open a session.
	Native StatelessClients = iota
	// Translate serves them, with one process for all clients that have the same token, or
	// that have the same address and no token.
	Translate
)

func (s StatelessClients) String() string { return [...]string{"Native", "Translate"}[s] }

// Set makes a StatelessClients a flag.
func (s *StatelessClients) Set(text string) error {
	for _, known := range []StatelessClients{Native, Translate} {
		if known.String() == text {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("want Native or Translate, not %q", text)
}
