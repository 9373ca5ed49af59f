package news

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// While clients listen, a pod that cannot be reached is tried again and again, more seldom with time. Some time after the last
// client has gone, it is not.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int64
		r := relay.New(relay.Options{Dial: func(context.Context, netip.AddrPort) (net.Conn, error) {
			dials.Add(1)
			return nil, errors.New("no way there")
		}})
		defer r.Close()
		hub := newCrowd()
		n := New(Options{
			Hub: hub, Others: func() []sessionid.Owner {
				return []sessionid.Owner{{UID: [16]byte{2}, Address: netip.MustParseAddrPort("192.0.2.1:16272")}}
			}, Next: func() <-chan struct{} { return nil },
			Relay: r, Log: logr.Discard(),
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go n.Run(ctx)
		after := func(wait time.Duration) int64 {
			before := dials.Load()
			time.Sleep(wait)
			synctest.Wait()
			return dials.Load() - before
		}
		if got := after(time.Hour); got != 0 {
			t.Errorf("%d attempts without a client", got)
		}
		hub.want("a://1")
		if got := after(time.Second); got < 2 {
			t.Errorf("%d attempts in the first second", got)
		}
		after(time.Minute)
		if got := after(time.Minute); got != int64(time.Minute/pace.Last) {
			t.Errorf("%d attempts in a minute", got)
		}
		hub.set() // the client goes, and comes back
		after(linger - time.Second)
		hub.want("a://1")
		if got := after(time.Minute); got == 0 {
			t.Error("no attempt although a client listens")
		}
		hub.set()
		after(linger + gather)
		if got := after(time.Hour); got != 0 {
			t.Errorf("%d attempts after the last client has gone", got)
		}
		cancel()
		synctest.Wait()
	})
}
