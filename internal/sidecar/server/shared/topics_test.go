package shared

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

func about(id, method, uri string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"resources/` + method + `","params":{"uri":"` + uri + `","_meta":{"x":1.0}}}`
}

func update(uri string) string {
	return `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `"}}`
}

// changes are the subscriptions that the server was asked for, in short.
func changes(f *fake) (got []string) {
	for _, text := range f.heard() {
		if m := message(f.t, text); strings.HasPrefix(string(m.Envelope.Method), "resources/") {
			got = append(got, strings.TrimPrefix(string(m.Envelope.Method), "resources/")+" "+string(m.Envelope.URI))
		}
	}
	return got
}

func expectChanges(t *testing.T, f *fake, want ...string) {
	t.Helper()
	await(t, fmt.Sprintf("%d changes", len(want)), func() bool { return len(changes(f)) >= len(want) })
	if diff := cmp.Diff(want, changes(f)); diff != "" {
		t.Errorf("changes at the process (-want +got):\n%s", diff)
	}
}

// The process is subscribed for the first session and unsubscribed for the last.
func TestSubscriptionsAreCounted(t *testing.T) {
	p, fakes := newFake(t, testOptions(), echo)
	one, two, three := connect(t, p), connect(t, p), connect(t, p)
	f := <-fakes
	streams := []*session.Stream{one.listen(), two.listen(), three.listen()}
	expect(t, "first", one.ask(about("1", "subscribe", "a")), `"id":1,"result":{"uri":"a","_meta":{"x":1.0}}`)
	expect(t, "again", one.ask(about("2", "subscribe", "a")), `"id":2,"result":{}`)
	expect(t, "escaped", two.ask(about("1", "subscribe", `\u0061`)), `"id":1,"result":{}`)
	expect(t, "not subscribed", three.ask(about("1", "unsubscribe", "a")), `"id":1,"result":{}`)
	expectChanges(t, f, "subscribe a")

	f.say("%s", update("a"))
	f.say("%s", update("b"))
	for _, stream := range streams[:2] {
		if got, _ := next(t, stream); got != update("a") {
			t.Errorf("got %s", got)
		}
	}
	expect(t, "first unsubscribes", one.ask(about("3", "unsubscribe", "a")), `"result":{}`)
	f.say("%s", update("a"))
	if got, _ := next(t, streams[1]); got != update("a") {
		t.Errorf("got %s", got)
	}
	two.End(errors.New("gone"))
	expectChanges(t, f, "subscribe a", "unsubscribe a")
	f.say("%s", update("a"))
	one.ask(request("9", "m"))
	three.ask(request("9", "m"))
	expectNothing(t, "one", streams[0])
	expectNothing(t, "three", streams[2])
	if n := p.Metrics().UnroutedMessages.Value(); n != 2 {
		t.Errorf("counted %d updates without subscriber, want 2", n)
	}
	expect(t, "subscribes again", three.ask(about("1", "subscribe", "a")), `"result":{"uri":"a"`)
	expectChanges(t, f, "subscribe a", "unsubscribe a", "subscribe a")
	expect(t, "without URI", three.ask(request("1", "resources/subscribe")), `"result":{}`)
}

// A server may report a part of what was subscribed to.
func TestUpdatesOfParts(t *testing.T) {
	p, fakes := newFake(t, testOptions(), echo)
	c := connect(t, p)
	f := <-fakes
	stream := c.listen()
	for i, uri := range []string{"file:///dir", "file:///dir/", "x://"} {
		c.ask(about(strconv.Itoa(i), "subscribe", uri))
	}
	for _, uri := range []string{"file:///dir/a", "file:///dirt", "file:///dir#f", "x://y", "file:///", "file:///dir?q", "file:///dir/", "file:///dir?"} {
		f.say("%s", update(uri))
	}
	for _, want := range []string{"file:///dir/a", "file:///dir#f", "x://y", "file:///dir?q", "file:///dir/", "file:///dir?"} {
		if got, _ := next(t, stream); got != update(want) {
			t.Errorf("got %s, want %s", got, update(want))
		}
	}
	expectNothing(t, "stream", stream)
}

// A process that invents long URIs must not hold up the sessions: all of them wait for the
// lock under which an update finds its subscribers.
func TestUpdatesOfLongURIs(t *testing.T) {
	p, fakes := newFake(t, testOptions(), echo)
	c := connect(t, p)
	f := <-fakes
	stream := c.listen()
	c.ask(about("1", "subscribe", "x:"))
	for session := range 2 {
		other := connect(t, p)
		for i := range testOptions().Subscriptions {
			other.ask(about("1", "subscribe", fmt.Sprintf("y:%d/%d", session, i)))
		}
	}
	began := time.Now()
	f.say("%s", update("x:"+strings.Repeat("/", 1<<18)))
	if got, _ := next(t, stream); len(got) < 1<<18 {
		t.Errorf("got %s", got)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it takes %s to find the subscribers", took)
	}
}

// later is a server that answers when it is told to.
type later struct {
	mu      sync.Mutex
	pending []func(member string)
}

func (l *later) handle(f *fake, m session.Message) {
	if m.Envelope.Kind != rpc.Request {
		return
	}
	id := string(m.Envelope.ID.Of(m.Bytes))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, func(member string) { f.say(`{"jsonrpc":"2.0","id":%s,%s}`, id, member) })
}

const emptyResult = `"result":{}`

func (l *later) answer(t *testing.T, member string) {
	t.Helper()
	var first func(string)
	await(t, "a request", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.pending) == 0 {
			return false
		}
		first, l.pending = l.pending[0], l.pending[1:]
		return true
	})
	first(member)
}

const failure = `"error":{"code":-32002,"message":"no such resource"}`

func TestSubscriptionsThatMeet(t *testing.T) {
	setUp := func(t *testing.T) (l *later, f *fake, one, two *client) {
		l = &later{}
		p, fakes := newFake(t, testOptions(), l.handle)
		one, two = connect(t, p), connect(t, p)
		return l, <-fakes, one, two
	}
	outcome := func(t *testing.T, stream *session.Stream) string {
		t.Helper()
		return strings.Join(all(t, stream), "\n")
	}
	t.Run("both wait for one answer, and an update comes first", func(t *testing.T) {
		l, f, one, two := setUp(t)
		first, second := one.call(about(`"x"`, "subscribe", "a")), two.call(about("7", "subscribe", "a"))
		expectChanges(t, f, "subscribe a")
		f.say("%s", update("a"))
		l.answer(t, emptyResult)
		if got, want := outcome(t, first), update("a")+"\n"+`{"jsonrpc":"2.0","id":"x","result":{}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, want := outcome(t, second), update("a")+"\n"+`{"jsonrpc":"2.0","id":7,"result":{}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		one.End(errors.New("gone"))
		two.End(errors.New("gone"))
		expectChanges(t, f, "subscribe a", "unsubscribe a")
	})
	t.Run("both are refused", func(t *testing.T) {
		l, f, one, two := setUp(t)
		first, second := one.call(about("1", "subscribe", "a")), two.call(about("7", "subscribe", "a"))
		l.answer(t, failure)
		expect(t, "first", outcome(t, first), `"id":1,`+failure)
		expect(t, "second", outcome(t, second), `"id":7,`+failure)
		one.call(about("2", "subscribe", "a"))
		expectChanges(t, f, "subscribe a", "subscribe a")
	})
	t.Run("the first one goes before the answer", func(t *testing.T) {
		l, f, one, two := setUp(t)
		one.call(about("1", "subscribe", "a"))
		second := two.call(about("7", "subscribe", "a"))
		one.End(errors.New("gone"))
		l.answer(t, emptyResult)
		expect(t, "second", outcome(t, second), `"id":7,"result":{}`)
		two.End(errors.New("gone"))
		expectChanges(t, f, "subscribe a", "unsubscribe a")
	})
	t.Run("all sessions end before the answer", func(t *testing.T) {
		l, f, one, _ := setUp(t)
		one.call(about("1", "subscribe", "a"))
		one.End(errors.New("gone"))
		l.answer(t, emptyResult)
		expectChanges(t, f, "subscribe a", "unsubscribe a")
	})
	t.Run("unsubscribed before the answer", func(t *testing.T) {
		l, f, one, _ := setUp(t)
		first := one.call(about("1", "subscribe", "a"))
		expect(t, "unsubscribe", one.ask(about("2", "unsubscribe", "a")), `"id":2,"result":{}`)
		l.answer(t, emptyResult)
		expect(t, "subscribe", outcome(t, first), `"id":1,"result":{}`)
		expectChanges(t, f, "subscribe a", "unsubscribe a")
	})
	t.Run("subscribed while it is unsubscribed", func(t *testing.T) {
		l, f, one, two := setUp(t)
		first := one.call(about("1", "subscribe", "a"))
		l.answer(t, emptyResult)
		outcome(t, first)
		ending := one.call(about("2", "unsubscribe", "a"))
		expectChanges(t, f, "subscribe a", "unsubscribe a")
		second := two.call(about("3", "subscribe", "a"))
		withdrawn := one.call(about("4", "subscribe", "a"))
		one.ask(about("5", "unsubscribe", "a"))
		l.answer(t, failure)
		expect(t, "unsubscribe", outcome(t, ending), `"id":2,`+failure)
		l.answer(t, emptyResult)
		expect(t, "subscribe", outcome(t, second), `"id":3,"result":{}`)
		expect(t, "withdrawn", outcome(t, withdrawn), `"id":4,"result":{}`)
		expectChanges(t, f, "subscribe a", "unsubscribe a", "subscribe a")
		stream := two.listen()
		f.say("%s", update("a"))
		if got, _ := next(t, stream); got != update("a") {
			t.Errorf("got %s", got)
		}
	})
	t.Run("withdrawn while it is unsubscribed", func(t *testing.T) {
		l, f, one, _ := setUp(t)
		first := one.call(about("1", "subscribe", "a"))
		l.answer(t, emptyResult)
		outcome(t, first)
		ending := one.call(about("2", "unsubscribe", "a"))
		withdrawn := one.call(about("3", "subscribe", "a"))
		one.ask(about("4", "unsubscribe", "a"))
		l.answer(t, failure)
		expect(t, "unsubscribe", outcome(t, ending), `"id":2,`+failure)
		expect(t, "withdrawn", outcome(t, withdrawn), `"id":3,"result":{}`)
		expectChanges(t, f, "subscribe a", "unsubscribe a")
	})
}

func TestSubscriptionsAreBounded(t *testing.T) {
	options := testOptions()
	p, _ := newFake(t, options, echo)
	c := connect(t, p)
	for i := range options.Subscriptions {
		expect(t, "subscribe", c.ask(about("1", "subscribe", strconv.Itoa(i))), `"result"`)
	}
	expect(t, "one too many", c.ask(about("1", "subscribe", "more")), `"error"`, "8 subscriptions")
	expect(t, "one that it has", c.ask(about("1", "subscribe", "0")), `"result"`)
	expect(t, "long URI", c.ask(about("1", "subscribe", strings.Repeat("u", nameBytes+1))), `"code":-32602`)
	c.ask(about("1", "unsubscribe", "0"))
	expect(t, "another", c.ask(about("1", "subscribe", "more")), `"result"`)
	if n := p.Metrics().SubscriptionRefusals.Value(); n != 1 {
		t.Errorf("counted %d refusals, want 1", n)
	}
}

// sdkServer is a server of the official SDK at the other end of two pipes.
type sdkServer struct {
	server *mcp.Server
	stdin  *io.PipeWriter
	stdout *io.PipeReader
}

func startSDK(t *testing.T, server *mcp.Server) *sdkServer {
	stdin, toServer := io.Pipe()
	fromServer, stdout := io.Pipe()
	go func() {
		_ = server.Run(context.WithoutCancel(t.Context()), &mcp.IOTransport{Reader: stdin, Writer: stdout})
		_ = stdout.Close()
		_ = stdin.Close()
	}()
	return &sdkServer{server, toServer, fromServer}
}

func (s *sdkServer) Send(_ context.Context, sent session.Message) error {
	message := sent.Bytes
	_, err := s.stdin.Write(rpc.AppendFrame(nil, message, rpc.Newline))
	return err
}

func (s *sdkServer) Close() { _ = s.stdin.Close() }

func (s *sdkServer) Serve(receive func(session.Message), ended func(error)) {
	go func() {
		reader := rpc.NewFrameReader(s.stdout, rpc.Newline, 64<<20, nil)
		for {
			message, err := reader.Next()
			if err != nil {
				ended(err)
				return
			}
			if envelope, err := rpc.Scan(message); err == nil {
				receive(session.Message{Bytes: message, Envelope: envelope})
			}
		}
	}()
}

// A server of the official SDK: it refuses a second initialize (R24), keeps
// subscriptions per connection, and tells of changed tools.
func TestOfficialSDK(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, what)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler: func(_ context.Context, r *mcp.SubscribeRequest) error {
			note("subscribe " + r.Params.URI)
			return nil
		},
		UnsubscribeHandler: func(_ context.Context, r *mcp.UnsubscribeRequest) error {
			note("unsubscribe " + r.Params.URI)
			return nil
		},
	})
	server.AddResource(&mcp.Resource{Name: "r", URI: "res://a"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "res://a", Text: "a"}}}, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		_, err := r.Session.ListRoots(ctx, nil)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(err)}}}, nil, nil
	})
	options := testOptions()
	options.Acquire = func(context.Context) (mux.Server, error) { return startSDK(t, server), nil }
	p := New(options)
	t.Cleanup(p.Close)
	one, two, three := connect(t, p), connect(t, p), connect(t, p)
	streams := []*session.Stream{one.listen(), two.listen(), three.listen()}

	expect(t, "R24 list", two.ask(request("1", "resources/list")), `"res://a"`)
	expect(t, "subscribe", one.ask(about("1", "subscribe", "res://a")), `"id":1,"result"`)
	expect(t, "subscribe", two.ask(about("1", "subscribe", "res://a")), `"id":1,"result"`)
	if err := server.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "res://a"}); err != nil {
		t.Fatalf("update: %v", err)
	}
	for _, stream := range streams[:2] {
		got, _ := next(t, stream)
		expect(t, "update", got, "notifications/resources/updated", "res://a")
	}
	expect(t, "Q-01 asking back", three.ask(tool("ask", "")), `"id":1`, "text")
	mcp.AddTool(server, &mcp.Tool{Name: "new"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{}, nil, nil
	})
	for i, stream := range streams {
		got, _ := next(t, stream)
		expect(t, fmt.Sprintf("session %d", i), got, "notifications/tools/list_changed")
	}
	two.End(errors.New("gone"))
	one.End(errors.New("gone"))
	await(t, "the process to be unsubscribed", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(seen, "unsubscribe res://a")
	})
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]string{"subscribe res://a", "unsubscribe res://a"}, seen); diff != "" {
		t.Errorf("the server saw (-want +got):\n%s", diff)
	}
}
