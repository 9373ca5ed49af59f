package tomodern

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// jumbled is a process that answers what it is called with, in any order, with progress
// and questions that repeat it. It dies now and then. All that it is ever called with
// must be of the clients that it was first called by.
type jumbled struct {
	t       testing.TB
	random  *rand.Rand
	receive func(session.Message)
	ended   func(error)

	mu      sync.Mutex
	owner   string
	asking  map[string]chan string // by the ids of its questions
	last    int
	dead    chan struct{}
	once    sync.Once
	overall *sync.Map // how often each call was made, at any process
}

func (p *jumbled) Serve(receive func(session.Message), ended func(error)) {
	p.receive, p.ended = receive, ended
}

func (p *jumbled) Close() {
	p.once.Do(func() {
		close(p.dead)
		go p.ended(errPlayed)
	})
}

func (p *jumbled) emit(text string) {
	select {
	case <-p.dead:
		return
	default:
	}
	e, err := rpc.ScanLenient([]byte(text))
	if err != nil {
		panic(text)
	}
	p.receive(session.Message{Bytes: []byte(text), Envelope: e})
}

func (p *jumbled) pause() {
	p.mu.Lock()
	d := time.Duration(p.random.IntN(80)) * time.Millisecond
	p.mu.Unlock()
	time.Sleep(d)
}

func (p *jumbled) chance(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.IntN(n) == 0
}

func (p *jumbled) Send(_ context.Context, sent session.Message) error {
	text := sent.Bytes
	select {
	case <-p.dead:
		return errPlayed
	default:
	}
	m := session.Message{Bytes: append([]byte(nil), text...)}
	var err error
	if m.Envelope, err = rpc.Scan(m.Bytes); err != nil {
		return err
	}
	id := string(m.Envelope.ID.Of(m.Bytes))
	switch {
	case m.Envelope.Kind == rpc.Response:
		p.mu.Lock()
		answered := p.asking[id]
		p.mu.Unlock()
		answered <- string(m.Bytes)
	case string(m.Envelope.Method) == "initialize":
		go p.emit(`{"jsonrpc":"2.0","id":` + id + `,` + everything + `}`)
	case string(m.Envelope.Method) == "tools/call":
		go p.work(id, string(m.Envelope.ProgressToken.Of(m.Bytes)), string(m.Envelope.Name))
	}
	return nil
}

func (p *jumbled) work(id, token, name string) {
	owner, _, _ := strings.Cut(name, "/")
	p.mu.Lock()
	if p.owner == "" {
		p.owner = owner
	}
	if p.owner != owner {
		p.t.Errorf("a process of %s is called by %s", p.owner, name)
	}
	p.mu.Unlock()
	if _, again := p.overall.LoadOrStore(name, true); again {
		p.t.Errorf("%s is called twice", name)
	}
	for range 2 {
		p.pause()
		p.emit(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":1,"message":"` + name + `"}}`)
		if p.chance(3) && strings.Contains(owner, "asked") {
			p.ask(name)
		}
		if p.chance(40) {
			p.Close()
		}
	}
	p.emit(`{"jsonrpc":"2.0","id":` + id + `,"result":{"name":"` + name + `"}}`)
}

// ask puts a question, whose answer must be for it.
func (p *jumbled) ask(name string) {
	p.mu.Lock()
	p.last++
	id := strconv.Itoa(p.last)
	answered := make(chan string, 1)
	p.asking[id] = answered
	p.mu.Unlock()
	p.emit(`{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{"message":"` + name + `"}}`)
	select {
	case answer := <-answered:
		if !strings.Contains(answer, `"`+name+`"`) && !strings.Contains(answer, `"cancel"`) {
			p.t.Errorf("%s asked and got %s", name, answer)
		}
	case <-p.dead:
	}
}

// R25, R55, Q-05: whatever happens in whichever order, each client gets what is its own
// and nothing of another client's, no call is made twice, and nothing is left.
func TestNeverMixedUp(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { neverMixedUp(t, seed) })
		})
	}
}

func neverMixedUp(t *testing.T, seed uint64) {
	var overall sync.Map
	var number uint64
	s := newStage(t, func(o *Options) {
		o.Limits.Children, o.Limits.PerKey, o.Limits.ParkTTL, o.Limits.CancelGrace = 9, 4, time.Minute, 100*time.Millisecond
		var mu sync.Mutex
		o.Acquire = func(context.Context, *caller.Caller) (mux.Server, error) {
			mu.Lock()
			defer mu.Unlock()
			number++
			return &jumbled{t: t, random: rand.New(rand.NewPCG(seed, number)), overall: &overall, asking: map[string]chan string{}, dead: make(chan struct{})}, nil
		}
	}, nil)
	var all sync.WaitGroup
	outcomes := map[string]int{}
	var mu sync.Mutex
	for i := range 12 {
		random := rand.New(rand.NewPCG(seed, 1000+uint64(i)))
		principal := fmt.Sprint("p", i%3)
		c := client{principal: principal, capabilities: `{}`, meta: `"progressToken":TOKEN,`}
		owner := principal + "-mute"
		if i%2 == 0 {
			c.capabilities, owner = `{"elicitation":{}}`, principal+"-asked"
		}
		all.Go(func() {
			for n := range 40 {
				outcome := s.exchange(c, fmt.Sprintf("%s/%d-%d", owner, i, n), random)
				mu.Lock()
				outcomes[outcome]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Log(outcomes)
	for _, outcome := range []string{"complete", "asked", "left", "died"} {
		if outcomes[outcome] == 0 {
			t.Errorf("nothing was %s: %v", outcome, outcomes)
		}
	}
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	s.empty()
	s.server.Close()
	synctest.Wait()
}

// exchange makes one call, with as many rounds as it takes, or goes away from it.
func (s *stage) exchange(c client, name string, random *rand.Rand) string {
	params := `"name":"` + name + `",`
	outcome := "complete"
	for retry := ""; ; {
		p := s.post(c, "tools/call", params+retry)
		<-p.done
		if p.err != nil {
			if retry != "" {
				s.Errorf("%s is refused when it comes back: %v", name, p.err)
			}
			return "busy"
		}
		if random.IntN(10) == 0 {
			time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
			s.server.Abandon(p)
			return "left"
		}
		answer, err := s.await(p, name)
		switch {
		case err != nil:
			s.Error(err)
			return "wrong"
		case answer.Error != nil:
			return "died"
		case answer.Result.ResultType == "complete":
			if answer.Result.Name != name {
				s.Errorf("%s got %v", name, answer)
			}
			return outcome
		}
		outcome = "asked"
		if random.IntN(10) == 0 {
			return "left" // and never comes back
		}
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
		retry = answer.retry(s, name)
	}
}

type anyAnswer struct {
	Result struct {
		ResultType    string `json:"resultType"`
		Name          string `json:"name"`
		RequestState  string `json:"requestState"`
		InputRequests map[string]struct {
			Params struct {
				Message string `json:"message"`
			} `json:"params"`
		} `json:"inputRequests"`
	} `json:"result"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (a *anyAnswer) retry(s *stage, name string) string {
	var responses []string
	for key, request := range a.Result.InputRequests {
		if request.Params.Message != name {
			s.Errorf("%s is asked %s", name, request.Params.Message)
		}
		responses = append(responses, `"`+key+`":{"action":"accept","content":{"name":"`+name+`"}}`)
	}
	return `"inputResponses":{` + strings.Join(responses, ",") + `},"requestState":"` + a.Result.RequestState + `",`
}

var errUnanswered = errors.New("no answer")

// await waits for the answer, and looks at everything before it.
func (s *stage) await(p *posted, name string) (answer anyAnswer, err error) {
	for range 10_000 {
		s.mu.Lock()
		got := append([]string(nil), s.got[p.id]...)
		s.mu.Unlock()
		for _, text := range got {
			if strings.Contains(text, "notifications/progress") {
				if !strings.Contains(text, `"`+name+`"`) {
					return answer, fmt.Errorf("%s got %s", name, text)
				}
				continue
			}
			err := json.Unmarshal([]byte(text), &answer)
			if err == nil && answer.Error != nil && answer.Error.Code != rpc.CodeInternal && answer.Error.Message != invalid {
				err = fmt.Errorf("%s got %s", name, text)
			}
			return answer, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return answer, errUnanswered
}
