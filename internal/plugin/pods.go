package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/link"
)

const (
	// podPatience is how long the adapter of a pod may take to answer. It takes some milliseconds.
	podPatience = 4 * time.Second
	podsAtATime = 16
)

// eachPod does something with each of some pods, several at a time.
func eachPod(pods []corev1.Pod, do func(i int)) {
	turn := make(chan struct{}, podsAtATime)
	var doing sync.WaitGroup
	for i := range pods {
		turn <- struct{}{}
		doing.Go(func() {
			defer func() { <-turn }()
			do(i)
		})
	}
	doing.Wait()
}

// openPod connects to a pod that serves.
func (e *environment) openPod(ctx context.Context, api client.Client, config *rest.Config, server *mcpv1alpha1.MCPServer) (*link.Pod, *corev1.Pod, error) {
	serving, err := e.servingPods(ctx, api, server)
	if err != nil {
		return nil, nil, err
	}
	pod := slices.MinFunc(serving, func(a, b corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) }) // the youngest lives longest
	opened, err := e.openLink(ctx, api, config, &pod)
	return opened, &pod, err
}

// servingPods are the pods of a server that serve. There is at least one.
func (e *environment) servingPods(ctx context.Context, api client.Client, server *mcpv1alpha1.MCPServer) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(server.Namespace), client.MatchingLabels{mcpv1alpha1.LabelServer: server.Name}); err != nil {
		return nil, fmt.Errorf("list pods of MCPServer %s: %w", server.Name, err)
	}
	serving := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !isServing(&pod) })
	switch {
	case len(serving) > 0:
	case isStopped(server):
		return nil, stopped(server)
	default:
		return nil, fail(exitUnreachable, cmp.Or(problemOf(server), "See why: kubectl mcp doctor "+named(server)), "no pod of MCPServer %s is ready", server.Name)
	}
	return serving, nil
}

// stopped is the failure of a command that needs a pod of a server that the user has stopped.
func stopped(server *mcpv1alpha1.MCPServer) error {
	return fail(exitUnreachable, "To start it, run: kubectl mcp resume "+named(server), "the server is stopped: MCPServer %s", server.Name)
}

// isStopped says whether the user wants no pods.
func isStopped(server *mcpv1alpha1.MCPServer) bool {
	return server.Spec.Suspend || server.Spec.Replicas != nil && *server.Spec.Replicas == 0
}

// openLink connects to a pod.
func (e *environment) openLink(ctx context.Context, api client.Client, config *rest.Config, pod *corev1.Pod) (*link.Pod, error) {
	opened, err := link.Open(ctx, config, client.ObjectKeyFromObject(pod))
	if err != nil {
		return nil, errors.Join(e.missingRight(ctx, api, pod.Namespace, err), err)
	}
	return opened, nil
}

// isServing says whether a pod is ready and stays.
func isServing(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp.IsZero() && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// missingRight says that the caller may not connect to pods, if that is so.
func (e *environment) missingRight(ctx context.Context, api client.Client, namespace string, cause error) error {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods", Subresource: "portforward"},
	}}
	if err := api.Create(ctx, review); err != nil || review.Status.Allowed {
		return &failure{exitUnreachable, cause, ""}
	}
	return fail(exitCredentials, "Ask for the role edit there, which has it.", "you may not create pods/portforward in namespace %s", namespace)
}
