package sidecar

import "testing"

// published returns a function that returns the value of a metric of the adapter.
func published(t *testing.T, adapter *Adapter, name string) func() uint64 {
	t.Helper()
	return func() uint64 {
		families, err := adapter.registry.Gather()
		if err != nil {
			t.Error(err)
		}
		for _, family := range families {
			if metric := family.GetMetric(); family.GetName() == "slipway_adapter_"+name {
				return uint64(metric[0].GetCounter().GetValue() + metric[0].GetGauge().GetValue())
			}
		}
		t.Errorf("there is no metric %s", name)
		return 0
	}
}
