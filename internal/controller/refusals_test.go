package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/prober"
)

// The manager reports no refusal twice, and none from before this manager.
func TestRefusalsAreToldOnce(t *testing.T) {
	var counts memory
	unasked := map[types.UID]prober.Result{"a": {}}
	if more := counts.refusedSince(unasked); len(more) != 0 {
		t.Errorf("before the first report: %v", more)
	}
	for i, step := range []struct {
		refused map[types.UID]uint64
		want    map[types.UID]uint64
	}{
		{map[types.UID]uint64{"a": 5}, nil}, // before this manager
		{map[types.UID]uint64{"a": 5}, nil},
		{map[types.UID]uint64{"a": 8, "b": 0}, map[types.UID]uint64{"a": 3}},
		{map[types.UID]uint64{"a": 8, "b": 1}, map[types.UID]uint64{"b": 1}},
		{map[types.UID]uint64{"a": 1, "b": 1}, nil}, // its adapter was restarted
		{map[types.UID]uint64{"b": 1}, nil},
		{map[types.UID]uint64{"b": 2}, map[types.UID]uint64{"b": 1}},
	} {
		results := map[types.UID]prober.Result{}
		for pod, refused := range step.refused {
			results[pod] = prober.Result{Report: &prober.Report{}, Sessions: adapterapi.Sessions{Refused: refused}}
		}
		if diff := cmp.Diff(step.want, counts.refusedSince(results), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}
