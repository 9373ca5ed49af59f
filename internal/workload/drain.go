package workload

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// graceOf is how long a pod with this drain timeout may take to end.
func graceOf(drain time.Duration) int64 {
	return int64(math.Ceil((settleTime + drain + afterDrain).Seconds()))
}

// shortestDrain is what the drain of a pod has at least: calls that are about to be answered, are.
const shortestDrain = time.Second

// DrainWithin is how long the drain of a deleted pod may take, or 0 if that is as long as its template says. A client
// that deletes a pod can give it less time than its template has, and no container can see that.
func DrainWithin(pod *corev1.Pod) time.Duration {
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil || pod.Spec.TerminationGracePeriodSeconds == nil {
		return 0
	}
	own := wholeSeconds(*pod.Spec.TerminationGracePeriodSeconds) - settleTime - afterDrain
	given := drainWithin(wholeSeconds(*pod.DeletionGracePeriodSeconds))
	if given >= own {
		return 0
	}
	return given
}

// drainWithin is the part of a grace period for the drain, in whole seconds. Processes mostly need less than afterDrain
// to end, so of a short period they have only half of what the settle time leaves.
func drainWithin(grace time.Duration) time.Duration {
	left := grace - settleTime
	return max(left-afterDrain, left/2, shortestDrain).Truncate(time.Second)
}

func wholeSeconds(number int64) time.Duration { return time.Duration(number) * time.Second }
