package follow

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// cluster is a source whose pods a test changes.
type cluster struct {
	pods             []corev1.Pod
	changes          *watch.FakeWatcher
	lists            int
	noList, noWatch  error
	refuses          map[string]error // reading the logs of these pods fails
	breaks           chan error       // the log that is read ends with it
	mu               sync.Mutex
	read, notes, end []string
}

// List implements Source.
func (c *cluster) List(context.Context) (*corev1.PodList, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists++
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(c.lists)}, Items: slices.Clone(c.pods)}, c.noList
}

// Watch implements Source.
func (c *cluster) Watch(_ context.Context, version string) (watch.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version != strconv.Itoa(c.lists) {
		return nil, errors.New("the watch begins at version " + version)
	}
	if c.noWatch != nil {
		return nil, c.noWatch
	}
	c.changes = watch.NewFake()
	return c.changes, nil
}

// set changes what the next list has.
func (c *cluster) set(pods []corev1.Pod, noList error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods, c.noList = pods, noList
}

// note keeps a line of what happened.
func (c *cluster) note(list *[]string, words string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*list = append(*list, words)
}

// follow follows a cluster, plays, and returns the error with which it ended. The logs end with ctx, or where
// the test breaks one off.
func (c *cluster) follow(t *testing.T, play func(stop context.CancelFunc)) error {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	logs := &Logs{
		Source: c, Container: "server", Note: func(words string) { c.note(&c.notes, words) },
		Read: func(ctx context.Context, pod *corev1.Pod, place *Place) error {
			words := pod.Name + " server=" + pod.Status.ContainerStatuses[0].ContainerID
			if place.IsLate {
				words += " late"
			}
			if !place.Last.IsZero() {
				words += " after " + strconv.FormatInt(place.Last.Unix(), 10)
			}
			c.note(&c.read, words)
			if err := c.refuses[pod.Name]; err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				c.note(&c.end, pod.Name)
				return nil
			case err := <-c.breaks:
				place.Last = time.Unix(max(place.Last.Unix(), 0)+1, 0) // one more line
				return err
			}
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- logs.Run(ctx) }()
	synctest.Wait()
	play(stop)
	return <-ended
}

// pod has a container that has started, unless the id is empty.
func pod(name, id string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "server", ContainerID: id}}},
	}
}

func (c *cluster) want(t *testing.T, read ...string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := slices.Sorted(slices.Values(c.read))
	slices.Sort(read)
	if diff := cmp.Diff(read, got); diff != "" {
		t.Errorf("logs that are read (-want +got):\n%s", diff)
	}
	c.read = nil
}

// Pods that start later are followed from their start, and so are containers that start again. Each log is
// read once.
func TestPodsThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: []corev1.Pod{*pod("old", "1"), *pod("waiting", "")}}
		err := c.follow(t, func(stop context.CancelFunc) {
			c.want(t, "old server=1")
			c.changes.Modify(pod("old", "1")) // something else has changed
			c.changes.Modify(pod("waiting", "1"))
			c.want(t, "waiting server=1 late")
			c.changes.Add(pod("new", ""))
			c.changes.Modify(pod("new", "1"))
			c.want(t, "new server=1 late")
			c.changes.Modify(pod("new", "2"))
			c.want(t, "new server=2 late")
			c.changes.Delete(pod("old", "1"))
			c.changes.Modify(pod("new", "2"))
			c.want(t)
			stop()
		})
		if err != nil {
			t.Error(err)
		}
		if slices.Sort(c.end); !slices.Equal(c.end, []string{"new", "new", "old", "waiting"}) || c.notes != nil {
			t.Errorf("at the end %v were read, and it said %q", c.end, c.notes)
		}
	})
}

// API servers end watches, and forget where one could begin. What happened in between is not lost, and
// nothing is read twice.
func TestWatchThatEnds(t *testing.T) {
	for name, end := range map[string]func(c *cluster){
		"by itself": func(c *cluster) { c.changes.Stop() },
		"too old": func(c *cluster) {
			c.changes.Error(&metav1.Status{Reason: metav1.StatusReasonExpired})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cluster{pods: []corev1.Pod{*pod("gone", "1"), *pod("stays", "1"), *pod("restarts", "1")}}
				err := c.follow(t, func(stop context.CancelFunc) {
					c.want(t, "gone server=1", "stays server=1", "restarts server=1")
					c.set(nil, errors.New("the API server starts again"))
					end(c)
					time.Sleep(pace + pace/2)
					c.set([]corev1.Pod{*pod("stays", "1"), *pod("restarts", "2"), *pod("new", "1")}, nil)
					time.Sleep(pace)
					c.want(t, "restarts server=2 late", "new server=1 late")
					c.changes.Modify(pod("new", "2"))
					c.want(t, "new server=2 late")
					stop()
				})
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func forbidden(verb string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no "+verb))
}

// Without the right to watch, the logs of now are followed, and the user learns why no more come.
func TestWithoutWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: []corev1.Pod{*pod("a", "1"), *pod("b", "")}, noWatch: forbidden("watch")}
		err := c.follow(t, func(stop context.CancelFunc) {
			c.want(t, "a server=1", "b server=")
			stop()
		})
		if err != nil || len(c.notes) != 1 || c.lists != 1 {
			t.Errorf("error %v after %d lists; it said %q", err, c.lists, c.notes)
		}
		c = &cluster{pods: []corev1.Pod{*pod("a", "1")}, noWatch: forbidden("watch"), refuses: map[string]error{"a": errors.New("no log")}}
		if err := c.follow(t, func(context.CancelFunc) {}); err == nil || err.Error() != "no log" {
			t.Errorf("got %v", err)
		}
	})
}

// What may not be read ends the command; what cannot be read now does not.
func TestProblems(t *testing.T) {
	for name, test := range map[string]struct {
		c     *cluster
		err   string
		notes []string
	}{
		"no list":  {&cluster{noList: forbidden("list")}, `pods is forbidden: no list`, nil},
		"no watch": {&cluster{noWatch: errors.New("broken")}, "watch pods: broken", nil},
		"no right to read": {
			&cluster{pods: []corev1.Pod{*pod("a", "1"), *pod("b", "1")}, refuses: map[string]error{"a": forbidden("log")}}, "pods is forbidden: no log", nil,
		},
		"one log is broken": {&cluster{pods: []corev1.Pod{*pod("a", "1"), *pod("b", "1")}, refuses: map[string]error{"a": errors.New("broken")}}, "", []string{"broken"}},
		"a pod is gone": {
			&cluster{pods: []corev1.Pod{*pod("a", "1")}, refuses: map[string]error{"a": apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "a")}}, "", nil,
		},
		"no pods yet": {&cluster{}, "", []string{"There are no pods yet."}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := test.c.follow(t, func(stop context.CancelFunc) {
					if test.err == "" {
						stop()
					}
				})
				if (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
					t.Errorf("got %v, want %s", err, test.err)
				}
				if diff := cmp.Diff(test.notes, test.c.notes); diff != "" {
					t.Errorf("notes (-want +got):\n%s", diff)
				}
			})
		})
	}
}
