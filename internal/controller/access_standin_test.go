package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	controllerstatus "github.com/slipway-mcp/slipway/internal/controller/status"
	"github.com/slipway-mcp/slipway/internal/reason"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// tooManyRules are more than an access document has room for, and no more than the API server takes.
func tooManyRules(rule mcpv1alpha1.AccessRule) []mcpv1alpha1.AccessRule {
	for range 128 {
		rule.Resources = append(rule.Resources, mcpv1alpha1.URIPattern(strings.Repeat("x", 1024)))
	}
	return slices.Repeat([]mcpv1alpha1.AccessRule{rule}, 64)
}

// A document that no adapter takes is the user's to correct. Adapters keep the one that they have, unless it is
// more open than the spec, and the status does not claim that the spec is in effect.
func TestAccessThatNoAdapterTakes(t *testing.T) {
	const closes, keeps = ", so the manager tells them to refuse every client until you correct it: ", ", so pods keep enforcing the last ones: "
	type spec = mcpv1alpha1.MCPServerSpec
	withoutAuth := func(s *spec) { s.Auth, s.Access = nil, nil }
	anonymous := func(s *spec) {
		s.Auth, s.Access.Rules[0].Subjects[0].Name = nil, adapterapi.GroupUnauthenticated
	}
	ofServer := func(s *spec) { s.Auth, s.Access = &mcpv1alpha1.Auth{Mode: mcpv1alpha1.AuthModeServer}, nil }
	tooLarge := func(s *spec) { s.Access.Rules = tooManyRules(s.Access.Rules[0]) }
	for name, test := range map[string]struct {
		before  func(*spec) // of the last document; nil if it has auth
		change  func(*spec) // of a spec with auth
		effect  string
		problem string
		remedy  reason.Remedy
	}{
		"too large": {nil, tooLarge, keeps, "encode access: the document is too large: ", reason.ShrinkAccess},
		"of an older CRD": {nil, func(s *spec) { s.Access.Rules = nil },
			keeps, "mode Required needs rules", reason.CorrectAccess},
		"of an older CRD, with much to complain about": {nil, func(s *spec) { s.Access.Rules = slices.Repeat([]mcpv1alpha1.AccessRule{{}}, 64) },
			keeps, "rules[0].subjects is empty", reason.CorrectAccess},
		"auth is new":                     {withoutAuth, tooLarge, closes, "too large", reason.ShrinkAccess},
		"auth is new, of a newer CRD":     {withoutAuth, func(s *spec) { s.Audit = &mcpv1alpha1.Audit{Level: "Full", WhenFull: "Wait"} }, closes, "audit.level", reason.CorrectAccess},
		"auth is new, after rules":        {anonymous, tooLarge, closes, "too large", reason.ShrinkAccess},
		"auth is new, after the server's": {ofServer, tooLarge, closes, "too large", reason.ShrinkAccess},
		"the server's auth is new":        {withoutAuth, func(s *spec) { ofServer(s); s.Audit = &mcpv1alpha1.Audit{Level: "Full"} }, closes, "audit.level", reason.CorrectAccess},
		"rules are new":                   {withoutAuth, func(s *spec) { anonymous(s); tooLarge(s) }, closes, "too large", reason.ShrinkAccess},
		"more rules":                      {anonymous, func(s *spec) { anonymous(s); tooLarge(s) }, keeps, "too large", reason.ShrinkAccess},
		"rules, and auth is gone":         {nil, func(s *spec) { anonymous(s); tooLarge(s) }, keeps, "too large", reason.ShrinkAccess},
		"nothing but audit, as before":    {withoutAuth, func(s *spec) { withoutAuth(s); s.Audit = &mcpv1alpha1.Audit{Level: "Full"} }, keeps, "audit.level", reason.CorrectAccess},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAccessWorld(t)
			w.answer("kubernetes", "https://cluster.example", "one")
			w.answer("corp", "https://corp.example", "two")
			good := w.server.Spec.DeepCopy()
			if test.before != nil {
				test.before(&w.server.Spec)
			}
			before := w.server.Spec.DeepCopy()
			first, _ := w.plan()
			w.now = w.now.Add(time.Minute)
			w.server.Spec = *good
			test.change(&w.server.Spec)
			s, access := w.plan()
			if kept := s.access == first.access; kept != (test.effect == keeps) || workload.IsClosed(&access) == kept || s.access.Generation < first.access.Generation {
				t.Errorf("adapters keep the last document: %v, and the new one is %+v", kept, access)
			}
			want := &controllerstatus.Obstacle{Reason: mcpv1alpha1.ReasonInvalidSpec, Message: s.accessProblem}
			if diff := cmp.Diff(want, s.refusal); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
			if !strings.Contains(s.accessProblem, test.effect) || !strings.Contains(s.accessProblem, test.problem) ||
				!strings.HasSuffix(s.accessProblem, "; "+string(test.remedy)) || len(s.accessProblem) > 1024 {
				t.Errorf("the status says %q", s.accessProblem)
			}
			if got := accessOf(s); got == nil || got.Digest != s.access.Digest || got.Problem != s.accessProblem || len(got.Issuers) != len(access.Issuers) {
				t.Errorf("the status has %+v", got)
			}

			// It stays so, also with another manager.
			for range 2 {
				if again, _ := w.plan(); again.access != s.access || !strings.Contains(again.accessProblem, test.effect) {
					t.Errorf("then %q with the problem %q, after %q", again.access.Digest, again.accessProblem, s.access.Digest)
				}
				w.restart()
			}

			// The spec from before leads to what it led to before.
			w.server.Spec = *before
			again, _ := w.plan()
			if again.accessProblem != "" || (again.access == first.access) != (test.effect == keeps) {
				t.Errorf("got %q with the problem %q, and had %q", again.access.Digest, again.accessProblem, first.access.Digest)
			}
		})
	}
}

// What the manager does not know to be the last document stands in for no spec: pods that start would go by it.
func TestAccessThatNoAdapterTakesAfterAnUnknownOne(t *testing.T) {
	for name, change := range map[string]func(*accessWorld){
		"none": func(w *accessWorld) { w.configMap = nil },
		"another key's": func(w *accessWorld) {
			w.keys = &serverKeys{ring: adapterapi.Keyring{Current: adapterapi.NewKey()}}
		},
		"put back": func(w *accessWorld) { w.configMap.Data[adapterapi.AccessFile] = w.old },
	} {
		t.Run(name, func(t *testing.T) {
			w := newAccessWorld(t)
			w.plan()
			w.old = w.configMap.Data[adapterapi.AccessFile]
			w.now = w.now.Add(time.Minute)
			w.server.Spec.Access.Rules[0].Tools = []mcpv1alpha1.NamePattern{"search"}
			w.plan()
			change(w)
			w.restart()
			w.server.Spec.Access.Rules = tooManyRules(w.server.Spec.Access.Rules[0])
			if s, access := w.plan(); !workload.IsClosed(&access) || s.accessProblem == "" {
				t.Errorf("adapters enforce %+v because of %q", access, s.accessProblem)
			}
		})
	}
}

// A document that stays has the signature of the current key, as every other: adapters soon forget the former.
func TestAccessThatStaysIsSignedAgain(t *testing.T) {
	w := newAccessWorld(t)
	w.plan()
	w.server.Spec.Access.Rules = tooManyRules(w.server.Spec.Access.Rules[0])
	kept, before := w.plan()
	former := w.keys.ring.Current
	w.keys = &serverKeys{ring: adapterapi.Keyring{Current: adapterapi.NewKey(), Accepted: []adapterapi.Key{former}}}
	signed, access := w.plan()
	if _, err := (adapterapi.Keyring{Current: w.keys.ring.Current}).OpenAccess([]byte(signed.access.Text)); err != nil || signed.access.Generation <= kept.access.Generation {
		t.Errorf("%v, generation %d after %d", err, signed.access.Generation, kept.access.Generation)
	}
	access.Generation = before.Generation
	if diff := cmp.Diff(before, access); diff != "" {
		t.Errorf("it says something else (-before +after):\n%s", diff)
	}
}
