package sessionless

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless/sessionlesstest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
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
				call.wantError("there is no process left: " + limit.Error())
				if took := time.Since(began); took >= mux.ReasonGrace || !errors.Is(call.err, fault.ErrBusy) {
					t.Errorf("the answer took %s, and is %v", took, call.err)
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
		s.post(enveloped("1", "some/method", "")).wantError()
	}
	select {
	case <-process.Closed:
		t.Error("it is closed")
	default:
	}
}

// A stand-in gets every subscription of every client, since it knows the clients of its changes.
func TestStandInListens(t *testing.T) {
	s := newStage(t, func(o *Options) { o.Era = Legacy }, nil)
	for _, id := range []string{"1", "2"} {
		s.post(enveloped(id, methodListen, `"notifications":{"toolsListChanged":true},`))
	}
	await(t, "a stand-in", s.isRunning)
	for range 2 {
		if got := s.standIn.Next(t); string(got.Envelope.Method) != methodListen {
			t.Errorf("got %s, want a subscription", got.Bytes)
		}
	}
}

// wantsNoParams is an Admission that refuses calls of tools with arguments that headers repeat.
type wantsNoParams struct{ request session.Message }

var errParams = errors.New("there are arguments that headers repeat")

func (a wantsNoParams) Admit(ctx context.Context, tools Tools) error {
	if len(tools.Params(ctx, a.request, toolindex.Recent)) > 0 {
		return errParams
	}
	return nil
}

// M-18: clients with other capabilities, or other principals, may have other tools.
func TestToolsOfAStandIn(t *testing.T) {
	s := newStage(t, func(o *Options) { o.Era = Legacy }, nil)
	call := func(capabilities, authorization string) *posted {
		body := strings.Replace(enveloped("1", "tools/call", `"name":"t","arguments":{"a":"b"},`), `clientCapabilities":{}`, `clientCapabilities":`+capabilities, 1)
		request := scanned(body)
		request.From = &caller.Caller{Address: "127.0.0.1"}
		if authorization != "" {
			request.From.Authorization = []string{authorization}
		}
		return s.postBy(request.From, wantsNoParams{request}, body)
	}
	const region = `"result":{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"Region"}}}}]}`
	for _, step := range []struct {
		capabilities, authorization string
		asks                        bool // for the list of tools
		tools                       string
		refused                     bool
	}{
		{`{}`, "", true, sessionlesstest.NoTools, false},
		{`{"roots":{}}`, "", true, region, true},
		{`{"roots":{}}`, "Bearer x", true, sessionlesstest.NoTools, false},
		{`{"roots":{}}`, "Bearer x", false, "", false},
		{`{}`, "", false, "", false},
	} {
		posted := call(step.capabilities, step.authorization)
		await(t, "a stand-in", s.isRunning)
		if step.asks {
			list := s.standIn.Next(t)
			if !strings.Contains(string(list.Bytes), `clientCapabilities":`+step.capabilities) || string(list.Envelope.Method) != "tools/list" {
				t.Errorf("got %s, want a list for the client's capabilities", list.Bytes)
			}
			s.standIn.Answer(list, step.tools)
		}
		if step.refused {
			posted.wantError(errParams.Error())
			continue
		}
		s.standIn.Answer(s.standIn.Next(t), `"result":{}`)
		posted.want()
	}
}

// P-05, M-18: servers with sessions also end a list by an empty cursor.
func TestToolsOfAStandInEnd(t *testing.T) {
	const list = `"result":{"tools":[{"name":"x","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}],"nextCursor":""}`
	s := newStage(t, func(o *Options) {
		o.Era, o.Translate = Legacy, func() Translator { return standIn(newScript(map[string]string{"tools/list": list})) }
	}, nil)
	request := scanned(enveloped("1", "tools/call", `"name":"x","arguments":{"region":"eu"},`))
	request.From = &caller.Caller{}
	s.postBy(request.From, wantsNoParams{request}, string(request.Bytes)).wantError(errParams.Error())
}

func TestToolListsAreBounded(t *testing.T) {
	var lists toolLists
	for i := range 3 * maxLists {
		lists.of(sha256.Sum256([]byte(strconv.Itoa(i))))
	}
	if len(lists.lists) > maxLists {
		t.Errorf("%d lists are kept, want %d at most", len(lists.lists), maxLists)
	}
}

func TestCall(t *testing.T) {
	s := newStage(t, nil, nil)
	request := scanned(enveloped(`"mine"`, "some/method", ""))
	type outcome struct {
		call *Call
		err  error
	}
	made := make(chan outcome, 1)
	go func() {
		call, err := s.server.Call(t.Context(), request)
		made <- outcome{call, err}
	}()
	p := s.process()
	first := p.Next(t)
	result := <-made
	if result.err != nil {
		t.Fatal(result.err)
	}
	p.Answer(first, `"result":{"x":1.0}`)
	message, last := awaitMessage(t, result.call)
	s.equal("the answer", string(message), `{"jsonrpc":"2.0","id":"mine","result":{"x":1.0}}`)
	if !last {
		t.Error("the answer is not the last message")
	}
	result.call.Release()

	second, err := s.server.Call(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	p.Next(t)
	second.Release() // before its answer, which cancels it (M-09)
	if got := p.Next(t); string(got.Envelope.Method) != "notifications/cancelled" {
		t.Errorf("got %s, want a cancellation", got.Bytes)
	}
	s.server.Close()
	if _, err := s.server.Call(t.Context(), request); err == nil {
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
// others who want some; one whose client has gone goes to no other client.
func TestLogMessagesOfAStandIn(t *testing.T) {
	s := newStage(t, func(o *Options) { o.Era = Legacy }, nil)
	wanting := func(id string) *posted {
		return s.post(strings.Replace(enveloped(id, "some/method", ""), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"info",`, 1))
	}
	calls := []*posted{wanting("1")}
	await(t, "a stand-in", s.isRunning)
	requests := []session.Message{s.standIn.Next(t)}
	calls = append(calls, wanting("2"))
	requests = append(requests, s.standIn.Next(t))
	const text = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}`
	log := func(of session.Message) {
		message := scanned(text)
		message.Call = of.Envelope.ID.Of(of.Bytes)
		s.standIn.Receive(message)
	}
	log(requests[1])
	s.equal("the second", calls[1].event(), text)
	calls[1].leave()
	s.wantCancelled(s.standIn, requests[1])
	log(requests[1])
	s.standIn.Answer(requests[0], `"result":{}`)
	if got := calls[0].want(); strings.Contains(got, "notifications/message") {
		t.Errorf("the first got %s", got)
	}
}

// What a client says it can do must not be kept at its full length.
func TestToolListsAreKeptByDigests(t *testing.T) {
	s := newStage(t, func(o *Options) {
		o.Era, o.Limits.SendingBytes = Legacy, 64<<20
		o.Translate = func() Translator {
			return standIn(newScript(map[string]string{"tools/list": sessionlesstest.NoTools, "tools/call": `"result":{}`}))
		}
	}, nil)
	const clients, each = 16, 1 << 16
	for i := range clients {
		body := enveloped("1", "tools/call", `"name":"x",`)
		body = strings.Replace(body, `clientCapabilities":{`, `clientCapabilities":{"x`+strconv.Itoa(i)+`":"`+strings.Repeat("x", each)+`"`, 1)
		request := scanned(body)
		request.From = &caller.Caller{}
		s.postBy(request.From, wantsNoParams{request}, body).want()
	}
	running := s.server.current()
	if got := len(running.tools.lists); got != clients { // by keys of a fixed length
		t.Errorf("%d lists are known, want %d", got, clients)
	}
}

// A call that is parked can only end in this instance, so a drain lets it.
func TestRefuse(t *testing.T) {
	s := newStage(t, func(o *Options) {
		o.Era = Legacy
		o.Translate = func() Translator {
			return standIn(newScript(map[string]string{"tools/list": sessionlesstest.NoTools, "tools/call": `"result":{"resultType":"input_required","inputRequests":{},"requestState":"x"}`}))
		}
	}, nil)
	s.post(enveloped("1", "tools/call", `"name":"x",`)).want("input_required")
	s.server.Refuse()
	s.post(enveloped("2", "tools/call", `"name":"x",`)).wantError()
	s.post(enveloped("2", "tools/call", `"name":"x","requestState":"x",`)).want()
}
