package swarm

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRules(t *testing.T) {
	said := errors.New("what the SDK says")
	call := func(status int) trouble { return trouble{Method: http.MethodPost, Call: true, Status: status} }
	get := func(status int) trouble { return trouble{Method: http.MethodGet, Status: status} }
	unasked := trouble{Method: http.MethodPost, Call: true, Unasked: true}
	type verdict struct {
		Kind  Kind
		Quirk string
		Gone  bool
	}
	tests := map[string]struct {
		facts
		want verdict
	}{
		"all is well":                               {},
		"a stream beside the call broke":            {facts: facts{troubles: []trouble{get(0), get(503)}}},
		"a status without a meaning, beside it":     {facts{troubles: []trouble{get(409)}}, verdict{Kind: Wrong}},
		"a message that nothing can read":           {facts{troubles: []trouble{{Unreadable: true}}}, verdict{Kind: Wrong}},
		"an answer after the end":                   {facts{told: true, before: true}, verdict{Kind: Wrong, Gone: true}},
		"an answer that came with the end":          {facts: facts{told: true}},
		"the end":                                   {facts{err: said, told: true, troubles: []trouble{call(404)}}, verdict{Kind: Over, Gone: true}},
		"the end, told to a stream beside it":       {facts{err: said, told: true, ended: true, troubles: []trouble{get(404)}}, verdict{Kind: Over, Gone: true}},
		"no session, and 404":                       {facts{err: said, troubles: []trouble{call(404)}}, verdict{Kind: Broken}},
		"the test's own proxy":                      {facts{err: said, troubles: []trouble{unasked}}, verdict{Kind: Unasked}},
		"refused":                                   {facts{err: said, troubles: []trouble{call(503)}}, verdict{Kind: Refused}},
		"broken, while a stream was refused":        {facts{err: said, troubles: []trouble{get(503), call(502)}}, verdict{Kind: Broken}},
		"a stream that was refused":                 {facts{err: said, gaveUp: true, troubles: []trouble{get(503), get(503)}}, verdict{Kind: Broken, Quirk: "gave up the stream of a call"}},
		"a stream that ended, and the SDK stopped":  {facts{err: said, gaveUp: true, troubles: []trouble{get(0), get(0)}}, verdict{Kind: Abandoned, Quirk: "gave up a stream because it had ended"}},
		"streams that ended, and with them the SDK": {facts{err: said, ended: true, troubles: []trouble{get(0)}}, verdict{Kind: Abandoned, Quirk: "ended its session because streams had ended", Gone: true}},
		"a GET had an error, and the SDK ended":     {facts{err: said, ended: true, troubles: []trouble{get(503)}}, verdict{Kind: Broken, Quirk: "ended its session because a GET had an error", Gone: true}},
		"the answer to a question was lost":         {facts{err: said, waits: true, troubles: []trouble{{Answer: true, Status: 502}}}, verdict{Kind: Broken, Quirk: "waited on for a call whose answer to a question was lost"}},
		"nothing explains it":                       {facts{err: said}, verdict{Kind: Broken}},
		"the answer is wrong":                       {facts{err: wrong("two")}, verdict{Kind: Wrong}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got verdict
			if failed, ok := errors.AsType[*failure](judge(test.facts)); ok {
				got = verdict{failed.kind, failed.quirk, failed.gone}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The answers of clients to the server's questions are lost. The SDKs would never return, but the swarm gives up.
func expectLostAnswersNoticed(t *testing.T, options Options) {
	t.Helper()
	options.Mix = Mix{Questions: 1}
	options.URL = meddler{meet: func(_ *http.Request, body []byte) {
		if accepted.Match(body) {
			panic(http.ErrAbortHandler)
		}
	}}.start(t)
	report := until(t, options, func(r *Report) bool { return len(r.Of(Broken)) > 4 })
	expectQuirk(t, report, "waited on for a call whose answer to a question was lost", Broken)
}

// expectQuirk expects that SDKs have done this by themselves, and that nothing but one kind of incident came of it.
func expectQuirk(t *testing.T, report *Report, quirk string, kind Kind) {
	t.Helper()
	found := 0
	for name, times := range report.Quirks {
		if len(name) > len(quirk) && name[len(name)-len(quirk):] == quirk {
			found += times
		}
	}
	if found == 0 || found > len(report.Of(kind)) || len(report.Of(kind)) != len(report.Incidents) {
		t.Errorf("%s, want %q as often as %s, and nothing else: %v", report, quirk, kind, report.Incidents)
	}
}

func TestLostAnswersOfGoSDK(t *testing.T) {
	expectLostAnswersNoticed(t, Options{Clients: goMakes[GoSDK]})
}

// The SDK ends its session when streams beside the calls end without an event, which takes it about ten seconds.
func TestLongGoSDKAbandons(t *testing.T) {
	options := Options{Clients: Clients{GoSDK: 1}, URL: meddler{listen: func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
	}}.start(t)}
	report := until(t, options, func(r *Report) bool { return r.Sessions > 1 })
	expectQuirk(t, report, "ended its session because streams had ended", Abandoned)
}
