package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// ownLabel is on every namespace that is made here.
const ownLabel = "slipway-bench-cluster"

const (
	// patience is for one server, and each of many takes some more.
	patience    = time.Minute
	patienceFor = 3 * time.Second

	// takesToEnd is for what was measured: pods may drain for a minute.
	takesToEnd = 5 * time.Minute
	lookEvery  = 200 * time.Millisecond
)

// note says that a server has reached a milestone, or why the watch failed.
type note struct {
	server  string
	reached milestone
	at      time.Time
	err     error
}

func createNamespace(ctx context.Context, c client.Client) (string, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: ownLabel + "-",
		Labels:       map[string]string{ownLabel: "", "pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if err := c.Create(ctx, namespace); err != nil {
		return "", fmt.Errorf("create Namespace: %w", err)
	}
	return namespace.Name, nil
}

func patienceWith(servers int) time.Duration {
	return patience + time.Duration(servers)*patienceFor
}

// measureRound creates servers in a namespace of their own, waits until all are
// verified, and deletes everything again. It returns their pods, too.
func measureRound(ctx context.Context, c client.WithWatch, image string, servers int) (lines []*timeline, pods *bare, err error) {
	namespace, err := createNamespace(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		// Also after an interrupt.
		err = errors.Join(err, remove(context.WithoutCancel(ctx), c, namespace))
	}()
	ctx, cancel := context.WithTimeout(ctx, patienceWith(servers))
	defer cancel()
	if lines, err = follow(ctx, c, namespace, image, servers); err != nil {
		return nil, nil, err
	}
	pods, err = copyBare(ctx, c, namespace)
	return lines, pods, err
}

// follow creates servers, and notes what each of them reaches.
func follow(ctx context.Context, c client.WithWatch, namespace, image string, servers int) ([]*timeline, error) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	notes := make(chan note)
	tell := func(n note) {
		select {
		case notes <- n:
		case <-ctx.Done(): // the round has ended
		}
	}
	for _, list := range []client.ObjectList{&mcpv1alpha1.MCPServerList{}, &appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &corev1.PodList{}} {
		following, err := c.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", list, err)
		}
		running.Go(func() { tellSeen(following, tell) })
	}
	running.Go(func() { createAll(ctx, c, namespace, image, servers, tell) })
	return gather(ctx, notes, servers)
}

// tellSeen tells what a watch shows. The times are those at which this process hears
// of it: objects themselves tell seconds only.
func tellSeen(following watch.Interface, tell func(note)) {
	defer following.Stop()
	for event := range following.ResultChan() {
		now := time.Now()
		object, ok := event.Object.(client.Object)
		if !ok || event.Type == watch.Deleted {
			continue
		}
		server, reached := reachedBy(object)
		for _, m := range reached {
			tell(note{server: server, reached: m, at: now})
		}
	}
	tell(note{err: errors.New("a watch has ended too early")})
}

// createAll creates servers one after the other, as kubectl would.
func createAll(ctx context.Context, c client.Client, namespace, image string, servers int, tell func(note)) {
	for i := range servers {
		server := &mcpv1alpha1.MCPServer{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("echo-%03d", i)},
			Spec: mcpv1alpha1.MCPServerSpec{
				Image: image, Command: []string{"/" + program},
				Transport: mcpv1alpha1.Transport{Type: mcpv1alpha1.TransportStdio},
			},
		}
		begin := time.Now()
		if err := c.Create(ctx, server); err != nil {
			tell(note{err: fmt.Errorf("create MCPServer %s: %w", server.Name, err)})
			return
		}
		end := time.Now()
		tell(note{server: server.Name, reached: asked, at: begin})
		tell(note{server: server.Name, reached: stored, at: end})
	}
}

// gather collects notes until that many servers have reached everything.
func gather(ctx context.Context, notes <-chan note, servers int) ([]*timeline, error) {
	known, complete := map[string]*timeline{}, 0
	for complete < servers {
		var n note
		select {
		case n = <-notes:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %d MCPServers: %w: %s", servers, ctx.Err(), laggards(known))
		}
		if n.err != nil {
			return nil, n.err
		}
		line := known[n.server]
		if line == nil {
			line = &timeline{}
			known[n.server] = line
		}
		before := len(line.missing())
		line.note(n.reached, n.at)
		if before > 0 && len(line.missing()) == 0 {
			complete++
		}
	}
	return slices.Collect(maps.Values(known)), nil
}

// laggards says who has not got where.
func laggards(known map[string]*timeline) string {
	var text []string
	for name, line := range known {
		if missing := line.missing(); len(missing) > 0 {
			text = append(text, name+" lacks "+strings.Join(missing, ", "))
		}
	}
	slices.Sort(text)
	return strings.Join(text, "; ")
}

// remove deletes a namespace and waits until nothing of it is left. The servers go
// first: what they run would slow down what comes next, and while a namespace ends
// the manager would mend what is deleted in it.
func remove(ctx context.Context, c client.Client, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, takesToEnd)
	defer cancel()
	// A ReplicaSet would replace pods that are deleted before it.
	for _, stage := range []struct {
		deletes client.Object
		until   client.ObjectList // is empty
	}{
		{&mcpv1alpha1.MCPServer{}, &appsv1.ReplicaSetList{}},
		{&corev1.Pod{}, &corev1.PodList{}},
	} {
		if err := c.DeleteAllOf(ctx, stage.deletes, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("delete every %T of %s: %w", stage.deletes, namespace, err)
		}
		err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
			err := c.List(ctx, stage.until, client.InNamespace(namespace))
			return err == nil && meta.LenList(stage.until) == 0, err
		})
		if err != nil {
			return fmt.Errorf("wait for the end of %T of %s: %w", stage.until, namespace, err)
		}
	}
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := client.IgnoreNotFound(c.Delete(ctx, object)); err != nil {
		return fmt.Errorf("delete Namespace %s: %w", namespace, err)
	}
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("wait for the end of Namespace %s: %w", namespace, err)
	}
	return nil
}
