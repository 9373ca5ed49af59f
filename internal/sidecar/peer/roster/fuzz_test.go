package roster

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// FuzzTake finds out whether a list of pods takes effect as a whole or not at all, whatever is in it.
func FuzzTake(f *testing.F) {
	const uid = `"00000000000000000000000000000001"`
	for _, seed := range []string{
		`{"version":1,"generation":2,"pods":[{"uid":` + uid + `,"address":"192.0.2.1:16272","ready":true,"newest":true}],"gone":[` + uid + `]}`,
		`{"version":1,"generation":2,"pods":[{"uid":` + uid + `,"address":"x","ready":true},{"uid":` + uid + `}],"partial":true}`,
		`{"version":1,"generation":-1,"pods":[{"uid":"x"}]}`, `{"version":99,"generation":3}`, `null`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		now := time.Unix(0, 0)
		r := NewAt(func() time.Time { return now })
		if err := r.Take([]byte(`{"version":1,"generation":1,"pods":[{"uid":` + uid + `,"address":"192.0.2.1:16272","ready":true}]}`)); err != nil {
			t.Fatal(err)
		}
		state, ready := r.State(), r.Ready()
		now = now.Add(lease)
		if err := r.Take(text); err != nil {
			if !cmp.Equal(r.State(), state) || r.Ready() != ready || r.Age() != lease {
				t.Errorf("a list that is refused (%v) takes effect", err)
			}
			return
		}
		if r.State().Generation < state.Generation || r.Age() != 0 || r.Ready() == nil {
			t.Errorf("the list in effect is %+v, %s old", r.State(), r.Age())
		}
		for _, pod := range r.Ready().Pods {
			if entry, has := r.Entry(pod.Owner.UID); !has || !entry.Ready || !pod.Owner.Address.IsValid() || r.Standing(pod.Owner.UID) != Listed {
				t.Errorf("%+v is ready, and the list has %+v", pod, entry)
			}
		}
	})
}
