package peer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
)

// pods makes pods of a text such as "a:3/20 b:20/20,old c:1/20,cordoned". A pod is verified and of the newest template
// unless it says otherwise.
func pods(text string) (others []other) {
	for field := range strings.FieldsSeq(text) {
		words := strings.Split(field, ",")
		name, load, _ := strings.Cut(words[0], ":")
		o := other{Candidate: roster.Candidate{PeerPod: adapterapi.PeerPod{UID: name, Ready: true, Verified: true, Newest: true}}}
		if _, err := fmt.Sscanf(load, "%d/%d", &o.load.Sessions, &o.load.Limit); err != nil {
			panic(err)
		}
		for _, word := range words[1:] {
			switch word {
			case "old":
				o.Newest = false
			case "unverified":
				o.Verified = false
			case "cordoned":
				o.Cordoned = true
			case "spare":
				o.load.Spares = 1
			case "sent":
				o.sent = 5
			default:
				o.Zone = word
			}
		}
		others = append(others, o)
	}
	return others
}

// names is the order of places as a text.
func names(others []other, order []int) string {
	var all []string
	for _, i := range order {
		if i == here {
			all = append(all, "here")
		} else {
			all = append(all, others[i].UID)
		}
	}
	return strings.Join(all, " ")
}

// always returns the same numbers again and again.
func always(numbers ...int) func(int) int {
	next := 0
	return func(n int) int {
		number := numbers[next%len(numbers)]
		next++
		return min(number, n-1)
	}
}

func TestPlace(t *testing.T) {
	ready := standing{newest: true, free: true}
	with := func(change func(*standing)) standing {
		self := ready
		change(&self)
		return self
	}
	full := with(func(s *standing) { s.free = false })
	old := with(func(s *standing) { s.newest = false })
	avoided := with(func(s *standing) { s.avoided = true })
	zoned := with(func(s *standing) { s.free, s.zone = false, "near" })
	withoutServer := with(func(s *standing) { s.broken = true })
	slow := with(func(s *standing) { s.slow = true })
	for name, test := range map[string]struct {
		self   standing
		others string
		random []int // of those that remain: the first choice, and the second
		want   string
	}{
		"alone":                      {ready, "", nil, "here"},
		"alone and full":             {full, "", nil, ""},
		"here first":                 {ready, "a:0/20 b:0/20", []int{0, 0}, "here a b"},
		"full":                       {full, "a:0/20", nil, "a"},
		"of two the emptier one":     {full, "a:5/20 b:4/20", []int{0, 0}, "b a"},
		"of two, in the other order": {full, "a:5/20 b:4/20", []int{1, 0}, "b a"},
		"by shares, not by sessions": {full, "a:5/20 b:4/8", []int{0, 0}, "a b"},
		"two at random, then by load": {
			full, "a:1/20 b:9/20 c:3/20 d:8/20 e:2/20", []int{1, 2}, "d b a e c",
		},
		"alike pods as chosen": {full, "a:4/20 b:4/20 c:4/20", []int{2, 1}, "c a b"},
		"full pods last":       {full, "a:20/20 b:19/20 c:25/20", []int{0, 0}, "b a c"},
		"a pod of unknown limit takes one": {
			full, "a:0/0 b:1/0 c:9/20", []int{0, 0}, "a c b",
		},
		"sessions on their way count":            {full, "a:3/20,sent b:7/20", []int{0, 0}, "b a"},
		"but do not make a pod count as full":    {full, "a:19/20,sent b:20/20", []int{1, 0}, "a b"},
		"old pods after new ones":                {full, "a:0/20,old b:19/20 c:18/20", []int{0, 0}, "c b a"},
		"here before older pods":                 {ready, "a:0/20,old", nil, "here a"},
		"old, and a new one is verified":         {old, "a:19/20", nil, "a here"},
		"old, and a new one is not verified":     {old, "a:0/20,unverified", nil, "here a"},
		"old, and the new ones are full":         {old, "a:20/20 b:3/20,old", nil, "here b a"},
		"old and full, and so are the new ones":  {with(func(s *standing) { s.newest, s.free = false, false }), "a:20/20 b:3/20,old", nil, "b a"},
		"no pod is newest":                       {old, "a:0/20,old b:0/20,old,unverified", []int{0, 0}, "here a b"},
		"no pod is verified":                     {full, "a:0/20,unverified", nil, "a"},
		"newest and not verified here":           {ready, "a:0/20,unverified b:0/20", []int{0, 0}, "here b a"},
		"cordoned here":                          {avoided, "a:3/20 b:0/20,old", nil, "a b here"},
		"cordoned here, and all others are full": {avoided, "a:20/20 b:20/20,old", nil, "here a b"},
		"cordoned everywhere":                    {avoided, "a:0/20,cordoned", nil, "here a"},
		"cordoned pods after all others":         {full, "a:0/20,cordoned b:19/20,old c:19/20", nil, "c b a"},
		"a cordoned pod before one that is full": {full, "a:0/20,cordoned b:20/20", nil, "a b"},
		"no server here":                         {withoutServer, "a:3/20 b:0/20,old c:0/20,cordoned", nil, "a b c here"},
		"no server, and all others are full":     {withoutServer, "a:20/20 b:20/20,old", nil, "here a b"},
		"draining":                               {with(func(s *standing) { s.closed = true }), "a:20/20", nil, "a"},
		"draining alone":                         {with(func(s *standing) { s.closed = true }), "", nil, ""},
		"the same zone":                          {zoned, "a:3/20,far b:4/20,near", []int{0, 0}, "b a"},
		"the same zone, in the other order":      {zoned, "a:3/20,far b:4/20,near", []int{1, 0}, "b a"},
		"the same zone, but much fuller":         {zoned, "a:3/20,far b:5/20,near", []int{0, 0}, "a b"},
		"two of the same zone":                   {zoned, "a:4/20,near b:3/20,near", []int{0, 0}, "b a"},
		"none of the same zone":                  {zoned, "a:4/20,far b:3/20,farther", []int{0, 0}, "b a"},
		"no zone here":                           {full, "a:3/20,far b:4/20,near", []int{0, 0}, "a b"},
		"slow, and no pod has a spare":           {slow, "a:0/20 b:0/20", []int{0, 0}, "here a b"},
		"slow, and one has a spare":              {slow, "a:0/20 b:9/20,spare", []int{0, 0}, "b here a"},
		"slow, and of two the emptier one":       {slow, "a:0/20 b:9/20,spare c:8/20,spare", []int{0, 0}, "c b here a"},
		"slow, and the spare is promised":        {slow, "a:0/20,spare,sent b:0/20", []int{0, 0}, "here b a"},
		"slow, and a full one has a spare":       {slow, "a:20/20,spare", nil, "here a"},
		"slow, and an old one has a spare":       {slow, "a:0/20,old,spare b:0/20", nil, "here b a"},
		"slow and old":                           {with(func(s *standing) { s.slow, s.newest = true, false }), "a:0/20,spare,old b:9/20", nil, "b a here"},
		"slow and full":                          {with(func(s *standing) { s.slow, s.free = true, false }), "a:3/20,spare b:2/20", []int{0, 0}, "b a"},
		"not slow":                               {ready, "a:0/20,spare", nil, "here a"},
		"no more than eight": {
			full, "a:1/20 b:2/20 c:3/20 d:4/20 e:5/20 f:6/20 g:7/20 h:8/20 i:9/20 j:10/20", []int{0, 0}, "a b c d e f g h",
		},
		"here besides the eight": {
			avoided, "a:1/20 b:2/20 c:3/20 d:4/20 e:5/20 f:6/20 g:7/20 h:8/20 i:9/20 j:10/20", []int{0, 0}, "a b c d e f g h here",
		},
		"eight full ones do not hide the one that is not": {
			full, "a:9/9 b:9/9 c:9/9 d:9/9 e:9/9 f:9/9 g:9/9 h:9/9 i:9/9 j:0/9,old", []int{0, 0}, "j a b c d e f g",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.random == nil {
				test.random = []int{0}
			}
			others := pods(test.others)
			if diff := cmp.Diff(test.want, names(others, place(&test.self, others, always(test.random...)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever the pods are like, no place comes twice, none is left out unless there are too many, a pod that opens no sessions
// is no place, and a pod that is wanted and not full comes before every other one. Of alike pods, this one is behind those
// with a spare if its starts are slow, and before all others.
func TestPlaceOfAnyPods(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		flag := func() bool { return random.IntN(2) == 0 }
		self := standing{closed: flag(), avoided: flag(), newest: flag(), free: flag(), slow: flag(), broken: flag()}
		others := make([]other, random.IntN(12))
		for i := range others {
			o := &others[i]
			o.Verified, o.Newest, o.Cordoned = flag(), flag(), flag()
			o.load = Load{Sessions: random.Int64N(4), Limit: random.Int64N(4), Spares: random.Int64N(2)}
		}
		order := place(&self, others, random.IntN)
		isHere := slices.Contains(order, here)
		want := min(len(others), mostPeers)
		if isHere {
			want++
		}
		sorted := slices.Clone(order)
		slices.Sort(sorted)
		if len(order) != want || len(slices.Compact(sorted)) != want || isHere != (self.free && !self.closed) {
			t.Fatalf("%+v and %+v: %v", self, others, order)
		}
		better := func(i int) int { // the lower, the sooner
			switch {
			case i == here:
				return 3*int(self.rank()) + 1
			case others[i].load.isFull():
				return 3 * (int(ranks) + int(others[i].rank()))
			case isHere && others[i].rank() == self.rank() && (!self.slow || !others[i].hasSpare()):
				return 3*int(others[i].rank()) + 2
			}
			return 3 * int(others[i].rank())
		}
		if !slices.IsSortedFunc(order, func(a, b int) int { return better(a) - better(b) }) {
			t.Fatalf("%+v and %+v: %v", self, others, order)
		}
	}
}

// Entries that all know the same old figures do not all send their sessions to the pod that was the emptiest then.
func TestPlaceSpreads(t *testing.T) {
	const count, sessions = 10, 10_000
	random := rand.New(rand.NewPCG(3, 4))
	others := pods("a:5/20 b:5/20 c:5/20 d:5/20 e:5/20 f:5/20 g:5/20 h:5/20 i:5/20 j:4/20")
	var got [count]int
	for range sessions {
		got[place(&standing{newest: true}, others, random.IntN)[0]]++
	}
	for i, n := range got {
		// The emptiest is one of the two in a fifth of all cases.
		if most := sessions / 4; n == 0 || n > most {
			t.Errorf("pod %d gets %d of %d sessions, want at most %d", i, n, sessions, most)
		}
	}
}
