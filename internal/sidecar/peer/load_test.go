package peer

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

func TestReport(t *testing.T) {
	for name, test := range map[string]struct {
		values []string
		want   report
		ok     bool
	}{
		"taken":              {[]string{(&report{Load: Load{3, 20, 2}}).String()}, report{Load: Load{3, 20, 2}}, true},
		"refused":            {[]string{(&report{Load{20, 20, 0}, true}).String()}, report{Load{20, 20, 0}, true}, true},
		"none":               {nil, report{}, false},
		"two":                {[]string{"limit=1", "limit=2"}, report{}, false},
		"of a newer version": {[]string{"sessions=1, limit=2, queue=3;now, draining"}, report{Load: Load{1, 2, 0}}, true},
		"without spaces":     {[]string{"sessions=1,limit=2,refused"}, report{Load{1, 2, 0}, true}, true},
		"negative":           {[]string{"sessions=-1, limit=2"}, report{Load: Load{0, 2, 0}}, true},
		"no limit":           {[]string{"sessions=1, refused"}, report{Load{1, 0, 0}, true}, false},
		"too large":          {[]string{"sessions=99999999999999999999, limit=2"}, report{Load: Load{0, 2, 0}}, true},
		"nonsense":           {[]string{"\x00=;,,=1"}, report{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{"Content-Type": {"text/plain"}}
			if test.values != nil {
				header[headerLoad] = test.values
			}
			got, ok := takeReport(header)
			if ok != test.ok || got != test.want || len(header) != 1 {
				t.Errorf("got %+v, %v, and %v is left", got, ok, header)
			}
		})
	}
}

// listing is a list of pods with these sessions, of 10 each.
func listing(sessions ...int64) (candidates []roster.Candidate) {
	for i, n := range sessions {
		candidates = append(candidates, roster.Candidate{
			PeerPod: adapterapi.PeerPod{Sessions: n, Limit: 10},
			Owner:   sessionid.Owner{UID: [16]byte{byte(i + 1)}, Address: netip.MustParseAddrPort("192.0.2.1:16272")},
		})
	}
	return candidates
}

// What a pod reports counts until the list says something new of it, and what is on its way to it counts besides.
func TestLoads(t *testing.T) {
	var l loads
	now := time.Now()
	type figures struct{ sessions, limit, sent int64 }
	want := func(when string, candidates []roster.Candidate, want ...figures) {
		t.Helper()
		var got []figures
		for _, o := range l.of(candidates, now) {
			got = append(got, figures{o.load.Sessions, o.load.Limit, o.sent})
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(figures{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	list := listing(3, 4)
	want("by the list", list, figures{3, 10, 0}, figures{4, 10, 0})
	to := l.of(list, now)
	for range 2 {
		if !l.send(&to[0], true, now) {
			t.Error("there is room")
		}
	}
	want("two on their way", list, figures{3, 10, 2}, figures{4, 10, 0})
	l.answered(&to[0], &Load{8, 10, 0}, now)
	want("one has an answer", list, figures{8, 10, 1}, figures{4, 10, 0})
	if !l.send(&to[0], true, now) || l.send(&to[0], true, now) || !l.send(&to[0], false, now) {
		t.Error("there is room for one, unless that does not matter")
	}
	for range 3 {
		l.answered(&to[0], nil, now)
	}
	want("nothing is on its way", list, figures{8, 10, 0}, figures{4, 10, 0})
	want("the list is new, and says the same", listing(3, 5), figures{8, 10, 0}, figures{5, 10, 0})
	want("the list says something new", listing(7, 5), figures{7, 10, 0}, figures{5, 10, 0})
	want("and the same as before", list, figures{8, 10, 0}, figures{4, 10, 0})
	now = now.Add(reportLapse)
	want("after a while", list, figures{3, 10, 0}, figures{4, 10, 0})

	l.send(&to[1], false, now)
	l.fail(&to[1], relay.Late, now)
	want("one had no time to answer", list, figures{3, 10, 0}, figures{4, 10, 0})
	l.send(&to[1], false, now)
	l.fail(&to[1], relay.Unreachable, now)
	want("one cannot be reached", list, figures{3, 10, 0})
	now = now.Add(failedLapse)
	want("a while later", list, figures{3, 10, 0}, figures{4, 10, 0})

	l.send(&to[1], false, now)
	want("one is gone", list[:1], figures{3, 10, 0})
	want("and is back before its answer", list, figures{3, 10, 0}, figures{4, 10, 1})
	l.answered(&to[1], nil, now)
	l.of(nil, now)
	if len(l.pods) != 0 {
		t.Errorf("%d pods are remembered that no list has", len(l.pods))
	}
}

// A pod that has given its last spare away has another one a while later, if the list says that it keeps some.
func TestSparesComeBack(t *testing.T) {
	var l loads
	now := time.Now()
	list := listing(3)
	list[0].Spares = 2
	spares := func() int64 { return l.of(list, now)[0].load.Spares }
	to := l.of(list, now)
	if spares() != 2 || !to[0].hasSpare() {
		t.Error("the list says that there are two")
	}
	l.send(&to[0], false, now)
	l.send(&to[0], false, now)
	if o := l.of(list, now); o[0].hasSpare() {
		t.Error("the two are for sessions on their way")
	}
	l.answered(&to[0], &Load{5, 10, 0}, now)
	l.answered(&to[0], &Load{5, 10, 1}, now)
	if got := spares(); got != 1 {
		t.Errorf("%d spares, and the pod says one", got)
	}
	l.send(&to[0], false, now)
	l.answered(&to[0], &Load{6, 10, 0}, now)
	now = now.Add(refillLapse - 1)
	if got := spares(); got != 0 {
		t.Errorf("%d spares, and the pod has said that there is none", got)
	}
	now = now.Add(1)
	if o := l.of(list, now)[0].load; o.Spares != 2 || o.Sessions != 6 {
		t.Errorf("got %+v a while later", o)
	}
	list[0].Spares = 0
	if got := spares(); got != 0 {
		t.Errorf("%d spares, and the list says that there is none", got)
	}
}
