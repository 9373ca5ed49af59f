package follow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// The times between two attempts to read a log that breaks off. The first gives the kubelet time to report
// that the container has ended, as most do whose log ends.
const (
	firstWait = 2 * time.Second
	lastWait  = 30 * time.Second
)

// reading is how the log of one container is read.
type reading struct {
	container string // its id
	place     Place
	previous  *reading // is still to end
	isAgain   bool     // the log broke off, and is read again; Logs.mu guards it
	stop      context.CancelFunc
	ended     chan struct{}
}

// begin begins to read a log, unless that has begun already.
//
// A log that is read again may be that of a container whose start the API server did not know of yet. Such a
// reading ends in favor of the one that begins, which goes on behind its last line.
func (l *Logs) begin(ctx context.Context, pod *corev1.Pod, container string, isLate bool) (context.Context, *reading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	previous := l.begun[pod.UID]
	if previous != nil && previous.container == container {
		return nil, nil
	}
	ctx, stop := context.WithCancel(ctx)
	r := &reading{container: container, place: Place{IsLate: isLate}, stop: stop, ended: make(chan struct{})}
	if previous != nil && previous.isAgain {
		previous.stop()
		r.previous = previous
	}
	l.begun[pod.UID] = r
	return ctx, r
}

// forget forgets pods that are gone.
func (l *Logs) forget(isGone func(types.UID) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.begun, func(uid types.UID, _ *reading) bool { return isGone(uid) })
}

// read reads a log until its container ends. A proxy or a kubelet that starts again may end the log before.
func (l *Logs) read(ctx context.Context, pod *corev1.Pod, r *reading) error {
	defer close(r.ended)
	defer r.stop()
	if r.previous != nil {
		<-r.previous.ended
		r.place.Last, r.previous = r.previous.place.Last, nil
	}
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		began := time.Now()
		err := l.Read(ctx, pod, &r.place)
		if time.Since(began) > lastWait {
			wait = firstWait // it was well in between
		}
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || !l.runsOn(ctx, pod, r, wait) {
			return err
		}
		if err == nil {
			err = fmt.Errorf("the log of pod %s broke off", pod.Name)
		}
		l.Note(err.Error() + ": reading it again, because its container still runs")
	}
}

// runsOn says whether the container of a log that has ended runs, now and some time later.
func (l *Logs) runsOn(ctx context.Context, pod *corev1.Pod, r *reading, later time.Duration) bool {
	if !l.runs(ctx, pod, r) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(later):
	}
	if !l.runs(ctx, pod, r) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.isAgain = l.begun[pod.UID] == r // otherwise the pod is gone, or another container has started
	return r.isAgain
}

// runs says whether a container runs. If the API server does not answer, it may.
func (l *Logs) runs(ctx context.Context, pod *corev1.Pod, r *reading) bool {
	if ctx.Err() != nil {
		return false // the reading was to end
	}
	pods, err := l.Source.List(ctx)
	if err != nil {
		return ctx.Err() == nil && !apierrors.IsForbidden(err)
	}
	now := find(pods, pod.UID)
	if now == nil {
		return false
	}
	status := l.status(now)
	return status.ContainerID == r.container && status.State.Running != nil
}

// find is the pod with a UID, or nil.
func find(pods *corev1.PodList, uid types.UID) *corev1.Pod {
	i := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool { return pod.UID == uid })
	if i < 0 {
		return nil
	}
	return &pods.Items[i]
}
