package formodern

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
)

// A client subscribes to resources with long names. The process reads all it is sent.
func TestReviewLongNamesEndTheProcess(t *testing.T) {
	play(t, func(o *Options) { o.Limits.URIs = 256 }, func(p *script) {
		p.answers["resources/subscribe"] = `"result":{}`
		p.answers["resources/unsubscribe"] = `"result":{}`
	}, func(s *stage) {
		call := s.post(mute, "tools/list", "")
		p := s.process(1)
		p.next()
		var uris []string
		for i := range 256 {
			uris = append(uris, `"a://`+strconv.Itoa(i)+strings.Repeat("x", 5<<10)+`"`)
		}
		s.post(mute, "subscriptions/listen", `"notifications":{"resourceSubscriptions":[`+strings.Join(uris, ",")+`]},`)
		synctest.Wait()
		if p.isClosed() {
			t.Errorf("the process was ended for not reading, with a call in flight: %q", call.got())
		}
	})
}

// What keeps one caller's process from starting must not keep others out.
func TestReviewBackOffOfAnotherPrincipal(t *testing.T) {
	play(t, func(o *Options) {
		acquire := o.Acquire
		o.Acquire = func(ctx context.Context) (LegacyServer, error) {
			if stateless.CallerOf(ctx).Principal == "bad" {
				return nil, errors.New("secret of bad")
			}
			return acquire(ctx)
		}
	}, nil, func(s *stage) {
		bad := mute
		bad.principal = "bad"
		for range 6 {
			<-s.post(bad, "tools/list", "").done
			synctest.Wait()
		}
		good := mute
		good.principal = "good"
		request := s.post(good, "tools/list", "")
		synctest.Wait()
		select {
		case <-request.done:
			if request.err != nil {
				t.Errorf("somebody else is refused: %v", request.err)
			}
		default:
		}
	})
}

// One principal that parks its calls has all processes, for as long as it likes.
func TestReviewOnePrincipalTakesAll(t *testing.T) {
	play(t, func(o *Options) { o.Limits.Children, o.Limits.PerKey = 4, 4 }, nil, func(s *stage) {
		for n := range 4 {
			request := s.post(elicits, "tools/call", toolX)
			p := s.process(n + 1)
			p.next()
			p.request("1", form)
			request.asked()
		}
		other := mute
		other.principal = "other"
		request := s.post(other, "tools/list", "")
		<-request.done
		if request.err != nil {
			t.Errorf("another principal: %v", request.err)
		}
	})
}
