package backend

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless/sessionlesstest"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/shared"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
	"github.com/slipway-mcp/slipway/test/hang"
)

// told is an Observer that a test reads.
type told chan string

func (o told) Changed(of int, method, uri string) { o <- strconv.Itoa(of) + " " + method + " " + uri }
func (o told) Missed(of int)                      { o <- strconv.Itoa(of) + " missed" }
func (o told) Ended()                             { o <- "ended" }

// newSharedHub returns the hub of a server whose processes come from start.
func newSharedHub(t *testing.T, era sessionless.Era, start func() (mux.Server, error)) sharedHub {
	t.Helper()
	process := shared.New(shared.Options{
		Acquire: func(context.Context) (mux.Server, error) { return start() },
		Session: session.Limits{
			Calls: 16, Streams: 4, PendingBytes: 1 << 20, TotalBytes: 1 << 20, CallTimeout: time.Hour, CancelGrace: time.Second, DeliveryTimeout: hang.Guard,
		},
		SessionMetrics: &session.Metrics{}, Calls: 1 << 10, Subscriptions: 8, InputBytes: 1 << 20, BacklogBytes: 1 << 20,
		StartTimeout: hang.Guard, SendTimeout: hang.Guard, StuckTimeout: hang.Guard,
	})
	t.Cleanup(process.Close)
	principals := sessionless.NewPrincipals(sessionless.Options{
		Era: era, Limits: sessionless.Limits{StartTimeout: time.Hour, Silence: time.Hour, IdleTimeout: time.Hour, StuckTimeout: time.Hour},
		Acquire: func(context.Context) (mux.Server, error) { return start() },
	}, sessionless.Bound{})
	t.Cleanup(principals.Close)
	return sharedHub{principals, process, &eraSearch{}}
}

// Another pod hears that everything may have changed once the next process can tell it of changes: what it asks for before would be what the process before
// had.
func TestSharedProcessReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan *sessionlesstest.Script, 4)
		hub := newSharedHub(t, sessionless.Legacy, func() (mux.Server, error) {
			p := sessionlesstest.New(map[string]string{
				"initialize": `"result":{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"x","version":"1"}}`,
			})
			started <- p
			return p, nil
		})
		subscribing := func(p *sessionlesstest.Script) session.Message {
			for {
				if next := p.Next(t); string(next.Envelope.Method) == "resources/subscribe" {
					return next
				}
			}
		}
		hears := make(told, 16)
		settled := make(chan func())
		go func() {
			running, stop, err := hub.Observe(t.Context(), []subscription.Want{{Filter: subscription.Filter{URIs: []string{"a://x"}}}}, hears)
			if err != nil || !running[0] {
				t.Errorf("got %v %v", running, err)
			}
			settled <- stop
		}()
		p := sessionlesstest.Process(t, started)
		p.Answer(subscribing(p), `"result":{}`)
		stop := <-settled
		p.Emit(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a://x"}}`)
		if got := <-hears; got != "0 notifications/resources/updated a://x" {
			t.Errorf("the other pod hears of %s", got)
		}
		p.End(errors.New("crash"))
		p = sessionlesstest.Process(t, started)
		asked := subscribing(p)
		synctest.Wait()
		if len(hears) > 0 {
			t.Errorf("the other pod hears of %s before the next process has agreed", <-hears)
		}
		p.Answer(asked, `"result":{}`)
		if got := <-hears; got != "0 missed" {
			t.Errorf("the other pod hears of %s", got)
		}
		stop()
	})
}

// As long as it is not known what the server speaks, pods that listen have few processes start, however many they are.
func TestSharedProcessOfUnknownEra(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts atomic.Int64
		hub := newSharedHub(t, sessionless.Auto, func() (mux.Server, error) {
			starts.Add(1)
			return nil, errors.New("it does not start")
		})
		for range 5 {
			_, stop, err := hub.Observe(t.Context(), []subscription.Want{{Filter: subscription.Filter{Lists: subscription.All()}}}, make(told, 16))
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := starts.Load(); got < 2 || got > 7 {
			t.Errorf("%d processes start in a minute", got)
		}
	})
}
