package sessionless

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless/sessionlesstest"
)

// The adapter does not replace processes that die early at once, and tells clients why.
func TestDeathsInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan *script, 1)
		s := New(Options{Limits: testLimits(), Era: Modern, Acquire: func(context.Context) (mux.Server, error) {
			p := newScript(nil)
			started <- p
			return p, nil
		}})
		defer s.Close()
		ask := func(want string) {
			t.Helper()
			if got := ask(t.Context(), s, "1"); !strings.Contains(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		for range 2 {
			go func() {
				p := <-started
				p.Next(t)
				p.End(errDied)
			}()
			ask(errDied.Error())
		}
		ask("the next start is in 1s, because of the last: " + errDied.Error())
		time.Sleep(mux.OnDemand.First)
		go func() {
			p := <-started
			p.Answer(p.Next(t), `"result":{}`)
		}()
		ask(`"result":{}`)
	})
}

// A process that hangs gets no more requests, although it may yet answer those that it has.
func TestRetiredProcessIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits()
		limits.StuckTimeout = time.Minute
		started := make(chan *script, 2)
		e := New(Options{Limits: limits, Era: Modern, Acquire: func(context.Context) (mux.Server, error) {
			p := newScript(nil)
			started <- p
			return p, nil
		}})
		defer e.Close()
		call := func() *Call {
			t.Helper()
			made, err := e.Call(t.Context(), scanned(enveloped("1", "some/method", "")))
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
		hangs, slow := call(), call()
		old := <-started
		old.Next(t)
		request := old.Next(t)
		time.Sleep(limits.StuckTimeout)
		hangs.Release()
		other := call()
		next := <-started
		next.Answer(next.Next(t), `"result":{"by":"next"}`)
		old.Answer(request, `"result":{"by":"old"}`)
		for made, want := range map[*Call]string{other: "next", slow: "old"} {
			if message, _ := awaitMessage(t, made); !strings.Contains(string(message), want) {
				t.Errorf("got %s, want the answer of the %s process", message, want)
			}
			made.Release()
		}
		<-old.Closed
	})
}

// A start that Close ends has not failed.
func TestCloseWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Options{Limits: testLimits(), Era: Modern, Acquire: func(ctx context.Context) (mux.Server, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		failed := make(chan error)
		go func() {
			_, err := e.Call(t.Context(), scanned(enveloped("1", "some/method", "")))
			failed <- err
		}()
		synctest.Wait()
		e.Close()
		if err := <-failed; !errors.Is(err, fault.ErrDraining) {
			t.Errorf("got %v", err)
		}
		if n := e.Metrics().StartFailures.Value(); n != 0 {
			t.Errorf("counted %d failures", n)
		}
	})
}

// A start that fails does not forget an era that was found out meanwhile.
func TestEraIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan *script, 2)
		e := New(Options{Limits: testLimits(), Acquire: func(context.Context) (mux.Server, error) {
			if len(started) > 0 {
				return newScript(map[string]string{"server/discover": sessionlesstest.ModernDiscovery}), nil
			}
			p := newScript(nil)
			started <- p
			return p, nil
		}})
		defer e.Close()
		failed := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
			defer cancel()
			_, err := e.Call(ctx, scanned(enveloped("1", "some/method", "")))
			failed <- err
		}()
		synctest.Wait()
		if era, err := e.Era(t.Context()); era != Modern || err != nil {
			t.Fatalf("got %s, %v", era, err)
		}
		if err := <-failed; !errors.Is(err, context.DeadlineExceeded) { // it says nothing at all
			t.Errorf("got %v", err)
		}
		if era := e.Found(); era != Modern {
			t.Errorf("the era is %s again", era)
		}
	})
}
