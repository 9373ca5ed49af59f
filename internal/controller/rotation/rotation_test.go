package rotation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

var noon = time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)

// id is that of a key.
func id(key int) string { return fmt.Sprintf("%016x", key) }

// uses is what a pod says that goes by one key, and accepts others. A negative one has no session.
func uses(current int, others ...int) *adapterapi.KeyUse {
	use := &adapterapi.KeyUse{Current: id(current)}
	for _, key := range others {
		use.Others = append(use.Others, adapterapi.OtherKey{ID: id(max(key, -key)), Sessions: int64(min(1, max(0, key)))})
	}
	return use
}

const (
	idle     = 30 * time.Minute
	lifetime = 24 * time.Hour
)

func TestNext(t *testing.T) {
	rest := Keys{Current: id(1)}
	added := Keys{Current: id(1), Next: id(2)}
	switched := Keys{Current: id(2), Older: []string{id(1)}}
	told := func(use *adapterapi.KeyUse) Pod { return Pod{Name: "a", Use: use, Answered: true} }
	changed := func(pod Pod, change func(*Pod)) Pod { change(&pod); return pod }
	silent := func(p *Pod) { p.Silent = true }
	leaving := func(p *Pod) { p.Leaving = true }
	for name, test := range map[string]struct {
		keys      Keys
		pods      []Pod
		after     time.Duration // since the last step
		requested string
		every     time.Duration
		want      Step
		again     time.Duration
		blocked   string
	}{
		"nothing is asked for":        {keys: rest, after: 9999 * time.Hour},
		"the user asks":               {keys: rest, requested: "1", want: Add},
		"that was honored":            {keys: Keys{Current: id(1), Honored: "1"}, requested: "1"},
		"another value":               {keys: Keys{Current: id(1), Honored: "2"}, requested: "1", want: Add},
		"the annotation is taken off": {keys: Keys{Current: id(1), Honored: "2"}},
		"it is time":                  {keys: rest, after: time.Hour, every: time.Hour, want: Add},
		"it is not time yet":          {keys: rest, after: time.Minute, every: time.Hour, again: 59 * time.Minute},
		"no pod has the keys":         {keys: added, want: Switch},
		"every pod has read the next": {keys: added, pods: []Pod{told(uses(1, -2)), told(uses(1, -2, 3))}, want: Switch},
		"one has used it before":      {keys: added, pods: []Pod{told(uses(2, -1))}, want: Switch},
		"it has, and went silent":     {keys: added, pods: []Pod{changed(told(uses(1, -2)), silent)}, want: Switch},
		"one has not":                 {keys: added, pods: []Pod{told(uses(1, -2)), told(uses(1))}, again: Patience},
		"one has not for long":        {keys: added, pods: []Pod{told(uses(1))}, after: time.Hour, blocked: "a has not read it"},
		"one never said":              {keys: added, pods: []Pod{told(nil)}, after: time.Hour, blocked: "a has an adapter that does not say which keys it accepts"},
		"one never answered":          {keys: added, pods: []Pod{{Name: "a"}}, after: time.Hour, blocked: "a does not answer the manager"},
		"one does not answer":         {keys: added, pods: []Pod{changed(told(uses(1)), silent)}, after: time.Hour, blocked: "a does not answer the manager"},
		"one leaves":                  {keys: added, pods: []Pod{changed(told(uses(1)), leaving)}, after: time.Hour, blocked: "a is shutting down, and will not read it"},
		"a request does not count":    {keys: added, pods: []Pod{told(uses(1))}, requested: "2", every: time.Second, after: time.Minute, again: Patience - time.Minute},
		"no pod is left":              {keys: switched, after: idle, want: Drop},
		"states may come back":        {keys: switched, after: time.Minute, again: idle - time.Minute},
		"no session is left":          {keys: switched, pods: []Pod{told(uses(2, -1))}, after: idle, want: Drop},
		"a session is left":           {keys: switched, pods: []Pod{told(uses(2, 1))}, after: idle, again: lifetime + lag - idle},
		"a pod uses the last key":     {keys: switched, pods: []Pod{told(uses(1, -2))}, after: idle, again: lifetime + lag - idle},
		"a pod may use it":            {keys: switched, pods: []Pod{{Name: "a"}}, after: idle, again: lifetime + lag - idle},
		"no session can be left":      {keys: switched, pods: []Pod{{Name: "a"}, changed(told(uses(1, -2)), silent)}, after: 2 * lifetime, want: Drop},
		"a manager has just started":  {keys: switched, pods: []Pod{{Name: "a", Unasked: true}}, after: 2 * lifetime, again: Patience},
		"it asks for the first time":  {keys: added, pods: []Pod{{Name: "a", Unasked: true}, told(uses(1))}, after: time.Hour, again: Patience},
		"a pod leaves for long":       {keys: switched, pods: []Pod{{Name: "a", Leaving: true}}, after: 2 * lifetime, blocked: "a may still use it"},
		"a pod still uses it":         {keys: switched, pods: []Pod{told(uses(1, -2))}, after: 2 * lifetime, blocked: "a may still use it"},
		"a pod came late to the next": {keys: switched, pods: []Pod{told(uses(2, 1))}, after: 2 * lifetime, blocked: "a may still use it"},
		"two are older, none is used": {keys: Keys{Current: id(3), Older: []string{id(1), id(2)}}, pods: []Pod{told(uses(3, -1, -2))}, after: idle, want: Drop},
		"two are older, one is used":  {keys: Keys{Current: id(3), Older: []string{id(1), id(2)}}, pods: []Pod{told(uses(3, -1, 2))}, after: idle, again: lifetime + lag - idle},
	} {
		test.keys.Changed = noon.Add(-test.after)
		got := Next(&Facts{
			Keys: test.keys, Pods: test.pods, Requested: test.requested, Every: test.every, IdleTimeout: idle, MaxLifetime: lifetime, Now: noon,
		})
		if got.Step != test.want || got.Again != test.again || !strings.HasSuffix(got.Blocked, test.blocked) || (got.Blocked == "") != (test.blocked == "") {
			t.Errorf("%s: got %+v, want %s, again after %s, and %q", name, got, test.want, test.again, test.blocked)
		}
	}
}

// A sentence does not grow with the number of pods.
func TestBlockedNamesFewPods(t *testing.T) {
	f := &Facts{Keys: Keys{Current: id(1), Next: id(2)}, Now: noon}
	for i := range 100 {
		f.Pods = append(f.Pods, Pod{Name: fmt.Sprintf("pod-%d", i)})
	}
	if got := Next(f).Blocked; !strings.Contains(got, "pod-2 ") || strings.Contains(got, "pod-3 ") || !strings.HasSuffix(got, "; and 97 more") {
		t.Errorf("got %q", got)
	}
}
