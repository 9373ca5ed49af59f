package roster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// ready is a pod that takes sessions, unless change says otherwise.
func ready(of uid, change func(*adapterapi.PeerPod)) adapterapi.PeerPod {
	made := adapterapi.PeerPod{UID: of.String(), Address: "192.0.2.1:16272", Ready: true, Sessions: 3, Limit: 20}
	if change != nil {
		change(&made)
	}
	return made
}

func candidates(r *Roster) (found []uid) {
	for _, c := range r.Candidates(first) {
		found = append(found, c.Owner.UID)
	}
	return found
}

func TestCandidates(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*adapterapi.PeerPod)
		want   bool
	}{
		"ready":              {nil, true},
		"not verified":       {func(p *adapterapi.PeerPod) { p.Verified = false }, true},
		"cordoned":           {func(p *adapterapi.PeerPod) { p.Cordoned = true }, true},
		"at an IPv6 address": {func(p *adapterapi.PeerPod) { p.Address = "[2001:db8::1]:16272" }, true},
		"not ready":          {func(p *adapterapi.PeerPod) { p.Ready = false }, false},
		"terminating":        {func(p *adapterapi.PeerPod) { p.Terminating = true }, false},
		"doubted":            {func(p *adapterapi.PeerPod) { p.Doubted = true }, false},
		"without an address": {func(p *adapterapi.PeerPod) { p.Address = "" }, false},
		"at no address":      {func(p *adapterapi.PeerPod) { p.Address = "pod:16272" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := New()
			take(t, r, list(t, 1, ready(first, nil), ready(second, test.change)))
			if got := slices.Equal(candidates(r), []uid{second}); got != test.want {
				t.Errorf("the candidates are %v", candidates(r))
			}
		})
	}
}

// A list places sessions for as long as it counts.
func TestCandidatesOfAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		expectList := func(when string, others int, has bool) {
			t.Helper()
			entry, got := r.Entry(first)
			if len(candidates(r)) != others || got != has || has && entry.Limit != 20 {
				t.Errorf("%s: the candidates are %v, and this pod is %+v, %v", when, candidates(r), entry, got)
			}
		}
		expectList("without a list", 0, false)
		next := r.Next()
		take(t, r, list(t, 1, ready(first, nil), ready(second, nil)))
		select {
		case <-next:
		default:
			t.Error("nothing says that there is a list")
		}
		expectList("with a list", 1, true)
		next = r.Next()
		time.Sleep(lease)
		expectList("at its end", 1, true)
		time.Sleep(time.Nanosecond)
		expectList("after its end", 0, false)
		r.Renew(1)
		expectList("renewed", 1, true)
		select {
		case <-next:
			t.Error("a list that is renewed counts as new")
		default:
		}
		take(t, r, list(t, 2, ready(second, nil)))
		expectList("without this pod", 1, false)
	})
}
