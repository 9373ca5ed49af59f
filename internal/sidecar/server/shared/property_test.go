package shared

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// shuffler is a server that works on all requests at once and goes on with any of
// them at random.
type shuffler struct {
	mu      sync.Mutex
	more    *sync.Cond
	pending []*job
	random  *rand.Rand
	closed  bool
}

type job struct {
	fake       *fake
	id, params string
	token      string
	progress   int
}

func (s *shuffler) handle(f *fake, m session.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case m.Envelope.Kind == rpc.Request:
		s.pending = append(s.pending, &job{
			fake: f, id: string(m.Envelope.ID.Of(m.Bytes)), token: string(m.Envelope.ProgressToken.Of(m.Bytes)),
			params: string(m.Envelope.Params.Of(m.Bytes)),
		})
		s.more.Signal()
	case string(m.Envelope.Method) == "notifications/cancelled":
		if s.random.IntN(2) == 0 {
			return // it did not notice in time
		}
		id := string(m.Envelope.RequestID.Of(m.Bytes))
		for i, j := range s.pending {
			if j.id == id {
				s.pending = append(s.pending[:i], s.pending[i+1:]...)
				break
			}
		}
	}
}

func (s *shuffler) run() {
	for {
		s.mu.Lock()
		for len(s.pending) == 0 && !s.closed {
			s.more.Wait()
		}
		if s.closed {
			s.mu.Unlock()
			return
		}
		i := s.random.IntN(len(s.pending))
		j := s.pending[i]
		report := j.token != "" && j.progress < 3
		if report {
			j.progress++
		} else {
			s.pending = append(s.pending[:i], s.pending[i+1:]...)
		}
		s.mu.Unlock()
		if report {
			j.fake.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":%s}}`, j.token, j.progress, who(j.params))
		} else {
			j.fake.say(`{"jsonrpc":"2.0","result":%s,"id":%s}`, j.params, j.id)
		}
	}
}

var whoPattern = regexp.MustCompile(`"who":("[^"]*")`)

// who is whose request it is, as the payload says.
func who(params string) string {
	if found := whoPattern.FindStringSubmatch(params); found != nil {
		return found[1]
	}
	return `"none"`
}

// payloads are what other bridges are known to change.
var payloads = []string{
	`9007199254740993`, `18446744073709551615`, `-9223372036854775808`, `1.0`, `1e2`, `123456789012345678901234567890`,
	"\"a\u00a0b\u200dc\u3000d\ufeffe\"", `"\u00e9\/\ud83d\ude00\u0000\u2028"`, `{"b":1, "a" : [ ] ,"b":2}`, `"<&>"`,
	"\"\U0001f468\u200d\U0001f469\u200d\U0001f467\"",
}

// R25, R43, R55: sessions with the same ids and tokens, at random. Nothing reaches
// the wrong one, nothing is lost, and every payload comes back as it was sent.
func TestR25R43R55Property(t *testing.T) { testProperty(t, 12, 12) }

func TestLongR25R43R55Property(t *testing.T) { testProperty(t, 64, 24) }

func testProperty(t *testing.T, sessions, calls int) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := &shuffler{random: rand.New(rand.NewPCG(seed, 1))}
	s.more = sync.NewCond(&s.mu)
	options := testOptions()
	options.Session.PendingBytes, options.Session.TotalBytes, options.BacklogBytes = 256<<20, 256<<20, 256<<20
	p, fakes := newFake(t, options, s.handle)
	go s.run()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed = true
		s.more.Broadcast()
	}()
	var running sync.WaitGroup
	for number := range sessions {
		running.Go(func() {
			player{client: connect(t, p), name: fmt.Sprintf("s%d", number), random: rand.New(rand.NewPCG(seed, uint64(number)+2))}.play(calls)
		})
	}
	running.Wait()
	f := <-fakes
	if f.closed || len(fakes) != 0 {
		t.Error("the process did not last")
	}
	m := p.Metrics()
	if m.SlowSessions.Value() != 0 || m.UnroutedMessages.Value() != 0 {
		t.Errorf("%d slow sessions, %d messages without a recipient", m.SlowSessions.Value(), m.UnroutedMessages.Value())
	}
	r, _ := p.instances.Current()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.views)+r.LenLocked()+len(r.topics) != 0 {
		t.Errorf("left behind: %d sessions, %d calls, %d topics", len(r.views), r.LenLocked(), len(r.topics))
	}
}

// player is a client that makes calls, cancels some and checks what it gets.
type player struct {
	*client
	name   string
	random *rand.Rand
}

func (p player) play(calls int) {
	var checking sync.WaitGroup
	for i := range calls {
		// Every session uses the same ids and tokens.
		id, token := strconv.Itoa(i), fmt.Sprintf(`"t%d"`, i)
		if i%3 == 0 {
			id, token = `"`+id+`"`, strconv.Itoa(i)
		}
		payload := payloads[p.random.IntN(len(payloads))]
		if i == 0 && p.random.IntN(8) == 0 {
			payload = `"` + strings.Repeat("\u00a0plain text", 1<<20/12) + `"` // 1 MiB
		}
		before := fmt.Sprintf(`{"name":"x","arguments":{"who":"%s/%d","p":%s},"_meta":{`, p.name, i, payload)
		params := before + `}}`
		if reports := i%2 == 0; reports {
			before += `"progressToken":`
			params = before + token + `}}`
		} else {
			token = ""
		}
		stream := p.call(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":` + params + `}`)
		cancelled := p.random.IntN(6) == 0
		if cancelled {
			p.tell(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		}
		checking.Go(func() { p.check(stream, fmt.Sprintf("%s/%d", p.name, i), id, token, before, cancelled) })
		if p.random.IntN(4) == 0 {
			checking.Wait()
		}
	}
	checking.Wait()
	p.End(errors.New("played"))
}

func (p player) check(stream *session.Stream, name, id, token, before string, cancelled bool) {
	if cancelled {
		// What came before the cancellation can only be its own.
		for range 3 {
			event, ok, _ := stream.Take()
			if ok && event.Message != nil && !strings.Contains(string(event.Message), `"`+name+`"`) {
				p.t.Errorf("%s got %.300s", name, event.Message)
			}
		}
		stream.Detach()
		return
	}
	got := all(p.t, stream)
	want := 1
	if token != "" {
		want = 4
	}
	if len(got) != want {
		p.t.Errorf("%s: got %d messages, want %d: %.300q", name, len(got), want, got)
		return
	}
	for i, text := range got[:want-1] {
		if full := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"%s"}}`, token, i+1, name); text != full {
			p.t.Errorf("%s: got progress %.300s, want %s", name, text, full)
		}
	}
	answer := got[want-1]
	start, end := `{"jsonrpc":"2.0","result":`+before, `}},"id":`+id+`}`
	if !strings.HasPrefix(answer, start) || !strings.HasSuffix(answer, end) {
		p.t.Errorf("%s: got answer %.300s, want %.300s … %s", name, answer, start, end)
		return
	}
	// Between them is only the number that stood for the token.
	if between := answer[len(start) : len(answer)-len(end)]; strings.Trim(between, "0123456789") != "" || (between == "") != (token == "") {
		p.t.Errorf("%s: got %.300q in place of the token", name, between)
	}
}

// The same for updates: each session follows a resource of its own and one that all
// follow, and they come and go.
func TestR55UpdatesProperty(t *testing.T) {
	const sessions, updates = 32, 10
	p, fakes := newFake(t, testOptions(), echo)
	clients := make([]*client, sessions)
	streams := make([]*session.Stream, sessions)
	var connecting sync.WaitGroup
	for i := range clients {
		connecting.Go(func() {
			clients[i] = connect(t, p)
			clients[i].ask(about("1", "subscribe", "res://common"))
			clients[i].ask(about("2", "subscribe", fmt.Sprintf("res://own/%d", i)))
			if i%2 == 1 {
				clients[i].ask(about("3", "unsubscribe", "res://common"))
			}
			streams[i] = clients[i].listen()
		})
	}
	connecting.Wait()
	f := <-fakes
	random := rand.New(rand.NewPCG(1, 2))
	var order []string
	for i := range sessions {
		for n := range updates {
			order = append(order, fmt.Sprintf(`res://own/%d","n":"%d`, i, n))
		}
	}
	for n := range updates {
		order = append(order, fmt.Sprintf(`res://common","n":"%d`, n))
	}
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, uri := range order {
		f.say("%s", update(uri))
	}
	for i, c := range clients {
		var want []string
		for _, uri := range order {
			if strings.HasPrefix(uri, fmt.Sprintf(`res://own/%d"`, i)) || i%2 == 0 && strings.HasPrefix(uri, "res://common") {
				want = append(want, update(uri))
			}
		}
		for _, text := range want {
			if got, _ := next(t, streams[i]); got != text {
				t.Fatalf("session %d: got %s, want %s", i, got, text)
			}
		}
		if got := all(t, c.call(request("9", "m"))); len(got) != 1 { // it comes after all updates
			t.Errorf("session %d: got %.300q, want the answer", i, got)
		}
		expectNothing(t, "afterwards", streams[i])
		c.End(errors.New("done"))
	}
	expected := 0
	for _, change := range changes(f) {
		if strings.HasSuffix(change, " res://common") {
			expected++
		}
	}
	if expected%2 != 0 {
		t.Errorf("res://common was subscribed to and unsubscribed from %d times in all", expected)
	}
}
