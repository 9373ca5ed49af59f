package peer

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// readyPods are so many pods of the newest template.
func readyPods(count int) []roster.Candidate {
	pods := make([]roster.Candidate, count)
	for i := range pods {
		pods[i].PeerPod = adapterapi.PeerPod{Ready: true, Verified: true, Newest: true}
		binary.BigEndian.PutUint32(pods[i].Owner.UID[:], uint32(i+1))
	}
	return pods
}

func groupName(n int) string { return fmt.Sprintf("------address 10.0.%d.%d", n/256, n%256) }

// winners are the UIDs of the first homes of so many groups.
func winners(pods []roster.Candidate, groups int) [][16]byte {
	homes, first := homesOf(pods), make([][16]byte, groups)
	for n := range first {
		first[n] = homes.next(digestOf(groupName(n)), nil).owner.UID
	}
	return first
}

// Every pod ranks the homes of a group in the same way, whatever the order of its list. The ranking has each home once.
func TestPodsAgreeOnHomes(t *testing.T) {
	const pods = 7
	list := readyPods(pods)
	ranking := func(group uint64) (order []sessionid.Owner) {
		homes := homesOf(list)
		for h := homes.next(group, nil); h != nil; h = homes.next(group, h) {
			order = append(order, h.owner)
		}
		return order
	}
	orders := map[string]bool{}
	for n := range 200 {
		group := digestOf(groupName(n))
		want := ranking(group)
		orders[fmt.Sprint(want)] = true
		for range 10 {
			rand.Shuffle(pods, func(i, j int) { list[i], list[j] = list[j], list[i] })
			if got := ranking(group); !slices.Equal(got, want) {
				t.Fatalf("group %d ranks %v, and %v in another order of the list", n, want, got)
			}
		}
		slices.SortFunc(want, func(a, b sessionid.Owner) int { return slices.Compare(a.UID[:], b.UID[:]) })
		if want = slices.Compact(want); len(want) != pods {
			t.Fatalf("group %d ranks %d pods", n, len(want))
		}
	}
	if len(orders) < 190 {
		t.Errorf("200 groups have %d orders of homes", len(orders))
	}
}

// The choice does not depend on the version of the adapter, as pods of two versions serve side by side.
func TestHomesStayTheSame(t *testing.T) {
	var first []byte
	for _, uid := range winners(readyPods(5), 24) {
		first = append(first, '0'+uid[3])
	}
	const want = "515425551531343534341523"
	if string(first) != want {
		t.Errorf("the first homes are %s, want %s", first, want)
	}
}

// All homes get about as many groups.
func TestGroupsAreSpread(t *testing.T) {
	const groups = 20_000
	for _, pods := range []int{2, 3, 5, 16, 100} {
		counts := map[[16]byte]int{}
		for _, uid := range winners(readyPods(pods), groups) {
			counts[uid]++
		}
		mean := float64(groups) / float64(pods)
		for uid, count := range counts {
			if off := math.Abs(float64(count) - mean); off > 5*math.Sqrt(mean) { // deviations of chance
				t.Errorf("%d pods: pod %d has %d groups, and the mean is %.0f", pods, uid[3], count, mean)
			}
		}
		if len(counts) != pods {
			t.Errorf("%d of %d pods have groups", len(counts), pods)
		}
	}
}

// A pod that comes gets its part of the groups, and no group moves between others. A pod that goes gives up its own
// groups alone.
func TestFewGroupsMove(t *testing.T) {
	const groups = 20_000
	for _, pods := range []int{1, 2, 3, 5, 16} {
		newcomer := readyPods(pods + 1)[pods].Owner.UID
		before, after := winners(readyPods(pods), groups), winners(readyPods(pods+1), groups)
		moved := 0
		for n := range before {
			switch {
			case before[n] == after[n]:
			case after[n] != newcomer:
				t.Fatalf("%d pods and one more: group %d moves between the others", pods, n)
			default:
				moved++
			}
		}
		if want := float64(groups) / float64(pods+1); math.Abs(float64(moved)-want) > 5*math.Sqrt(want) {
			t.Errorf("%d pods and one more: %d of %d groups move, want about %.0f", pods, moved, groups, want)
		}
	}
}

// Homes are the verified pods of the newest template. Without any, readiness is enough, and cordoned pods are the last resort.
func TestWhichPodsAreHomes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ pods, want string }{
		"none":                       {"", "[]"},
		"newest and verified":        {"a:0/1 b:9/9 c:0/1,old d:0/1,unverified e:0/1,cordoned", "[a b]"},
		"none newest":                {"a:0/1,old b:0/1,old c:0/1,cordoned", "[a b]"},
		"none verified":              {"a:0/1,unverified b:0/1,old,unverified c:0/1,old,cordoned", "[a b]"},
		"only cordoned ones":         {"a:0/1,cordoned b:0/1,cordoned,old", "[a b]"},
		"the newest one is cordoned": {"a:0/1,cordoned b:0/1,old", "[b]"},
	} {
		t.Run(name, func(t *testing.T) {
			var ready []roster.Candidate
			for _, o := range pods(test.pods) {
				copy(o.Owner.UID[:], o.UID)
				ready = append(ready, o.Candidate)
			}
			found := []string{}
			for _, h := range homesOf(ready) {
				found = append(found, string(h.owner.UID[:1]))
			}
			if got := fmt.Sprint(found); got != test.want {
				t.Errorf("homes are %s, want %s", got, test.want)
			}
		})
	}
}
