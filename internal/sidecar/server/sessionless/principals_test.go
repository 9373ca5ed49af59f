package sessionless

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless/sessionlesstest"
)

// verified is a caller whose token the adapter has verified.
func verified(user string) *caller.Caller {
	return &caller.Caller{Principal: caller.Principal("user " + user), Grant: &access.Grant{Identity: &identity.Identity{User: user}}}
}

// errFull is what callers read when every process serves another one.
var errFull = fault.Busy("every process serves another caller")

const patience = 10 * time.Second

// fleet is Principals over processes that tests play.
type fleet struct {
	*testing.T
	*Principals
	started chan *script
}

func newFleet(t *testing.T, processes int, change func(*Options)) *fleet {
	t.Helper()
	f := &fleet{T: t, started: make(chan *script, 16)}
	limits := testLimits()
	limits.Calls = 32
	options := Options{Era: Modern, Limits: limits, Acquire: func(context.Context) (mux.Server, error) {
		p := sessionlesstest.NewModern()
		f.started <- p
		return p, nil
	}}
	if change != nil {
		change(&options)
	}
	f.Principals = NewPrincipals(options, Bound{Processes: processes, Full: errFull, Patience: patience})
	t.Cleanup(f.Close)
	return f
}

// begin makes a request of a caller. It returns the process that gets it; nil is one that was there before.
func (f *fleet) begin(from *caller.Caller, method, params string) (*Call, *script) {
	f.Helper()
	request := scanned(strings.Replace(enveloped("1", method, params), `clientCapabilities":{}`, `clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, 1))
	request.From = from
	call, err := f.Serve(f.Context(), request, admitted{})
	if err != nil {
		f.Fatalf("%s of %s: %v", method, from.Principal, err)
	}
	select {
	case p := <-f.started:
		return call, p
	default:
		return call, nil
	}
}

// call makes a request of a caller, and has the process answer it.
func (f *fleet) call(from *caller.Caller, by *script, result string) *script {
	f.Helper()
	call, started := f.begin(from, "some/method", "")
	defer call.Release()
	if started != nil {
		by = started
	}
	by.Answer(by.Next(f.T), result)
	awaitMessage(f.T, call)
	return started
}

// refused makes a request that no process gets.
func (f *fleet) refused(from *caller.Caller, method, params string, want error) {
	f.Helper()
	request := scanned(enveloped("1", method, params))
	request.From = from
	if call, err := f.Serve(f.Context(), request, admitted{}); !errors.Is(err, want) {
		f.Errorf("%s %s of %s: error %v, want %v", method, params, from.Principal, err, want)
		if err == nil {
			call.Release()
		}
	}
}

// No process serves two principals. One principal, and callers without one, keep theirs.
func TestPrincipalsShareNoProcess(t *testing.T) {
	for name, test := range map[string]struct {
		processes int
		change    func(*Options)
		want      int // processes of anna, bert and two callers without tokens
	}{
		"own processes":           {4, nil, 3},
		"own, era not known":      {4, func(o *Options) { o.Era = Auto }, 3},
		"shared":                  {0, nil, 1},
		"sessions, by translator": {4, func(o *Options) { o.Era, o.Translate = Legacy, func() Translator { return standIn(newScript(nil)) } }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, test.processes, test.change)
				var calls []*Call
				for range 2 {
					for _, from := range []*caller.Caller{verified("anna"), verified("bert"), {Address: "192.0.2.1"}, {Address: "192.0.2.2"}} {
						call, _ := f.begin(from, "some/method", "")
						calls = append(calls, call)
						internal := scanned(enveloped("2", "some/method", ""))
						internal.From = from
						call, err := f.Call(t.Context(), internal) // of a session that the adapter translates
						if err != nil {
							t.Fatal(err)
						}
						calls = append(calls, call)
					}
				}
				used := map[*process]caller.Principal{}
				for i, call := range calls {
					who := []caller.Principal{"user anna", "user bert", caller.Anonymous, caller.Anonymous}[i/2%4]
					if other, ok := used[call.process]; ok && other != who && test.want == 3 {
						t.Errorf("%q has a process of %q", who, other)
					}
					used[call.process] = who
					call.Release()
				}
				if test.want > 0 && len(used) != test.want || test.want == 0 && len(f.own) > 0 {
					t.Errorf("%d processes serve them, of %d principals alone", len(used), len(f.own))
				}
				f.Close() // in the bubble
			})
		})
	}
}

// When as many processes run as may, one that is idle ends for a principal that has none. One with a call
// in flight stays, and so does one with a task, for as long as clients ask about it.
func TestPrincipalsMakeRoom(t *testing.T) {
	const task = `"result":{"resultType":"task","taskId":"t1","status":"working"}`
	idle := 30 * time.Minute
	for name, test := range map[string]struct {
		result string // of what anna has called
		open   bool   // anna still waits for an answer
		unused time.Duration
		want   bool
	}{
		"idle":             {`"result":{}`, false, 5 * time.Second, true},
		"just now":         {`"result":{}`, false, 0, true}, // which bert waits for
		"in use":           {"", true, time.Hour, false},
		"task":             {task, false, idle / 2, false},
		"task, given up":   {task, false, idle, true}, // it has ended by itself
		"state":            {`"result":{"resultType":"input_required","requestState":"s1"}`, false, 5 * time.Second, false},
		"state, after all": {`"result":{"resultType":"input_required","requestState":"s1"}`, false, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, func(o *Options) { o.Limits.IdleTimeout = idle })
				defer f.Close()
				call, annas := f.begin(verified("anna"), "tools/call", `"name":"x",`)
				if !test.open {
					annas.Answer(annas.Next(t), test.result)
					awaitMessage(t, call)
					call.Release()
				}
				time.Sleep(test.unused)
				if !test.want {
					began := time.Now()
					f.refused(verified("bert"), "some/method", "", fault.ErrBusy)
					if waited := time.Since(began); waited != patience {
						t.Errorf("bert waits %v, want %v", waited, patience)
					}
					return
				}
				bert, berts := f.begin(verified("bert"), "some/method", "")
				defer bert.Release()
				if berts == nil || berts == annas {
					t.Error("bert has no process of his own")
				}
				select {
				case <-annas.Closed:
				default:
					t.Error("anna's process still runs")
				}
			})
		})
	}
}

// No principal can hold all places: neither by many calls at a time, nor by processes that hang.
func TestPrincipalsLeavePlaces(t *testing.T) {
	for name, test := range map[string]struct {
		places int
		leave  bool // the client goes away, so that a silent process retires
		want   int  // places of anna
	}{
		"many calls":          {8, false, 4},
		"many calls, few":     {4, false, 2},
		"processes that hang": {8, true, 4},
		"hang, few places":    {2, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, test.places, func(o *Options) { o.Limits.TargetCalls, o.Limits.Processes, o.Limits.StuckTimeout = 1, 4, time.Minute })
				defer f.Close()
				for range 20 {
					request := scanned(enveloped("1", "some/method", ""))
					request.From = verified("anna")
					call, err := f.Serve(t.Context(), request, admitted{})
					if err != nil && !errors.Is(err, fault.ErrBusy) {
						t.Fatal(err)
					}
					if test.leave && err == nil {
						second, err := f.Serve(t.Context(), request, admitted{})
						if err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Minute)
						second.Release()
					}
					synctest.Wait()
					_ = call // which goes on
				}
				if got := f.places.Taken(); got != test.want {
					t.Errorf("anna holds %d places, want %d", got, test.want)
				}
				call, _ := f.begin(verified("bert"), "some/method", "")
				call.Release()
			})
		})
	}
}

// A principal whose process has ended for another gets one again, and need not wait as after a failure.
func TestPrincipalsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, nil)
		defer f.Close()
		for _, users := range [][]string{{"anna", "bert", "cleo"}, slices.Repeat([]string{"anna", "cleo"}, 10)} {
			for _, user := range users {
				began := time.Now()
				if f.call(verified(user), nil, `"result":{}`) == nil {
					t.Fatalf("%s gets no process of her own", user)
				}
				if waited := time.Since(began); waited > 0 {
					t.Errorf("%s waits %v", user, waited)
				}
				time.Sleep(5 * time.Second)
			}
		}
		if len(f.own) != 2 {
			t.Errorf("the adapter knows %d principals, want the one with a process and the newest", len(f.own))
		}
	})
}

// What a principal has started does not exist for others, however they name it, also after its process has
// ended.
func TestForeignContinuations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4, nil)
		defer f.Close()
		anna, bert := verified("anna"), verified("bert")
		process := f.call(anna, nil, `"result":{"resultType":"task","taskId":"t1","status":"working"}`)
		f.call(anna, process, `"result":{"resultType":"input_required","requestState":"s1"}`)
		check := func(when string) {
			for name, test := range map[string]struct{ method, params string }{
				"task":                {"tasks/get", `"taskId":"t1",`},
				"task, escaped":       {"tasks/get", `"taskId":"\u00741",`},
				"state":               {"tools/call", `"name":"x","requestState":"s1",`},
				"state, escaped":      {"tools/call", `"name":"x","requestState":"\u00731",`},
				"watched":             {methodListen, `"notifications":{"taskIds":["other","t1"]},`},
				"watched, odd member": {methodListen, `"notifications":{"TaskIds":["t1"]},`},
			} {
				t.Log(when, name)
				f.refused(bert, test.method, test.params, ErrForeign)
			}
		}
		check("while it runs")
		call, other := f.begin(anna, "tasks/get", `"taskId":"t1",`)
		if other != nil {
			t.Error("anna's task goes to another process")
		}
		call.Release()
		process.End(errDied)
		synctest.Wait()
		check("afterwards")
	})
}

// An instance that goes away takes no principal that it has not seen yet.
func TestPrincipalsRefuseAndDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4, nil)
		process := f.call(verified("anna"), nil, `"result":{"resultType":"input_required","requestState":"s1"}`)
		f.Refuse()
		f.refused(verified("anna"), "some/method", "", fault.ErrDraining)
		f.refused(verified("bert"), "some/method", "", fault.ErrDraining)
		call, _ := f.begin(verified("anna"), "tools/call", `"name":"x","requestState":"s1",`)
		call.Release()
		f.Drain(t.Context())
		<-process.Closed
		f.refused(verified("anna"), "some/method", "", fault.ErrDraining)
		f.refused(verified("cleo"), "some/method", "", fault.ErrDraining)
	})
}
