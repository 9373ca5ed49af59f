package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/slipway-mcp/slipway/test/priority"
)

// flood writes so many requests, or else notifications, as fast as they are read, and
// reads nothing meanwhile. It leaves the CPU to others: what it costs them is not to be
// the CPU time of this process.
func (s *server) flood(kind string, n int) {
	done := make(chan error)
	go func() { done <- s.floodQuietly(kind, n) }()
	if err := <-done; err != nil {
		fmt.Fprintln(os.Stderr, "echo: flood:", err)
		os.Exit(1)
	}
}

func (s *server) floodQuietly(kind string, n int) error {
	if err := priority.Lowest(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		if kind == "requests" {
			s.asked++
			_, _ = s.out.WriteString(`{"jsonrpc":"2.0","id":`)
			_, _ = s.out.WriteString(strconv.Itoa(s.asked))
			_, _ = s.out.WriteString(`,"method":"elicitation/create","params":{"message":"why?","requestedSchema":{"type":"object","properties":{}}}}`)
		} else {
			_, _ = s.out.WriteString(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`)
		}
		if err := s.out.WriteByte('\n'); err != nil { // or one of the writes before it
			return err
		}
	}
	return s.out.Flush()
}
