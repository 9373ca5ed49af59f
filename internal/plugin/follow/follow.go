// Package follow follows the logs of pods that come and go, and of containers that start again.
package follow

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Source has the pods whose logs are of interest.
type Source interface {
	List(ctx context.Context) (*corev1.PodList, error)
	Watch(ctx context.Context, resourceVersion string) (watch.Interface, error)
}

// Logs are those of one container of each pod.
type Logs struct {
	Source    Source
	Container string
	// Read shows the log of a pod's container, from a place on, until the log ends.
	Read func(ctx context.Context, pod *corev1.Pod, place *Place) error
	// Note says something about the command itself.
	Note func(words string)

	reading sync.WaitGroup
	mu      sync.Mutex
	begun   map[types.UID]*reading // of the last container of each pod
}

// Place is where in a log to begin.
type Place struct {
	// IsLate says that the container has started after Run: all of its log is of interest.
	IsLate bool
	// Last is the time of the last line that Read has shown; zero if there is none. Read begins behind it,
	// and moves it on.
	Last time.Time
}

// pace is the time between two watches. API servers end them after some minutes.
const pace = time.Second

// Run follows logs until ctx ends, which is no error. Without the right to watch pods it follows those of
// now, until their logs end.
func (l *Logs) Run(ctx context.Context) error {
	parent := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer l.reading.Wait()
	defer cancel(nil)
	l.begun = map[types.UID]*reading{}
	err := l.follow(ctx, cancel)
	if parent.Err() != nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause // of a log that may not be read
	}
	return err
}

func (l *Logs) follow(ctx context.Context, cancel context.CancelCauseFunc) error {
	for isLate := false; ; isLate = true {
		pods, err := l.Source.List(ctx)
		if err != nil && !isLate {
			return err
		}
		if err == nil {
			changes, err := l.Source.Watch(ctx, pods.ResourceVersion)
			switch {
			case apierrors.IsForbidden(err):
				return l.readAll(ctx, pods)
			case err == nil:
				l.take(ctx, cancel, pods, changes, isLate)
			case !isLate:
				return fmt.Errorf("watch pods: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pace): // the API server may be starting again
		}
	}
}

// readAll reads the logs of the pods of now.
func (l *Logs) readAll(ctx context.Context, pods *corev1.PodList) error {
	l.Note("You may not watch pods, so you do not see the logs of pods that start later. The right is: watch pods.")
	problems := make(chan error, len(pods.Items))
	for i := range pods.Items {
		pod := &pods.Items[i]
		reading, r := l.begin(ctx, pod, l.started(pod), false)
		l.reading.Go(func() { problems <- l.read(reading, pod, r) })
	}
	var first error
	for range pods.Items {
		if err := <-problems; first == nil {
			first = err
		}
	}
	return first
}

// take looks at pods, and at all changes of them until the watch ends.
func (l *Logs) take(ctx context.Context, cancel context.CancelCauseFunc, pods *corev1.PodList, changes watch.Interface, isLate bool) {
	defer changes.Stop()
	if len(pods.Items) == 0 && !isLate {
		l.Note("There are no pods yet.")
	}
	l.forget(func(uid types.UID) bool { return find(pods, uid) == nil })
	for i := range pods.Items {
		l.look(ctx, cancel, &pods.Items[i], isLate)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case change := <-changes.ResultChan():
			pod, isPod := change.Object.(*corev1.Pod)
			if !isPod {
				return // it is an error, or the watch has ended
			}
			if change.Type == watch.Deleted {
				l.forget(func(uid types.UID) bool { return uid == pod.UID })
			} else {
				l.look(ctx, cancel, pod, true)
			}
		}
	}
}

// look begins to read the log of a container that has started since the last look.
func (l *Logs) look(ctx context.Context, cancel context.CancelCauseFunc, pod *corev1.Pod, isLate bool) {
	started := l.started(pod)
	if started == "" {
		return
	}
	reading, r := l.begin(ctx, pod, started, isLate)
	if r == nil {
		return
	}
	l.reading.Go(func() {
		err := l.read(reading, pod, r)
		switch {
		case apierrors.IsForbidden(err):
			cancel(err) // it is the same for every pod
		case err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil:
			l.Note(err.Error())
		}
	})
}

// started is the id of the container that runs, or ran last; empty if none has yet.
func (l *Logs) started(pod *corev1.Pod) string { return l.status(pod).ContainerID }

// status is that of the container, or empty.
func (l *Logs) status(pod *corev1.Pod) corev1.ContainerStatus {
	for _, status := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		if status.Name == l.Container {
			return status
		}
	}
	return corev1.ContainerStatus{}
}
