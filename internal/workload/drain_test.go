package workload

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod that is deleted with less time than its template gives it drains for less time, and still ends in order.
func TestDrainWithin(t *testing.T) {
	minute := graceOf(time.Minute)
	for name, test := range map[string]struct {
		own, given int64 // grace periods
		want       time.Duration
	}{
		"as the template says":    {minute, minute, 0},
		"longer":                  {minute, minute + 100, 0},
		"a little less":           {minute, minute - 10, 50 * time.Second},
		"the half":                {minute, minute / 2, 20 * time.Second},
		"kubectl's 30 s":          {minute, 30, 12 * time.Second},
		"20 s":                    {minute, 20, 7 * time.Second},
		"no longer than it takes": {minute, 5, time.Second},
		"at once":                 {minute, 1, time.Second},
		"a drain that is shorter": {graceOf(5 * time.Second), 20, 0},
		"no drain to speak of":    {graceOf(time.Second), 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &test.own}}
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{}, &test.given
			if got := DrainWithin(pod); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			pod.DeletionTimestamp = nil
			if got := DrainWithin(pod); got != 0 {
				t.Errorf("of a pod that is not deleted: %s", got)
			}
		})
	}
}
