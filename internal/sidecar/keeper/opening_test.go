package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

const ignored = "ignored" // in place of an answer

// gate stands before servers of the official SDK, which speak both eras, and answers
// some methods in their place.
type gate struct {
	start   time.Duration     // what a server takes to start
	banner  time.Duration     // when a server writes what is not a message; 0 is never
	answers map[string]string // by method: an error's code, a result, or ignored
	dies    bool              // a server ends after such an answer

	mu    sync.Mutex
	asked [][]string // for each server, the first two methods that it was asked for
	end   []context.CancelCauseFunc
}

func (g *gate) connect(context.Context, bool) (Connection, error) {
	ctx, stop := context.WithCancelCause(context.Background())
	server := mcp.NewServer(&mcp.Implementation{Name: "kept", Version: "1"}, nil)
	addTool(server, "first")
	fromKeeper, input := io.Pipe()
	output, toKeeper := io.Pipe()
	stdin, toServer := io.Pipe()
	g.mu.Lock()
	number := len(g.asked)
	g.asked = append(g.asked, nil)
	g.end = append(g.end, stop)
	g.mu.Unlock()
	go func() {
		time.Sleep(g.start)
		lines := bufio.NewReader(fromKeeper)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if answer, instead := g.answer(number, line); !instead {
				_, _ = io.WriteString(toServer, line)
			} else if answer != "" {
				_, _ = io.WriteString(toKeeper, answer+"\n")
				if g.dies {
					stop(errors.New("exit code 1"))
				}
			}
		}
	}()
	if g.banner > 0 {
		time.AfterFunc(g.banner, func() { _, _ = io.WriteString(toKeeper, "Loading the model\n") })
	}
	go func() { _ = server.Run(ctx, &mcp.IOTransport{Reader: stdin, Writer: toKeeper}) }()
	context.AfterFunc(ctx, func() {
		_ = errors.Join(fromKeeper.Close(), toKeeper.Close(), stdin.Close(), toServer.Close())
	})
	return Connection{
		Target: mcpprobe.Pipes(output, input),
		Close:  func() { stop(context.Canceled) },
		Reason: func(patience time.Duration) error {
			if g.dies { // a moment after it has answered
				select {
				case <-ctx.Done():
				case <-time.After(patience):
				}
			}
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil
		},
	}, nil
}

func (g *gate) answer(number int, line string) (answer string, instead bool) {
	var message struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.Unmarshal([]byte(line), &message)
	g.mu.Lock()
	defer g.mu.Unlock()
	if message.ID != nil && len(g.asked[number]) < 2 {
		g.asked[number] = append(g.asked[number], message.Method)
	}
	switch answer, instead = g.answers[message.Method]; {
	case !instead || answer == ignored:
		return "", instead
	case strings.HasPrefix(answer, "{"):
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, message.ID, answer), true
	default:
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%s,"message":"no"}}`, message.ID, answer), true
	}
}

// set changes what the next answers are.
func (g *gate) set(answers map[string]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers = answers
}

// firsts are the methods that servers were asked for first.
func (g *gate) firsts() (methods []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, asked := range g.asked {
		methods = append(methods, slices.Concat(asked, []string{"nothing"})[0])
	}
	return methods
}

// all are all methods of which servers were asked for one of the first two.
func (g *gate) all() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	methods := slices.Concat(g.asked...)
	slices.Sort(methods)
	return slices.Compact(methods)
}

// kill ends the servers that have not ended.
func (g *gate) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, end := range g.end {
		end(errors.New("exit code 3"))
	}
}

// watched is a keeper in a bubble and everything that its state said.
type watched struct {
	*Keeper
	log *memory

	mu   sync.Mutex
	said []string
}

// watch runs a keeper as that of a server on standard input and output, until the test
// is over.
func watch(t *testing.T, g *gate, change func(*Options)) *watched {
	t.Helper()
	w := &watched{log: &memory{}}
	options := Options{
		Connect: g.connect, StartTimeout: time.Minute, Patience: 3 * time.Second, PingInterval: 4 * time.Second, PingTimeout: 3 * time.Second,
		Settle: time.Second, Probe: mcpprobe.Options{SkipDiscover: true}, Log: w.log.logger(t),
	}
	if change != nil {
		change(&options)
	}
	w.Keeper = New(options)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	changed := w.note() // before the keeper can say anything else
	running.Go(func() { w.Run(ctx) })
	running.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-changed:
				changed = w.note()
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
		g.kill()
	})
	return w
}

// note keeps what the state says, and returns when it says something else.
func (w *watched) note() <-chan struct{} {
	state, changed := w.State()
	w.mu.Lock()
	defer w.mu.Unlock()
	if said := describe(state); len(w.said) == 0 || w.said[len(w.said)-1] != said {
		w.said = append(w.said, said)
	}
	return changed
}

func describe(s State) string {
	if s.Ready && s.Err == nil {
		return fmt.Sprintf("ready, stateless %t", s.Stateless)
	}
	return fmt.Sprintf("ready %t, %s: %v", s.Ready, s.Reason, s.Err)
}

const starting = "ready false, Starting: the server is starting"

// after lets time pass and checks what the state has said so far, without repetitions.
func (w *watched) after(t *testing.T, d time.Duration, want ...string) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(want, w.said); diff != "" {
		t.Errorf("after %s the state has said (-want +got):\n%s", d, diff)
	}
}

func expectFirsts(t *testing.T, g *gate, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, g.firsts()); diff != "" {
		t.Errorf("servers were asked first for (-want +got):\n%s", diff)
	}
}

// B-02, L-27: a server without sessions is ready after two starts. The state does not show that the
// first one failed. If the server certainly has no sessions, the keeper does not ask the next process
// to initialize. Otherwise it asks some processes while it keeps one.
func TestKeeperOfAServerWithoutSessions(t *testing.T) {
	for name, test := range map[string]struct {
		initialize string
		dies       bool
		certain    bool
	}{
		"names its revisions":    {initialize: "-32022", certain: true},
		"has no such method":     {initialize: "-32601", certain: true},
		"names them and ends":    {initialize: "-32022", certain: true, dies: true},
		"does not say why":       {initialize: "-32603"},
		"names another revision": {initialize: `{"protocolVersion":"2026-07-28","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`},
		"is not understood":      {initialize: `{"result":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const start = 2 * time.Second
				g := &gate{start: start, answers: map[string]string{"initialize": test.initialize}, dies: test.dies}
				w := watch(t, g, nil)
				w.after(t, 2*start, starting, "ready, stateless true")
				expectFirsts(t, g, "initialize", "server/discover")
				if diff := cmp.Diff([]string{"Server is ready"}, w.log.at(0)); diff != "" {
					t.Errorf("the log says (-want +got):\n%s", diff)
				}
				time.Sleep(time.Minute)
				g.kill()
				w.after(t, 2*start, starting, "ready, stateless true", "ready true, Exited: exit code 3", "ready, stateless true")
				want := []string{"initialize", "server/discover", "server/discover"}
				if !test.certain {
					want = slices.Insert(want, 2, "initialize", "initialize", "initialize", "initialize")
				}
				expectFirsts(t, g, want...)
			})
		})
	}
}

// The keeper opens a server with sessions by initialize only. If the server refuses that later, the
// state says at once that it is broken.
func TestKeeperOfAServerWithSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{start: time.Second}
		w := watch(t, g, nil)
		w.after(t, time.Second, starting, "ready, stateless false")
		time.Sleep(time.Minute)
		g.set(map[string]string{"initialize": "-32022"})
		g.kill()
		w.after(t, time.Second, starting, "ready, stateless false", "ready true, Exited: exit code 3",
			"ready false, Broken: probe connect: Rejected (code -32022): no")
		expectFirsts(t, g, "initialize", "initialize")
	})
}

// When neither way works the reason is always the same: that of the server which has no
// sessions, or that of the one which has some.
func TestKeeperOfAServerThatRefusesEverything(t *testing.T) {
	for name, test := range map[string]struct {
		answers map[string]string
		want    []string
	}{
		"sessions, and nothing else known": {
			map[string]string{"initialize": "-32603", "server/discover": "-32601"},
			[]string{starting, "ready false, Broken: probe connect: Rejected (code -32603): no"},
		},
		"sessions, and deaf to all else": {
			map[string]string{"initialize": "-32603", "server/discover": ignored},
			[]string{starting, "ready false, Broken: probe connect: Rejected (code -32603): no"},
		},
		"no sessions": {
			map[string]string{"initialize": "-32022", "server/discover": "-32603"},
			[]string{starting, "ready false, Broken: probe connect: Rejected (code -32603): no"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{answers: test.answers}
				w := watch(t, g, nil)
				w.after(t, 2*time.Minute, test.want...)
				if got := len(w.log.at(0)); got != 1 {
					t.Errorf("the log has %d lines: %v", got, w.log.at(0))
				}
				g.set(nil)
				w.after(t, 10*time.Second, append(test.want, "ready, stateless false")...)
			})
		})
	}
}

// A server that opens sessions has some, although it does not say what it offers.
func TestKeeperOfAServerThatListsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for method, want := range map[string]bool{"initialize": false, "tools/list": true} {
			w := watch(t, &gate{answers: map[string]string{method: ignored}}, nil)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if state, _ := w.State(); state.Opened != want || state.Ready {
				t.Errorf("one that does not answer %s: opened %t, %s", method, state.Opened, describe(state))
			}
		}
	})
}

// A server of a known era is asked in no other way, whatever it answers.
func TestKeeperOfAPinnedServer(t *testing.T) {
	const initialize, discover, tools, listen = "initialize", "server/discover", "tools/list", "subscriptions/listen"
	for name, test := range map[string]struct {
		modern  bool
		answers map[string]string
		want    []string
		asked   []string
	}{
		"legacy": {false, nil, []string{starting, "ready, stateless false"}, []string{initialize, tools}},
		"modern": {true, nil, []string{starting, "ready, stateless true"}, []string{discover, listen}},
		"legacy, which refuses": {false, map[string]string{initialize: "-32022"},
			[]string{starting, "ready false, Broken: probe connect: Rejected (code -32022): no"}, []string{initialize}},
		"modern, which refuses": {true, map[string]string{discover: "-32601"},
			[]string{starting, "ready false, Broken: probe connect: Rejected (code -32601): no"}, []string{discover}},
		"modern, which is silent": {true, map[string]string{discover: ignored},
			[]string{starting, "ready false, Silent: the server runs and has not answered for more than 3s"}, []string{discover}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{answers: test.answers}
				w := watch(t, g, func(o *Options) { o.Pinned, o.Probe.SkipDiscover = true, !test.modern })
				w.after(t, 3*time.Minute, test.want...)
				if diff := cmp.Diff(test.asked, g.all()); diff != "" {
					t.Errorf("servers were asked for (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The adapter asks a process that sessions share to initialize before the keeper gets it. Only if that
// process refuses does the keeper take one that has got no request.
func TestKeeperOfASharedServerWithoutSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		refused := 0
		w := watch(t, g, func(o *Options) {
			o.Connect = func(ctx context.Context, stateless bool) (Connection, error) {
				if stateless {
					return g.connect(ctx, true)
				}
				refused++
				return Connection{}, fmt.Errorf("start: %w", &mcpprobe.Error{Class: mcpprobe.Rejected, Op: "initialize", Code: -32022})
			}
		})
		w.after(t, 0, starting, "ready, stateless true")
		time.Sleep(time.Minute)
		g.kill()
		w.after(t, time.Minute, starting, "ready, stateless true", "ready true, Exited: exit code 3", "ready, stateless true")
		expectFirsts(t, g, "server/discover", "server/discover")
		if refused != 1 {
			t.Errorf("the shared process was started %d times, want once", refused)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		w := watch(t, g, func(o *Options) {
			o.Connect = func(ctx context.Context, stateless bool) (Connection, error) {
				if stateless {
					return Connection{}, errors.New("not to be asked for")
				}
				return g.connect(ctx, false)
			}
		})
		w.after(t, time.Minute, starting, "ready, stateless false")
	})
}

// If there is no room for the second process, the state does not call the server broken.
func TestKeeperWithoutRoomForTheSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{answers: map[string]string{"initialize": "-32603"}}
		full := true
		w := watch(t, g, func(o *Options) {
			o.Connect = func(ctx context.Context, stateless bool) (Connection, error) {
				if stateless && full {
					full = false
					return Connection{}, ErrNoRoom
				}
				return g.connect(ctx, stateless)
			}
		})
		w.after(t, time.Second, starting, "ready false, NoRoom: there is no room for another server process", "ready, stateless true")
	})
}

// The catalog has the revisions that clients can use, under a digest of its own. The keeper does not
// take them for those that the server lists.
func TestKeeperSaysWhatIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{initializeFirst: true}
		k := newKeeper(t, f, func(o *Options) {
			o.Serves = func(own mcpprobe.Server) []string { return []string{"2026-07-28", own.ProtocolVersion} }
		})
		eventually(t, k, "ready true, 1 tools, <nil>")
		state, _ := k.State()
		if diff := cmp.Diff([]string{"2026-07-28", "2025-11-25"}, state.Catalog.Server.ProtocolVersions); diff != "" {
			t.Errorf("served (-want +got):\n%s", diff)
		}
		data, err := json.Marshal(state.Catalog)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mcpprobe.DecodeCatalog(data, mcpprobe.Limits{}); err != nil {
			t.Error(err)
		}
		digest := state.Catalog.Digest
		_, changed := k.State()
		f.current.Load().stop(errors.New("exit code 3"))
		<-changed
		eventually(t, k, "ready true, 1 tools, <nil>")
		if state, _ = k.State(); state.Catalog.Digest != digest || f.started.Load() != 3 {
			t.Errorf("%d servers were started, want 3; the digest was %s and is %s", f.started.Load(), digest, state.Catalog.Digest)
		}
	})
}
