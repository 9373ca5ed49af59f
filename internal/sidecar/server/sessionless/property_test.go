package sessionless

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// jumbled is a process that answers each request with progress and a result that repeat
// what was asked, in any order.
type jumbled struct{ *script }

func (s jumbled) Send(ctx context.Context, sent session.Message) error {
	message := scanned(string(sent.Bytes))
	if string(message.Envelope.Method) != "prompts/get" {
		return s.script.Send(ctx, sent)
	}
	go func() {
		name, id := string(message.Envelope.Name), string(message.Envelope.ID.Of(message.Bytes))
		for i := range rand.IntN(4) {
			s.Emit(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"%s"}}`, id, i, name))
		}
		s.Emit(`{"jsonrpc":"2.0","id":` + id + `,"result":{"name":"` + name + `"}}`)
	}()
	return nil
}

// R25, R55: whatever ids and tokens clients choose, at the same time and equal ones, each
// gets what is its own, all of it, and nothing of another client. Some go away meanwhile.
func TestNeverMixedUp(t *testing.T) {
	const clients, requests = 8, 30
	s := newStage(t, func(o *Options) {
		o.Era, o.Limits.Calls = Modern, clients*requests
		acquire := o.Acquire
		o.Acquire = func(ctx context.Context) (mux.Server, error) {
			server, err := acquire(ctx)
			return jumbled{server.(*script)}, err
		}
	}, func(p *script) { p.Answers["notifications/cancelled"] = "" })
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for number := range requests {
				s.exchange(fmt.Sprintf("c%d-%d", client, number), []string{"1", `"1"`, "-7", `"x"`}[number%4], number%5 == 4)
			}
		})
	}
	all.Wait()
	await(t, "everything to be over", func() bool { return len(s.server.open()) == 0 })
	running, err := s.server.first(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	running.mu.Lock()
	defer running.mu.Unlock()
	if running.LenLocked() != 0 || running.buffered != 0 || running.sending != 0 || running.inFlight != 0 {
		t.Errorf("left are %d calls, %d and %d bytes, and %d in flight", running.LenLocked(), running.buffered, running.sending, running.inFlight)
	}
}

// exchange makes one request, or goes away from it.
func (s *stage) exchange(name, id string, leaves bool) {
	body := strings.Replace(enveloped(id, "prompts/get", `"name":"`+name+`",`), `"_meta":{`, `"_meta":{"progressToken":`+id+`,`, 1)
	call := s.post(body)
	if leaves {
		go call.leave()
	}
	text := call.all()
	if leaves {
		return
	}
	answer := `{"jsonrpc":"2.0","id":` + id + `,"result":{"name":"` + name + `"}}`
	progress := strings.Count(text, `"progressToken":`+id+`,`)
	if call.err != nil || !strings.Contains(text, answer) || strings.Count(text, name) != progress+1 || strings.Count(text, `"message":"`) != progress {
		s.Errorf("%s got %s, %v", name, text, call.err)
	}
}
