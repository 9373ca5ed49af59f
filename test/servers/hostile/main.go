// Command hostile is an MCP server on standard input and output that misbehaves in the
// way that its first argument names. Operators must stay correct, quick and small
// whatever it does. As usurper it runs another server, and takes the adapter's place. As impostor
// it pretends to be a pod that has gone.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ways are what the server can do wrong.
var ways = map[string]func(*server, request){
	"silent":      func(*server, request) {},
	"exit":        func(*server, request) { exit() },
	"broken-json": func(s *server, r request) { s.write(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":{`) },
	"junk":        func(s *server, _ request) { s.write("Listening on port 3000. Have a nice day!") },
	"wrong-ids":   func(s *server, _ request) { s.write(`{"jsonrpc":"2.0","id":"another","result":{}}`) },
	"flood":       flood,
	"pages": func(s *server, r request) {
		s.list(r, tool("page-"+strconv.Itoa(s.count), ""), `,"nextCursor":"`+strconv.Itoa(s.count)+`"`)
	},
	"tools":       func(s *server, r request) { s.list(r, tools(s.size), "") },
	"description": func(s *server, r request) { s.list(r, tool("large", strings.Repeat("x", s.size)), "") },
	"mortal":      func(s *server, r request) { s.list(r, tool("calm", ""), "") }, // and exits after so many seconds
	"slow":        func(s *server, r request) { s.list(r, tool("calm", ""), "") }, // and begins to read after so many seconds
	"flapping":    func(s *server, r request) { s.list(r, tool("tool-"+strconv.Itoa(s.count), ""), ""); s.changed() },
}

type server struct {
	out   *bufio.Writer
	size  int
	count int
}

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "usurp" {
		usurp(os.Args[2:])
	}
	if len(os.Args) == 4 && os.Args[1] == "pretend" {
		pretendToBe(os.Args[2], os.Args[3])
	}
	if len(os.Args) < 2 || ways[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: hostile WAY [SIZE]\n       hostile usurp COMMAND [ARGUMENTS]\n       hostile pretend ADDRESS POD-UID")
		os.Exit(2)
	}
	s := &server{out: bufio.NewWriter(os.Stdout)}
	if len(os.Args) > 2 {
		s.size, _ = strconv.Atoi(os.Args[2]) // zero is fine
	}
	way := os.Args[1]
	s.begin(way)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var r request
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.ID == nil {
			continue
		}
		s.count++
		s.answer(way, r)
	}
}

// begin does what comes before the first request.
func (s *server) begin(way string) {
	switch lifetime := time.Duration(s.size) * time.Second; way {
	case "exit":
		if s.size == 0 { // at once
			exit()
		}
	case "mortal":
		time.AfterFunc(lifetime, exit)
	case "slow":
		time.Sleep(lifetime)
	}
}

// answer behaves until it is asked for its tools, unless it never does.
func (s *server) answer(way string, r request) {
	switch {
	case way == "silent" || way == "junk" || way == "broken-json" || way == "wrong-ids":
		ways[way](s, r)
	case r.Method == "initialize":
		s.result(r, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"hostile","version":"1"}}`)
	case r.Method == "tools/list":
		ways[way](s, r)
	case r.Method == "ping":
		s.result(r, `{}`)
	default:
		s.write(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"error":{"code":-32601,"message":"method not found"}}`)
	}
}

func exit() {
	fmt.Fprintln(os.Stderr, "hostile: I will not serve")
	os.Exit(3)
}

func (s *server) result(r request, result string) {
	s.write(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":` + result + `}`)
}

func (s *server) list(r request, tools, more string) {
	s.result(r, `{"tools":[`+tools+`]`+more+`}`)
}

func (s *server) changed() {
	s.write(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
}

func (s *server) write(line string) {
	_, _ = s.out.WriteString(line + "\n")
	_ = s.out.Flush()
}

func tool(name, description string) string {
	return `{"name":"` + name + `","description":"` + description + `","inputSchema":{"type":"object"}}`
}

func tools(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = tool("tool-"+strconv.Itoa(i), "one of many")
	}
	return strings.Join(all, ",")
}

func flood(s *server, r request) {
	s.list(r, tool("calm", ""), "")
	for {
		s.write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("x", 1000) + `"}}`)
	}
}
