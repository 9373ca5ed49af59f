package formodern

import (
	"testing"
	"testing/synctest"
	"time"
)

// Two calls at one process want log messages: the lowest level of both is told, whichever
// is prepared first.
func TestReviewLowerLevelIsForgotten(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		debug, errors := mute, mute
		debug.meta = `"io.modelcontextprotocol/logLevel":"debug",`
		errors.meta = `"io.modelcontextprotocol/logLevel":"error",`
		s.post(debug, "tools/call", toolX)
		p := s.process(1)
		low := p.next() // setLevel debug, without an answer yet
		s.post(errors, "tools/call", toolX)
		synctest.Wait()
		p.mu.Lock()
		sent := len(p.sent)
		last := ""
		if sent > 0 {
			last = string(p.sent[sent-1].Bytes)
		}
		p.mu.Unlock()
		if sent > 0 {
			t.Errorf("a call that wants debug is on its way, and the process is told %s", last)
		}
		p.answer(low, `"result":{}`)
		time.Sleep(levelTimeout)
	})
}

// A parked call keeps what its state is bound to, not all that its client sent.
func TestReviewParkedCallKeepsItsArguments(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		s.parked(elicits, form)
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		for _, p := range s.server.parks {
			if len(p.call.arguments) > 0 {
				t.Errorf("%d bytes of arguments are kept besides the digest", len(p.call.arguments))
			}
		}
	})
}
