package roster

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/document"
)

type uid [16]byte

func (u uid) String() string { return hex.EncodeToString(u[:]) }

var (
	first  = uid{1}
	second = uid{2}
)

// list is the text of a list.
func list(t *testing.T, generation int64, pods ...adapterapi.PeerPod) []byte {
	t.Helper()
	encoded, err := adapterapi.Peers{Version: adapterapi.PeersVersion, Generation: generation, Pods: pods}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return []byte(encoded.Text)
}

func pod(of uid) adapterapi.PeerPod { return adapterapi.PeerPod{UID: of.String()} }

func doubted(of uid) adapterapi.PeerPod {
	return adapterapi.PeerPod{UID: of.String(), Doubted: true}
}

func take(t *testing.T, r *Roster, text []byte) {
	t.Helper()
	if err := r.Take(text); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, r *Roster, of uid, want Standing) {
	t.Helper()
	if got := r.Standing(of); got != want {
		t.Errorf("standing of %s is %d, want %d", of, got, want)
	}
}

func TestStanding(t *testing.T) {
	r := New()
	expect(t, r, first, Unknown)
	take(t, r, list(t, 1, pod(first), doubted(second)))
	expect(t, r, first, Listed)
	expect(t, r, second, Doubted)
	take(t, r, list(t, 2, pod(first)))
	expect(t, r, second, Removed)
	take(t, r, list(t, 3, pod(first), pod(second)))
	expect(t, r, second, Listed)
}

// A list names pods that are gone, for adapters that had no list with them. A pod that is there is there.
func TestGone(t *testing.T) {
	r := New()
	third := uid{3}
	with := func(generation int64, gone []uid, pods ...adapterapi.PeerPod) []byte {
		t.Helper()
		made := adapterapi.Peers{Version: adapterapi.PeersVersion, Generation: generation, Pods: pods}
		for _, of := range gone {
			made.Gone = append(made.Gone, of.String())
		}
		encoded, err := made.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return []byte(encoded.Text)
	}
	take(t, r, with(2, []uid{second, third}, pod(first), pod(third)))
	expect(t, r, second, Removed)
	expect(t, r, third, Listed)
	if err := r.Take(with(1, []uid{first}, pod(second))); !errors.Is(err, document.ErrOlder) {
		t.Errorf("a list of a former leader: %v", err)
	}
	take(t, r, with(3, []uid{second}, pod(first)))
	expect(t, r, third, Removed)
	take(t, r, list(t, 4, pod(first))) // of a leader that does not know what was before it
	expect(t, r, second, Removed)
	take(t, r, list(t, 5, pod(first), pod(second)))
	expect(t, r, second, Listed)
	if len(r.removed) != 1 || len(r.order) > 3 {
		t.Errorf("%d pods are remembered, %d in order", len(r.removed), len(r.order))
	}
}

// A pod that is left out of a list without room for all may still exist, unless the list names it as gone.
func TestPartialLists(t *testing.T) {
	r := New()
	take(t, r, list(t, 1, pod(first), pod(second), pod(uid{3})))
	encoded, err := adapterapi.Peers{
		Version: adapterapi.PeersVersion, Generation: 2, Pods: []adapterapi.PeerPod{pod(first)}, Partial: true, Gone: []string{uid{3}.String()},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	take(t, r, []byte(encoded.Text))
	expect(t, r, first, Listed)
	expect(t, r, second, Unknown)
	expect(t, r, uid{3}, Removed)
}

// A list counts for as long as the manager renews it, and not longer. A pod that is removed does not come back.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		if r.Age() != 0 {
			t.Errorf("age %s without a list", r.Age())
		}
		r.Renew(0)
		take(t, r, list(t, 6, pod(first), pod(second)))
		take(t, r, list(t, 7, pod(first)))
		time.Sleep(lease)
		expect(t, r, first, Listed)
		r.Renew(7)
		time.Sleep(lease)
		expect(t, r, first, Listed)
		r.Renew(6) // of a list that is not in effect any more
		time.Sleep(time.Millisecond)
		expect(t, r, first, Unknown)
		expect(t, r, second, Removed)
		if want := lease + time.Millisecond; r.Age() != want {
			t.Errorf("age %s, want %s", r.Age(), want)
		}
		r.Renew(7)
		expect(t, r, first, Listed)
	})
}

// Neither a former leader nor a broken list changes anything.
func TestRefused(t *testing.T) {
	r := New()
	take(t, r, list(t, 5, pod(first), pod(second)))
	before := r.State()
	if err := r.Take(list(t, 4, pod(first))); !errors.Is(err, document.ErrOlder) {
		t.Errorf("an older list: %v", err)
	}
	for text, words := range map[string]string{
		"":                                  "unexpected end of JSON",
		`{"version":2,"generation":9}`:      "version is 2, and this adapter reads 1",
		`{"version":1,"pods":[{"uid":""}]}`: "generation is 0",
		`{"version":1,"generation":9}`:      "it has none",
		`{"version":1,"generation":9,"pods":[{"uid":"x"}]}`:                                   "pods[0].uid",
		`{"version":1,"generation":9,"pods":[{"uid":"` + first.String() + `"}],"gone":["x"]}`: "gone[0]",
	} {
		if err := r.Take([]byte(text)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %s", text, err, words)
		}
	}
	if after := r.State(); after.Generation != before.Generation || after.Digest != before.Digest {
		t.Errorf("state %+v, want %+v", after, before)
	}
	expect(t, r, second, Listed)
}

// A list of a later version may have members that are not known here.
func TestMembersOfLaterVersions(t *testing.T) {
	r := New()
	take(t, r, fmt.Appendf(nil, `{"version":1,"generation":1,"zones":{},"pods":[{"uid":%q,"zone":"a"}]}`, first))
	expect(t, r, first, Listed)
}

// What is remembered of removed pods has a bound.
func TestRemovedAreBounded(t *testing.T) {
	r := New()
	take(t, r, list(t, 1, pod(first), pod(second)))
	take(t, r, list(t, 2, pod(first)))
	for n := range mostRemoved {
		next := uid{3, byte(n >> 8), byte(n)}
		take(t, r, list(t, int64(3+2*n), pod(first), pod(next)))
		take(t, r, list(t, int64(4+2*n), pod(first)))
	}
	expect(t, r, second, Unknown)
	if len(r.removed) != mostRemoved || len(r.order) != mostRemoved {
		t.Errorf("%d pods are remembered, %d in order", len(r.removed), len(r.order))
	}
}
