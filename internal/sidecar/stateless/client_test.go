package stateless

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// busyServer takes nothing.
type busyServer struct {
	*script
	limit error // that is reached
}

func (s busyServer) Send(context.Context, session.Message) error {
	return fmt.Errorf("there is no process left: %w", s.limit)
}

// A server that does not take a request now has not ended, whichever limit is reached: its
// client is told at once.
func TestServerIsBusy(t *testing.T) {
	for name, change := range map[string]func(*Options, error){
		"server": func(o *Options, limit error) {
			o.Era, o.Acquire = Modern, func(context.Context) (mux.Server, error) { return busyServer{newScript(nil), limit}, nil }
		},
		"stand-in": func(o *Options, limit error) {
			o.Era, o.Translate = Legacy, func() Translator { return standIn(busyServer{newScript(nil), limit}) }
		},
	} {
		for _, limit := range []error{fault.ErrBusy, session.ErrTooManyCalls} {
			t.Run(name+", "+limit.Error(), func(t *testing.T) {
				s := newStage(t, func(o *Options) { change(o, limit) }, nil)
				began := time.Now()
				call := s.post(enveloped(`"e"`, "some/method", ""))
				call.want(503, `"id":"e"`, `"message":"there is no process left: `+limit.Error())
				if got := call.answer.Header.Get("Retry-After"); got == "" {
					t.Error("got no Retry-After")
				}
				if took := time.Since(began); took >= mux.ReasonGrace || s.endpoint.metrics.Refused.Value() != 1 {
					t.Errorf("the answer took %s, and %d are counted", took, s.endpoint.metrics.Refused.Value())
				}
			})
		}
	}
}

// A translator that cannot take requests in time is not ended: there is no other one.
func TestTranslatorIsNotReplaced(t *testing.T) {
	process := newScript(nil)
	s := newStage(t, func(o *Options) {
		o.Era, o.Limits.StuckTimeout = Legacy, time.Nanosecond
		o.Translate = func() Translator { return standIn(unreading{process}) }
	}, nil)
	for range 3 {
		s.post(enveloped("1", "some/method", "")).want(503)
	}
	select {
	case <-process.closed:
		t.Error("it is closed")
	default:
	}
}

// A stand-in gets every subscription of every client, since it knows whom its news are for.
func TestStandInListens(t *testing.T) {
	s := newStage(t, func(o *Options) { o.Era = Legacy }, nil)
	for _, id := range []string{"1", "2"} {
		s.post(enveloped(id, methodListen, `"notifications":{"toolsListChanged":true},`))
	}
	await(t, "a stand-in", s.endpoint.process.isRunning)
	for range 2 {
		if got := s.standIn.next(t); string(got.Envelope.Method) != methodListen {
			t.Errorf("got %s, want a subscription", got.Bytes)
		}
	}
}

// M-18: who can do something else, or is somebody else, may have other tools.
func TestToolsOfAStandIn(t *testing.T) {
	s := newStage(t, func(o *Options) { o.Era = Legacy }, nil)
	call := func(capabilities, authorization string) *posted {
		body := strings.Replace(enveloped("1", "tools/call", `"name":"t","arguments":{"a":"b"},`), `clientCapabilities":{}`, `clientCapabilities":`+capabilities, 1)
		return s.post(body, "Mcp-Name", "t", "Authorization", authorization)
	}
	const region = `"result":{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"Region"}}}}]}`
	for _, step := range []struct {
		capabilities, authorization string
		asks                        bool // for the list of tools
		tools                       string
		refused                     bool
	}{
		{`{}`, "", true, noTools, false},
		{`{"roots":{}}`, "", true, region, true},
		{`{"roots":{}}`, "Bearer x", true, noTools, false},
		{`{"roots":{}}`, "Bearer x", false, "", false},
		{`{}`, "", false, "", false},
	} {
		posted := call(step.capabilities, step.authorization)
		await(t, "a stand-in", s.endpoint.process.isRunning)
		if step.asks {
			list := s.standIn.next(t)
			if !strings.Contains(string(list.Bytes), `clientCapabilities":`+step.capabilities) || string(list.Envelope.Method) != "tools/list" {
				t.Errorf("got %s, want a list for the client's capabilities", list.Bytes)
			}
			s.standIn.answer(list, step.tools)
		}
		if step.refused {
			posted.want(400, "-32020")
			continue
		}
		s.standIn.answer(s.standIn.next(t), `"result":{}`)
		posted.want(200)
	}
}

func TestToolListsAreBounded(t *testing.T) {
	var lists toolLists
	for i := range 3 * mostLists {
		lists.of(keyOf(strconv.Itoa(i), nil))
	}
	if len(lists.byWhom) > mostLists {
		t.Errorf("%d lists are kept, want %d at most", len(lists.byWhom), mostLists)
	}
}

func TestCaller(t *testing.T) {
	seen := make(chan caller.Caller, 1)
	s := newStage(t, func(o *Options) {
		o.Era, o.Translate = Legacy, func() Translator { return standIn(callerServer{newScript(nil), seen}) }
	}, nil)
	of := func(headers ...string) caller.Caller {
		s.post(enveloped("1", "some/method", ""), headers...)
		return <-seen
	}
	one, two, none := of("Authorization", "Bearer one"), of("Authorization", "Bearer two"), of()
	if one.Group() == two.Group() || strings.Contains(one.Group(), "Bearer") || one.Authorization[0] != "Bearer one" {
		t.Errorf("got callers %+v and %+v", one, two)
	}
	if again := of("Authorization", "Bearer one"); again.Group() != one.Group() {
		t.Errorf("got %+v and then %+v for the same", one, again)
	}
	if none.Group() != "address 127.0.0.1" || none.Authorization != nil {
		t.Errorf("got %+v for somebody who shows nothing", none)
	}
}

type callerServer struct {
	*script
	seen chan caller.Caller
}

func (p callerServer) Send(_ context.Context, sent session.Message) error {
	message := sent.Bytes
	from := sent.From
	if e, err := rpc.Scan(message); err == nil && e.Kind == rpc.Request { // and no cancellation
		p.seen <- *from
	}
	return nil
}

func TestCallOfOurOwn(t *testing.T) {
	s := newStage(t, nil, nil)
	request := scanned(t, enveloped(`"mine"`, "some/method", ""))
	type outcome struct {
		call *Call
		err  error
	}
	made := make(chan outcome, 1)
	go func() {
		call, err := s.endpoint.Call(t.Context(), request)
		made <- outcome{call, err}
	}()
	p := s.process()
	first := p.next(t)
	result := <-made
	if result.err != nil {
		t.Fatal(result.err)
	}
	p.answer(first, `"result":{"x":1.0}`)
	message, last := awaitMessage(t, result.call)
	s.equal("the answer", string(message), `{"jsonrpc":"2.0","id":"mine","result":{"x":1.0}}`)
	if !last {
		t.Error("the answer is not the last message")
	}
	result.call.Release()

	second, err := s.endpoint.Call(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	p.next(t)
	second.Release() // before its answer, which cancels it (M-09)
	if got := p.next(t); string(got.Envelope.Method) != "notifications/cancelled" {
		t.Errorf("got %s, want a cancellation", got.Bytes)
	}
	s.endpoint.Close()
	if _, err := s.endpoint.Call(t.Context(), request); err == nil {
		t.Error("a closed endpoint takes calls")
	}
}

func awaitMessage(t *testing.T, call *Call) (message []byte, last bool) {
	t.Helper()
	for {
		message, last, ok := call.Take()
		if ok {
			return message, last
		}
		select {
		case <-call.Ready():
		case <-time.After(hang.Guard):
			t.Fatal("no message")
		}
	}
}

// U-07: what stands in for processes knows whose a log message is, so that there may be
// others who want some; one whose client has gone goes to nobody else.
func TestLogMessagesOfAStandIn(t *testing.T) {
	s := newStage(t, func(o *Options) { o.Era = Legacy }, nil)
	wanting := func(id string) *posted {
		return s.post(strings.Replace(enveloped(id, "some/method", ""), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"info",`, 1))
	}
	calls := []*posted{wanting("1")}
	await(t, "a stand-in", s.endpoint.process.isRunning)
	requests := []session.Message{s.standIn.next(t)}
	calls = append(calls, wanting("2"))
	requests = append(requests, s.standIn.next(t))
	const text = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}`
	log := func(of session.Message) {
		message := scanned(t, text)
		message.Call = of.Envelope.ID.Of(of.Bytes)
		s.standIn.receive(message)
	}
	log(requests[1])
	calls[1].response()
	s.equal("the second", calls[1].event(), text)
	calls[1].leave()
	s.wantCancelled(s.standIn, requests[1])
	log(requests[1])
	s.standIn.answer(requests[0], `"result":{}`)
	if got := calls[0].want(200); strings.Contains(got, "notifications/message") {
		t.Errorf("the first got %s", got)
	}
}

// What a client says it can do must not be kept at its full length.
func TestToolListsAreKeptByDigests(t *testing.T) {
	s := newStage(t, func(o *Options) {
		o.Era, o.Limits.SendingBytes = Legacy, 64<<20
		o.Translate = func() Translator {
			return standIn(newScript(map[string]string{"tools/list": noTools, "tools/call": `"result":{}`}))
		}
	}, nil)
	const clients, each = 16, 1 << 16
	for i := range clients {
		body := enveloped("1", "tools/call", `"name":"x",`)
		body = strings.Replace(body, `clientCapabilities":{`, `clientCapabilities":{"x`+strconv.Itoa(i)+`":"`+strings.Repeat("x", each)+`"`, 1)
		s.post(body).want(200)
	}
	running := s.endpoint.process.all()[0]
	if got := len(running.tools.byWhom); got != clients { // by keys of a fixed length
		t.Errorf("%d lists are known, want %d", got, clients)
	}
}

// A call that is parked can only end in this instance, so a drain lets it.
func TestRefuse(t *testing.T) {
	s := newStage(t, func(o *Options) {
		o.Era = Legacy
		o.Translate = func() Translator {
			return standIn(newScript(map[string]string{"tools/list": noTools, "tools/call": `"result":{"resultType":"input_required","inputRequests":{},"requestState":"x"}`}))
		}
	}, nil)
	s.post(enveloped("1", "tools/call", `"name":"x",`)).want(200, "input_required")
	s.endpoint.Refuse()
	s.post(enveloped("2", "tools/call", `"name":"x",`)).want(503)
	s.post(enveloped("2", "tools/call", `"name":"x","requestState":"x",`)).want(200)
}
