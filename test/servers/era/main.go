// Command era makes a server of both eras one of a single era, for tests: era legacy
// COMMAND answers what the stateless revision has with -32601, and era modern COMMAND
// answers initialize with -32022. Everything else passes.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

const maxLine = 256 << 20

func main() {
	if len(os.Args) < 3 || os.Args[1] != "legacy" && os.Args[1] != "modern" {
		fmt.Fprintln(os.Stderr, "usage: era legacy|modern COMMAND [ARGUMENTS]")
		os.Exit(2)
	}
	if err := run(os.Args[1] == "modern", os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "era:", err)
		os.Exit(1)
	}
}

func run(modern bool, command []string) error {
	server := exec.Command(command[0], command[1:]...) //nolint:noctx // It ends with its input.
	server.Stderr = os.Stderr
	stdin, err := server.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	out := &lines{out: os.Stdout}
	go func() {
		reader := rpc.NewFrameReader(os.Stdin, rpc.Newline, maxLine, nil)
		for {
			line, err := reader.Next()
			if err != nil {
				_ = stdin.Close()
				return
			}
			if answer := refusal(modern, line); answer != "" {
				out.write([]byte(answer))
			} else if _, err := stdin.Write(append(line, '\n')); err != nil {
				return
			}
		}
	}()
	reader := bufio.NewReader(stdout)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 0 {
			out.write(line)
		}
		if errors.Is(err, io.EOF) {
			return server.Wait()
		}
		if err != nil {
			return err
		}
	}
}

// refusal is the answer to a request that is not to reach the server.
func refusal(modern bool, line []byte) string {
	e, err := rpc.Scan(line)
	if err != nil || e.Kind != rpc.Request {
		return ""
	}
	before := `{"jsonrpc":"2.0","id":` + string(e.ID.Of(line)) + `,"error":`
	method := string(e.Method)
	switch {
	case modern && method == "initialize":
		return before + `{"code":-32022,"message":"unsupported protocol version","data":{"supported":["2026-07-28"],"requested":""}}}` + "\n"
	case !modern && (method == "server/discover" || e.ProtocolVersion != nil):
		return before + `{"code":-32601,"message":"unknown method"}}` + "\n"
	}
	return ""
}

// lines writes whole lines.
type lines struct {
	mu  sync.Mutex
	out io.Writer
}

func (l *lines) write(line []byte) {
	l.mu.Lock()
	_, err := l.out.Write(line)
	l.mu.Unlock()
	if err != nil {
		os.Exit(1)
	}
}
