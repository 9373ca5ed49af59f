package follow

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// running is the pod a, whose container runs.
func running(id string) *corev1.Pod {
	p := pod("a", id)
	p.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{}
	return p
}

const reason = ": reading it again, because its container still runs"

// A log that breaks off while its container runs is read again behind its last line, after a while that gets
// longer, and the user learns of it. With the container, the log has ended.
func TestLogThatBreaksOff(t *testing.T) {
	for name, noWatch := range map[string]error{"with watch": nil, "without the right to watch": forbidden("watch")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cluster{pods: []corev1.Pod{*running("1")}, noWatch: noWatch, breaks: make(chan error)}
				err := c.follow(t, func(stop context.CancelFunc) {
					c.want(t, "a server=1")
					c.notes = nil // on the right to watch
					c.breaks <- nil
					time.Sleep(firstWait - time.Millisecond)
					c.want(t)
					time.Sleep(time.Millisecond)
					c.want(t, "a server=1 after 1")
					c.breaks <- errors.New("broken")
					time.Sleep(firstWait)
					c.want(t)
					time.Sleep(firstWait)
					c.want(t, "a server=1 after 2")
					time.Sleep(lastWait + time.Second) // nothing is wrong
					c.breaks <- nil
					time.Sleep(firstWait)
					c.want(t, "a server=1 after 3")
					c.breaks <- nil
					synctest.Wait()
					c.set([]corev1.Pod{*pod("a", "1")}, nil) // what the kubelet reports a little later
					time.Sleep(lastWait)
					c.want(t)
					stop()
				})
				if err != nil {
					t.Error(err)
				}
				want := []string{"the log of pod a broke off" + reason, "broken" + reason, "the log of pod a broke off" + reason}
				if diff := cmp.Diff(want, c.notes); diff != "" {
					t.Errorf("notes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// While the API server does not answer, the container may run.
func TestLogThatBreaksOffWithTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: []corev1.Pod{*running("1")}, breaks: make(chan error)}
		err := c.follow(t, func(stop context.CancelFunc) {
			c.want(t, "a server=1")
			c.set(nil, errors.New("the API server starts again"))
			c.breaks <- errors.New("broken")
			time.Sleep(firstWait)
			c.want(t, "a server=1 after 1")
			stop()
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// What is read again may already be the log of a container that the API server does not know of yet. When it
// does, no line is shown twice.
func TestContainerThatStartsAgainUnnoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: []corev1.Pod{*running("1")}, breaks: make(chan error)}
		err := c.follow(t, func(stop context.CancelFunc) {
			c.want(t, "a server=1")
			c.breaks <- nil
			time.Sleep(firstWait)
			c.want(t, "a server=1 after 1")
			c.changes.Modify(running("2"))
			c.want(t, "a server=2 late after 1")
			if !slices.Equal(c.end, []string{"a"}) {
				t.Errorf("the readings %v have ended", c.end)
			}
			stop()
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A pod that is deleted, and a container that another has replaced, are not read again.
func TestLogThatEnds(t *testing.T) {
	for name, change := range map[string]func(c *cluster){
		"deleted":  func(c *cluster) { c.changes.Delete(running("1")) },
		"replaced": func(c *cluster) { c.changes.Modify(running("2")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cluster{pods: []corev1.Pod{*running("1")}, breaks: make(chan error)}
				err := c.follow(t, func(stop context.CancelFunc) {
					c.breaks <- nil
					synctest.Wait()
					change(c) // while the list does not have it yet
					synctest.Wait()
					c.read = nil
					time.Sleep(lastWait)
					c.want(t)
					stop()
				})
				if err != nil || c.notes != nil {
					t.Errorf("error %v; it said %q", err, c.notes)
				}
			})
		})
	}
}
