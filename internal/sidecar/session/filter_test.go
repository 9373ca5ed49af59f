package session

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
)

const (
	listTools = `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
	tools     = `{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"echo"},{"name":"secret"}]}}`
)

var (
	givesEcho = adapterapi.AccessRule{Tools: []string{"echo"}}
	givesBoth = adapterapi.AccessRule{Tools: []string{"echo", "secret"}}
)

// newStalled returns a session that takes no message of the server until the client has read the general stream.
func newStalled(t *testing.T, rule adapterapi.AccessRule) (r *ruled, general *Stream) {
	t.Helper()
	limits := testLimits
	limits.TotalBytes = 10
	r = newRuled(t, limits)
	r.take(rule)
	r.initialize(`{}`)
	general = r.open()
	r.say(note)
	return r, general
}

// A list shows what the rules in effect give to the client, also if they change before the answer of the server
// comes, or while it waits for the client to read.
func TestRulesChangeWhileAListIsOnItsWay(t *testing.T) {
	for name, waits := range map[string]bool{"before the answer": false, "while it waits": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, general := newStalled(t, givesBoth)
				defer r.End(ErrClient)
				list := r.request(listTools)
				if waits {
					go r.say(tools)
					synctest.Wait()
				}
				r.take(givesEcho)
				if !waits {
					go r.say(tools)
				}
				taken(general)
				synctest.Wait()
				got := strings.Join(taken(list), " ")
				if !strings.Contains(got, "echo") || strings.Contains(got, "secret") {
					t.Errorf("the client gets %s", got)
				}
				list.Detach()
				if held := r.Usage().Held; held > int64(r.replay.bytes) {
					t.Errorf("the session holds %d bytes", held)
				}
			})
		})
	}
}

// An answer that waits belongs to the call that was in flight when it came, and to no later one with the same id.
func TestAnswerThatWaitsForALaterCall(t *testing.T) {
	for name, timesOut := range map[string]bool{"no call": false, "a call timed out": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, general := newStalled(t, givesEcho)
				defer r.End(ErrClient)
				var earlier *Stream
				if timesOut {
					earlier = r.call(7, `"name":"echo"`)
				}
				go r.say(tools)
				synctest.Wait()
				time.Sleep(r.limits.CallTimeout)
				r.Sweep(t.Context(), time.Now())
				if timesOut {
					taken(earlier)
				}
				list := r.request(listTools)
				taken(general)
				synctest.Wait()
				if got := taken(list); got != nil {
					t.Errorf("the client gets %s", got)
				}
				r.say(tools)
				if got := strings.Join(taken(list), " "); !strings.Contains(got, "echo") || strings.Contains(got, "secret") {
					t.Errorf("then the client gets %s", got)
				}
			})
		})
	}
}

// A request for a list may reach the server although the adapter could not send it. Then the next call with its id
// gets the answer, and shows no more than the list would have.
func TestAnswerToAListThatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuled(t, testLimits)
		defer r.End(ErrClient)
		r.take(givesEcho)
		grant, _ := r.gate.Admit(access.Head{})
		r.server.err = errors.New("the client has gone")
		list := r.message(listTools)
		list.From = callerWith(grant)
		if _, err := r.Call(t.Context(), list); err == nil {
			t.Fatal("the list was sent")
		}
		r.server.err = nil
		stream := r.call(7, `"name":"echo"`)
		r.say(tools)
		if got := strings.Join(taken(stream), " "); !strings.Contains(got, "echo") || strings.Contains(got, "secret") {
			t.Errorf("the client gets %s", got)
		}
	})
}
